"""A node under an agent: what becomes of pods that come and go."""

import errno
import json
import os
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes.agent import KUBEPODS, LEVELS, MI, SteppedNode, a_pod, container_paths, pod_path
from tests.fakes.machine import deep_folder
from tests.fakes.node import memory_folder

from memqos.agent.core.observed import READ_FILES, NodeReading, ReadScope
from memqos.agent.core.schedule import POLL, Schedule
from memqos.converge.journal import hierarchy_of, open_journal
from memqos.converge.pod_sources import CachedFilePods
from memqos.errors import InputError
from memqos.host.lock import Locked
from memqos.kube.pod import Pod
from memqos.kube.selector import Selector
from memqos.plan.names import cgroup_names, inner

MIN, LOW, HIGH = "memory.min", "memory.low", "memory.high"


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


@pytest.fixture
def bed(folder: Path) -> SteppedNode:
    return SteppedNode(folder)


class TestAPodThatStarts:
    def test_gets_its_values_and_so_does_what_is_above_it(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(a_pod("u1", 64, 128, containers=("a", "b")))
        bed.settle()
        assert [bed.mi(path, LOW) for path in container_paths(pod)] == [64, 64]
        assert [bed.mi(path, HIGH) for path in container_paths(pod)] == [96, 96]
        assert bed.mi(pod_path(pod), LOW) == 128
        assert [bed.mi(path, LOW) for path in LEVELS] == [128, 128, 0]

    def test_is_found_by_its_cgroup_before_the_source_tells_of_it(self, bed: SteppedNode) -> None:
        bed.settle()
        pod = bed.run_pod(a_pod("u1"), listed=False)
        bed.settle()
        assert bed.mi(pod_path(pod), LOW) == 0
        bed.pods.manifests["u1"] = pod
        bed.wait(3)
        assert bed.mi(container_paths(pod)[0], LOW) == 64

    def test_is_left_as_it_is_while_its_containers_are_not_known(self, bed: SteppedNode) -> None:
        """What a kubelet has set on a new container must not be taken for something stale."""
        pod = a_pod("u1", containers=("a", "b"))
        statuses = pod["status"]["containerStatuses"]
        pod["status"]["containerStatuses"] = statuses[:1]
        bed.run_pod(pod)
        late = f"{pod_path(pod)}/u1b"
        bed.kernel.make(late, {LOW: str(64 * MI), HIGH: str(77 * MI)})
        bed.core.note_cgroup_created(late, bed.now)
        bed.wait(5)
        assert (bed.mi(late, LOW), bed.mi(late, HIGH)) == (64, 77)

    def test_counts_above_it_only_once_it_is_there(self, bed: SteppedNode) -> None:
        pod = a_pod("u1")
        bed.pods.manifests["u1"] = pod
        bed.wait(70)
        assert bed.mi(KUBEPODS, LOW) == 0
        bed.run_pod(pod)
        bed.settle()
        assert bed.mi(KUBEPODS, LOW) == 64

    def test_leaves_nothing_behind_when_it_ends(self, bed: SteppedNode) -> None:
        pods = [bed.run_pod(a_pod("u1")), bed.run_pod(a_pod("u2", 10, 20))]
        bed.settle()
        bed.end_pod(pods[0])
        bed.settle()
        assert [bed.mi(path, LOW) for path in LEVELS] == [10, 10, 0]
        assert not any("u1" in path for path in bed.core.observed.by_path)

    def test_is_not_mistaken_for_the_one_of_its_name_that_is_still_ending(
        self, bed: SteppedNode
    ) -> None:
        old, new = a_pod("u1", 64, 128), a_pod("u2", 10, 20)
        new["metadata"]["name"] = old["metadata"]["name"]
        bed.run_pod(old)
        bed.run_pod(new)
        bed.settle()
        assert [bed.mi(pod_path(each), LOW) for each in (old, new)] == [64, 10]

    def test_that_its_source_does_not_tell_of_is_asked_for_later_and_later(
        self, bed: SteppedNode
    ) -> None:
        bed.settle()
        times: list[float] = []
        tell = bed.pods.pods

        def note() -> list[Pod]:
            times.append(bed.now)
            return tell()

        bed.pods.pods = note  # type: ignore[method-assign]
        bed.run_pod(a_pod("u1"), listed=False)
        bed.wait(55)
        assert [b - a for a, b in pairwise(times)] == [1, 2, 4, 8]

    def test_among_many_has_its_source_queried_four_times_a_second(self) -> None:
        schedule = Schedule(0.0, polls=False)
        schedule.take_due(0.0)
        schedule.resync_at = float("inf")
        queried = 0
        for step in range(64):
            now = 1 + step / 64
            schedule.schedule_fetch(now)
            queried += schedule.take_due(now).fetches_pods
        assert queried == 4

    def test_is_followed_when_it_is_resized(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(a_pod("u1", 64, 128))
        bed.settle()
        bed.pods.manifests["u1"] = a_pod("u1", 32, 256)
        bed.wait(61)
        (container,) = container_paths(pod)
        assert (bed.mi(container, LOW), bed.mi(container, HIGH)) == (32, 144)
        assert bed.mi(KUBEPODS, LOW) == 32

    def test_that_is_broken_does_not_keep_the_others_from_theirs(self, bed: SteppedNode) -> None:
        broken = a_pod("u/../1")
        bed.pods.manifests["broken"] = broken
        pod = bed.run_pod(a_pod("u2"))
        bed.settle()
        assert bed.mi(pod_path(pod), LOW) == 64
        (intent,) = [each for each in bed.core.node_intent.intents.values() if each.unresolved]
        assert "cannot name a cgroup" in intent.unresolved[0].why

    def test_gets_its_values_in_both_cgroups_that_crun_makes_of_a_container(
        self, folder: Path
    ) -> None:
        bed = SteppedNode(folder)
        config = folder / "kubelet" / "config.yaml"
        config.write_text(f"{config.read_text()}cgroupDriver: systemd\n")
        names = cgroup_names("systemd")
        pod = names.pod("u1", "Burstable")
        scope = names.container(pod, "u1a", "containerd")
        for path in (*names.levels, pod, scope, inner(scope)):
            bed.kernel.make(path)
        bed.pods.manifests["u1"] = a_pod("u1")
        bed.reload()
        bed.settle()
        assert [bed.mi(path, LOW) for path in (scope, inner(scope))] == [64, 64]
        assert bed.mi(inner(scope), HIGH) == 96
        assert not bed.core.pending
        bed.wait(10)
        bed.kernel.set(inner(scope), LOW, "0")
        bed.wait(61)
        assert bed.mi(inner(scope), LOW) == 64
        assert sum(bed.core.report.drifts.values()) == 1


class TestWhomItReaches:
    def test_nobody_while_it_observes(self, folder: Path) -> None:
        bed = SteppedNode(folder, mode="observe")
        before = bed.kernel.contents()
        pod = bed.run_pod(a_pod("u1"))
        made = bed.kernel.contents()
        bed.wait(130)
        assert bed.kernel.contents() == made != before
        assert not (folder / "run" / "journal").exists()
        assert {change.new for change in bed.core.pending[pod_path(pod)]} == {str(64 * MI)}

    def test_nobody_while_it_observes_even_if_asked_by_those_who_may(self, folder: Path) -> None:
        bed = SteppedNode(folder, mode="observe", allow_namespaces=("default",))
        pod = bed.run_pod(a_pod("u1", annotations={"memqos.io/mode": "enforce"}))
        bed.wait(70)
        assert bed.mi(pod_path(pod), LOW) == 0

    def test_those_beside_the_canary_who_may_ask_for_it(self, folder: Path) -> None:
        bed = SteppedNode(
            folder, canary=Selector(labels="canary=yes"), allow_namespaces=("default",)
        )
        pod = bed.run_pod(a_pod("u1", annotations={"memqos.io/mode": "enforce"}))
        bed.settle()
        assert bed.mi(pod_path(pod), LOW) == 64

    def test_only_those_selected(self, folder: Path) -> None:
        bed = SteppedNode(folder, select=Selector(not_namespaces=("kube-system",)))
        pod = bed.run_pod(a_pod("u1"))
        other = bed.run_pod(a_pod("u2", namespace="kube-system"))
        bed.kernel.set(pod_path(other), LOW, str(5 * MI))
        bed.settle()
        assert bed.mi(pod_path(pod), LOW) == 64
        assert bed.mi(pod_path(other), LOW) == 5
        # What the other claims is not taken from it either.
        assert bed.mi(KUBEPODS, LOW) == 69

    def test_only_the_canary(self, folder: Path) -> None:
        bed = SteppedNode(folder, canary=Selector(labels="canary=yes"))
        canary = bed.run_pod(a_pod("u1", labels={"canary": "yes"}))
        other = bed.run_pod(a_pod("u2"))
        bed.settle()
        assert bed.mi(container_paths(canary)[0], HIGH) == 96
        assert bed.mi(container_paths(other)[0], HIGH) == "max"
        assert container_paths(other)[0] in bed.core.pending

    def test_not_those_who_ask_to_be_observed(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(a_pod("u1", annotations={"memqos.io/mode": "observe"}))
        bed.settle()
        assert bed.mi(pod_path(pod), LOW) == 0

    def test_less_hard_those_who_ask_for_it(self, bed: SteppedNode) -> None:
        annotations = {"memqos.io/throttling-factor": "0.75", "memqos.io/reservation": "None"}
        pod = bed.run_pod(a_pod("u1", annotations=annotations))
        bed.settle()
        (container,) = container_paths(pod)
        assert (bed.mi(container, LOW), bed.mi(container, HIGH)) == (0, 112)

    def test_not_harder_those_who_ask_for_more(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(a_pod("u1", annotations={"memqos.io/throttling-factor": "0.1"}))
        bed.settle()
        assert bed.mi(container_paths(pod)[0], HIGH) == 96
        assert bed.log_events("annotation ignored")

    def test_a_release_without_policies_can_be_opted_out_of_too(self, folder: Path) -> None:
        bed = SteppedNode(folder, release="1.32", gates={"MemoryQoS": True})
        pods = [
            bed.run_pod(a_pod("u1", annotations={"memqos.io/reservation": "None"})),
            bed.run_pod(a_pod("u2")),
        ]
        bed.settle()
        assert [bed.mi(pod_path(pod), MIN) for pod in pods] == [0, 64]
        assert bed.mi(KUBEPODS, MIN) == 64

    @pytest.mark.parametrize(
        "critical", [{"priority": 2_000_000_000}, {"labels": {"app.kubernetes.io/name": "memqos"}}]
    )
    def test_the_critical_and_itself_are_never_throttled(
        self, bed: SteppedNode, critical: dict[str, Any]
    ) -> None:
        pod = bed.run_pod(a_pod("u1", **critical))
        (container,) = container_paths(pod)
        bed.kernel.set(container, HIGH, str(96 * MI))
        bed.settle()
        assert (bed.mi(container, LOW), bed.mi(container, HIGH)) == (64, "max")

    def test_its_own_pod_is_known_by_its_own_cgroup(self, folder: Path) -> None:
        pod = a_pod("u1")
        bed = SteppedNode(folder)
        cgroup = folder / "proc" / "self" / "cgroup"
        cgroup.write_text(f"0::{container_paths(pod)[0]}\n")
        bed.reload()
        bed.run_pod(pod)
        bed.settle()
        assert bed.mi(container_paths(pod)[0], HIGH) == "max"


class Counted:
    """Opened files of a fake kernel, by an audit hook that stays for good."""

    def __init__(self) -> None:
        self.root: str | None = None
        self.opened: list[str] = []
        self._folders: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and self.root is not None and isinstance(arguments[0], str):
            self.opened.append(arguments[0])

    def of(self, bed: SteppedNode) -> list[str]:
        """What the next passes open, by name."""
        self.opened.clear()
        self.root = bed.kernel.root
        try:
            bed.settle()
        finally:
            self.root = None
        return [name for name in self.opened if name.rpartition("/")[2] in READ_FILES]


COUNTED = Counted()


class TestWork:
    def test_a_pod_event_reads_and_writes_only_its_own_and_what_is_above(
        self, bed: SteppedNode
    ) -> None:
        pods = [bed.run_pod(a_pod(f"u{number}")) for number in range(20)]
        bed.wait(10)
        written: list[str] = []
        bed.kernel.before_write = lambda path, file: written.append(f"{path}/{file}")
        new = bed.run_pod(a_pod("new", 10, 20))
        opened = COUNTED.of(bed)
        mine = {pod_path(new), *container_paths(new)}
        above = set(LEVELS[:2])
        assert {each.rpartition("/")[0] for each in written} == mine | above
        assert len(written) == len(set(written)) == 5
        # The pod's two cgroups and the three above are read; what is written is looked at before,
        # in the moment, and after.
        assert len(opened) <= (len(mine) + len(LEVELS)) * len(READ_FILES) + 5 * len(written)
        for pod in pods:
            assert not any(pod_path(pod) in name for name in opened)

    def test_a_converged_resync_writes_nothing(self, bed: SteppedNode) -> None:
        for number in range(20):
            bed.run_pod(a_pod(f"u{number}"))
        bed.wait(10)
        written: list[str] = []
        bed.kernel.before_write = lambda path, _file: written.append(path)
        before = bed.kernel.contents()
        bed.wait(130)
        assert written == []
        assert bed.kernel.contents() == before
        assert bed.core.report.reconcile_seconds["resync"].count >= 3

    def test_between_resyncs_only_what_is_above_the_pods_is_looked_at(
        self, bed: SteppedNode
    ) -> None:
        for number in range(20):
            bed.run_pod(a_pod(f"u{number}"))
        bed.wait(10)
        bed.now += POLL
        assert len(COUNTED.of(bed)) == len(LEVELS) * len(READ_FILES)

    def test_a_burst_is_one_pass(self, bed: SteppedNode) -> None:
        bed.wait(0.5)
        for number in range(50):
            bed.run_pod(a_pod(f"u{number}"))
        before = bed.core.report.reconcile_seconds["event"].count
        bed.pods.fetches = 0
        bed.settle()
        assert bed.core.report.reconcile_seconds["event"].count - before == 1
        assert bed.pods.fetches == 1
        assert bed.mi(KUBEPODS, LOW) == 50 * 64

    def test_pods_that_have_not_changed_are_not_planned_again(self, bed: SteppedNode) -> None:
        bed.run_pod(a_pod("u1"))
        bed.settle()
        before = dict(bed.core.node_intent.intents)
        bed.wait(61)
        after = bed.core.node_intent.intents
        assert all(after[key] is intent for key, intent in before.items())


class TestFailures:
    def test_a_source_that_fails_changes_nothing(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(a_pod("u1"))
        bed.settle()
        bed.pods.failure = InputError("no such luck")
        bed.wait(130)
        assert bed.mi(pod_path(pod), LOW) == 64
        assert bed.core.report.errors["source"] >= 2

    def test_one_broken_manifest_of_a_folder_does_not_hold_up_the_others(
        self, bed: SteppedNode, tmp_path: Path
    ) -> None:
        bed.reader.source = CachedFilePods([str(tmp_path)])
        first, second = a_pod("u1"), a_pod("u2")
        (tmp_path / "first.json").write_text(json.dumps(first))
        bed.run_pod(first)
        bed.settle()
        (tmp_path / "first.json").write_text('{"kind": "Pod", ')
        (tmp_path / "never.yaml").write_text("kind: [")
        (tmp_path / "second.json").write_text(json.dumps(second))
        bed.run_pod(second)
        bed.wait(130)
        assert bed.mi(pod_path(first), LOW) == bed.mi(pod_path(second), LOW) == 64
        assert bed.mi(KUBEPODS, LOW) == 128
        assert bed.log_events("first.json:1:16: the JSON text ends too early")
        assert bed.log_events("never.yaml:2:1: a value is expected here")

    def test_a_source_that_knows_no_pods_has_nothing_taken_back(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(a_pod("u1"))
        bed.settle()
        bed.pods.manifests.clear()
        bed.wait(130)
        assert bed.mi(pod_path(pod), LOW) == 64
        assert bed.mi(KUBEPODS, LOW) == 64

    def test_a_write_that_is_refused_is_tried_again_later_and_later(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(a_pod("u1"))
        bed.kernel.refusals[pod_path(pod), LOW] = errno.EBUSY
        tried: list[float] = []

        def note(path: str, _file: str) -> None:
            if path == pod_path(pod):
                tried.append(bed.now)

        bed.kernel.before_write = note
        bed.wait(40)
        gaps = [round(b - a) for a, b in pairwise(tried)]
        assert gaps[:4] == [1, 2, 4, 8]
        # The others do not wait for it.
        assert bed.mi(container_paths(pod)[0], LOW) == 64
        bed.kernel.refusals.clear()
        bed.wait(40)
        assert bed.mi(pod_path(pod), LOW) == 64
        assert not bed.core.schedule.backoff.until

    def test_a_cgroup_that_vanishes_before_the_write_is_no_fault(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(a_pod("u1"))
        (container,) = container_paths(pod)

        def vanish(path: str, _file: str) -> None:
            if path == pod_path(pod) and (bed.kernel.folder / container[1:]).exists():
                bed.kernel.remove(container)

        bed.kernel.before_write = vanish
        bed.wait(5)
        assert bed.core.report.errors["write"] == 0
        assert bed.mi(pod_path(pod), LOW) == 64

    def test_a_cgroup_made_again_is_written_again(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(a_pod("u1"))
        bed.settle()
        (container,) = container_paths(pod)
        bed.kernel.remove(container)
        bed.kernel.make(container)
        bed.core.note_cgroup_removed(container, bed.now)
        bed.core.note_cgroup_created(container, bed.now)
        bed.settle()
        assert bed.mi(container, HIGH) == 96

    def test_a_cgroup_made_again_before_the_write_is_looked_at_again_at_once(
        self, bed: SteppedNode
    ) -> None:
        pod = bed.run_pod(a_pod("u1"))
        (container,) = container_paths(pod)
        read = bed.reader.read_cgroups

        def read_then_replace(scope: ReadScope) -> NodeReading:
            reading = read(scope)
            bed.kernel.remove(container)
            bed.kernel.make(container)
            bed.reader.read_cgroups = read  # type: ignore[method-assign]
            return reading

        bed.reader.read_cgroups = read_then_replace  # type: ignore[method-assign]
        bed.settle()
        assert bed.mi(container, HIGH) == 96
        assert bed.core.report.errors["write"] == 0

    def test_a_node_without_pods_cgroups_is_waited_for(self, bed: SteppedNode) -> None:
        bed.kernel.remove(KUBEPODS)
        bed.wait(61)
        for path in LEVELS:
            bed.kernel.make(path)
            bed.core.note_cgroup_created(path, bed.now)
        pod = bed.run_pod(a_pod("u1"))
        bed.settle()
        assert bed.mi(pod_path(pod), LOW) == 64


class TestItsLife:
    def test_a_second_one_is_refused(self, bed: SteppedNode) -> None:
        with pytest.raises(Locked, match="another memqos"):
            SteppedNode(bed.folder)

    def test_one_that_observes_is_no_reason_not_to_write_by_hand(self, folder: Path) -> None:
        bed = SteppedNode(folder, mode="observe")
        with open_journal(str(folder / "run"), hierarchy_of(bed.kernel, "this-boot")):
            pass
        bed.reload(mode="enforce")
        with (
            pytest.raises(Locked),
            open_journal(str(folder / "run"), hierarchy_of(bed.kernel, "this-boot")),
        ):
            pass
        bed.reload(mode="observe")
        with open_journal(str(folder / "run"), hierarchy_of(bed.kernel, "this-boot")):
            pass

    def test_one_that_failed_to_open_its_journal_can_open_it_later(
        self, bed: SteppedNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_path: str) -> int:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        bed.run_pod(a_pod("u1"))
        bed.settle()
        bed.crash()
        bed.start(mode="observe")
        enforcing = msgspec.structs.replace(bed.configuration, mode="enforce")
        with monkeypatch.context() as patch:
            patch.setattr(bed.kernel, "identity", fail)
            with pytest.raises(OSError, match="open files"):
                bed.writer.configure(enforcing)
        bed.writer.configure(enforcing)
        assert bed.writer.undo_entries

    def test_values_stay_when_it_stops_and_are_taken_back_on_request(
        self, bed: SteppedNode
    ) -> None:
        pod = bed.run_pod(a_pod("u1"))
        before = bed.kernel.contents()
        bed.settle()
        after = bed.kernel.contents()
        assert after != before
        bed.crash()
        assert bed.kernel.contents() == after
        bed.start()
        bed.settle()
        assert bed.kernel.contents() == after
        bed.roll_back()
        assert bed.kernel.contents() == before
        assert bed.mi(pod_path(pod), LOW) == 0

    def test_drift_is_put_right_beside_a_container_that_makes_cgroups(
        self, bed: SteppedNode
    ) -> None:
        hostile, pod = bed.run_pod(a_pod("u1")), bed.run_pod(a_pod("u2"))
        bed.settle()
        (own,) = container_paths(hostile)
        with deep_folder(bed.kernel.folder / own[1:]):
            bed.kernel.set(pod_path(pod), LOW, "0")
            bed.core.resync(bed.now)
            bed.settle()
            known = set(bed.core.observed.by_path)
        assert bed.mi(pod_path(pod), LOW) == 64
        assert not [path for path in known if path.startswith(f"{own}/")]

    def test_its_journal_does_not_grow_with_its_life(self, bed: SteppedNode) -> None:
        for number in range(400):
            pod = bed.run_pod(a_pod(f"u{number}", containers=("a", "b", "c")))
            bed.settle()
            bed.end_pod(pod)
            bed.settle()
        stays = bed.run_pod(a_pod("stays"))
        bed.settle()
        journal = bed.folder / "run" / "journal"
        assert journal.stat().st_size < 2_000_000
        bed.roll_back()
        assert bed.mi(pod_path(stays), LOW) == 0
        assert bed.mi(KUBEPODS, LOW) == 0

    def test_a_reload_changes_what_is_wanted(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(a_pod("u1"))
        bed.settle()
        bed.reload(factor=1.0, policy="None")
        bed.settle()
        (container,) = container_paths(pod)
        assert (bed.mi(container, LOW), bed.mi(container, HIGH)) == (0, 128)
        assert bed.mi(KUBEPODS, LOW) == 0

    def test_another_configuration_of_the_kubelet_is_followed(self, folder: Path) -> None:
        bed = SteppedNode(folder, "kubeReserved: {memory: 1Gi}\n")
        pod = a_pod("u1")
        pod["spec"]["containers"][0]["resources"]["limits"] = {}
        bed.run_pod(pod)
        bed.settle()
        config = bed.folder / "kubelet" / "config.yaml"
        config.write_text(config.read_text().replace("1Gi", "2Gi"))
        bed.wait(61)
        assert bed.mi(container_paths(pod)[0], HIGH) == 64 + (2048 - 64) / 2
        config.write_text("kind: [")
        bed.wait(61)
        assert bed.mi(container_paths(pod)[0], HIGH) == 64 + (2048 - 64) / 2
        assert "cannot be used" in (bed.core.planner.node_settings.doubt or "")
