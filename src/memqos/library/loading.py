"""Load pods out of files, folders and texts, for a Python program."""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeGuard

import msgspec

from memqos.errors import InputError, quote_excerpt
from memqos.host.manifest_files import load_files
from memqos.kube.pod import Pod
from memqos.manifests.documents import Document, read_documents
from memqos.manifests.objects import NoPods, Template, pods

Source = str | os.PathLike[str]
"""A file, a folder, or the text of a manifest."""
_TEXT_NAME: Final = "<text>"
"""What errors call a text, which has no file."""


class LoadedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, or the template of a workload, and its place in a file."""

    pod: Pod
    kind: str
    """That of the object: Pod, Deployment, …"""
    name: str
    namespace: str | None
    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.name} ({self.file}:{self.line})"


def load(source: Source) -> list[LoadedPod]:
    """Every pod in a file, a folder or a text: Pods, workloads, and lists of them.

    A text that spans lines, or begins with a brace, is a manifest; any other is a path. Objects
    that hold no pods are skipped, unless there is nothing else. The first fault raises InputError
    with file, line and column.
    """
    found: list[LoadedPod] = []
    without_pods: InputError | None = None
    for document in documents_in(source):
        for item in pods(document):
            if isinstance(item, NoPods):
                without_pods = without_pods or item.fault
            elif isinstance(item, InputError):
                raise item
            else:
                found.append(_loaded(item))
    if not found and without_pods is not None:
        raise without_pods
    return found


def documents_in(source: Source) -> Iterator[Document]:
    """Every document of a source."""
    if not isinstance(source, str | os.PathLike):
        raise wrong_type("source", source, "a path, or the text of a manifest")
    if is_text(source):
        loaded: Iterable[tuple[str, bytes | InputError]] = [(_TEXT_NAME, source.encode())]
    else:
        loaded = load_files([os.fspath(source)])
    for file, data in loaded:
        if isinstance(data, InputError):
            raise data
        for document in read_documents(data, file):
            if isinstance(document, InputError):
                raise document
            yield document


def is_text(source: Source) -> TypeGuard[str]:
    """Whether it is a manifest, not the path of one."""
    return isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{"))


def _loaded(template: Template) -> LoadedPod:
    line, column = template.document.position(template.owner)
    return LoadedPod(
        pod=template.decode(Pod),
        kind=template.kind,
        name=template.label.partition("/")[2],
        namespace=template.namespace,
        file=template.document.file,
        line=line,
        column=column,
    )


def one_document(source: Source, kind: str) -> Document:
    """The first document of a kind."""
    for document in documents_in(source):
        if document.kind == kind:
            return document
    file = _TEXT_NAME if is_text(source) else os.fspath(source)
    raise InputError(f"there is no {kind} in it", file=file)


def check_list(field: str, given: object, expected: str) -> None:
    """Refuse one object where a list of them is due, and what is no list at all."""
    if isinstance(given, str | Mapping | Pod | LoadedPod) or not isinstance(given, Iterable):
        if isinstance(given, Mapping) and "items" in given:
            raise InputError("this is a List of Kubernetes", field=field, hint='give its "items"')
        raise wrong_type(field, given, expected)


def wrong_type(field: str, given: object, expected: str) -> InputError:
    """The error about an argument of another type."""
    name = type(given).__name__
    article = "an" if name[0].lower() in "aeiou" else "a"
    shown = quote_excerpt(given) if isinstance(given, str) else f"{article} {name}"
    if given is None:
        shown = "None"
    return InputError(f"{shown} is not {expected}", field=field)
