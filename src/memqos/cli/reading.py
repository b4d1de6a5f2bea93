"""Objects out of files, for commands: what cannot be read is said at once, the rest goes on."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from memqos.cli.output import complain
from memqos.errors import InputError, quote_brief
from memqos.host.manifests import load
from memqos.kube.pod import Pod
from memqos.manifests.documents import Document, read
from memqos.manifests.workloads import NoPods, Template, pods

if TYPE_CHECKING:
    from memqos.cli.clusters import Live
    from memqos.host.manifests import Loaded
    from memqos.manifests.objects import Item


class Reader:
    """Reads manifests, and what a live cluster holds, and counts the faults it met.

    A folder holds whatever an application needs, so objects without pods are passed over there
    and counted; in a file that was named they are a fault.
    """

    def __init__(self, live: "Live | None" = None) -> None:
        self.faults = 0
        self.pods_read = 0
        self._live = live
        self._passed_over: Counter[str] = Counter()

    def pods(self, paths: Sequence[str]) -> Iterator[tuple[Template, Pod]]:
        """Every pod that could be read, and where it comes from."""
        for document, from_folder in self._documents(paths):
            for found in pods(_pods_of(document)):
                if isinstance(found, NoPods) and from_folder:
                    self._passed_over[found.kind or "of no kind"] += 1
                elif isinstance(found, Template):
                    yield from self._decoded(found)
                else:
                    self.refuse(found.fault if isinstance(found, NoPods) else found)
        self._tell_passed_over("as they hold no pods")

    def objects(self, paths: Sequence[str], kinds: Collection[str]) -> Iterator["Item"]:
        """Every object of these kinds, and where it comes from."""
        return self._objects(self._documents(paths), kinds)

    def objects_in(self, loaded: "Iterable[Loaded]", kinds: Collection[str]) -> Iterator["Item"]:
        """The same of what was loaded already."""
        return self._objects(((each, False) for each in self._read(loaded)), kinds)

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
                    self._passed_over[item.kind or "of no kind"] += 1
                else:
                    self.refuse(_unwanted(item, kinds))
        self._tell_passed_over(f"as only {' and '.join(kinds)} count here")

    def refuse(self, error: InputError) -> None:
        """Count a fault and say it."""
        self.faults += 1
        complain(error)

    def insist(self, file: str) -> None:
        """Go on only if nothing was wrong so far with a file that all answers rest on."""
        if self.faults:
            raise InputError("no answer without all of it", file=file, hint="see above")

    def _documents(self, paths: Sequence[str]) -> Iterator[tuple[Document, bool]]:
        """Every document that could be read, and whether it comes from a folder."""
        for path in paths:
            from_folder = os.path.isdir(path)
            for document in self._read(self._loaded(path)):
                yield document, from_folder

    def _read(self, loaded: "Iterable[Loaded]") -> Iterator[Document]:
        for file, data in loaded:
            if isinstance(data, InputError):
                self.refuse(data)
                continue
            for document in read(data, file):
                if isinstance(document, InputError):
                    self.refuse(document)
                else:
                    yield document

    def _loaded(self, path: str) -> "Iterator[Loaded]":
        if self._live is not None and self._live.knows(path):
            return self._live.load(path)
        return load([path])

    def _tell_passed_over(self, why: str) -> None:
        if self._passed_over:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self._passed_over.items())
            complain(f"passed over, {why}: {kinds}")
            self._passed_over.clear()

    def _decoded(self, template: Template) -> Iterator[tuple[Template, Pod]]:
        try:
            pod = template.decode(Pod)
            _check_uid(template, pod)
        except InputError as error:
            self.refuse(error)
        else:
            self.pods_read += 1
            yield template, pod


def _check_uid(template: Template, pod: Pod) -> None:
    """A UID becomes part of a path sooner or later: one that could leave it is refused here."""
    if pod.metadata.uid is None:
        return
    from memqos.plan.names import check_uid

    try:
        check_uid(pod.metadata.uid)
    except InputError as error:
        raise template.refused(error.what, "metadata.uid", error.hint) from None


def _pods_of(document: Document) -> Document:
    """A snapshot stands for the pods it holds."""
    if document.kind:
        return document
    from memqos.manifests.snapshot import pods_in

    return pods_in(document)


def _unwanted(item: "Item", kinds: Collection[str]) -> InputError:
    wanted = " or ".join(kinds)
    if not item.kind:
        return item.refused("required, but missing", "kind", f"expected {wanted}")
    return item.refused(f"{quote_brief(item.kind)} is of no use here", "kind", f"expected {wanted}")
