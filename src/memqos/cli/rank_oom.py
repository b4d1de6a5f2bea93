"""`memqos rank oom`: the order in which the kernel would kill."""

import os
from typing import Final

import click
import msgspec

from memqos.cli.cluster_access import LIVE_PODS, LiveCluster, cluster_options
from memqos.cli.help_sections import SectionedCommand
from memqos.cli.manifest_reader import ManifestReader
from memqos.cli.options import BytesType
from memqos.cli.output import OutputFormat, emit, output_option, print_lines, print_notes
from memqos.draw.text.oom import OomKillReport, oom_kill_data, oom_kill_text
from memqos.errors import InputError
from memqos.host.manifest_files import load_file
from memqos.host.snapshots import load_snapshot, snapshot_cgroup_names
from memqos.kernel.file_formats import memory_of
from memqos.kernel.process import Process
from memqos.kube.pod import Pod
from memqos.plan.names import CgroupNames, cgroup_names
from memqos.plan.oom_kill import kill_order
from memqos.plan.owners import Owners
from memqos.settings.settings import PAGE_SIZE

_MAX_SHOWN: Final = 20


class _Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The processes to rank, out of /proc, a snapshot or a file."""

    processes: tuple[Process, ...]
    memory: int | None
    swap: int | None
    page_size: int
    layouts: tuple[CgroupNames, ...]
    pods: tuple[Pod, ...] = ()
    notes: tuple[str, ...] = ()


class _ProcessFile(msgspec.Struct, frozen=True):
    """What -o json writes."""

    processes: tuple[Process, ...]
    memory: int | None = None
    swap: int | None = None
    page_size: int = PAGE_SIZE


@click.command(cls=SectionedCommand)
@click.option(
    "--from",
    "file",
    metavar="FILE",
    help="Processes from a file: a JSON list, or the output of -o json.",
)
@click.option("--snapshot", metavar="FILE", help="Processes from a snapshot of a node.")
@click.option("--pods", metavar="FILE", help="Pods, to show which pod a process belongs to.")
@cluster_options("context", "node_name")
@click.option("--total", type=BytesType(), help="RAM and swap of the machine together.")
@click.option("--why", is_flag=True, help="Show the arithmetic behind every rank.")
@output_option()
def command(
    file: str | None,
    snapshot: str | None,
    pods: str | None,
    context: str | None,
    node_name: str | None,
    total: int | None,
    why: bool,
    output: OutputFormat,
) -> int:
    """Show the order in which the kernel would OOM-kill if this machine ran out of memory now.

    The score of a process is its memory, plus oom_score_adj thousandths of all RAM and swap; the
    highest score is killed first. Processes of pods are named by their cgroups, and by the pods of
    --pods, or of --node-name in a live cluster.

    Reads /proc, unless --from or --snapshot is given. In a FILE memory is in bytes, and processes
    are in the order of their start:

    \b
    [{"comm": "java", "pid": 4242, "oom_score_adj": 985, "rss": 1288490188,
      "swap": 0, "page_tables": 2621440, "cgroup": "/kubepods/…"}, …]
    """
    if file is not None and snapshot is not None:
        raise click.UsageError("--from and --snapshot exclude each other")
    live = LiveCluster(context, node_name=node_name)
    if pods is None and live.is_chosen:
        if node_name is None:
            raise click.UsageError("--node-name is missing: name the node of these pods")
        live.get_node()
        pods = LIVE_PODS
    machine = (
        _machine_of_file(file)
        if file is not None
        else _machine_of_snapshot(snapshot)
        if snapshot is not None
        else _this_machine()
    )
    if total is None:
        if machine.memory is None:
            raise InputError(
                "the memory of the machine is unknown",
                file=file or snapshot,
                hint="give --total, its RAM and swap together",
            )
        total = machine.memory + (machine.swap or 0)
    reader = ManifestReader(live)
    owners = machine.pods if pods is None else tuple(pod for _, pod in reader.pods([pods]))
    report = OomKillReport(
        order=kill_order(machine.processes, total, machine.page_size),
        owners=Owners(machine.layouts, owners),
        memory=machine.memory,
        swap=machine.swap,
        total=total,
        page_size=machine.page_size,
        notes=machine.notes + _measurement_notes(machine.processes),
    )
    if output == "table":
        _print(report, why=why)
    else:
        emit(oom_kill_data(report), output)
    return 1 if reader.faults else 0


def _this_machine() -> _Machine:
    from memqos.host.processes import read_processes

    listing = read_processes()
    with open("/proc/meminfo", encoding="ascii") as file:
        meminfo = file.read()
    notes = []
    if listing.unreadable:
        notes.append(f"{listing.unreadable} processes cannot be read: run as root")
    if not listing.complete:
        notes.append(
            "only the processes of this container or user are visible: run on the node itself"
        )
    return _Machine(
        processes=listing.processes,
        memory=memory_of(meminfo, "MemTotal"),
        swap=memory_of(meminfo, "SwapTotal"),
        page_size=os.sysconf("SC_PAGE_SIZE"),
        layouts=(cgroup_names("systemd"), cgroup_names("cgroupfs")),
        notes=tuple(notes),
    )


def _machine_of_snapshot(file: str) -> _Machine:
    snapshot = load_snapshot(file)
    # A snapshot need not hold PF_KTHREAD. Kernel threads have no VmRSS and stay in the root cgroup,
    # where systemd leaves no other process.
    processes = [
        msgspec.structs.replace(each, kernel_thread=True)
        if each.rss is None and each.cgroup == "/"
        else each
        for each in snapshot.all_processes
    ]
    return _Machine(
        processes=tuple(processes),
        memory=snapshot.memory if snapshot.meminfo else None,
        swap=snapshot.swap if snapshot.meminfo else None,
        page_size=snapshot.page_size or PAGE_SIZE,
        layouts=(snapshot_cgroup_names(snapshot, file),),
        pods=snapshot.running,
    )


def _machine_of_file(file: str) -> _Machine:
    name, data = load_file(file)
    try:
        found = msgspec.json.decode(data, type=_ProcessFile | tuple[Process, ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"not a list of processes: {error}",
            file=name,
            hint="each has at least comm and oom_score_adj: see memqos rank oom --help",
        ) from None
    if isinstance(found, tuple):
        found = _ProcessFile(found)
    return _Machine(
        processes=found.processes,
        memory=found.memory,
        swap=found.swap,
        page_size=found.page_size,
        layouts=(cgroup_names("systemd"), cgroup_names("cgroupfs")),
    )


def _measurement_notes(processes: tuple[Process, ...]) -> tuple[str, ...]:
    candidates = [each for each in processes if not each.kernel_thread]
    unknown = sum(each.rss is None for each in candidates)
    if not unknown:
        return ()
    if unknown == len(candidates):
        return ("memory of the processes is unknown: they are sorted by oom_score_adj",)
    return (f"memory of {unknown} processes is unknown: it counts as 0",)


def _print(report: OomKillReport, *, why: bool) -> None:
    from memqos.units import format_bytes, pluralize

    processes = sum(1 + len(kill.along) for kill in report.order.kills) + len(report.order.spared)
    memory = (
        f"{format_bytes(report.total)} of RAM and swap"
        if report.memory is None
        else f"{format_bytes(report.memory)} RAM, "
        f"{format_bytes(report.swap) if report.swap else 'no'} swap"
    )
    count = pluralize(processes, "process", "processes")
    print_lines([f"Linux, out of memory as a whole · {memory} · {count}"])
    print_notes(report.notes)
    print_lines(["", *oom_kill_text(report, _MAX_SHOWN)])
    if why:
        from memqos.draw.text.oom import oom_kill_reasons

        print_lines(oom_kill_reasons(report, _MAX_SHOWN))
