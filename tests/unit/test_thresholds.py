"""Eviction thresholds and the durations in them."""

import pytest

from memqos.kube.duration import SECOND, duration_text, parse_duration
from memqos.kube.kubelet.thresholds import ThresholdFault, read_thresholds

GI = 1 << 30


def memory_limit(text: str, capacity: int) -> int | None:
    """Bytes of evictionHard's memory.available; None where it is switched off."""
    found = read_thresholds({"memory.available": text})
    assert not found.faults
    return found.thresholds[0].limit(capacity).value if found.thresholds else None


def problems(**statements: dict[str, str]) -> list[str]:
    hard = statements.pop("hard", {})
    return [fault.problem for fault in read_thresholds(hard, **statements).faults]


def test_a_share_is_taken_in_single_precision_and_truncated() -> None:
    assert memory_limit("33.3%", 17_179_869_184) == 5_720_896_512
    assert memory_limit("10%", 10 * GI) == 1_073_741_840
    assert memory_limit("50%", 2 * GI + 1) == GI


@pytest.mark.parametrize("off", ["0%", "100%"])
def test_exactly_these_spellings_switch_a_threshold_off(off: str) -> None:
    assert memory_limit(off, GI) is None


def test_other_spellings_of_the_same_do_not() -> None:
    assert memory_limit("0.0%", GI) == 0
    assert memory_limit("100.0%", GI) == GI


@pytest.mark.parametrize(
    ("text", "share"), [("1e1%", 0.1), ("5%%", 0.05), ("0x1p3%", 0.08), ("+2_5%", 0.25)]
)
def test_percentages_are_numbers_as_go_writes_them(text: str, share: float) -> None:
    (threshold,) = read_thresholds({"memory.available": text}).thresholds
    assert threshold.value.percentage == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("%", "percentage_parse"),
        ("5 %", "percentage_parse"),
        ("x%", "percentage_parse"),
        ("1e99%", "percentage_parse"),
        ("1e999%", "percentage_parse"),
        ("inf%", "percentage_above_100"),
        ("٥%", "percentage_parse"),
        ("-1%", "percentage_below_0"),
        ("100.1%", "percentage_above_100"),
        ("", "quantity_parse"),
        ("100MB", "quantity_parse"),
        (" 1Gi", "quantity_parse"),
        ("0", "quantity_not_positive"),
        ("-1Gi", "quantity_not_positive"),
    ],
)
def test_a_threshold_is_a_positive_quantity_or_a_share(text: str, problem: str) -> None:
    assert problems(hard={"memory.available": text}) == [problem]


def test_a_soft_threshold_needs_a_grace_period_unless_it_is_switched_off() -> None:
    assert problems(soft={"memory.available": "1Gi"}) == ["missing_grace_period"]
    assert problems(soft={"memory.available": "0%"}) == []


def test_a_soft_threshold_without_grace_is_a_hard_one() -> None:
    found = read_thresholds(
        {},
        {"memory.available": "1Gi", "nodefs.available": "1Gi"},
        {"memory.available": "0s", "nodefs.available": "1s"},
    )
    assert [threshold.hard for threshold in found.thresholds] == [True, False]


def test_hard_memory_thresholds_hold_for_allocatable_too_where_pods_are_enforced() -> None:
    hard = {"memory.available": "1Gi", "pid.available": "5%"}
    signals = [t.signal for t in read_thresholds(hard, enforced=["pods"]).thresholds]
    assert signals == ["memory.available", "pid.available", "allocatableMemory.available"]
    assert len(read_thresholds(hard, enforced=["none"]).thresholds) == 2


def test_minimum_reclaim_moves_the_point_at_which_reclaiming_ends() -> None:
    (threshold,) = read_thresholds(
        {"memory.available": "1Gi"}, minimum_reclaim={"memory.available": "50%"}
    ).thresholds
    assert threshold.limit(4 * GI).value == GI
    assert threshold.limit(4 * GI, reclaimed=True).value == 3 * GI


def test_a_minimum_reclaim_may_be_zero_but_not_0_percent() -> None:
    reclaim = {"memory.available": "0", "nodefs.available": "0%", "pid.available": "-1"}
    assert problems(minimum_reclaim=reclaim) == [
        "min_reclaim_percentage_not_positive",
        "min_reclaim_negative",
    ]


def test_faults_come_in_the_order_in_which_the_kubelet_looks() -> None:
    assert problems(
        hard={"memory.available": "x"},
        soft={"cpu.available": "1", "pid.available": "1"},
        grace_periods={"memory.available": "90"},
        minimum_reclaim={"memory.available": "x"},
    ) == [
        "quantity_parse",
        "unsupported_signal",
        "duration_parse",
        "quantity_parse",
        "missing_grace_period",
    ]


def test_a_fault_has_what_is_wrong_and_what_to_write() -> None:
    fault = ThresholdFault("evictionHard", "memory.available", "percentage_parse", "5 %")
    assert fault.what == "'5 %' is not a percentage"
    assert fault.hint == "write a number right before %, such as 7.5%"


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("1m30s", 90 * SECOND),
        ("1.5h", 5400 * SECOND),
        (".5s", SECOND // 2),
        ("-1s", -SECOND),
        ("2µs", 2000),
        ("1h0m0.000000001s", 3600 * SECOND + 1),
        ("2562048h", None),
        ("9" * 5000 + "s", None),
        ("0" * 5000 + "1s", SECOND),
        ("0.5" + "0" * 5000 + "s", SECOND // 2),
        ("90", None),
        ("", None),
        ("-", None),
        (".s", None),
        ("1 s", None),
        ("1d", None),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, nanoseconds: int | None) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["0s", "1ns", "1.5µs", "100ms", "1.25s", "5m0s", "1h0m0s", "-1m30s", "2562047h0m0s"]
)
def test_durations_are_written_as_go_writes_them(text: str) -> None:
    nanoseconds = parse_duration(text)
    assert nanoseconds is not None
    assert duration_text(nanoseconds) == text
