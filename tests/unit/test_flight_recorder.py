"""What of a container's life is recorded, and what is not."""

from itertools import pairwise
from pathlib import Path

import pytest
from tests.builders import box, oom_reports, pod
from tests.unit.test_oom_report import OF_CGROUP, OF_MACHINE, POD, SCOPE, log

from memqos.agent.core.guard import GuardDecision, StallSigns
from memqos.agent.core.node_guard import GuardMove
from memqos.agent.flight_recorder import FlightRecorder
from memqos.host.histories import RecordedHistory
from memqos.host.record_files import RecordWriter, read_recordings
from memqos.plan.changes import Change
from memqos.plan.memory import ABOVE_REQUEST, SHARE_OF_LIMIT
from memqos.plan.setting import Setting
from memqos.record.format import (
    NODE_SUBJECT,
    CountRecord,
    EvictionRecord,
    FlightRecord,
    GuardRecord,
    KillRecord,
    LevelRecord,
    LifeRecord,
    PressureRecord,
    ResizeRecord,
    Subject,
    ThrottleRecord,
    WriteRecord,
    subject_of,
)
from memqos.record.readings import (
    MemoryReading,
    ReadingHistory,
    RecordingRate,
    kill_record,
    reading_of,
    records_since,
)

MI = 1 << 20
GI = 1 << 30
SECOND = 1000
WEB = Subject(0, "default", "pod", "uid-1", "c0", "Burstable")


def reading(
    second: int,
    current: int = 100,
    *,
    high: int | None = 180 * MI,
    full: int = 0,
    **events: int,
) -> MemoryReading:
    return MemoryReading(
        at=second * SECOND,
        current=current * MI,
        anon=current * MI,
        max=200 * MI,
        high=high,
        full=full,
        events={name.removesuffix("_events"): count for name, count in events.items()},
    )


def recorded(*readings: MemoryReading) -> list[FlightRecord]:
    memory, found = ReadingHistory(), list[FlightRecord]()
    for each in readings:
        memory, records = records_since(memory, each, RecordingRate())
        found += records
    return found


def levels(records: list[FlightRecord]) -> list[int]:
    return [record.at // SECOND for record in records if isinstance(record, LevelRecord)]


def test_a_container_that_does_nothing_leaves_a_level_every_five_minutes() -> None:
    assert levels(recorded(*[reading(second) for second in range(0, 700, 5)])) == [0, 300, 600]


def test_a_level_is_reported_when_usage_has_changed_by_a_twentieth_of_the_limit() -> None:
    grown = [reading(0, 100), reading(5, 109), reading(10, 110), reading(15, 111)]
    assert levels(recorded(*grown)) == [0, 10]


def test_a_value_that_changes_is_reported_at_once() -> None:
    assert levels(recorded(reading(0), reading(1, high=None))) == [0, 1]


def test_levels_are_reported_no_more_often_than_every_few_seconds() -> None:
    wild = [reading(second, 100 if second % 2 else 190) for second in range(60)]
    times = levels(recorded(*wild))
    assert all(later - earlier >= 5 for earlier, later in pairwise(times))


def test_an_episode_of_throttling_begins_at_once_and_ends_after_quiet() -> None:
    story = [
        reading(0),
        reading(5, 180, high_events=50, full=3_000_000),
        reading(10, 180, high_events=150, full=4_000_000),
        *[reading(second, 120, high_events=150, full=4_000_000) for second in range(15, 60, 5)],
    ]
    begun, ended = [record for record in recorded(*story) if isinstance(record, ThrottleRecord)]
    assert (begun.since, begun.is_over, begun.events, begun.full) == (0, False, 50, 600)
    assert (ended.at, ended.is_over, ended.events, ended.full) == (10 * SECOND, True, 150, 600)
    assert ended.high == 180 * MI


def test_before_a_kill_comes_how_it_was_just_before() -> None:
    records = recorded(reading(0, 100), reading(5, 104), reading(6, 10, oom_kill=1))
    assert [type(record) for record in records] == [
        LevelRecord,
        LevelRecord,
        CountRecord,
        LevelRecord,
    ]
    _, before, counted, after = records
    assert isinstance(before, LevelRecord)
    assert isinstance(after, LevelRecord)
    assert (before.at, before.current) == (5 * SECOND, 104 * MI)
    assert counted == CountRecord(6 * SECOND, "oom_kill", 1)
    assert after.current == 10 * MI


def test_the_limit_met_a_thousand_times_is_one_record() -> None:
    met = [reading(5 * number, 199, max_events=number * 999) for number in range(61)]
    found = [record for record in recorded(*met) if isinstance(record, CountRecord)]
    assert found == [CountRecord(300 * SECOND, "max", 60 * 999)]


def test_a_reading_tells_page_cache_from_shared_memory() -> None:
    files = {
        "memory.current": "1000000",
        "memory.stat": "anon 400000\nfile 500000\nshmem 100000\n",
        "memory.events": "high 9\noom_kill 1\n",
        "memory.events.local": "high 4\n",
        "memory.high": "max",
        "memory.max": "2000000",
        "memory.min": "4096",
    }
    found = reading_of(files, 7)
    assert found is not None
    assert (found.anon, found.file, found.min) == (500000, 400000, 4096)
    assert found.events == {"high": 4, "oom_kill": 1}
    assert (found.high, found.max) == (None, 2000000)
    assert reading_of({}, 7) is None


def test_a_kill_in_a_cgroup_is_ranked_among_its_own_tasks() -> None:
    [report] = oom_reports(log(OF_CGROUP))
    found = kill_record(report, 5, 16 * GI, 4096)
    assert (found.comm, found.pid, found.rank, found.candidates) == ("worker 1", 4711, 1, 3)
    assert found.constraint == "memcg"
    assert found.oom_cgroup == POD
    # 129,500 pages resident, 267 of page tables, and 953 thousandths of the limit.
    assert found.points == 129_500 + 267 + 953 * (131_072 // 1000)
    assert (found.usage, found.limit) == (512 * MI, 512 * MI)


def test_a_kill_on_the_whole_machine_is_ranked_by_all_its_memory() -> None:
    [report] = oom_reports(log(OF_MACHINE))
    found = kill_record(report, 5, 4 * GI, 4096)
    assert (found.rank, found.candidates, found.limit) == (1, 2, None)


# The recorder


@pytest.fixture
def recorder(tmp_path: Path) -> FlightRecorder:
    return FlightRecorder(RecordWriter(str(tmp_path / "records")))


def records_of(recorder: FlightRecorder, who: Subject = WEB) -> list[FlightRecord]:
    recorder.writer.flush()
    assert recorder.writer.fault is None
    found = [each for each in read_recordings(recorder.writer.folder) if each.who.key == who.key]
    return list(found[0].records) if found else []


FILES = {"memory.current": "1000", "memory.max": "2000"}


def test_a_container_is_recorded_from_its_cgroup_coming_to_its_going(
    recorder: FlightRecorder,
) -> None:
    recorder.record_sample(SCOPE, WEB, FILES, 1)
    recorder.keep_only([], 9)
    assert records_of(recorder) == [
        LifeRecord(1, "appeared", SCOPE),
        LevelRecord(1, current=1000, max=2000),
        LifeRecord(9, "vanished", SCOPE),
    ]


def test_cache_that_was_read_again_is_recorded_since_the_last_level() -> None:
    stat = "anon 5\nworkingset_refault_anon 9\nworkingset_refault_file {}\n"
    memory, levels = ReadingHistory(), []
    for minute, count in enumerate((100, 100, 107)):
        files = {"memory.current": "1000", "memory.stat": stat.format(count)}
        found = reading_of(files, minute * 600 * SECOND)
        assert found is not None
        memory, records = records_since(memory, found, RecordingRate())
        levels += [each.refaults for each in records if isinstance(each, LevelRecord)]
    assert levels == [0, 0, 7]


def test_recorded_refaults_and_pressure_are_a_history(recorder: FlightRecorder) -> None:
    levels = [LevelRecord(at * 60 * SECOND, current=GI, refaults=2) for at in range(10)]
    recorder.writer.add(WEB, *levels)
    recorder.writer.add(NODE_SUBJECT, PressureRecord(0, 50 * MI, GI), PressureRecord(60, GI, GI))
    recorder.writer.flush()
    batches = list(RecordedHistory(str(recorder.writer.folder)).batches())
    found = {each.quantity: each for each in batches}
    assert {each.name.text for each in batches} == {"default/pod/c0"}
    assert found["refaults"].values == [2.0 * count for count in range(1, 11)]
    assert found["pressure"].values == [1.0, 0.0]


def test_steps_of_the_guard_and_values_are_recorded_with_their_reasons(
    recorder: FlightRecorder,
) -> None:
    recorder.record_sample(SCOPE, WEB, FILES, 1)
    signs = StallSigns(5.0, 41.4, 0.66, 90 * MI)
    recorder.record_guard_move(
        GuardMove(SCOPE, GuardDecision("widen", 95 * MI, 1, signs), 90 * MI, 90 * MI), 4, 2
    )
    setting = Setting(90 * MI, ABOVE_REQUEST, (1, 2, "limit", 0.9, 4096))
    recorder.record_write(
        Change(
            path=SCOPE, file="memory.high", old="max", new="90", level="container", setting=setting
        ),
        3,
    )
    recorder.record_drift(SCOPE, "memory.high", "90", "max", "daemon-reload", 4)
    assert records_of(recorder)[2:] == [
        GuardRecord(
            2, kind="widen", old=90 * MI, new=95 * MI, step=1, steps=4, events=41, full=660
        ),
        WriteRecord(3, "memory.high", "max", "90", "high/above-request", ABOVE_REQUEST.text),
        WriteRecord(4, "memory.high", "90", "max", by="daemon-reload"),
    ]


def test_throttling_is_recorded_with_the_rule_of_the_value_in_place(
    recorder: FlightRecorder,
) -> None:
    def look(at: int, events: int, planned: int) -> None:
        files = FILES | {"memory.high": str(90 * MI), "memory.events": f"high {events}"}
        setting = Setting(planned, SHARE_OF_LIMIT)
        recorder.record_sample(SCOPE, WEB, files, at * SECOND, planned_high=setting)

    def rules() -> list[FlightRecord]:
        return [each for each in records_of(recorder) if isinstance(each, WriteRecord)]

    value, rule = str(90 * MI), (SHARE_OF_LIMIT.id, SHARE_OF_LIMIT.text)
    look(1, 0, 90 * MI)
    assert rules() == []
    # The kernel has rounded it down to a page.
    look(2, 5, 90 * MI + 1)
    look(3, 9, 90 * MI)
    assert rules() == [WriteRecord(2 * SECOND, "memory.high", value, value, *rule)]
    look(60, 9, 90 * MI)
    look(61, 12, 80 * MI)
    assert len(rules()) == 1


def test_a_kill_is_reported_the_container_whose_process_it_was(recorder: FlightRecorder) -> None:
    recorder.record_sample(SCOPE, WEB, FILES, 1)
    [report] = oom_reports(log(OF_CGROUP))
    kill = kill_record(report, 5, GI, 4096)
    assert recorder.record_kill(f"{SCOPE}/container", kill) == WEB
    assert isinstance(records_of(recorder)[-1], KillRecord)
    [other] = oom_reports(log(OF_MACHINE))
    kill = kill_record(other, 6, GI, 4096)
    assert recorder.record_kill(other.task_cgroup or "", kill) == NODE_SUBJECT
    assert isinstance(records_of(recorder, NODE_SUBJECT)[-1], KillRecord)


def test_an_eviction_is_reported_once_of_every_container(recorder: FlightRecorder) -> None:
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}
    evicted = pod([box(), box()], uid="uid-1", status=status)
    for at in (1, 2):
        recorder.record_pods([evicted], at)
    for name in ("c0", "c1"):
        found = records_of(recorder, subject_of(evicted, name))
        assert found == [EvictionRecord(1, "Evicted", "The node was low on memory")]


def test_a_resize_is_reported_when_it_is_in_force(recorder: FlightRecorder) -> None:
    def with_limit(limit: str) -> None:
        found = {"name": "c0", "resources": {"limits": {"memory": limit}}}
        running = pod([box(None, "900Mi")], uid="uid-1", status={"containerStatuses": [found]})
        recorder.record_pods([running], 5)

    with_limit("100Mi")
    with_limit("100Mi")
    assert records_of(recorder) == []
    with_limit("200Mi")
    assert records_of(recorder) == [ResizeRecord(5, None, None, 100 * MI, 200 * MI)]


def test_the_node_is_reported_every_minute_or_when_memory_goes(recorder: FlightRecorder) -> None:
    recorder.record_pressure(0, 8 * GI, 16 * GI, 0, 0)
    recorder.record_pressure(6_000, 8 * GI - MI, 16 * GI, 600_000, 0)
    recorder.record_pressure(12_000, 6 * GI, 16 * GI, 1_200_000, 600_000)
    recorder.record_pressure(71_000, 6 * GI, 16 * GI, 1_200_000, 600_000)
    recorder.record_pressure(72_000, 6 * GI, 16 * GI, 1_200_000, 600_000)
    assert records_of(recorder, NODE_SUBJECT) == [
        PressureRecord(12_000, 6 * GI, 16 * GI, 100, 50),
        PressureRecord(72_000, 6 * GI, 16 * GI, 0, 0),
    ]
