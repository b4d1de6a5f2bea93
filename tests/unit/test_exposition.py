"""Metrics are written as Prometheus reads them."""

import math
import sys
from collections import Counter

import pytest

from memqos.serve.exposition import (
    Family,
    Histogram,
    MetricSample,
    add_labels,
    exposition,
    histograms,
    labels,
    metric_number,
)


def written(*samples: MetricSample) -> list[str]:
    return exposition([Family("x", "gauge", "An x.", samples)]).decode().splitlines()[2:]


def test_a_family_has_its_help_and_its_type_before_its_series() -> None:
    families = [
        Family("memqos_writes_total", "counter", "Writes.", [MetricSample('file="memory.min"', 3)]),
        Family("memqos_converged", "gauge", "Whether.", [MetricSample("", 1)]),
    ]
    assert exposition(families) == (
        b"# HELP memqos_writes_total Writes.\n"
        b"# TYPE memqos_writes_total counter\n"
        b'memqos_writes_total{file="memory.min"} 3\n'
        b"# HELP memqos_converged Whether.\n"
        b"# TYPE memqos_converged gauge\n"
        b"memqos_converged 1\n"
    )


def test_a_family_without_series_is_excluded() -> None:
    assert exposition([Family("x", "gauge", "An x.", [])]) == b""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (True, "1"),
        (False, "0"),
        (0.25, "0.25"),
        (1e300, "1e+300"),
        ((1 << 63) - 1, "9223372036854775807"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_a_value_is_spelled_as_go_reads_it(value: float, text: str) -> None:
    assert metric_number(value) == text
    assert written(MetricSample("", value)) == [f"x {text}"]


def test_labels_and_help_are_escaped() -> None:
    assert labels(pod='a"b\\c\nd') == r'pod="a\"b\\c\nd"'
    helped = exposition([Family("x", "gauge", 'a\\b\n"c"', [MetricSample("", 1)])]).decode()
    assert helped.startswith('# HELP x a\\\\b\\n"c"\n')


def test_labels_are_added_to_labels_that_were_written_before() -> None:
    assert add_labels(labels(a="1"), b="2") == 'a="1",b="2"'
    assert add_labels("", b="2") == 'b="2"'
    assert add_labels('a="1"') == 'a="1"'


def test_a_label_that_utf8_cannot_say_does_not_stop_a_scrape() -> None:
    assert written(MetricSample(labels(pod="\udc80"), 1)) == ['x{pod="?"} 1']


def test_a_histogram_counts_up_to_each_of_its_bounds() -> None:
    histogram = Histogram([0.1, 1])
    for value in (0.05, 0.1, 0.5, 7):
        histogram.observe(value)
    family = Family("s", "histogram", "S.", histograms({'t="resync"': histogram}))
    assert exposition([family]).decode().splitlines()[1:] == [
        "# TYPE s histogram",
        's_bucket{t="resync",le="0.1"} 2',
        's_bucket{t="resync",le="1"} 3',
        's_bucket{t="resync",le="+Inf"} 4',
        's_sum{t="resync"} 7.65',
        's_count{t="resync"} 4',
    ]
    assert histogram.count == 4


def test_ten_thousand_series_are_cheap() -> None:
    held = [
        labels(namespace="shop", pod=f"web-{index}", container="app") for index in range(10_000)
    ]
    family = Family("x", "gauge", "X.", [MetricSample(text, 1 << 40) for text in held])
    calls: Counter[str] = Counter()
    before = sys.getprofile()
    sys.setprofile(lambda _frame, event, _of: calls.update([event]))
    try:
        body = exposition([family])
    finally:
        sys.setprofile(before)
    assert body.count(b"\n") == 10_002
    # A scrape spells every value, and calls nothing else for a series: no label is written anew.
    assert calls["call"] < 10
    assert calls["c_call"] < 2.1 * 10_000
