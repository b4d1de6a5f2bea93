"""Find the objects of a document: the document itself, or the items of a list."""

from collections.abc import Iterator
from typing import Any, Final

from memqos.errors import InputError
from memqos.manifests.documents import Document
from memqos.manifests.positions import FieldPath
from memqos.manifests.refusals import unlike
from memqos.manifests.snapshot import is_snapshot
from memqos.manifests.workloads import Template

SNAPSHOT: Final = "Snapshot"
"""The kind a snapshot goes by: it does not say one itself."""
_LIST_SUFFIX: Final = "List"


class Item(Template, frozen=True):
    """One object, its kind, and the place it comes from."""

    kind: str


def objects(document: Document) -> Iterator[Item | InputError]:
    """The objects of a document in order, lists taken apart; for what is no object, why."""
    return _objects(document, (), document.data, "")


def _objects(
    document: Document, path: FieldPath, data: dict[str, Any], unless_given: str
) -> Iterator[Item | InputError]:
    kind = data.get("kind") or unless_given or (SNAPSHOT if is_snapshot(data) else "")
    if not isinstance(kind, str):
        yield document.error(*_type_error(kind, str, (*path, "kind")))
        return
    if not kind.endswith(_LIST_SUFFIX):
        yield _item(document, path, data, kind)
        return
    items = data.get("items")
    if items is not None and not isinstance(items, list):
        yield document.error(*_type_error(items, list, (*path, "items")))
        return
    for index, item in enumerate(items or ()):
        place = (*path, "items", index)
        if isinstance(item, dict):
            yield from _objects(document, place, item, kind.removesuffix(_LIST_SUFFIX))
        else:
            yield document.error(*_type_error(item, dict, place))


def _item(document: Document, path: FieldPath, data: dict[str, Any], kind: str) -> Item:
    metadata = data.get("metadata")
    named: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    name, namespace = named.get("name"), named.get("namespace")
    return Item(
        document=document,
        path=path,
        label=f"{kind.lower()}/{name or '(unnamed)'}",
        namespace=namespace if isinstance(namespace, str) else None,
        data=data,
        kind=kind,
    )


def _type_error(
    value: object, expected: type, path: FieldPath
) -> tuple[str, FieldPath, str | None]:
    what, hint = unlike(value, expected)
    return what, path, hint
