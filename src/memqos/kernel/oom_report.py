"""The kernel's report of an out-of-memory kill, line by line out of its log.

A report has four parts, of which any may be missing: the task that allocated memory, the state of
the memory (of a cgroup, or of the machine), a table of the candidates, and the victims.
Columns of the table are found by their headings, as they differ between releases (rss_anon and its
like came with 6.9). Everything a process chooses itself, its name above all, may contain anything.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from memqos.kernel.log import LogRecord, is_number
from memqos.kernel.process import Process

OomConstraint = Literal["memcg", "none", "cpuset", "memory_policy"]

_MOST_TASKS: Final = 32_768  # the default of kernel.pid_max: a bound on memory, not a rule
_SIZES: Final = r"total-vm:(?P<total_vm>\d+)kB, anon-rss:(?P<anon>\d+)kB"

_INVOKED: Final = re.compile(
    r"^(?P<comm>.*) invoked oom-killer: gfp_mask=.*, order=(?P<order>-?\d+), "
    r"oom_score_adj=(?P<adj>-?\d+)$"
)
_USAGE: Final = re.compile(
    r"^(?P<what>memory|swap|memory\+swap): usage (?P<usage>\d+)kB, limit (?P<limit>\d+)kB, "
    r"failcnt \d+$"
)
_STATISTICS: Final = re.compile(r"^Memory cgroup stats for /.*:$")
_STATISTIC: Final = re.compile(r"^(?P<name>[a-z_0-9]{1,40}) (?P<bytes>\d{1,19})$", re.ASCII)
_MOST_STATISTICS: Final = 100
_HEADINGS: Final = re.compile(r"^\[ *pid *\](?P<columns>( +[a-z_]+)+) +name$")
_TASK: Final = re.compile(r"^\[ *(?P<pid>\d+)\] *(?P<rest>.*)$")
_CHOSEN: Final = re.compile(
    r"^oom-kill:constraint=CONSTRAINT_(?P<constraint>[A-Z_]+),(?P<rest>.*)$"
)
_VICTIM: Final = re.compile(r",task=(?P<comm>.*),pid=(?P<pid>\d+),uid=(?P<uid>\d+)$")
_MEMCG: Final = re.compile(r",oom_memcg=(?P<oom>/.*),task_memcg=(?P<task>/.*)$")
_GLOBAL: Final = re.compile(r",global_oom,task_memcg=(?P<task>/.*)$")
_KILLED: Final = re.compile(
    r"^(?P<why>(?:Memory cgroup o|O)ut of memory(?: \(oom_kill_allocating_task\))?): "
    rf"Killed process (?P<pid>\d+) \((?P<comm>.*)\),? {_SIZES}, file-rss:(?P<file>\d+)kB, "
    r"shmem-rss:(?P<shmem>\d+)kB"
    r"(?:, UID:(?P<uid>\d+))?(?: pgtables:(?P<pgtables>\d+)kB)?"
    r"(?: oom_score_adj:(?P<adj>-?\d+))?$"
)
_TOGETHER: Final = re.compile(
    r"^Tasks in (?P<path>/.*) are going to be killed due to memory\.oom\.group set$"
)
_CONSTRAINTS: Final[dict[str, OomConstraint]] = {
    "MEMCG": "memcg",
    "NONE": "none",
    "CPUSET": "cpuset",
    "MEMORY_POLICY": "memory_policy",
}


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table: a task that could have been killed. Memory is in pages."""

    pid: int
    comm: str
    oom_score_adj: int
    rss: int
    swap: int = 0
    page_tables: int = 0
    """Bytes."""
    uid: int | None = None


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """A process that was killed. Memory is in bytes; what an older kernel does not log is None."""

    pid: int
    comm: str
    anon: int
    file: int
    shmem: int
    uid: int | None = None
    page_tables: int | None = None
    oom_score_adj: int | None = None


class LimitUsage(msgspec.Struct, frozen=True):
    """A limit that was reached, in bytes; None where there is none."""

    usage: int
    limit: int | None


class OomReport(msgspec.Struct, frozen=True, kw_only=True):
    """One out-of-memory event: the cause, the victims and the candidates."""

    at: int
    """Microseconds since the machine was started."""
    sequence: int
    """Of its first record."""
    victims: tuple[Victim, ...]
    """The first was chosen; others die with it where memory.oom.group is set."""
    constraint: OomConstraint | None = None
    """What was out of memory: a cgroup, or the machine (`none`)."""
    oom_cgroup: str | None = None
    """The cgroup that had reached its limit."""
    task_cgroup: str | None = None
    """The cgroup of the victim."""
    invoked_by: str | None = None
    memory: LimitUsage | None = None
    swap: LimitUsage | None = None
    statistics: Mapping[str, int] = {}
    """Bytes of the cgroup that had reached its limit by memory.stat, as far as they are logged."""
    tasks: tuple[Task, ...] = ()
    together: str | None = None
    """The cgroup that was killed as a whole."""
    complete: bool = True
    """Whether no record of the log was lost in between."""

    def processes(self, page_size: int) -> tuple[Process, ...]:
        """The tasks of the table, in the order of the kernel."""
        return tuple(
            Process(
                comm=task.comm,
                oom_score_adj=task.oom_score_adj,
                pid=task.pid,
                rss=task.rss * page_size,
                swap=task.swap * page_size,
                page_tables=task.page_tables,
            )
            for task in self.tasks
        )


class OomReader:
    """Finds reports in records as they come.

    A report is returned when the next one begins, or by `flush`: call that when the log has been
    silent for a while, as the kills of a whole cgroup may be logged one after another.
    """

    def __init__(self) -> None:
        self._parts = _Parts()
        self._pending: LogRecord | None = None
        self._next: int | None = None

    def feed(self, record: LogRecord) -> Iterator[OomReport]:
        """Reports that have ended before this record."""
        if record.continues and self._pending is not None:
            self._pending = msgspec.structs.replace(
                self._pending, text=self._pending.text + record.text
            )
            self._next = record.sequence + 1
            return
        if self._pending is not None:
            yield from self._read_record(self._pending)
        if self._next is not None and record.sequence > self._next:
            self._parts.lost = True
        self._pending, self._next = record, record.sequence + 1

    def flush(self) -> Iterator[OomReport]:
        """The last report, as far as it was logged, if it names a victim."""
        if self._pending is not None:
            yield from self._read_record(self._pending)
            self._pending = None
        yield from self._finish_report()

    def _read_record(self, record: LogRecord) -> Iterator[OomReport]:
        for line in record.text.split("\n"):
            if self._parts.ends_before(line):
                yield from self._finish_report()
            self._parts.add_line(line, record)

    def _finish_report(self) -> Iterator[OomReport]:
        report = self._parts.report()
        self._parts = _Parts()
        if report is not None:
            yield report


class _Parts:
    """What has been read of one report."""

    def __init__(self) -> None:
        self.lost = False
        self._first: LogRecord | None = None
        self._columns: list[str] | None = None
        self._tasks: list[Task] = []
        self._victims: list[Victim] = []
        self._values: dict[str, str] = {}
        self._usages: dict[str, LimitUsage] = {}
        self._statistics: dict[str, int] | None = None
        self._constraint: OomConstraint | None = None

    def ends_before(self, line: str) -> bool:
        """Whether a line belongs to the next report."""
        is_next_victim = (
            bool(self._victims) and "together" not in self._values and _KILLED.match(line)
        )
        return bool(is_next_victim or _INVOKED.match(line))

    def add_line(self, line: str, record: LogRecord) -> None:
        """Parse a line, if it is part of a report."""
        if self._parse(line) and self._first is None:
            self._first = record

    def report(self) -> OomReport | None:
        if self._first is None or not self._victims:
            return None
        return OomReport(
            at=self._first.at,
            sequence=self._first.sequence,
            victims=tuple(self._victims),
            constraint=self._constraint,
            oom_cgroup=self._values.get("oom"),
            task_cgroup=self._values.get("task"),
            invoked_by=self._values.get("invoked"),
            memory=self._usages.get("memory"),
            swap=self._usages.get("swap"),
            statistics=self._statistics or {},
            tasks=tuple(self._tasks),
            together=self._values.get("together"),
            complete=not self.lost,
        )

    def _parse(self, line: str) -> bool:
        return (
            self._is_invocation(line)
            or self._is_usage(line)
            or self._is_statistic(line)
            or self._is_table(line)
            or self._is_choice(line)
            or self._is_victim(line)
        )

    def _is_invocation(self, line: str) -> bool:
        if found := _INVOKED.match(line):
            self._values["invoked"] = found["comm"]
        return found is not None

    def _is_usage(self, line: str) -> bool:
        if found := _USAGE.match(line):
            # Without a limit the kernel prints PAGE_COUNTER_MAX in kB, nearly 2^63 bytes
            # (mm/memcontrol.c, mem_cgroup_print_oom_meminfo).
            limit = int(found["limit"]) * 1024
            usage = LimitUsage(int(found["usage"]) * 1024, limit if limit < 1 << 62 else None)
            self._usages.setdefault(found["what"], usage)
        return found is not None

    def _is_statistic(self, line: str) -> bool:
        """A line of the cgroup's memory.stat: mem_cgroup_print_oom_meminfo() (mm/memcontrol.c)."""
        if _STATISTICS.match(line):
            self._statistics = {}
            return True
        if self._statistics is None or not (found := _STATISTIC.match(line)):
            return False
        if len(self._statistics) < _MOST_STATISTICS:
            self._statistics.setdefault(found["name"], int(found["bytes"]))
        return True

    def _is_table(self, line: str) -> bool:
        if headings := _HEADINGS.match(line):
            self._columns = headings["columns"].split()
            return True
        if self._columns is None or not (found := _TASK.match(line)):
            return False
        task = _task(int(found["pid"]), found["rest"], self._columns)
        if task is not None and len(self._tasks) < _MOST_TASKS:
            self._tasks.append(task)
        return task is not None

    def _is_choice(self, line: str) -> bool:
        if not (chosen := _CHOSEN.match(line)):
            return False
        self._constraint = _CONSTRAINTS.get(chosen["constraint"])
        if victim := _VICTIM.search(chosen["rest"]):
            before = chosen["rest"][: victim.start()]
            found = _MEMCG.search(before) or _GLOBAL.search(before)
            self._values |= found.groupdict() if found else {}
        return True

    def _is_victim(self, line: str) -> bool:
        if together := _TOGETHER.match(line):
            self._values["together"] = together["path"]
            return True
        found = _KILLED.match(line)
        if found is None:
            return False
        victim = _victim(found)
        # oom_kill_process() (mm/oom_kill.c) kills the chosen one first, then every task of the
        # group with memory.oom.group: the chosen one is logged twice.
        if all(victim.pid != other.pid for other in self._victims):
            self._victims.append(victim)
        if self._constraint is None:
            self._constraint = "memcg" if found["why"].startswith("Memory cgroup") else "none"
        return True


def _task(pid: int, rest: str, columns: list[str]) -> Task | None:
    *numbers, comm = [*rest.split(None, len(columns)), ""][: len(columns) + 1]
    if len(numbers) != len(columns) or not all(map(_is_integer, numbers)):
        return None
    row = dict(zip(columns, map(int, numbers), strict=True))
    if not {"rss", "oom_score_adj"} <= row.keys():
        return None
    return Task(
        pid=pid,
        comm=comm,
        oom_score_adj=row["oom_score_adj"],
        rss=row["rss"],
        swap=row.get("swapents", 0),
        page_tables=row.get("pgtables_bytes", 0),
        uid=row.get("uid"),
    )


def _victim(found: re.Match[str]) -> Victim:
    return Victim(
        pid=int(found["pid"]),
        comm=found["comm"],
        anon=int(found["anon"]) * 1024,
        file=int(found["file"]) * 1024,
        shmem=int(found["shmem"]) * 1024,
        uid=_integer(found["uid"]),
        page_tables=None if found["pgtables"] is None else int(found["pgtables"]) * 1024,
        oom_score_adj=_integer(found["adj"]),
    )


def _is_integer(text: str) -> bool:
    return is_number(text.removeprefix("-"))


def _integer(text: str | None) -> int | None:
    return None if text is None else int(text)
