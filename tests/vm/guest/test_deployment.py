"""The image, run as it is deployed: the DaemonSet's pod by its manifest."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.eventually import eventually
from tests.fakes.apiserver import FakeApiServer, fake_api_server
from tests.fakes.kubelet import TlsFiles
from tests.vm.guest.agent import get_page, metric
from tests.vm.guest.daemon_pod import NODE, Cluster, DaemonPod, Object
from tests.vm.guest.kubelet import HIGH, MIN, manifest
from tests.vm.guest.owner_node import Memqos, dropins, number, systemctl, text
from tests.vm.guest.processes import status_of, writable_mounts
from tests.vm.guest.runtime import Containerd, RunningPod
from tests.vm.guest.support import MI

from memqos.lab.vm.topology import Topology

MACHINES = {
    "systemd": Topology(
        nodes=(1280,), init="systemd", deployment=True, seconds_a_test=2000, seconds_in_all=5000
    )
}

DEPLOYMENT: Final = Path("/memqos/deployment")
REQUEST, LIMIT = 16 * MI, 48 * MI
TOKEN: Final = "a-token"
KUBELET: Final = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
memoryThrottlingFactor: 0.5
"""
PYTHON: Final = ("/usr/bin/python3.11", "-I")
ELSEWHERE: Final = (
    "/file",
    "/etc/file",
    "/tmp/file",
    "/usr/bin/file",
    "/run/file",
    "/var/lib/file",
    "/etc/memqos/memqos.yaml",
    "/var/lib/kubelet/config.yaml",
    "/proc/sys/vm/swappiness",
    "/proc/sysrq-trigger",
    "/sys/kernel/mm/transparent_hugepage/enabled",
)
KUBEPODS: Final = "/sys/fs/cgroup/kubepods.slice/memory.low"
OTHER_CGROUPS: Final = (
    "/sys/fs/cgroup/cgroup.subtree_control",
    "/sys/fs/cgroup/system.slice/memory.low",
    "/sys/fs/cgroup/system.slice/cgroup.kill",
)
TRY: Final = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    except OSError:
        continue
    print(path)
"""


class Node:
    """A node of a cluster with two pods, the first of the canary.

    Its kubelet is older than the policy that the shipped configuration asks for, so the rules of
    its own release hold: requests are reserved.
    """

    def __init__(self, containerd: Containerd, api: FakeApiServer, folder: Path) -> None:
        self.containerd = containerd
        self.api = api
        self.cluster = Cluster(api.url, DEPLOYMENT / "server.crt", TOKEN)
        self.memqos = Memqos(folder)
        self.pods = [RunningPod(containerd, f"u{each}", "Burstable") for each in range(2)]
        self.cgroups = [pod.container("main", memory_limit_in_bytes=LIMIT) for pod in self.pods]
        self.manifests = [manifest(pod, {"main": (REQUEST, LIMIT)}) for pod in self.pods]
        self.manifests[0]["metadata"]["labels"] = {"memqos.io/canary": "true"}
        api.stores["nodes"].put(
            {"metadata": {"name": NODE}, "status": {"nodeInfo": {"kubeletVersion": "v1.32.4"}}}
        )
        for each in self.manifests:
            each["spec"]["nodeName"] = NODE
            api.pods.put(each)
        self.agents = 0
        self.before = self.values()

    def values(self) -> dict[str, str | None]:
        """All that memqos could have changed, and what systemd was told of slices."""
        files = self.memqos.files(self.pods[0].names.kubepods)
        slices = {path: value for path, value in dropins().items() if ".slice.d" in path}
        found: dict[str, str | None] = {**files, **slices}
        return {path: value for path, value in found.items() if "-podagent" not in path}

    def agent(self, overlay: str, **environment: str) -> DaemonPod:
        """The DaemonSet's pod here; the environment is what kubectl set env would set."""
        objects: list[Object] = json.loads((DEPLOYMENT / f"{overlay}.json").read_text())
        self.agents += 1
        made = DaemonPod(self.containerd, objects, f"agent{self.agents}", self.cluster)
        made.declared["env"] += [{"name": k, "value": v} for k, v in environment.items()]
        made.start()
        self.api.pods.put(made.manifest())
        becomes_ready(made)
        return made

    def end(self, agent: DaemonPod) -> None:
        assert agent.stop() == 0, agent.log()
        agent.remove()
        self.api.pods.delete(agent.namespace, agent.name)

    def is_converged(self) -> bool:
        """The canary and all above it; the other pod is as it was."""
        canary, other = self.cgroups
        above = [number(each, MIN) for each in (canary, *canary.parents[:3])]
        highs = text(canary, HIGH), text(other, HIGH)
        return above == [REQUEST] * 4 and highs == (str((REQUEST + LIMIT) // 2), "max")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    config = Path("/var/lib/kubelet/config.yaml")
    config.parent.mkdir(parents=True)
    config.write_text(KUBELET)
    config.chmod(0o600)
    containerd = Containerd("systemd")
    containerd.take_in(DEPLOYMENT / "image.tar")
    with fake_api_server(TlsFiles(DEPLOYMENT / "server.crt", DEPLOYMENT / "server.key")) as api:
        api.tokens = {TOKEN}
        yield Node(containerd, api, tmp_path_factory.mktemp("node"))
    containerd.kill()


def becomes_ready(agent: DaemonPod) -> None:
    """By its own probes."""
    ports = {each["name"]: each["containerPort"] for each in agent.declared["ports"]}
    probes = [
        agent.declared[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")
    ]
    process = Path(f"/proc/{agent.pid}")

    def all_succeed() -> bool:
        assert process.exists(), agent.log()
        return all(get_page(probe["path"], ports[probe["port"]])[0] == 200 for probe in probes)

    eventually("all probes succeed", all_succeed)


def is_confined(agent: DaemonPod, tries: tuple[str, ...]) -> None:
    """It has what the manifest grants, and no more."""
    status = status_of(agent.pid)
    granted = agent.declared["securityContext"]["capabilities"]
    assert granted == {"drop": ["ALL"]}
    assert {status[f"Cap{each}"] for each in ("Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    declared = {
        mount["mountPath"]
        for mount in agent.declared["volumeMounts"]
        if not mount.get("readOnly", False)
    }
    assert writable_mounts(agent.pid) == declared
    said = agent.run(*PYTHON, "-c", TRY, *tries)
    assert (said.code, said.out, said.err) == (0, "", "")


def test_an_agent_that_observes_becomes_ready_and_cannot_write_anywhere(node: Node) -> None:
    agent = node.agent("observe")
    is_confined(agent, (*ELSEWHERE, KUBEPODS))
    assert metric('memqos_pending_changes{file="memory.high"}') == 2
    assert metric("memqos_converged") == 0
    assert node.values() == node.before
    assert "the kernel's log is not read: /dev/kmsg" in agent.log()
    node.end(agent)
    assert [path.name for path in Path("/run/memqos").iterdir()] == ["agent.lock"]


@pytest.mark.parametrize(
    ("overlay", "not_written"), [("enforce", ()), ("enforce-systemd", OTHER_CGROUPS)]
)
def test_one_that_enforces_writes_to_the_canary_alone_and_leaves_no_trace(
    node: Node, overlay: str, not_written: tuple[str, ...]
) -> None:
    agent = node.agent(overlay, MEMQOS_ROLLBACK_ON_EXIT="true")
    eventually("the canary is as planned", node.is_converged)
    eventually("nothing is left to write", lambda: metric("memqos_converged") == 1)
    is_confined(agent, (*ELSEWHERE, *not_written))
    assert text(agent.cgroup, HIGH) == text(agent.cgroup.parent, HIGH) == "max"
    events = text(agent.cgroup, "memory.events").splitlines()
    assert {"oom_kill 0", "oom_group_kill 0"} <= set(events)
    assert Path("/run/memqos/journal").stat().st_mode & 0o777 == 0o600
    assert list(Path("/var/lib/memqos/records").iterdir())
    refused = agent.run(*PYTHON, "-m", "memqos", "rollback")
    assert (refused.code, "is writing to this node" in refused.err) == (1, True)
    node.end(agent)
    assert node.values() == node.before


def test_with_the_owners_values_outlive_reload_runtime_and_agent(node: Node) -> None:
    agent = node.agent("owners")
    eventually("the canary is as planned", node.is_converged)
    systemctl("daemon-reload")
    assert node.is_converged()
    node.containerd.kill()
    node.containerd.start()
    canary = node.pods[0]
    node.containerd.update(canary.containers["main"], memory_limit_in_bytes=LIMIT + MI)
    node.containerd.update(canary.containers["main"], memory_limit_in_bytes=LIMIT)
    assert node.is_converged()
    said = agent.run(*PYTHON, "-c", _REACH)
    assert said.out.split() == ["True", "containerd"], said
    node.end(agent)
    assert node.is_converged()
    # One that is told to observe lets others write, and its pod may.
    agent = node.agent("owners", MEMQOS_MODE="observe")
    said = agent.run(*PYTHON, "-m", "memqos", "rollback")
    assert (said.code, said.out) == (
        0,
        "5 restored\n9 restored in systemd and the runtime\n",
    )
    node.end(agent)
    assert node.values() == node.before


_REACH: Final = """
from memqos.host.owner_discovery import discover_owners
found = discover_owners("/sys/fs/cgroup")
print(found.bus is not None, *found.sockets)
"""
