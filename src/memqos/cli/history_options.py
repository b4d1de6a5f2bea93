"""The options that name histories, and the table they are read into."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from memqos.cli.cluster_access import LiveCluster
from memqos.cli.help_sections import help_section
from memqos.cli.manifest_reader import ManifestReader
from memqos.cli.options import DEFAULT_RELEASE
from memqos.cli.streams import show_status
from memqos.errors import InputError
from memqos.host.record_files import RECORDS_FOLDER
from memqos.kube.shape import shape_of
from memqos.release import Release

# audit has these options, too: what reads a history is imported when there is one.
if TYPE_CHECKING:
    from memqos.size.history import HistorySource, HistoryTable, SampleBatch, SeriesName
    from memqos.size.workloads import WorkloadManifest

_F = TypeVar("_F", bound=Callable[..., Any])
_STATUS_INTERVAL: Final = 0.2


class TimeType(click.ParamType[float]):
    """Seconds, since 1970 or since the start of a trace; or a date."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            seconds = float(value)
        except ValueError:
            try:
                moment = datetime.fromisoformat(str(value))
            except ValueError:
                self.fail(f"{value!r} is neither seconds nor a date such as 2026-03-01", param, ctx)
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if seconds != seconds or abs(seconds) == float("inf"):
            self.fail(f"{value!r} is not a time", param, ctx)
        return seconds


class HistoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `history_options`, as they were given."""

    history: tuple[str, ...]
    until: float | None
    days: float
    step: float
    token_file: str | None
    ca_file: str | None
    client_cert: str | None
    client_key: str | None


@help_section("History")
def history_options(command: _F) -> _F:
    """--history and what belongs to it."""
    for option in (
        click.option("--client-key", metavar="FILE", help="The key of --client-cert."),
        click.option("--client-cert", metavar="FILE", help="A client certificate for Prometheus."),
        click.option("--ca-file", metavar="FILE", help="The CA of the certificate of Prometheus."),
        click.option("--token-file", metavar="FILE", help="A bearer token for Prometheus."),
        click.option(
            "--step",
            type=click.FloatRange(min=1),
            default=300.0,
            metavar="SECONDS",
            help="Prometheus: step in seconds; peaks within a step count.  [default: 300]",
        ),
        click.option(
            "--days",
            type=click.FloatRange(min=0, min_open=True, max=3650),
            default=14.0,
            metavar="DAYS",
            help="Prometheus: days of history to read.  [default: 14]",
        ),
        click.option(
            "--until", type=TimeType(), help="Ignore history after this time: seconds, or a date."
        ),
        click.option(
            "--history",
            multiple=True,
            metavar="SOURCE",
            help="A CSV file, a saved response of Prometheus, its address, or the records folder "
            f"of an agent; may be repeated.  [default: {RECORDS_FOLDER}]",
        ),
    ):
        command = option(command)
    return command


def history_sources(options: HistoryOptions, namespace: str | None) -> list["HistorySource"]:
    """The sources that the options name."""
    from memqos.host.histories import history_at

    names = options.history
    if not names:
        if not os.path.isdir(RECORDS_FOLDER):
            raise click.UsageError("give --history: a file, a folder, or the address of Prometheus")
        names = (RECORDS_FOLDER,)
    return [
        _prometheus(name, options, namespace)
        if name.startswith(("http://", "https://"))
        else history_at(name)
        for name in names
    ]


def _prometheus(url: str, options: HistoryOptions, namespace: str | None) -> "HistorySource":
    from memqos.host.prometheus import PrometheusAccess, PrometheusHistory

    end = time.time() if options.until is None else options.until
    access = PrometheusAccess(
        url=url,
        token_file=options.token_file,
        ca_file=options.ca_file,
        client_cert=options.client_cert,
        client_key=options.client_key,
    )
    return PrometheusHistory(
        access,
        start=end - options.days * 86_400,
        end=end,
        step=options.step,
        namespace=namespace,
    )


def read_batches(
    sources: Sequence["HistorySource"], matches: Callable[["SeriesName"], bool]
) -> "Iterator[SampleBatch]":
    """The samples of the series that match; at a terminal, with a line of progress."""
    is_watched, shown, samples = sys.stderr.isatty(), 0.0, 0
    try:
        for source in sources:
            for batch in source.batches():
                samples += len(batch.times)
                if is_watched and time.monotonic() - shown > _STATUS_INTERVAL:
                    shown = time.monotonic()
                    show_status(f"{samples:,} samples")
                if matches(batch.name):
                    yield batch
    finally:
        if is_watched:
            show_status("")


def read_table(
    sources: Sequence["HistorySource"],
    until: float | None,
    matches: Callable[["SeriesName"], bool],
) -> "HistoryTable":
    """The histories of the series that match; InputError where there is none."""
    from memqos.size.history import HistoryTable

    table = HistoryTable(until)
    table.read(read_batches(sources, matches))
    if not table.containers:
        raise InputError(
            "no series matches", hint="check that the history is of these pods, and check -n"
        )
    return table


class HistorySelection(msgspec.Struct, frozen=True):
    """What the arguments of a command name: manifests, and pods or workloads by name."""

    manifests: tuple["WorkloadManifest", ...]
    names: tuple[str, ...]
    namespace: str | None
    faults: int = 0

    def matches(self, series: "SeriesName") -> bool:
        """Whether a series is selected."""
        from memqos.size.consequences import owner_names

        if self.namespace is not None and series.namespace != self.namespace:
            return False
        if self.manifests and any(each.covers(series) for each in self.manifests):
            return True
        if not self.names:
            return not self.manifests
        own = {series.text, series.pod, *owner_names(series.pod)}
        return any(name in own or name == f"{series.namespace}/{series.pod}" for name in self.names)


def select_series(
    arguments: Sequence[str], live: LiveCluster | None, namespace: str | None
) -> HistorySelection:
    """Files are manifests; others are objects of the cluster, where one is named, else names."""
    from memqos.size.workloads import WorkloadManifest

    files = [each for each in arguments if each == "-" or os.path.exists(each)]
    others = [each for each in arguments if each not in files]
    if live is not None:
        files, others = [*files, *others], []
    for name in others:
        if name.endswith((".yaml", ".yml", ".json")):
            raise InputError("no such file or directory", file=name)
    reader = ManifestReader(live)
    manifests = []
    for template, pod in reader.pods(files):
        try:
            # Of any release: a quantity that cannot be read must not end the report of others.
            shape_of(pod, Release.of(DEFAULT_RELEASE))
        except InputError as error:
            reader.refuse(template.with_position(error))
            continue
        kind, _, name = template.label.partition("/")
        manifests.append(WorkloadManifest(kind, name, template.namespace or namespace, pod))
    if arguments and not manifests and not others:
        # Without targets every series would be meant.
        raise InputError("no pod could be read", hint="give a manifest, or a pod by its name")
    return HistorySelection(
        tuple(manifests),
        tuple(each.rpartition("/")[2] if each.count("/") == 1 else each for each in others),
        namespace,
        reader.faults,
    )
