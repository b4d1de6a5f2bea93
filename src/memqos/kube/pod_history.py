"""What a cluster remembers of a pod: how its containers ended, its conditions, events about it."""

from datetime import datetime
from typing import Final, overload

import msgspec

from memqos.kube.pod import ContainerStatus, ObjectMeta, PodSpec, PodStatus

MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod with the UID that the static pod has on its node."""


_ON_NODES: Final = ("kubelet", "memqos.io/agent")
"""Reporters whose instance is named like their node."""


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    """Everything optional, as with all objects."""


class Ended(_Object, frozen=True):
    """How a container ended."""

    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None
    started_at: str | None = None
    finished_at: str | None = None


class Waiting(_Object, frozen=True):
    """Why a container does not run."""

    reason: str | None = None
    message: str | None = None


class ContainerState(_Object, frozen=True):
    """One of them, or neither while it runs."""

    terminated: Ended | None = None
    waiting: Waiting | None = None


class PastContainer(_Object, frozen=True):
    """A container as the kubelet last reported it."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class Condition(_Object, frozen=True):
    """One of `status.conditions`."""

    type: str = ""
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class PastStatus(_Object, frozen=True, kw_only=True):
    """`status`, as far as it is about the past."""

    reason: str | None = None
    message: str | None = None
    start_time: str | None = None
    qos_class: str | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[PastContainer, ...] | None = None
    init_container_statuses: tuple[PastContainer, ...] | None = None
    ephemeral_container_statuses: tuple[PastContainer, ...] | None = None


class PastPod(_Object, frozen=True):
    """A pod and its history."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PastStatus = PastStatus()

    @property
    def uids(self) -> frozenset[str]:
        """The UIDs that events may name it by."""
        named = (self.metadata.uid, (self.metadata.annotations or {}).get(MIRROR))
        return frozenset(filter(None, named))


class Regarded(_Object, frozen=True):
    """What an event is about."""

    uid: str | None = None
    field_path: str | None = None
    """`spec.containers{app}` where it is about a container."""


class EventSource(_Object, frozen=True):
    """The reporter of an event of the older kind."""

    component: str | None = None
    host: str | None = None


class Series(_Object, frozen=True):
    """How often an event happened."""

    count: int | None = None
    last_observed_time: str | None = None


class KubeEvent(_Object, frozen=True, kw_only=True):
    """An Event of v1, which has those of events.k8s.io too."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: Regarded = Regarded()
    reason: str | None = None
    message: str | None = None
    reporting_component: str | None = None
    reporting_instance: str | None = None
    source: EventSource | None = None
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: Series | None = None

    @property
    def by(self) -> str:
        """The reporter, unverified: a user who may create events can put any name there."""
        old = self.source.component if self.source is not None else None
        return self.reporting_component or old or "an unknown component"

    @property
    def node(self) -> str | None:
        """The node that the kubelet or an agent of memqos has reported it from."""
        host = self.source.host if self.source is not None else None
        return host or (self.reporting_instance if self.by in _ON_NODES else None) or None

    @property
    def times(self) -> int:
        """How often."""
        in_series = self.series.count if self.series is not None else None
        return in_series or self.count or 1

    @property
    def at(self) -> int | None:
        """When it first happened."""
        created = self.metadata.creation_timestamp
        return milliseconds(self.first_timestamp or self.event_time or created)

    @property
    def until(self) -> int | None:
        """When it last happened; None where it happened once."""
        last = self.series.last_observed_time if self.series is not None else self.last_timestamp
        return milliseconds(last) if self.times > 1 else None

    @property
    def container(self) -> str | None:
        """The container it is about; None for the whole pod."""
        _, _, rest = (self.involved_object.field_path or "").partition("{")
        return rest.removesuffix("}") or None


@overload
def statuses_by_name(status: PodStatus | None) -> dict[str, ContainerStatus]: ...
@overload
def statuses_by_name(status: PastStatus) -> dict[str, PastContainer]: ...
def statuses_by_name(
    status: PodStatus | PastStatus | None,
) -> dict[str, ContainerStatus] | dict[str, PastContainer]:
    """Container name → status, of init and ephemeral containers too."""
    if status is None:
        return {}
    groups = (
        status.container_statuses,
        status.init_container_statuses,
        status.ephemeral_container_statuses,
    )
    return {each.name: each for group in groups for each in group or ()}  # type: ignore[return-value]


def milliseconds(text: str | None) -> int | None:
    """A time as Kubernetes writes it, since 1970; None where it does not."""
    try:
        return None if text is None else int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None
