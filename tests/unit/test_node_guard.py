"""The guard over a node: from files to the settings that replace the plan's."""

from memqos.agent.core.guard import GuardTuning
from memqos.agent.core.node_guard import NodeGuard, guard_sample_of
from memqos.plan.memory import ABOVE_REQUEST
from memqos.plan.setting import FileSettings, Setting
from memqos.plan.tree import Cgroup

MI = 1 << 20
PATH = "/kubepods/burstable/pod1/c"
PLANNED: FileSettings = {"memory.high": Setting(90 * MI, ABOVE_REQUEST)}


def container(settings: FileSettings = PLANNED) -> Cgroup:
    return Cgroup(PATH, "container", settings, "default/web", "app")


def files(
    events: int, stalled: int, *, anon: int = 89 * MI, high: str = str(90 * MI)
) -> dict[str, str]:
    return {
        "memory.current": str(90 * MI),
        "memory.events": f"low 0\nhigh {events + 7}\nmax 0\n",
        "memory.events.local": f"low 0\nhigh {events}\nmax 0\n",
        "memory.stat": f"anon {anon}\nfile 1000\nshmem 4096\n",
        "memory.pressure": (
            f"some avg10=0.00 avg60=0.00 avg300=0.00 total={stalled}\n"
            f"full avg10=0.00 avg60=0.00 avg300=0.00 total={stalled}\n"
        ),
        "memory.high": high,
        "memory.max": str(100 * MI),
        "memory.swap.max": "0",
        "memory.swap.current": "0",
    }


def widening(guard: NodeGuard) -> None:
    for second in range(0, 12, 2):
        guard.judge_container(container(), files(second * 100, second * 900_000), second, 0)


def test_a_sample_is_made_of_the_containers_own_events() -> None:
    found = guard_sample_of(files(5, 9), 1.5, swap_free=MI)
    assert found is not None
    assert (found.high_events, found.full, found.swap_room) == (5, 9, 0)
    assert found.unreclaimable == 89 * MI + 4096


def test_files_that_are_gone_or_cut_off_make_no_sample() -> None:
    assert guard_sample_of({}, 0, 0) is None
    assert guard_sample_of(files(1, 1) | {"memory.current": ""}, 0, 0) is None


def test_swap_counts_as_far_as_both_the_machine_and_the_container_have_it() -> None:
    may_swap = files(0, 0) | {"memory.swap.max": str(4 * MI), "memory.swap.current": str(MI)}
    rooms = [guard_sample_of(may_swap, 0, free) for free in (MI, 8 * MI)]
    assert [room and room.swap_room for room in rooms] == [MI, 3 * MI]


def test_a_stuck_container_gets_a_setting_that_says_so() -> None:
    guard = NodeGuard()
    widening(guard)
    assert guard.widened == {PATH: 1}
    applied = guard.apply_to(container()).settings["memory.high"]
    assert applied.value == 92 * MI + MI // 2
    assert applied.because.rule == "high/guard"


def test_a_container_that_is_fine_keeps_the_plans_setting() -> None:
    guard = NodeGuard()
    for second in range(0, 12, 2):
        assert guard.judge_container(container(), files(0, 0), second, 0) is None
    assert guard.apply_to(container()) == container()


def test_a_step_is_reported_with_what_was_there_before() -> None:
    guard = NodeGuard()
    moves = [
        guard.judge_container(container(), files(second * 100, second * 900_000), second, 0)
        for second in range(0, 12, 2)
    ]
    [move] = [move for move in moves if move is not None]
    assert (move.old, move.planned, move.decision.kind) == (90 * MI, 90 * MI, "widen")
    assert move.decision.signs is not None
    assert round(move.decision.signs.events) == 100


def test_a_new_plan_is_not_overruled_by_what_was_decided_about_the_old_one() -> None:
    guard = NodeGuard()
    widening(guard)
    other = container({"memory.high": Setting(95 * MI, ABOVE_REQUEST)})
    assert guard.apply_to(other) == other


def test_a_container_that_is_no_longer_throttled_is_no_longer_guarded() -> None:
    guard = NodeGuard()
    widening(guard)
    guard.judge_container(
        container({"memory.high": Setting("max", ABOVE_REQUEST)}), files(0, 0), 20, 0
    )
    assert guard.widened == {}


def test_cgroups_that_are_gone_are_forgotten() -> None:
    guard = NodeGuard()
    widening(guard)
    guard.keep_only([])
    assert guard.widened == {}
    assert guard.apply_to(container()) == container()


def test_anonymous_heavy_containers_are_excluded_only_where_asked_for() -> None:
    guard = NodeGuard(exclude_anonymous=True)
    guard.judge_container(container(), files(0, 0), 0, 0)
    assert guard.apply_to(container()).settings["memory.high"].value == "max"
    assert guard.apply_to(container()).settings["memory.high"].because.rule == "high/excluded"
    plain = NodeGuard(GuardTuning())
    plain.judge_container(container(), files(0, 0), 0, 0)
    assert plain.excluded == frozenset()


def test_an_excluded_container_stays_so_until_it_is_half_page_cache() -> None:
    guard = NodeGuard(exclude_anonymous=True)
    for anon, is_excluded in ((89, True), (45, True), (44, False), (60, False)):
        guard.judge_container(container(), files(0, 0, anon=anon * MI), 0, 0)
        assert (PATH in guard.excluded) is is_excluded, anon
