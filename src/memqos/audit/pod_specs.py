"""What becomes of pods that are alike: under one release, on nodes of one size of memory."""

from typing import Final

import msgspec

from memqos.cluster.charged import request_charge
from memqos.cluster.eviction_order import memory_request
from memqos.errors import InputError
from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import Pod, ResourceRequirements
from memqos.kube.qos import qos_class
from memqos.kube.resources import MEMORY, NO_RESOURCES, Amounts, memory_in
from memqos.kube.resources_in_use import with_resources_in_use
from memqos.kube.shape import Shape, containers_of, shape_of
from memqos.kube.validation import container_errors, shape_errors
from memqos.manifests.dumps.objects import pod_decoder
from memqos.plan.memory_summary import Outline, PodMemory, memory_on_node, outline_of
from memqos.plan.semantics import is_stored
from memqos.plan.setting import FileValue
from memqos.settings.settings import Settings

_LONG_RUNNING_ROLES: Final = frozenset({"regular", "sidecar"})
"""Containers that run as long as their pod does."""


class SpecOutline(msgspec.Struct, frozen=True, gc=False):
    """Pods that are alike, as far as the node does not matter."""

    outline: Outline
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


class SpecMemory(msgspec.Struct, frozen=True, gc=False):
    """A case on nodes of one size, made ready to be added up."""

    spec: SpecOutline
    brief: PodMemory
    min: int
    """What the pod's cgroup claims; 0 where nothing is written."""
    low: int
    highs: tuple[tuple[int, int], ...]
    """Containers with a memory.high: number and bytes."""
    highest_oom_score: tuple[int, int] | None
    """The highest oom_score_adj, and the number of its container; None where it is not known."""


def spec_outline(text: bytes, terms: Settings) -> SpecOutline:
    """The case of an abridged pod, under terms that know no node.

    Raise InputError where a quantity cannot be read.
    """
    pod = pod_decoder.decode(text)
    release = terms.release
    if not is_stored(pod):
        asked = shape = apply_defaults(pod, release)
    else:
        asked = shape = shape_of(pod, release)
        if not _is_resize_done(pod):
            shape = shape_of(with_resources_in_use(pod), release)
    outline = outline_of(shape, terms, qos_class(shape, release))
    held = outline.memory.request
    if shape is not asked:
        held = memory_in(request_charge(pod, asked, release))
    errors = (*container_errors(pod), *shape_errors(asked, release))
    level = (
        asked.pod
        if asked.pod is not None and release.is_enabled("PodLevelResources")
        else NO_RESOURCES
    )
    return SpecOutline(
        outline,
        held,
        memory_request(asked, release),
        tuple([str(error) for error in errors]),
        ()
        if level.requests.get(MEMORY)
        else _containers_without_memory([part.requests for part in asked.parts], asked),
        ()
        if level.limits.get(MEMORY)
        else _containers_without_memory([part.limits for part in asked.parts], asked),
    )


def spec_memory(spec: SpecOutline, terms: Settings) -> SpecMemory:
    """A case on nodes with the memory these terms say."""
    brief = memory_on_node(spec.outline, terms)
    highs: list[tuple[int, int]] = []
    worst: tuple[int, int] | None = None
    for number, each in enumerate(brief.containers):
        if each.role not in _LONG_RUNNING_ROLES:
            continue
        if isinstance(each.high, int):
            highs.append((number, each.high))
        score = each.oom_score_adj
        if score is not None and (worst is None or score > worst[0]):
            worst = score, number
    return SpecMemory(
        spec, brief, _bytes_or_zero(brief.min), _bytes_or_zero(brief.low), tuple(highs), worst
    )


class SpecCache:
    """Cases by number, each worked out once and only if asked for."""

    def __init__(self, texts: list[bytes], terms: Settings) -> None:
        self._texts = texts
        self._terms = msgspec.structs.replace(terms, memory_capacity=None, memory_allocatable=None)
        self._outlines: dict[int, SpecOutline | InputError] = {}
        self._anywhere: dict[int, SpecMemory] = {}
        """Of cases that do not depend on the node."""
        self._by_size: dict[tuple[int | None, int | None], NodeSizeSpecs] = {}

    def on_nodes(
        self, capacity: int | None, allocatable: int | None, *, keep: bool = True
    ) -> "NodeSizeSpecs":
        """The cases on nodes with so much memory; `keep` them where there are several such."""
        size = (capacity, allocatable)
        found = self._by_size.get(size)
        if found is None:
            terms = msgspec.structs.replace(
                self._terms, memory_capacity=capacity, memory_allocatable=allocatable
            )
            found = NodeSizeSpecs(self, terms, keep=keep)
            if keep:
                self._by_size[size] = found
        return found

    def memory_on(self, spec_number: int, terms: Settings) -> SpecMemory | InputError:
        """A case under terms that know the node."""
        known = self._anywhere.get(spec_number)
        if known is not None:
            return known
        case = self._outline(spec_number)
        if isinstance(case, InputError):
            return case
        found = spec_memory(case, terms)
        if not case.outline.needs_node:
            self._anywhere[spec_number] = found
        return found

    def _outline(self, spec_number: int) -> SpecOutline | InputError:
        known = self._outlines.get(spec_number)
        if known is None:
            try:
                known = spec_outline(self._texts[spec_number], self._terms)
            except InputError as error:
                known = error
            except msgspec.DecodeError as error:
                known = InputError(str(error))
            self._outlines[spec_number] = known
        return known


class NodeSizeSpecs:
    """Numbers by case, on nodes of one size."""

    def __init__(self, cases: SpecCache, terms: Settings, *, keep: bool) -> None:
        self._cache = cases
        self._terms = terms
        self._known: dict[int, SpecMemory | InputError] | None = {} if keep else None

    def __getitem__(self, spec_number: int) -> SpecMemory | InputError:
        if self._known is None:
            return self._cache.memory_on(spec_number, self._terms)
        found = self._known.get(spec_number)
        if found is None:
            found = self._known[spec_number] = self._cache.memory_on(spec_number, self._terms)
        return found


def _is_resize_done(pod: Pod) -> bool:
    """Whether all that is reported of a pod is what it asks for: nothing is being resized."""
    spec, status = pod.spec, pod.status
    if status is None or spec.resources is not None:
        return status is None
    asked = {each.name: each.resources or _EMPTY for each in containers_of(pod)}
    for each in (status.container_statuses or ()) + (status.init_container_statuses or ()):
        own = asked.get(each.name, _EMPTY)
        if each.resources is not None and each.resources != own:
            return False
        if each.allocated_resources is not None and each.allocated_resources != own.requests:
            return False
    return True


_EMPTY: Final = ResourceRequirements()


def _containers_without_memory(amounts: list[Amounts], shape: Shape) -> tuple[int, ...]:
    """Containers that run on and have no memory in these lists, by number."""
    return tuple(
        [
            number
            for number, (each, part) in enumerate(zip(amounts, shape.parts, strict=True))
            if part.role in _LONG_RUNNING_ROLES and not each.get(MEMORY)
        ]
    )


def _bytes_or_zero(value: FileValue) -> int:
    return value if isinstance(value, int) else 0
