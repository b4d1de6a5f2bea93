"""The sixteen rows of KEP-2837: what is written, what becomes of it, and the values of the cgroups.

CR and CL are the containers' requests and limits, PR and PL those of the pod. All is memory; in
the cgroups None is "not written", which leaves the kernel's own "max".
"""

from typing import NamedTuple

import pytest
from tests.builders import GI, Json, box, node_settings, of_containers, planned, pod, stanza

from memqos.kube.defaulting import apply_defaults
from memqos.kube.resources import format_amount
from memqos.kube.validation import validate
from memqos.plan.setting import MAX, FileValue
from memqos.release import Release

FIXED = "1.38"
BEFORE_THE_FIX = "1.36"

CR = ("10Gi", "20Gi")
CL = ("30Gi", "40Gi")
NO = (None, None)


class Row(NamedTuple):
    """One row: as written, as defaulted, and as the cgroups have it."""

    number: int
    cr: tuple[str | None, str | None]
    cl: tuple[str | None, str | None]
    pr: str | None
    pl: str | None
    requests: tuple[str | None, str | None]
    pod_request: str | None
    pod_limit: str | None
    pod_max: int | None
    container_max: tuple[FileValue, FileValue]

    def __str__(self) -> str:
        return f"row {self.number}"


BOTH_UNLIMITED = (MAX, MAX)
OWN_LIMITS = (30 * GI, 40 * GI)
POD_LIMITS = (100 * GI, 100 * GI)

ROWS = [
    Row(1, NO, NO, None, None, NO, None, None, None, BOTH_UNLIMITED),
    Row(2, NO, CL, None, None, CL, None, None, 70 * GI, OWN_LIMITS),
    Row(3, CR, NO, None, None, CR, None, None, None, BOTH_UNLIMITED),
    Row(4, CR, CL, None, None, CR, None, None, 70 * GI, OWN_LIMITS),
    Row(5, NO, NO, None, "100Gi", NO, "100Gi", "100Gi", 100 * GI, POD_LIMITS),
    Row(6, NO, CL, None, "100Gi", CL, "70Gi", "100Gi", 100 * GI, OWN_LIMITS),
    Row(7, CR, NO, None, "100Gi", CR, "30Gi", "100Gi", 100 * GI, POD_LIMITS),
    Row(8, CR, CL, None, "100Gi", CR, "30Gi", "100Gi", 100 * GI, OWN_LIMITS),
    Row(9, NO, NO, "60Gi", None, NO, "60Gi", None, None, BOTH_UNLIMITED),
    Row(10, NO, CL, "80Gi", None, CL, "80Gi", "80Gi", 80 * GI, OWN_LIMITS),
    Row(11, CR, NO, "60Gi", None, CR, "60Gi", None, None, BOTH_UNLIMITED),
    Row(12, CR, CL, "60Gi", None, CR, "60Gi", "70Gi", 70 * GI, OWN_LIMITS),
    Row(13, NO, NO, "60Gi", "100Gi", NO, "60Gi", "100Gi", 100 * GI, POD_LIMITS),
    Row(14, NO, CL, "80Gi", "100Gi", CL, "80Gi", "100Gi", 100 * GI, OWN_LIMITS),
    Row(15, CR, NO, "60Gi", "100Gi", CR, "60Gi", "100Gi", 100 * GI, POD_LIMITS),
    Row(16, CR, CL, "60Gi", "100Gi", CR, "60Gi", "100Gi", 100 * GI, OWN_LIMITS),
]

LIMITS_LEFT_OPEN = {10: 70 * GI, 12: 70 * GI}
"""Rows whose pod limit is completed only by the fix; the sum of limits applies without it."""


def written_as(row: Row) -> tuple[list[Json], Json | None]:
    containers = [box(request, limit) for request, limit in zip(row.cr, row.cl, strict=True)]
    return containers, stanza(row.pr, row.pl) or None


def memory(amounts: dict[str, int]) -> str | None:
    return format_amount("memory", amounts["memory"]) if "memory" in amounts else None


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.parametrize("release", [FIXED, BEFORE_THE_FIX])
def test_a_row_is_valid_and_its_requests_are_completed(row: Row, release: str) -> None:
    containers, resources = written_as(row)
    written = pod(containers, resources=resources)
    shape = apply_defaults(written, Release.of(release))
    assert validate(written, shape, Release.of(release)) == []
    assert tuple(memory(part.requests) for part in shape.containers) == row.requests
    assert tuple(memory(part.limits) for part in shape.containers) == row.cl
    if resources is None:
        assert shape.pod is None
    else:
        assert shape.pod is not None
        assert memory(shape.pod.requests) == row.pod_request


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_pod_limit_is_completed_where_every_container_has_one(row: Row) -> None:
    containers, resources = written_as(row)
    shape = apply_defaults(pod(containers, resources=resources), Release.of(FIXED))
    assert memory(shape.pod.limits if shape.pod else {}) == row.pod_limit


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_and_never_before_the_fix(row: Row) -> None:
    containers, resources = written_as(row)
    shape = apply_defaults(pod(containers, resources=resources), Release.of(BEFORE_THE_FIX))
    assert memory(shape.pod.limits if shape.pod else {}) == row.pl


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_cgroups_hold_the_limits(row: Row) -> None:
    containers, resources = written_as(row)
    plan = planned(pod(containers, resources=resources), node_settings(FIXED))
    assert plan.settings["memory.max"].value == row.pod_max
    assert tuple(of_containers(plan, "memory.max")) == row.container_max


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_cgroups_hold_the_sum_of_limits_before_the_fix(row: Row) -> None:
    containers, resources = written_as(row)
    plan = planned(pod(containers, resources=resources), node_settings(BEFORE_THE_FIX))
    expected = LIMITS_LEFT_OPEN.get(row.number, row.pod_max)
    assert plan.settings["memory.max"].value == expected
    assert tuple(of_containers(plan, "memory.max")) == row.container_max


@pytest.mark.parametrize("row", ROWS[4:], ids=str)
def test_without_the_gate_the_pod_level_is_dropped(row: Row) -> None:
    containers, resources = written_as(row)
    without = node_settings(FIXED, gates={"PodLevelResources": False})
    plan = planned(pod(containers, resources=resources), without)
    assert plan == planned(pod(containers), without)


@pytest.mark.parametrize(
    ("number", "qos"),
    [(1, "BestEffort")] + [(number, "Burstable") for number in range(2, 17)],
)
def test_memory_alone_never_makes_a_pod_guaranteed(number: int, qos: str) -> None:
    containers, resources = written_as(ROWS[number - 1])
    assert planned(pod(containers, resources=resources), node_settings(FIXED)).qos == qos


class TestRefused:
    @pytest.mark.parametrize(
        ("containers", "resources", "field"),
        [
            pytest.param(
                [box(None, "60Gi"), box(None, "60Gi")],
                stanza(None, "100Gi"),
                "spec.resources.requests",
                id="row 6: 60Gi + 60Gi under 100Gi",
            ),
            pytest.param(
                [box("60Gi"), box("60Gi")],
                stanza(None, "100Gi"),
                "spec.resources.requests",
                id="row 7: containers request more than the pod may use",
            ),
            pytest.param(
                [box(None, "60Gi"), box(None, "60Gi")],
                stanza("100Gi"),
                "spec.resources.requests[memory]",
                id="row 10: limits become requests the pod does not cover",
            ),
            pytest.param(
                [box("40Gi"), box("40Gi")],
                stanza("60Gi"),
                "spec.resources.requests[memory]",
                id="row 11: containers request more than the pod",
            ),
            pytest.param(
                [box(None, "40Gi"), box(None, "40Gi")],
                stanza("60Gi", "100Gi"),
                "spec.resources.requests[memory]",
                id="row 14: limits become requests the pod does not cover",
            ),
            pytest.param(
                [box("10Gi", "120Gi"), box("10Gi")],
                stanza("60Gi", "100Gi"),
                "spec.resources.containers[0][memory].limits",
                id="row 16: one container may use more than the pod",
            ),
        ],
    )
    @pytest.mark.parametrize("release", [FIXED, BEFORE_THE_FIX])
    def test_what_does_not_add_up_is_refused_at_one_field(
        self, containers: list[Json], resources: Json, field: str, release: str
    ) -> None:
        written = pod(containers, resources=resources)
        shape = apply_defaults(written, Release.of(release))
        errors = validate(written, shape, Release.of(release))
        assert [(error.field, error.type) for error in errors] == [(field, "FieldValueInvalid")]

    def test_limits_together_may_exceed_the_pod_limit(self) -> None:
        plan = planned(
            pod([box("10Gi", "80Gi"), box("20Gi", "80Gi")], resources=stanza("60Gi", "100Gi")),
            node_settings(FIXED),
        )
        assert plan.settings["memory.max"].value == 100 * GI
        assert of_containers(plan, "memory.max") == [80 * GI, 80 * GI]


class TestTrickyCases:
    def test_a_pod_limit_and_one_container_with_a_request_and_a_limit(self) -> None:
        mixed = pod([box("50Gi", "60Gi"), box()], resources=stanza(None, "100Gi"))
        shape = apply_defaults(mixed, Release.of(FIXED))
        assert shape.pod is not None
        assert memory(shape.pod.requests) == "50Gi"
        assert of_containers(planned(mixed, node_settings(FIXED)), "memory.max") == [
            60 * GI,
            100 * GI,
        ]

    def test_a_pod_limit_and_three_requests(self) -> None:
        three = pod([box("10Gi"), box("20Gi"), box("20Gi")], resources=stanza(None, "100Gi"))
        shape = apply_defaults(three, Release.of(FIXED))
        assert shape.pod is not None
        assert memory(shape.pod.requests) == "50Gi"
        assert of_containers(planned(three, node_settings(FIXED)), "memory.max") == [100 * GI] * 3

    def test_a_pod_request_and_one_limited_container_leave_the_pod_unlimited(self) -> None:
        plan = planned(
            pod([box(None, "20Gi"), box()], resources=stanza("60Gi")), node_settings(FIXED)
        )
        assert plan.settings["memory.max"].value is None
        assert of_containers(plan, "memory.max") == [20 * GI, MAX]

    def test_a_pod_request_alone_leaves_the_containers_the_least_cpu_weight(self) -> None:
        plan = planned(pod([box(), box()], resources=stanza("60Gi")), node_settings(FIXED))
        assert of_containers(plan, "cpu.shares") == [2, 2]
        assert of_containers(plan, "cpu.max") == ["max 100000"] * 2

    def test_a_request_above_all_limits_together_becomes_the_limit(self) -> None:
        written = pod([box("10Gi", "30Gi"), box("20Gi", "40Gi")], resources=stanza("90Gi"))
        shape = apply_defaults(written, Release.of(FIXED))
        assert shape.pod is not None
        assert memory(shape.pod.limits) == "90Gi"

    def test_every_container_counts_when_limits_are_completed(self) -> None:
        for group in ("init", "ephemeral"):
            extra: Json = {group: [box()]}
            written = pod([box("1Gi", "2Gi")], resources=stanza("4Gi"), **extra)
            shape = apply_defaults(written, Release.of(FIXED))
            assert shape.pod is not None
            assert shape.pod.limits == {}

    def test_resources_are_completed_one_by_one(self) -> None:
        written = pod(
            [box("10Gi", cpu=("1", "2")), box("20Gi", cpu=("1", "2"))], resources=stanza("60Gi")
        )
        fixed = apply_defaults(written, Release.of(FIXED)).pod
        unfixed = apply_defaults(written, Release.of(BEFORE_THE_FIX)).pod
        assert fixed is not None
        assert unfixed is not None
        assert (fixed.requests["cpu"], fixed.limits) == (2000, {"cpu": 4000})
        assert (set(unfixed.requests), unfixed.limits) == ({"memory"}, {})
