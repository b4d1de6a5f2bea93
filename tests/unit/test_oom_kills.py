"""Out-of-memory kills: counted by container, and told to the owner of the pod."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.fakes.agent import SteppedNode, a_pod, container_paths, pod_path, view_of

from memqos.agent.core.report import Announcement
from memqos.agent.events import Announcer
from memqos.agent.flight_recorder import FlightRecorder
from memqos.agent.metrics import metric_families
from memqos.agent.oom_kills import OomKills, describe_kill
from memqos.agent.sampler import Sampler
from memqos.host.kmsg import KernelLog
from memqos.host.record_files import RecordWriter, read_recordings
from memqos.kernel.log import LogRecord
from memqos.kube.events import PodEvent, clauses
from memqos.record.format import CountRecord, KillRecord
from memqos.serve.exposition import exposition

MI = 1 << 20
KILL = KillRecord(
    1,
    comm="api-server",
    pid=7,
    constraint="memcg",
    oom_cgroup="/kubepods/podp/c",
    usage=512 * MI,
    limit=512 * MI,
    total_anon=300 * MI,
    total_file=180 * MI,
    total_shmem=100 * MI,
    total_kernel=32 * MI,
    inactive_file=60 * MI,
)
LOG = """\
{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=953
memory: usage 131072kB, limit 131072kB, failcnt 812
swap: usage 0kB, limit 0kB, failcnt 0
Memory cgroup stats for {path}:
anon 104857600
file 20971520
kernel 8388608
shmem 10485760
inactive_file 5242880
Tasks state (memory values in pages):
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg={path},\
task_memcg={path},task={comm},pid=4711,uid=0
Memory cgroup out of memory: Killed process 4711 ({comm}) total-vm:1kB, anon-rss:102400kB, \
file-rss:4kB, shmem-rss:0kB, UID:0 pgtables:8kB oom_score_adj:953
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SteppedNode]:
    node = SteppedNode(tmp_path)
    yield node
    node.crash()


def run_pod(node: SteppedNode, *containers: str) -> tuple[str, list[str]]:
    """A pod that runs: its path, and those of its containers."""
    pod = node.run_pod(a_pod("web", containers=containers))
    paths = [pod_path(pod), *container_paths(pod)]
    for path in paths:
        node.kernel.set(path, "memory.events", "oom_kill 0")
    node.settle()
    return paths[0], paths[1:]


def sampler_of(node: SteppedNode, log: KernelLog | None = None) -> Sampler:
    recorder = RecordWriter(str(node.folder / "records"))
    return Sampler(node.kernel, recorder=recorder, log=log, proc=str(node.folder / "proc"))


def look(node: SteppedNode, sampler: Sampler) -> list[str]:
    """One sample; what it has announced."""
    node.now += 5
    sampler.sample(node.core, node.now)
    return [each.what for each in node.core.report.take_announcements() if is_kill(each)]


def is_kill(announcement: Announcement) -> bool:
    return announcement.reason == "OOMKilled"


def play(sampler: Sampler, text: str) -> None:
    """Have the kernel log a text."""
    log = sampler.oom_kills.log
    assert log is not None
    lines = text.replace("\\\n", "").splitlines()
    queue = [[LogRecord(n, 5_000_000, line) for n, line in enumerate(lines, 1)]]
    log.records = lambda: iter(queue.pop() if queue else [])  # type: ignore[method-assign]


class TestByTheKernelsLog:
    @pytest.fixture
    def sampler(self, node: SteppedNode) -> Iterator[Sampler]:
        device = node.folder / "kmsg"
        device.write_text("")
        sampler = sampler_of(node, KernelLog(str(device)))
        yield sampler
        sampler.close()

    def test_a_kill_is_announced_with_victim_limit_and_kinds(
        self, node: SteppedNode, sampler: Sampler
    ) -> None:
        _, (path,) = run_pod(node, "api")
        look(node, sampler)
        play(sampler, LOG.format(comm="api-server", path=path))
        assert look(node, sampler) + look(node, sampler) == [
            "container api: api-server killed: the container's memory limit of 128Mi was reached "
            "with 100Mi anonymous, 10Mi page cache, 10Mi tmpfs, 8Mi kernel memory, working set "
            "123Mi"
        ]
        assert sampler.oom_kills.by_container == {("default", "web", "api"): 1}

    def test_a_name_that_a_process_chose_forges_nothing(
        self, node: SteppedNode, sampler: Sampler
    ) -> None:
        _, (path, _) = run_pod(node, "api", "proxy")
        play(sampler, LOG.format(comm="x; container proxy: \x1b[2J", path=path))
        (note,) = look(node, sampler) + look(node, sampler)
        assert [each.container for each in clauses("OOMKilled", note)] == ["api"]
        assert note.isprintable()

    def test_it_is_a_metric_by_pod_and_container(self, node: SteppedNode, sampler: Sampler) -> None:
        _, (path,) = run_pod(node, "api")
        play(sampler, LOG.format(comm="a", path=path))
        look(node, sampler)
        look(node, sampler)
        text = exposition(metric_families(view_of(node, sampler))).decode()
        labels = 'namespace="default",pod="web",container="api"'
        assert f"memqos_container_oom_kills_total{{{labels}}} 1" in text
        assert "memqos_oom_kills_total 1" in text

    def test_the_count_of_a_pod_that_is_gone_goes_with_it(
        self, node: SteppedNode, sampler: Sampler
    ) -> None:
        _, (path,) = run_pod(node, "api")
        play(sampler, LOG.format(comm="a", path=path))
        look(node, sampler)
        look(node, sampler)
        node.pods.manifests.clear()
        node.wait(120)
        look(node, sampler)
        assert sampler.oom_kills.by_container == {}
        assert sampler.oom_kills.count == 1


class TestByCounters:
    @pytest.fixture
    def sampler(self, node: SteppedNode) -> Iterator[Sampler]:
        sampler = sampler_of(node)
        yield sampler
        sampler.close()

    def test_a_kill_in_a_container_that_lives_on_is_announced(
        self, node: SteppedNode, sampler: Sampler
    ) -> None:
        pod, (first, second) = run_pod(node, "a", "b")
        for path in (first, second):
            node.kernel.set(path, "memory.current", str(60 * MI))
            node.kernel.set(path, "memory.stat", f"anon {50 * MI}\nfile {8 * MI}\nkernel {2 * MI}")
        look(node, sampler)
        node.kernel.set(pod, "memory.events", "oom_kill 2")
        node.kernel.set(second, "memory.events", "oom_kill 2")
        (note,) = look(node, sampler)
        assert note == (
            "container b: 2 processes killed: out of memory (no limit), last seen with 50Mi "
            "anonymous, 8Mi page cache, 0 tmpfs, 2Mi kernel memory"
        )
        assert sampler.oom_kills.by_container == {("default", "web", "b"): 2}

    def test_the_first_process_of_a_container_killed_as_a_whole_is_counted_once(
        self, node: SteppedNode, sampler: Sampler
    ) -> None:
        pod, (path,) = run_pod(node, "a")
        look(node, sampler)
        for cgroup in (pod, path):
            node.kernel.set(cgroup, "memory.events", "oom_kill 3\noom_group_kill 1")
        (note,) = look(node, sampler)
        assert note.startswith("container a: 2 processes killed")

    def test_a_kill_that_ended_its_container_is_counted_by_its_pod(
        self, node: SteppedNode, sampler: Sampler
    ) -> None:
        pod, (_, second) = run_pod(node, "a", "b")
        node.kernel.set(second, "memory.current", str(60 * MI))
        look(node, sampler)
        node.kernel.remove(second)
        node.kernel.set(pod, "memory.events", "oom_kill 1")
        (note,) = look(node, sampler)
        assert note.startswith("container b: 1 process killed: out of memory")
        sampler.close()
        (found,) = [
            each.records
            for each in read_recordings(str(node.folder / "records"))
            if each.who.container == "b"
        ]
        assert [each.count for each in found if isinstance(each, CountRecord)] == [1]

    def test_where_two_are_gone_it_is_the_pods(self, node: SteppedNode, sampler: Sampler) -> None:
        pod, containers = run_pod(node, "a", "b")
        look(node, sampler)
        for path in containers:
            node.kernel.remove(path)
        node.kernel.set(pod, "memory.events", "oom_kill 1")
        assert look(node, sampler) == ["1 process killed: out of memory"]
        assert sampler.oom_kills.by_container == {("default", "web", ""): 1}

    def test_what_was_counted_before_the_agents_start_is_no_news(
        self, node: SteppedNode, sampler: Sampler
    ) -> None:
        pod, (path,) = run_pod(node, "a")
        node.kernel.set(pod, "memory.events", "oom_kill 5")
        node.kernel.set(path, "memory.events", "oom_kill 5")
        assert look(node, sampler) == []
        node.kernel.set(pod, "memory.events", "oom_kill 6")
        node.kernel.set(path, "memory.events", "oom_kill 6")
        assert len(look(node, sampler)) == 1
        assert sampler.oom_kills.count == 1

    def test_a_pod_of_later_starts_at_nothing(self, node: SteppedNode, sampler: Sampler) -> None:
        look(node, sampler)
        pod, (path,) = run_pod(node, "a")
        node.kernel.set(pod, "memory.events", "oom_kill 1")
        node.kernel.set(path, "memory.events", "oom_kill 1")
        assert len(look(node, sampler)) == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, "the container's memory limit of 512Mi was reached"),
        ({"oom_cgroup": "/kubepods/podp"}, "the pod's memory limit of 512Mi was reached"),
        ({"oom_cgroup": "/kubepods"}, "the memory limit of /kubepods of 512Mi was reached"),
        ({"constraint": "none"}, "api-server killed: the node was out of memory"),
        ({"along": 2}, "api-server and 2 others killed"),
        ({"total_anon": None}, "was reached with 512Mi in use"),
    ],
)
def test_it_is_said_whose_limit_it_was(changed: dict[str, object], words: str) -> None:
    assert words in describe_kill(msgspec.structs.replace(KILL, **changed), "/kubepods/podp")


class Posts:
    """What would have been sent."""

    sent = dropped = 0

    def __init__(self) -> None:
        self.notes: list[PodEvent] = []

    def post(self, happening: PodEvent, ago: float = 0.0) -> None:
        self.notes.append(happening)

    def forget_pods_but(self, uids: set[str]) -> None: ...

    def complaint(self) -> None: ...

    def stop(self) -> None: ...


def test_kills_of_a_pod_within_seconds_are_one_event(node: SteppedNode) -> None:
    pod, (first, second) = run_pod(node, "a", "b")
    kills = OomKills(None, FlightRecorder(RecordWriter(str(node.folder / "records"))))
    kills.keep_only((pod, first, second), ())
    for path in (pod, first, second):
        node.kernel.set(path, "memory.events", f"oom_kill {2 if path == pod else 1}")
    intent = node.core.node_intent.by_path[pod]

    def read(path: str) -> str:
        return node.kernel.read(path, "memory.events") or ""

    node.core.report.take_announcements()
    kills.note_pod_events(intent, read, 1, node.core.report)
    posts = Posts()
    announcer = Announcer(posts)
    announcer.accept(node.core.report.take_announcements(), 0.0)
    announcer.accept([], 10.0)
    (event,) = posts.notes
    assert (event.reason, event.pod) == ("OOMKilled", "web")
    found = clauses(event.reason, event.note)
    assert [each.container for each in found] == ["a", "b"]
