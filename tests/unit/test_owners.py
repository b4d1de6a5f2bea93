"""Writing through the owners of cgroups, and leaving them as they were."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.fakes.node import MI, memory_folder
from tests.fakes.owner_node import BURSTABLE, CONTAINERS, KUBEPODS, PODS, SLICES, OwnedNode, a_plan
from tests.fakes.peer import Mood, Peer

from memqos.converge.apply import ApplyResult
from memqos.host.cri import CriClient, StoredResources

LOW, MIN, HIGH = "memory.low", "memory.min", "memory.high"
A1 = CONTAINERS["a1"]


@pytest.fixture
def quiet_node() -> Iterator[OwnedNode]:
    """Its owners are not up."""
    with memory_folder() as folder:
        yield OwnedNode(folder)


@pytest.fixture
def node(quiet_node: OwnedNode) -> Iterator[OwnedNode]:
    with quiet_node.owners():
        yield quiet_node


def ends(applied: ApplyResult) -> Counter[str]:
    return Counter(result.outcome for result in applied.results)


class TestAPlan:
    def test_takes_one_call_a_unit_and_one_a_container(self, node: OwnedNode) -> None:
        wanted = a_plan()
        assert ends(node.apply(node.steps(wanted))) == {"written": len(wanted)}
        assert Counter(call["unit"] for call in node.systemd.calls) == Counter(
            path.rpartition("/")[2] for path in SLICES
        )
        assert Counter(call["container"] for call in node.runtime.calls) == Counter([*CONTAINERS])
        assert {(path, file): node.kernel.read(path, file) for path, file in wanted} == wanted

    def test_takes_no_call_where_the_node_is_as_planned(self, node: OwnedNode) -> None:
        node.apply(node.steps(a_plan()))
        node.systemd.forget()
        node.runtime.forget()
        assert node.apply(node.steps(a_plan())).results == ()
        assert node.systemd.calls == node.runtime.calls == []

    def test_survives_an_update_by_somebody_else(self, node: OwnedNode) -> None:
        wanted = {place: value for place, value in a_plan().items() if place[0] not in SLICES}
        node.apply(node.steps(wanted))
        node.kernel.set(A1, LOW, str(99 * MI))
        for container in CONTAINERS:
            node.runtime.limit_only_update(container)
        assert {place: node.kernel.read(*place) for place in wanted} == wanted

    def test_survives_a_reload_of_systemd(self, node: OwnedNode) -> None:
        wanted = {place: value for place, value in a_plan().items() if place[0] in SLICES}
        node.apply(node.steps(wanted))
        node.kernel.set(KUBEPODS, MIN, str(99 * MI))
        node.systemd.reload()
        assert {place: node.kernel.read(*place) for place in wanted} == wanted

    def test_names_every_memory_value_of_a_unit(self, node: OwnedNode) -> None:
        node.kernel.set(KUBEPODS, HIGH, str(900 * MI))
        node.apply(node.steps({(KUBEPODS, LOW): str(MI)}))
        assert node.systemd.calls == [
            {
                "unit": "kubepods.slice",
                "runtime": True,
                "properties": {"MemoryMin": 0, "MemoryLow": MI, "MemoryHigh": 900 * MI},
            }
        ]
        assert node.kernel.read(KUBEPODS, HIGH) == str(900 * MI)

    def test_leaves_what_is_not_memqos_s_as_it_was(self, node: OwnedNode) -> None:
        node.kernel.set(KUBEPODS, "memory.oom.group", "1")
        node.apply(node.steps({(KUBEPODS, LOW): str(MI), (A1, LOW): str(MI)}))
        assert node.kernel.read(KUBEPODS, "memory.oom.group") == "1"
        assert node.runtime.stored("a1")["memory.oom.group"] == "1"

    def test_is_written_parents_first_where_values_rise(self, node: OwnedNode) -> None:
        node.apply(node.steps({(path, LOW): str(MI) for path in reversed([*SLICES])}))
        units = [call["unit"] for call in node.systemd.calls]
        assert units[:2] == ["kubepods.slice", "kubepods-burstable.slice"]
        assert len(units) == len(SLICES)

    def test_that_moves_protection_from_one_kind_to_the_other_rises_first_and_falls_last(
        self, node: OwnedNode
    ) -> None:
        places = [KUBEPODS, BURSTABLE, PODS[0], A1]
        node.apply(node.steps({(path, LOW): str(MI) for path in places}))
        node.systemd.forget()
        node.runtime.forget()
        moved = {
            (path, file): value for path in places for file, value in ((LOW, "0"), (MIN, str(MI)))
        }
        assert ends(node.apply(node.steps(moved))) == {"written": 8}
        slices = [path.rpartition("/")[2] for path in places[:3]]
        calls = node.systemd.calls
        assert [call["unit"] for call in calls] == [*slices, *reversed(slices)]
        assert [call["properties"]["MemoryLow"] for call in calls] == [MI] * 3 + [0] * 3
        assert {call["properties"]["MemoryMin"] for call in calls} == {MI}
        (container,) = node.runtime.calls
        assert container["unified"] == {MIN: str(MI), LOW: "0", HIGH: "max"}

    def test_tells_the_runtime_of_numa_nodes_in_the_same_call(self, node: OwnedNode) -> None:
        node.apply(node.steps({(A1, LOW): str(MI), (A1, "cpuset.mems"): "0,1"}))
        (call,) = node.runtime.calls
        assert (call["mems"], call["unified"][LOW]) == ("0,1", str(MI))
        assert node.kernel.read(A1, "cpuset.mems") == "0-1"
        node.rollback()
        assert node.kernel.read(A1, "cpuset.mems") == ""


class TestRollback:
    def test_leaves_no_trace_in_files_systemd_or_runtime(self, node: OwnedNode) -> None:
        before = node.kernel.contents(), node.systemd.traces()
        node.apply(node.steps(a_plan()))
        assert node.systemd.traces() != before[1]
        node.apply(node.steps(a_plan(2 << 20)))
        done = node.rollback()
        assert done.owner_failures == ()
        assert (node.kernel.contents(), node.systemd.traces()) == before
        for container in CONTAINERS:
            node.runtime.limit_only_update(container)
        assert node.kernel.contents() == before[0]
        assert not node.journal.exists()

    def test_puts_back_a_property_that_somebody_had_set(self, node: OwnedNode) -> None:
        node.systemd.set_properties("kubepods.slice", {"MemoryLow": 5 * MI})
        before = node.systemd.traces()
        node.apply(node.steps({(KUBEPODS, LOW): str(MI)}))
        node.rollback()
        assert node.systemd.traces() == before
        assert node.kernel.read(KUBEPODS, LOW) == str(5 * MI)

    def test_puts_back_what_the_runtime_had_stored_beside_what_the_file_had(
        self, node: OwnedNode
    ) -> None:
        node.runtime.start("a1", A1, {LOW: str(7 * MI)})
        node.kernel.set(A1, LOW, str(6 * MI))
        node.apply(node.steps({(A1, LOW): str(MI)}))
        node.rollback()
        assert node.kernel.read(A1, LOW) == str(6 * MI)
        assert node.runtime.stored("a1")[LOW] == str(7 * MI)

    def test_does_not_have_the_runtime_throttle_what_somebody_had_set_free(
        self, node: OwnedNode
    ) -> None:
        node.runtime.start("a1", A1, {HIGH: str(50 * MI)})
        node.kernel.set(A1, HIGH, "max")
        node.apply(node.steps({(A1, HIGH): str(200 * MI)}))
        node.kernel.set(A1, "memory.current", str(100 * MI))
        node.rollback()
        assert (node.kernel.read(A1, HIGH), node.runtime.stored("a1")[HIGH]) == ("max", "max")

    def test_keeps_what_others_have_told_systemd_since(self, node: OwnedNode) -> None:
        node.apply(node.steps({(KUBEPODS, LOW): str(MI), (KUBEPODS, MIN): str(MI)}))
        node.systemd.set_properties("kubepods.slice", {"MemoryLow": 3 * MI})
        done = node.rollback()
        assert [each.state for each in done.not_written] == ["conflict"]
        assert node.kernel.read(KUBEPODS, LOW) == str(3 * MI)
        traces = node.systemd.traces()
        assert not any("MemoryMin.conf" in name for name in traces)
        assert any("MemoryLow.conf" in name for name in traces)

    def test_goes_back_to_what_others_told_systemd_before_memqos_wrote_again(
        self, node: OwnedNode
    ) -> None:
        node.apply(node.steps({(KUBEPODS, LOW): str(MI), (KUBEPODS, MIN): str(MI)}))
        node.systemd.set_properties("kubepods.slice", {"MemoryLow": 3 * MI})
        theirs = node.systemd.traces()
        node.apply(node.steps({(KUBEPODS, LOW): str(2 * MI), (KUBEPODS, MIN): str(2 * MI)}))
        node.rollback()
        assert node.kernel.read(KUBEPODS, LOW) == str(3 * MI)
        (dropin,) = [name for name in node.systemd.traces() if "MemoryLow.conf" in name]
        assert node.systemd.traces()[dropin] == theirs[dropin]
        assert not any("MemoryMin.conf" in name for name in node.systemd.traces())

    def test_forgets_the_drop_ins_of_a_slice_that_has_gone(self, node: OwnedNode) -> None:
        (node.systemd.run / "transient" / "kubepods.slice").unlink()
        before = node.systemd.traces()
        node.apply(node.steps({(KUBEPODS, LOW): str(MI)}))
        node.kernel.remove(KUBEPODS)
        node.rollback()
        assert {name for name in node.systemd.traces() if "system.control" not in name} == set(
            before
        )
        assert not any("50-" in name for name in node.systemd.traces())


def peers(node: OwnedNode) -> list[Peer]:
    return [node.systemd, node.runtime]


class TestAnOwnerThatIsLost:
    @pytest.mark.parametrize("which", [0, 1], ids=["systemd", "runtime"])
    @pytest.mark.parametrize("mood", ["refuses", "hangs", "hangs up"])
    def test_holds_up_nothing_but_its_own_and_a_later_run_finishes(
        self, node: OwnedNode, which: int, mood: Mood
    ) -> None:
        before = node.kernel.contents(), node.systemd.traces()
        wanted = a_plan()
        own = {
            place: value for place, value in wanted.items() if (place[0] in SLICES) == (which == 0)
        }
        peers(node)[which].mood = mood
        if mood == "hangs":
            node.impatient_with = "runtime" if which else "systemd"
        applied = node.apply(node.steps(wanted))
        end = "refused" if mood == "refuses" else "unreachable"
        assert ends(applied) == {"written": len(wanted) - len(own), end: len(own)}
        details = {result.detail for result in applied.results if result.outcome == end}
        assert all(detail and " – " in detail for detail in details)
        peers(node)[which].mood = "well"
        node.impatient_with = None
        with node.runtime.serving():
            assert ends(node.apply(node.steps(wanted))) == {"written": len(own)}
            assert {place: node.kernel.read(*place) for place in wanted} == wanted
            node.rollback()
        assert (node.kernel.contents(), node.systemd.traces()) == before

    def test_is_not_waited_for_again_and_again(self, node: OwnedNode) -> None:
        node.systemd.mood = "hangs"
        node.impatient_with = "systemd"
        node.apply(node.steps({(path, LOW): str(MI) for path in SLICES}))
        assert len(node.systemd.calls) <= 1

    def test_after_it_has_written_leaves_a_value_that_counts(self, node: OwnedNode) -> None:
        before = node.kernel.contents(), node.systemd.traces()
        node.systemd.mood = "hangs up after"
        applied = node.apply(node.steps({(KUBEPODS, LOW): str(MI)}))
        assert ends(applied) == {"written": 1}
        node.systemd.mood = "well"
        node.rollback()
        assert (node.kernel.contents(), node.systemd.traces()) == before

    def test_is_found_again_once_it_was_restarted(self, quiet_node: OwnedNode) -> None:
        node = quiet_node
        with node.driver() as driver, node.runtime.serving():
            for low in (MI, 2 * MI):
                with node.systemd.serving():
                    for path in (KUBEPODS, A1):
                        change = node.change(path, LOW, str(low))
                        assert driver.write([change])
                        assert node.kernel.read(path, LOW) == str(low)

    def test_from_the_start_changes_nothing_of_its_own(self, quiet_node: OwnedNode) -> None:
        node = quiet_node
        before = node.kernel.contents()
        applied = node.apply(node.steps(a_plan()))
        assert set(ends(applied)) == {"unreachable"}
        assert node.kernel.contents() == before
        assert node.rollback().owner_failures == ()
        assert not node.journal.exists()

    def test_at_rollback_leaves_the_journal_for_a_later_one(self, quiet_node: OwnedNode) -> None:
        node = quiet_node
        before = node.kernel.contents(), node.systemd.traces()
        with node.owners():
            node.apply(node.steps(a_plan()))
        assert {result.outcome for result in node.rollback().results} == {"unreachable"}
        assert node.journal.exists()
        with node.owners():
            node.rollback()
        assert (node.kernel.contents(), node.systemd.traces()) == before
        assert not node.journal.exists()


def test_a_runtime_killed_between_two_containers_fails_only_what_it_did_not_do(
    quiet_node: OwnedNode,
) -> None:
    node = quiet_node
    wanted = {(path, LOW): str(MI) for path in CONTAINERS.values()}
    with node.runtime.serving() as pid, node.driver() as driver:
        first, *rest = node.steps(wanted)
        assert driver.write([first.change])
        os.kill(pid, signal.SIGKILL)
        applied = node.apply(rest)
    assert ends(applied) == {"unreachable": len(rest)}
    with node.runtime.serving():
        assert ends(node.apply(node.steps(wanted))) == {"written": len(rest)}


def test_a_container_the_runtime_does_not_know_is_refused_by_name(node: OwnedNode) -> None:
    stray = f"{PODS[0]}/cri-containerd-stray.scope"
    node.kernel.make(stray)
    (result,) = node.apply(node.steps({(stray, LOW): str(MI)})).results
    assert (result.outcome, result.detail) == (
        "refused",
        f"{stray}/memory.low: cannot write '{MI}' – the runtime: no such container",
    )


def test_a_container_that_ends_before_the_runtime_was_asked_about_it_is_gone(
    node: OwnedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = CriClient.read_resources

    def ending(runtime: CriClient, container: str) -> StoredResources:
        node.kernel.remove(A1)
        return kept(runtime, "nobody")

    monkeypatch.setattr(CriClient, "read_resources", ending)
    assert ends(node.apply(node.steps({(A1, LOW): str(MI)}))) == {"gone": 1}


def test_past_their_owners_values_are_written_when_that_is_asked_for(quiet_node: OwnedNode) -> None:
    quiet_node.is_direct = True
    wanted = a_plan()
    assert ends(quiet_node.apply(quiet_node.steps(wanted))) == {"written": len(wanted)}


class TestMemoryHighBelowUsage:
    @pytest.mark.parametrize("path", [PODS[0], A1], ids=["systemd", "runtime"])
    def test_is_reached_before_its_owner_is_reported(
        self, node: OwnedNode, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node.kernel.set(path, "memory.current", str(200 * MI))
        reclaim = node.kernel.folder / path.removeprefix("/") / "memory.reclaim"
        reclaim.touch()
        write = node.kernel.write

        def reclaiming(at: str, file: str, value: str) -> None:
            if file != "memory.reclaim":
                return write(at, file, value)
            assert not node.systemd.calls + node.runtime.calls
            usage = int(node.kernel.read(at, "memory.current") or 0)
            node.kernel.set(at, "memory.current", str(usage - int(value) // 2 - 1))
            return None

        monkeypatch.setattr(node.kernel, "write", reclaiming)
        assert ends(node.apply(node.steps({(path, HIGH): str(100 * MI)}))) == {"written": 1}
        assert int(node.kernel.read(path, "memory.current") or 0) <= 100 * MI

    @pytest.mark.parametrize("path", [PODS[0], A1], ids=["systemd", "runtime"])
    def test_that_cannot_be_reached_is_not_asked_of_its_owner(
        self, node: OwnedNode, path: str
    ) -> None:
        node.kernel.set(path, "memory.current", str(200 * MI))
        reclaim = node.kernel.folder / path.removeprefix("/") / "memory.reclaim"
        reclaim.touch()
        (result,) = node.apply(node.steps({(path, HIGH): str(100 * MI)}), force=True).results
        assert result.outcome == "refused"
        assert "usage does not fall below it" in (result.detail or "")
        assert node.systemd.calls + node.runtime.calls == []

    def test_of_an_old_kernel_is_written_by_memqos_first(self, node: OwnedNode) -> None:
        node.kernel.set(A1, "memory.current", str(200 * MI))
        assert ends(node.apply(node.steps({(A1, HIGH): str(100 * MI)}))) == {"written": 1}
        assert json.dumps(node.runtime.calls).count(str(100 * MI)) == 1
