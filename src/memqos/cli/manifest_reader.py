"""Objects out of files, for commands: what cannot be read is reported, the rest is returned."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal

from memqos.cli.output import complain
from memqos.errors import InputError, nearest_name, quote_excerpt
from memqos.host.manifest_files import load_files
from memqos.kube.pod import Pod
from memqos.kube.validation import fractional_bytes
from memqos.manifests.documents import Document, read_documents
from memqos.manifests.objects import NoPods, Template, pods
from memqos.plan.semantics import is_stored

if TYPE_CHECKING:
    from memqos.cli.cluster_access import LiveCluster
    from memqos.draw.text.check_report import CheckLevel, CheckResult
    from memqos.host.manifest_files import LoadedFile
    from memqos.manifests.objects import Item


_Place = Literal["file", "stream", "folder"]
"""What a document is a part of: a file of its own, one with several documents, or a folder."""
LocatedPod = tuple[Template, Pod]
"""A pod and where it comes from."""


class ManifestReader:
    """Reads manifests, and objects of a live cluster, and counts the faults it met.

    A folder, a stream of documents and a List hold whatever an application needs, so objects of
    other kinds are skipped there and counted, unless the reader is `strict`. A file that holds
    such objects alone is a fault. With `results` what is wrong is added to them, not printed; if
    the reader `is_silent`, nothing is.
    """

    def __init__(
        self,
        live: "LiveCluster | None" = None,
        *,
        strict: bool = False,
        results: "list[CheckResult] | None" = None,
        is_silent: bool = False,
    ) -> None:
        self.faults = 0
        self.pods_read = 0
        self.files_read: list[str] = []
        self._results = results
        self._live = live
        self._strict = strict
        self._is_silent = is_silent
        self._skipped: Counter[str] = Counter()

    def pods(self, paths: Sequence[str]) -> Iterator[LocatedPod]:
        """Every pod that could be read, and where it comes from."""
        met = self.pods_read + self.faults
        for document, place in self._documents(paths):
            for found in pods(_document_of_pods(document)):
                if isinstance(found, Template):
                    yield from self._decode(found)
                elif isinstance(found, NoPods) and self._may_skip(found, document, place):
                    self._skipped[found.kind or "of no kind"] += 1
                else:
                    self.refuse(found.fault if isinstance(found, NoPods) else found)
        if self.pods_read + self.faults == met and not self._skipped:
            self._report_no_pods(paths)
        self._report_skipped("as they have no pods")

    def _report_no_pods(self, paths: Sequence[str]) -> None:
        """Report empty lists, as kubectl prints them for a namespace that has no pods."""
        live = self._live
        files = [path for path in paths if live is None or not live.is_object_path(path)]
        if files and not self._is_silent:
            shown = ", ".join("<stdin>" if file == "-" else file for file in files)
            complain(f"there are no pods in {shown} – is it the right file, the right namespace?")

    def _may_skip(self, found: NoPods, document: Document, place: "_Place") -> bool:
        if self._strict:
            return False
        is_listed = found.kind != document.kind
        return place == "folder" or bool(found.kind and (place == "stream" or is_listed))

    def _may_skip_kind(self, item: "Item", place: "_Place", kinds: Collection[str]) -> bool:
        if place == "folder" or self._strict:
            return place == "folder"
        is_one_of_several = place == "stream" or bool(item.path)
        is_misspelt = nearest_name(item.kind, kinds, cutoff=0.85) is not None
        return is_one_of_several and bool(item.kind) and not is_misspelt

    def objects(self, paths: Sequence[str], kinds: Collection[str]) -> Iterator["Item"]:
        """Every object of these kinds, and where it comes from."""
        return self._objects(self._documents(paths), kinds)

    def objects_in(
        self, loaded: "Iterable[LoadedFile]", kinds: Collection[str]
    ) -> Iterator["Item"]:
        """The same, out of files that were loaded already."""
        return self._objects(self._parse(loaded), kinds)

    def _objects(
        self, documents: Iterable[tuple[Document, "_Place"]], kinds: Collection[str]
    ) -> Iterator["Item"]:
        from memqos.manifests.objects import objects

        has_any = False
        wrong: InputError | None = None
        for document, place in documents:
            for item in objects(document):
                if isinstance(item, InputError):
                    self.refuse(item)
                elif item.kind in kinds:
                    has_any = True
                    yield item
                elif self._may_skip_kind(item, place, kinds):
                    self._skipped[item.kind or "of no kind"] += 1
                    if wrong is None and place != "folder":
                        wrong = _wrong_kind_error(item, kinds)
                else:
                    self.refuse(_wrong_kind_error(item, kinds))
        if wrong is not None and not has_any:
            self._skipped.clear()
            self.refuse(wrong)
        self._report_skipped(f"as only {' and '.join(kinds)} are used here")

    def refuse(self, error: InputError) -> None:
        """Count a fault and report it."""
        self.faults += 1
        self._report(error, "error")

    def require_no_faults(self, file: str) -> None:
        """Stop at the first fault in a file that every answer depends on."""
        if self.faults:
            raise incomplete_input(file)

    def _documents(self, paths: Sequence[str]) -> Iterator[tuple[Document, "_Place"]]:
        """Every document that could be read, and what it is a part of."""
        for path in paths:
            from_folder = os.path.isdir(path)
            for document, place in self._parse(self._load(path)):
                yield document, "folder" if from_folder else place

    def _parse(self, loaded: "Iterable[LoadedFile]") -> Iterator[tuple[Document, "_Place"]]:
        for file, data in loaded:
            self.files_read.append(file)
            if isinstance(data, InputError):
                self.refuse(data)
                continue
            documents = read_documents(data, file)
            # Whether the first document is the only one is known once a second one was looked for.
            first = list(islice(documents, 2))
            place: _Place = "file" if len(first) == 1 else "stream"
            for document in chain(first, documents):
                if isinstance(document, InputError):
                    self.refuse(document)
                else:
                    yield document, place

    def _load(self, path: str) -> "Iterator[LoadedFile]":
        if self._live is not None and self._live.is_object_path(path):
            return self._live.load(path)
        return load_files([path])

    def _report_skipped(self, why: str) -> None:
        if self._skipped and not self._is_silent:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self._skipped.items())
            complain(f"skipped, {why}: {kinds}")
            self._skipped.clear()

    def _decode(self, template: Template) -> Iterator[LocatedPod]:
        try:
            pod = template.decode(Pod)
            _check_uid(template, pod)
        except InputError as error:
            self.refuse(error)
            return
        if not is_stored(pod) and self._has_unknown_fields(template):
            return
        self._warn(template, pod)
        self.pods_read += 1
        yield template, pod

    def _has_unknown_fields(self, template: Template) -> bool:
        """Whether kubectl would refuse the manifest; what a cluster has stored is not checked."""
        from memqos.manifests.strict_fields import unknown_fields

        before = self.faults
        for fault in unknown_fields(template):
            self.refuse(fault)
        return self.faults > before

    def _warn(self, template: Template, pod: Pod) -> None:
        """Report what the API server accepts with a warning."""
        for field, message, hint in fractional_bytes(pod):
            self._report(template.error(message, field, hint), "warning")

    def _report(self, error: InputError, level: "CheckLevel") -> None:
        if self._is_silent:
            return
        if self._results is None:
            complain(error, "" if level == "error" else f"{level}: ")
            return
        from memqos.draw.text.check_report import input_result

        self._results.append(input_result(error, level))


def incomplete_input(file: str) -> InputError:
    """The error about something on which every answer depends, after those of its parts."""
    what = "it could not be read completely, so there is no answer"
    return InputError(what, file=file, hint="see above")


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
        f"{quote_excerpt(item.kind)} is not used here", "kind", f"expected {expected}"
    )
