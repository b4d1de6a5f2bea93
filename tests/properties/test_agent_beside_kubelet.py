"""Whatever a kubelet does: the agent neither fights it nor leaves a hole, and rolls back to it."""

from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.fakes.agent import LEVELS, OWN, a_pod, container_paths, pod_path
from tests.fakes.beside_kubelet import ABOVE, Killed
from tests.fakes.kubelet_answers import NodeWithRealSources
from tests.fakes.node import memory_folder
from tests.fakes.scripted_kubelet import HIGH, LOW, MIN, TIERED, Settings

from memqos.agent.configuration import FightConfig

LONGEST_HOLE: Final = 2.0
UIDS: Final = st.sampled_from(["u1", "u2", "u3"])
SIZES: Final = st.sampled_from([(64, 128), (32, 256), (100, 100), (0, 0)])
SETTINGS: Final = st.builds(
    Settings,
    minor=st.sampled_from([34, 36, 37, 38]),
    gate=st.booleans(),
    policy=st.sampled_from(["None", "TieredReservation"]),
)


class Node(RuleBasedStateMachine):
    """A kubelet is restarted, upgraded, configured otherwise; pods come, go and are resized."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = memory_folder()
        self._patch = pytest.MonkeyPatch()
        folder = self._folder.__enter__()
        self.bed = NodeWithRealSources(
            folder, TIERED, self._patch, fight=FightConfig(times=2, minutes=60)
        )
        self.running: dict[str, dict[str, Any]] = {}

    @rule(uid=UIDS, size=SIZES)
    def start_pod(self, uid: str, size: tuple[int, int]) -> None:
        if uid not in self.running:
            pod = self.running[uid] = self.bed.run_pod(a_pod(uid, *size))
            for path in (pod_path(pod), *container_paths(pod)):
                for file in (MIN, LOW, HIGH):
                    self.bed.kubelet_values[path, file] = self.bed.read(path, file)

    @rule(uid=UIDS)
    def end_pod(self, uid: str) -> None:
        pod = self.running.pop(uid, None)
        if pod is not None:
            self.bed.end_pod(pod)

    @rule(uid=UIDS, request=st.sampled_from([16, 48]), limit=st.sampled_from([96, 200]))
    def resize_pod(self, uid: str, request: int, limit: int) -> None:
        pod = self.running.get(uid)
        if pod is not None and LEVELS[1] in pod_path(pod):
            self.running[uid] = a_pod(uid, request, limit)
            self.bed.resize(self.running[uid])

    @rule(
        settings=st.none() | SETTINGS, shows=st.booleans(), lags=st.sampled_from([0.0, 0.0, 15.0])
    )
    def restart_kubelet(self, settings: Settings | None, shows: bool, lags: float) -> None:
        # One that begins to reserve, and that nothing shows, is known by its first count alone.
        self.bed.restart_visible = shows or (settings is not None and settings.gate)
        # Of a downgrade only the Node tells: until then it is planned by the newer rules.
        minor = (settings or self.bed.settings).minor
        is_older = minor < int(self.bed.version.split(".")[1])
        self.bed.node_lags = 0.0 if is_older else lags
        self.bed.restart(settings)

    @rule(silent=st.booleans(), seconds=st.sampled_from([0.0, 0.0, 0.7, 2.5]))
    def answer(self, silent: bool, seconds: float) -> None:
        """A slow answer tells what was so when the kubelet was asked."""
        self.bed.manner = "is silent" if silent else "answers"
        self.bed.asker.seconds = seconds
        self.bed.core.schedule.schedule_fetch(self.bed.now)

    @rule(seconds=st.sampled_from([0.5, 1.7]))
    def ask(self, seconds: float) -> None:
        """Whatever happens next happens while the answer is on its way."""
        self.bed.asker.seconds = 2.5
        self.bed.core.request_confirmation(self.bed.now)
        self.bed.wait(seconds)

    @rule(own=st.booleans())
    def configure(self, own: bool) -> None:
        """The agent protects pods of its own accord, or only as the kubelet does."""
        options = OWN if own else {"gates": {}, "policy": None, "factor": None}
        self.bed.reload(**options)

    @rule(seconds=st.sampled_from([0, 0, 70]))
    def restart_agent(self, seconds: int) -> None:
        self.bed.crash()
        self.start_agent(seconds)

    def start_agent(self, seconds: float) -> None:
        options = {name: getattr(self.bed.configuration, name) for name in OWN}
        self.bed.wait_alone(seconds)
        self.bed.start(release=None, fight=self.bed.configuration.fight, **options)

    @rule(
        writes=st.integers(0, 3),
        before=st.booleans(),
        seconds=st.sampled_from([0.5, 3.0]),
        alone=st.sampled_from([0, 12, 70]),
        is_rolled_back=st.booleans(),
        is_known=st.booleans(),
    )
    def kill_agent(
        self,
        writes: int,
        before: bool,
        seconds: float,
        alone: int,
        is_rolled_back: bool,
        is_known: bool,
    ) -> None:
        self.bed.kill_at_write(writes, before=before)
        with suppress(Killed):
            self.bed.wait(seconds)
        self.bed.kill_at_write(-1)
        self.bed.crash()
        if is_rolled_back:
            self.bed.wait_alone(alone)
            self.rolls_back_without_agent(is_known)
        self.start_agent(0)

    @rule(seconds=st.sampled_from([1, 3, 10, 61, 200]))
    def wait(self, seconds: int) -> None:
        self.bed.wait(seconds)

    @invariant()
    def nothing_is_fought_over(self) -> None:
        assert not self.bed.core.drift.fights.contested

    @invariant()
    def holes_are_short(self) -> None:
        assert self.bed.longest_hole <= LONGEST_HOLE
        # To a question that was under way when it opened, and to the one that counts.
        assert self.bed.most_answers <= 2

    def teardown(self) -> None:
        try:
            self.comes_to_rest()
            self.rolls_back_to_the_kubelet()
        finally:
            self.bed.crash()
            self._folder.__exit__(None, None, None)
            self._patch.undo()

    def comes_to_rest(self) -> None:
        self.bed.manner = "answers"
        self.bed.wait(400)
        self.bed.writes.clear()
        self.bed.wait(300)
        assert self.bed.writes == []
        if self.bed.core.node_intent.enforces:
            assert not self.bed.core.pending
        self.nothing_is_fought_over()
        self.holes_are_short()
        if self.bed.settings.gate:
            kept = {file: str(amount) for file, amount in self.bed.scripted.sums().items()}
            assert {file: self.bed.read(*file) for file in kept} == kept

    def rolls_back_without_agent(self, is_known: bool) -> None:
        before = {file: self.bed.read(*file) for file in ABOVE}
        files = self.bed.kept_files() if is_known else None
        done = self.bed.roll_back_without_agent(files)
        states = {(each.entry.path, each.entry.file): each.state for each in done.not_written}
        for file in ABOVE:
            found = self.bed.read(*file)
            if states.get(file) in ("unconfirmed", "kubelet", "conflict"):
                assert found == before[file]
            else:
                assert found in {self.bed.kubelet_values[file], *self.bed.steady.get(file, ())}, (
                    file
                )
            if states.get(file) == "kubelet":
                assert file in self.bed.scripted.sums()
            assert files is None or states.get(file) != "unconfirmed"

    def rolls_back_to_the_kubelet(self) -> None:
        before = {file: self.bed.read(*file) for file in ABOVE}
        self.bed.roll_back()
        kept = self.bed.scripted.sums()
        for file in ABOVE:
            found = self.bed.read(*file)
            if file in kept:
                assert found == before[file] == str(kept[file]), file
            else:
                assert found in {self.bed.kubelet_values[file], *self.bed.steady.get(file, ())}, (
                    file
                )
        for file, value in self.bed.kubelet_values.items():
            if file not in ABOVE and self.bed.kernel.identity(file[0]) is not None:
                # Where it has written the very value of memqos, nobody can tell whose it is.
                assert self.bed.read(*file) in {value, *self.bed.earlier.get(file, ())}, file


Node.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestANodeBesideAKubelet = Node.TestCase
