"""Histories in files, read as a stream: CSV, saved answers of Prometheus, dumps of pod metrics."""

import codecs
import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby, islice
from typing import IO, Final, NamedTuple, cast

import msgspec

from memqos.errors import InputError, os_reason, quote_excerpt
from memqos.kube.quantity import Quantity
from memqos.size.history import SampleBatch, SeriesName, SeriesQuantity
from memqos.units import format_bytes

_GZIP: Final = b"\x1f\x8b"
_ROWS: Final = 8192
"""Rows of a batch."""
_LARGEST_JSON: Final = 512 << 20
_LONGEST_LINE: Final = 1 << 16
_CSV_FORM: Final = "series,t_seconds,usage_bytes[,limit_bytes][,max_bytes]"
_MORE_COLUMNS: Final[dict[str, SeriesQuantity]] = {
    "limit_bytes": "limit",
    "anon_bytes": "anon",
    "refaults": "refaults",
    "node_pressure": "pressure",
}
"""Columns that may be missing, or empty in a row."""


class HistoryFile(NamedTuple):
    """A file of any of these forms; gzip is recognised."""

    path: str

    def batches(self) -> Iterator[SampleBatch]:
        """Its samples; InputError with the line where it cannot be read."""
        try:
            with open(self.path, "rb") as raw:
                head = raw.peek(2)[:2]
                unpacked = gzip.GzipFile(fileobj=raw) if head == _GZIP else raw
                with io.BufferedReader(cast(io.RawIOBase, unpacked), 1 << 20) as opened:
                    # Spreadsheets and PowerShell begin a file with a byte order mark.
                    if opened.peek(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
                        opened.read(len(codecs.BOM_UTF8))
                    if opened.peek(1)[:1] in (b"{", b"["):
                        yield from _json_batches(opened, self.path)
                    else:
                        with io.TextIOWrapper(opened, "utf-8", "replace", newline="") as text:
                            yield from _CsvReader(text, self.path).batches()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(
                f"cannot be decompressed: {error}",
                file=self.path,
                hint="check that it was copied completely",
            ) from None
        except OSError as error:
            raise InputError(os_reason(error), file=self.path) from None


class _CsvReader:
    """Rows of a CSV file as batches of one series."""

    def __init__(self, text: IO[str], file: str) -> None:
        self._file = file
        # A longer line is cut, and is no row then: a file of one line would fill the memory.
        self._rows = csv.reader(iter(partial(text.readline, _LONGEST_LINE), ""))
        self._line = 1

    def batches(self) -> Iterator[SampleBatch]:
        try:
            yield from self._batches()
        except csv.Error as error:
            raise self._error(str(error), self._rows.line_num) from None

    def _batches(self) -> Iterator[SampleBatch]:
        header = [name.strip() for name in next(self._rows, [])]
        missing = {"series", "t_seconds", "usage_bytes"}.difference(header)
        if missing:
            raise self._error(
                f"the header lacks {' and '.join(sorted(missing))}", 1, f"write {_CSV_FORM}"
            )
        series, time, usage = map(header.index, ("series", "t_seconds", "usage_bytes"))
        peak = header.index("max_bytes") if "max_bytes" in header else None
        more = [name for name in _MORE_COLUMNS if name in header]
        rows = (row for row in self._rows if row)
        for text, group in groupby(rows, key=self._column(series)):
            name = series_name(text)
            while chunk := list(islice(group, _ROWS)):
                times = self._numbers(chunk, time, "t_seconds")
                values = self._numbers(chunk, usage, "usage_bytes")
                if peak is not None:
                    peaks = self._numbers(chunk, peak, "max_bytes", default="0")
                    values = list(map(max, values, peaks))
                yield SampleBatch(name, "usage", times, values)
                for column in more:
                    yield from self._known(name, chunk, times, column, header.index(column))
                self._line += len(chunk)

    def _known(
        self, name: SeriesName, chunk: list[list[str]], times: list[float], text: str, column: int
    ) -> Iterator[SampleBatch]:
        """The rows that have a value in a column; a limit of 0 is none."""
        values = self._numbers(chunk, column, text, default="-1")
        least = 1 if text == "limit_bytes" else 0
        known = [each for each in zip(times, values, strict=True) if each[1] >= least]
        if known:
            at, amounts = zip(*known, strict=True)
            yield SampleBatch(name, _MORE_COLUMNS[text], at, amounts)

    def _column(self, column: int) -> Callable[[list[str]], str]:
        def series_of(row: list[str]) -> str:
            try:
                return row[column]
            except IndexError:
                raise self._error("the row has no series", self._rows.line_num) from None

        return series_of

    def _numbers(
        self, rows: list[list[str]], column: int, name: str, default: str = ""
    ) -> list[float]:
        try:
            if default:
                return [float(row[column] or default) for row in rows]
            return [float(row[column]) for row in rows]
        except (ValueError, IndexError):
            pass
        for line, row in enumerate(rows, self._line + 1):
            text = row[column] if column < len(row) else ""
            try:
                float(text or default)
            except ValueError:
                what = f"{name} {quote_excerpt(text)} is not a number" if text else f"no {name}"
                raise self._error(what, line, "write seconds and bytes, without units") from None
        return []

    def _error(self, what: str, line: int, hint: str | None = None) -> InputError:
        return InputError(what, file=self._file, line=line, hint=hint)


def series_name(text: str) -> SeriesName:
    """A series by the text that names it: its last parts are namespace, pod and container."""
    parts = text.split("/")
    if len(parts) < 3:
        return SeriesName(text)
    return SeriesName(text, *parts[-3:])


class _Matrix(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result: list[_Matrix] = []
    result_type: str = ""


class PrometheusAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to a query."""

    status: str
    data: _Data = _Data()
    error: str | None = None
    error_type: str | None = None


_METRICS: Final[dict[str, SeriesQuantity]] = {
    "container_memory_working_set_bytes": "usage",
    "container_memory_usage_bytes": "usage",
    "container_memory_rss": "anon",
    "container_spec_memory_limit_bytes": "limit",
    "kube_pod_container_resource_limits": "limit",
    "container_oom_events_total": "kills",
    "container_pressure_memory_stalled_seconds_total": "stalls",
    "kube_pod_container_status_restarts_total": "restarts",
}
_answer: Final = msgspec.json.Decoder(PrometheusAnswer)


def decode_answer(data: bytes, where: str) -> PrometheusAnswer:
    """An answer of Prometheus; InputError where it is none, or an error."""
    try:
        answer = _answer.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"this is not an answer of Prometheus: {error}",
            file=where,
            hint="save /api/v1/query_range as it comes",
        ) from None
    if answer.status != "success":
        raise InputError(f"Prometheus refused the query: {answer.error}", file=where)
    return answer


def answer_batches(
    answer: PrometheusAnswer, quantity: SeriesQuantity | None = None
) -> Iterator[SampleBatch]:
    """The samples of an answer; what a series is follows from its metric's name."""
    for series in answer.data.result:
        labels = series.metric
        if labels.get("container", "") in ("", "POD") and "pod" in labels:
            continue  # cAdvisor's sums over a pod, and its sandbox.
        samples = series.values or ([series.value] if series.value else [])
        kind = quantity or _METRICS.get(labels.get("__name__", ""), "usage")
        times = [at for at, _ in samples]
        values = [_number(text) for _, text in samples]
        if kind == "limit":
            # cAdvisor reports 0 where there is no limit.
            known = [each for each in zip(times, values, strict=True) if each[1] > 0]
            times, values = [each[0] for each in known], [each[1] for each in known]
        yield SampleBatch(_name_of_labels(labels), kind, times, values)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _name_of_labels(labels: dict[str, str]) -> SeriesName:
    parts = [labels.get(key, "") for key in ("namespace", "pod", "container")]
    if all(parts):
        return SeriesName("/".join(parts), *parts)
    shown = (f"{key}={value}" for key, value in sorted(labels.items()) if key != "__name__")
    return SeriesName(",".join(shown) or labels.get("__name__", "series"))


class _MetaData(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _ContainerMetrics(msgspec.Struct, frozen=True):
    name: str
    usage: dict[str, str] = {}


class _PodMetrics(msgspec.Struct, frozen=True):
    metadata: _MetaData
    timestamp: str
    containers: list[_ContainerMetrics] = []


class _PodMetricsList(msgspec.Struct, frozen=True):
    items: list[_PodMetrics]


class _Kind(msgspec.Struct, frozen=True):
    kind: str = ""


_METRICS_LISTS: Final = frozenset({"PodMetricsList", "List"})
"""As the metrics API has them, and as `kubectl get podmetrics -o json` prints them."""
_METRICS_COMMAND: Final = "save kubectl get --raw /apis/metrics.k8s.io/v1beta1/pods"


def _json_batches(stream: IO[bytes], file: str) -> Iterator[SampleBatch]:
    """One document, or one a line."""
    line = stream.readline(_LARGEST_JSON)
    while line:
        try:
            kind = msgspec.json.decode(line, type=_Kind).kind
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Indented: a document that continues to the end of the file.
            line += stream.read(_LARGEST_JSON - len(line))
            if stream.read(1):
                raise InputError(
                    f"one JSON document of more than {format_bytes(_LARGEST_JSON)}",
                    file=file,
                    hint="save shorter ranges, one answer a line",
                ) from None
            kind = _kind_of(line, file)
        if kind in _METRICS_LISTS:
            yield from _metrics_batches(line, file)
        elif kind:
            raise InputError(f"a {kind} has no history of usage", file=file, hint=_METRICS_COMMAND)
        else:
            yield from answer_batches(decode_answer(line, file))
        line = stream.readline(_LARGEST_JSON)


def _kind_of(data: bytes, file: str) -> str:
    try:
        return msgspec.json.decode(data, type=_Kind).kind
    except msgspec.ValidationError:
        return ""
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"this is not JSON: {error}", file=file) from None


def _metrics_batches(data: bytes, file: str) -> Iterator[SampleBatch]:
    """One moment of a cluster, as `kubectl get --raw /apis/metrics.k8s.io/v1beta1/pods` has it."""
    try:
        found = msgspec.json.decode(data, type=_PodMetricsList)
        for pod in found.items:
            at = datetime.fromisoformat(pod.timestamp).timestamp()
            for container in pod.containers:
                parts = (pod.metadata.namespace, pod.metadata.name, container.name)
                name = SeriesName("/".join(parts), *parts)
                used = _bytes(container.usage.get("memory", "0"), name, file)
                yield SampleBatch(name, "usage", [at], [used])
    except (msgspec.ValidationError, ValueError) as error:
        what = f"this is not a list of PodMetrics: {error}"
        raise InputError(what, file=file, hint=_METRICS_COMMAND) from None


def _bytes(text: str, name: SeriesName, file: str) -> float:
    try:
        return float(Quantity.parse(text).value)
    except OverflowError:
        return float("inf")
    except InputError as error:
        raise InputError(error.what, file=file, field=name.text, hint=error.hint) from None


def read_files(paths: Sequence[str]) -> Iterator[SampleBatch]:
    """All samples of several files, one file after the other."""
    for path in paths:
        yield from HistoryFile(path).batches()
