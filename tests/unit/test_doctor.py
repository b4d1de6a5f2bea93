"""What is found on a node, judged from facts alone."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from memqos.agent.core.reservations import PodReservations, level_cgroups
from memqos.converge.node_plan import PlanOptions, plan_observation
from memqos.converge.observation import observe_snapshot
from memqos.findings.facts import NodeFacts, NriFacts, PlanFacts, SecondReading
from memqos.findings.finding import Finding
from memqos.findings.node import judge_node
from memqos.findings.reserved import reserved_advice
from memqos.kernel.machine import Machine
from memqos.manifests.agent_state import AgentState, NriState
from memqos.manifests.snapshot import read_snapshot
from memqos.plan.changes import compare
from memqos.plan.names import cgroup_names
from memqos.plan.tree import Cgroup
from memqos.settings.settings import Policy

NODES = Path(__file__).parents[1] / "nodes"
MI = 1 << 20
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,relatime,memory_recursiveprot 0 0"
PLAIN_V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,relatime 0 0"
SOUND = Machine(
    kernel="6.1.0",
    page_size=4096,
    meminfo="MemTotal: 4194304 kB\nSwapTotal: 1048576 kB\n",
    mount=(V2,),
    layout="v2",
    pressure={"memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0"},
    runtime="containerd 1.7.1",
    kubelet="v1.38.0",
)
ON, OFF = "memoryReservationPolicy: TieredReservation", "featureGates: {MemoryQoS: false}"
CONTROLLERS = {"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "cpu memory"}


def cgroup(**files: object) -> dict[str, str]:
    named = {f"memory.{file}": str(content) for file, content in files.items()}
    return {**CONTROLLERS, "memory.min": "0", "memory.low": "0", "memory.high": "max", **named}


def facts(cgroups: dict[str, dict[str, str]] | None = None, machine: Machine = SOUND) -> NodeFacts:
    return NodeFacts(machine=machine, cgroups={"/": CONTROLLERS, **(cgroups or {})}, pods=1)


def recorded(name: str, gate: str = ON, policy: Policy | None = None) -> NodeFacts:
    data = (NODES / f"{name}.json").read_bytes().replace(ON.encode(), gate.encode())
    observation = observe_snapshot(read_snapshot(data, name), name)
    plan = plan_observation(observation, PlanOptions(release="1.38", policy=policy))
    return NodeFacts(
        machine=observation.machine,
        cgroups=observation.cgroups,
        planned=PlanFacts(
            names=cgroup_names(plan.config.driver, plan.config.cgroup_root),
            tree=plan.tree,
            comparison=plan.comparison,
            release=plan.settings.release,
            memory_qos=plan.settings.release.is_enabled("MemoryQoS"),
        ),
        pods=len(observation.pods),
    )


def found(judged: NodeFacts, rule: str) -> Finding:
    (finding,) = [finding for finding in judge_node(judged) if finding.rule == rule]
    return finding


def rules(judged: NodeFacts) -> list[str]:
    return [finding.rule for finding in judge_node(judged)]


def test_nothing_is_found_on_a_sound_node() -> None:
    assert judge_node(facts({"/kubepods": cgroup(current=MI)})) == ()


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("v1", "has cgroup v1, not cgroup v2"),
        ("hybrid", "(hybrid)"),
        ("none", "no cgroup file system"),
    ],
)
def test_without_cgroup_v2_that_is_all_there_is_to_say(layout: str, words: str) -> None:
    machine = replace(SOUND, layout=layout, mount=(), pressure={})
    (finding,) = judge_node(facts({}, machine))
    assert (finding.rule, finding.severity) == ("machine/cgroup-v2", "error")
    assert words in finding.what


@pytest.mark.parametrize(
    ("kernel", "severity"),
    [("5.8.18", "error"), ("5.9.0-rc1", None), ("6.1.0", None), ("", "info")],
)
def test_the_kernel_is_5_9_or_newer(kernel: str, severity: str | None) -> None:
    judged = judge_node(facts({}, replace(SOUND, kernel=kernel)))
    assert [finding.severity for finding in judged] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("runtime", "severity"),
    [
        ("containerd 1.5.18", "error"),
        ("containerd 1.6.0", None),
        ("containerd 2.0.1", None),
        ("cri-o 1.21.9", "error"),
        ("cri-o 1.22.0", None),
        ("docker 20.10.7", "info"),
        (None, "info"),
    ],
)
def test_the_runtime_passes_values_on(runtime: str | None, severity: str | None) -> None:
    judged = judge_node(facts({}, replace(SOUND, runtime=runtime)))
    assert [finding.severity for finding in judged] == ([severity] if severity else [])


def test_without_swap_memory_high_reclaims_page_cache_only() -> None:
    machine = replace(SOUND, meminfo="MemTotal: 4194304 kB\nSwapTotal: 0 kB\n")
    finding = found(facts({"/a": cgroup(high=MI)}, machine), "machine/swap")
    assert finding.severity == "info"
    assert "only page cache" in finding.what
    assert "cgroups with a memory.high: 1" in finding.evidence


def test_swap_that_containers_may_not_use_is_reported() -> None:
    finding = found(facts({"/a": cgroup(high=MI) | {"memory.swap.max": "0"}}), "machine/swap")
    assert "memory.swap.max is 0 in 1 of 1" in finding.evidence


def test_a_machine_without_psi_is_told_from_one_of_which_nothing_was_recorded() -> None:
    silent = replace(SOUND, pressure={})
    assert found(facts({}, silent), "machine/psi").severity == "info"
    without = replace(silent, missing={"pressure": "/proc/pressure/memory: not supported"})
    assert found(facts({}, without), "machine/psi").severity == "warning"
    assert rules(facts({"/a": cgroup(pressure="some avg10=0.00")}, without)) == []


def test_a_mount_without_recursive_protection_is_reported() -> None:
    assert rules(facts({}, replace(SOUND, mount=(PLAIN_V2,)))) == ["machine/recursive-protection"]


def test_a_controller_withheld_on_the_way_to_a_pod_is_found_where_it_is_withheld() -> None:
    node = recorded("systemd")
    above = "/kubepods.slice/kubepods-burstable.slice"
    files = node.cgroups[above] | {"cgroup.subtree_control": "cpu"}
    finding = found(replace(node, cgroups=node.cgroups | {above: files}), "tree/memory-controller")
    assert (finding.where, finding.severity) == (above, "error")


def test_what_a_container_withholds_from_its_own_children_is_its_own_affair() -> None:
    node = recorded("systemd")
    inner = next(path for path in node.cgroups if path.endswith(".scope")) + "/inner"
    changed = replace(node, cgroups=node.cgroups | {inner: {"cgroup.subtree_control": ""}})
    assert "tree/memory-controller" not in rules(changed)


def test_a_kernel_without_the_memory_controller_is_found() -> None:
    root = {"cgroup.controllers": "cpu", "cgroup.subtree_control": "cpu"}
    assert found(facts({"/": root}), "tree/memory-controller").severity == "error"


def test_a_driver_other_than_the_configured_one_is_found() -> None:
    node = facts({"/kubepods.slice": cgroup(current=0)})
    assert rules(replace(node, configured_driver="systemd")) == []
    finding = found(replace(node, configured_driver="cgroupfs"), "tree/driver")
    assert (finding.severity, finding.where) == ("warning", "/kubepods.slice")


def test_containers_outside_of_their_pods_show_that_runtime_and_kubelet_disagree() -> None:
    stray = "/kubepods-podabc.slice:cri-containerd:0123"
    finding = found(facts({stray: cgroup(current=0)}), "tree/driver")
    assert (finding.severity, finding.where) == ("error", stray)


@pytest.mark.parametrize(
    ("share", "severity"), [(0.5, None), (0.95, "warning"), (1.0, "error"), (1.5, "error")]
)
def test_memory_min_leaves_memory_to_reclaim(share: float, severity: str | None) -> None:
    half = int(share * 4096 * MI) // 2
    judged = judge_node(
        facts({"/a": cgroup(min=half, current=0), "/b": cgroup(min=half, current=0)})
    )
    assert [finding.severity for finding in judged] == ([severity] if severity else [])


def test_protection_is_lost_at_the_ancestor_that_claims_too_little() -> None:
    cgroups = {
        "/kubepods": cgroup(low=100 * MI, current=300 * MI),
        "/kubepods/burstable": cgroup(low=40 * MI, current=300 * MI),
        "/kubepods/burstable/pod": cgroup(low=100 * MI, current=300 * MI),
        "/kubepods/burstable/pod/app": cgroup(low=100 * MI, current=300 * MI),
    }
    finding = found(facts(cgroups, replace(SOUND, mount=(PLAIN_V2,))), "protection/lost-low")
    assert (finding.severity, finding.where) == ("warning", "/kubepods/burstable")
    assert "60Mi in use are unprotected" in finding.what
    assert "/kubepods/burstable/pod/app claims 100Mi, loses 60Mi" in finding.evidence


def test_a_page_lost_in_division_is_not_worth_telling() -> None:
    cgroups = {
        "/kubepods": cgroup(low=100 * MI - 4096, current=300 * MI),
        "/kubepods/pod": cgroup(low=100 * MI, current=300 * MI),
    }
    assert rules(facts(cgroups)) == []


def test_hard_protection_for_those_who_never_asked_is_found() -> None:
    cgroups = {
        "/kubepods": cgroup(min=100 * MI, current=300 * MI),
        "/kubepods/besteffort": cgroup(current=300 * MI),
    }
    finding = found(facts(cgroups), "protection/unasked-min")
    assert finding.severity == "warning"
    assert "100Mi of memory.min" in finding.what
    assert finding.where == "/kubepods"
    assert finding.evidence == (
        "/kubepods/besteffort: 100Mi",
        "/kubepods claims 100Mi, 100Mi more than its children claim",
    )
    assert rules(facts(cgroups, replace(SOUND, mount=(PLAIN_V2,)))) == [
        "machine/recursive-protection"
    ]
    assert "lower memory.min of /kubepods to 0," in finding.fix
    cgroups["/kubepods"] = cgroup(min=0, current=300 * MI)
    assert rules(facts(cgroups)) == []


def idle_beside_busy(claim: int) -> dict[str, dict[str, str]]:
    """A Guaranteed pod that uses 20Mi, under an exact sum, beside one that claims nothing."""
    return {
        "/kubepods": cgroup(min=claim, current=320 * MI),
        "/kubepods/podidle": cgroup(min=claim, current=20 * MI),
        "/kubepods/besteffort": cgroup(current=300 * MI),
        "/kubepods/besteffort/podbusy": cgroup(current=300 * MI),
    }


def test_what_is_claimed_and_not_used_goes_to_others_under_exact_sums_too() -> None:
    finding = found(facts(idle_beside_busy(100 * MI)), "protection/unasked-min")
    assert finding.evidence == (
        "/kubepods/besteffort/podbusy: 80Mi",
        "/kubepods/podidle claims 100Mi, 80Mi of it unused",
    )
    assert finding.fix.startswith(
        "lower the memory requests of pods that request more than they use"
    )
    assert "/kubepods/podidle first" in finding.fix
    assert "the sum of what is claimed" not in finding.fix


@pytest.mark.parametrize("claim", [20 * MI, 0], ids=["requests what it uses", "reserves nothing"])
def test_the_advice_on_unused_claims_ends_the_finding(claim: int) -> None:
    assert rules(facts(idle_beside_busy(claim))) == []


def in_use(node: NodeFacts, amount: int) -> NodeFacts:
    """The node with so much in use by every cgroup without children."""
    above = {path.rpartition("/")[0] or "/" for path in node.cgroups}
    leaves = [path for path in node.cgroups if path not in above]
    used = {
        path: amount * sum(leaf == path or leaf.startswith(f"{path}/") for leaf in leaves)
        for path in node.cgroups
    }
    cgroups = {
        path: {**files, "memory.current": str(used[path])} for path, files in node.cgroups.items()
    }
    return replace(node, cgroups=cgroups)


def with_values(node: NodeFacts, values: dict[tuple[str, str], str]) -> NodeFacts:
    cgroups = {path: dict(files) for path, files in node.cgroups.items()}
    for (path, file), value in values.items():
        cgroups[path][file] = value
    return replace(node, cgroups=cgroups)


UNASKED = {"protection/unasked-min", "protection/unasked-low"}


def test_the_advice_on_what_a_kubelet_claims_above_pods_ends_the_finding() -> None:
    """With TieredReservation memory.min of kubepods covers Burstable requests: no pod claims it."""
    node = in_use(recorded("cgroupfs"), 30 * MI)
    finding = found(node, "protection/unasked-min")
    assert "/kubepods has the value that Kubernetes sets" in finding.fix
    assert "lower memory.min of /kubepods" not in finding.fix
    assert "use memoryReservationPolicy: None" in finding.fix
    none = recorded("cgroupfs", policy="None").planned
    assert none is not None
    changes = {(each.path, each.file): each.new for each in none.comparison.changes}
    assert not UNASKED & set(rules(with_values(replace(node, planned=none), changes)))


def with_exact_sums(node: NodeFacts) -> NodeFacts:
    """As memqos agent keeps what stands above the pods."""
    assert node.planned is not None
    claims = {
        path: PodReservations(int(files["memory.min"]), int(files["memory.low"]))
        for path, files in node.cgroups.items()
        if node.is_pod(path)
    }
    sums = {
        (each.path, file): str(setting.value)
        for each in level_cgroups(claims, node.planned.names)
        for file, setting in each.settings.items()
    }
    return with_values(node, sums)


def test_exact_sums_end_the_finding_once_requests_fit_what_is_used() -> None:
    node = with_exact_sums(in_use(recorded("cgroupfs", OFF), 30 * MI))
    assert "lower the memory requests" in found(node, "protection/unasked-min").fix
    fitting = {
        (path, file): str(min(int(files[file]), int(files["memory.current"])))
        for path, files in node.cgroups.items()
        for file in ("memory.min", "memory.low")
        if path.startswith("/kubepods/")
    }
    assert not UNASKED & set(rules(with_exact_sums(with_values(node, fitting))))


def test_what_sums_are_beyond_by_rounding_is_not_worth_telling() -> None:
    """A kubelet adds requests up; the kernel rounds each pod's down to pages."""
    cgroups = idle_beside_busy(20 * MI)
    cgroups["/kubepods"]["memory.min"] = str(20 * MI + 4096)
    assert rules(facts(cgroups)) == []


def test_idle_claims_elsewhere_are_not_blamed() -> None:
    cgroups = {
        **idle_beside_busy(100 * MI),
        "/other": cgroup(min=50 * MI, current=60 * MI),
        "/other/idle": cgroup(min=50 * MI, current=MI),
    }
    assert not [
        each for each in found(facts(cgroups), "protection/unasked-min").evidence if "other" in each
    ]


def test_what_is_reserved_for_the_system_is_for_all_within_it() -> None:
    cgroups = {
        "/system.slice": cgroup(min=100 * MI, current=300 * MI),
        "/system.slice/a.service": cgroup(current=300 * MI),
    }
    assert rules(facts(cgroups)) == ["protection/unasked-min"]
    planned = recorded("cgroupfs").planned
    assert planned is not None
    reserved = Cgroup("/system.slice", "reserved", {})
    tree = replace(planned.tree, cgroups={reserved.path: reserved})
    known = replace(facts(cgroups), planned=replace(planned, tree=tree))
    assert "protection/unasked-min" not in rules(known)


def test_containers_that_live_by_the_claim_of_their_pod_have_asked() -> None:
    pod = "/kubepods/burstable/pod0"
    cgroups = {
        "/kubepods": cgroup(low=100 * MI, current=300 * MI),
        "/kubepods/burstable": cgroup(low=100 * MI, current=300 * MI),
        pod: cgroup(low=100 * MI, current=100 * MI),
        f"{pod}/abc": cgroup(current=100 * MI),
        "/kubepods/burstable/pod1": cgroup(current=200 * MI),
    }
    node = facts(cgroups)
    assert rules(node) == ["protection/unasked-low"]
    planned = recorded("cgroupfs").planned
    assert planned is not None
    assert "protection/unasked-low" not in rules(replace(node, planned=planned))


def test_a_cgroup_that_vanished_while_being_read_does_not_hide_the_others() -> None:
    cgroups = {
        "/kubepods": cgroup(min=100 * MI, current=300 * MI),
        "/kubepods/gone": CONTROLLERS,
        "/kubepods/gone/inner": cgroup(current=MI),
        "/kubepods/besteffort": cgroup(current=300 * MI),
    }
    assert "protection/unasked-min" in rules(facts(cgroups))


def test_protection_is_not_guessed_where_usage_is_not_known() -> None:
    assert rules(facts({"/kubepods": cgroup(low=MI)})) == ["protection/unknown"]


def watched(
    later_events: int, full: int = 0, *, machine: Machine = SOUND, anon: int = 95 * MI
) -> NodeFacts:
    now = cgroup(
        high=100 * MI,
        current=100 * MI,
        events="low 0\nhigh 10",
        stat=f"anon {anon}\nfile 0",
        pressure="some avg10=0.00 total=0\nfull avg10=0.00 total=0",
    )
    then = {
        "memory.events": f"low 0\nhigh {later_events}",
        "memory.pressure": f"some avg10=0.00 total={full}\nfull avg10=0.00 total={full}",
    }
    return replace(facts({"/a": now}, machine), later=SecondReading(2.0, {"/a": then}))


NO_SWAP = replace(SOUND, meminfo="MemTotal: 4194304 kB\nSwapTotal: 0 kB\n")


def test_a_container_whose_high_events_grow_is_throttled_now() -> None:
    finding = found(watched(16, full=200_000), "throttling/now")
    assert finding.severity == "warning"
    assert "memory.events: high 16, 3.0 a second now" in finding.evidence
    assert "memory.pressure: some 10%, full 10% of the time" in finding.evidence


def test_a_container_that_was_throttled_once_is_not_throttled_now() -> None:
    assert rules(watched(10)) == []


def test_one_look_tells_only_that_a_container_was_throttled() -> None:
    finding = found(replace(watched(16), later=None), "throttling/before")
    assert finding.severity == "info"
    assert finding.evidence == ("/a: 10 high events",)


def test_a_container_that_cannot_get_below_its_memory_high_is_stuck() -> None:
    stuck = watched(2000, full=1_900_000, machine=NO_SWAP)
    assert found(stuck, "throttling/livelock").severity == "error"
    assert "throttling/now" not in rules(stuck)


@pytest.mark.parametrize(
    "free",
    [
        watched(2000, full=1_900_000),
        watched(2000, full=100_000, machine=NO_SWAP),
        watched(11, full=1_900_000, machine=NO_SWAP),
        watched(2000, full=1_900_000, machine=NO_SWAP, anon=10 * MI),
    ],
    ids=["swap", "hardly waiting", "few events", "page cache"],
)
def test_a_container_that_still_can_get_below_is_throttled_but_not_stuck(free: NodeFacts) -> None:
    assert "throttling/livelock" not in rules(free)
    assert "throttling/now" in rules(free)


def test_anonymous_memory_past_memory_high_without_swap_is_found_at_one_look() -> None:
    once = replace(watched(10, machine=NO_SWAP, anon=101 * MI), later=None)
    assert found(once, "throttling/unreclaimable").severity == "warning"


def test_values_of_a_feature_turned_off_are_stale() -> None:
    node = recorded("cgroupfs", OFF)
    finding = found(node, "tree/stale")
    assert finding.severity == "warning"
    assert finding.what.startswith("MemoryQoS is off, but ")
    set_there = sum(
        files[file] != default
        for path, files in node.cgroups.items()
        if path.startswith("/kubepods")
        for file, default in (("memory.min", "0"), ("memory.low", "0"), ("memory.high", "max"))
    )
    assert len(finding.evidence) == set_there


@pytest.mark.parametrize("name", ["systemd", "cgroupfs", "numa"])
def test_a_node_kept_by_a_real_kubelet_has_nothing_above_info(name: str) -> None:
    assert {finding.severity for finding in judge_node(recorded(name))} == {"info"}


def test_a_value_somebody_changed_is_reported() -> None:
    node = json.loads((NODES / "cgroupfs.json").read_bytes())
    node["cgroups"]["/kubepods/burstable"]["memory.low"] = "4096"
    observation = observe_snapshot(read_snapshot(json.dumps(node).encode(), "node"), "node")
    base, plan = recorded("cgroupfs"), plan_observation(observation, PlanOptions(release="1.38"))
    assert base.planned is not None
    changed = replace(base, planned=replace(base.planned, comparison=plan.comparison))
    assert (
        found(changed, "tree/differs")
        .evidence[0]
        .startswith("/kubepods/burstable: memory.low is 4096")
    )


def test_a_cgroup_no_pod_is_known_for_is_reported() -> None:
    node = recorded("cgroupfs")
    assert node.planned is not None
    left = "/kubepods/burstable/pod00000000-0000-0000-0000-000000000000"
    comparison = compare(
        node.planned.tree, node.cgroups | {left: cgroup()}, node.planned.names, 4096
    )
    changed = replace(node, planned=replace(node.planned, comparison=comparison))
    assert found(changed, "plan/unnamed").where == left


def test_what_a_node_without_pods_is_not_held_against_is_said() -> None:
    assert rules(replace(facts(), pods=0)) == ["plan/pods"]


def test_the_worst_comes_first() -> None:
    node = facts({}, replace(SOUND, pressure={}, kernel="5.4.0"))
    assert [finding.severity for finding in judge_node(node)] == ["error", "info"]


NRI = NriFacts(socket="/var/run/nri/nri.sock", mode=0o755, folder_mode=0o700, plugins=())


def nri_finding(nri: NriFacts | None, plugin: NriState | None = None, runtime: str = "") -> Finding:
    machine = replace(SOUND, runtime=runtime or SOUND.runtime)
    agent = AgentState(
        version="1", mode="enforce", release="1.38", policy="None", nri=plugin or NriState()
    )
    found = [
        each
        for each in judge_node(replace(facts(machine=machine), nri=nri, agent=agent))
        if each.rule == "machine/nri"
    ]
    assert len(found) == 1
    return found[0]


def test_how_nri_is_turned_on_is_told_for_each_runtime() -> None:
    off = NriFacts(socket=NRI.socket)
    assert "disable = false" in nri_finding(off).fix
    assert "enable_nri = true" in nri_finding(off, runtime="cri-o 1.28.0").fix
    too_old = replace(facts(machine=replace(SOUND, runtime="containerd 1.6.20")), nri=off)
    assert "machine/nri" not in {each.rule for each in judge_node(too_old)}
    assert nri_finding(off).severity == "info"
    plugin = NriState(mode="on", problem="/var/run/nri/nri.sock: No such file or directory")
    wanted = nri_finding(off, plugin, "docker 27.0.0")
    assert wanted.severity == "warning"
    assert "the agent: not connected: /var/run/nri/nri.sock: No such file" in wanted.evidence[-1]


def test_nri_that_nobody_uses_or_that_the_agent_cannot_use_is_shown() -> None:
    assert nri_finding(NRI).fix == "set nri: on in the agent's configuration"
    waiting = nri_finding(NRI, NriState(mode="on", problem="another memqos is connected"))
    assert "the agent: not connected: another memqos is connected" in waiting.evidence
    assert "plugins connected: none" in waiting.evidence
    assert (waiting.severity, waiting.fix.partition(",")[0]) == (
        "warning",
        "stop a second agent of this node",
    )
    connected = nri_finding(
        replace(NRI, plugins=("memqos (PID 8)", "other (PID 9)"), installed=("10-other",)),
        NriState(mode="on", runtime="containerd 2.1.9"),
    )
    assert connected.severity == "info"
    assert connected.evidence == (
        "containerd 1.7.1; socket 0755 in a folder 0700",
        "plugins connected: memqos (PID 8), other (PID 9)",
        "started by the runtime: 10-other",
        "the agent: connected",
    )


def test_an_agent_that_is_connected_elsewhere_shows_that_nri_is_on() -> None:
    connected = NriState(mode="on", runtime="containerd 2.1.9")
    found = nri_finding(NriFacts(socket=NRI.socket), connected)
    assert (found.severity, found.fix) == ("info", "none")
    assert "NRI is on, and the agent is a plugin" in found.what
    assert "the agent's nriSocket is another one" in found.evidence[0]
    assert found.evidence[-1] == "the agent: connected"


def test_an_nri_socket_that_anybody_may_connect_to_is_a_warning() -> None:
    assert nri_finding(replace(NRI, mode=0o777)).severity == "info"
    found = nri_finding(replace(NRI, mode=0o777, folder_mode=0o755))
    assert (found.severity, found.fix) == ("warning", "chmod 0700 /var/run/nri")


def test_a_plugin_that_sets_the_same_values_is_a_warning() -> None:
    contested = NriState(mode="on", runtime="containerd 2.1.9", contested=True)
    found = nri_finding(NRI, contested)
    assert found.severity == "warning"
    assert "another NRI plugin" in found.what


def test_swap_to_compressed_memory_is_reported() -> None:
    swaps = "Filename Type Size Used Priority\n/dev/zram0 partition 1048572 0 100\n"
    compressed = replace(SOUND, swaps=swaps)
    assert "/dev/zram0" in found(facts(machine=compressed), "machine/zram").evidence[0]
    on_disk = replace(SOUND, swaps=swaps.replace("zram0", "sda2"))
    assert "machine/zram" not in rules(facts(machine=on_disk))


@pytest.mark.parametrize(
    ("refaults", "stalled", "thrashes"), [(1000, 40, True), (100, 40, False), (1000, 2, False)]
)
def test_a_container_that_swaps_in_what_it_swapped_out_thrashes(
    refaults: int, stalled: int, thrashes: bool
) -> None:
    def look(count: int) -> dict[str, str]:
        pressure = (
            f"some avg10={stalled}.00 avg60=0.00 avg300=0.00 total=1\n"
            f"full avg10={stalled}.00 avg60=0.00 avg300=0.00 total=1\n"
        )
        return cgroup(stat=f"workingset_refault_anon {count}", pressure=pressure)

    first = facts({"/kubepods": cgroup(), "/kubepods/a": look(0)})
    later = SecondReading(3.0, {"/kubepods/a": look(refaults)})
    judged = replace(first, later=later)
    assert ("machine/thrashing" in rules(judged)) == thrashes


def test_what_daemons_use_is_recommended_with_a_quarter_on_top() -> None:
    cgroups = {
        "/": {},
        "/system.slice": cgroup(current=900 * MI),
        "/system.slice/kubelet.service": cgroup(current=300 * MI, stat=f"inactive_file {44 * MI}"),
        "/system.slice/sshd.service": cgroup(current=64 * MI),
        "/kubepods.slice": cgroup(current=4000 * MI),
        "/kubepods.slice/pod1": cgroup(current=4000 * MI),
    }
    kube, system = reserved_advice(cgroups, "/kubepods.slice", {"kubeReserved": 100 * MI})
    assert (kube.reservation, kube.configured, kube.recommended) == (
        "kubeReserved",
        100 * MI,
        320 * MI,
    )
    assert [each.path for each in system.slices] == ["/system.slice/sshd.service"]
    assert system.recommended == 128 * MI
