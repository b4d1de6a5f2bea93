"""Rules about the tree of cgroups and how it differs from its plan."""

from collections.abc import Iterator
from typing import Final

from memqos.findings.catalogue import (
    HARD_PROTECTION_SHARE,
    NUMA_POD_LEVEL,
    PLAN_PODS,
    PLAN_REFUSED,
    PLAN_TERMS,
    PLAN_UNNAMED,
    PLAN_UNRESOLVED,
    TREE_DIFFERS,
    TREE_DRIVER,
    TREE_MEMORY_CONTROLLER,
    TREE_MEMORY_MIN,
    TREE_STALE,
)
from memqos.findings.facts import NodeFacts, file_number
from memqos.findings.finding import Finding
from memqos.kernel.file_formats import controllers_of, withheld_at
from memqos.kube.kubelet.drivers import kubepods_in
from memqos.numa.requests import alignment_texts
from memqos.plan.changes import Change
from memqos.plan.setting import MAX
from memqos.units import format_exact_bytes

_KUBERNETES_LEVELS: Final = frozenset({"kubepods", "qos", "pod", "container"})
_MEMORY_QOS: Final = frozenset({"memory.min", "memory.low", "memory.high"})
# The slice:prefix:name form is for runtimes with the systemd driver; one with cgroupfs creates it
# literally, as a cgroup of that name (containerd podsandbox/helpers_linux.go, getCgroupsPath).
_SYSTEMD_STYLE_NAMES: Final = (":cri-containerd:", ":crio:")


def check_controllers(facts: NodeFacts) -> Iterator[Finding]:
    """A cgroup has memory files only if all its ancestors enable the controller."""
    known = {
        path: files for path, files in facts.cgroups.items() if "cgroup.subtree_control" in files
    }
    root = facts.cgroups.get("/", {})
    if not known:
        yield Finding(
            TREE_MEMORY_CONTROLLER.id,
            "info",
            "the enabled cgroup controllers are unknown",
            "/",
            ("no cgroup.subtree_control is known",),
            "take a new snapshot with memqos snapshot",
        )
    elif "cgroup.controllers" in root and "memory" not in controllers_of(root).available:
        yield Finding(
            TREE_MEMORY_CONTROLLER.id,
            "error",
            "this kernel does not have the memory controller on cgroup v2",
            "/",
            (f"cgroup.controllers: {root['cgroup.controllers'] or '(empty)'}",),
            "boot without cgroup_disable=memory, and with cgroup_no_v1=memory if cgroup v1 uses it",
        )
    elif facts.planned is not None:
        names = facts.planned.names
        places = ((path, names.recognise(path)) for path in facts.cgroups)
        kept = [path for path, place in places if place and place.kind in _KUBERNETES_LEVELS]
        withheld = dict.fromkeys(withheld_at(known, path, "memory") for path in kept)
        for path in withheld:
            if path is not None:
                yield Finding(
                    TREE_MEMORY_CONTROLLER.id,
                    "error",
                    "the memory controller is not enabled for children: no cgroup below has "
                    "memory files",
                    path,
                    (f"cgroup.subtree_control: {known[path]['cgroup.subtree_control'] or '–'}",),
                    f"write +memory to cgroup.subtree_control of {path}, or restart the kubelet",
                )


def check_cgroup_driver(facts: NodeFacts) -> Iterator[Finding]:
    """Kubelet, runtime and tree should have the same cgroup driver."""
    kubepods = kubepods_in(facts.cgroups)
    places = tuple(f"{each.path}: {each.driver}, {each.below} cgroups below" for each in kubepods)
    configured = facts.configured_driver
    if kubepods and configured is not None and kubepods[0].driver != configured:
        yield Finding(
            TREE_DRIVER.id,
            "warning",
            f"the kubelet is configured for the {configured} driver, but its pods are in cgroups "
            f"of the {kubepods[0].driver} driver",
            kubepods[0].path,
            (f"cgroupDriver: {configured}", *places),
            "set cgroupDriver to what the runtime uses, drain the node and restart the kubelet",
        )
    if len(kubepods) > 1:
        yield Finding(
            TREE_DRIVER.id,
            "warning",
            "pods are in cgroups of both drivers: those of one driver are left over",
            kubepods[1].path,
            places,
            "drain the node and reboot it",
        )
    stray = tuple(path for path in facts.cgroups if any(s in path for s in _SYSTEMD_STYLE_NAMES))
    if stray:
        yield Finding(
            TREE_DRIVER.id,
            "error",
            "the kubelet uses the systemd driver and the runtime cgroupfs: containers are outside "
            "of their pods",
            stray[0],
            stray,
            "set SystemdCgroup = true in containerd, or cgroup_manager = systemd in CRI-O",
        )


def check_hard_protection(facts: NodeFacts) -> Iterator[Finding]:
    """memory.min is never reclaimed: where it is nearly all memory, processes are killed."""
    memory = facts.machine.memory
    if memory is None:
        return
    claims = {
        path: memory
        if files["memory.min"].strip() == MAX
        else file_number(files, "memory.min") or 0
        for path, files in facts.cgroups.items()
        if path.count("/") == 1 and "memory.min" in files
    }
    total = sum(claims.values())
    if total < memory * HARD_PROTECTION_SHARE:
        return
    yield Finding(
        TREE_MEMORY_MIN.id,
        "error" if total >= memory else "warning",
        f"memory.min reserves {format_exact_bytes(total)} of "
        f"{format_exact_bytes(memory)}: under memory pressure nothing is left to reclaim, and "
        f"processes are OOM-killed",
        "/",
        tuple(f"{path}: {format_exact_bytes(claim)}" for path, claim in claims.items() if claim),
        "lower the requests of Guaranteed pods, or the reservations, or use memoryReservationPolicy"
        ": None",
    )


def check_stale_values(facts: NodeFacts) -> Iterator[Finding]:
    """Running containers keep their values when the feature, or its policy, is turned off."""
    if facts.planned is None or facts.planned.memory_qos is None or not facts.pods:
        return
    left = tuple(
        c
        for c in facts.planned.comparison.changes
        if _is_left_behind(c) and not facts.is_written_by_memqos(c.path, c.file)
    )
    if left:
        off = "" if facts.planned.memory_qos else "MemoryQoS is off, but "
        yield Finding(
            TREE_STALE.id,
            "warning",
            f"{off}values that Kubernetes would no longer set are still in place: {len(left)}",
            facts.display_name(left[0].path),
            tuple(f"{facts.display_name(c.path)}: {c.file} is {c.old}, not {c.new}" for c in left),
            "reset them with memqos apply, or restart these pods",
        )


def check_differing_values(facts: NodeFacts) -> Iterator[Finding]:
    """Other values that differ from the plan."""
    if facts.planned is None or facts.planned.memory_qos is None or not facts.pods:
        return
    changes = [
        c
        for c in facts.planned.comparison.changes
        if not _is_left_behind(c) and not facts.is_written_by_memqos(c.path, c.file)
    ]
    if changes:
        yield Finding(
            TREE_DIFFERS.id,
            "info",
            f"values that differ from what Kubernetes would set: {len(changes)}",
            facts.display_name(changes[0].path),
            tuple(
                f"{facts.display_name(c.path)}: {c.file} is {c.old}, not {c.new}" for c in changes
            ),
            "see memqos plan, and set them with memqos apply",
        )


def check_plan_inputs(facts: NodeFacts) -> Iterator[Finding]:
    """What could not be judged without a plan."""
    if facts.not_planned is not None:
        yield Finding(
            PLAN_REFUSED.id,
            "error",
            "this node cannot be planned, so it is not compared with a plan",
            "node",
            (facts.not_planned,),
            "correct what is named here, or give --kubelet and --release",
        )
    if facts.planned is not None and facts.planned.memory_qos is None:
        others = "that the agent does not manage " if facts.planned.managed else ""
        yield Finding(
            PLAN_TERMS.id,
            "info",
            f"the kubelet's release or configuration is unknown, so values {others}are not "
            "compared with a plan",
            "kubelet",
            (
                f"kubelet: {facts.machine.kubelet or 'no version'}",
                *([] if facts.planned.doubt is None else [facts.planned.doubt]),
            ),
            "give --release and --kubelet",
        )
    if not facts.pods:
        yield Finding(
            PLAN_PODS.id,
            "info",
            "no pods are known, so containers are not compared with a plan",
            "pods",
            ("none were given",),
            "name a source with --pods, such as https://127.0.0.1:10250",
        )


def check_unresolved_cgroups(facts: NodeFacts) -> Iterator[Finding]:
    """Pods and containers without a cgroup, and cgroups without a pod."""
    if facts.planned is None or not facts.pods:
        return
    for missing in facts.planned.tree.unresolved:
        # A container that has not started has no ID yet, which is normal; a pod without is not.
        yield Finding(
            PLAN_UNRESOLVED.id,
            "warning" if missing.container is None else "info",
            "its cgroup cannot be named, so nothing is planned for it",
            f"{missing.pod} {missing.container}" if missing.container else missing.pod,
            (missing.why,),
            "correct the pod where it is written"
            if missing.container is None
            else "run it again once the container has started",
        )
    orphans = facts.planned.comparison.orphans
    if orphans:
        yield Finding(
            PLAN_UNNAMED.id,
            "info",
            f"pod cgroups that belong to no known pod: {len(orphans)}",
            orphans[0],
            orphans,
            "give all pods of the node with --pods; the remaining ones are leftovers",
        )


def _is_left_behind(change: Change) -> bool:
    return change.kind == "-" and change.file in _MEMORY_QOS


def check_numa_alignment(facts: NodeFacts) -> Iterator[Finding]:
    """Guaranteed pods with pod-level resources are not aligned by a Static Memory Manager."""
    planned = facts.planned
    if planned is None:
        return
    notice, remedy = alignment_texts(planned.release)
    for pod in planned.unaligned:
        yield Finding(
            NUMA_POD_LEVEL.id,
            "warning",
            notice,
            pod,
            ("the pod sets spec.resources, and memoryManagerPolicy is Static",),
            remedy,
        )
