"""JSON patches (RFC 6902) that give an object the resources it lacks at the pod level."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from memqos.kube.resources import Resources, format_amount

_STANZA: Final = ("spec", "resources")


def pod_level_patch(spec: Mapping[str, Any], wanted: Resources) -> list[dict[str, Any]]:
    """What makes `spec.resources` of a pod hold all of these amounts; what it holds already stays.

    A patch can only add below what is there, so missing stanzas are added first. `null` is as good
    as missing.
    """
    return list(_operations(spec, wanted))


def encode_patch(operations: list[dict[str, Any]]) -> bytes:
    """A patch as it is sent."""
    return msgspec.json.encode(operations)


def _operations(spec: Mapping[str, Any], wanted: Resources) -> Iterator[dict[str, Any]]:
    resources = spec.get("resources")
    if resources is None:
        resources = {}
        if wanted.requests or wanted.limits:
            yield _add(_STANZA, {})
    for side in ("requests", "limits"):
        amounts = getattr(wanted, side)
        present = resources.get(side)
        missing = [name for name in amounts if name not in (present or {})]
        if missing and present is None:
            yield _add((*_STANZA, side), {})
        for name in missing:
            yield _add((*_STANZA, side, name), format_amount(name, amounts[name]))


def _add(path: tuple[str, ...], value: object) -> dict[str, Any]:
    return {"op": "add", "path": pointer(path), "value": value}


def pointer(path: tuple[str, ...]) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path)
