"""Faults in the middle of creations: none of those fails, and every container gets its values."""

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.vm.guest.agent import Agent
from tests.vm.guest.nri_node import (
    HIGH,
    LIMIT,
    NRI_DEADLINE,
    OWN,
    REQUEST,
    NriNode,
    OtherPlugin,
    values,
)
from tests.vm.guest.owner_node import number
from tests.vm.guest.support import MI

from memqos.host.grpc import GrpcError
from memqos.lab.vm.topology import Topology

MACHINES = {"forky": Topology(suite="forky", nodes=(1536,), init="systemd")}
CREATIONS = 20


@contextmanager
def slowed(process: subprocess.Popen[str]) -> Iterator[None]:
    """It goes on for a moment at a time, and answers late."""
    is_over = threading.Event()

    def slow_down() -> None:
        while not is_over.is_set():
            process.send_signal(signal.SIGSTOP)
            is_over.wait(0.4)
            process.send_signal(signal.SIGCONT)
            is_over.wait(0.1)

    thread = threading.Thread(target=slow_down)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NriNode]:
    made = NriNode(tmp_path_factory.mktemp("node"), "systemd")
    made.start()
    yield made
    made.stop()


def test_a_resize_has_values_of_the_new_limit_in_the_same_call(node: NriNode) -> None:
    pod = node.pod("resized")
    cgroup = node.run(pod)
    node.first_values(pod)
    eventually("the answer to the creation is counted", lambda: node.count_adjusted() >= 1)
    before, container = node.count_adjusted(), pod.containers["main"]
    larger = LIMIT + 32 * MI
    of_larger = (str(REQUEST), str((REQUEST + larger) // 2))
    # As the kubelet has it until it has resized the container: the spec is new, the status is not.
    resized = node.manifest("resized", limit=larger)
    [reported] = node.manifest("resized")["spec"]["containers"]
    resized["spec"]["nodeName"] = "guest"  # one without is not scheduled
    resized["status"] = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "main",
                "containerID": f"containerd://{container}",
                "resources": reported["resources"],
            }
        ],
    }
    node.tell(resized)
    node.tell(node.manifest("told-later"))
    node.wait_until_known("told-later")
    assert "resized" in node.known_pods()
    assert values(cgroup) == OWN
    node.containerd.update(container, memory_limit_in_bytes=larger)
    assert number(cgroup, "memory.max") == larger
    assert values(cgroup) == of_larger
    assert node.containerd.stored(container)[HIGH] == of_larger[1]
    eventually("the answer to the resize is counted", lambda: node.count_adjusted() > before)
    # The kubelet reports it later: until then nobody puts the old values back.
    node.reload()
    node.tell(node.manifest("told-last"))
    node.wait_until_known("told-last")
    assert values(cgroup) == of_larger


def test_no_creation_fails_whatever_becomes_of_the_agent_and_the_runtime(node: NriNode) -> None:
    names = [f"c{number}" for number in range(CREATIONS)]
    pod = node.pod("many", containers=names)
    assert node.agent is not None
    created: dict[str, Path] = {}

    def create(count: int) -> None:
        for name in names[len(created) : len(created) + count]:
            created[name] = pod.container(name, memory_limit_in_bytes=LIMIT)

    create(4)
    assert [values(each) for each in created.values()] == [OWN] * 4
    node.agent.send_signal(signal.SIGSTOP)  # it hangs: the runtime waits for it once
    create(4)
    node.agent.send_signal(signal.SIGCONT)
    create(2)
    eventually("the agent is connected again", lambda: node.nri()["runtime"])
    with slowed(node.agent):
        create(2)
    node.end(signal.SIGKILL)
    create(2)
    node.start()
    create(2)
    node.containerd.kill()
    node.containerd.start()
    create(CREATIONS - len(created))
    eventually(
        "every container has its values",
        lambda: all(values(each) == OWN for each in created.values()),
    )
    eventually("the agent is connected again", lambda: node.nri()["runtime"])


def test_of_two_agents_started_at_once_one_connects(node: NriNode, tmp_path: Path) -> None:
    node.end(signal.SIGTERM)
    with Agent(tmp_path, "systemd") as second:
        options = {"nri": "on", "nri_deadline": f"{NRI_DEADLINE}s"}
        starting = threading.Thread(
            target=lambda: second.start(mode="observe", **options), daemon=True
        )
        starting.start()
        Agent.start(node, **options)
        starting.join()
        both = (node, second)
        eventually(
            "one of them is connected, and the other says why it is not",
            lambda: sorted(_connection(each) for each in both) == ["connected", "waiting"],
        )
        pod = node.pod("beside-two")
        cgroup = node.run(pod)
        eventually("it has its values", lambda: values(cgroup) == OWN)
    eventually("the other one has gone", lambda: node.nri()["runtime"])


def _connection(agent: Agent) -> str:
    nri = agent.state()["nri"]
    if nri["runtime"]:
        return "connected"
    return "waiting" if "another memqos is connected" in (nri["problem"] or "") else "starting"


def test_a_killed_agent_leaves_a_journal_of_what_the_runtime_set(node: NriNode) -> None:
    """Nothing was written by the agent itself here, and it has no time to look."""
    pod = node.pod("killed")
    assert node.agent is not None
    cgroup = node.run(pod)
    node.end(signal.SIGKILL)
    assert node.first_values(pod) == OWN
    node.roll_back()
    assert values(cgroup) == ("0", "max")
    node.start()


def test_containers_that_cannot_start_take_no_values_from_others(node: NriNode) -> None:
    """Their removal reports a stop without a start, as a refused creation does."""
    for name in ("broken-1", "broken-2"):
        broken = node.pod(name)
        with pytest.raises(GrpcError, match="no such file"):
            broken.container("main", ("/none",), memory_limit_in_bytes=LIMIT)
        broken.remove()
    pod = node.pod("sound")
    node.run(pod)
    assert node.first_values(pod) == OWN
    assert not node.nri()["contested"]


def test_another_plugin_that_sets_memory_high_fails_two_creations_and_no_more(
    node: NriNode,
) -> None:
    other, pod = OtherPlugin(high=str(40 * MI)), node.pod("contested")
    for _ in range(2):
        with pytest.raises(GrpcError, match="both tried to set"):
            node.run(pod)
    cgroup = node.run(pod)
    assert node.first_values(pod) == ("0", str(40 * MI))
    eventually("the conflict is reported", lambda: node.nri()["contested"])
    eventually("the values are written after the start", lambda: values(cgroup) == OWN)
    other.close()
