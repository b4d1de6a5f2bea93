"""The agent as a plugin of the container runtime: what new and resized containers are given."""

import errno
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import PATIENCE, eventually
from tests.fakes.agent import MI, SteppedNode, a_pod, container_paths, pod_path, view_of
from tests.fakes.node import RULE, memory_folder
from tests.fakes.nri_runtime import CreationFailed, FakeNriRuntime
from tests.unit.test_nri import Connected

from memqos.agent import node_writer
from memqos.agent.core.view import node_view
from memqos.agent.events import EventLog
from memqos.agent.metrics import metric_families
from memqos.agent.nri import NriPlugin, NriRuntime
from memqos.converge.records import NEW_CGROUP
from memqos.converge.router import Router
from memqos.errors import JournalError, Unreachable
from memqos.host.owner_discovery import OwnerEndpoints
from memqos.kube.selector import Selector
from memqos.plan.changes import Change, magnitude
from memqos.plan.setting import Setting

LOW, HIGH = "memory.low", "memory.high"
OWN = {LOW: str(64 * MI), HIGH: str(96 * MI)}
"""Of a container that requests 64 Mi and is limited to 128 Mi."""


class PluginNode:
    """A node, its runtime, and an agent that is stepped by hand but for its plugin."""

    def __init__(self, folder: Path, deadline: float = PATIENCE, **options: Any) -> None:
        self.deadline = deadline
        self.options = {"nri": "on", **options}
        self.node = SteppedNode(folder, **self.options)
        self.runtime = FakeNriRuntime(folder, self.node.kernel)
        self.runtime.start()
        self.log = io.StringIO()
        self.unknown = 0
        self.plugin: NriPlugin | None = None

    def connect(self) -> None:
        plugin = self.plugin = self.new_plugin()
        plugin.start()
        eventually("it is connected", lambda: "connected over NRI" in self.log.getvalue())

    def new_plugin(self) -> NriPlugin:
        view = node_view(self.node.core)
        self.view = view
        made = NriPlugin(
            str(self.runtime.socket),
            self.deadline,
            view=lambda: self.view,
            journal=self.node.writer,
            read_usage=lambda path: magnitude(self.node.kernel.read(path, "memory.current") or "0"),
            own_cgroup=None,
            log=EventLog("text", stream=self.log),
        )
        made.on_unknown = self._note_unknown
        return made

    def settle(self) -> None:
        """Passes, and the view that the last one publishes."""
        self.node.wait(5)
        self.view = node_view(self.node.core)

    def announce(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """The source knows the pod, and its own cgroup is there; its containers are not."""
        self.node.pods.manifests[manifest["metadata"]["uid"]] = manifest
        self.node.kernel.make(pod_path(manifest), {"memory.max": "max"})
        self.node.core.note_cgroup_created(pod_path(manifest), self.node.now)
        self.settle()
        return manifest

    def create(self, manifest: dict[str, Any], **more: Any) -> dict[str, str]:
        [path], uid = container_paths(manifest), manifest["metadata"]["uid"]
        return self.runtime.create(uid, "a", path, 128 * MI, **more)

    def start(self, manifest: dict[str, Any]) -> str:
        """Start its container, and have the agent see that; its cgroup."""
        [path] = container_paths(manifest)
        self.runtime.start_container(path.rpartition("/")[2])
        self.node.core.note_cgroup_created(path, self.node.now)
        return path

    def answers(self) -> dict[str, int]:
        assert self.plugin is not None
        return {str(name): count for name, count in self.plugin.answers.items()}

    def close(self) -> None:
        if self.plugin is not None:
            self.plugin.stop()
        self.runtime.stop()

    def _note_unknown(self) -> None:
        self.unknown += 1


class HangingDisk:
    """No write is on the disk until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_asked = threading.Event()
        self._goes_on = threading.Event()
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self._wait)

    def release(self) -> None:
        self._goes_on.set()

    def _wait(self, handle: int) -> None:
        self.is_asked.set()
        assert self._goes_on.wait(PATIENCE)
        self._sync(handle)


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


@pytest.fixture
def bed(folder: Path) -> Iterator[PluginNode]:
    made = PluginNode(folder)
    made.node.settle()
    made.connect()
    yield made
    made.close()


def test_a_container_of_a_known_pod_starts_with_its_values(bed: PluginNode) -> None:
    pod = bed.announce(a_pod("u1"))
    [path] = container_paths(pod)
    assert bed.plugin is not None
    assert not bed.plugin.is_starting(path)
    assert bed.create(pod) == OWN
    assert bed.plugin.is_starting(path)
    bed.start(pod)
    assert not bed.plugin.is_starting(path)
    assert {file: bed.node.read(path, file) for file in OWN} == OWN
    bed.settle()
    # Nothing was left to write in the container.
    assert bed.node.core.report.writes[HIGH, "written"] == 0
    assert bed.answers() == {"set": 1}


def test_a_container_of_an_unknown_pod_is_created_without_values_and_written_to_later(
    bed: PluginNode,
) -> None:
    pod = a_pod("u1")
    assert bed.create(pod) == {}
    assert bed.unknown == 1
    bed.announce(pod)
    path = bed.start(pod)
    assert bed.node.read(path, HIGH) == "max"
    bed.settle()
    assert bed.node.read(path, HIGH) == OWN[HIGH]


def test_only_values_that_differ_from_those_of_the_kubelet_are_set(bed: PluginNode) -> None:
    pod = bed.announce(a_pod("u1"))
    # From NRI 0.10 on the runtime shows what the kubelet sends.
    original = bed.runtime._container

    def shown(container: str) -> Any:
        made = original(container)
        made.linux.resources.unified[HIGH] = OWN[HIGH]
        return made

    bed.runtime._container = shown  # type: ignore[method-assign]
    assert bed.create(pod, unified={HIGH: OWN[HIGH]}) == OWN
    [entry] = [key for key in bed.node.writer.undo_entries if key[2] == NEW_CGROUP]
    assert entry[1] == LOW


@pytest.mark.parametrize("annotation", ["memqos.io/mode", "memqos.io/reservation"])
def test_a_pod_that_opts_out_gets_less(bed: PluginNode, annotation: str) -> None:
    value = "observe" if annotation.endswith("mode") else "None"
    pod = bed.announce(a_pod("u1", annotations={annotation: value}))
    left = {} if value == "observe" else {HIGH: OWN[HIGH]}
    assert bed.create(pod) == left


def test_in_mode_observe_answers_are_counted_and_not_given(folder: Path) -> None:
    bed = PluginNode(folder, mode="observe")
    bed.node.settle()
    bed.connect()
    assert bed.create(bed.announce(a_pod("u1"))) == {}
    assert bed.answers() == {"observed": 1}
    bed.close()


def test_a_pod_that_is_not_selected_is_not_called_unknown(folder: Path) -> None:
    """Its values are never written: neither at the start nor after it."""
    bed = PluginNode(folder, select=Selector(namespaces=("shop",)))
    bed.node.settle()
    bed.connect()
    pod = bed.announce(a_pod("u1"))
    assert bed.create(pod) == {}
    bed.start(pod)
    bed.runtime.update("u1a", limit=192 * MI)
    assert bed.answers() == {"unchanged": 2}
    assert bed.unknown == 0
    assert bed.create(bed.announce(a_pod("u2", namespace="shop"))) == OWN
    bed.close()


def test_rollback_restores_what_the_runtime_set(bed: PluginNode) -> None:
    pod = bed.announce(a_pod("u1"))
    bed.create(pod, unified={HIGH: "max"})
    path = bed.start(pod)
    bed.settle()
    assert not [key for key in bed.node.writer.undo_entries if key[2] == NEW_CGROUP]
    done = bed.node.roll_back()
    assert bed.node.read(path, LOW) == "0"
    assert bed.node.read(path, HIGH) == "max"
    assert not [each for each in done.not_written if each.state == "conflict"]


def test_an_agent_killed_before_it_saw_the_container_leaves_a_journal_of_it(
    bed: PluginNode,
) -> None:
    pod = bed.announce(a_pod("u1"))
    bed.create(pod)
    bed.close()
    bed.node.crash()
    bed.runtime.start_container("u1a")
    bed.node.start()
    path, *_ = container_paths(pod)
    assert bed.node.read(path, HIGH) == OWN[HIGH]
    bed.node.roll_back()
    assert bed.node.read(path, HIGH) == "max"


def test_a_container_that_starts_after_a_rollback_is_restored_by_the_next(bed: PluginNode) -> None:
    pod = bed.announce(a_pod("u1"))
    bed.create(pod)
    bed.node.roll_back()
    path = bed.start(pod)
    assert bed.node.read(path, HIGH) == OWN[HIGH]
    bed.node.roll_back()
    assert bed.node.read(path, HIGH) == "max"
    assert not bed.node.writer.undo_entries


def test_the_journal_knows_which_containers_are_being_made(bed: PluginNode) -> None:
    pod = bed.announce(a_pod("u1"))
    [path] = container_paths(pod)
    assert bed.plugin is not None
    runtime = NriRuntime(bed.plugin, PATIENCE)
    bed.node.writer.set_nri(runtime, lambda: True, bed.plugin.is_starting)
    bed.create(pod)
    assert bed.node.writer.open_journal().is_starting(path)
    bed.start(pod)
    assert not bed.node.writer.open_journal().is_starting(path)


def test_a_container_that_ends_before_it_is_seen_leaves_nothing_to_restore(
    bed: PluginNode,
) -> None:
    pod = bed.announce(a_pod("u1"))
    bed.create(pod)
    bed.start(pod)
    bed.runtime.stop_container("u1a")
    assert not [key for key in bed.node.writer.undo_entries if key[2] == NEW_CGROUP]


def test_a_container_that_restarts_for_ever_does_not_fill_the_journal(
    bed: PluginNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent itself has nothing to write: all values are the runtime's work."""
    monkeypatch.setattr(node_writer, "COMPACT_AFTER", 50)
    bed.announce(a_pod("u1"))
    journal = bed.node.writer.open_journal()
    for number in range(30):
        path = f"{pod_path(a_pod('u1'))}/{number}"
        assert bed.runtime.create("u1", "a", path, 128 * MI) == OWN
        bed.runtime.start_container(str(number))
        bed.node.core.note_cgroup_created(path, bed.node.now)
        bed.settle()
        bed.runtime.stop_container(str(number))
        bed.node.core.note_cgroup_removed(path, bed.node.now)
        bed.settle()
    assert journal.appended <= 50
    assert len(journal.undo_entries) < 30


def test_without_a_journal_nothing_is_set(bed: PluginNode, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = bed.announce(a_pod("u1"))

    def fail(_: object) -> None:
        raise JournalError("the disk is full")

    monkeypatch.setattr(bed.node.writer, "record_creation", fail)
    assert bed.create(pod) == {}
    assert bed.answers() == {"failed": 1}
    assert "not answered over NRI: JournalError: the disk is full" in bed.log.getvalue()


def test_a_disk_that_hangs_delays_no_creation_and_the_values_are_written_later(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = PluginNode(folder, deadline=0.15)
    bed.node.settle()
    bed.connect()
    slow, second, third = (bed.announce(a_pod(uid)) for uid in ("u1", "u2", "u3"))
    disk = HangingDisk(monkeypatch)
    assert bed.create(slow) == {}
    assert bed.create(second) == {}
    bed.runtime.start_container(container_paths(slow)[0].rpartition("/")[2])
    assert bed.answers() == {"late": 2}
    assert bed.log.getvalue().count("the journal was not written in time") == 1
    assert disk.is_asked.is_set()
    disk.release()
    # What was too late is recorded and forgotten again, then there is an answer.
    eventually("the journal is written to again", lambda: bed.create(third) == OWN)
    assert bed.answers()["set"] == 1
    expected = {key[0] for key in bed.node.writer.undo_entries if key[2] == NEW_CGROUP}
    assert expected == set(container_paths(third))
    path = container_paths(slow)[0]
    bed.node.core.note_cgroup_created(path, bed.node.now)
    bed.settle()
    assert {file: bed.node.read(path, file) for file in OWN} == OWN
    bed.close()


def test_another_plugin_that_sets_the_same_value_ends_the_answers_after_two_creations(
    bed: PluginNode,
) -> None:
    other = Connected(bed.runtime, "20", "other").wait_until_listed()
    pods = [bed.announce(a_pod(f"u{number}")) for number in range(4)]
    for pod in pods[:2]:
        with pytest.raises(CreationFailed, match="both tried to set"):
            bed.create(pod)
    assert [bed.create(pod) for pod in pods[2:]] == [{HIGH: "4096"}] * 2
    assert bed.answers() == {"set": 2, "withheld": 2}
    assert "perhaps another plugin sets the same ones" in bed.log.getvalue()
    assert bed.plugin is not None
    assert bed.plugin.view().is_contested
    # Containers that were never made leave nothing to restore.
    assert not [key for key in bed.node.writer.undo_entries if key[2] == NEW_CGROUP]
    other.hang_up()


def test_a_container_that_is_created_shows_that_nobody_else_sets_its_values(
    bed: PluginNode,
) -> None:
    other = Connected(bed.runtime, "20", "other").wait_until_listed()
    pods = [bed.announce(a_pod(f"u{number}")) for number in range(3)]
    for pod in pods:
        other.handler.values = {HIGH: "4096"}
        with pytest.raises(CreationFailed, match="both tried to set"):
            bed.create(pod)
        other.handler.values = {}
        assert bed.create(pod) == OWN
    other.hang_up()


def test_another_plugin_that_sets_values_of_one_pod_keeps_it_from_starting_only_twice(
    bed: PluginNode,
) -> None:
    """Others are created meanwhile, so that refusals never follow one another."""
    other = Connected(bed.runtime, "20", "other").wait_until_listed()
    shared = bed.announce(a_pod("shared"))
    for number in range(2):
        other.handler.values = {HIGH: "4096"}
        with pytest.raises(CreationFailed, match="both tried to set"):
            bed.create(shared)
        other.handler.values = {}
        assert bed.create(bed.announce(a_pod(f"u{number}"))) == OWN
    other.handler.values = {HIGH: "4096"}
    assert bed.create(shared) == {HIGH: "4096"}
    other.handler.values = {}
    assert bed.create(bed.announce(a_pod("last"))) == OWN
    assert "default/shared: the container a has failed to start 2 times" in bed.log.getvalue()
    other.hang_up()


def test_a_container_that_cannot_start_takes_no_values_from_others(bed: PluginNode) -> None:
    """Its command does not exist: the runtime removes it without an event of its start."""
    broken, sound = bed.announce(a_pod("broken")), bed.announce(a_pod("sound"))
    for _ in range(2):
        assert bed.create(broken) == OWN
        bed.runtime.stop_container("brokena")
    # It is tried without values, as these might be why.
    assert bed.create(broken) == {}
    assert bed.create(sound) == OWN
    assert bed.plugin is not None
    assert not bed.plugin.view().is_contested
    assert "default/broken: the container a has failed to start 2 times" in bed.log.getvalue()
    assert bed.answers() == {"set": 3, "withheld": 1}
    assert {key[0] for key in bed.node.writer.undo_entries if key[2] == NEW_CGROUP} == set(
        container_paths(sound)
    )


def test_a_broken_container_of_a_pod_that_is_unknown_since_is_reported_as_such(
    bed: PluginNode,
) -> None:
    pod = bed.announce(a_pod("u1"))
    for _ in range(2):
        assert bed.create(pod) == OWN
        bed.runtime.stop_container("u1a")
    del bed.node.pods.manifests["u1"]
    bed.node.wait(60)
    bed.settle()
    assert bed.create(pod) == {}
    assert bed.unknown == 1
    assert bed.answers() == {"set": 2, "unknown": 1}


def test_a_container_that_starts_at_last_is_no_broken_one(bed: PluginNode) -> None:
    pod = bed.announce(a_pod("u1"))
    for number in range(4):
        assert bed.create(pod) == OWN
        if number % 2:
            bed.runtime.start_container("u1a")
        bed.runtime.stop_container("u1a")


def test_a_runtime_that_restarts_is_connected_to_again(bed: PluginNode) -> None:
    pod = bed.announce(a_pod("u1"))
    bed.create(pod)
    bed.start(pod)
    bed.settle()
    bed.runtime.stop()
    bed.log.truncate(0)
    bed.runtime.start()
    eventually("it is connected again", lambda: "connected over NRI" in bed.log.getvalue())
    assert "containers=1" in bed.log.getvalue()
    assert bed.create(bed.announce(a_pod("u2"))) == OWN


def test_an_agent_whose_runtime_has_nri_off_names_the_folder_that_is_missing(folder: Path) -> None:
    bed = PluginNode(folder)
    bed.runtime.stop()
    bed.runtime.socket.unlink()
    bed.runtime.socket.parent.rmdir()
    plugin = bed.new_plugin()
    plugin.start()
    eventually("it says what is missing", lambda: plugin.view().problem)
    assert plugin.view().problem == f"{bed.runtime.socket.parent}: No such file or directory"
    plugin.stop()


def test_an_agent_without_a_descriptor_for_the_socket_names_the_socket(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("memqos.agent.nri.NriConnection", fail)
    bed = PluginNode(folder)
    plugin = bed.new_plugin()
    plugin.start()
    eventually("it says what is missing", lambda: plugin.view().problem)
    assert plugin.view().problem == f"{bed.runtime.socket}: Too many open files"
    plugin.stop()
    bed.close()


class CountedWaits(threading.Event):
    """Waits for nothing, and mends the runtime after some."""

    def __init__(self, runtime: FakeNriRuntime, failures: int) -> None:
        super().__init__()
        self.seconds: list[float | None] = []
        self._runtime = runtime
        self._failures = failures

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout)
        if len(self.seconds) == self._failures:
            self._runtime.parts = 1
        return super().wait(0)


def test_a_runtime_whose_list_cannot_be_read_is_held_up_less_and_less(folder: Path) -> None:
    bed = PluginNode(folder)
    bed.runtime.parts = 0
    plugin = bed.plugin = bed.new_plugin()
    plugin._stopping = waits = CountedWaits(bed.runtime, failures=8)
    plugin.start()
    eventually("it is connected", lambda: "connected over NRI" in bed.log.getvalue())
    assert waits.seconds == [2, 4, 8, 16, 32, 60, 60, 60]
    bed.runtime.plugins[0].hang_up()
    eventually("it is connected again", lambda: bed.log.getvalue().count("connected over NRI") > 1)
    assert waits.seconds[8:] == [1]
    bed.close()


def test_a_second_agent_waits_until_the_first_is_gone(bed: PluginNode) -> None:
    second = bed.new_plugin()
    second.start()
    eventually("it says why it waits", lambda: second.view().problem)
    assert "another memqos is connected" in str(second.view().problem)
    assert bed.runtime.registrations == 1
    assert bed.create(bed.announce(a_pod("u1"))) == OWN
    assert bed.plugin is not None
    bed.plugin.stop()
    eventually("it takes over", lambda: second.view().runtime)
    assert bed.create(bed.announce(a_pod("u2"))) == OWN
    second.stop()


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_resize_is_given_the_values_of_the_new_limit_in_the_same_call(
    bed: PluginNode, *, is_seen: bool
) -> None:
    pod = bed.announce(a_pod("u1"))
    bed.create(pod)
    path = bed.start(pod)
    if is_seen:
        bed.settle()
    bed.runtime.update("u1a", limit=192 * MI)
    assert bed.node.mi(path, HIGH) == 128
    # Both values are memqos's: whichever is there, rollback restores what was before.
    bed.node.roll_back()
    assert bed.node.mi(path, HIGH) == "max"


def test_a_resize_while_the_journal_is_compacted_is_not_forgotten(
    bed: PluginNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = bed.announce(a_pod("u1"))
    bed.create(pod)
    path = bed.start(pod)
    bed.settle()
    journal = bed.node.writer.open_journal()
    lock = journal._lock

    class TakenFirst:
        """The thread of the plugin is the first to take the lock."""

        def __enter__(self) -> None:
            monkeypatch.setattr(journal, "_lock", lock)
            bed.runtime.update("u1a", limit=192 * MI)
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    monkeypatch.setattr(node_writer, "COMPACT_AFTER", -1)
    monkeypatch.setattr(journal, "_lock", TakenFirst())
    bed.node.writer.compact_journal()
    assert bed.node.mi(path, HIGH) == 128
    bed.node.crash()
    bed.node.start()
    bed.node.roll_back()
    assert bed.node.mi(path, HIGH) == "max"


@pytest.mark.parametrize("limit", [96, 192])
def test_values_of_a_resize_stay_until_the_kubelet_reports_it(bed: PluginNode, limit: int) -> None:
    before, resized = a_pod("u1"), a_pod("u1", 64, limit)
    [container], [status] = before["spec"]["containers"], resized["status"]["containerStatuses"]
    status["resources"] = container["resources"]
    bed.create(bed.announce(resized))
    path = bed.start(resized)
    bed.settle()
    assert bed.node.mi(path, HIGH) == 96
    bed.runtime.update("u1a", limit=limit * MI)
    assert bed.node.mi(path, HIGH) == (64 + limit) // 2
    bed.node.wait(30)
    bed.node.core.note_limit_write(path, bed.node.now)
    bed.settle()
    assert bed.node.mi(path, HIGH) == (64 + limit) // 2
    # It was not carried out after all.
    bed.runtime.update("u1a", limit=128 * MI)
    bed.node.core.note_limit_write(path, bed.node.now)
    bed.settle()
    assert bed.node.mi(path, HIGH) == 96


def test_a_resize_that_ends_throttling_takes_memory_high_away(bed: PluginNode) -> None:
    pod = bed.announce(a_pod("u1"))
    bed.create(pod)
    path = bed.start(pod)
    bed.runtime.update("u1a", limit=64 * MI)  # as much as it requests
    assert bed.node.mi(path, HIGH) == "max"


def test_values_that_make_no_sense_are_neither_believed_nor_recorded(bed: PluginNode) -> None:
    pod = bed.announce(a_pod("u1"))
    bed.create(pod)
    path = bed.start(pod)
    spec = bed.runtime.specs["u1a"]["unified"]
    found = bed.runtime.plugins[0]
    event = bed.runtime.update_event("u1a", 192 * MI, {HIGH: "a lot", LOW: "-1"})
    answer = found.call("UpdateContainer", event, "Updates")
    assert dict(answer.update[0].linux.resources.unified)[HIGH] == str(128 * MI)
    assert spec == OWN
    bed.node.crash()
    bed.node.start()
    assert (path, HIGH) in {key[:2] for key in bed.node.writer.undo_entries}


def test_memory_high_is_not_lowered_below_usage_by_a_runtime(bed: PluginNode) -> None:
    pod = bed.announce(a_pod("u1"))
    bed.create(pod)
    path = bed.start(pod)
    bed.node.kernel.set(path, "memory.current", str(90 * MI))
    bed.runtime.update("u1a", limit=100 * MI)
    assert bed.node.mi(path, HIGH) == 96


def test_updates_without_a_limit_are_left_alone(bed: PluginNode) -> None:
    pod = bed.announce(a_pod("u1"))
    bed.create(pod)
    path = bed.start(pod)
    bed.runtime.update("u1a", unified={HIGH: str(80 * MI)})
    assert bed.node.mi(path, HIGH) == 80
    assert bed.answers() == {"set": 1}


def test_without_a_cri_socket_values_are_written_over_nri(bed: PluginNode) -> None:
    pod = bed.announce(a_pod("u1"))
    bed.create(pod)
    path = bed.start(pod)
    assert bed.plugin is not None
    owners = OwnerEndpoints(has_nri=True)
    router = Router(bed.node.kernel, owners, timeout=PATIENCE, nri=NriRuntime(bed.plugin, PATIENCE))
    change = Change(
        path=path,
        file=LOW,
        old=OWN[LOW],
        new="4096",
        level="container",
        setting=Setting(4096, RULE),
        pod="default/u1",
        container="a",
    )
    assert router.route(change).through == "nri"
    assert router.write([change])
    assert bed.runtime.specs["u1a"]["unified"][LOW] == "4096"
    assert bed.node.read(path, LOW) == "4096"
    bed.runtime.stop()
    eventually("it has noticed", lambda: bed.plugin is not None and bed.plugin.view().problem)
    with pytest.raises(Unreachable, match="not connected"):
        router.write([change])


def test_metrics_tell_what_containers_were_given(bed: PluginNode) -> None:
    bed.create(bed.announce(a_pod("u1")))
    assert bed.plugin is not None
    view = view_of(bed.node, nri=bed.plugin.view())
    shown = {
        family.name: [sample.value for sample in family.samples]
        for family in metric_families(view)
        if family.name.startswith("memqos_nri")
    }
    assert shown["memqos_nri_connected"] == [1]
    assert sum(shown["memqos_nri_containers_total"]) == 1
    assert shown["memqos_nri_slowest_answer_seconds"][0] > 0
