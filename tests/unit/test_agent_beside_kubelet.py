"""An agent beside a kubelet that keeps, zeroes and resizes as real ones were seen to do."""

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from tests.fakes.agent import KUBEPODS, LEVELS, MI, OWN, Delayed, a_pod, container_paths
from tests.fakes.beside_kubelet import ABOVE, STEP, NodeWithKubelet
from tests.fakes.crash import is_killed
from tests.fakes.kubelet_answers import NodeWithRealSources
from tests.fakes.node import memory_folder
from tests.fakes.scripted_kubelet import STARTING, TIERED, Settings

from memqos.agent.configuration import FightConfig
from memqos.agent.settings_source import KUBELET_PENDING
from memqos.converge.rollback import RollbackResult

MIN, LOW, HIGH = "memory.min", "memory.low", "memory.high"
OFF = Settings(gate=False)
NONE = Settings(policy="None")
STATIC = {"kubernetes.io/config.source": "file"}


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


def beside(folder: Path, settings: Settings = TIERED, **options: object) -> NodeWithKubelet:
    """A node with two pods that have run for a while."""
    bed = NodeWithKubelet(folder, settings, fight=FightConfig(times=2, minutes=10), **options)  # type: ignore[arg-type]
    bed.run_pod(a_pod("b1", 64, 128))
    bed.run_pod(a_pod("g1", 100, 100))
    bed.wait(130)
    bed.writes.clear()
    bed.longest_hole = 0.0
    return bed


def above(bed: NodeWithKubelet) -> list[float | str]:
    return [bed.mi(*file) for file in ABOVE]


class TestAKubeletThatKeepsTheLevels:
    def test_is_not_fought(self, folder: Path) -> None:
        bed = beside(folder)
        assert above(bed) == [164, 64, 0, 64]
        bed.wait(3600)
        assert bed.writes == []
        assert not bed.core.report.drifts
        assert not bed.core.pending

    def test_keeps_hard_reservations_too(self, folder: Path) -> None:
        bed = beside(folder, Settings(minor=34))
        assert above(bed) == [164, 0, 64, 0]
        bed.wait(3600)
        assert bed.writes == []

    def test_may_count_pods_that_the_agent_does_not_know(self, folder: Path) -> None:
        bed = beside(folder)
        bed.scripted.pods["unseen"] = a_pod("unseen", 200, 200)
        bed.wait(600)
        assert bed.mi(KUBEPODS, MIN) == 364
        assert bed.writes == []

    def test_may_count_fewer_pods_than_the_agent(self, folder: Path) -> None:
        bed = beside(folder)
        del bed.scripted.pods["g1"]
        bed.wait(600)
        assert bed.mi(KUBEPODS, MIN) == 64
        assert len(bed.writes) <= 1
        assert not bed.core.drift.fights.contested

    def test_lowers_its_sums_itself(self, folder: Path) -> None:
        bed = beside(folder)
        bed.end_pod(bed.pods.manifests["g1"])
        bed.wait(STEP)
        assert bed.mi(KUBEPODS, MIN) == 164
        bed.wait(60)
        assert bed.mi(KUBEPODS, MIN) == 64
        assert bed.writes == []

    def test_has_a_new_pod_protected_before_it_counts(self, folder: Path) -> None:
        bed = beside(folder)
        bed.run_pod(a_pod("g2", 50, 50))
        bed.wait(1)
        assert bed.mi(KUBEPODS, MIN) == 214


class TestARestart:
    @pytest.mark.parametrize("shows", [True, False])
    def test_opens_a_hole_that_is_closed_when_the_kubelet_answers(
        self, folder: Path, shows: bool
    ) -> None:
        bed = beside(folder, restart_visible=shows)
        for _ in range(5):
            bed.restart()
            bed.wait(STARTING - STEP)
            assert above(bed) == [0, 0, 0, 0]
            bed.wait(STEP + 2)
            assert above(bed) == [164, 64, 0, 64]
            bed.wait(200)
        assert bed.longest_hole <= 2
        assert not bed.core.drift.fights.contested

    def test_closes_the_hole_in_a_file_that_was_left_alone(self, folder: Path) -> None:
        bed = beside(folder, OFF, **OWN)
        for _ in range(3):
            bed.kernel.set(KUBEPODS, LOW, str(MI))
            bed.wait(1)
        assert (KUBEPODS, LOW) in bed.core.drift.fights.contested
        bed.restart()
        bed.wait(STARTING + 2)
        assert bed.mi(KUBEPODS, LOW) == 64

    @pytest.mark.parametrize("settings", [NONE, OFF], ids=["policy None", "gate off"])
    def test_that_turns_protection_off_is_the_administrators_wish(
        self, folder: Path, settings: Settings
    ) -> None:
        bed = beside(folder)
        bed.restart(settings)
        bed.wait(600)
        assert above(bed) == [0, 0, 0, 0]
        assert not [write for write in bed.writes if write[1] in LEVELS and write[3] != "0"]

    def test_that_nothing_shows_is_known_by_what_the_kubelet_writes(self, folder: Path) -> None:
        bed = beside(folder, NONE, restart_visible=False)
        bed.restart(TIERED)
        bed.wait(62)
        assert bed.core.planner.node_settings.settings.policy == "TieredReservation"

    def test_that_nothing_shows_is_asked_about_too(self, folder: Path) -> None:
        bed = beside(folder, OFF, restart_visible=False, **OWN)
        bed.restart(NONE)
        bed.wait(600)
        assert not [write for write in bed.writes if write[1] in LEVELS]
        assert above(bed) == [0, 0, 0, 0]

    def test_with_the_gate_off_is_noticed_before_a_level_is_raised_for_a_new_pod(
        self, folder: Path
    ) -> None:
        """Before 1.36 a kubelet with the gate off writes nothing when it starts."""
        bed = beside(folder, Settings(minor=34), restart_visible=False)
        bed.restart(Settings(minor=34, gate=False))
        bed.wait(STARTING + 10)
        bed.run_pod(a_pod("g2", 50, 50))
        bed.wait(130)
        assert not [write for write in bed.writes if write[1] in LEVELS and write[3] != "0"]

    def test_closes_the_hole_of_a_kubelet_that_counts_fewer_pods(self, folder: Path) -> None:
        bed = beside(folder)
        del bed.scripted.pods["g1"]
        bed.wait(130)
        bed.restart()
        bed.wait(STARTING + 2)
        assert bed.mi(KUBEPODS, MIN) == 164

    def test_with_policy_none_keeps_even_an_agent_of_its_own_mind_from_the_levels(
        self, folder: Path
    ) -> None:
        bed = beside(folder, **OWN)
        bed.restart(NONE)
        bed.wait(600)
        assert above(bed) == [0, 0, 0, 0]
        assert not bed.core.drift.fights.contested
        assert bed.log_events("reservations below it have no effect")

    def test_with_the_gate_off_leaves_the_levels_to_an_agent_of_its_own_mind(
        self, folder: Path
    ) -> None:
        bed = beside(folder, **OWN)
        bed.restart(OFF)
        bed.wait(STARTING + 2)
        assert above(bed) == [100, 64, 0, 64]
        bed.restart(TIERED)
        bed.wait(STARTING + 2)
        assert above(bed) == [164, 64, 0, 64]

    def test_as_a_newer_release_leaves_what_only_memqos_clears(self, folder: Path) -> None:
        bed = beside(folder, Settings(minor=34))
        bed.restart(Settings(minor=38))
        bed.wait(130)
        assert above(bed) == [164, 64, 0, 64]


class TestAResize:
    def test_that_takes_memory_high_is_repaired_at_once(self, folder: Path) -> None:
        bed = beside(folder, OFF, **OWN)
        resized = a_pod("b1", 64, 192)
        bed.resize(resized)
        bed.settle()
        (container,) = container_paths(resized)
        assert bed.mi(container, HIGH) == 128
        assert not bed.core.report.drifts

    def test_again_and_again_is_no_fight(self, folder: Path) -> None:
        bed = beside(folder, OFF, **OWN)
        for limit in range(130, 150):
            bed.resize(a_pod("b1", 64, limit))
            bed.wait(5)
        assert not bed.core.drift.fights.contested
        assert not bed.core.report.drifts


class TestPodsThatAreNeverThrottled:
    def test_are_not_where_memqos_decides(self, folder: Path) -> None:
        bed = beside(folder, OFF, **OWN)
        pod = bed.run_pod(a_pod("s1", 64, 128, annotations=STATIC))
        bed.wait(10)
        assert bed.mi(container_paths(pod)[0], HIGH) == "max"

    def test_keep_what_a_kubelet_gives_them(self, folder: Path) -> None:
        bed = beside(folder, factor=0.9)
        pod = bed.run_pod(a_pod("s1", 64, 128, annotations=STATIC))
        bed.wait(130)
        assert bed.mi(container_paths(pod)[0], HIGH) == 96


class TestRollback:
    def test_never_restores_a_hole(self, folder: Path) -> None:
        bed = beside(folder)
        bed.restart()
        bed.wait(STARTING + 2)
        assert bed.mi(KUBEPODS, MIN) == 164
        bed.roll_back()
        assert above(bed) == [164, 64, 0, 64]

    def test_never_restores_a_hole_that_was_there_when_the_agent_was_started(
        self, folder: Path
    ) -> None:
        bed = beside(folder)
        bed.crash()
        bed.restart()
        bed.start(release=None)
        bed.wait(STARTING + 2)
        assert above(bed) == [164, 64, 0, 64]
        bed.roll_back()
        assert above(bed) == [164, 64, 0, 64]

    def test_leaves_to_a_kubelet_what_it_keeps_since_its_gate_is_on(self, folder: Path) -> None:
        bed = beside(folder, OFF, **OWN)
        del bed.scripted.pods["b1"], bed.pods.manifests["b1"]
        bed.wait(70)
        assert bed.mi(KUBEPODS, MIN) == 100  # the same sum, by either
        bed.restart(TIERED)
        bed.wait(STARTING + 2)
        bed.roll_back()
        assert bed.mi(KUBEPODS, MIN) == 100


class TestWhatAKubeletTells:
    """The agent's own sources, with a Node that may lag behind and an endpoint that may fail."""

    @pytest.fixture
    def node(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> NodeWithRealSources:
        return self.made(NodeWithRealSources(folder, TIERED, monkeypatch))

    def made(self, bed: NodeWithRealSources) -> NodeWithRealSources:
        bed.run_pod(a_pod("b1", 64, 128))
        bed.run_pod(a_pod("g1", 100, 100))
        bed.wait(130)
        bed.writes.clear()
        return bed

    def raised(self, bed: NodeWithRealSources) -> list[tuple[str, str]]:
        return [
            (path, value) for _, path, _, value in bed.writes if path in LEVELS and value != "0"
        ]

    def test_is_no_confirmation_where_it_cannot_be_used(self, node: NodeWithRealSources) -> None:
        node.restart(NONE)
        node.configz = node.configz.replace("Factor: 0.5", "Factor: 7")
        node.wait(600)
        assert above(node) == [0, 0, 0, 0]
        assert self.raised(node) == []
        assert "cannot be used" in (node.core.planner.node_settings.doubt or "")

    def test_ends_no_agent_that_is_started_with_it(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = Settings.configuration.fget(TIERED).replace("Factor: 0.5", "Factor: 7")  # type: ignore[attr-defined]
        monkeypatch.setattr(Settings, "configuration", property(lambda _: broken))
        bed = self.made(NodeWithRealSources(folder, TIERED, monkeypatch))
        assert bed.core.planner.node_settings.doubt is not None
        assert bed.writes == []

    def test_is_doubted_while_the_node_names_another_version(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node = self.made(NodeWithRealSources(folder, Settings(minor=34), monkeypatch))
        node.node_lags = 30.0
        node.restart(NONE)
        node.wait(STARTING + 20)
        assert self.raised(node) == []
        node.wait(130)
        assert node.core.planner.node_settings.doubt is None
        assert above(node) == [0, 0, 0, 0]

    def test_holds_while_it_does_not_answer(self, node: NodeWithRealSources) -> None:
        node.manner = "is silent"
        node.wait(400)
        assert above(node) == [164, 64, 0, 64]
        node.restart()
        node.wait(100)
        assert above(node)[0] in (0, 164)
        assert self.raised(node) == []

    @pytest.mark.parametrize("shows", [True, False])
    def test_is_no_confirmation_where_it_was_asked_before_the_levels_were_zeroed(
        self, node: NodeWithRealSources, shows: bool
    ) -> None:
        node.restart_visible = shows
        node.asker.seconds = 10.5
        node.core.request_confirmation(node.now)
        node.wait(9.7)
        node.restart(NONE)
        node.wait(0.5)
        assert (node.core.drift.unconfirmed_since or 0.0) > node.dropped_at[KUBEPODS, MIN]
        # The answer, by which it reserves in tiers, comes before there is another question.
        assert node.asker.due_at < (node.core.schedule.confirm_at or 0.0)
        node.wait(600)
        assert self.raised(node) == []
        assert node.core.planner.node_settings.settings.policy == "None"

    def test_closes_a_hole_however_long_it_takes(self, node: NodeWithRealSources) -> None:
        node.asker.seconds = 10.0
        node.restart()
        node.wait(STARTING + 25)
        assert above(node) == [164, 64, 0, 64]
        sent = [at for at, _ in node.answered if at >= node.answers_at]
        # One request before the write and one after it, none while another is pending.
        assert sent == [sent[0], sent[0] + 10.0]

    def test_is_no_confirmation_where_an_agent_asked_when_it_was_started(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The kubelet is restarted before the agent's first pass has looked at anything."""
        monkeypatch.setattr(Delayed, "seconds", 2.5)
        node = NodeWithRealSources(folder, Settings(minor=34), monkeypatch)
        node.wait(10)
        node.crash()
        node.start(release=None)
        node.restart(OFF)
        node.run_pod(a_pod("b1", 64, 128))
        node.wait(130)
        assert self.raised(node) == []

    def test_may_be_outdated_and_what_follows_from_it_is_never_restored(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing shows this restart: a kubelet before 1.36 writes nothing when it starts."""
        node = NodeWithRealSources(folder, Settings(minor=34), monkeypatch)
        node.run_pod(a_pod("b1", 64, 128))
        node.wait(130)
        node.restart_visible = False
        node.asker.seconds = 2.5
        node.run_pod(a_pod("b2", 32, 128))
        node.wait(1)
        node.restart(Settings(minor=34, gate=False))
        node.wait(2)
        assert above(node) == [96, 0, 96, 0]
        node.wait(10)
        assert above(node) == [0, 0, 0, 0]
        node.roll_back()
        assert above(node) == [64, 0, 64, 0]

    def test_is_waited_for_once_before_anything_is_written(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # By its file the kubelet would reserve in tiers; it runs with something else.
        monkeypatch.setattr(Delayed, "seconds", 10.0)
        bed = NodeWithRealSources(folder, NONE, monkeypatch)
        bed.run_pod(a_pod("g1", 100, 100))
        bed.wait(9)
        assert bed.core.observed.pods
        doubts = [bed.core.planner.node_settings.doubt]
        assert bed.writes == []
        assert not bed.log_events("nothing is written")
        bed.wait(600)
        doubts.append(bed.core.planner.node_settings.doubt)
        assert doubts == [KUBELET_PENDING, None]
        assert self.raised(bed) == []
        assert not bed.log_events("has changed")

    def test_is_needed_beside_what_the_agent_is_configured_with(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bed = NodeWithRealSources(folder, TIERED, monkeypatch, **OWN)
        (folder / "kubelet" / "config.yaml").unlink()
        bed.manner = "refuses"
        bed.wait(400)
        assert bed.core.planner.node_settings.doubt is not None
        bed.manner = "answers"
        bed.wait(61)
        assert bed.core.planner.node_settings.doubt is None

    def test_is_about_the_release_that_is_stated_where_no_version_is_known(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As on k3s, with a token that may read /configz but not /metrics."""
        monkeypatch.setattr(NodeWithRealSources, "_node_version", lambda _node: None)
        bed = self.made(
            NodeWithRealSources(
                folder, TIERED, monkeypatch, release="1.38", fight=FightConfig(times=2, minutes=10)
            )
        )
        bed.wait(600)
        assert above(bed) == [164, 64, 0, 64]
        assert bed.writes == []
        assert not bed.core.drift.fights.contested


class TestRecordsOfWhatTheKubeletKeeps:
    def test_end_even_where_nothing_has_to_be_written(self, folder: Path) -> None:
        bed = beside(folder, OFF, **OWN)
        bed.end_pod(bed.pods.manifests["b1"])
        bed.wait(70)
        assert bed.mi(KUBEPODS, MIN) == 100
        bed.crash()
        bed.restart(TIERED)
        bed.wait_alone(70)
        assert bed.mi(KUBEPODS, MIN) == 100
        bed.start(release=None, **OWN)
        bed.wait(70)
        bed.roll_back()
        assert bed.mi(KUBEPODS, MIN) == 100

    def test_survive_an_agent_that_is_turned_to_observe_in_doubt(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bed = beside(folder, OFF, **OWN)
        (container,) = container_paths(a_pod("g1", 100, 100))
        assert bed.mi(container, MIN) == 100
        bed.reload(release="1.34", mode="observe")
        bed.wait(70)
        assert bed.mi(container, MIN) == 0


class TestAnAgentKilledBeforeTheKubeletConfirms:
    """It has raised the levels from 64 to 96 Mi in the kubelet's place."""

    @pytest.fixture(params=[True, False], ids=["kept", "restarted with the gate off"])
    def keeps(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param)

    @pytest.fixture
    def node(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool
    ) -> NodeWithRealSources:
        node = NodeWithRealSources(folder, Settings(minor=34), monkeypatch)
        node.run_pod(a_pod("b1", 64, 128))
        node.wait(130)
        # Nothing shows this restart: a kubelet before 1.36 writes nothing when it starts.
        node.restart_visible = False
        node.asker.seconds = 2.5
        node.run_pod(a_pod("b2", 32, 128))
        node.wait(1)
        if not keeps:
            node.restart(Settings(minor=34, gate=False))
        node.wait(2)
        assert above(node) == [96, 0, 96, 0]
        node.crash()
        return node

    def test_is_followed_by_one_that_settles_it(
        self, node: NodeWithRealSources, keeps: bool
    ) -> None:
        node.start(release=None)
        node.wait(10)
        assert above(node) == ([96, 0, 96, 0] if keeps else [0, 0, 0, 0])
        node.roll_back()
        assert above(node) == ([96, 0, 96, 0] if keeps else [64, 0, 64, 0])

    def test_is_followed_by_one_that_observes_and_settles_it(
        self, node: NodeWithRealSources, keeps: bool
    ) -> None:
        node.start(release=None)
        node.reload(mode="observe")
        node.wait(STEP)
        assert above(node) == [96, 0, 96, 0]
        node.wait(10)
        assert above(node) == ([96, 0, 96, 0] if keeps else [64, 0, 64, 0])
        assert not node.core.pending_restores

    def test_leaves_it_to_rollback_which_asks_the_kubelet(
        self, node: NodeWithRealSources, keeps: bool
    ) -> None:
        node.now += STARTING
        files = node.kept_files()
        assert files == ({(path, MIN) for path in LEVELS[:2]} if keeps else set())
        done = node.roll_back_without_agent(files)
        assert above(node) == ([96, 0, 96, 0] if keeps else [64, 0, 64, 0])
        assert {each.state for each in done.not_written} == ({"kubelet"} if keeps else set())
        assert node.roll_back_without_agent(None) == RollbackResult((), ())

    def test_leaves_it_to_a_person_where_no_kubelet_is_known(
        self, node: NodeWithRealSources
    ) -> None:
        for _ in range(2):
            done = node.roll_back_without_agent(None)
            assert [each.state for each in done.not_written] == ["unconfirmed"] * 2
            assert above(node) == [96, 0, 96, 0]
        node.roll_back_without_agent(None, force=True)
        assert above(node) == [64, 0, 64, 0]


@pytest.mark.parametrize("keeps", [True, False], ids=["kept", "restarted with the gate off"])
def test_an_agent_killed_at_any_moment_leaves_no_value_that_rollback_does_not_know(
    folder: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    """From before it raises the levels in the kubelet's place until it has settled that."""
    values = []
    for moment in count():
        (folder / str(moment)).mkdir()
        node = NodeWithRealSources(folder / str(moment), Settings(minor=34), monkeypatch)
        node.run_pod(a_pod("b1", 64, 128))
        node.wait(61)
        node.restart_visible = False
        node.asker.seconds = 2.5
        node.run_pod(a_pod("b2", 32, 128))
        node.wait(1)
        if not keeps:
            node.restart(Settings(minor=34, gate=False))
        before = above(node)
        is_over = not is_killed(partial(node.wait, 12), moment, "writer", node.kernel)
        node.now += 12
        node.crash()
        values.append(above(node))
        done = node.roll_back_without_agent(None)
        if not keeps:
            reported = [each.entry for each in done.not_written if each.state == "unconfirmed"]
            left = {
                file for file, value in zip(ABOVE, before, strict=True) if node.mi(*file) != value
            }
            assert left == {(entry.path, entry.file) for entry in reported}, moment
        node.roll_back_without_agent(node.kept_files())
        # What the kubelet keeps is left to it.
        assert above(node) == (values[-1] if keeps else before), moment
        if is_over:
            break
    assert before in values
    assert [96, 0, 64, 0] in values
    assert [96, 0, 96, 0] in values
