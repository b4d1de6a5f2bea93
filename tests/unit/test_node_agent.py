"""Plans and findings of a node on which memqos's own agent is at work, or has been."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.commands import ROOT, Done, memqos
from tests.eventually import PATIENCE, eventually
from tests.fakes.agent import LEVELS, MI, SteppedNode, a_pod, container_paths, pod_path, view_of
from tests.fakes.node import memory_folder
from tests.unit.test_node_guard import files as stuck

from memqos.agent.core.node_guard import NodeGuard
from memqos.agent.reconcile import build_reconciler
from memqos.agent.state import agent_state
from memqos.converge.node_plan import NodePlan, PlanOptions, plan_observation
from memqos.converge.observation import (
    ObservedNode,
    observe_live,
    observe_snapshot,
    values_in_journal,
    with_agent_plan,
)
from memqos.converge.undo import UndoEntry
from memqos.errors import InputError, Unreachable
from memqos.findings.facts import NodeFacts, PlanFacts
from memqos.findings.finding import Finding
from memqos.findings.node import judge_node
from memqos.host import agent_socket
from memqos.host.agent_socket import fetch_state
from memqos.host.machine import Roots, read_machine
from memqos.kube.selector import Selector
from memqos.manifests.agent_state import AgentState, read_agent_state
from memqos.manifests.snapshot import read_snapshot
from memqos.plan.names import cgroup_names
from memqos.plan.tree import Tree
from memqos.settings.facts import RawKubeletConfig

OFF = """
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
featureGates: {MemoryQoS: false}
"""
RESERVING = "systemReserved: {memory: 100Mi}\nsystemReservedCgroup: /system\n"
ENFORCED = "enforceNodeAllocatable: [pods, system-reserved]\n"
HIGH = "memory.high"


class GateOff(SteppedNode):
    """A kubelet that leaves memory alone, and an agent in its stead."""

    kubelet = OFF

    def __init__(self, folder: Path, *more: str, **options: Any) -> None:
        profile = {"gates": {"MemoryQoS": True}, "policy": "TieredReservation", "factor": 0.5}
        super().__init__(folder, *more, **{**profile, **options})


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


def state_of(bed: SteppedNode) -> AgentState:
    """What the agent answers on its socket."""
    state = agent_state(view_of(bed), bed.now)
    return read_agent_state(msgspec.json.encode(state), "the test")


def observed(bed: SteppedNode) -> ObservedNode:
    """The node as a command finds it, with the agent at work."""
    roots = Roots(
        cgroup=bed.kernel.root,
        **{name: str(bed.folder / name) for name in ("proc", "sys", "kubelet")},
    )
    machine = msgspec.structs.replace(read_machine(roots), kubelet="v1.38.0", layout="v2")
    files = ("memory.min", "memory.low", "memory.high", "memory.max", "cpuset.mems")
    found = observe_live(bed.pods, files, roots=roots, machine=machine)
    return msgspec.structs.replace(found, agent=state_of(bed))


def plans(bed: SteppedNode) -> tuple[NodePlan, NodePlan]:
    """The node held against the agent's plan, and against Kubernetes'."""
    node = observed(bed)
    return plan_observation(node, PlanOptions(agent=True)), plan_observation(node, PlanOptions())


def at_work(bed: SteppedNode) -> SteppedNode:
    """Pods of all kinds, and an agent that has set their values."""
    for manifest in (
        a_pod("u1"),
        a_pod("g1", 100, 100),
        a_pod("g2", 300, 300, priority=5),
        a_pod("b1", 0, 0),
        a_pod("system", 32, 64, namespace="kube-system", priority=2_000_001_000),
        a_pod("own", 64, 64, annotations={"memqos.io/reservation": "None"}),
        a_pod("later", 64, 128, annotations={"memqos.io/throttling-factor": "0.9"}),
        a_pod("canary", 64, 128, labels={"canary": "yes"}),
    ):
        bed.run_pod(manifest)
    bed.settle()
    return bed


@pytest.mark.parametrize(
    "profile",
    [
        {},
        {"select": Selector(not_namespaces=("kube-system",))},
        {"canary": Selector(labels="canary=yes")},
        {"placement": "pods"},
        {"placement": "margin"},
        {"min_share": 0.08},
        {"policy": "None"},
        {"factor": 0.8},
    ],
    ids=lambda profile: "=".join(map(str, *profile.items())) if profile else "plain",
)
def test_what_an_agent_keeps_is_converged_by_its_own_plan(
    folder: Path, profile: dict[str, Any]
) -> None:
    bed = at_work(GateOff(folder, RESERVING, ENFORCED, **profile))
    own, kubernetes = plans(bed)
    assert own.comparison.changes == ()
    assert own.managed
    assert kubernetes.comparison.changes
    assert kubernetes.managed == frozenset()


def test_the_profile_is_the_agents_own(folder: Path) -> None:
    """Who is not throttled, left out by the budget, or reserves nothing, as the agent says it."""
    bed = at_work(GateOff(folder, min_share=0.08))
    tree = plans(bed)[0].tree
    rules = {
        (path, file): setting.because.rule
        for path, each in tree.cgroups.items()
        for file, setting in each.settings.items()
    }
    (critical,) = container_paths(a_pod("system", 32, 64))
    assert rules[critical, HIGH] == "memqos/never-throttled"
    assert rules[pod_path(a_pod("g1", 100, 100)), "memory.min"] == "memqos/left-out"
    assert rules[pod_path(a_pod("own", 64, 64)), "memory.min"] == "memqos/opted-out"
    assert rules[LEVELS[0], "memory.min"] == "memqos/sum"


def test_a_step_of_the_guard_is_planned_and_not_undone(folder: Path) -> None:
    bed = GateOff(folder)
    guard = NodeGuard()
    bed.core = build_reconciler(bed.reader, bed.writer, bed.now, guard)
    pod = bed.run_pod(a_pod("u1", 64, 128))
    path = container_paths(pod)[0]
    bed.kernel.set(path, "memory.max", str(128 * MI))
    bed.settle()
    planned = bed.read(path, HIGH)
    (cgroup,) = bed.core.node_intent.cgroups_of(pod_path(pod))[1:]
    now = {"memory.current": planned, HIGH: planned, "memory.max": str(128 * MI)}
    for second in range(0, 12, 2):
        found = stuck(second * 100, second * 900_000, anon=int(planned) - MI) | now
        guard.judge_container(cgroup, found, second, 0)
    assert guard.widened == {path: 1}
    bed.core.resync(bed.now)
    bed.settle()
    assert int(bed.read(path, HIGH)) > int(planned)
    own, _ = plans(bed)
    assert own.comparison.changes == ()
    assert own.tree.cgroups[path].settings[HIGH].because.rule == "high/guard"


def test_pods_that_an_agent_does_not_keep_are_held_against_kubernetes_plan(folder: Path) -> None:
    bed = at_work(GateOff(folder, canary=Selector(labels="canary=yes")))
    (path,) = container_paths(a_pod("u1"))
    bed.kernel.set(path, HIGH, str(90 * MI))
    (change,) = plans(bed)[0].comparison.changes
    assert (change.path, change.file, change.new) == (path, HIGH, "max")
    assert change.setting.because.rule == "high/reset"


def test_a_value_that_others_changed_is_told_by_the_agents_rule(folder: Path) -> None:
    bed = at_work(GateOff(folder))
    bed.kernel.set(LEVELS[0], "memory.min", "0")
    (change,) = plans(bed)[0].comparison.changes
    assert (change.path, change.setting.because.rule) == (LEVELS[0], "memqos/sum")
    assert change.setting.because.steps == ("sum over 8 pods = 400Mi",)


def test_all_is_known_without_a_source_of_pods(folder: Path) -> None:
    bed = at_work(GateOff(folder))
    alone = msgspec.structs.replace(observed(bed), pods=())
    plan = plan_observation(alone, PlanOptions(agent=True))
    assert plan.comparison.changes == ()
    assert plan.comparison.orphans == ()


@pytest.mark.parametrize("change", [{"mode": "observe"}, {"doubt": "the release is a guess"}])
def test_one_that_does_not_write_keeps_nothing(folder: Path, change: dict[str, Any]) -> None:
    node = observed(at_work(GateOff(folder)))
    assert node.agent is not None
    agent = msgspec.structs.replace(node.agent, **change)
    plan = plan_observation(msgspec.structs.replace(node, agent=agent), PlanOptions(agent=True))
    assert plan.managed == frozenset()
    assert plan.comparison.changes


@pytest.mark.parametrize(
    ("path", "file", "value"),
    [
        ("/kubepods/../x", HIGH, "max"),
        ("/kubepods/pod\x1b[2J", HIGH, "max"),
        ("/kubepods/podx", "cgroup.kill", "1"),
        ("/kubepods/podx", HIGH, "1 && reboot"),
        ("/kubepods/podx", "cpuset.mems", "../0"),
    ],
)
def test_what_memqos_never_writes_is_not_believed(path: str, file: str, value: str) -> None:
    cgroup = {"path": path, "files": {file: {"desired": value, "rule": "r", "because": "b"}}}
    answer = {
        "version": "1",
        "mode": "enforce",
        "release": "1.38",
        "policy": "None",
        "pods": [{"pod": "default/x", "mode": "enforce", "cgroups": [cgroup]}],
    }
    agent = read_agent_state(json.dumps(answer).encode(), "socket")
    with pytest.raises(InputError, match="plans a value that memqos never writes"):
        with_agent_plan(Tree({}), agent)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b'{"mode": "enforce"}',
        b"\xff",
        b'{"version": "1", "mode": "enforce", "release": "1.38\\u001b[2J", "policy": "None"}',
    ],
)
def test_an_answer_that_is_none_of_an_agents_is_refused(answer: bytes) -> None:
    with pytest.raises(InputError, match="the agent's answer cannot be read"):
        read_agent_state(answer, "socket")


class TestTheJournal:
    PATH = "/kubepods/podx"

    def written(self, value: str, identity: int = 7) -> dict[str, tuple[str, ...]]:
        entry = UndoEntry(self.PATH, HIGH, 7, "max", ("100", "200"), "pod")
        return values_in_journal(
            {entry.key: entry}, {self.PATH: {HIGH: value}}, {self.PATH: identity}
        )

    @pytest.mark.parametrize("value", ["100\n", "200"])
    def test_tells_which_values_in_place_are_memqoss(self, value: str) -> None:
        assert self.written(value) == {self.PATH: (HIGH,)}

    @pytest.mark.parametrize("value", ["max", "300", ""])
    def test_claims_no_value_of_others(self, value: str) -> None:
        assert self.written(value) == {}

    def test_is_about_the_very_cgroup(self) -> None:
        assert self.written("200", identity=8) == {}


class TestTheSocket:
    @pytest.fixture
    def path(self, folder: Path) -> str:
        return str(folder / "state.sock")

    @contextlib.contextmanager
    def serving(
        self, path: str, answer: bytes | None, listen: Callable[[socket.socket], None] | None = None
    ) -> Iterator[None]:
        """Somebody who answers, or who only takes the question."""
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            (listen or socket.socket.listen)(server)
            done = threading.Event()

            def serve() -> None:
                with contextlib.suppress(OSError):
                    client, _ = server.accept()
                    with client:
                        client.recv(4096)
                        if answer is None:
                            done.wait(PATIENCE)
                        else:
                            client.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
            try:
                yield
            finally:
                done.set()
                with contextlib.suppress(OSError):
                    server.shutdown(socket.SHUT_RDWR)
                thread.join()

    def test_is_answered(self, path: str) -> None:
        with self.serving(path, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"):
            assert fetch_state(path) == b"{}"

    def test_where_none_is_there_is_no_agent(self, path: str) -> None:
        assert fetch_state(path) is None
        assert fetch_state(f"{path}/below") is None

    def test_that_a_killed_agent_left_behind_is_no_agent(self, path: str) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
        assert fetch_state(path) is None

    @pytest.mark.parametrize(
        ("answer", "why"),
        [
            (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "status 503"),
            (b"220 mail ESMTP\r\n", "not a response of an agent"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", "response is truncated"),
            (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5000, "larger than"),
            (b"", "not a response of an agent"),
        ],
    )
    def test_that_answers_something_else_is_not_believed(
        self, path: str, answer: bytes, why: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(agent_socket, "STATE_SIZE_LIMIT", 4096)
        with self.serving(path, answer), pytest.raises(Unreachable, match=why):
            fetch_state(path)

    def test_that_is_large_comes_whole(self, path: str) -> None:
        body = b"x" * (3 << 20)
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        with self.serving(path, head + body):
            assert fetch_state(path, PATIENCE) == body

    def test_that_stays_silent_holds_nobody_up(self, path: str) -> None:
        with self.serving(path, None), pytest.raises(Unreachable, match="not answer in time"):
            fetch_state(path, timeout=0.1)

    def test_of_another_user_is_not_asked(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            if os.geteuid() == 0:
                os.chown(path, 12345, -1)
            else:
                monkeypatch.setattr(os, "geteuid", lambda: 12345)
            with pytest.raises(Unreachable, match="not a socket of root"):
                fetch_state(path)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_that_another_user_answers_is_not_asked(self, path: str) -> None:
        def listen_as_another(server: socket.socket) -> None:
            os.seteuid(12345)
            try:
                server.listen()
            finally:
                os.seteuid(0)

        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
        with (
            self.serving(path, answer, listen_as_another),
            pytest.raises(Unreachable, match="served by user 12345"),
        ):
            fetch_state(path)

    @pytest.mark.parametrize("kind", ["file", "link"])
    def test_that_is_none_is_not_asked(self, path: str, kind: str) -> None:
        if kind == "file":
            Path(path).touch()
        else:
            Path(path).symlink_to("/run/systemd/notify")
        with pytest.raises(Unreachable, match="not a socket of root"):
            fetch_state(path)


class Node:
    """A copy of a node whose kubelet leaves memory alone, and a real agent beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "node"
        shutil.copytree(ROOT / "examples" / "tree", self.folder)
        self.kubelet = self.folder / "kubelet.yaml"
        self.kubelet.write_text(f"{OFF}cgroupDriver: cgroupfs\n")
        self.socket = str(self.folder / "state.sock")
        self.tree = ["--cgroup-root", str(self.folder / "cgroup")]
        self.journal = ["--journal", str(self.folder / "run")]
        self.pods = ["--pods", str(self.folder / "pods.yaml")]

    @contextlib.contextmanager
    def agent(self, mode: str = "enforce") -> Iterator[None]:
        """An agent at work, once it has looked at the node, and set all values if it does."""
        options = {
            "mode": mode,
            "kubelet": str(self.kubelet),
            "recorder-folder": str(self.folder / "records"),
            "listen": "127.0.0.1:0",
            "state-socket": self.socket,
            "release": "1.38",
            "gate": "MemoryQoS=true",
            "policy": "TieredReservation",
            "factor": "0.9",
        }
        command = [sys.executable, "-m", "memqos.cli.main", "agent", "--direct"]
        command += [*self.tree, *self.journal, *self.pods]
        command += [part for name, value in options.items() for part in (f"--{name}", value)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                eventually(
                    "the agent is at work, or has ended",
                    lambda: process.poll() is not None or self._is_at_work(mode),
                )
                assert process.poll() is None
                yield
            finally:
                process.terminate()

    def _is_at_work(self, mode: str) -> bool:
        answer = fetch_state(self.socket)
        state = {"pods": []} if answer is None else json.loads(answer)
        cgroups = [each for pod in state["pods"] for each in pod["cgroups"]]
        files = [file for each in cgroups for file in each["files"].values()]
        is_set = all(file["actual"] == file["desired"] for file in files)
        return bool(files) and state["converged"] and is_set if mode == "enforce" else bool(files)

    def run(self, command: str, *more: str) -> Done:
        places = ["--agent", self.socket, *self.journal]
        waits = ["--seconds", "0.1"] if command == "doctor" else []
        return memqos(command, *self.tree, *places, *waits, *more)

    def findings(self, *more: str) -> dict[str, dict[str, Any]]:
        data = self.run("doctor", *self.pods, "-o", "json", *more).data
        return {each["rule"]: each for each in data["findings"]}


@pytest.fixture
def node(folder: Path) -> Node:
    return Node(folder)


class TestCommands:
    def test_follow_the_agent_at_work(self, node: Node) -> None:
        with node.agent():
            plan = node.run("plan", *node.pods)
            data = node.run("plan", *node.pods, "-o", "json").data
            findings = node.findings()
        assert plan.code == 0, plan.err
        assert plan.out.splitlines()[1:] == [
            "MemoryQoS is off: the default of 1.36, and no kubelet configuration is known",
            "as planned by the agent on this node: enforce · Kubernetes 1.38 · policy "
            "TieredReservation · factor 0.9 · 2 of 2 pods",
            "",
            "converged: nothing to change",
        ]
        assert data["agent"]["followed"] is True
        assert data["agent"]["pods"] == ["shop/web", "shop/db"]
        assert not {"tree/stale", "tree/differs"} & findings.keys()
        assert not {rule for rule in findings if rule.startswith("agent/")}

    @pytest.mark.parametrize(
        "other", [["--no-agent"], ["--policy", "None"], ["--release", "1.38"], ["--factor", "0.7"]]
    )
    def test_show_kubernetes_plan_where_another_is_asked_for(
        self, node: Node, other: list[str]
    ) -> None:
        with node.agent():
            plan = node.run("plan", *node.pods, *other)
        assert plan.code == 2
        assert "as planned by the agent" not in plan.out
        assert "10 of these values are managed by the agent on this node" in plan.err

    def test_never_call_the_agents_values_stale(self, node: Node) -> None:
        """Which they are by the plan of a kubelet whose gate is known to be off."""
        known = ["--release", "1.38", "--kubelet", str(node.kubelet)]
        with node.agent():
            managed = node.findings(*known)
        left = node.findings(*known)
        assert "tree/stale" not in managed.keys() | left.keys()
        assert managed["agent/manages"]["severity"] == "info"
        assert len(managed["agent/manages"]["evidence"]) == 10
        assert left["agent/unmanaged"]["severity"] == "warning"
        assert len(left["agent/unmanaged"]["evidence"]) == 10
        assert "memqos rollback" in left["agent/unmanaged"]["fix"]
        assert "memqos apply" not in left["agent/unmanaged"]["fix"]

    def test_say_whose_values_a_plan_would_undo(self, node: Node) -> None:
        with node.agent():
            pass
        plan = node.run("plan", *node.pods)
        assert plan.code == 2
        assert (
            "note: 10 of these values were written by memqos, and no agent manages them: memqos "
            "rollback restores "
            "the previous values"
        ) in plan.err
        rolled = memqos("rollback", *node.tree, *node.journal, "--direct")
        assert rolled.code == 0, rolled.err
        assert node.run("plan", *node.pods).code == 0
        assert "agent/unmanaged" not in node.findings()

    def test_say_that_an_agent_only_observes(self, node: Node) -> None:
        with node.agent():
            pass
        with node.agent("observe"):
            plan = node.run("plan", *node.pods)
            found = node.findings()["agent/unmanaged"]
        assert "the agent on this node only observes" in plan.err
        assert "the agent on this node only observes" in found["what"]

    def test_save_the_plan_that_apply_writes(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("memqos.cli.node_plan.NodeOptions.overrides_plan", False)
        known = [*node.pods, "--release", "1.38", "--kubelet", str(node.kubelet)]
        with node.agent():
            shown = node.run("plan", *known)
            saved = node.run("plan", *known, "--out", str(node.folder / "saved"))
        assert shown.out.splitlines()[-1] == "converged: nothing to change"
        assert saved.out.splitlines()[-1] == "10 to reset"
        assert "10 of these values are managed by the agent" in saved.err

    def test_do_not_ask_the_machines_agent_about_a_copy(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def never(*_: object) -> None:
            raise AssertionError("it is asked")

        monkeypatch.setattr(agent_socket, "fetch_state", never)
        monkeypatch.setattr("memqos.converge.observation.read_journal", never)
        assert memqos("plan", *node.tree, *node.pods).code == 0

    def test_go_on_where_an_agent_does_not_answer(self, node: Node) -> None:
        Path(node.socket).touch()
        plan = node.run("plan", *node.pods)
        assert plan.code == 0
        assert "note: the state of the agent on this node is unknown: " in plan.err

    def test_read_all_of_it_from_a_snapshot(self, node: Node) -> None:
        file = str(node.folder / "node.json")
        with node.agent():
            taken = node.run("snapshot", *node.pods, "--out", file, "--without-records")
        assert taken.code == 0, taken.err
        plan = memqos("plan", "--snapshot", file)
        assert plan.code == 0, plan.err
        assert "as planned by the agent on this node: enforce" in plan.out
        other = memqos("plan", "--snapshot", file, "--no-agent")
        assert "10 of these values are managed by the agent on this node" in other.err
        data = json.loads(Path(file).read_text())
        del data["agent"]
        Path(file).write_text(json.dumps(data))
        gone = memqos("plan", "--snapshot", file)
        assert "10 of these values were written by memqos, and no agent manages them" in gone.err


def test_a_snapshot_without_a_word_of_an_agent_is_read_as_before() -> None:
    data = (ROOT / "tests" / "nodes" / "systemd.json").read_bytes()
    node = observe_snapshot(read_snapshot(data, "node"), "node")
    assert (node.agent, node.own_values) == (None, {})
    assert isinstance(node.configuration, RawKubeletConfig)


def findings(bed: SteppedNode) -> dict[str, Finding]:
    """What the doctor finds on a node whose kubelet has the gate off."""
    node = observed(bed)
    plan = plan_observation(node, PlanOptions(agent=True))
    names = cgroup_names(plan.config.driver, plan.config.cgroup_root)
    planned = PlanFacts(
        names=names,
        tree=plan.tree,
        comparison=plan.comparison,
        release=plan.settings.release,
        memory_qos=False,
        managed=plan.managed,
    )
    facts = NodeFacts(
        machine=node.machine,
        cgroups=node.cgroups,
        planned=planned,
        pods=len(node.pods),
        agent=node.agent,
    )
    found = {each.rule: each for each in judge_node(facts)}
    return {rule: found[rule] for rule in found if rule.startswith(("agent/", "tree/"))}


def test_what_an_agent_keeps_is_no_finding(folder: Path) -> None:
    assert findings(at_work(GateOff(folder))).keys() == {"tree/memory-controller"}


def test_what_an_agent_has_yet_to_set_is_reported_as_its_own(folder: Path) -> None:
    bed = at_work(GateOff(folder))
    bed.kernel.set(LEVELS[1], "memory.low", "0")
    found = findings(bed)
    assert found.keys() == {"tree/memory-controller", "agent/pending"}
    assert found["agent/pending"].severity == "info"
    assert found["agent/pending"].where == LEVELS[1]


def test_what_an_agent_no_longer_puts_back_is_a_warning(folder: Path) -> None:
    bed = at_work(GateOff(folder))
    for _ in range(6):
        bed.wait(10)
        bed.kernel.set(LEVELS[0], "memory.low", "4096")
        bed.wait(2)
    found = findings(bed)
    assert found.keys() == {"tree/memory-controller", "agent/left-alone"}
    assert found["agent/left-alone"].severity == "warning"
    assert found["agent/left-alone"].evidence == (f"{LEVELS[0]}: memory.low, cause: unknown",)
