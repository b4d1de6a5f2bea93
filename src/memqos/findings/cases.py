"""What becomes of pods that are alike: under one release, on nodes of one size of memory."""

from typing import Final

import msgspec

from memqos.api.defaulting import defaulted
from memqos.api.dumped import pod_decoder
from memqos.api.in_force import in_force
from memqos.api.pod import Pod, QosClass
from memqos.api.qos import qos_class
from memqos.api.resources import MEMORY, whole
from memqos.api.shape import Shape, shape_of
from memqos.api.validation import container_errors, shape_errors
from memqos.cluster.eviction_rank import memory_request
from memqos.cluster.held import held_requests
from memqos.errors import InputError
from memqos.plan.brief import PodBrief, Sums, brief_plan, sums_of
from memqos.plan.semantics import is_stored
from memqos.plan.setting import Value
from memqos.plan.terms import Terms

_STEADY: Final = frozenset({"regular", "sidecar"})
"""Containers that run as long as their pod does."""


class Case(msgspec.Struct, frozen=True, gc=False):
    """Pods that are alike, as far as the node does not matter."""

    shape: Shape
    qos: QosClass
    sums: Sums
    held: int
    """Bytes the scheduler charges the node with."""
    ranked: int
    """What eviction takes for the request, in thousandths of a byte."""
    errors: tuple[str, ...]
    """Why the API server would refuse such a pod."""
    unrequesting: tuple[int, ...]
    """Containers that run on and request no memory, by number, unless the pod does for them."""
    unlimited: tuple[int, ...]
    """Containers that run on without a limit, by number, unless the pod has one for them."""


class Numbers(msgspec.Struct, frozen=True, gc=False):
    """A case on nodes of one size, made ready to be added up."""

    case: Case
    brief: PodBrief
    min: int
    """What the pod's cgroup claims; 0 where nothing is written."""
    low: int
    highs: tuple[tuple[int, int], ...]
    """Containers with a memory.high: number and bytes."""
    worst: tuple[int, int] | None
    """The highest oom_score_adj, and the number of its container; None where it is not known."""


def case_of(text: bytes, terms: Terms) -> Case:
    """The case of an abridged pod; raise InputError where a quantity cannot be read."""
    pod = pod_decoder.decode(text)
    release = terms.release
    if is_stored(pod):
        asked = shape_of(pod, release)
        shape = shape_of(in_force(pod), release)
    else:
        shape = asked = defaulted(pod, release)
    errors = (*container_errors(pod), *shape_errors(asked, release))
    sums = sums_of(shape, terms)
    return Case(
        shape,
        qos_class(shape, release),
        sums,
        whole(held_requests(pod, asked, release).get(MEMORY, 0)),
        memory_request(asked, release),
        tuple([str(error) for error in errors]),
        _lacking(shape, "requests") if not _has_pod_level(pod, sums, "requests") else (),
        _lacking(shape, "limits") if not _has_pod_level(pod, sums, "limits") else (),
    )


def numbers_of(case: Case, terms: Terms) -> Numbers:
    """A case on nodes with the memory these terms say."""
    brief = brief_plan(case.shape, terms, case.qos, case.sums)
    scores = [
        (each.oom_score_adj, -number)
        for number, each in enumerate(brief.containers)
        if each.oom_score_adj is not None and each.role in _STEADY
    ]
    worst = max(scores, default=None)
    return Numbers(
        case,
        brief,
        _claim(brief.min),
        _claim(brief.low),
        tuple(
            [
                (number, each.high)
                for number, each in enumerate(brief.containers)
                if isinstance(each.high, int) and each.role in _STEADY
            ]
        ),
        None if worst is None else (worst[0], -worst[1]),
    )


class Cases:
    """Cases by number, each worked out once and only if asked for."""

    def __init__(self, texts: list[bytes], terms: Terms) -> None:
        self._texts = texts
        self._terms = terms
        self._cases: dict[int, Case | InputError] = {}
        self._sizes: dict[tuple[int | None, int | None], OnNodes] = {}

    def on(self, capacity: int | None, allocatable: int | None) -> "OnNodes":
        """The cases on nodes with so much memory."""
        size = (capacity, allocatable)
        if size not in self._sizes:
            terms = msgspec.structs.replace(
                self._terms, memory_capacity=capacity, memory_allocatable=allocatable
            )
            self._sizes[size] = OnNodes(self, terms)
        return self._sizes[size]

    def case(self, like: int) -> Case | InputError:
        known = self._cases.get(like)
        if known is None:
            try:
                known = case_of(self._texts[like], self._terms)
            except InputError as error:
                known = error
            except msgspec.DecodeError as error:
                known = InputError(str(error))
            self._cases[like] = known
        return known


class OnNodes(dict[int, Numbers | InputError]):
    """Numbers by case, on nodes of one size."""

    def __init__(self, cases: Cases, terms: Terms) -> None:
        self.terms = terms
        self._all = cases

    def __missing__(self, like: int) -> Numbers | InputError:
        case = self._all.case(like)
        found = case if isinstance(case, InputError) else numbers_of(case, self.terms)
        self[like] = found
        return found


def _has_pod_level(pod: Pod, sums: Sums, side: str) -> bool:
    if not sums.pod_level or pod.spec.resources is None:
        return False
    return MEMORY in (getattr(pod.spec.resources, side) or {})


def _lacking(shape: Shape, side: str) -> tuple[int, ...]:
    return tuple(
        [
            number
            for number, part in enumerate(shape.parts)
            if part.role in _STEADY and not getattr(part, side).get(MEMORY)
        ]
    )


def _claim(value: Value) -> int:
    return value if isinstance(value, int) else 0
