"""The parts an agent is made of: watches, its log, its service manager, what it tells."""

import errno
import io
import json
import os
import socket
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fakes.agent import LEVELS, MI, SteppedNode, a_pod, pod_path, view_of
from tests.fakes.machine import deep_folder
from tests.fakes.node import Node, memory_folder

from memqos.agent.configuration import LogFormat, RampConfig
from memqos.agent.core.node_guard import NodeGuard
from memqos.agent.core.report import Report
from memqos.agent.core.schedule import Backoff, next_ramp_value
from memqos.agent.core.view import node_view
from memqos.agent.events import EventLog
from memqos.agent.kernel_counters import CgroupCounters, CounterSchedule, pressure_of
from memqos.agent.metric_catalogue import ALL_METRICS, CADVISOR_METRICS, KEP_METRICS
from memqos.agent.metrics import metric_families
from memqos.agent.sampler import Sampler
from memqos.agent.state import AgentView, EventCounts, NriView, agent_state
from memqos.agent.watches import FolderWatches, WatchEvent
from memqos.converge.pod_sources import CachedFilePods
from memqos.converge.rollback import rollback
from memqos.errors import InputError
from memqos.host.inotify import FILE_EVENTS, FOLDER_EVENTS, FolderEvent, Inotify
from memqos.host.owner_discovery import OwnerEndpoints
from memqos.host.record_files import RecordWriter
from memqos.host.sd_notify import ServiceNotifier
from memqos.kube.selector import Selector
from memqos.plan.changes import Change
from memqos.plan.names import cgroup_names
from memqos.plan.setting import Rule, Setting
from memqos.serve.exposition import exposition

HIGH = "memory.high"
ROOT = Path(__file__).parents[2]
KERNEL_EVENTS = ("low", "high", "max", "oom", "oom_kill", "oom_group_kill")
"""Of memory.events, since Linux 5.17."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


class TestInotify:
    def test_tells_of_folders_made_and_removed(self, folder: Path) -> None:
        watching = Inotify()
        assert watching.watch(str(folder), FOLDER_EVENTS)
        (folder / "a").mkdir()
        (folder / "a").rmdir()
        assert list(watching.read()) == [
            FolderEvent(str(folder), "a", is_folder=True),
            FolderEvent(str(folder), "a", is_folder=True, is_removed=True),
        ]
        assert list(watching.read()) == []
        watching.close()

    def test_tells_of_files_put_in_the_place_of_others(self, folder: Path) -> None:
        (folder / "new").write_text("")
        watching = Inotify()
        watching.watch(str(folder), FILE_EVENTS)
        (folder / "new").rename(folder / "file")
        assert {event.name for event in watching.read()} == {"new", "file"}
        watching.close()

    def test_forgets_a_folder_that_is_gone(self, folder: Path) -> None:
        watching = Inotify()
        (folder / "a").mkdir()
        watching.watch(str(folder / "a"), FOLDER_EVENTS)
        (folder / "a").rmdir()
        assert list(watching.read()) == []
        assert not watching.is_watched(str(folder / "a"))
        assert not watching.watch(str(folder / "a"), FOLDER_EVENTS)
        watching.close()


class TestWatches:
    @pytest.fixture
    def watches(self, folder: Path) -> Iterator[FolderWatches]:
        (folder / "pods").mkdir()
        made = FolderWatches(str(folder / "cgroup"), [])
        (folder / "cgroup").mkdir()
        made.update(cgroup_names("cgroupfs"), [str(folder / "pods")])
        yield made
        made.close()

    def test_follow_cgroups_as_they_are_made(self, watches: FolderWatches, folder: Path) -> None:
        seen: list[WatchEvent] = []
        for path in ("kubepods", "kubepods/burstable", "kubepods/burstable/podu1"):
            (folder / "cgroup" / path).mkdir()
            seen += watches.read_events()
        (folder / "cgroup/kubepods/burstable/podu1/c1").mkdir()
        (folder / "cgroup/kubepods/burstable/podu1/c1/own").mkdir()
        seen += watches.read_events()
        assert [each.path for each in seen] == [
            "/kubepods",
            "/kubepods/burstable",
            "/kubepods/burstable/podu1",
            "/kubepods/burstable/podu1/c1",
        ]

    def test_are_not_spent_on_what_a_container_makes(
        self, watches: FolderWatches, folder: Path
    ) -> None:
        def count() -> int:
            return Path(f"/proc/self/fdinfo/{watches.fileno()}").read_text().count("inotify wd:")

        container = folder / "cgroup/kubepods/burstable/podu1/c1"
        container.mkdir(parents=True)
        list(watches.read_events())
        before = count()
        with deep_folder(container):
            watches.update(cgroup_names("cgroupfs"), [str(folder / "pods")])
            assert list(watches.read_events()) == []
            assert count() == before

    def test_miss_nothing_that_is_made_at_once(self, watches: FolderWatches, folder: Path) -> None:
        os.makedirs(folder / "cgroup/kubepods/burstable/podu1/c1")
        assert next(iter(watches.read_events())) == WatchEvent("appeared", "/kubepods")
        (folder / "cgroup/kubepods/burstable/podu1/c2").mkdir()
        assert WatchEvent("appeared", "/kubepods/burstable/podu1/c2") in watches.read_events()

    def test_tell_of_limits_that_are_written(self, watches: FolderWatches, folder: Path) -> None:
        made_early, made_late = (
            folder / "cgroup/kubepods" / pod / "c1" for pod in ("podu1", "podu2")
        )
        os.makedirs(made_early)
        list(watches.read_events())
        made_late.parent.mkdir()
        list(watches.read_events())
        made_late.mkdir()
        (made_late / "own").mkdir()
        list(watches.read_events())
        for container in (made_early, made_late):
            (container / "memory.high").write_text("max\n")
            (container / "memory.max").write_text("max\n")
        (made_late / "own" / "memory.max").write_text("max\n")
        assert list(watches.read_events()) == [
            WatchEvent("limited", "/kubepods/podu1/c1"),
            WatchEvent("limited", "/kubepods/podu2/c1"),
        ]

    def test_tell_of_manifests_in_new_folders_too(
        self, watches: FolderWatches, folder: Path
    ) -> None:
        (folder / "pods" / "more").mkdir()
        assert list(watches.read_events()) == [WatchEvent("pods")]
        (folder / "pods" / "more" / "pod.json").write_text("{}")
        assert WatchEvent("pods") in watches.read_events()


class TestTheServiceManager:
    def test_hears_at_a_path_and_in_the_abstract_namespace(self, folder: Path) -> None:
        for address in (str(folder / "notify"), f"@memqos-test-{os.getpid()}"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
                heard.bind(address.replace("@", "\0"))
                ServiceNotifier({"NOTIFY_SOCKET": address}).notify(READY=1, STATUS="fine")
                assert heard.recv(100) == b"READY=1\nSTATUS=fine"

    def test_need_not_be_there(self, folder: Path) -> None:
        ServiceNotifier({}).notify(READY=1)
        ServiceNotifier({"NOTIFY_SOCKET": str(folder / "nobody")}).notify(READY=1)

    def test_is_not_told_where_there_is_no_descriptor_left(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr(socket, "socket", fail)
        ServiceNotifier({"NOTIFY_SOCKET": str(folder / "notify")}).notify(WATCHDOG=1)

    def test_says_how_often_it_wants_to_hear(self) -> None:
        mine = str(os.getpid())
        assert ServiceNotifier({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": mine}).watchdog == 3
        assert ServiceNotifier({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}).watchdog is None
        assert ServiceNotifier({}).watchdog is None


class TestTheLog:
    def test_is_a_line_an_event_whatever_the_event_holds(self) -> None:
        stream = io.StringIO()
        log = EventLog("text", stream=stream)
        log.log("error", "a\nb\x9b\u202e", place="x y", count=3, pod="p\x7f\x9b\u202e")
        (line,) = stream.getvalue().splitlines()
        end = r' error: a\nb\u009b\u202e place="x y" count=3 pod="p\u007f\u009b\u202e"'
        assert line.endswith(end)

    def test_can_be_read_by_programs(self) -> None:
        stream = io.StringIO()
        EventLog("json", stream=stream).log("warning", "a\nb\x9b\u202e", place="x")
        assert stream.getvalue().removesuffix("\n").isprintable()
        record = json.loads(stream.getvalue())
        assert (record["level"], record["place"]) == ("warning", "x")
        assert record["message"] == "a\nb\x9b\u202e"

    def test_has_no_time_of_its_own_in_the_journal(self) -> None:
        stream = io.StringIO()
        EventLog("text", to_journal=True, stream=stream).log("warning", "hello")
        assert stream.getvalue() == "<4>warning: hello\n"

    def test_loses_what_cannot_be_written(self) -> None:
        class Full(io.StringIO):
            def flush(self) -> None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        EventLog("text", stream=Full()).log("warning", "hello")

    @pytest.mark.parametrize("form", ["text", "json"])
    def test_takes_names_that_are_no_text(self, form: LogFormat) -> None:
        stream = io.StringIO()
        EventLog(form, stream=stream).log("warning", "a\udcff", place="/b\udcff", count=1)
        (line,) = stream.getvalue().splitlines()
        assert '/b?"' in line
        line.encode()

    def test_is_not_flooded(self) -> None:
        report = Report()
        for number in range(50_000):
            report.log("info", str(number))
        assert len(report.take_log_events()) == 10_000
        assert report.take_log_events() == []


class TestPacing:
    @pytest.mark.parametrize(
        ("old", "usage", "expected"),
        [
            ("max", 50, "100"),  # below the target: at once
            ("max", 200, "180"),  # a step below usage
            ("150", 200, None),  # further down than a step already
            ("max", 105, "100"),  # the step reaches the target
        ],
    )
    def test_memory_high_goes_down_by_steps(
        self, old: str, usage: int, expected: str | None
    ) -> None:
        setting = Setting(100, Rule("r", "s", "t"))
        change = Change(
            path="/p", file=HIGH, old=old, new="100", level="container", setting=setting
        )
        assert next_ramp_value(change, usage, RampConfig(step=0.1), 1) == expected

    def test_waits_double_up_to_a_limit(self) -> None:
        backoff = Backoff(1, 10)
        assert [backoff.note_failure("a", 0) for _ in range(6)] == [1, 2, 4, 8, 10, 10]
        assert backoff.note_failure("b", 0) == 1
        assert backoff.is_waiting("a", 9.9)
        assert not backoff.is_waiting("a", 10)
        backoff.clear("a")
        assert backoff.note_failure("a", 0) == 1


class TestKeptFiles:
    def write(self, file: Path, uid: str) -> None:
        file.write_text(json.dumps(a_pod(uid)))
        os.utime(file, (1, 1))

    def test_are_decoded_only_when_they_have_changed(self, folder: Path) -> None:
        self.write(folder / "a.json", "u1")
        source = CachedFilePods([str(folder)])
        (first,) = source.pods()
        self.write(folder / "b.json", "u2")
        again, other = source.pods()
        assert again is first
        assert other.metadata.uid == "u2"
        (folder / "a.json").unlink()
        assert source.pods() == [other]

    def test_are_decoded_again_when_they_were_just_written(self, folder: Path) -> None:
        file = folder / "a.json"
        self.write(file, "u1")
        os.utime(file)
        source = CachedFilePods([str(folder)])
        source.pods()
        file.write_text(json.dumps(a_pod("u2")))
        (pod,) = source.pods()
        assert pod.metadata.uid == "u2"

    def test_may_be_none_but_not_broken(self, folder: Path) -> None:
        source = CachedFilePods([str(folder)])
        assert source.pods() == []
        (folder / "a.json").write_text("{")
        with pytest.raises(InputError):
            source.pods()
        with pytest.raises(InputError, match="no such file"):
            CachedFilePods([str(folder / "nowhere")]).pods()


class TestAJournalOverManyBatches:
    def test_restores_what_was_there_before_the_first(self, folder: Path) -> None:
        from memqos.converge.apply import apply
        from memqos.converge.direct_driver import DirectDriver
        from memqos.converge.journal import hierarchy_of, open_journal
        from memqos.converge.steps import WriteOptions

        node = Node(folder)
        before = node.kernel.contents()
        driver, cautions = DirectDriver(node.kernel), WriteOptions(4096, 0)
        place = "/kubepods", "memory.min"
        with open_journal(node.journal_folder, hierarchy_of(node.kernel, node.boot)) as journal:
            for amount in (1, 2, 3):
                steps = node.steps({place: str(amount * MI)})
                apply(steps, node.kernel, driver, journal, cautions)
            assert len(journal.undo_entries) == len(node.read_journal().undo_entries) == 1
            rollback(node.kernel, driver, journal, cautions)
            assert node.kernel.contents() == before
            # And goes on afterwards.
            apply(node.steps({place: str(MI)}), node.kernel, driver, journal, cautions)
            assert node.read_journal().undo_entries == journal.undo_entries
        node.rollback()
        assert node.kernel.contents() == before


class TestWhenItReadsCounts:
    def times(self, asked: list[int], until: int) -> list[int]:
        """When it looks, given when it is asked; it has the time every second."""
        sampling, looks = CounterSchedule(), []
        for now in range(until):
            if now in asked:
                sampling.note_scrape(now)
            if sampling.take_due(now):
                looks.append(now)
        return looks

    def test_is_never_where_nobody_asks(self) -> None:
        assert self.times([], 1000) == []

    @pytest.mark.parametrize("interval", [15, 30, 60, 240])
    def test_is_once_for_each_question_and_shortly_before_the_next(self, interval: int) -> None:
        asked = list(range(7, 20 * interval, interval))
        looks = self.times(asked, asked[-1] + 1)
        assert looks[0] == asked[0]
        assert looks[1:] == [each - 5 for each in asked[2:]]

    def test_is_not_more_often_than_every_ten_seconds(self) -> None:
        looks = self.times(list(range(200)), 200)
        assert all(later - earlier >= 10 for earlier, later in pairwise(looks))
        assert len(looks) > 15

    def test_ends_when_questions_end_and_begins_at_once_when_they_come_back(self) -> None:
        assert self.times([0, 30, 60, 5000], 6000) == [0, 55, 85, 5000]


class TestWhatItTells:
    @pytest.fixture
    def node(self, folder: Path) -> SteppedNode:
        bed = SteppedNode(
            folder, kep_metrics=True, cadvisor_metrics=True, min_share=0.01, numa="allocate"
        )
        bed.run_pod(a_pod("u1", annotations={"memqos.io/mode": "nonsense"}))
        out = bed.run_pod(a_pod("g1", 100, 100))
        bed.wait(10)
        bed.kernel.set(LEVELS[0], "memory.low", "0")
        bed.wait(1)
        bed.kernel.set(pod_path(out), "memory.low", str(MI))
        bed.core.report.restores["memory.high", "written"] += 1
        return bed

    @pytest.fixture
    def view(self, node: SteppedNode) -> AgentView:
        recorder = RecordWriter(str(node.folder / "records"))
        (container, *_) = [each.path for each in node_view(node.core).observed_cgroups()][1:]
        return view_of(
            node,
            Sampler(node.kernel, guard=NodeGuard(), recorder=recorder),
            counters={
                container: CgroupCounters(5, {"high": 7, "oom": 0}, {"some": 1.5, "full": 0.5})
            },
            events=EventCounts(0, 0),
            nri=NriView(
                runtime="containerd 2.1.9",
                problem=None,
                is_contested=False,
                answers={"set": 1},
                slowest_answer=0.001,
            ),
            resynced=1.7e9,
        )

    def text(self, view: AgentView) -> str:
        return exposition(metric_families(view)).decode()

    def test_are_metrics_that_are_promised(self, view: AgentView) -> None:
        found = list(metric_families(view))
        for family in found:
            metric = ALL_METRICS[family.name]
            assert (family.kind, family.help) == (metric.kind, metric.help)
            for sample in family.samples:
                for label in metric.labels:
                    assert f'{label}="' in sample.labels, family.name
        assert {family.name for family in found} == set(ALL_METRICS)

    def test_is_nothing_left_to_write_beside_a_canary(self, folder: Path) -> None:
        bed = SteppedNode(folder, canary=Selector(labels="canary=yes"))
        bed.run_pod(a_pod("u1", labels={"canary": "yes"}))
        bed.run_pod(a_pod("u2"))
        bed.settle()
        text = self.text(view_of(bed))
        assert "memqos_converged 1\n" in text
        assert 'memqos_pending_changes{file="memory.high"} 1\n' in text

    def test_are_the_values_wanted_and_found(self, view: AgentView) -> None:
        text = self.text(view)
        labels = 'namespace="default",pod="u1",container="a"'
        assert f'memqos_desired_bytes{{{labels},file="memory.high"}} {96 * MI}\n' in text
        assert f'memqos_actual_bytes{{{labels},file="memory.low"}} {64 * MI}\n' in text
        assert f'memqos_level_actual_bytes{{level="node",file="memory.low"}} {64 * MI}\n' in text
        assert f"kubelet_memory_qos_memory_high_bytes{{{labels}}} {96 * MI}\n" in text

    def test_are_sums_as_a_kubelet_makes_them_of_what_pods_request(self, view: AgentView) -> None:
        text = self.text(view)
        # g1 is left out, so that kubepods holds nothing for it; a kubelet counts it all the same.
        assert view.node.files[LEVELS[0]]["memory.min"] == "0"
        assert f"kubelet_memory_qos_node_memory_min_bytes {100 * MI}\n" in text
        assert f"kubelet_memory_qos_node_memory_low_bytes {64 * MI}\n" in text

    @pytest.mark.parametrize(
        ("options", "sums"),
        [
            ({"policy": "None"}, (0, 0)),
            ({"policy": "HardReservation"}, (164 * MI, 0)),
            ({"release": "1.35"}, (164 * MI, 0)),
        ],
    )
    def test_are_sums_of_what_the_policy_reserves(
        self, options: dict[str, Any], sums: tuple[int, int], folder: Path
    ) -> None:
        text = self.of_two_pods(SteppedNode(folder, kep_metrics=True, **options))
        assert f"kubelet_memory_qos_node_memory_min_bytes {sums[0]}\n" in text
        assert f"kubelet_memory_qos_node_memory_low_bytes {sums[1]}\n" in text

    def test_are_no_sums_where_memory_qos_is_off(self, folder: Path) -> None:
        bed = SteppedNode(folder, kep_metrics=True, gates={})
        assert "kubelet_memory_qos_node_memory_min_bytes 0\n" in self.of_two_pods(bed)

    def of_two_pods(self, bed: SteppedNode) -> str:
        bed.run_pod(a_pod("u1"))
        bed.run_pod(a_pod("g1", 100, 100))
        bed.wait(2)
        return self.text(view_of(bed))

    def test_are_what_the_kernel_counts_and_what_others_do(self, view: AgentView) -> None:
        text = self.text(view)
        labels = 'namespace="default",pod="u1",container="a"'
        assert f'memqos_memory_events_total{{{labels},event="high"}} 7\n' in text
        assert f'memqos_memory_pressure_seconds_total{{{labels},kind="some"}} 1.5\n' in text
        assert 'memqos_drift_total{file="memory.low",cause="kubelet-restart"} 1\n' in text
        assert f'memqos_left_out_bytes{{namespace="default",pod="g1"}} {100 * MI}\n' in text
        assert 'memqos_annotations_refused{namespace="default",pod="u1"} 1\n' in text

    def test_are_as_many_series_as_the_page_of_metrics_says(self, folder: Path) -> None:
        bed = SteppedNode(folder, kep_metrics=True, cadvisor_metrics=True)
        for name in ("u1", "u2"):
            bed.run_pod(a_pod(name))
        bed.settle()
        counted = CgroupCounters(
            5, dict.fromkeys(KERNEL_EVENTS, 0), dict.fromkeys(("some", "full"), 0.0)
        )
        paths = [each.path for each in node_view(bed.core).observed_cgroups()]
        recorder = RecordWriter(str(folder / "records"))
        view = view_of(
            bed,
            Sampler(bed.kernel, guard=NodeGuard(), recorder=recorder),
            counters=dict.fromkeys(paths, counted),
            events=EventCounts(0, 0),
            resynced=1.7e9,
        )
        optional = {each.name for each in KEP_METRICS}, {each.name for each in CADVISOR_METRICS}
        counts = Counter[str]()
        pressure = folder / "proc" / "pressure" / "memory"
        pressure.parent.mkdir(exist_ok=True)
        pressure.write_text("some total=0\nfull total=0\n")
        for family in metric_families(view, str(folder / "proc")):
            kind = next(
                (
                    name
                    for name, names in zip(("kep", "cadvisor"), optional, strict=True)
                    if family.name in names
                ),
                "memqos",
            )
            for sample in family.samples:
                if 'pod="u2",container="a"' in sample.labels:
                    counts[f"{kind} container"] += 1
                elif 'pod="u2"' in sample.labels:
                    counts[f"{kind} pod"] += 1
                elif 'pod="u1"' not in sample.labels:
                    counts[f"{kind} node"] += 1
        page = (ROOT / "docs" / "metrics.md").read_text()
        container, pod, node = (counts[f"memqos {each}"] for each in ("container", "pod", "node"))
        total = 110 * (pod + 2 * container) + node
        for line in (
            f"| container | {container} | {counts['kep container']} | "
            f"{counts['cadvisor container']} |",
            f"| pod, without its containers | {pod} | {counts['kep pod']} | "
            f"{counts['cadvisor pod']} |",
            f"| node | {node} | {counts['kep node']} | {counts['cadvisor node']} |",
            f"110 × ({pod} + 2 × {container}) + {node} = {total:,}",
        ):
            assert line in page

    def test_are_reasons(self, view: AgentView) -> None:
        data = json.loads(json.dumps(agent_state(view, view.status.passed_at)))
        pods = {pod["pod"]: pod for pod in data["pods"]}
        assert pods["default/g1"]["leftOut"]
        own = pods["default/g1"]["cgroups"][0]["files"]["memory.min"]
        assert (own["desired"], own["actual"], own["rule"]) == ("0", "0", "memqos/left-out")
        assert own["steps"][0] == "claim = 100Mi"
        assert data["levels"][0]["files"]["memory.low"]["steps"] == ["sum over 2 pods = 64Mi"]
        assert data["drift"][0]["cause"] == "kubelet-restart"

    def test_is_whether_it_does_its_work(self, view: AgentView) -> None:
        now = view.status.passed_at
        assert view.readiness_problem() == (
            "the node and its pods have not been read completely yet; the log shows the errors"
        )
        assert view.health_problem(now + 60) is None
        assert view.health_problem(now + 600) == "no reconcile has succeeded for 600 s"

    def test_is_that_only_parts_of_the_node_are_looked_at(self, view: AgentView) -> None:
        status = replace(view.status, is_complete=True)
        now = status.passed_at
        assert replace(view, status=status).readiness_problem() is None
        failing = replace(status.with_failure("too deep", now + 1), passed_at=now + 200)
        view = replace(view, status=failing.with_failure("too deep", now + 100))
        assert view.readiness_problem() == "too deep"
        assert "memqos_last_resync_successful 0\n" in self.text(view)
        assert view.health_problem(now + 181) is None
        assert view.health_problem(now + 201) == "resync has failed for 200 s: too deep"
        view = replace(view, status=replace(view.status, failing=None))
        assert view.readiness_problem() is None
        assert view.health_problem(now + 201) is None
        assert "memqos_last_resync_successful 1\n" in self.text(view)

    def test_is_that_the_journal_is_behind(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        bed.run_pod(a_pod("u1"))
        bed.settle()
        bed.writer.note_journal_failure("No space left on device", bed.core.report)
        view = view_of(bed, is_complete=True, journal_fault=bed.writer.journal_fault)
        assert view.readiness_problem() == "the journal cannot be written: No space left on device"
        bed.writer.rewrite_journal()
        assert bed.writer.journal_fault is None


def test_pressure_is_reported_in_seconds() -> None:
    text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 total=2\n"
    assert pressure_of(text) == {"some": 1.5, "full": 2e-06}


class TestWhoWrites:
    @pytest.fixture(autouse=True)
    def of_a_kernel(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("memqos.host.owner_discovery._is_cgroup2", lambda _: True)

    def test_nobody_is_asked_where_the_files_are_meant(self, folder: Path) -> None:
        writer = SteppedNode(folder, direct=True).writer
        assert writer.discover_owners() == (OwnerEndpoints(is_direct=True), None)

    def test_a_runtime_goes_by_the_socket_it_was_given(self, folder: Path) -> None:
        path = folder / "own.sock"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
            listening.listen()
            found, why = SteppedNode(folder, cri_socket=str(path)).writer.discover_owners()
        assert set(found.sockets.values()) == {str(path)}
        assert why is None

    def test_one_that_does_not_answer_is_reported_and_the_node_is_kept(self, folder: Path) -> None:
        bed = SteppedNode(folder, cri_socket=str(folder / "gone.sock"))
        pod = bed.run_pod(a_pod("u1"))
        bed.settle()
        assert bed.mi(pod_path(pod), "memory.low") == 64
        assert bed.log_events("no container runtime answers here")
        assert bed.core.report.errors["source"] == 1
