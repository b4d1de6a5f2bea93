"""What is deployed, run as it is deployed: the DaemonSet's pod by its manifest, the service."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.fakes.apiserver import FakeApiServer, fake_api_server
from tests.fakes.kubelet import Identity
from tests.vm.guest.daemon_pod import NODE, Cluster, DaemonPod, Object
from tests.vm.guest.kubelet import HIGH, LOW, manifest
from tests.vm.guest.owned import Memqos, dropins, number, systemctl, text
from tests.vm.guest.runtime import Containerd, RunningPod
from tests.vm.guest.support import MI, wait_until
from tests.vm.harness.topology import Topology

MACHINES = {"systemd": Topology(nodes=(1280,), init="systemd", deployment=True, seconds_a_test=400)}

DEPLOYMENT: Final = Path("/memqos/deployment")
UNIT: Final = Path("/memqos/deploy/systemd/memqos.service")
PORT: Final = 9177
REQUEST, LIMIT = 16 * MI, 48 * MI
TOKEN: Final = "a-token"
KUBELET: Final = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
memoryThrottlingFactor: 0.5
"""
PYTHON: Final = ("/usr/bin/python3.11", "-I")
OF_ANY_CONTAINER: Final = re.compile(r"/proc(/.*)?|/dev(/.*)?")
"""What the runtime mounts writable, however read-only the root is: none of it is the host's."""
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
TRY: Final = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    except OSError:
        continue
    print(path)
"""
SYSLOG: Final = 1 << 34
EXPOSURE: Final = 30
"""Tenths, as systemd-analyze counts: it is root's, and writes to cgroups."""


class Node:
    """A node of a cluster with two pods, the first of the canary."""

    def __init__(self, containerd: Containerd, api: FakeApiServer, folder: Path) -> None:
        self.containerd = containerd
        self.api = api
        self.cluster = Cluster(api.url, DEPLOYMENT / "server.crt", TOKEN)
        self.memqos = Memqos(folder)
        self.pods = [RunningPod(containerd, f"u{each}", "Burstable") for each in range(2)]
        self.cgroups = [pod.container("main", memory_limit_in_bytes=LIMIT) for pod in self.pods]
        self.manifests = [manifest(pod, {"main": (REQUEST, LIMIT)}) for pod in self.pods]
        self.manifests[0]["metadata"]["labels"] = {"memqos.io/canary": "true"}
        api.stores["nodes"].put({"metadata": {"name": NODE}})
        for told in self.manifests:
            told["spec"]["nodeName"] = NODE
            api.pods.put(told)
        self.agents = 0
        self.before = self.values()

    def values(self) -> dict[str, str | None]:
        """All that memqos could have changed, and what systemd was told of slices."""
        files = self.memqos.files(self.pods[0].names.kubepods)
        told = {path: value for path, value in dropins().items() if ".slice.d" in path}
        found: dict[str, str | None] = {**files, **told}
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

    def is_converged(self, pods: int = 1) -> bool:
        """So many of the pods, and all above them."""
        first, *rest = self.cgroups
        above = [number(each, LOW) for each in (first.parent.parent, first.parents[2])]
        written = [_own(each) == (REQUEST, str((REQUEST + LIMIT) // 2)) for each in (first, *rest)]
        return above == [pods * REQUEST] * 2 and written == [True] * pods + [False] * (2 - pods)


def _own(cgroup: Path) -> tuple[int, str]:
    return number(cgroup, LOW), text(cgroup, HIGH)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    config = Path("/var/lib/kubelet/config.yaml")
    config.parent.mkdir(parents=True)
    config.write_text(KUBELET)
    config.chmod(0o600)
    containerd = Containerd("systemd")
    containerd.take_in(DEPLOYMENT / "image.tar")
    with fake_api_server(Identity(DEPLOYMENT / "server.crt", DEPLOYMENT / "server.key")) as api:
        api.tokens = {TOKEN}
        yield Node(containerd, api, tmp_path_factory.mktemp("node"))
    containerd.kill()


def becomes_ready(agent: DaemonPod) -> None:
    """By its own probes."""
    ports = {each["name"]: each["containerPort"] for each in agent.declared["ports"]}
    probes = [
        agent.declared[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")
    ]
    assert {ports[probe["port"]] for probe in probes} == {PORT}

    process = Path(f"/proc/{agent.pid}")

    def all_succeed() -> bool:
        assert process.exists(), agent.log()
        return all(_asked(probe["path"])[0] == 200 for probe in probes)

    wait_until("all probes succeed", all_succeed)


def metric(name: str) -> float:
    _, page = _asked("/metrics")
    (found,) = re.findall(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    return float(found)


def _asked(path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, ""
    except OSError:
        return 0, ""


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def writable_mounts(pid: int) -> set[str]:
    """But for those that are no more than a container's own."""
    lines = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    writable = {line[4] for line in lines if "rw" in line[5].split(",")}
    return {path for path in writable if not OF_ANY_CONTAINER.fullmatch(path)}


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


def test_one_that_enforces_writes_to_the_canary_alone_and_leaves_no_trace(node: Node) -> None:
    agent = node.agent("enforce", MEMQOS_ROLLBACK_ON_EXIT="true")
    wait_until("the canary is as planned", node.is_converged)
    wait_until("nothing is left to write", lambda: metric("memqos_converged") == 1)
    is_confined(agent, ELSEWHERE)
    assert text(agent.cgroup, HIGH) == text(agent.cgroup.parent, HIGH) == "max"
    assert text(agent.cgroup, "memory.events").split()[-3:] == ["0", "oom_group_kill", "0"]
    assert Path("/run/memqos/journal").stat().st_mode & 0o777 == 0o600
    assert list(Path("/var/lib/memqos/records").iterdir())
    refused = agent.run(*PYTHON, "-m", "memqos", "rollback")
    assert (refused.code, "is writing to this node" in refused.err) == (1, True)
    node.end(agent)
    assert node.values() == node.before


def test_with_the_owners_values_outlive_reload_runtime_and_agent(node: Node) -> None:
    agent = node.agent("owners")
    wait_until("the canary is as planned", node.is_converged)
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
    assert (said.code, said.out) == (0, "5 put back\n")
    node.end(agent)
    assert node.values() == node.before


_REACH: Final = """
from memqos.host.reach import reach
found = reach("/sys/fs/cgroup")
print(found.bus is not None, *found.sockets)
"""


class TestAsAService:
    @pytest.fixture
    def unit(self, node: Node) -> Iterator[str]:
        """Installed as the documentation has it, but for the environment that memqos is in."""
        program = Path("/opt/memqos/bin/memqos")
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\nPYTHONPATH=/memqos/src exec python3 -m memqos "$@"\n')
        program.chmod(0o755)
        kill = Path("/usr/bin/kill")
        if not kill.exists():
            kill.symlink_to("busybox")
        pods = Path("/etc/memqos/pods")
        pods.mkdir(parents=True)
        for told in node.manifests:
            (pods / f"{told['metadata']['name']}.json").write_text(json.dumps(told))
        self.configure("enforce")
        shutil.copy(UNIT, "/etc/systemd/system")
        systemctl("daemon-reload")
        yield UNIT.name
        systemctl("stop", UNIT.name)

    def configure(self, mode: str) -> None:
        (Path("/etc/memqos") / "memqos.yaml").write_text(
            "apiVersion: memqos.io/v1alpha1\nkind: AgentConfiguration\n"
            f"mode: {mode}\nrelease: '1.38'\npolicy: TieredReservation\n"
        )

    def test_it_is_ready_when_systemd_says_so_and_confined(self, node: Node, unit: str) -> None:
        analysed("verify", unit)
        analysed("security", f"--threshold={EXPOSURE}", "--no-pager", unit)
        systemctl("start", unit)
        assert _asked("/healthz")[0] == 200
        wait_until("all are as planned", lambda: node.is_converged(2))
        assert any("podu0.slice.d" in path for path in dropins())
        shown = dict(line.partition("=")[::2] for line in systemctl("show", unit).splitlines())
        assert int(status_of(int(shown["MainPID"]))["CapBnd"], 16) == SYSLOG
        assert writable_mounts(int(shown["MainPID"])) == self.writable
        assert shown["WatchdogTimestamp"]
        # Reloading is over when the new configuration holds.
        self.configure("observe")
        systemctl("reload", unit)
        wait_until("it is reloaded", lambda: 'mode="observe"' in _asked("/metrics")[1])
        done = subprocess.run(
            ["/opt/memqos/bin/memqos", "rollback"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert node.values() == node.before
        systemctl("stop", unit)
        said = subprocess.run(
            ["journalctl", "-u", unit], capture_output=True, text=True, check=False
        )
        assert "stopped" in said.stdout
        assert "is not read" not in said.stdout

    writable: Final = {
        "/sys/fs/cgroup",
        "/run/systemd",
        "/run/memqos",
        "/var/lib/memqos",
        "/tmp",
        "/var/tmp",
    }


def analysed(*arguments: str) -> None:
    done = subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
