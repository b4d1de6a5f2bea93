"""What is told of a container: each thing that happens, why, and what would have prevented it."""

import msgspec
import pytest

from memqos.draw.svg.timeline_data import timeline_of
from memqos.draw.text.render import render
from memqos.draw.text.story import story_data, story_text
from memqos.plan.memory import ABOVE_REQUEST, REQUEST_IS_LIMIT, SHARE_OF_LIMIT
from memqos.plan.setting import FileValue, Rule, Setting
from memqos.record.chapters import Chapter, Story
from memqos.record.format import (
    CountRecord,
    EvictionRecord,
    FlightRecord,
    GapRecord,
    GuardRecord,
    KillRecord,
    LevelRecord,
    LifeRecord,
    PressureRecord,
    ResizeRecord,
    Subject,
    ThrottleRecord,
    WriteRecord,
)
from memqos.record.recordings import Recording
from memqos.record.story import PlanLookup, story_of

MI = 1 << 20
GI = 1 << 30
POD = "/kubepods/pod1"
PATH = f"{POD}/app"
WEB = Subject(0, "shop", "web-1", "uid-1", "app", "Burstable")
SECOND = 1000


def story_from(*records: FlightRecord, node: tuple[FlightRecord, ...] = ()) -> Story:
    return story_of(Recording(WEB, records), Recording(Subject(0), node) if node else None)


def chapter(*records: FlightRecord, node: tuple[FlightRecord, ...] = ()) -> Chapter:
    (found,) = story_from(*records, node=node).chapters
    return found


def level(second: int, current: int, **more: int) -> LevelRecord:
    return LevelRecord(
        second * SECOND, current=current * MI, anon=current * MI, max=512 * MI, **more
    )


EPISODE = (
    level(0, 470, high=486 * MI),
    ThrottleRecord(
        10 * SECOND,
        since=5 * SECOND,
        is_over=False,
        events=100,
        full=600,
        high=486 * MI,
        anon=480 * MI,
        swap_room=0,
    ),
    ThrottleRecord(
        65 * SECOND,
        since=5 * SECOND,
        is_over=True,
        events=2_114,
        full=660,
        high=512 * MI,
        anon=MI,
        swap_room=0,
    ),
)


def test_an_episode_of_throttling_is_reported_with_how_it_began_and_all_it_came_to() -> None:
    found = chapter(*EPISODE)
    assert (found.kind, found.what) == ("throttled", "throttled for 1 min")
    assert found.evidence == (
        "2,114 high events; at worst nothing ran for 66 % of the time",
        "memory.high 486Mi of a limit of 512Mi; 480Mi anonymous, no swap: "
        "nothing was left to reclaim",
    )
    assert (found.rule, found.because) == (None, "the rule is not recorded")
    assert "  the rule is not recorded" in render(story_text(story_from(*EPISODE)))


def planned_as(value: FileValue, rule: Rule) -> PlanLookup:
    return {"app": {"memory.high": Setting(value, rule)}}.get


def test_a_rule_that_is_not_recorded_is_the_plans() -> None:
    recording = Recording(WEB, EPISODE)
    # The kernel rounds down to a page.
    for value in (486 * MI, 486 * MI + 4095):
        (found,) = story_of(recording, None, planned_as(value, SHARE_OF_LIMIT)).chapters
        assert (found.rule, found.because) == (SHARE_OF_LIMIT.id, SHARE_OF_LIMIT.text)
        assert len(found.evidence) == 2
    of_another = Recording(msgspec.structs.replace(WEB, container="proxy"), EPISODE)
    (found,) = story_of(of_another, None, planned_as(486 * MI, SHARE_OF_LIMIT)).chapters
    assert found.rule is None


@pytest.mark.parametrize(
    ("value", "rule", "plan"),
    [(450 * MI, SHARE_OF_LIMIT, "450Mi"), (None, REQUEST_IS_LIMIT, "max")],
)
def test_a_plan_of_another_value_is_quoted_with_that_doubt(
    value: FileValue, rule: Rule, plan: str
) -> None:
    (found,) = story_of(Recording(WEB, EPISODE), None, planned_as(value, rule)).chapters
    assert found.rule == rule.id
    assert found.evidence[-1] == (
        f"the plan is memory.high {plan}: the writer of the current value is not recorded"
    )


def test_a_rule_recorded_beats_the_plan_and_is_no_change_where_nothing_was_written() -> None:
    in_place = WriteRecord(10 * SECOND, "memory.high", "1", "1", ABOVE_REQUEST.id, "as it was")
    plan = planned_as(486 * MI, SHARE_OF_LIMIT)
    (found,) = story_of(Recording(WEB, (*EPISODE, in_place)), None, plan).chapters
    assert (found.kind, found.rule, found.because) == ("throttled", ABOVE_REQUEST.id, "as it was")


def test_a_rule_recorded_without_its_text_has_the_one_of_its_id() -> None:
    written = WriteRecord(0, "memory.high", "max", "1", ABOVE_REQUEST.id)
    found = [each for each in story_from(written, *EPISODE).chapters if each.kind == "throttled"]
    assert found[0].because == ABOVE_REQUEST.text


def test_an_episode_without_an_end_lasts_as_long_as_events_are_seen() -> None:
    found = chapter(*EPISODE[:2], level(125, 480, high_events=900))
    assert found.what == "throttled for 2 min, and still throttled when the records end"
    assert found.evidence[0].startswith("900 high events")


def test_the_rule_that_decided_is_the_one_that_was_recorded() -> None:
    written = WriteRecord(0, "memory.high", "max", "1", "high/share-of-limit", "from a share on")
    found = [each for each in story_from(written, *EPISODE).chapters if each.kind == "throttled"]
    assert (found[0].rule, found[0].because) == ("high/share-of-limit", "from a share on")


def test_the_guard_has_not_throttled_anybody() -> None:
    planned = WriteRecord(
        0, "memory.high", "max", str(486 * MI), "high/above-request", "from a share on"
    )
    step = GuardRecord(
        15 * SECOND, kind="widen", old=486 * MI, new=492 * MI, step=1, steps=4, events=80, full=660
    )
    widened = WriteRecord(
        16 * SECOND, "memory.high", str(486 * MI), str(492 * MI), "high/guard", ""
    )
    found = {each.kind: each for each in story_from(planned, *EPISODE, step, widened).chapters}
    assert found["throttled"].rule == "high/above-request"


def test_the_last_step_back_to_the_plan_is_told_once() -> None:
    back = GuardRecord(15 * SECOND, kind="narrow", old=492 * MI, new=486 * MI, step=0, steps=4)
    written = WriteRecord(
        16 * SECOND, "memory.high", str(492 * MI), str(486 * MI), "high/above-request"
    )
    elsewhen = WriteRecord(999 * SECOND, "memory.high", "max", str(486 * MI), "high/above-request")
    kinds = [
        (each.at // SECOND, each.kind) for each in story_from(back, written, elsewhen).chapters
    ]
    assert kinds == [(15, "guarded"), (999, "changed")]


def test_who_was_stuck_is_reported_the_guard_unless_it_was_there() -> None:
    assert any("the guard" in remedy for remedy in chapter(*EPISODE).remedies)
    step = GuardRecord(
        15 * SECOND, kind="widen", old=486 * MI, new=492 * MI, step=1, steps=4, events=80, full=660
    )
    assert not any("the guard" in remedy for remedy in story_from(*EPISODE, step).remedies)


def test_with_swap_left_or_page_cache_to_reclaim_nobody_is_said_to_be_stuck() -> None:
    spared = ThrottleRecord(
        10 * SECOND,
        since=5 * SECOND,
        is_over=True,
        events=9,
        full=10,
        high=486 * MI,
        anon=480 * MI,
        swap_room=300 * MI,
    )
    assert "nothing was left" not in chapter(level(0, 470), spared).evidence[1]
    cached = ThrottleRecord(
        10 * SECOND,
        since=5 * SECOND,
        is_over=True,
        events=9,
        full=10,
        high=486 * MI,
        anon=100 * MI,
        swap_room=0,
    )
    assert "nothing was left" not in chapter(level(0, 470), cached).evidence[1]


def test_steps_of_the_guard_in_one_direction_are_one_sentence() -> None:
    up = [
        GuardRecord(
            step * 5 * SECOND,
            kind="widen",
            old=(480 + step) * MI,
            new=(481 + step) * MI,
            step=step,
            steps=4,
            events=80,
            full=660,
        )
        for step in (1, 2, 3)
    ]
    down = GuardRecord(99 * SECOND, kind="narrow", old=484 * MI, new=483 * MI, step=2, steps=4)
    first, second = story_from(*up, down).chapters
    assert first.what == (
        "the guard raised memory.high from 481Mi to 484Mi, step 3 of 4, in 3 steps within 10 s"
    )
    assert second.what == "the guard lowered memory.high from 484Mi to 483Mi, step 2 of 4"


def test_the_ends_of_the_guards_way_have_names() -> None:
    up = GuardRecord(
        5 * SECOND, kind="widen", old=480 * MI, new=512 * MI, step=4, steps=4, events=80, full=660
    )
    down = GuardRecord(99 * SECOND, kind="narrow", old=488 * MI, new=480 * MI, step=0, steps=4)
    first, second = story_from(up, down).chapters
    assert first.what == "the guard raised memory.high from 480Mi to 512Mi = memory.max"
    assert second.what == "the guard lowered memory.high from 488Mi to 480Mi, as planned"


def test_of_several_episodes_the_worst_says_which_limit_is_enough() -> None:
    records: list[FlightRecord] = []
    for number, used in enumerate((480, 500, 490)):
        start = 1000 * number
        records += [
            level(start + 1, used, high=486 * MI),
            ThrottleRecord(
                (start + 9) * SECOND,
                since=start * SECOND,
                is_over=True,
                events=9,
                full=10,
                high=486 * MI,
                anon=0,
                swap_room=0,
            ),
        ]
    limits = [each for each in story_from(*records).remedies if "memory limit of about" in each]
    assert limits == [
        "a memory limit of about 580Mi: memory.high would have been above the 500Mi it used"
    ]


def test_what_a_rule_says_is_said_once() -> None:
    first = GuardRecord(
        5 * SECOND, kind="widen", old=480 * MI, new=512 * MI, step=4, steps=4, events=80, full=660
    )
    second = GuardRecord(99 * SECOND, kind="narrow", old=488 * MI, new=480 * MI, step=0, steps=4)
    lines = [
        line for line in render(story_text(story_from(first, second))) if "rule high/guard" in line
    ]
    assert [line == "  rule high/guard" for line in lines] == [False, True]


def kill(**more: object) -> KillRecord:
    given: dict[str, object] = {
        "comm": "java",
        "pid": 77,
        "constraint": "memcg",
        "oom_cgroup": PATH,
        "oom_score_adj": 985,
        "points": 140_000,
        "rank": 1,
        "candidates": 3,
        "usage": 512 * MI,
        "limit": 512 * MI,
        "anon": 500 * MI,
    }
    return KillRecord(100 * SECOND, **(given | more))  # type: ignore[arg-type]


APPEARED = LifeRecord(0, "appeared", PATH)


@pytest.mark.parametrize(
    ("cgroup", "whose"),
    [
        (PATH, "the container's memory limit"),
        (POD, "the memory limit of its pod"),
        ("/other", "the memory limit of /other"),
    ],
)
def test_a_kill_says_whose_limit_was_reached(cgroup: str, whose: str) -> None:
    found = chapter(APPEARED, kill(oom_cgroup=cgroup))
    assert found.what == f"OOM-killed by the kernel: java (pid 77), because {whose} was reached"


def test_a_kill_says_what_the_victim_counted_as_and_how_it_came_to_it() -> None:
    found = chapter(APPEARED, level(0, 100), level(90, 505), kill())
    assert found.evidence == (
        "number 1 of 3 OOM candidates, with a score of 140,000 pages, oom_score_adj 985",
        "512Mi were in use of 512Mi; the process had 500Mi of anonymous memory",
        "usage had grown from 100Mi to 505Mi in the 1 min 30 s before",
    )
    assert found.remedies == ("a memory limit above 512Mi, if it needs that much, or fix the leak",)


def gauges(**amounts: int) -> tuple[str, ...]:
    """The evidence about gauges of a kill with so many MiB of each kind."""
    given = {name: amount * MI for name, amount in amounts.items()}
    found = chapter(APPEARED, kill(**given))
    return tuple(line for line in found.evidence if "does not count" in line)


def test_a_kill_below_the_usual_gauges_says_what_they_leave_out() -> None:
    kinds = {"total_anon": 250, "total_file": 220, "total_shmem": 20, "total_kernel": 42}
    assert gauges(**kinds, inactive_file=100) == (
        "the working set, which kubectl top shows, was 412Mi: it does not count 100Mi of inactive "
        "page cache",
        "RSS was 250Mi: it does not count 200Mi of page cache, 20Mi of tmpfs, 42Mi of kernel "
        "memory, all of which counts towards the limit",
    )
    assert gauges(total_anon=510, total_file=1, total_shmem=0, total_kernel=1) == ()


def test_network_buffers_are_in_no_kind_and_count_towards_the_limit_all_the_same() -> None:
    kinds = {"total_anon": 400, "total_file": 0, "total_shmem": 0, "total_kernel": 2}
    assert gauges(**kinds, inactive_file=0) == (
        "RSS was 400Mi: it does not count 110Mi of other memory, such as network buffers, all of "
        "which counts towards the limit",
    )


def test_page_cache_that_its_own_protection_kept_from_being_reclaimed_is_blamed() -> None:
    full = LevelRecord(
        90 * SECOND, current=510 * MI, anon=200 * MI, file=300 * MI, min=512 * MI, max=512 * MI
    )
    found = chapter(APPEARED, full, kill(oom_cgroup=POD))
    assert found.rule == "min/protects-own-cache"
    assert "300Mi of page cache could not be reclaimed" in found.evidence[-1]
    assert "placement: pods" in found.remedies[0]
    counted = chapter(APPEARED, full, CountRecord(100 * SECOND, "oom_kill", 1))
    assert (counted.rule, counted.remedies) == (found.rule, found.remedies)


def test_a_kill_on_the_whole_node_is_reported_with_the_node() -> None:
    node = (PressureRecord(95 * SECOND, 40 * MI, 16 * GI, 400, 100),)
    found = chapter(kill(constraint="none", usage=None, limit=None), node=node)
    assert found.what.endswith("because the node was out of memory")
    assert found.evidence[-1] == (
        "the node had 40Mi of 16Gi available, tasks waited 40 % of the time"
    )


def test_a_kill_that_only_the_counters_tell_of_is_reported_once() -> None:
    found = chapter(level(0, 500), CountRecord(5 * SECOND, "oom_kill", 2))
    assert found.what == "OOM-killed by the kernel: 2 processes"
    assert "report was not read" in found.evidence[0]
    both = story_from(APPEARED, kill(), CountRecord(101 * SECOND, "oom_kill", 1))
    assert [each.kind for each in both.chapters] == ["killed"]


def test_a_reading_after_a_kill_is_no_evidence_of_it() -> None:
    later = level(9, 100, shmem=100 * MI)
    found = chapter(CountRecord(5 * SECOND, "oom_kill", 1), later)
    assert found.evidence == ("memory.events: oom_kill +1; the kernel's report was not read",)
    assert found.remedies == ("a memory limit above 512Mi, if it needs that much, or fix the leak",)


def test_an_eviction_quotes_the_kubelet() -> None:
    found = chapter(
        level(0, 400), EvictionRecord(5 * SECOND, "Evicted", "The node was low on memory")
    )
    assert found.evidence == ("The node was low on memory", "400Mi were in use, 400Mi anonymous")


def test_a_resize_says_what_has_changed_and_nothing_else() -> None:
    found = chapter(ResizeRecord(5, 256 * MI, 256 * MI, None, GI))
    assert found.what == "resized in place: limit none → 1Gi"


def test_values_set_by_others_are_reported_as_such() -> None:
    found = chapter(WriteRecord(5, "memory.high", "1048576", "max", by="daemon-reload"))
    assert found.what == "another writer (daemon-reload) set memory.high: 1Mi → max"


def test_a_gap_in_the_record_is_reported() -> None:
    found = chapter(GapRecord(65 * SECOND, 5 * SECOND, "No space left on device", 12))
    assert found.what == "no records could be written for 1 min: No space left on device"
    assert found.evidence == ("12 records lost, of this container or of others",)
    kept = chapter(GapRecord(65 * SECOND, 5 * SECOND, "No space left on device"))
    assert kept.evidence == ("the records were written afterwards",)


@pytest.mark.parametrize("lost", [0, 12])
def test_only_what_is_lost_is_drawn_as_a_gap(lost: int) -> None:
    records = (level(0, 1), GapRecord(65 * SECOND, 5 * SECOND, "No space left on device", lost))
    found = timeline_of(Recording(WEB, records), story_from(*records))
    assert [span.kind for span in found.episodes] == (["gap"] if lost else [])


def test_a_record_of_nothing_says_so() -> None:
    lines = list(render(story_text(story_from(level(0, 100), level(60, 100)))))
    assert lines == [
        "shop/web-1 app · Burstable",
        "recorded 1970-01-01 00:00:00 to 00:01:00 UTC, 2 records",
        "nothing happened",
    ]
    assert story_from().records == 0


def test_damage_is_noted() -> None:
    story = story_of(Recording(WEB, (level(0, 1),), damaged=7))
    assert story.notes == ("7 bytes of the record are damaged",)


def test_a_story_over_midnight_tells_the_date_with_every_time() -> None:
    late = 86_399 * SECOND
    story = story_from(
        LevelRecord(late, current=MI), EvictionRecord(late + 5 * SECOND, "Evicted", "")
    )
    assert "1970-01-02 00:00:04  evicted by the kubelet" in list(render(story_text(story)))


def test_data_has_times_that_scripts_can_read() -> None:
    data = story_data(story_from(*EPISODE))
    assert data["since"] == "1970-01-01T00:00:00.000Z"
    (found,) = data["chapters"]
    assert (found["at"], found["until"]) == ("1970-01-01T00:00:05.000Z", "1970-01-01T00:01:05.000Z")
    assert data["remedies"]
