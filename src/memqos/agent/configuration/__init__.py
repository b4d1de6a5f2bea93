"""The configuration of an agent: which pods it manages, how it plans, its safety limits.

The words beside a field are those of the schema, of `--help` and of refusals.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from memqos.converge.journal import JOURNAL_FOLDER
from memqos.converge.pod_sources import PODS_API_SOCKET
from memqos.host.cgroups import SYSTEM_ROOT
from memqos.kernel.machine import NRI_SOCKET
from memqos.kube.pod import Pod
from memqos.kube.selector import Namespace, Selector
from memqos.settings.settings import Numa, Placement, Policy

AGENT_API_VERSION: Final = "memqos.io/v1alpha1"
AGENT_KIND: Final = "AgentConfiguration"

AgentMode = Literal["observe", "enforce"]
LogFormat = Literal["text", "json"]
PodOrigin = Literal["auto", "podsapi", "kubelet", "cluster", "files"]
NriSwitch = Literal["off", "on"]

_ONE_LINE: Final = r"^[^\x00-\x1f]+$"
_DURATION: Final = {"duration": True}


def _description(description: str) -> Meta:
    return Meta(description=description)


Factor = Annotated[float, Meta(gt=0, le=1, extra={"words": "a factor above 0 and up to 1"})]
PositiveShare = Annotated[float, Meta(gt=0, le=1, extra={"words": "a share above 0 and up to 1"})]
Jitter = Annotated[float, Meta(ge=0, lt=1, extra={"words": "a share from 0 to below 1"})]
Count = Annotated[int, Meta(ge=1, extra={"words": "a whole number from 1 on"})]
Minutes = Annotated[float, Meta(gt=0, le=1e6, extra={"words": "a number of minutes above 0"})]
Days = Annotated[float, Meta(gt=0, le=3650, extra={"words": "a number of days above 0"})]
Resync = Annotated[
    float, Meta(ge=1, extra={"words": "a duration of a second or more", **_DURATION})
]
Interval = Annotated[float, Meta(gt=0, extra={"words": "a duration above 0", **_DURATION})]
Grace = Annotated[float, Meta(ge=0, extra={"words": "a duration from 0s on", **_DURATION})]
FilePath = Annotated[str, Meta(pattern=_ONE_LINE, extra={"words": "a path"})]
OneLineText = Annotated[str, Meta(pattern=_ONE_LINE, extra={"words": "a text"})]


class ConfigSection(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """A part of the configuration: camelCase in files, everything optional."""


class PodSourceConfig(ConfigSection, frozen=True, kw_only=True):
    """Where the node's pods come from: the kubelet, the API server, or files."""

    source: Annotated[
        PodOrigin | None,
        _description(
            "auto: the kubelet's PodsAPI where its socket answers, then the kubelet's endpoint if "
            "its address is given, then the API server. By default what the other fields say."
        ),
    ] = None
    files: Annotated[
        tuple[FilePath, ...],
        _description("Files and folders of manifests; none where a kubelet is asked."),
    ] = ("/etc/memqos/pods",)
    kubelet: Annotated[
        OneLineText | None, _description("The kubelet's address, such as https://127.0.0.1:10250.")
    ] = None
    token_file: Annotated[FilePath | None, _description("A token to ask the kubelet with.")] = None
    ca_file: Annotated[FilePath | None, _description("Who signed the kubelet's certificate.")] = (
        None
    )
    client_cert: Annotated[
        FilePath | None, _description("A certificate to ask the kubelet with.")
    ] = None
    client_key: Annotated[FilePath | None, _description("The key of the client certificate.")] = (
        None
    )
    server_name: Annotated[
        OneLineText | None, _description("The name in the kubelet's certificate.")
    ] = None
    cluster: Annotated[
        bool,
        _description("Follow the pods of this node at the API server, as kubectl would reach it."),
    ] = False
    node_name: Annotated[
        OneLineText | None,
        _description("The name the cluster knows this node by.  [default: the hostname]"),
    ] = None
    socket: Annotated[
        FilePath | None,
        _description(f"The socket of the kubelet's PodsAPI.  [default: {PODS_API_SOCKET}]"),
    ] = None

    @property
    def origin(self) -> PodOrigin:
        """The source; where it is not named, the one whose own fields are given."""
        if self.source is not None:
            return self.source
        if self.cluster:
            return "cluster"
        return "files" if self.kubelet is None else "kubelet"


class RampConfig(ConfigSection, frozen=True):
    """How memory.high is brought under what is in use: step by step, never at once."""

    step: Annotated[
        PositiveShare, _description("How far a step goes, as a share of what is in use.")
    ] = 0.1
    interval: Annotated[Interval, _description("How long to wait between two steps.")] = 10.0
    # Named `disabled` in files: YAML 1.1 reads a key `off` as false.
    off: Annotated[bool, _description("Set memory.high under what is in use in one step.")] = (
        msgspec.field(default=False, name="disabled")
    )


class FightConfig(ConfigSection, frozen=True):
    """When a value that somebody else keeps changing is left alone."""

    times: Annotated[Count, _description("So often a value is put back within that time.")] = 5
    minutes: Annotated[Minutes, _description("How far back changes of a value count.")] = 10.0
    grace: Annotated[
        Grace, _description("How long changes in a new cgroup are its creator's, and do not count.")
    ] = 5.0


class GuardConfig(ConfigSection, frozen=True):
    """How memory.high is widened for containers that cannot progress, and narrowed again."""

    off: Annotated[
        bool, _description("Leave memory.high as planned, even where it stops a container.")
    ] = msgspec.field(default=False, name="disabled")
    interval: Annotated[Interval, _description("How often containers are looked at.")] = 5.0
    period: Annotated[
        Interval,
        _description("How long a container must be stuck before a step, and steps are apart."),
    ] = 5.0
    steps: Annotated[Count, _description("Steps from the planned memory.high to memory.max.")] = 4
    calm: Annotated[Interval, _description("How long all must be calm before a step back.")] = 60.0
    exclude_anonymous: Annotated[
        bool, _description("Do not throttle at all what is mostly anonymous memory without swap.")
    ] = False


class RecorderConfig(ConfigSection, frozen=True):
    """What is kept of every container, for memqos why."""

    off: Annotated[bool, _description("Record nothing.")] = msgspec.field(
        default=False, name="disabled"
    )
    folder: Annotated[FilePath, _description("Where the records are.")] = "/var/lib/memqos/records"
    kib_each: Annotated[Count, _description("KiB a container, of which the oldest make room.")] = 64
    containers: Annotated[Count, _description("Containers in all; the longest gone make room.")] = (
        512
    )
    days: Annotated[Days, _description("How long a container that is gone is remembered.")] = 7.0


class AgentConfiguration(ConfigSection, frozen=True, kw_only=True):
    """The configuration of a memqos agent. What it leaves out follows from the node."""

    release: Annotated[
        OneLineText | None,
        _description('Kubernetes release, such as "1.37". By default the running kubelet\'s.'),
    ] = None
    gates: Annotated[
        dict[str, bool], _description("Feature gates, set on top of the kubelet's.")
    ] = {}
    policy: Annotated[
        Policy | None, _description("Memory reservation policy. By default the kubelet's.")
    ] = None
    factor: Annotated[
        Factor | None,
        _description("Memory throttling factor, above 0 and up to 1. By default the kubelet's."),
    ] = None
    allow_old_kernel: Annotated[
        bool,
        _description(
            "Write memory.high on a kernel before 5.9, which can stop a container there for good."
        ),
    ] = False
    placement: Annotated[
        Placement,
        _description(
            "Who claims protection: containers, as the kubelet; pods, so that they can reclaim "
            "their own page cache; or containers with a margin below their limit."
        ),
    ] = "containers"
    numa: Annotated[
        Numa,
        _description(
            "Who assigns NUMA nodes to Guaranteed containers: nobody, the kubelet as its state "
            "says, or memqos by the rules of the Static policy."
        ),
    ] = "off"
    memory_manager_state: Annotated[
        FilePath | None,
        _description("The kubelet's memory_manager_state. By default what the node has."),
    ] = None
    mode: Annotated[
        AgentMode, _description("observe computes and reports, and writes nothing; enforce writes.")
    ] = "observe"
    select: Annotated[Selector, _description("The pods that are looked after.")] = Selector()
    canary: Annotated[
        Selector | None, _description("Only these pods are written to; the others are observed.")
    ] = None
    allow_namespaces: Annotated[
        tuple[Namespace, ...],
        _description("Whose pods may ask for more than the policy gives with their annotations."),
    ] = ()
    pods: Annotated[PodSourceConfig, _description("Where the node's pods come from.")] = (
        PodSourceConfig()
    )
    events: Annotated[
        bool, _description("Tell a cluster that pods come from, in Events, what is done to them.")
    ] = True
    resync: Annotated[Resync, _description("How often the whole node is looked at.")] = 60.0
    jitter: Annotated[
        Jitter, _description("How far a resync may come early or late, as a share of its interval.")
    ] = 0.1
    min_share: Annotated[
        PositiveShare,
        _description("The largest sum of memory.min, as a share of the node's memory."),
    ] = 0.8
    ramp: Annotated[
        RampConfig, _description("How memory.high is brought under what is in use.")
    ] = RampConfig()
    fight: Annotated[
        FightConfig, _description("When a value others keep changing is left alone.")
    ] = FightConfig()
    guard: Annotated[GuardConfig, _description("How those who cannot progress are let on.")] = (
        GuardConfig()
    )
    recorder: Annotated[RecorderConfig, _description("What is kept of every container.")] = (
        RecorderConfig()
    )
    listen: Annotated[
        str, _description("Where /metrics, /healthz and /readyz are: ADDRESS:PORT.")
    ] = "127.0.0.1:9177"
    state_socket: Annotated[FilePath, _description("The unix socket that answers /state.")] = (
        "/run/memqos/state.sock"
    )
    kep_metrics: Annotated[
        bool, _description("Export the KEP's metric names as well, where the kubelet does not.")
    ] = False
    cadvisor_metrics: Annotated[
        bool,
        _description(
            "Export cAdvisor's names container_memory_events_* too, as kubelets from 1.37."
        ),
    ] = False
    log_format: Annotated[LogFormat, _description("How the log is written.")] = "text"
    rollback_on_exit: Annotated[
        bool, _description("Put back what was there before when the agent stops.")
    ] = False
    journal: Annotated[FilePath, _description("The folder that keeps prior values.")] = (
        JOURNAL_FOLDER
    )
    cri_socket: Annotated[
        FilePath | None,
        _description("The container runtime's socket. By default containerd's or CRI-O's."),
    ] = None
    nri: Annotated[
        NriSwitch,
        _description(
            "Be a plugin of the container runtime, so that containers start with their values."
        ),
    ] = "off"
    nri_socket: Annotated[FilePath, _description("The container runtime's NRI socket.")] = (
        NRI_SOCKET
    )
    direct: Annotated[bool, _description("Write past systemd and the runtime, to the files.")] = (
        False
    )
    cgroup_root: Annotated[FilePath, _description("Where the cgroups are.")] = SYSTEM_ROOT
    kubelet_config: Annotated[
        FilePath | None, _description("A KubeletConfiguration. By default what the node has.")
    ] = None

    def mode_of(self, pod: Pod) -> AgentMode | None:
        """How a pod is treated before it is asked itself; None where it is not selected."""
        if not self.select.picks(pod):
            return None
        if self.canary is not None and not self.canary.picks(pod):
            return "observe"
        return self.mode
