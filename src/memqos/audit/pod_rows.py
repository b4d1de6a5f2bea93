"""Pods of an audit as JSON objects, a row each."""

from typing import Any, Final

import msgspec

from memqos.audit.census import CRITICAL_FLAG, MeasuredUsage, PodRow
from memqos.audit.pod_specs import SpecMemory

_encode: Final = msgspec.json.Encoder().encode


class PodRowEncoder:
    """Writes pods; what the pods of a spec share is encoded once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[str, ...]], tuple[SpecMemory, bytes]] = {}
        """With the values: an id() is unique only as long as its object exists."""

    def encode(self, each: PodRow, memory: SpecMemory, used: MeasuredUsage | None) -> bytes:
        """A pod, its values and those of its containers, as a JSON object."""
        key = (id(memory), each.containers)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = memory, _encode(_spec_values(each, memory))[1:]
        own: dict[str, Any] = {
            "namespace": each.namespace,
            "name": each.name,
            "node": each.node or None,
            "priority": each.priority,
            "critical": bool(each.flags & CRITICAL_FLAG),
            "usage": None,
        }
        if used is not None:
            own["usage"] = used.total
            own["throttled"] = [
                each.containers[number]
                for number, high in memory.highs
                if used.containers.get(each.containers[number], 0) > high
            ]
        return _encode(own)[:-1] + b"," + known[1]


def _spec_values(each: PodRow, memory: SpecMemory) -> dict[str, Any]:
    summary = memory.summary
    return {
        "valid": not memory.spec.errors,
        "errors": memory.spec.errors,
        "class": summary.qos,
        "request": summary.request,
        "limit": None if memory.spec.unlimited else summary.limit,
        **_memory_files(summary.min, summary.low, summary.high, summary.max),
        "containers": [
            {
                "name": name,
                "role": part.role,
                "request": part.request or None,
                "limit": part.limit or None,
                **_memory_files(part.min, part.low, part.high, part.max),
                "oom_score_adj": part.oom_score_adj,
            }
            for name, part in zip(each.containers, summary.containers, strict=True)
        ],
    }


def _memory_files(*values: object) -> dict[str, object]:
    return dict(zip(("memory.min", "memory.low", "memory.high", "memory.max"), values, strict=True))
