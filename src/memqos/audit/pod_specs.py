"""The memory values of pods that share a spec: under one release, on nodes of one size."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from memqos.cluster.autoscaling import UnknownRequest, hpa_request
from memqos.cluster.charged import request_charge
from memqos.cluster.eviction_order import memory_request
from memqos.errors import InputError
from memqos.kube.aggregate import has_pod_level
from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import Pod, ResourceRequirements, Volume, is_memory_backed
from memqos.kube.qos import qos_class
from memqos.kube.quantity import milli_of, whole
from memqos.kube.resources import MEMORY, NO_RESOURCES, Amounts, memory_in, storable
from memqos.kube.resources_in_use import with_resources_in_use
from memqos.kube.shape import Shape, containers_of, shape_of, with_shape
from memqos.kube.validation import container_errors, shape_errors
from memqos.manifests.dumps.objects import pod_decoder
from memqos.plan.memory_summary import Outline, PodMemory, memory_on_node, outline_of
from memqos.plan.semantics import is_stored
from memqos.plan.setting import FileValue
from memqos.settings.settings import Settings
from memqos.units import format_bytes

_LONG_RUNNING_ROLES: Final = frozenset({"regular", "sidecar"})
"""Containers that run as long as their pod does."""


class SpecOutline(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a spec comes to on every node."""

    outline: Outline
    charged: int
    """Bytes the scheduler charges the node with."""
    eviction_request: int
    """What eviction takes for the request, in thousandths of a byte."""
    errors: tuple[str, ...]
    """Why the API server would refuse such a pod."""
    unrequesting: tuple[int, ...]
    """Long-running containers without a memory request, by number, unless the pod has one."""
    unlimited: tuple[int, ...]
    """Long-running containers without a memory limit, by number, unless the pod has one."""
    judged_by_nodes: Pod | None
    """The pod, where it sets something that a kubelet may refuse: pod-level resources, or an OS."""
    autoscaled: bool
    """Whether a horizontal autoscaler can compute a share of the memory request."""
    tmpfs: str
    """What is wrong with a volume in memory; empty where nothing is."""
    windows: bool = False
    """Whether the pod says that it is for Windows."""


class SpecMemory(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a spec comes to on nodes of one size."""

    spec: SpecOutline
    summary: PodMemory
    min: int
    """What the pod's cgroup claims; 0 where nothing is written."""
    low: int
    highs: tuple[tuple[int, int], ...]
    """Containers with a memory.high: number and bytes."""
    highest_oom_score: tuple[int, int] | None
    """The highest oom_score_adj, and the number of its container; None where it is not known."""
    has_cgroups: bool = True
    """Whether it runs on Linux: Windows has requests and limits, and no cgroup values."""


def spec_outline(text: bytes, settings: Settings) -> SpecOutline:
    """The outline of an abridged pod, under settings without a node.

    Raise InputError where a quantity cannot be read.
    """
    pod = pod_decoder.decode(text)
    release = settings.release
    if not is_stored(pod):
        specified = shape = apply_defaults(pod, release)
    else:
        specified = shape = shape_of(pod, release)
        if not _is_resize_done(pod):
            shape = shape_of(with_resources_in_use(pod), release)
    outline = outline_of(shape, settings, qos_class(shape, release))
    charged = outline.memory.request
    if shape is not specified:
        charged = memory_in(request_charge(pod, specified, release))
    errors = (*container_errors(pod), *shape_errors(specified, release))
    level = (
        specified.pod
        if specified.pod is not None and release.is_enabled("PodLevelResources")
        else NO_RESOURCES
    )
    return SpecOutline(
        outline=outline,
        charged=charged,
        eviction_request=memory_request(specified, release),
        errors=tuple([str(error) for error in errors]),
        unrequesting=()
        if level.requests.get(MEMORY)
        else _containers_without_memory([part.requests for part in specified.parts], specified),
        unlimited=()
        if level.limits.get(MEMORY)
        else _containers_without_memory([part.limits for part in specified.parts], specified),
        judged_by_nodes=pod
        if pod.spec.os is not None or has_pod_level(specified, release)
        else None,
        autoscaled=not isinstance(
            hpa_request(pod if is_stored(pod) else with_shape(pod, specified), MEMORY, release),
            UnknownRequest,
        ),
        tmpfs=_tmpfs_fault(filter(is_memory_backed, pod.spec.volumes or ()), outline.memory.max),
        windows=specified.windows,
    )


def _tmpfs_fault(volumes: Iterable[Volume], limit: FileValue) -> str:
    """What is wrong with the first volume in memory, if anything is."""
    # calculateEmptyDirMemorySize(), pkg/volume/emptydir: without a sizeLimit a tmpfs is as large as
    # the pod's memory limit, or as all the node offers to pods.
    for volume in volumes:
        size_limit = volume.empty_dir.size_limit if volume.empty_dir is not None else None
        size = 0 if size_limit is None else storable(whole(milli_of(size_limit)))
        if not size:
            return f"volume {volume.name} has no sizeLimit"
        if isinstance(limit, int) and size > limit:
            return (
                f"sizeLimit of volume {volume.name} is {format_bytes(size)}, the pod's limit "
                f"{format_bytes(limit)}"
            )
    return ""


def spec_memory(spec: SpecOutline, settings: Settings) -> SpecMemory:
    """A spec on nodes with the memory that these settings have."""
    summary = memory_on_node(spec.outline, settings)
    highs: list[tuple[int, int]] = []
    worst: tuple[int, int] | None = None
    for number, each in enumerate(summary.containers):
        if each.role not in _LONG_RUNNING_ROLES:
            continue
        if isinstance(each.high, int):
            highs.append((number, each.high))
        score = each.oom_score_adj
        if score is not None and (worst is None or score > worst[0]):
            worst = score, number
    return SpecMemory(
        spec=spec,
        summary=summary,
        min=_bytes_or_zero(summary.min),
        low=_bytes_or_zero(summary.low),
        highs=tuple(highs),
        highest_oom_score=worst,
    )


def without_cgroups(memory: SpecMemory) -> SpecMemory:
    """The same on Windows."""
    summary = msgspec.structs.replace(
        memory.summary,
        **_NO_FILES,
        containers=tuple(
            [
                msgspec.structs.replace(each, **_NO_FILES, oom_score_adj=None)
                for each in memory.summary.containers
            ]
        ),
    )
    return SpecMemory(
        spec=memory.spec,
        summary=summary,
        min=0,
        low=0,
        highs=(),
        highest_oom_score=None,
        has_cgroups=False,
    )


_NO_FILES: Final[Mapping[str, None]] = dict.fromkeys(("min", "low", "high", "max"))


class SpecCache:
    """Specs by number, each computed once, when first needed."""

    def __init__(self, texts: list[bytes], settings: Settings) -> None:
        self._texts = texts
        self._settings = msgspec.structs.replace(
            settings, memory_capacity=None, memory_allocatable=None
        )
        self._outlines: dict[int, SpecOutline | InputError] = {}
        self._on_any_node: dict[int, SpecMemory] = {}
        """Of specs that do not depend on the node."""
        self._by_size: dict[tuple[int | None, int | None], NodeSizeSpecs] = {}

    def on_nodes(
        self, capacity: int | None, allocatable: int | None, *, keep: bool = True
    ) -> "NodeSizeSpecs":
        """The specs on nodes with so much memory; `keep` them where there are several such."""
        size = (capacity, allocatable)
        found = self._by_size.get(size)
        if found is None:
            settings = msgspec.structs.replace(
                self._settings, memory_capacity=capacity, memory_allocatable=allocatable
            )
            found = NodeSizeSpecs(self, settings, keep=keep)
            if keep:
                self._by_size[size] = found
        return found

    def memory_on(self, spec_number: int, settings: Settings) -> SpecMemory | InputError:
        """A spec under settings with the memory of a node."""
        known = self._on_any_node.get(spec_number)
        if known is not None:
            return known
        spec = self._outline(spec_number)
        if isinstance(spec, InputError):
            return spec
        found = spec_memory(spec, settings)
        if spec.windows:
            found = without_cgroups(found)
        if not spec.outline.needs_node:
            self._on_any_node[spec_number] = found
        return found

    def _outline(self, spec_number: int) -> SpecOutline | InputError:
        known = self._outlines.get(spec_number)
        if known is None:
            try:
                known = spec_outline(self._texts[spec_number], self._settings)
            except InputError as error:
                known = error
            except msgspec.DecodeError as error:
                known = InputError(str(error))
            self._outlines[spec_number] = known
        return known


class NodeSizeSpecs:
    """Specs by number, on nodes of one size."""

    def __init__(self, cache: SpecCache, settings: Settings, *, keep: bool) -> None:
        self._cache = cache
        self._settings = settings
        self._known: dict[int, SpecMemory | InputError] | None = {} if keep else None

    def __getitem__(self, spec_number: int) -> SpecMemory | InputError:
        if self._known is None:
            return self._cache.memory_on(spec_number, self._settings)
        found = self._known.get(spec_number)
        if found is None:
            found = self._known[spec_number] = self._cache.memory_on(spec_number, self._settings)
        return found


def _is_resize_done(pod: Pod) -> bool:
    """Whether the status reports just what the spec says: nothing is being resized."""
    spec, status = pod.spec, pod.status
    if status is None or spec.resources is not None:
        return status is None
    specified = {each.name: each.resources or _EMPTY for each in containers_of(pod)}
    for each in (status.container_statuses or ()) + (status.init_container_statuses or ()):
        own = specified.get(each.name, _EMPTY)
        if each.resources is not None and each.resources != own:
            return False
        if each.allocated_resources is not None and each.allocated_resources != own.requests:
            return False
    return True


_EMPTY: Final = ResourceRequirements()


def _containers_without_memory(amounts: list[Amounts], shape: Shape) -> tuple[int, ...]:
    """Long-running containers without memory in these lists, by number."""
    return tuple(
        [
            number
            for number, (each, part) in enumerate(zip(amounts, shape.parts, strict=True))
            if part.role in _LONG_RUNNING_ROLES and not each.get(MEMORY)
        ]
    )


def _bytes_or_zero(value: FileValue) -> int:
    return value if isinstance(value, int) else 0
