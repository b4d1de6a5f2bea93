"""Every rule there is: what it looks for, why that matters, and what helps.

`memqos audit` judges a cluster by the first group, `memqos doctor` a node by the second.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from memqos.errors import nearest_name
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
    "containers were OOM-killed",
    "The kernel kills a process at a memory limit, or when the node is out of memory, and the "
    "kubelet restarts the container. Memory QoS throttles before the limit; it does not fix a "
    "leak.",
    "raise the limit to what it needs, or fix the leak; memqos why POD shows the cause",
)
POD_EXIT_137: Final = RuleInfo(
    "pod/exit-137",
    "warning",
    "audit",
    "containers were ended by SIGKILL, but not reported as OOMKilled",
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
    "set the request to what the pod uses; memqos rank eviction shows the order",
)
POD_RESTARTS: Final = RuleInfo(
    "pod/restarts",
    "info",
    "audit",
    "containers fail and restart repeatedly",
    "Each start takes memory for page cache and initialisation; a reason other than memory is "
    "likely.",
    "look at the exit code and the log of the previous container",
)
POD_TMPFS: Final = RuleInfo(
    "pod/tmpfs",
    "warning",
    "audit",
    "a memory-backed volume may grow beyond the pod's memory limit",
    "Files of an emptyDir with medium Memory count as memory of the container that writes them, "
    "and cannot be reclaimed without swap. Without a sizeLimit, or with one above the limit, "
    "writing to it can cause an OOM kill.",
    "set a sizeLimit below the memory limit, and leave memory for the containers",
)
POD_HPA: Final = RuleInfo(
    "pod/hpa",
    "warning",
    "audit",
    "a HorizontalPodAutoscaler cannot compute the memory utilization of its pods",
    "Utilization is usage divided by request: if one container has no request, the autoscaler "
    "cannot use the metric.",
    "request memory for each container, or set a pod-level request (seen by the HPA since 1.34)",
)
POD_INVALID: Final = RuleInfo(
    "pod/invalid",
    "error",
    "audit",
    "the API server of this release would refuse such a pod",
    "A running pod was accepted by an earlier release or with other feature gates. Under this "
    "release it cannot be created again, so the next rollout fails.",
    "correct the field; memqos explain POD shows every error",
)
POD_THROTTLED: Final = RuleInfo(
    "pod/throttled",
    "warning",
    "audit",
    "containers would be throttled immediately: their usage is above the planned memory.high",
    "Above memory.high every allocation waits for reclaim. Without swap only page cache can be "
    "reclaimed. A container with more anonymous memory than memory.high makes no progress, and "
    "is not killed.",
    "raise the limit, or memoryThrottlingFactor: memory.high is computed from both",
)
POD_NO_REQUEST: Final = RuleInfo(
    "pod/no-request",
    "warning",
    "audit",
    "containers request no memory",
    "A container without a request gets no protection: it is reclaimed, evicted and killed "
    "first, and the scheduler may place it on a full node.",
    "set the request to the container's peak usage, or create a LimitRange with a defaultRequest",
)
POD_ABOVE_REQUEST: Final = RuleInfo(
    "pod/above-request",
    "info",
    "audit",
    "pods use more than they request",
    "The kubelet evicts pods above their request first, whatever their QoS class. memory.min and "
    "memory.low protect no more than the request.",
    "raise the request to what the pod uses",
)
POD_IDLE_REQUEST: Final = RuleInfo(
    "pod/idle-request",
    "info",
    "audit",
    "pods request several times what they use",
    "Unused requests keep other pods off the node. Where requests are reserved, "
    "memory_recursiveprot passes the unused protection to pods that did not request it.",
    "lower the request",
)
POD_HIGH_LIMIT: Final = RuleInfo(
    "pod/high-limit",
    "info",
    "audit",
    "limits are far above usage",
    "memory.high is computed from the limit. Far above usage it does not throttle in time, and "
    "the node runs out of memory before the container reaches it.",
    "lower the limit towards the pod's peak usage",
)
POD_NO_LIMIT: Final = RuleInfo(
    "pod/no-limit",
    "info",
    "audit",
    "containers have no memory limit",
    "Without a limit memory.high is computed from the node's allocatable memory, and one leak "
    "can use up the whole node.",
    "set a limit for each container, or for the pod (1.34 and newer)",
)
POD_POD_LEVEL: Final = RuleInfo(
    "pod/pod-level",
    "info",
    "audit",
    "containers that peak at different times could share a pod-level request",
    "Requests of containers add up, although the containers do not peak together. A pod-level "
    "request (1.34 and newer) covers what they need at the same time.",
    "set spec.resources of the pod to the peak of its containers together",
)
POD_NODE_REFUSES: Final = RuleInfo(
    "pod/node-refuses",
    "warning",
    "audit",
    "the kubelet of their node would refuse these pods if they were created again",
    "A kubelet admits a pod once. The pod keeps running when the release or the gates of the "
    "kubelet change, but its replacement fails: kubelets on Windows, and those with the gate "
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
    "requests exceed the node's allocatable memory",
    "The scheduler never does that; static pods, resizes and nodes that were made smaller do. "
    "The kernel then cannot honour all reservations.",
    "move pods to other nodes, or add memory to the node",
)
NODE_HARD_PROTECTION: Final = RuleInfo(
    "node/hard-protection",
    "warning",
    "audit",
    "nearly all memory would be in memory.min, and could not be reclaimed",
    "If memory.min covers all memory, the kernel has nothing to reclaim and OOM-kills instead.",
    "reserve more for the system, or lower requests; with policy None no memory is reserved",
)
NODE_LOST_LOW: Final = RuleInfo(
    "node/lost-low",
    "warning",
    "audit",
    "memory.low would not be honoured",
    "A cgroup is protected only as far as its ancestors are. Kubernetes 1.36 sets memory.low on "
    "Burstable pods and their QoS cgroup, but not on kubepods above them; 1.37 fixes that.",
    "upgrade to 1.37, or do not rely on TieredReservation for Burstable pods",
)
NODE_UNASKED: Final = RuleInfo(
    "node/unasked",
    "warning",
    "audit",
    "pods would get protection they did not request",
    "kubepods is protected for the sum of all requests. With memory_recursiveprot, protection "
    "that pods do not use goes to pods that use more than their request, including BestEffort "
    "pods.",
    "lower requests towards usage",
)
NODE_FULL: Final = RuleInfo(
    "node/full",
    "warning",
    "audit",
    "pods use nearly all allocatable memory of the node",
    "The next allocation may start evictions. Under node-wide reclaim memory.min and memory.low "
    "decide which pods lose memory.",
    "move pods to other nodes; memqos rank eviction shows the order",
)
NODE_HUGEPAGES: Final = RuleInfo(
    "node/hugepages",
    "warning",
    "audit",
    "the kubelet counts hugepages as available memory, and evicts too late",
    "Until 1.37 memory.available counts memory that is set aside for hugepages, used or not, as "
    "available (gate HugepageAwareEviction). If that is more than the threshold, the kernel "
    "OOM-kills before the kubelet evicts.",
    "run kubelet 1.37 or newer, or raise the threshold of memory.available in evictionHard by the "
    "size of the hugepages; lower it again with the upgrade",
)
NODE_SWAP: Final = RuleInfo(
    "node/swap",
    "info",
    "audit",
    "some nodes have swap, others have none",
    "The scheduler ignores swap. With LimitedSwap the same pod may swap on one node and be "
    "OOM-killed at its limit on another.",
    "enable swap on all nodes of a pool, or on none; or place pods that need swap with a "
    "nodeSelector",
)
NODE_LIMITS: Final = RuleInfo(
    "node/limits",
    "info",
    "audit",
    "the sum of limits is a multiple of the node's allocatable memory",
    "Limits may be overcommitted, and usually are. The larger the multiple, the more the order "
    "of reclaim and OOM kills matters.",
    "lower limits that are not needed",
)
NODE_KERNEL: Final = RuleInfo(
    "node/kernel",
    "error",
    "audit",
    "the kernel can throttle a container forever",
    "Before 5.9 a cgroup at its memory.high could hang permanently (KEP-2570).",
    "run kernel 5.9 or newer before you turn on MemoryQoS, or set memoryThrottlingFactor to 1.0",
)
NODE_RUNTIME: Final = RuleInfo(
    "node/runtime",
    "error",
    "audit",
    "the container runtime ignores cgroup v2 values of the kubelet",
    "containerd before 1.6 and CRI-O before 1.22 do not pass on cgroup v2 values, and log no "
    "error.",
    "upgrade the runtime",
)
NODE_CGROUP_V1: Final = RuleInfo(
    "node/cgroup-v1",
    "warning",
    "audit",
    "the operating system boots with cgroup v1 by default",
    "memory.min, memory.low and memory.high exist on cgroup v2 only. The Node object does not "
    "show the cgroup version, so this is the default of its operating system.",
    "check with stat -fc %T /sys/fs/cgroup on the node; boot with "
    "systemd.unified_cgroup_hierarchy=1, or upgrade",
)
NODE_SKEW: Final = RuleInfo(
    "node/skew",
    "warning",
    "audit",
    "kubelets have different releases, or another release than the API server",
    "The kubelet's release decides which cgroup values a pod gets. A kubelet may be up to 3 minor "
    "versions older than the API server (2 before 1.28), and never newer.",
    "finish the upgrade; memqos audit --compare release=1.37 shows what another release changes",
)
NODE_OS: Final = RuleInfo(
    "node/os",
    "info",
    "audit",
    "not a Linux node: pods on it have no cgroup",
    "Memory QoS is a Linux feature. The values shown for pods of this node are not set.",
    "none needed",
)
NAMESPACE_NO_LIMIT_RANGE: Final = RuleInfo(
    "namespace/no-limit-range",
    "warning",
    "audit",
    "no LimitRange sets a default memory request",
    "Pods of this namespace can be created without a memory request, and some are.",
    "create a LimitRange with a defaultRequest for memory",
)
NAMESPACE_QUOTA: Final = RuleInfo(
    "namespace/quota",
    "warning",
    "audit",
    "a memory quota is nearly used up",
    "Once it is used up, new pods are refused, including replacements of running pods.",
    "raise the quota, or lower requests that are above usage",
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
    NODE_HUGEPAGES,
    NODE_LIMITS,
    NODE_SWAP,
    NAMESPACE_NO_LIMIT_RANGE,
    NAMESPACE_QUOTA,
)

MEMORY_QOS_RULES: Final = frozenset(
    rule.id
    for rule in (
        POD_THROTTLED,
        NODE_HARD_PROTECTION,
        NODE_LOST_LOW,
        NODE_UNASKED,
        NODE_KERNEL,
        NODE_RUNTIME,
        NODE_CGROUP_V1,
    )
)
"""Rules of an audit about what harms only where the gate MemoryQoS is on."""

MACHINE_CGROUP_V2: Final = RuleInfo(
    "machine/cgroup-v2",
    "error",
    "doctor",
    "the machine has no cgroup v2",
    "memory.min, memory.low and memory.high exist on cgroup v2 only.",
    "boot with systemd.unified_cgroup_hierarchy=1",
)
MACHINE_KERNEL: Final = RuleInfo(
    "machine/kernel",
    "error",
    "doctor",
    "the kernel can hang a container at memory.high permanently",
    "Before 5.9 a cgroup at its memory.high could hang permanently. Signs of it: cpu.stat near "
    "zero, "
    "and full avg10 of memory.pressure above 10.",
    "run kernel 5.9 or newer; until then memoryThrottlingFactor: 1.0 and "
    "memoryReservationPolicy: None, or the feature gate MemoryQoS off",
)
MACHINE_RUNTIME: Final = RuleInfo(
    "machine/runtime",
    "error",
    "doctor",
    "the container runtime ignores cgroup v2 values of the kubelet",
    "containerd before 1.6 and CRI-O before 1.22 do not pass on cgroup v2 values, and log no "
    "error.",
    "upgrade the runtime",
)
MACHINE_NRI: Final = RuleInfo(
    "machine/nri",
    "info",
    "doctor",
    "NRI of the container runtime, and its plugins",
    "As an NRI plugin memqos sets values before a container starts. If two plugins set the same "
    "value, the runtime cannot create containers.",
    "turn NRI on in the runtime's configuration, and nri: on in the agent's",
)
MACHINE_SWAP: Final = RuleInfo(
    "machine/swap",
    "info",
    "doctor",
    "above memory.high only page cache can be reclaimed",
    "The kernel enforces memory.high by reclaim, and without swap it cannot reclaim anonymous "
    "memory.",
    "raise the limit of containers with mostly anonymous memory, or add swap to the node",
)
MACHINE_ZRAM: Final = RuleInfo(
    "machine/zram",
    "info",
    "doctor",
    "swap is compressed memory",
    "Memory swapped to zram stays in RAM, compressed, and is not charged to a container. The "
    "kubelet divides it like swap on a disk, so the node may run out of memory while containers "
    "have swap left.",
    "reserve memory for it with systemReserved, or swap to a disk",
)
MACHINE_THRASHING: Final = RuleInfo(
    "machine/thrashing",
    "warning",
    "doctor",
    "containers are swap thrashing: they wait for pages they have just swapped out",
    "Swap helps with memory that is rarely used. A container whose working set does not fit "
    "swaps the same pages out and in, and hardly runs.",
    "raise its memory limit and request, or disable swap for it: request = limit",
)
MACHINE_PSI: Final = RuleInfo(
    "machine/psi",
    "warning",
    "doctor",
    "there is no pressure stall information",
    "Without PSI it is not visible which containers wait for memory.",
    "boot with psi=1",
)
MACHINE_RECURSIVE_PROTECTION: Final = RuleInfo(
    "machine/recursive-protection",
    "info",
    "doctor",
    "cgroup v2 is mounted without memory_recursiveprot",
    "The mount option decides whether protection of a cgroup extends to children without "
    "protection of their own.",
    "mount -o remount,memory_recursiveprot /sys/fs/cgroup",
)
TREE_MEMORY_CONTROLLER: Final = RuleInfo(
    "tree/memory-controller",
    "error",
    "doctor",
    "the memory controller is not enabled for pods",
    "A cgroup has memory files only if all its ancestors enable the controller.",
    "enable memory in cgroup.subtree_control of every ancestor",
)
TREE_DRIVER: Final = RuleInfo(
    "tree/driver",
    "error",
    "doctor",
    "kubelet and container runtime use different cgroup drivers",
    "With two drivers, values are written to one cgroup and processes run in another.",
    "set the same cgroup driver in the kubelet and the runtime",
)
TREE_MEMORY_MIN: Final = RuleInfo(
    "tree/memory-min",
    "error",
    "doctor",
    "nearly all memory of the node is in memory.min",
    "Memory within memory.min is never reclaimed. If that is nearly all memory, the kernel "
    "OOM-kills instead.",
    "reserve less, or use TieredReservation",
)
TREE_STALE: Final = RuleInfo(
    "tree/stale",
    "warning",
    "doctor",
    "values remain of a feature that is off now",
    "Running containers keep their values when the feature, or its policy, is turned off.",
    "run memqos apply to reset them, or restart the pods",
)
AGENT_UNMANAGED: Final = RuleInfo(
    "agent/unmanaged",
    "warning",
    "doctor",
    "values that memqos wrote are in place, and no agent manages them",
    "memqos apply, or an agent that has stopped, wrote them. New pods get no values, and a "
    "memory.high that stops a container is not raised.",
    "memqos rollback restores the previous values, memqos agent --mode enforce manages them",
)
AGENT_LEFT_ALONE: Final = RuleInfo(
    "agent/left-alone",
    "warning",
    "doctor",
    "the agent no longer sets some values, as something else keeps changing them",
    "Two writers set the same value: the agent restores it a few times, then stops.",
    "stop the other writer, then send SIGHUP to the agent",
)
AGENT_MANAGES: Final = RuleInfo(
    "agent/manages",
    "info",
    "doctor",
    "values that Kubernetes would not set are managed by the agent on the node",
    "Because of an option they are compared with another plan than the agent's.",
    "none needed; without such options they are compared with the agent's plan",
)
AGENT_PENDING: Final = RuleInfo(
    "agent/pending",
    "info",
    "doctor",
    "the agent has values yet to set",
    "The agent lowers memory.high in steps, and sets memory.min as memory gets free.",
    "none needed; memqos plan --why shows its plan",
)
TREE_DIFFERS: Final = RuleInfo(
    "tree/differs",
    "info",
    "doctor",
    "cgroup values differ from the plan",
    "Something else writes them, or the kubelet has not set them yet.",
    "memqos plan shows every difference",
)
THROTTLING_LIVELOCK: Final = RuleInfo(
    "throttling/livelock",
    "error",
    "doctor",
    "a container is stuck at its memory.high",
    "Its memory cannot be reclaimed, and the container is not killed either.",
    "raise its limit, or memoryThrottlingFactor",
)
THROTTLING_UNRECLAIMABLE: Final = RuleInfo(
    "throttling/unreclaimable",
    "warning",
    "doctor",
    "anonymous memory alone is above memory.high, without swap",
    "The container is throttled until it frees memory.",
    "raise its limit, or memoryThrottlingFactor",
)
THROTTLING_NOW: Final = RuleInfo(
    "throttling/now",
    "warning",
    "doctor",
    "a container is above its memory.high and throttled",
    "Every allocation of it waits for reclaim.",
    "raise its limit, or memoryThrottlingFactor",
)
THROTTLING_BEFORE: Final = RuleInfo(
    "throttling/before",
    "info",
    "doctor",
    "cgroups have been above their memory.high",
    "One reading cannot show whether they are now.",
    "run memqos doctor on the node: it reads the counters twice",
)
PROTECTION_LOST_MIN: Final = RuleInfo(
    "protection/lost-min",
    "warning",
    "doctor",
    "memory.min is not honoured",
    "A cgroup is protected only as far as its ancestors are.",
    "raise memory.min of its ancestors to the sum over their children",
)
PROTECTION_LOST_LOW: Final = RuleInfo(
    "protection/lost-low",
    "warning",
    "doctor",
    "memory.low is not honoured",
    "A cgroup is protected only as far as its ancestors are.",
    "raise memory.low of its ancestors to the sum over their children",
)
PROTECTION_UNASKED_MIN: Final = RuleInfo(
    "protection/unasked-min",
    "warning",
    "doctor",
    "cgroups get memory.min protection they did not request",
    "memory_recursiveprot passes on protection that its owners do not use, however exact the "
    "sums of their ancestors are, and that memory is never reclaimed.",
    "lower requests to usage; where cgroups above pods have more protection than the pods, lower "
    "it",
)
PROTECTION_UNASKED_LOW: Final = RuleInfo(
    "protection/unasked-low",
    "info",
    "doctor",
    "cgroups get memory.low protection they did not request",
    "memory_recursiveprot passes on protection that its owners do not use, however exact the "
    "sums of their ancestors are.",
    "lower requests to usage; where cgroups above pods have more protection than the pods, lower "
    "it",
)
PROTECTION_UNKNOWN: Final = RuleInfo(
    "protection/unknown",
    "info",
    "doctor",
    "it is unknown how much protection is honoured",
    "It depends on usage, and no memory.current is known.",
    "run memqos doctor on the node, or take a new snapshot",
)
PLAN_REFUSED: Final = RuleInfo(
    "plan/refused",
    "error",
    "doctor",
    "there is no plan to compare the node with",
    "The kubelet configuration or release of the node could not be read.",
    "correct what is named, or give --kubelet and --release",
)
PLAN_TERMS: Final = RuleInfo(
    "plan/terms",
    "info",
    "doctor",
    "the release or configuration of the kubelet is unknown",
    "They decide whether Memory QoS is on.",
    "give --kubelet and --release",
)
PLAN_PODS: Final = RuleInfo(
    "plan/pods",
    "info",
    "doctor",
    "the pods of this node are unknown",
    "Without them there are no values to compare.",
    "give --pods",
)
PLAN_UNRESOLVED: Final = RuleInfo(
    "plan/unresolved",
    "warning",
    "doctor",
    "pods or containers without a known cgroup",
    "They have no UID or container ID yet, or their runtime is unknown.",
    "wait until they run",
)
PLAN_UNNAMED: Final = RuleInfo(
    "plan/unnamed",
    "info",
    "doctor",
    "cgroups of unknown pods",
    "Cgroups of removed pods remain for a while.",
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
    near = nearest_name(id, names)
    hint = f": did you mean {near}?" if near is not None else ": memqos rules lists them"
    return f"there is no rule {id!r}{hint}"
