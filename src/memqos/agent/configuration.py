"""What an agent is told: the terms of its plan, whom it reaches, how carefully it goes."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from memqos.agent.label_selection import matches
from memqos.api.pod import Pod
from memqos.converge.journal import FOLDER
from memqos.host.cgroups import SYSTEM_ROOT
from memqos.plan.terms import Policy

API_VERSION: Final = "memqos.io/v1alpha1"
KIND: Final = "AgentConfiguration"

Mode = Literal["observe", "enforce"]
LogFormat = Literal["text", "json"]

_LABEL: Final = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"

Factor = Annotated[float, Meta(gt=0, le=1, extra={"words": "a factor above 0 and up to 1"})]
Share = Annotated[float, Meta(gt=0, le=1, extra={"words": "a share above 0 and up to 1"})]
Jitter = Annotated[float, Meta(ge=0, lt=1, extra={"words": "a share from 0 to below 1"})]
Count = Annotated[int, Meta(ge=1, extra={"words": "a whole number from 1 on"})]
Minutes = Annotated[float, Meta(gt=0, extra={"words": "a number of minutes above 0"})]
Resync = Annotated[float, Meta(ge=1, extra={"words": "a duration of a second or more"})]
Interval = Annotated[float, Meta(gt=0, extra={"words": "a duration above 0"})]
Namespace = Annotated[str, Meta(pattern=_LABEL, extra={"words": "the name of a namespace"})]
Path = Annotated[str, Meta(min_length=1, extra={"words": "a path"})]


class Section(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of the configuration: camelCase in files, everything optional."""


class Selector(Section, frozen=True):
    """Pods by namespace and label; one that says nothing picks all."""

    namespaces: tuple[Namespace, ...] = ()
    not_namespaces: tuple[Namespace, ...] = ()
    labels: str = ""

    def picks(self, pod: Pod) -> bool:
        """Whether a pod is meant."""
        namespace = pod.metadata.namespace or "default"
        return (
            (not self.namespaces or namespace in self.namespaces)
            and namespace not in self.not_namespaces
            and matches(self.labels, pod.metadata.labels or {})
        )


class Source(Section, frozen=True):
    """Where the node's pods come from: files and folders, or the kubelet's own endpoint."""

    files: tuple[Path, ...] = ("/etc/memqos/pods",)
    kubelet: str | None = None
    """Its address; where it is given, `files` is empty."""
    token_file: str | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    server_name: str | None = None


class Ramp(Section, frozen=True):
    """How memory.high is brought under what is in use: by a share of the usage at a time."""

    step: Share = 0.1
    interval: Interval = 10.0
    off: bool = False
    """Whether memory.high is set under usage in one step."""


class Fight(Section, frozen=True):
    """How often a value is put back against somebody else before it is left alone."""

    times: Count = 5
    minutes: Minutes = 10.0


class Configuration(Section, frozen=True):
    """All an agent is told. What is None follows from the node."""

    release: str | None = None
    gates: dict[str, bool] = {}
    policy: Policy | None = None
    factor: Factor | None = None
    mode: Mode = "observe"
    select: Selector = Selector()
    canary: Selector | None = None
    """Where it is given, only those it picks are written to; the others are observed."""
    allow_namespaces: tuple[Namespace, ...] = ()
    """Whose pods may ask for more than the node's policy gives."""
    pods: Source = Source()
    resync: Resync = 60.0
    jitter: Jitter = 0.1
    """How far a resync may come early or late, as a share of its interval."""
    min_share: Share = 0.8
    """The largest sum of memory.min, as a share of the node's memory."""
    ramp: Ramp = Ramp()
    fight: Fight = Fight()
    listen: str = "127.0.0.1:9177"
    state_socket: Path = "/run/memqos/state.sock"
    kep_metrics: bool = False
    """Whether the KEP's metric names are exported as well."""
    log_format: LogFormat = "text"
    rollback_on_exit: bool = False
    journal: Path = FOLDER
    cgroup_root: Path = SYSTEM_ROOT
    kubelet_config: Path | None = None

    def mode_of(self, pod: Pod) -> Mode | None:
        """How a pod is treated before it is asked itself; None where it is not selected."""
        if not self.select.picks(pod):
            return None
        if self.canary is not None and not self.canary.picks(pod):
            return "observe"
        return self.mode
