"""Objects of a dump, decoded only as far as needed to distinguish pods.

A cluster repeats the same few resources endlessly. What decides about a pod's memory is left as
the text it came in, and put together into a text of its own: the abridged pod. Pods whose abridged
texts are equal have equal values, so that each text is decoded in full and planned once.
"""

from typing import Final

import msgspec

from memqos.kube.pod import Pod, ResourceList
from memqos.kube.shape import CRITICAL_PRIORITY, NODE_CRITICAL

NO_NAMESPACE: Final = "default"
_LIST: Final = "List"
_RESIZE: Final = b"PodResizePending"
_JOB: Final = b'"Job"'
_TMPFS: Final = b'"Memory"'
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_NOTHING: Final = msgspec.Raw()


class _Lean(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What all of them share."""


class DumpedContainer(_Lean, frozen=True, gc=False):
    """A container: of a pod, or of a PodMetrics."""

    name: str = ""
    image: str | None = None
    resources: msgspec.Raw = _NOTHING
    restart_policy: str | None = None
    usage: ResourceList | None = None


class DumpedEnd(_Lean, frozen=True, gc=False):
    """How a container ended."""

    reason: str | None = None
    exit_code: int | None = None
    finished_at: str | None = None


class DumpedState(_Lean, frozen=True, gc=False):
    """`state` or `lastState` of a container, as far as it ended."""

    terminated: DumpedEnd | None = None


class DumpedStatus(_Lean, frozen=True, gc=False):
    """What was reported of one container."""

    name: str = ""
    resources: msgspec.Raw = _NOTHING
    allocated_resources: msgspec.Raw = _NOTHING
    restart_count: int | None = None
    state: DumpedState | None = None
    last_state: DumpedState | None = None

    @property
    def has_failed(self) -> bool:
        """Whether it does not run, and has not ended well."""
        ended = self.state.terminated if self.state is not None else None
        return ended is not None and bool(ended.exit_code)


class _Annotations(msgspec.Struct, frozen=True, gc=False):
    """Those that mark a static or mirror pod."""

    source: str = msgspec.field(default="api", name="kubernetes.io/config.source")
    mirror: str | None = msgspec.field(default=None, name="kubernetes.io/config.mirror")


class _Metadata(_Lean, frozen=True, gc=False):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    annotations: _Annotations | None = None
    owner_references: msgspec.Raw = _NOTHING


class _Spec(_Lean, frozen=True, gc=False):
    containers: tuple[DumpedContainer, ...] | None = None
    init_containers: tuple[DumpedContainer, ...] | None = None
    ephemeral_containers: tuple[DumpedContainer, ...] | None = None
    resources: msgspec.Raw = _NOTHING
    overhead: msgspec.Raw = _NOTHING
    os: msgspec.Raw = _NOTHING
    priority_class_name: str | None = None
    priority: int | None = None
    node_name: str | None = None
    volumes: msgspec.Raw = _NOTHING


class _Status(_Lean, frozen=True, gc=False):
    phase: str | None = None
    reason: msgspec.Raw = _NOTHING
    message: msgspec.Raw = _NOTHING
    qos_class: str | None = None
    container_statuses: tuple[DumpedStatus, ...] | None = None
    init_container_statuses: tuple[DumpedStatus, ...] | None = None
    conditions: msgspec.Raw = _NOTHING
    resources: msgspec.Raw = _NOTHING
    allocated_resources: msgspec.Raw = _NOTHING
    node_info: msgspec.Raw = _NOTHING


class Dumped(_Lean, frozen=True, gc=False):
    """An object of any kind; what is no part of a pod or of its metrics is skipped."""

    kind: str | None = None
    metadata: _Metadata = _Metadata()
    spec: _Spec | None = None
    status: _Status | None = None
    containers: tuple[DumpedContainer, ...] | None = None
    """Of a PodMetrics."""
    items: msgspec.Raw = _NOTHING
    """Of a list."""

    @property
    def is_pod(self) -> bool:
        """Items of a PodList have no kind."""
        kind = self.kind
        if kind is None:
            return self.spec is not None and self.spec.containers is not None
        return kind == "Pod"

    @property
    def is_metrics(self) -> bool:
        kind = self.kind
        if kind is None:
            return self.containers is not None
        return kind == "PodMetrics"

    @property
    def is_list(self) -> bool:
        kind = self.kind
        return kind is not None and kind.endswith(_LIST)

    @property
    def key(self) -> str:
        """namespace/name."""
        metadata = self.metadata
        return f"{metadata.namespace or NO_NAMESPACE}/{metadata.name or '?'}"

    @property
    def workload(self) -> str:
        """The prefix that the names of its replicas share; the runs of a CronJob share one."""
        prefix = self.metadata.generate_name
        if prefix is None:
            return self.metadata.name or "?"
        # getJobName(), pkg/controller/cronjob/cronjob_controllerv2.go: a Job has the minute of its
        # run in its name, in older releases the second.
        if prefix[-9:-1].isdigit() and _JOB in bytes(self.metadata.owner_references):
            return prefix[:-1].rstrip("0123456789")
        return prefix

    @property
    def has_ended(self) -> bool:
        """Whether its containers use nothing any more."""
        return self.status is not None and self.status.phase in _ENDED

    @property
    def is_critical(self) -> bool:
        """Static, mirror and system-priority pods, which are never evicted."""
        spec, annotations = self.spec, self.metadata.annotations
        if annotations is not None and (
            annotations.source != "api" or annotations.mirror is not None
        ):
            return True
        if spec is None:
            return False
        if spec.priority is None:
            return spec.priority_class_name == NODE_CRITICAL
        return spec.priority >= CRITICAL_PRIORITY


objects_decoder: Final = msgspec.json.Decoder(list[Dumped])
object_decoder: Final = msgspec.json.Decoder(Dumped)
pod_decoder: Final = msgspec.json.Decoder(Pod)


def container_names(pod: Dumped) -> tuple[str, ...]:
    """In the order of `Shape.parts`."""
    spec = pod.spec
    if spec is None:
        return ()
    containers = spec.containers or ()
    if spec.init_containers or spec.ephemeral_containers:
        containers = (spec.init_containers or ()) + containers + (spec.ephemeral_containers or ())
    return tuple([container.name for container in containers])


def likeness(pod: Dumped, names: tuple[str, ...]) -> tuple[object, ...]:
    """A key that is equal for pods with equal abridged texts, and only for them; quick to make."""
    spec, status = pod.spec, pod.status
    if spec is None or status is None or not spec.containers or _is_unusual(spec, status):
        return (encode_abridged(pod, names),)
    containers, reported = spec.containers, status.container_statuses or ()
    started = 0
    if spec.init_containers:
        started = len(spec.init_containers)
        containers = spec.init_containers + containers
        reported = (status.init_container_statuses or ()) + reported
    order: tuple[object, ...] | None = None
    if len(containers) > 1:
        if len(set(names)) != len(names):
            return (encode_abridged(pod, names),)
        if started:
            order = tuple([each.restart_policy == "Always" for each in spec.init_containers or ()])
    reported_names = tuple([each.name for each in reported])
    if reported_names != names:
        order = (order, *[names.index(name) if name in names else None for name in reported_names])
    texts = []
    for container in containers:
        if not container.image or not container.name:
            return (encode_abridged(pod, names),)
        texts.append(container.resources)
    for each in reported:
        texts.append(each.resources)
        texts.append(each.allocated_resources)
    # Each text is a whole JSON value or empty: joined, they are still distinct.
    joined = b"|".join(texts)
    return joined, len(containers), started, order, status.qos_class, pod.metadata.uid is None


def _is_unusual(spec: _Spec, status: _Status) -> bool:
    """Whether there is more to a pod than containers and what is reported of them."""
    return bool(
        spec.ephemeral_containers
        or spec.resources
        or spec.overhead
        or spec.os
        or _has_tmpfs(spec)
        or spec.priority_class_name == NODE_CRITICAL
        or status.resources
        or status.allocated_resources
        or (status.conditions and _RESIZE in bytes(status.conditions))
    )


def _has_tmpfs(spec: _Spec) -> bool:
    """Whether a volume may be one in memory."""
    return bool(spec.volumes) and _TMPFS in bytes(spec.volumes)


def encode_abridged(pod: Dumped, names: tuple[str, ...]) -> bytes:
    """A pod as JSON with all that decides about its memory and nothing that does not.

    Containers go by their number, as what they are called decides nothing; but where two have one
    name, or one has none, the names stay, so that validation reports it.
    """
    spec, status = pod.spec, pod.status
    if spec is None:
        return b'{"metadata":{}}'
    numbers = {name: b"%d" % number for number, name in enumerate(names)}
    if len(numbers) != len(names) or "" in numbers:
        numbers = {name: msgspec.json.encode(name)[1:-1] for name in names}
    text: list[bytes | msgspec.Raw] = [
        b'{"spec":{"containers":[',
        _containers(spec.containers or (), numbers),
        b"]",
    ]
    if spec.init_containers:
        text += [b',"initContainers":[', _containers(spec.init_containers, numbers), b"]"]
    if spec.ephemeral_containers:
        text += [b',"ephemeralContainers":[', _containers(spec.ephemeral_containers, numbers), b"]"]
    for field, value in (
        (b',"resources":', spec.resources),
        (b',"overhead":', spec.overhead),
        (b',"os":', spec.os),
        (b',"volumes":', spec.volumes if _has_tmpfs(spec) else _NOTHING),
    ):
        if value:
            text += [field, value]
    if spec.priority_class_name == NODE_CRITICAL and pod.is_critical:
        text.append(b',"priorityClassName":"system-node-critical"')
    text.append(b"}")
    if status is not None:
        _status(status, numbers, text)
        if pod.metadata.uid is not None:
            text.append(b',"metadata":{"uid":"-"}')
    text.append(b"}")
    return b"".join(text)


def _containers(containers: tuple[DumpedContainer, ...], numbers: dict[str, bytes]) -> bytes:
    return b",".join(
        [
            b'{"name":"%b"%b%b%b}'
            % (
                numbers[container.name],
                b',"image":"-"' if container.image else b"",
                b',"restartPolicy":"Always"' if container.restart_policy == "Always" else b"",
                b',"resources":%b' % container.resources if container.resources else b"",
            )
            for container in containers
        ]
    )


def _status(status: _Status, numbers: dict[str, bytes], text: list[bytes | msgspec.Raw]) -> None:
    text += [b',"status":{"qosClass":', msgspec.json.encode(status.qos_class)]
    if status.container_statuses:
        text += [b',"containerStatuses":[', _statuses(status.container_statuses, numbers), b"]"]
    if status.init_container_statuses:
        reported = _statuses(status.init_container_statuses, numbers)
        text += [b',"initContainerStatuses":[', reported, b"]"]
    if status.resources:
        text += [b',"resources":', status.resources]
    if status.allocated_resources:
        text += [b',"allocatedResources":', status.allocated_resources]
    if status.conditions and _RESIZE in bytes(status.conditions):
        text += [b',"conditions":', status.conditions]
    text.append(b"}")


def _statuses(statuses: tuple[DumpedStatus, ...], numbers: dict[str, bytes]) -> bytes:
    return b",".join(
        [
            b'{"name":"%b"%b%b}'
            % (
                numbers[status.name],
                b',"resources":%b' % status.resources if status.resources else b"",
                b',"allocatedResources":%b' % status.allocated_resources
                if status.allocated_resources
                else b"",
            )
            for status in statuses
            if status.name in numbers
        ]
    )
