"""One pod of an audit as JSON, written out once for all that are alike."""

from typing import Any, Final

import msgspec

from memqos.findings.cases import SpecMemory
from memqos.findings.census import CRITICAL_FLAG, PodRow
from memqos.findings.others import MeasuredUsage

_encode: Final = msgspec.json.Encoder().encode


class PodRowEncoder:
    """Writes pods; what alike pods share is kept as text."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[str, ...]], tuple[SpecMemory, bytes]] = {}
        """With the numbers, as they are known by their identity only while they are there."""

    def encode(self, each: PodRow, numbers: SpecMemory, used: MeasuredUsage | None) -> bytes:
        """A pod, its values and those of its containers, as a JSON object."""
        key = (id(numbers), each.containers)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = numbers, _encode(_spec_values(each, numbers))[1:]
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
                for number, high in numbers.highs
                if used.containers.get(each.containers[number], 0) > high
            ]
        return _encode(own)[:-1] + b"," + known[1]


def _spec_values(each: PodRow, numbers: SpecMemory) -> dict[str, Any]:
    brief = numbers.brief
    return {
        "valid": not numbers.spec.errors,
        "errors": numbers.spec.errors,
        "class": brief.qos,
        "request": brief.request,
        "limit": None if numbers.spec.unlimited else brief.limit,
        **_memory_files(brief.min, brief.low, brief.high, brief.max),
        "containers": [
            {
                "name": name,
                "role": part.role,
                "request": part.request or None,
                "limit": part.limit or None,
                **_memory_files(part.min, part.low, part.high, part.max),
                "oom_score_adj": part.oom_score_adj,
            }
            for name, part in zip(each.containers, brief.containers, strict=True)
        ],
    }


def _memory_files(*values: object) -> dict[str, object]:
    return dict(zip(("memory.min", "memory.low", "memory.high", "memory.max"), values, strict=True))
