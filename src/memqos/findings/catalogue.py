"""Every rule there is: what it looks for, why that matters, and what helps.

`memqos audit` judges a cluster by the first group, `memqos doctor` a node by the second.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from memqos.findings.finding import Severity

JudgingCommand = Literal["audit", "doctor"]

HARD_PROTECTION_SHARE: Final = 0.9
"""Of a node's memory: with so much in memory.min, processes are killed instead of reclaimed."""


class RuleInfo(msgspec.Struct, frozen=True, rename={"summary": "says"}):
    """A rule as a person reads about it."""

    id: str
    severity: Severity
    """The worst it can be."""
    judge: JudgingCommand
    summary: str
    """What is wrong, in one line."""
    why: str
    fix: str


POD_OOM_KILLED: Final = RuleInfo(
    "pod/oom-killed",
    "error",
    "audit",
    "containers were killed for lack of memory",
    "The kernel kills at a limit, or when the node has no memory left, and the kubelet starts the "
    "container again. Memory QoS throttles before the limit; it does not make room for a leak.",
    "raise the limit to what it needs, or fix the leak; memqos why POD shows how it came to it",
)
POD_EXIT_137: Final = RuleInfo(
    "pod/exit-137",
    "warning",
    "audit",
    "containers were ended by SIGKILL, and the kubelet does not call it an OOM kill",
    "Exit code 137 is SIGKILL: a liveness probe that failed, a shutdown that took longer than "
    "terminationGracePeriodSeconds, or an OOM kill of a process other than the first.",
    "look for oom_kill in memory.events and for failed probes in the events of the pod",
)
POD_EVICTED: Final = RuleInfo(
    "pod/evicted",
    "warning",
    "audit",
    "pods were evicted by the kubelet",
    "A node that runs short of memory or disk evicts pods above their request first.",
    "request what the pod uses; memqos rank eviction tells who goes first",
)
POD_RESTARTS: Final = RuleInfo(
    "pod/restarts",
    "info",
    "audit",
    "containers fail and restart again and again",
    "Each start takes memory for page cache and initialisation; a reason other than memory is "
    "likely.",
    "look at the exit code and the log of the previous container",
)
POD_TMPFS: Final = RuleInfo(
    "pod/tmpfs",
    "warning",
    "audit",
    "a volume in memory may grow past the pod's memory",
    "Files of an emptyDir with medium Memory count as memory of the container that writes them, "
    "and cannot be reclaimed without swap. Without a sizeLimit, or with one above the limit, "
    "writing to it ends in an OOM kill.",
    "set a sizeLimit below the memory limit, with room for the containers",
)
POD_HPA: Final = RuleInfo(
    "pod/hpa",
    "warning",
    "audit",
    "a HorizontalPodAutoscaler cannot compute the memory utilization of its pods",
    "Utilization is usage divided by request: one container without a request is enough for the "
    "autoscaler to give up on the metric.",
    "request memory for each container, or set a pod-level request (seen by the HPA since 1.34)",
)
POD_INVALID: Final = RuleInfo(
    "pod/invalid",
    "error",
    "audit",
    "the API server of this release would refuse such a pod",
    "A pod that runs was accepted once, by the release and the gates of that day. Under the "
    "release asked about it could not be created again, so the next rollout fails.",
    "mend the field; memqos explain POD tells all that is wrong with it",
)
POD_THROTTLED: Final = RuleInfo(
    "pod/throttled",
    "warning",
    "audit",
    "containers would be throttled at once: they use more than their memory.high would be",
    "Past memory.high every allocation waits for reclaim. Without swap only page cache can be "
    "reclaimed, and a container whose own memory is past it makes no progress, nor is it "
    "killed.",
    "raise the limit, or memoryThrottlingFactor: memory.high follows from both",
)
POD_NO_REQUEST: Final = RuleInfo(
    "pod/no-request",
    "warning",
    "audit",
    "containers request no memory",
    "What requests nothing is protected by nothing: it is reclaimed, evicted and killed first, "
    "and the scheduler puts it where there is no room.",
    "request what the container uses at its busiest, or have a LimitRange do it",
)
POD_ABOVE_REQUEST: Final = RuleInfo(
    "pod/above-request",
    "info",
    "audit",
    "pods use more than they request",
    "Eviction starts with pods above their request, whatever their class. memory.min and "
    "memory.low protect no more than what was requested.",
    "raise the request to what the pod uses",
)
POD_IDLE_REQUEST: Final = RuleInfo(
    "pod/idle-request",
    "info",
    "audit",
    "pods request several times what they use",
    "What is requested and not used keeps other pods away. Where requests are reserved, "
    "memory_recursiveprot hands the unused protection to neighbours that never asked.",
    "lower the request",
)
POD_HIGH_LIMIT: Final = RuleInfo(
    "pod/high-limit",
    "info",
    "audit",
    "limits lie far above what is in use",
    "memory.high follows from the limit: far above usage it throttles nobody in time, and the "
    "node runs out before the container does.",
    "lower the limit towards what the pod uses at its busiest",
)
POD_NO_LIMIT: Final = RuleInfo(
    "pod/no-limit",
    "info",
    "audit",
    "containers have no memory limit",
    "Without a limit memory.high follows from all the node has, and one leak takes the whole "
    "node down with it.",
    "set a limit, for each container or, from 1.34 on, for the pod",
)
POD_POD_LEVEL: Final = RuleInfo(
    "pod/pod-level",
    "info",
    "audit",
    "containers that peak at different times could share a pod-level request",
    "Requests of containers add up, although they are not busy together. A pod-level request "
    "(1.34 and newer) covers what they need at the same time.",
    "set spec.resources of the pod to what its containers use together",
)
POD_NODE_REFUSES: Final = RuleInfo(
    "pod/node-refuses",
    "warning",
    "audit",
    "the kubelet of their node would refuse these pods if they were created again",
    "A kubelet admits a pod once. The pod runs on when the release or the gates of the kubelet "
    "change, but one that replaces it fails: kubelets on Windows, and those with the gate "
    "PodLevelResources off, refuse pod-level resources; every kubelet refuses pods of another OS.",
    "set resources of each container instead of spec.resources, or upgrade the kubelet",
)
POD_DOWNGRADE: Final = RuleInfo(
    "pod/downgrade",
    "warning",
    "audit",
    "pods to recreate before the downgrade: they set spec.resources",
    "A kubelet without pod-level resources leaves the cgroups of running pods as they are, refuses "
    "new pods that have them (1.32 and newer, gate off), or ignores them (before 1.32).",
    "replace spec.resources by resources of the containers, and drain the nodes before their "
    "kubelets are downgraded",
)
NODE_OVERCOMMITTED: Final = RuleInfo(
    "node/overcommitted",
    "error",
    "audit",
    "more is requested than the node offers to pods",
    "The scheduler never does that; static pods, resizes and shrunk nodes do. What is reserved "
    "for requests then cannot be honoured.",
    "move pods away, or give the node more memory",
)
NODE_HARD_PROTECTION: Final = RuleInfo(
    "node/hard-protection",
    "warning",
    "audit",
    "nearly all memory would be in memory.min, and can be reclaimed from nobody",
    "Once memory.min holds all there is, the kernel has nothing to reclaim and kills instead.",
    "reserve more for the system, or request less; with policy None nothing is held back",
)
NODE_LOST_LOW: Final = RuleInfo(
    "node/lost-low",
    "warning",
    "audit",
    "memory.low would be claimed and not honoured",
    "A cgroup is protected only as far as all above it are. Kubernetes 1.36 gives memory.low "
    "to Burstable pods and their level, but not to kubepods above them; 1.37 mended that.",
    "run 1.37, or do not rely on TieredReservation for Burstable pods",
)
NODE_UNASKED: Final = RuleInfo(
    "node/unasked",
    "warning",
    "audit",
    "pods would be protected that never asked",
    "kubepods holds what all pods request. What they do not use of it goes, where "
    "memory_recursiveprot is on, to whoever uses more than they claimed: BestEffort pods too.",
    "bring requests nearer to what is used",
)
NODE_FULL: Final = RuleInfo(
    "node/full",
    "warning",
    "audit",
    "pods use nearly all that the node offers them",
    "The next allocation may start evictions, and node-wide reclaim is where memory.min and "
    "memory.low decide who is slowed down.",
    "move pods away; memqos rank eviction tells who goes first",
)
NODE_SWAP: Final = RuleInfo(
    "node/swap",
    "info",
    "audit",
    "some nodes have swap and others have none",
    "The scheduler does not look at swap. With LimitedSwap the same pod may swap on one node and "
    "is killed at its limit on another.",
    "give all nodes of a pool swap, or none; or keep pods that need it there with a nodeSelector",
)
NODE_LIMITS: Final = RuleInfo(
    "node/limits",
    "info",
    "audit",
    "limits together are a multiple of what the node offers to pods",
    "Limits may be overcommitted, and usually are. The larger the multiple, the more depends "
    "on who is reclaimed and killed first.",
    "lower limits that nobody needs",
)
NODE_KERNEL: Final = RuleInfo(
    "node/kernel",
    "error",
    "audit",
    "the kernel can throttle a container for ever",
    "Before 5.9 a cgroup at its memory.high could stop for good (KEP-2570).",
    "run kernel 5.9 or newer before MemoryQoS is on, or set memoryThrottlingFactor to 1.0",
)
NODE_RUNTIME: Final = RuleInfo(
    "node/runtime",
    "error",
    "audit",
    "the container runtime drops what the kubelet asks for",
    "containerd before 1.6 and CRI-O before 1.22 pass no cgroup v2 values on, and say nothing.",
    "upgrade the runtime",
)
NODE_CGROUP_V1: Final = RuleInfo(
    "node/cgroup-v1",
    "warning",
    "audit",
    "the operating system boots with cgroup v1, unless told otherwise",
    "memory.min, memory.low and memory.high are files of cgroup v2 alone. A Node does not say "
    "which it has; the default of its operating system is known.",
    "look with stat -fc %T /sys/fs/cgroup on the node, boot with "
    "systemd.unified_cgroup_hierarchy=1, or upgrade",
)
NODE_SKEW: Final = RuleInfo(
    "node/skew",
    "warning",
    "audit",
    "kubelets are of different releases, or of another than the API server",
    "The kubelet's release decides which cgroup values a pod gets. A kubelet may be up to 3 minor "
    "versions older than the API server (2 before 1.28), and never newer.",
    "finish the upgrade; memqos audit --compare release=1.37 shows what another release changes",
)
NODE_OS: Final = RuleInfo(
    "node/os",
    "info",
    "audit",
    "not a Linux node: pods on it have no cgroup",
    "Memory QoS is a feature of Linux. Values shown for pods of this node are not set.",
    "none needed",
)
NAMESPACE_NO_LIMIT_RANGE: Final = RuleInfo(
    "namespace/no-limit-range",
    "warning",
    "audit",
    "no LimitRange gives containers a memory request",
    "Pods of this namespace may come without a request, and some do.",
    "create a LimitRange with a defaultRequest for memory",
)
NAMESPACE_QUOTA: Final = RuleInfo(
    "namespace/quota",
    "warning",
    "audit",
    "a quota of memory is nearly used up",
    "Once it is, new pods are refused, also those that would replace others.",
    "raise the quota, or lower requests that are not used",
)

AUDIT_RULES: Final[tuple[RuleInfo, ...]] = (
    POD_OOM_KILLED,
    POD_INVALID,
    POD_NODE_REFUSES,
    POD_DOWNGRADE,
    POD_EXIT_137,
    POD_EVICTED,
    POD_TMPFS,
    POD_HPA,
    POD_THROTTLED,
    POD_NO_REQUEST,
    POD_ABOVE_REQUEST,
    POD_IDLE_REQUEST,
    POD_HIGH_LIMIT,
    POD_NO_LIMIT,
    POD_POD_LEVEL,
    POD_RESTARTS,
    NODE_KERNEL,
    NODE_RUNTIME,
    NODE_CGROUP_V1,
    NODE_SKEW,
    NODE_OS,
    NODE_OVERCOMMITTED,
    NODE_HARD_PROTECTION,
    NODE_LOST_LOW,
    NODE_UNASKED,
    NODE_FULL,
    NODE_LIMITS,
    NODE_SWAP,
    NAMESPACE_NO_LIMIT_RANGE,
    NAMESPACE_QUOTA,
)

MEMORY_QOS_RULES: Final = frozenset(
    rule.id for rule in (POD_THROTTLED, NODE_HARD_PROTECTION, NODE_LOST_LOW, NODE_UNASKED)
)
"""Rules of an audit that find something only where the gate MemoryQoS is on."""

MACHINE_CGROUP_V2: Final = RuleInfo(
    "machine/cgroup-v2",
    "error",
    "doctor",
    "the machine has no cgroup v2",
    "memory.min, memory.low and memory.high are files of cgroup v2 alone.",
    "boot with systemd.unified_cgroup_hierarchy=1",
)
MACHINE_KERNEL: Final = RuleInfo(
    "machine/kernel",
    "error",
    "doctor",
    "the kernel can stop a container at memory.high for good",
    "Before 5.9 a cgroup at its memory.high could stop for good. Signs of it: cpu.stat near zero, "
    "and full avg10 of memory.pressure above 10.",
    "run kernel 5.9 or newer; until then memoryThrottlingFactor: 1.0 and "
    "memoryReservationPolicy: None, or the feature gate MemoryQoS off",
)
MACHINE_RUNTIME: Final = RuleInfo(
    "machine/runtime",
    "error",
    "doctor",
    "the container runtime drops what the kubelet asks for",
    "containerd before 1.6 and CRI-O before 1.22 pass no cgroup v2 values on, and say nothing.",
    "upgrade the runtime",
)
MACHINE_NRI: Final = RuleInfo(
    "machine/nri",
    "info",
    "doctor",
    "whether the runtime takes plugins over NRI, and who is one",
    "As a plugin memqos has the runtime set values before a container's first instruction. Two "
    "plugins that set the same value make every creation of a container fail.",
    "turn NRI on in the runtime's configuration, and nri: on in the agent's",
)
MACHINE_SWAP: Final = RuleInfo(
    "machine/swap",
    "info",
    "doctor",
    "past memory.high only page cache can be reclaimed",
    "memory.high is kept by reclaim, and without swap anonymous memory cannot be reclaimed.",
    "give what is mostly anonymous a larger limit, or the node swap",
)
MACHINE_ZRAM: Final = RuleInfo(
    "machine/zram",
    "info",
    "doctor",
    "swap is compressed memory",
    "What is swapped to zram stays in RAM, compressed, and counts for no container. The kubelet "
    "shares it out like a disk, so the node may run out of memory while containers have swap left.",
    "keep memory for it with systemReserved, or swap to a disk",
)
MACHINE_THRASHING: Final = RuleInfo(
    "machine/thrashing",
    "warning",
    "doctor",
    "containers read back what they have just swapped out, and wait for it",
    "Swap helps with memory that is rarely used. A container whose working set does not fit "
    "swaps the same pages out and in, and hardly runs.",
    "raise its memory limit and request, or give it no swap: request = limit",
)
MACHINE_PSI: Final = RuleInfo(
    "machine/psi",
    "warning",
    "doctor",
    "there is no pressure stall information",
    "Without it nobody sees who waits for memory.",
    "boot with psi=1",
)
MACHINE_RECURSIVE_PROTECTION: Final = RuleInfo(
    "machine/recursive-protection",
    "info",
    "doctor",
    "mounted without memory_recursiveprot",
    "The option decides whether protection reaches those who do not claim it.",
    "mount -o remount,memory_recursiveprot /sys/fs/cgroup",
)
TREE_MEMORY_CONTROLLER: Final = RuleInfo(
    "tree/memory-controller",
    "error",
    "doctor",
    "the memory controller does not reach the pods",
    "A cgroup has memory files only if all above it pass the controller on.",
    "enable memory in cgroup.subtree_control of every cgroup above",
)
TREE_DRIVER: Final = RuleInfo(
    "tree/driver",
    "error",
    "doctor",
    "kubelet, runtime and tree disagree on who names cgroups",
    "With two masters values are written to one cgroup and processes live in another.",
    "set the same cgroup driver in both",
)
TREE_MEMORY_MIN: Final = RuleInfo(
    "tree/memory-min",
    "error",
    "doctor",
    "nearly all of the machine is in memory.min",
    "What is in memory.min can be reclaimed from nobody; if that is all, the rest is killed.",
    "reserve less, or use TieredReservation",
)
TREE_STALE: Final = RuleInfo(
    "tree/stale",
    "warning",
    "doctor",
    "values were left behind by a feature that is off now",
    "Running containers keep their values when the feature, or its policy, is turned off.",
    "memqos apply takes them back, or restart the pods",
)
AGENT_UNMANAGED: Final = RuleInfo(
    "agent/unmanaged",
    "warning",
    "doctor",
    "values that memqos wrote are in place, and no agent manages them",
    "memqos apply, or an agent that has stopped, wrote them. New pods get none, and nobody "
    "widens a memory.high that stops a container.",
    "memqos rollback restores what was there before, memqos agent --mode enforce manages them",
)
AGENT_LEFT_ALONE: Final = RuleInfo(
    "agent/left-alone",
    "warning",
    "doctor",
    "the agent leaves values alone, as others keep changing them",
    "Two writers of one value: the agent puts it back a few times and then no more.",
    "stop who writes them, then have the agent start over with SIGHUP",
)
AGENT_MANAGES: Final = RuleInfo(
    "agent/manages",
    "info",
    "doctor",
    "values that Kubernetes would not set are managed by the agent on the node",
    "They are compared with another plan than the agent's, as an option asks for.",
    "none needed; without such options they are compared with what the agent plans",
)
AGENT_PENDING: Final = RuleInfo(
    "agent/pending",
    "info",
    "doctor",
    "the agent has values yet to set",
    "memory.high is lowered step by step, memory.min set as there is room.",
    "it sets them by itself; memqos plan --why tells what it plans",
)
TREE_DIFFERS: Final = RuleInfo(
    "tree/differs",
    "info",
    "doctor",
    "cgroups are not as planned",
    "Somebody else writes there, or the kubelet has not come round yet.",
    "memqos plan shows every difference",
)
THROTTLING_LIVELOCK: Final = RuleInfo(
    "throttling/livelock",
    "error",
    "doctor",
    "a container is stuck at its memory.high",
    "What it holds cannot be reclaimed, and it is not killed either.",
    "raise its limit, or memoryThrottlingFactor",
)
THROTTLING_UNRECLAIMABLE: Final = RuleInfo(
    "throttling/unreclaimable",
    "warning",
    "doctor",
    "anonymous memory alone is past memory.high, without swap",
    "The container is slowed down until it frees some.",
    "raise its limit, or memoryThrottlingFactor",
)
THROTTLING_NOW: Final = RuleInfo(
    "throttling/now",
    "warning",
    "doctor",
    "a container is past its memory.high and slowed down",
    "Every allocation there waits for reclaim.",
    "raise its limit, or memoryThrottlingFactor",
)
THROTTLING_BEFORE: Final = RuleInfo(
    "throttling/before",
    "info",
    "doctor",
    "cgroups have been past their memory.high",
    "Whether they are now, one look cannot tell.",
    "run memqos doctor on the node: it looks twice",
)
PROTECTION_LOST_MIN: Final = RuleInfo(
    "protection/lost-min",
    "warning",
    "doctor",
    "memory.min is claimed and not honoured",
    "A cgroup is protected only as far as all above it are.",
    "raise memory.min above it to the sum of what is claimed below",
)
PROTECTION_LOST_LOW: Final = RuleInfo(
    "protection/lost-low",
    "warning",
    "doctor",
    "memory.low is claimed and not honoured",
    "A cgroup is protected only as far as all above it are.",
    "raise memory.low above it to the sum of what is claimed below",
)
PROTECTION_UNASKED_MIN: Final = RuleInfo(
    "protection/unasked-min",
    "warning",
    "doctor",
    "memory.min reaches cgroups that never asked",
    "memory_recursiveprot hands on what those who claimed do not use, however exact the sums "
    "above them are, and nothing takes it back.",
    "request what is used; where cgroups above pods claim more than the pods do, lower that",
)
PROTECTION_UNASKED_LOW: Final = RuleInfo(
    "protection/unasked-low",
    "info",
    "doctor",
    "memory.low reaches cgroups that never asked",
    "memory_recursiveprot hands on what those who claimed do not use, however exact the sums "
    "above them are.",
    "request what is used; where cgroups above pods claim more than the pods do, lower that",
)
PROTECTION_UNKNOWN: Final = RuleInfo(
    "protection/unknown",
    "info",
    "doctor",
    "how much protection is honoured is not known",
    "It depends on what is in use, and no memory.current is known.",
    "run memqos doctor on the node, or take a new snapshot",
)
PLAN_REFUSED: Final = RuleInfo(
    "plan/refused",
    "error",
    "doctor",
    "there is no plan to compare the node with",
    "What the node runs with could not be read as a kubelet's configuration or release.",
    "mend what is named, or give --kubelet and --release",
)
PLAN_TERMS: Final = RuleInfo(
    "plan/terms",
    "info",
    "doctor",
    "release or configuration of the kubelet are not known",
    "Whether Memory QoS is on follows from both.",
    "give --kubelet and --release",
)
PLAN_PODS: Final = RuleInfo(
    "plan/pods",
    "info",
    "doctor",
    "which pods run here is not known",
    "Without them there are no values to compare.",
    "give --pods",
)
PLAN_UNRESOLVED: Final = RuleInfo(
    "plan/unresolved",
    "warning",
    "doctor",
    "pods or containers whose cgroup cannot be named",
    "They have no UID or container ID yet, or their runtime is not known.",
    "wait until they run",
)
PLAN_UNNAMED: Final = RuleInfo(
    "plan/unnamed",
    "info",
    "doctor",
    "cgroups of pods that nobody knows",
    "Pods that have gone leave their cgroups behind for a while.",
    "none is needed, unless they stay",
)
NUMA_POD_LEVEL: Final = RuleInfo(
    "numa/pod-level",
    "warning",
    "doctor",
    "pod-level resources are ignored for memory alignment",
    "Under memoryManagerPolicy Static such a Guaranteed pod looks aligned to NUMA nodes, and is "
    "not while PodLevelResourceManagers is off, or the Topology Manager's scope is container.",
    "set resources of each container instead, or turn on PodLevelResourceManagers (1.36 and newer) "
    "with topologyManagerScope: pod and a topologyManagerPolicy such as single-numa-node",
)

DOCTOR_RULES: Final[tuple[RuleInfo, ...]] = (
    MACHINE_CGROUP_V2,
    MACHINE_KERNEL,
    MACHINE_RUNTIME,
    MACHINE_NRI,
    MACHINE_SWAP,
    MACHINE_ZRAM,
    MACHINE_THRASHING,
    MACHINE_PSI,
    MACHINE_RECURSIVE_PROTECTION,
    TREE_MEMORY_CONTROLLER,
    TREE_DRIVER,
    TREE_MEMORY_MIN,
    TREE_STALE,
    AGENT_UNMANAGED,
    AGENT_LEFT_ALONE,
    AGENT_MANAGES,
    AGENT_PENDING,
    TREE_DIFFERS,
    THROTTLING_LIVELOCK,
    THROTTLING_UNRECLAIMABLE,
    THROTTLING_NOW,
    THROTTLING_BEFORE,
    PROTECTION_LOST_MIN,
    PROTECTION_LOST_LOW,
    PROTECTION_UNASKED_MIN,
    PROTECTION_UNASKED_LOW,
    PROTECTION_UNKNOWN,
    PLAN_REFUSED,
    PLAN_TERMS,
    PLAN_PODS,
    PLAN_UNRESOLVED,
    PLAN_UNNAMED,
    NUMA_POD_LEVEL,
)

RULES_BY_ID: Final[dict[str, RuleInfo]] = {rule.id: rule for rule in (*AUDIT_RULES, *DOCTOR_RULES)}


def unknown_rule(id: str, known: Iterable[str]) -> str | None:
    """What is wrong with an ID that names neither a rule nor a group; None where it does."""
    known = tuple(known)
    names = {*known, *[each.partition("/")[0] for each in known]}
    if id in names:
        return None
    from difflib import get_close_matches

    near = get_close_matches(id, names, 1)
    hint = f": did you mean {near[0]}?" if near else ": memqos rules lists them"
    return f"there is no rule {id!r}{hint}"
