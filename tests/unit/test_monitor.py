"""A node at an instant: rows, rates, ranks, orders, playback and clusters."""

import threading
from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest
from tests.eventually import PATIENCE
from tests.fakes.busy_node import MI, BusyNode, agent_answering, container_path, state_of

from memqos.converge import refresher
from memqos.converge.cluster_nodes import ClusterNodes
from memqos.converge.live_node import RESYNC, SETTINGS, LiveNode
from memqos.converge.node_plan import PlanOptions
from memqos.converge.node_sources import PlaybackNode
from memqos.converge.observation import ObservedNode, load_kubelet_config, observe_live
from memqos.converge.observed_rows import OBSERVED_FILES
from memqos.converge.pod_sources import parse_pod_source
from memqos.draw.text.node_rows import bar_text, node_lines
from memqos.draw.text.row_detail import detail_lines
from memqos.errors import Unreachable
from memqos.host.kubelet import KubeletCredentials
from memqos.host.machine import Roots
from memqos.host.record_files import read_recordings
from memqos.kernel.machine import Machine
from memqos.manifests.agent_state import AgentReport, read_agent_report
from memqos.monitor.agent_rows import plan_of_report, rows_of_report
from memqos.monitor.cluster import cluster_instant
from memqos.monitor.instant import ContainerRow, NodeInstant, RowQuery, select_rows
from memqos.monitor.rows import RowNames, oom_ranks, row_of
from memqos.monitor.status import node_status, recent_actions
from memqos.record.recordings import Recording
from memqos.record.transfer import SentRecords

ALL = RowQuery()


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def live_node(node: BusyNode, clock: Clock) -> LiveNode:
    pods = parse_pod_source(str(node.pods_file), KubeletCredentials())
    machine = Machine(layout="v2", meminfo="MemTotal: 4194304 kB\n", page_size=4096)

    def observe() -> ObservedNode:
        return observe_live(
            pods,
            OBSERVED_FILES,
            roots=Roots(cgroup=str(node.root)),
            configuration=load_kubelet_config(str(node.kubelet_file)),
            machine=machine,
        )

    options = PlanOptions(release="1.36", agent=True)
    return LiveNode(
        observe(),
        pods,
        options,
        root=str(node.root),
        socket=node.socket,
        observe=observe,
        clock=clock,
    )


@pytest.fixture
def node(tmp_path: Path) -> BusyNode:
    return BusyNode(tmp_path, 3)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def row_at(instant: NodeInstant, path: str) -> ContainerRow:
    return next(row for row in instant.rows if row.path == path)


def test_a_row_a_container_with_its_plan(node: BusyNode, clock: Clock) -> None:
    instant = live_node(node, clock).read((), ALL)
    assert [row.name for row in instant.rows[:2]] == ["shop/web-0000 c0", "shop/web-0000 c1"]
    assert len(instant.rows) == 6
    row = instant.rows[0]
    assert (row.qos, row.current, row.high, row.max) == ("Burstable", MI, 236 * MI, 256 * MI)
    because = instant.planned[row.path]["memory.high"].because
    assert because.rule == "high/above-request"
    assert because.steps


def test_rates_are_since_the_last_reading(node: BusyNode, clock: Clock) -> None:
    source, path = live_node(node, clock), container_path(1)
    source.read((), ALL)
    clock.now += 2000
    node.write(path, "memory.events", "high 10\noom_kill 1")
    node.write(path, "memory.stat", "anon 5\nfile 6\nworkingset_refault_file 30")
    row = row_at(source.read({path}, ALL), path)
    assert (row.high_events, row.refaults, row.kills) == (5.0, 15.0, 1)
    assert row.is_throttled


def test_rows_off_the_screen_are_read_only_for_their_order(node: BusyNode, clock: Clock) -> None:
    source, path = live_node(node, clock), container_path(1)
    source.read((), ALL)
    clock.now += 1000
    node.write(path, "memory.current", 77 * MI)
    node.write(path, "memory.events", "high 10")
    row = row_at(source.read((), ALL), path)
    assert (row.current, row.high_total) == (77 * MI, 0)
    by_events = row_at(source.read((), RowQuery(sort="high")), path)
    assert by_events.high_events == 10.0


def test_a_removed_container_is_dropped_and_a_new_one_is_found(
    node: BusyNode, clock: Clock
) -> None:
    source, path = live_node(node, clock), container_path(2)
    source.read((), ALL)
    node.remove(path)
    clock.now += 1000
    assert len(source.read((), ALL).rows) == 5
    node.make(path, MI, limit=256)
    clock.now += RESYNC
    assert len(source.read((), ALL).rows) == 6


def test_a_kubelet_with_another_configuration_is_noticed(node: BusyNode, clock: Clock) -> None:
    source = live_node(node, clock)
    assert "MemoryQoS is on" in str(source.read((), ALL).enablement)
    high = source.read((), ALL).planned[container_path(1)]["memory.high"].value
    node.kubelet_file.write_text(
        "kind: KubeletConfiguration\ncgroupDriver: cgroupfs\nfeatureGates: {MemoryQoS: false}\n"
    )
    clock.now += SETTINGS
    instant = source.read((), ALL)
    assert "MemoryQoS is off" in str(instant.enablement)
    assert instant.planned[container_path(1)]["memory.high"].value != high
    node.kubelet_file.unlink()
    clock.now += SETTINGS
    instant = source.read((), ALL)
    assert "MemoryQoS is off" in str(instant.enablement)
    assert any("could not be read again" in note for note in instant.notes)


def test_the_agent_adds_its_guard_and_its_plan(node: BusyNode, clock: Clock) -> None:
    with agent_answering(node.socket, state_of()):
        instant = live_node(node, clock).read((), ALL)
    path = container_path(1)
    assert row_at(instant, path).guard_step == 2
    assert instant.planned[path]["memory.high"].because.steps == ("step 2 of 4",)
    assert instant.agent is not None
    assert instant.agent.converged


def test_an_agent_that_restarts_is_found_again(node: BusyNode, clock: Clock) -> None:
    source = live_node(node, clock)
    assert source.read((), ALL).agent is None
    for _ in range(2):
        clock.now += 3000
        with agent_answering(node.socket, state_of()):
            assert source.read((), ALL).agent is not None
        clock.now += 3000
        assert source.read((), ALL).agent is None


def test_who_would_be_killed_and_evicted_first(node: BusyNode, clock: Clock) -> None:
    rows = live_node(node, clock).read((), ALL).rows
    assert sorted(row.oom_rank or 0 for row in rows) == [1, 2, 3, 4, 5, 6]
    first = min(rows, key=lambda row: row.oom_rank or 0)
    assert first.pod == "shop/web-0002"  # all have one oom_score_adj, and it holds the most
    assert {row.pod: row.eviction_rank for row in rows} == {
        "shop/web-0002": 1,
        "shop/web-0001": 2,
        "shop/web-0000": 3,
    }


def test_without_processes_a_container_counts_as_one() -> None:
    rows = [
        ContainerRow(path="/a", pod="n/a", container="a", anon=10 * MI, oom_score_adj=0),
        ContainerRow(path="/b", pod="n/b", container="b", anon=1 * MI, oom_score_adj=1000),
    ]
    assert oom_ranks(rows, (), 1 << 30, 4096) == {"/b": 1, "/a": 2}


def test_a_cgroup_without_usage_is_no_row() -> None:
    assert row_of("/a", RowNames("n/a", "a"), {"memory.max": "max"}, 0) is None


ROWS = tuple(
    ContainerRow(path=f"/{name}", pod=f"shop/{name}", container="app", **fields)  # type: ignore[arg-type]
    for name, fields in {
        "a": {"current": 5, "max": 10, "qos": "Burstable", "oom_rank": 2},
        "b": {"current": 9, "max": 100, "qos": "Guaranteed", "oom_rank": 1, "kills": 1},
        "c": {"current": 1, "qos": "Burstable", "high_events": 3.0, "full": 4.0},
    }.items()
)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        (RowQuery(), "bac"),
        (RowQuery(reverse=True), "cab"),
        (RowQuery(sort="share"), "abc"),
        (RowQuery(sort="name"), "abc"),
        (RowQuery(sort="psi"), "cab"),
        (RowQuery(sort="high"), "cab"),
        (RowQuery(sort="oom"), "bac"),
        (RowQuery(text="class:burstable"), "ac"),
        (RowQuery(text="class:bur"), "ac"),
        (RowQuery(text="throttled"), "c"),
        (RowQuery(text="killed"), "b"),
        (RowQuery(text="SHOP/A"), "a"),
        (RowQuery(text="shop nothing"), ""),
    ],
)
def test_orders_and_filters(query: RowQuery, names: str) -> None:
    found = select_rows(NodeInstant(origin="", at=0, rows=ROWS), query)
    assert "".join(row.path[1:] for row in found) == names


class TestPlayback:
    """The records of examples/records: shop/api-1 is throttled at 10:12 and then killed."""

    MINUTE = 60_000

    @pytest.fixture
    def playback(self) -> PlaybackNode:
        recordings = list(read_recordings("examples/records"))
        return PlaybackNode(recordings, "records", clock=self._time)

    _now = 0.0

    def _time(self) -> float:
        return self._now

    def test_it_starts_at_the_first_record_and_goes_on_with_time(
        self, playback: PlaybackNode
    ) -> None:
        first = playback.read((), ALL)
        assert first.playback is not None
        assert first.at == first.playback.since
        self._now += 60
        assert playback.read((), ALL).at == first.at + self.MINUTE

    def test_speed_pause_and_seek(self, playback: PlaybackNode) -> None:
        start = playback.read((), ALL).at
        playback.change_speed(1)
        self._now += 10
        assert playback.read((), ALL).at == start + 20_000
        playback.toggle_pause()
        self._now += 100
        assert playback.read((), ALL).at == start + 20_000
        playback.seek(-5000)
        assert playback.read((), ALL).at == start + 15_000
        playback.seek(-(10**9))
        assert playback.read((), ALL).at == start

    def test_it_shows_throttling_the_guard_the_kill_and_the_reason(
        self, playback: PlaybackNode
    ) -> None:
        playback.seek(12 * self.MINUTE + 30_000)
        instant = playback.read((), ALL)
        row = next(row for row in instant.rows if row.container == "api")
        assert row.is_throttled
        assert row.guard_step > 0
        assert row.kills == 0
        assert instant.planned[row.path]["memory.low"].because.rule == "low/tiered"
        playback.seek(self.MINUTE)
        row = next(row for row in playback.read((), ALL).rows if row.container == "api")
        assert row.kills == 1
        assert not row.is_throttled


def test_what_was_done_in_the_last_hour() -> None:
    recordings = list(read_recordings("examples/records"))
    until = max(record.at for each in recordings for record in each.records)
    kinds = [action.kind for action in recent_actions(recordings, until)]
    assert "killed" in kinds
    assert "resized" in kinds
    assert recent_actions(recordings, until + 10 * 3_600_000) == []


def report(**more: object) -> bytes:
    import json

    return json.dumps(state_of(**more)).encode()  # type: ignore[arg-type]


def report_instant(
    report: AgentReport, at: int, origin: str, before: NodeInstant | None = None
) -> NodeInstant:
    """A node as its agent alone reports it."""
    earlier = {} if before is None else {row.path: row for row in before.rows}
    return NodeInstant(
        origin=origin,
        at=at,
        rows=tuple(rows_of_report(report, at, before=earlier)),
        planned=plan_of_report(report),
        agent=report,
    )


def test_a_report_alone_makes_rows_and_rates() -> None:
    first = report_instant(read_agent_report(report(), "a"), 100_000, "node")
    later = state_of()
    used = {"current": 10 * MI, "high": 90, "oomKill": 1, "some": 4, "full": 2}
    later["usage"] = {"age": 0.0, "cgroups": {container_path(1): used}}
    second = report_instant(
        read_agent_report(report(usage=later["usage"]), "a"), 109_000, "node", first
    )
    (row,) = second.rows
    assert (row.high_events, row.some, row.full) == (5.0, 20.0, 10.0)
    assert (row.high, row.guard_step) == (236 * MI, 2)


def test_a_bar_shows_no_share_where_there_is_nothing_to_share() -> None:
    """Of a cluster and of some records the node's memory is not known."""
    row = ContainerRow(path="/a", pod="shop/a", container="a", current=100 * MI)
    assert bar_text(row, 8, None) == "·······>"
    assert bar_text(row, 8, 400 * MI) == "██·····>"
    high = msgspec.structs.replace(row, high=400 * MI)
    assert bar_text(high, 8, None) == "██·····>"


def test_the_detail_does_not_invent_what_an_agent_does_not_report() -> None:
    instant = report_instant(read_agent_report(report(), "a"), 100_000, "node")
    lines = detail_lines(instant.rows[0], instant, 80)
    assert lines[1] == "in use 9Mi"


def test_a_reading_that_is_reported_again_later_is_not_a_time_without_events() -> None:
    used = {"current": 10 * MI, "high": 90, "some": 4, "full": 2}
    usage = {"age": 0.0, "cgroups": {container_path(1): used}}
    later = read_agent_report(report(usage=usage), "a")
    first = report_instant(read_agent_report(report(), "a"), 100_000, "node")
    second = report_instant(later, 109_000, "node", first)
    assert [row.high_events for row in second.rows] == [5.0]
    assert report_instant(later, 112_000, "node", second).rows == second.rows


def test_status_names_what_is_wrong() -> None:
    wrong = read_agent_report(
        report(
            converged=False,
            failing="the disk is full",
            drift=[
                {
                    "path": "/kubepods",
                    "file": "memory.high",
                    "held": "1",
                    "found": "max",
                    "cause": "somebody",
                    "age": 60,
                }
            ],
        ),
        "a",
    )
    status = node_status(report_instant(wrong, 0, "node"))
    assert not status.is_well
    assert any("the disk is full" in problem for problem in status.problems)
    assert any("was changed to max 1 min ago" in problem for problem in status.problems)
    assert node_status(report_instant(read_agent_report(report(), "a"), 0, "node")).is_well


def test_of_one_reading_it_is_not_known_who_is_throttled() -> None:
    one = report_instant(read_agent_report(report(), "a"), 100_000, "node")
    assert one.throttled is None
    assert "throttled" not in "".join(node_lines(one))
    (cluster,) = cluster_instant({"a": read_agent_report(report(), "a")}, 0, "prod").nodes
    assert cluster.throttled is None
    assert cluster.pressure is None
    two = report_instant(read_agent_report(report(), "a"), 110_000, "node", one)
    assert two.throttled == ()
    assert "0 throttled" in node_lines(two)[1]


class FakeEndpoints:
    def __init__(self, answers: dict[str, bytes | Exception]) -> None:
        self.answers = answers
        self.fault: Exception | None = None
        self.asked: list[str] = []

    def list_agents(self) -> list[str]:
        if self.fault is not None:
            raise self.fault
        return list(self.answers)

    def get_state(self, node: str) -> bytes:
        answer = self.answers[node]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def get_records(self, node: str, since: int) -> SentRecords:
        self.asked.append(node)
        return SentRecords(node=node)

    def get_pod_records(self, node: str, namespace: str, pod: str) -> SentRecords:
        recordings = tuple(read_recordings("examples/records"))
        return SentRecords(node=node, recordings=recordings)


def test_a_cluster_is_all_nodes_those_that_do_not_answer_too() -> None:
    agents = FakeEndpoints({"one": report(), "two": Unreachable("no route")})
    source = ClusterNodes(agents, "prod")
    instant = source.read((), ALL)
    assert [(row.node, row.pod) for row in instant.rows] == [("one", "shop/web-0001")]
    assert {node.name: node.mode for node in instant.nodes} == {"one": "enforce", "two": "unknown"}
    assert instant.notes == ("1 node not read",)
    assert source.recordings("shop/web-0001")
    assert source.recordings("shop/none") == ()


def test_a_cluster_that_cannot_be_read_again_is_not_shown_as_if_it_were() -> None:
    agents, clock = FakeEndpoints({"one": report()}), Clock()
    source = ClusterNodes(agents, "prod", clock)
    source.read((), ALL)
    agents.fault = Unreachable("no API server")
    for pause in (10_000, 1000):
        clock.now += pause
        with pytest.raises(Unreachable):
            source.read((), ALL)
    agents.fault = None
    assert source.read((), ALL).at == clock.now


def test_the_last_hour_of_a_cluster_is_read_no_more_often_than_its_nodes() -> None:
    agents, clock = FakeEndpoints({"one": report()}), Clock()
    source = ClusterNodes(agents, "prod", clock)
    source.read((), ALL)
    source.recordings()
    clock.now += 5000
    source.recordings()
    assert agents.asked == ["one"]
    clock.now += 5000
    source.recordings()
    assert agents.asked == ["one", "one"]


class CountedReadings:
    """A source whose instants are numbered."""

    def __init__(self) -> None:
        self.count = 0

    def read(self, visible: Collection[str], query: RowQuery) -> NodeInstant:
        self.count += 1
        return NodeInstant(origin="", at=self.count, rows=())

    def recordings(self, pod: str | None = None) -> list[Recording]:
        return []


def test_after_a_time_without_requests_a_new_reading_can_be_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refresher, "_ATTENTION", -1)  # every request is one after such a time
    found = refresher.Refresher(CountedReadings(), 3600)
    found.start()
    assert found.latest((), ALL).at == 1
    assert found.latest((), ALL, PATIENCE).at > 1
    found.stop()


class RequestedAfterTheWait(threading.Event):
    """Set right after the first wait, which has timed out."""

    waits = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.waits += 1
        assert self.waits <= 2, "the request was lost"
        found = super().wait(0)
        if self.waits == 1:
            self.set()
        return found


def test_a_request_that_comes_as_the_wait_for_one_ends_is_not_lost() -> None:
    source = CountedReadings()
    found = refresher.Refresher(source, 3600)
    found._asked_at -= 3600  # idle: it reads only when it is woken
    found._wake = RequestedAfterTheWait()
    found.on_read(found.stop)
    found._run()
    assert source.count == 2


def test_nodes_under_pressure_come_first() -> None:
    calm, pressed = read_agent_report(report(), "a"), state_of()
    used = {"current": 10 * MI, "high": 90, "some": 4, "full": 3}
    pressed["usage"] = {"age": 0.0, "cgroups": {container_path(1): used}}
    before = cluster_instant({"calm": calm, "worse": calm}, 0, "prod")
    later = read_agent_report(report(usage=pressed["usage"]), "a")
    found = cluster_instant({"calm": calm, "worse": later}, 10_000, "prod", before)
    assert [node.name for node in found.nodes] == ["worse", "calm"]
    assert found.nodes[0].throttled == 1
