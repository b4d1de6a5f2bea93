"""Reports of out-of-memory kills, as kernels of several releases write them."""

import os
from pathlib import Path

import pytest
from tests.builders import oom_reports

from memqos.errors import Unreachable
from memqos.host.kmsg import KernelLog
from memqos.kernel.log import LogRecord, record_of
from memqos.kernel.oom_report import LimitUsage, OomReader, OomReport, Task, Victim

POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7.slice"
SCOPE = f"{POD}/cri-containerd-ab12.scope"

LOGS = Path(__file__).parents[1] / "oom_logs"
OF_CGROUP = (LOGS / "cgroup-6.1.log").read_text()
TOGETHER = (LOGS / "together-6.1.log").read_text()
OF_MACHINE = (LOGS / "machine-6.12.log").read_text()
KILLED_4_19 = (
    "Memory cgroup out of memory: Killed process 77 (java), total-vm:900kB, anon-rss:800kB, "
    "file-rss:0kB, shmem-rss:0kB"
)


def log(text: str, start: int = 100) -> list[LogRecord]:
    lines = text.strip().splitlines()
    return [LogRecord(start + n, 5_000_000 + n, line) for n, line in enumerate(lines)]


def the_report(text: str) -> OomReport:
    [report] = oom_reports(log(text))
    return report


def test_a_kill_in_a_cgroup_names_the_cgroup_the_victim_and_the_others() -> None:
    assert the_report(OF_CGROUP) == OomReport(
        at=5_000_000,
        sequence=100,
        victims=(
            Victim(
                pid=4711,
                comm="worker 1",
                anon=517996 << 10,
                file=4 << 10,
                shmem=0,
                uid=1000,
                page_tables=1068 << 10,
                oom_score_adj=953,
            ),
        ),
        constraint="memcg",
        oom_cgroup=POD,
        task_cgroup=SCOPE,
        invoked_by="worker 1",
        memory=LimitUsage(512 << 20, 512 << 20),
        swap=LimitUsage(0, None),
        statistics={"anon": 530579456, "file": 0},
        tasks=(
            Task(
                pid=4700, comm="pause", oom_score_adj=-998, rss=1, swap=0, page_tables=28672, uid=0
            ),
            Task(
                pid=4711,
                comm="worker 1",
                oom_score_adj=953,
                rss=129500,
                swap=0,
                page_tables=1093632,
                uid=1000,
            ),
            Task(
                pid=4712,
                comm="sh",
                oom_score_adj=953,
                rss=300,
                swap=12,
                page_tables=45056,
                uid=1000,
            ),
        ),
    )


def test_a_kill_on_the_whole_machine_has_no_cgroup() -> None:
    report = the_report(OF_MACHINE)
    assert report.constraint == "none"
    assert report.oom_cgroup is None
    assert report.task_cgroup == "/kubepods/besteffort/pod9/x"
    assert report.victims[0].comm == "stress-ng-vm (1)"
    assert report.tasks[1] == Task(
        pid=812,
        comm="stress-ng-vm (1)",
        oom_score_adj=1000,
        rss=150000,
        swap=500,
        page_tables=1300000,
        uid=0,
    )


def test_all_that_die_with_the_victim_are_named_once() -> None:
    report = the_report(OF_CGROUP + TOGETHER)
    assert report.together == SCOPE
    assert [victim.pid for victim in report.victims] == [4711, 4712]


def test_a_report_of_which_only_the_last_line_is_left_still_has_the_kill() -> None:
    report = the_report(KILLED_4_19)
    assert report.constraint == "memcg"
    assert report.victims == (Victim(pid=77, comm="java", anon=800 << 10, file=0, shmem=0),)


def test_reports_one_after_another_are_not_mixed_up() -> None:
    first, second = oom_reports([*log(OF_CGROUP), *log(OF_MACHINE, 200)])
    assert (first.constraint, second.constraint) == ("memcg", "none")
    assert second.memory is None
    again = oom_reports(log(f"{KILLED_4_19}\n{KILLED_4_19.replace('77', '78')}"))
    assert [report.victims[0].pid for report in again] == [77, 78]


def test_a_line_logged_in_pieces_is_put_together() -> None:
    records = []
    for record in log(OF_CGROUP):
        before, comma, after = record.text.partition(",oom_memcg=")
        records.append(LogRecord(record.sequence * 2, record.at, before))
        if comma:
            records.append(LogRecord(record.sequence * 2 + 1, record.at, comma + after, True))
    [report] = oom_reports(records)
    assert report.task_cgroup == SCOPE


def test_records_that_were_lost_show() -> None:
    records = log(OF_CGROUP)
    [report] = oom_reports(records[:3] + records[6:])
    assert not report.complete
    assert report.victims


def test_a_report_is_returned_only_when_it_has_ended() -> None:
    reader = OomReader()
    assert [r for record in log(OF_CGROUP) for r in reader.feed(record)] == []
    assert len(list(reader.flush())) == 1
    assert list(reader.flush()) == []


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ("6,339,5140900,-;text\n", LogRecord(339, 5140900, "text")),
        ("4,340,1,-,caller=T812;a;b\n SUBSYSTEM=acpi\n", LogRecord(340, 1, "a;b")),
        ("6,341,2,c;, more\n", LogRecord(341, 2, ", more", True)),
        (r"6,342,3,-;anon 1\x0afile 2", LogRecord(342, 3, "anon 1\nfile 2")),
        (r"6,343,3,-;gr\xc3\xbcn", LogRecord(343, 3, "grün")),
        ("14,344,3,-;Out of memory: said by a program", None),
        ("nonsense", None),
        ("6,x,3,-;text", None),
        ("", None),
    ],
)
def test_records_are_read_as_the_kernel_returns_them(line: str, record: LogRecord | None) -> None:
    assert record_of(line) == record


def test_a_log_that_may_not_be_read_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="only privileged containers have it"):
        KernelLog(str(tmp_path / "kmsg"))


def test_a_log_is_followed_without_waiting(tmp_path: Path) -> None:
    device = tmp_path / "kmsg"
    os.mkfifo(device)
    writing = os.open(device, os.O_RDWR)
    try:
        with pytest.raises(Unreachable):  # a pipe cannot be wound on, a device can
            KernelLog(str(device))
    finally:
        os.close(writing)
    device.unlink()
    device.write_bytes(b"6,1,2,-;one\n")
    log = KernelLog(str(device), from_start=True)
    assert list(log.records()) == [LogRecord(1, 2, "one")]
    assert list(log.records()) == []
    log.close()
