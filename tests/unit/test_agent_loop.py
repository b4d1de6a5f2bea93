"""An agent as it runs: events of real folders, signals, HTTP, and its service manager."""

import asyncio
import errno
import http.client
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

import msgspec
import pytest
from tests.eventually import PATIENCE, eventually
from tests.fakes.agent import (
    LEVELS,
    MI,
    SteppedNode,
    Threaded,
    a_pod,
    container_paths,
    kubelet_threads,
    pod_path,
    run_until,
    view_of,
)
from tests.fakes.kubelet import SilentKubelet, silent_kubelet
from tests.fakes.node import memory_folder
from tests.fakes.nri_runtime import FakeNriRuntime
from tests.fakes.pods_api import fake_pods_api

from memqos.agent import node_writer
from memqos.agent.configuration import PodSourceConfig
from memqos.agent.core.observed import NodeReading, ReadScope
from memqos.agent.events import EventLog
from memqos.agent.loop import Agent
from memqos.agent.metrics import metric_families
from memqos.agent.pod_source import agent_pod_source
from memqos.agent.sampler import Sampler
from memqos.agent.state import AgentView, agent_state
from memqos.agent.watches import WatchEvent
from memqos.agent.worker import Worker
from memqos.converge.records import IntentRecord
from memqos.errors import InputError, JournalError, MemqosError
from memqos.host import durable
from memqos.host.kubelet import NO_CREDENTIALS, KubeletEndpoint
from memqos.host.owner_discovery import OwnerEndpoints
from memqos.host.sd_notify import ServiceNotifier
from memqos.serve.exposition import exposition

LOW, HIGH = "memory.low", "memory.high"


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


class Running:
    """An agent on a node, its pods from a folder of manifests."""

    def __init__(self, folder: Path, bed: type[SteppedNode] = SteppedNode, **options: Any) -> None:
        self.manifests = folder / "manifests"
        self.manifests.mkdir(exist_ok=True)
        self.bed = bed(
            folder,
            listen="127.0.0.1:0",
            state_socket=str(folder / "state.sock"),
            **{"pods": PodSourceConfig(files=(str(self.manifests),)), **options},
        )
        if self.bed.configuration.pods.files:
            self.bed.reader.source = agent_pod_source(self.bed.configuration.pods)
        self.wanted = self.bed.configuration
        self.lines = folder / "log"
        self.stream: TextIO = self.lines.open("w", encoding="utf-8")
        self.service = ServiceNotifier({"NOTIFY_SOCKET": str(folder / "notify")})
        self.heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.heard.bind(str(folder / "notify"))
        self.heard.setblocking(False)

    def put(self, manifest: dict[str, Any]) -> None:
        name = self.manifests / f"{manifest['metadata']['uid']}.json"
        fresh = name.with_suffix(".new")
        fresh.write_text(json.dumps(manifest))
        fresh.rename(name)

    def make(self, manifest: dict[str, Any]) -> None:
        for path in (pod_path(manifest), *container_paths(manifest)):
            self.bed.kernel.make(path)

    def low(self, path: str) -> float | str:
        return self.bed.mi(path, LOW)

    def run(self, *script: Callable[[], bool]) -> int:
        """Run until all of it has come true, one after the other; the exit code."""

        async def main() -> int:
            def load() -> Any:
                if isinstance(self.wanted, Exception):
                    raise self.wanted
                return self.wanted

            log = EventLog("json", stream=self.stream)
            self.agent = Agent(
                self.bed.reader,
                self.bed.writer,
                load=load,
                log=log,
                service=self.service,
                version="0.0",
            )
            return await run_until(self.agent, *script)

        try:
            return asyncio.run(main())
        finally:
            self.bed.crash()
            self.heard.close()
            self.stream.close()

    def notifications(self) -> list[str]:
        """What the service manager heard."""
        heard = []
        while True:
            try:
                heard.append(self.heard.recv(4096).decode())
            except BlockingIOError:
                return heard

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines.read_text().splitlines()]


class TestEvents:
    def test_a_cgroup_that_appears_gets_its_values(self, folder: Path) -> None:
        node = Running(folder, resync=3600.0)
        pod = a_pod("u1")
        node.put(pod)

        def start() -> bool:
            node.make(pod)
            return True

        node.run(
            lambda: node.agent.view.status.is_complete,
            start,
            lambda: node.low(container_paths(pod)[0]) == 64,
        )
        assert node.low(LEVELS[0]) == 64

    def test_pods_of_the_kubelet_s_pods_api_are_followed(self, folder: Path) -> None:
        first, second = a_pod("u1"), a_pod("u2")
        with fake_pods_api(folder / "pods-api.sock") as api:
            source = PodSourceConfig(source="podsapi", files=(), socket=api.socket)
            node = Running(folder, pods=source)
            api.put(first)
            for pod in (first, second):
                node.make(pod)

            def start_second() -> bool:
                api.put(second)
                return True

            node.run(
                lambda: node.low(container_paths(first)[0]) == 64,
                start_second,
                lambda: node.low(container_paths(second)[0]) == 64,
            )
        state = agent_state(node.agent.view, 0.0)
        assert state["podSource"] == f"the kubelet's PodsAPI at {api.socket}"
        assert node.log()[0]["pods"] == state["podSource"]

    def test_a_manifest_that_changes_is_followed(self, folder: Path) -> None:
        node = Running(folder, resync=3600.0)
        pod = a_pod("u1", 64, 128)
        node.put(pod)
        node.make(pod)

        def change() -> bool:
            node.put(a_pod("u1", 32, 128))
            return True

        def leave() -> bool:
            (node.manifests / "u1.json").unlink()
            return True

        node.run(
            lambda: node.low(LEVELS[0]) == 64,
            change,
            lambda: node.low(LEVELS[0]) == 32,
            leave,
            lambda: not node.agent.core.node_intent.intents,
        )
        # What is no longer told of is left as it is.
        assert node.low(pod_path(pod)) == 32

    def test_cgroups_above_the_pods_may_come_later(self, folder: Path) -> None:
        node = Running(folder, resync=3600.0)
        node.bed.kernel.remove(LEVELS[0])
        pod = a_pod("u1")
        node.put(pod)

        def start() -> bool:
            for path in LEVELS:
                node.bed.kernel.make(path)
            node.make(pod)
            return True

        node.run(
            lambda: node.agent.view.status.is_complete,
            start,
            lambda: node.bed.kernel.read(container_paths(pod)[0], LOW) == str(64 * MI),
        )


class TestItsLife:
    def test_the_service_manager_hears_of_it(self, folder: Path) -> None:
        node = Running(folder)
        node.service.watchdog = 0.1
        heard: list[str] = []

        def alive() -> bool:
            heard.extend(node.notifications())
            return "WATCHDOG=1" in heard

        assert node.run(lambda: node.agent.view.status.is_complete, alive) == 0
        assert any(each.startswith("READY=1") for each in heard)

    def test_a_bad_reload_keeps_the_running_configuration(self, folder: Path) -> None:
        node = Running(folder)
        good = node.bed.configuration

        def break_it() -> bool:
            node.wanted = InputError("a factor above 1")  # type: ignore[assignment]
            os.kill(os.getpid(), signal.SIGHUP)
            return True

        def mend_it() -> bool:
            node.wanted = msgspec.structs.replace(good, factor=0.75, listen="127.0.0.1:1")
            os.kill(os.getpid(), signal.SIGHUP)
            return True

        pod = a_pod("u1")
        node.put(pod)
        node.make(pod)
        node.run(
            lambda: node.bed.mi(container_paths(pod)[0], HIGH) == 96,
            break_it,
            lambda: node.agent.view.status.reload_fault is not None,
            lambda: node.agent.core.configuration == good,
            mend_it,
            lambda: node.bed.mi(container_paths(pod)[0], HIGH) == 112,
            lambda: node.agent.view.status.reload_fault is None,
        )
        message = [line["message"] for line in node.log()]
        assert "the previous configuration stays in use: a factor above 1" in message
        assert "listen needs a restart to change" in message

    def test_sigterm_stops_it_and_values_stay(self, folder: Path) -> None:
        node = Running(folder)
        pod = a_pod("u1")
        node.put(pod)
        node.make(pod)

        def terminate() -> bool:
            os.kill(os.getpid(), signal.SIGTERM)
            return True

        assert node.run(lambda: node.low(LEVELS[0]) == 64, terminate) == 0
        assert node.low(LEVELS[0]) == 64

    def test_may_be_stopped_as_soon_as_it_says_that_it_has_started(self, folder: Path) -> None:
        handlers: list[object] = []

        class Stream(io.StringIO):
            def write(self, text: str) -> int:
                if "started" in text:
                    handlers.extend(map(signal.getsignal, (signal.SIGTERM, signal.SIGHUP)))
                return super().write(text)

        node = Running(folder)
        node.stream.close()
        node.stream = Stream()
        node.run(lambda: bool(handlers))
        assert len(handlers) == 2
        assert signal.SIG_DFL not in handlers

    def test_or_are_taken_back(self, folder: Path) -> None:
        node = Running(folder, rollback_on_exit=True)
        pod = a_pod("u1")
        node.put(pod)
        node.make(pod)
        assert node.run(lambda: node.low(LEVELS[0]) == 64) == 0
        assert node.low(LEVELS[0]) == 0
        assert node.low(container_paths(pod)[0]) == 0

    def test_also_over_nri_where_that_is_the_only_way_to_the_runtime(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(node_writer, "discover_owners", lambda *_, **__: OwnerEndpoints())
        runtime = FakeNriRuntime(folder)
        node = Running(
            folder, rollback_on_exit=True, nri="on", nri_socket=str(runtime.socket), nri_deadline=60
        )
        runtime.kernel = node.bed.kernel
        node.bed.writer._given_driver = None
        runtime.start()
        pod, after = a_pod("u1"), a_pod("u2")
        [path], [later] = container_paths(pod), container_paths(after)
        for each in (pod, after):
            node.put(each)
            node.bed.kernel.make(pod_path(each))

        def create() -> bool:
            runtime.create("u1", "a", path, 128 * MI)
            runtime.start_container("u1a")
            return True

        restored: list[str] = []
        restore = node.bed.writer.restore_all

        def restore_all() -> Any:
            restored.append(str(runtime.create("u2", "a", later, 128 * MI)))
            return restore()

        monkeypatch.setattr(node.bed.writer, "restore_all", restore_all)
        assert (
            node.run(
                lambda: bool(runtime.plugins),
                lambda: {"u1", "u2"} <= node.agent.view.node.pods_by_uid.keys(),
                create,
                lambda: node.bed.mi(path, HIGH) == 96,
            )
            == 0
        )
        assert restored == ["{}"]
        assert runtime.specs["u1a"]["unified"][HIGH] == "max"
        assert runtime.specs["u1a"]["unified"][LOW] == "0"
        assert node.bed.mi(path, HIGH) == "max"
        runtime.stop()

    def test_but_for_a_cgroup_that_only_the_journal_calls_reserved(self, folder: Path) -> None:
        node = Running(folder, rollback_on_exit=True)
        node.bed.kernel.make("/sshd", {LOW: str(7 * MI)})
        cgroup = node.bed.kernel.identity("/sshd") or 0
        journal = node.bed.writer.open_journal()
        journal.record_writes([IntentRecord("/sshd", LOW, cgroup, "0", str(7 * MI), "reserved")])
        node.run(lambda: node.agent.view.readiness_problem() is None)
        assert node.low("/sshd") == 7
        assert [line for line in node.log() if "/sshd is not changed" in line["message"]]

    def test_what_goes_wrong_is_reported_once_and_it_goes_on(self, folder: Path) -> None:
        node = Running(folder)
        pod = a_pod("u1")
        node.put(pod)
        node.make(pod)
        look = node.bed.reader.read_cgroups

        def fail(_scope: object) -> Any:
            raise RuntimeError("a surprise")

        node.bed.reader.read_cgroups = fail  # type: ignore[assignment]

        def mend() -> bool:
            node.bed.reader.read_cgroups = look  # type: ignore[method-assign]
            return True

        node.run(
            lambda: node.agent.core.report.errors["other"] >= 2,
            lambda: node.agent.view.readiness_problem() == "RuntimeError: a surprise",
            mend,
            lambda: node.low(LEVELS[0]) == 64,
            lambda: node.agent.view.readiness_problem() is None,
        )
        assert [line["message"] for line in node.log()].count("RuntimeError: a surprise") == 1

    def test_a_failing_resync_is_reported_though_the_rest_goes_on(self, folder: Path) -> None:
        node = Running(folder)
        pod = a_pod("u1")
        node.put(pod)
        node.make(pod)
        look = node.bed.reader.read_cgroups

        def fail_at_all(scope: ReadScope) -> Any:
            if LEVELS[0] in scope.subtrees:
                raise RecursionError("too deep")
            return look(scope)

        def fail() -> bool:
            node.bed.reader.read_cgroups = fail_at_all  # type: ignore[method-assign]
            node.agent.core.resync(0)
            return node.agent.view.readiness_problem() == "RecursionError: too deep"

        def drift() -> bool:
            node.bed.kernel.set(LEVELS[0], LOW, "0")
            return True

        def resync() -> str:
            text = exposition(metric_families(node.agent.view)).decode()
            return text.rpartition("\nmemqos_last_resync_successful ")[2].partition("\n")[0]

        def mend() -> bool:
            node.bed.reader.read_cgroups = look  # type: ignore[method-assign]
            return True

        node.run(
            lambda: node.agent.view.readiness_problem() is None and node.low(LEVELS[0]) == 64,
            fail,
            drift,
            lambda: node.low(LEVELS[0]) == 64,
            lambda: (
                node.agent.view.readiness_problem() == "RecursionError: too deep"
                and resync() == "0"
            ),
            mend,
            lambda: node.agent.view.readiness_problem() is None and resync() == "1",
        )

    def test_a_journal_that_cannot_be_written_is_reported(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node = Running(folder)
        pod = a_pod("u1")

        def fail() -> bool:
            def full(_where: object, _data: bytes) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            monkeypatch.setattr(durable, "append", full)
            monkeypatch.setattr(durable, "replace", full)
            node.make(pod)
            node.put(pod)
            return True

        def mend() -> bool:
            monkeypatch.undo()
            return True

        node.run(
            lambda: node.agent.view.readiness_problem() is None,
            fail,
            lambda: "the journal cannot be written" in (node.agent.view.readiness_problem() or ""),
            mend,
            lambda: node.agent.view.readiness_problem() is None and node.low(LEVELS[0]) == 64,
        )


class TestATurnThatFails:
    """Turns one by one, under a clock of the test's own."""

    @pytest.fixture
    def bed(self, folder: Path) -> Iterator[SteppedNode]:
        made = SteppedNode(folder, rollback_on_exit=False)
        made.run_pod(a_pod("u1"))
        yield made
        made.crash()

    def worker(self, bed: SteppedNode) -> Worker:
        made = self.unstarted(bed)
        made.run_turn([])
        assert made.view.status.failing is None
        return made

    def unstarted(
        self,
        bed: SteppedNode,
        service: ServiceNotifier | None = None,
        *,
        log: TextIO | None = None,
        sampler: Sampler | None = None,
    ) -> Worker:
        return Worker(
            bed.reader,
            bed.writer,
            load=lambda: bed.configuration,
            log=EventLog("text", stream=log or io.StringIO()),
            service=service or ServiceNotifier({}),
            version="0.0",
            sampler=sampler,
            clock=lambda: bed.now,
        )

    def test_before_it_reads_anything_is_not_due_again_at_once(
        self, bed: SteppedNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail() -> None:
            raise JournalError("the disk is full")

        worker = self.worker(bed)
        monkeypatch.setattr(bed.writer, "bind_creations", fail)
        worker.run_turn([WatchEvent("appeared", pod_path(a_pod("u1")))])
        assert worker.view.status.failing == "the disk is full"
        assert worker.due_at > bed.now

    def test_for_a_full_disk_leaves_an_agent_that_observes_and_is_not_restarted(
        self, bed: SteppedNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_where: object, _data: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(durable, "replace", full)
        told = mock.create_autospec(ServiceNotifier, instance=True)
        worker = self.unstarted(bed, told)
        for _ in range(10):
            bed.now += 600
            worker.run_turn([])
            assert worker.view.health_problem(bed.now) is None
            assert "No space left" in (worker.view.readiness_problem() or "")
        assert mock.call(READY=1) in told.notify.mock_calls
        assert {change.path for change in worker.view.node.pending} >= set(LEVELS[:2])
        monkeypatch.undo()
        bed.now += 600
        worker.run_turn([])
        assert worker.view.readiness_problem() is None
        assert bed.mi(LEVELS[0], LOW) == 64

    def test_for_a_journal_that_a_restart_helps_has_the_agent_restarted(
        self, bed: SteppedNode
    ) -> None:
        worker = self.worker(bed)
        shutil.rmtree(bed.configuration.journal)
        bed.run_pod(a_pod("u2"))
        bed.now += 600
        worker.run_turn([])
        assert "No such file or directory" in (worker.view.readiness_problem() or "")
        assert worker.view.health_problem(bed.now) is not None

    def test_for_a_tree_that_cannot_be_read_has_the_agent_restarted(
        self, bed: SteppedNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_scope: object) -> NodeReading:
            raise OSError(errno.EIO, "input/output error")

        worker = self.worker(bed)
        monkeypatch.setattr(bed.reader, "read_cgroups", fail)
        bed.now += 600
        worker.run_turn([])
        assert worker.view.health_problem(bed.now) is not None

    def test_to_reload_for_any_reason_is_over_for_the_service_manager(
        self, bed: SteppedNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        told = mock.create_autospec(ServiceNotifier, instance=True)
        worker = self.unstarted(bed, told)
        worker.run_turn([])
        monkeypatch.setattr("memqos.agent.worker.reconfigure", fail)
        worker.reload()
        told.notify.reset_mock()
        worker.run_turn([])
        assert "Too many open files" in (worker.view.status.reload_fault or "")
        assert worker.view.status.failing is None
        assert told.notify.mock_calls[-1] == mock.call(READY=1)

    @pytest.mark.parametrize(
        "error", [JournalError("it is damaged"), OSError(errno.EMFILE, os.strerror(errno.EMFILE))]
    )
    def test_to_restore_at_the_end_is_said_and_the_records_are_kept(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        def fail() -> None:
            raise error

        bed = SteppedNode(folder, rollback_on_exit=True)
        told = io.StringIO()
        sampler = Sampler(bed.kernel)
        worker = self.unstarted(bed, log=told, sampler=sampler)
        monkeypatch.setattr(bed.writer, "restore_all", fail)
        with mock.patch.object(sampler, "close", wraps=sampler.close) as close:
            assert worker.shut_down() == 1
        assert f"not restored: {error}" in told.getvalue()
        close.assert_called_once_with()
        bed.crash()

    def test_puts_no_resync_off(self, bed: SteppedNode, monkeypatch: pytest.MonkeyPatch) -> None:
        look = bed.reader.read_cgroups

        def fail(scope: ReadScope) -> NodeReading:
            if not worker.core.is_full_pass:
                raise OSError(errno.EIO, "input/output error")
            return look(scope)

        worker = self.worker(bed)
        bed.now += 1.0
        monkeypatch.setattr(bed.reader, "read_cgroups", fail)
        for seconds in (0.0, 0.5, 0.25, 0.5, 0.5):
            bed.now += seconds
            worker.run_turn([WatchEvent("appeared", pod_path(a_pod("u1")))])
            if worker.core.is_full_pass:
                break
        assert worker.core.is_full_pass
        assert worker.view.status.failing is None


class TestFailuresByKind:
    def errors(self, node: Running, kind: str) -> int:
        text = exposition(metric_families(node.agent.view)).decode()
        found = text.partition(f'\nmemqos_errors_total{{kind="{kind}"}} ')[2].partition("\n")[0]
        return int(found or 0)

    def start(self, folder: Path) -> Running:
        node = Running(folder)
        pod = a_pod("u1")
        node.put(pod)
        node.make(pod)
        return node

    def test_a_journal_that_cannot_be_written_is_one_of_the_journal(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_where: object, _data: bytes) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(durable, "replace", full)
        node = self.start(folder)
        node.run(lambda: self.errors(node, "journal") > 0)
        assert not self.errors(node, "read")

    @pytest.mark.parametrize("error", [OSError(errno.EIO, "input/output error"), InputError("no")])
    def test_a_tree_that_cannot_be_read_is_one_of_reading(
        self, folder: Path, error: Exception
    ) -> None:
        def fail(_scope: object) -> Any:
            raise error

        node = self.start(folder)
        node.bed.reader.read_cgroups = fail  # type: ignore[assignment]
        node.run(lambda: self.errors(node, "read") > 0)
        assert not self.errors(node, "journal")


class TestWhatIsPublished:
    """Metrics and the state are answered out of the view of the last turn."""

    PODS = 40

    def of_many_pods(self, folder: Path, **reported: Any) -> Running:
        node = Running(folder, resync=3600.0, **reported)
        for number in range(self.PODS):
            pod = a_pod(f"u{number}")
            node.put(pod)
            node.make(pod)
        return node

    def series(self, view: AgentView) -> list[str]:
        """The series of pods, without their values."""
        text = exposition(metric_families(view)).decode()
        return [line.rpartition(" ")[0] for line in text.splitlines() if ',pod="u' in line]

    def test_a_scrape_within_a_reload_or_a_pass_lacks_no_pod(self, folder: Path) -> None:
        node = self.of_many_pods(folder)
        seen: list[list[str]] = []
        planner = type(node.bed.core.planner)
        intent_of = planner.intent_of

        def scrape_and_plan(self_: Any, pod: Any) -> Any:
            # In the worker, while the pods are planned one by one.
            if turned:
                seen.append(self.series(node.agent.view))
            return intent_of(self_, pod)

        turned: list[int] = []

        def reload() -> bool:
            turned.append(1)
            node.wanted = msgspec.structs.replace(node.wanted, factor=0.75)
            node.agent.reload()
            return True

        with mock.patch.object(planner, "intent_of", scrape_and_plan):
            node.run(
                lambda: len(node.agent.view.node.pods) == self.PODS,
                reload,
                lambda: node.agent.view.node.configuration.factor == 0.75,
            )
        whole = self.series(node.agent.view)
        assert len(whole) >= 2 * 6 * self.PODS
        assert len(seen) >= self.PODS
        assert all(each == whole for each in seen)

    def test_a_scrape_between_two_writes_sees_the_values_before_both(self, folder: Path) -> None:
        node = self.of_many_pods(folder)
        totals: list[float] = []

        def scrape(_path: str, _file: str) -> None:
            files = node.agent.view.node.files
            pods = [files.get(pod_path(a_pod(f"u{n}")), {}) for n in range(self.PODS)]
            totals.append(sum(int(pod.get(LOW, 0)) for pod in pods) / MI)

        node.bed.kernel.before_write = scrape
        node.run(lambda: node.agent.view.status.is_complete)
        scrape("", "")
        *within, after = totals
        assert len(within) > 2 * self.PODS
        assert set(within) == {0.0}
        assert after == 64 * self.PODS

    def test_a_view_does_not_change_while_the_core_goes_on(self, folder: Path) -> None:
        bed = SteppedNode(folder, numa="allocate")
        pods = [bed.run_pod(a_pod(f"u{number}")) for number in range(3)]
        bed.wait(10)
        view = view_of(bed)
        metrics, state = exposition(metric_families(view)), json.dumps(agent_state(view, bed.now))
        steady = [line for line in metrics.splitlines() if b"memqos_process" not in line]
        now = bed.now
        bed.kernel.set(LEVELS[0], LOW, "0")
        bed.end_pod(pods[0])
        bed.run_pod(a_pod("new"))
        bed.reload(factor=0.75)
        bed.wait(10)
        again = exposition(metric_families(view)).splitlines()
        assert [line for line in again if b"memqos_process" not in line] == steady
        assert json.dumps(agent_state(view, now)) == state
        assert json.dumps(agent_state(view_of(bed), now)) != state

    def test_of_a_turn_that_fails_the_failure_is_published(self, folder: Path) -> None:
        node = Running(folder)
        failures: list[Exception] = [
            JournalError("/run/memqos/journal: the journal cannot be written"),
            MemqosError("a name with journal in it cannot be read"),
            OSError(errno.EMFILE, "too many open files"),
        ]
        read_cgroups = node.bed.reader.read_cgroups

        def fail(scope: ReadScope) -> Any:
            if failures:
                raise failures.pop(0)
            return read_cgroups(scope)

        node.bed.reader.read_cgroups = fail  # type: ignore[method-assign]
        node.run(lambda: node.agent.view.status.is_complete)
        errors = node.agent.view.node.counts.errors
        assert (errors["journal"], errors["read"]) == (1, 2)


class TestTheCommand:
    """In a process of its own, on a folder that looks like cgroups, observing."""

    @pytest.fixture
    def agent(self, folder: Path) -> Iterator["Command"]:
        bed = SteppedNode(folder, mode="observe")
        bed.run_pod(a_pod("u1"))
        bed.crash()
        with Command(folder) as command:
            yield command

    def test_answers_and_stops(self, agent: "Command") -> None:
        status, metrics = agent.get("/metrics")
        assert status == 200
        assert 'memqos_desired_bytes{namespace="default",pod="u1",container="a",' in metrics
        assert "memqos_converged 0\n" in metrics
        assert agent.get("/healthz") == (200, "ok\n")
        data = agent.state()
        assert data["mode"] == "observe"
        (pod,) = data["pods"]
        files = pod["cgroups"][1]["files"]
        assert files[HIGH]["desired"] == str(96 * MI)
        assert files[HIGH]["actual"] == "max"
        assert files[HIGH]["rule"] == "high/above-request"
        second = agent.another()
        assert second.returncode == 1
        assert "another memqos" in second.stderr
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(PATIENCE) == 0
        assert not (agent.folder / "state.sock").exists()


class Command:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        manifests = folder / "manifests"
        manifests.mkdir()
        (manifests / "u1.json").write_text(json.dumps(a_pod("u1")))
        self.arguments = [sys.executable, "-m", "memqos.cli.main", "agent"]
        for name, value in {
            "pods": manifests,
            "cgroup-root": folder / "cgroup",
            "journal": folder / "run",
            "recorder-folder": folder / "records",
            "kubelet": folder / "kubelet" / "config.yaml",
            "listen": "127.0.0.1:0",
            "state-socket": folder / "state.sock",
            "release": "1.38",
            "gate": "MemoryQoS=true",
            "policy": "TieredReservation",
            "factor": "0.5",
            "log-format": "json",
        }.items():
            self.arguments += [f"--{name}", str(value)]

    def __enter__(self) -> "Command":
        self.process = subprocess.Popen(self.arguments, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            started = json.loads(line)
            if started["message"] == "started":
                self.address = started["metrics"]
                break
        eventually("it is ready", lambda: self.get("/readyz")[0] == 200)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        connection.request("GET", path)
        answer = connection.getresponse()
        try:
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def state(self) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.folder / "state.sock"))
            client.sendall(b"GET /state HTTP/1.0\r\n\r\n")
            answer = b""
            while more := client.recv(1 << 16):
                answer += more
        found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
        return found

    def another(self) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.arguments, capture_output=True, text=True, check=False)


class TestAKubeletThatDoesNotAnswer:
    """It accepts every connection; a question lasts until it is broken off."""

    @pytest.fixture
    def kubelet(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentKubelet]:
        defaults = NO_CREDENTIALS, PATIENCE
        monkeypatch.setattr(KubeletEndpoint.__init__, "__defaults__", defaults)
        with silent_kubelet() as kubelet:
            yield kubelet

    def test_holds_up_no_pass_and_no_end(self, folder: Path, kubelet: SilentKubelet) -> None:
        running = Running(folder, Threaded, pods=PodSourceConfig(files=(), kubelet=kubelet.url))
        pod = a_pod("p")

        asked_at: list[float] = []

        def make() -> bool:
            asked_at.append(running.agent.view.status.passed_at)
            running.make(pod)
            return True

        def end() -> bool:
            assert kubelet.open == len(kubelet.connections) == 1
            os.kill(os.getpid(), signal.SIGTERM)
            return True

        code = running.run(
            lambda: kubelet.open == 1,
            make,
            lambda: pod_path(pod) in running.agent.core.observed.pods,
            lambda: running.agent.view.status.passed_at > asked_at[0],
            end,
        )
        assert code == 0
        eventually("the question is broken off", lambda: kubelet.open == 0)
        assert kubelet_threads() == []

    def test_is_asked_no_more_after_a_reload(self, folder: Path, kubelet: SilentKubelet) -> None:
        running = Running(folder, Threaded, pods=PodSourceConfig(files=(), kubelet=kubelet.url))
        pod = a_pod("p")
        running.put(pod)
        running.make(pod)

        def turn_to_files() -> bool:
            pods = PodSourceConfig(files=(str(running.manifests),))
            running.wanted = msgspec.structs.replace(running.wanted, pods=pods)
            running.agent.reload()
            return True

        running.run(
            lambda: kubelet.open == 1,
            turn_to_files,
            lambda: running.low(pod_path(pod)) == 64,
            lambda: kubelet.open == 0,
            lambda: kubelet_threads() == [],
        )
        assert len(kubelet.connections) == 1
