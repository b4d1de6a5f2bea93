"""Find the objects of a document: the document itself, or the items of a list."""

from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from memqos.errors import InputError, nearest_name, quote_excerpt
from memqos.manifests.documents import Document, decoding_error, unlike
from memqos.manifests.positions import FieldPath, steps

_Decoded = TypeVar("_Decoded")


class _Workload(msgspec.Struct, frozen=True):
    """The API group of a kind, and the path of its pod."""

    group: str
    path: tuple[str, ...]


_TEMPLATE = ("spec", "template")
_WORKLOADS = {
    "Pod": _Workload("", ()),
    "Deployment": _Workload("apps", _TEMPLATE),
    "StatefulSet": _Workload("apps", _TEMPLATE),
    "DaemonSet": _Workload("apps", _TEMPLATE),
    "ReplicaSet": _Workload("apps", _TEMPLATE),
    "ReplicationController": _Workload("", _TEMPLATE),
    "Job": _Workload("batch", _TEMPLATE),
    "CronJob": _Workload("batch", ("spec", "jobTemplate", *_TEMPLATE)),
}
_LIST = "List"
_GROUPS = {
    **{kind: workload.group for kind, workload in _WORKLOADS.items()},
    **{kind + _LIST: workload.group for kind, workload in _WORKLOADS.items()},
    _LIST: "",
}
_MISSING = "required, but missing"
_SUPPORTED = f"supported: {', '.join(_WORKLOADS)}, and lists of them"


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as plain data, and the place in a document it comes from."""

    document: Document
    path: FieldPath
    label: str
    """Such as `pod/web` or `deployment/web`."""
    namespace: str | None
    data: dict[str, Any]
    """`metadata` and `spec`, and what else a Pod has; a template has its workload's name."""
    kind: str
    """That of the object: Pod, Deployment, …"""
    owner: FieldPath
    """Where the object begins; `path` is inside it where it is a workload."""

    def decode(self, type: type[_Decoded]) -> _Decoded:
        """Turn the data into an object; raise InputError where it does not fit."""
        try:
            return msgspec.convert(self.data, type)
        except msgspec.ValidationError as error:
            raise decoding_error(error, self.data, self.document, self.path) from None

    def error(self, what: str, field: str = "", hint: str | None = None) -> InputError:
        """An error about a field of the pod, with its position."""
        return self.document.error(what, self.path + steps(field), hint)

    def field_error(self, field: str, message: str) -> InputError:
        """A field error with its place, the field spelled as Kubernetes does."""
        line, column = self.document.position(self.path + steps(field))
        return InputError(message, file=self.document.file, line=line, column=column, field=field)

    def with_position(self, error: InputError) -> InputError:
        """Add the position to an error that has at most its field."""
        if error.file is not None:
            return error
        return self.error(error.what, error.field or "", error.hint)


class NoPods(msgspec.Struct, frozen=True):
    """An object of a kind without pods."""

    kind: str
    """Empty where the object has none."""
    fault: InputError
    """The message where pods were expected."""


class _Identity(msgspec.Struct, frozen=True):
    kind: str
    api_version: str

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]


_NO_IDENTITY = _Identity("", "")


class _Object(msgspec.Struct, frozen=True):
    """A mapping somewhere in a document."""

    document: Document
    path: FieldPath
    data: dict[str, Any]

    def get(self, field: str, expected: type[_Decoded]) -> _Decoded | None:
        """Give the value of a field, None if it is not set; raise InputError for another type."""
        value = self.data.get(field)
        if value is None or isinstance(value, expected):
            return value
        raise self.error(field, *unlike(value, expected))

    def error(self, field: str, what: str, hint: str | None = None) -> InputError:
        """An error about a field, with its position."""
        return self.document.error(what, (*self.path, field), hint)

    def inside(self, *fields: str) -> "_Object":
        """Go down to a mapping that must exist."""
        here = self
        for field in fields:
            data: dict[str, Any] | None = here.get(field, dict)
            if data is None:
                raise here.error(field, _MISSING)
            here = _Object(here.document, (*here.path, field), data)
        return here


def pods(document: Document) -> Iterator[Template | NoPods | InputError]:
    """Give the pods of a document in order; for an object that has none, or a broken one, why."""
    return _pods(_Object(document, (), document.data), _NO_IDENTITY)


def _pods(here: _Object, unless_given: _Identity) -> Iterator[Template | NoPods | InputError]:
    try:
        kind = here.get("kind", str) or unless_given.kind
        if kind not in _GROUPS:
            meant = nearest_name(kind, _GROUPS, cutoff=0.85)
            fault = here.error("kind", *_unknown(kind, meant))
            yield fault if meant else NoPods(kind, fault)
            return
        identity = _identity(here, kind, unless_given)
        if "." in identity.group:
            # Only groups of Kubernetes itself have no domain: this is a custom resource.
            yield NoPods(f"{kind} of {identity.group}", _other_group(here, identity))
            return
        if not identity.kind.endswith(_LIST):
            yield _template(here, identity)
            return
        items = here.get("items", list) or []
    except InputError as error:
        yield error
        return
    item_kind = identity.kind.removesuffix(_LIST)
    for_items = _Identity(item_kind, identity.api_version) if item_kind else _NO_IDENTITY
    for index, item in enumerate(items):
        path = (*here.path, "items", index)
        if isinstance(item, dict):
            yield from _pods(_Object(here.document, path, item), for_items)
        else:
            yield here.document.error(unlike(item, dict)[0], path)


def _identity(here: _Object, kind: str, unless_given: _Identity) -> _Identity:
    group = _GROUPS[kind]
    api_version = here.get("apiVersion", str) or unless_given.api_version
    if not api_version:
        raise here.error("apiVersion", _MISSING, f"write {_newest(group)}")
    identity = _Identity(kind, api_version)
    if identity.group != group and "." not in identity.group:
        raise _other_group(here, identity)
    return identity


def _other_group(here: _Object, identity: _Identity) -> InputError:
    what = f"{identity.kind} of {quote_excerpt(identity.api_version)} is not supported"
    return here.error("apiVersion", what, f"only that of {_newest(_GROUPS[identity.kind])} is")


def _unknown(kind: str, meant: str | None) -> tuple[str, str]:
    if not kind:
        return _MISSING, _SUPPORTED
    return f"{quote_excerpt(kind)} is not supported", f"write {meant}" if meant else _SUPPORTED


def _newest(group: str) -> str:
    return f"{group}/v1" if group else "v1"


def _template(here: _Object, identity: _Identity) -> Template:
    metadata = _Object(here.document, (*here.path, "metadata"), here.get("metadata", dict) or {})
    name, prefix = metadata.get("name", str), metadata.get("generateName", str)
    namespace = metadata.get("namespace", str)
    shown = name or (f"{prefix}*" if prefix else "(unnamed)")
    pod = here.inside(*_WORKLOADS[identity.kind].path)
    data = pod.data
    if pod is not here:
        fields = {"name": name, "generateName": prefix, "namespace": namespace}
        of_workload = {field: value for field, value in fields.items() if value is not None}
        data = data | {"metadata": (pod.get("metadata", dict) or {}) | of_workload}
    return Template(
        document=here.document,
        path=pod.path,
        label=f"{identity.kind.lower()}/{shown}",
        namespace=namespace,
        data=data,
        kind=identity.kind,
        owner=here.path,
    )


SNAPSHOT: Final = "Snapshot"
"""The kind given to a snapshot, which has none itself."""
_LIST_SUFFIX: Final = "List"


class Item(Template, frozen=True, kw_only=True):
    """One object of any kind, and the place it comes from."""


def objects(document: Document) -> Iterator[Item | InputError]:
    """The objects of a document in order, lists taken apart; for what is no object, why."""
    return _objects(document, (), document.data, "")


def _kind_without_name(data: dict[str, Any]) -> str:
    # Imported here: hardly a manifest lacks its kind, and `explain` of one starts faster.
    from memqos.manifests.snapshot import is_snapshot

    return SNAPSHOT if is_snapshot(data) else ""


def _objects(
    document: Document, path: FieldPath, data: dict[str, Any], unless_given: str
) -> Iterator[Item | InputError]:
    kind = data.get("kind") or unless_given or _kind_without_name(data)
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
        owner=path,
    )


def _type_error(
    value: object, expected: type, path: FieldPath
) -> tuple[str, FieldPath, str | None]:
    what, hint = unlike(value, expected)
    return what, path, hint
