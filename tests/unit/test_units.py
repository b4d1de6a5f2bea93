import pytest

from memqos.units import (
    format_bytes,
    format_estimate,
    format_exact_bytes,
    name_some,
    pluralize,
)

GI = 1 << 30
MI = 1 << 20


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (1023, "1023B"),
        (10 * 1024, "10Ki"),
        (100 * MI, "100Mi"),
        (1100 * MI, "1100Mi"),
        (GI + GI // 4, "1.25Gi"),
        (GI - 1024, "1.000Gi"),
        (3_066_662_912, "2.856Gi"),
        (2048 * GI, "2Ti"),
        (-3 * GI, "−3Gi"),
    ],
)
def test_bytes_read_the_same_everywhere(amount: int, text: str) -> None:
    assert format_bytes(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(1023, "1,023"), (4096 * MI, "4Gi"), (3_066_662_912, "3,066,662,912 (2.856Gi)")],
)
def test_an_exact_amount_loses_nothing(amount: int, text: str) -> None:
    assert format_exact_bytes(amount) == text


def test_an_estimate_is_in_whole_mebibytes() -> None:
    assert [format_estimate(each) for each in (1.6 * MI, 0.9 * GI, 4096.5)] == [
        "2Mi",
        "922Mi",
        "4Ki",
    ]


def test_one_is_not_many() -> None:
    assert [pluralize(1, "pod"), pluralize(2000, "pod")] == ["1 pod", "2,000 pods"]
    assert pluralize(2, "process", "processes") == "2 processes"


def test_of_many_names_the_first_are_named() -> None:
    names = [f"node-{number}" for number in range(1203)]
    assert name_some(names[:3]) == "node-0, node-1, node-2"
    assert name_some(names) == "node-0, node-1, node-2 and 1,200 more"
