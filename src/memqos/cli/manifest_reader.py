"""Objects out of files, for commands: what cannot be read is reported, the rest is returned."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from memqos.cli.output import complain
from memqos.errors import InputError, quote_excerpt
from memqos.host.manifest_files import load_files
from memqos.kube.pod import Pod
from memqos.manifests.documents import Document, read_documents
from memqos.manifests.objects import NoPods, Template, pods

if TYPE_CHECKING:
    from memqos.cli.cluster_access import LiveCluster
    from memqos.host.manifest_files import LoadedFile
    from memqos.manifests.objects import Item


LocatedPod = tuple[Template, Pod]
"""A pod and where it comes from."""


class ManifestReader:
    """Reads manifests, and objects of a live cluster, and counts the faults it met.

    A folder holds whatever an application needs, so objects without pods are skipped there and
    counted; in a file that was named they are a fault.
    """

    def __init__(self, live: "LiveCluster | None" = None) -> None:
        self.faults = 0
        self.pods_read = 0
        self._live = live
        self._skipped: Counter[str] = Counter()

    def pods(self, paths: Sequence[str]) -> Iterator[LocatedPod]:
        """Every pod that could be read, and where it comes from."""
        for document, from_folder in self._documents(paths):
            for found in pods(_document_of_pods(document)):
                if isinstance(found, NoPods) and from_folder:
                    self._skipped[found.kind or "of no kind"] += 1
                elif isinstance(found, Template):
                    yield from self._decode(found)
                else:
                    self.refuse(found.fault if isinstance(found, NoPods) else found)
        self._report_skipped("as they hold no pods")

    def objects(self, paths: Sequence[str], kinds: Collection[str]) -> Iterator["Item"]:
        """Every object of these kinds, and where it comes from."""
        return self._objects(self._documents(paths), kinds)

    def objects_in(
        self, loaded: "Iterable[LoadedFile]", kinds: Collection[str]
    ) -> Iterator["Item"]:
        """The same, out of files that were loaded already."""
        return self._objects(((each, False) for each in self._parse(loaded)), kinds)

    def _objects(
        self, documents: Iterable[tuple[Document, bool]], kinds: Collection[str]
    ) -> Iterator["Item"]:
        from memqos.manifests.objects import objects

        for document, from_folder in documents:
            for item in objects(document):
                if isinstance(item, InputError):
                    self.refuse(item)
                elif item.kind in kinds:
                    yield item
                elif from_folder:
                    self._skipped[item.kind or "of no kind"] += 1
                else:
                    self.refuse(_wrong_kind_error(item, kinds))
        self._report_skipped(f"as only {' and '.join(kinds)} count here")

    def refuse(self, error: InputError) -> None:
        """Count a fault and print it."""
        self.faults += 1
        complain(error)

    def require_no_faults(self, file: str) -> None:
        """Stop at the first fault in a file that every answer depends on."""
        if self.faults:
            raise InputError("no answer without all of it", file=file, hint="see above")

    def _documents(self, paths: Sequence[str]) -> Iterator[tuple[Document, bool]]:
        """Every document that could be read, and whether it comes from a folder."""
        for path in paths:
            from_folder = os.path.isdir(path)
            for document in self._parse(self._load(path)):
                yield document, from_folder

    def _parse(self, loaded: "Iterable[LoadedFile]") -> Iterator[Document]:
        for file, data in loaded:
            if isinstance(data, InputError):
                self.refuse(data)
                continue
            for document in read_documents(data, file):
                if isinstance(document, InputError):
                    self.refuse(document)
                else:
                    yield document

    def _load(self, path: str) -> "Iterator[LoadedFile]":
        if self._live is not None and self._live.is_object_path(path):
            return self._live.load(path)
        return load_files([path])

    def _report_skipped(self, why: str) -> None:
        if self._skipped:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self._skipped.items())
            complain(f"passed over, {why}: {kinds}")
            self._skipped.clear()

    def _decode(self, template: Template) -> Iterator[LocatedPod]:
        try:
            pod = template.decode(Pod)
            _check_uid(template, pod)
        except InputError as error:
            self.refuse(error)
        else:
            self.pods_read += 1
            yield template, pod


def origin_of(template: Template) -> str:
    """The file and line where an object begins."""
    line, _ = template.document.position(template.path)
    return f"{template.document.file}:{line}"


def _check_uid(template: Template, pod: Pod) -> None:
    """A UID becomes part of a path: one that could lead out of it is refused here."""
    if pod.metadata.uid is None:
        return
    from memqos.plan.names import check_uid

    try:
        check_uid(pod.metadata.uid)
    except InputError as error:
        raise template.error(error.what, "metadata.uid", error.hint) from None


def _document_of_pods(document: Document) -> Document:
    """A snapshot stands for the pods it holds."""
    if document.kind:
        return document
    from memqos.manifests.snapshot import pods_in

    return pods_in(document)


def _wrong_kind_error(item: "Item", kinds: Collection[str]) -> InputError:
    expected = " or ".join(kinds)
    if not item.kind:
        return item.error("required, but missing", "kind", f"expected {expected}")
    return item.error(
        f"{quote_excerpt(item.kind)} is of no use here", "kind", f"expected {expected}"
    )
