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
NriDeadline = Annotated[
    float,
    Meta(gt=0, le=10, extra={"words": "a duration above 0s, up to 10s", **_DURATION}),
]
Grace = Annotated[float, Meta(ge=0, extra={"words": "a duration from 0s on", **_DURATION})]
FilePath = Annotated[str, Meta(pattern=_ONE_LINE, extra={"words": "a path"})]
OneLineText = Annotated[str, Meta(pattern=_ONE_LINE, extra={"words": "a string"})]


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
            "its address is given, then the API server. By default it follows from the other "
            "fields."
        ),
    ] = None
    files: Annotated[
        tuple[FilePath, ...],
        _description(
            "Files and folders of manifests; none if pods come from a kubelet or cluster."
        ),
    ] = ("/etc/memqos/pods",)
    kubelet: Annotated[
        OneLineText | None, _description("The kubelet's address, such as https://127.0.0.1:10250.")
    ] = None
    token_file: Annotated[FilePath | None, _description("A bearer token for the kubelet.")] = None
    ca_file: Annotated[FilePath | None, _description("The CA of the kubelet's certificate.")] = None
    client_cert: Annotated[
        FilePath | None, _description("A client certificate for the kubelet.")
    ] = None
    client_key: Annotated[FilePath | None, _description("The key of the client certificate.")] = (
        None
    )
    server_name: Annotated[
        OneLineText | None, _description("The server name in the kubelet's certificate.")
    ] = None
    cluster: Annotated[
        bool,
        _description(
            "Watch the pods of this node at the API server, with the kubeconfig that kubectl uses."
        ),
    ] = False
    node_name: Annotated[
        OneLineText | None,
        _description("The name of this Node in the cluster.  [default: the hostname]"),
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
        PositiveShare,
        _description(
            "How far memory.high goes below usage in one step, as a share of the memory in use."
        ),
    ] = 0.1
    interval: Annotated[Interval, _description("The time between two steps of memory.high.")] = 10.0
    # Named `disabled` in files: YAML 1.1 reads a key `off` as false.
    off: Annotated[bool, _description("Lower memory.high below usage in one step.")] = (
        msgspec.field(default=False, name="disabled")
    )


class FightConfig(ConfigSection, frozen=True):
    """When a value that something else keeps changing is left alone."""

    times: Annotated[
        Count,
        _description(
            "How many changes of a value in fight.minutes are corrected before it is left alone."
        ),
    ] = 5
    minutes: Annotated[
        Minutes, _description("The time, in minutes, in which changes of a value are counted.")
    ] = 10.0
    grace: Annotated[
        Grace,
        _description(
            "How long changes in a new cgroup are attributed to its creator, and not counted."
        ),
    ] = 5.0


class GuardConfig(ConfigSection, frozen=True):
    """How memory.high is widened for containers that cannot progress, and narrowed again."""

    off: Annotated[
        bool, _description("Keep memory.high as planned, even if a container makes no progress.")
    ] = msgspec.field(default=False, name="disabled")
    interval: Annotated[Interval, _description("How often containers are sampled.")] = 5.0
    period: Annotated[
        Interval,
        _description(
            "How long a container must be stuck before memory.high is raised a step, and the "
            "time between steps."
        ),
    ] = 5.0
    steps: Annotated[Count, _description("Steps from the planned memory.high to memory.max.")] = 4
    calm: Annotated[
        Interval,
        _description(
            "How long a container must be without pressure before memory.high is lowered a step."
        ),
    ] = 60.0
    exclude_anonymous: Annotated[
        bool, _description("Do not throttle containers with mostly anonymous memory and no swap.")
    ] = False


class RecorderConfig(ConfigSection, frozen=True):
    """What is kept of every container, for memqos why."""

    off: Annotated[bool, _description("Record nothing.")] = msgspec.field(
        default=False, name="disabled"
    )
    folder: Annotated[FilePath, _description("The folder of the records.")] = (
        "/var/lib/memqos/records"
    )
    kib_each: Annotated[
        Count, _description("KiB per container; the oldest records are overwritten.")
    ] = 64
    containers: Annotated[
        Count,
        _description(
            "Containers in total; records of those removed longest ago are deleted first."
        ),
    ] = 512
    days: Annotated[Days, _description("How long records of a removed container are kept.")] = 7.0


class EndpointConfig(ConfigSection, frozen=True):
    """Where those who may read a pod get its records: over TLS, with a token of their own."""

    listen: Annotated[
        str | None, _description("ADDRESS:PORT of the read endpoint.  [default: no endpoint]")
    ] = None
    tls_cert: Annotated[
        FilePath | None, _description("The certificate chain of the read endpoint.")
    ] = None
    tls_key: Annotated[FilePath | None, _description("The key of that certificate.")] = None


class AgentConfiguration(ConfigSection, frozen=True, kw_only=True):
    """The configuration of a memqos agent. Fields that are not set follow from the node."""

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
            "Write memory.high on a kernel before 5.9, which can hang a container there "
            "permanently."
        ),
    ] = False
    placement: Annotated[
        Placement,
        _description(
            "The cgroups that get protection: containers, as with the kubelet; pods, so that "
            "they can reclaim their own page cache; or containers with a margin below their "
            "limit."
        ),
    ] = "containers"
    numa: Annotated[
        Numa,
        _description(
            "How NUMA nodes are assigned to Guaranteed containers: not at all, from the "
            "kubelet's state, or by memqos with the rules of the Static policy."
        ),
    ] = "off"
    memory_manager_state: Annotated[
        FilePath | None,
        _description("The kubelet's memory_manager_state file. By default the node's."),
    ] = None
    mode: Annotated[
        AgentMode, _description("observe computes and reports without writing; enforce writes.")
    ] = "observe"
    select: Annotated[Selector, _description("The pods that the agent manages.")] = Selector()
    canary: Annotated[
        Selector | None,
        _description("The agent writes only to these pods, and observes the others."),
    ] = None
    allow_namespaces: Annotated[
        tuple[Namespace, ...],
        _description("Namespaces whose pods may request more than the policy with annotations."),
    ] = ()
    pods: Annotated[PodSourceConfig, _description("The source of the node's pods.")] = (
        PodSourceConfig()
    )
    events: Annotated[
        bool,
        _description("Post Events on pods about changes to them, if pods come from a cluster."),
    ] = True
    resync: Annotated[Resync, _description("How often the whole node is reconciled.")] = 60.0
    jitter: Annotated[
        Jitter, _description("Random deviation of the resync interval, as a share of it.")
    ] = 0.1
    min_share: Annotated[
        PositiveShare,
        _description("The largest sum of memory.min, as a share of the node's memory."),
    ] = 0.8
    ramp: Annotated[RampConfig, _description("How memory.high is lowered below usage.")] = (
        RampConfig()
    )
    fight: Annotated[
        FightConfig,
        _description("When the agent stops restoring a value that something else keeps changing."),
    ] = FightConfig()
    guard: Annotated[
        GuardConfig, _description("How memory.high is raised for containers that make no progress.")
    ] = GuardConfig()
    recorder: Annotated[
        RecorderConfig, _description("The records of every container (flight recorder).")
    ] = RecorderConfig()
    listen: Annotated[str, _description("ADDRESS:PORT of /metrics, /healthz and /readyz.")] = (
        "127.0.0.1:9177"
    )
    endpoint: Annotated[
        EndpointConfig,
        _description("The read endpoint: users who may get a pod can read its records, over TLS."),
    ] = EndpointConfig()
    state_socket: Annotated[FilePath, _description("The unix socket of /state.")] = (
        "/run/memqos/state.sock"
    )
    kep_metrics: Annotated[
        bool, _description("Also export the metric names of the KEP, if the kubelet does not.")
    ] = False
    cadvisor_metrics: Annotated[
        bool,
        _description(
            "Also export the cAdvisor names container_memory_events_*, as kubelets from 1.37 do."
        ),
    ] = False
    log_format: Annotated[LogFormat, _description("The format of the log.")] = "text"
    rollback_on_exit: Annotated[
        bool, _description("Restore the previous values when the agent stops.")
    ] = False
    journal: Annotated[
        FilePath, _description("The folder of the journal, with the previous values.")
    ] = JOURNAL_FOLDER
    cri_socket: Annotated[
        FilePath | None,
        _description("The container runtime's socket. By default containerd's or CRI-O's."),
    ] = None
    nri: Annotated[
        NriSwitch,
        _description(
            "Connect to the container runtime as an NRI plugin, so that containers start with "
            "their values."
        ),
    ] = "off"
    nri_socket: Annotated[FilePath, _description("The container runtime's NRI socket.")] = (
        NRI_SOCKET
    )
    nri_deadline: Annotated[
        NriDeadline,
        _description(
            "How long the runtime waits for a response; after that, values are written after the "
            "start. Keep it below the runtime's own timeout for plugins, which is 2s by default."
        ),
    ] = 0.15
    direct: Annotated[
        bool, _description("Write cgroup files directly, bypassing systemd and the runtime.")
    ] = False
    cgroup_root: Annotated[FilePath, _description("The cgroup mount.")] = SYSTEM_ROOT
    kubelet_config: Annotated[
        FilePath | None, _description("A KubeletConfiguration. By default the node's.")
    ] = None

    def mode_of(self, pod: Pod) -> AgentMode | None:
        """How a pod is treated before it is asked itself; None where it is not selected."""
        if not self.select.picks(pod):
            return None
        if self.canary is not None and not self.canary.picks(pod):
            return "observe"
        return self.mode
