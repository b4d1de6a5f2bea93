"""Limit ranges: what they fill in, and what they refuse."""

from typing import Any

import msgspec
import pytest
from tests.builders import GI, MI, Json, box, default_new_pod, pod, stanza

from memqos.cluster.limit_range import (
    LimitRange,
    LimitRangeAmounts,
    LimitRangeDenial,
    LimitRangeViolation,
    apply_limit_ranges,
    complete_limit_range,
    limit_range_amounts,
    limit_range_denial,
    limit_range_violations,
)
from memqos.errors import InputError
from memqos.kube.defaulting import decoding_defaults
from memqos.kube.pod import Pod
from memqos.kube.resources import Resources
from memqos.kube.shape import Shape, shape_of
from memqos.release import Release

NEWEST = Release.of("1.38")
MILLI_GI = GI * 1000
MILLI_MI = MI * 1000


def limits(*items: Json, name: str = "limits") -> LimitRangeAmounts:
    """A limit range as the API server stores it."""
    data = {"metadata": {"name": name}, "spec": {"limits": list(items)}}
    return complete_limit_range(limit_range_amounts(msgspec.convert(data, LimitRange)))


def item(type: str = "Container", **bounds: Any) -> Json:
    return {"type": type, **bounds}


def memory(amount: str) -> Json:
    return {"memory": amount}


def refused(
    found: Pod, *ranges: LimitRangeAmounts, release: Release = NEWEST
) -> LimitRangeDenial | None:
    return limit_range_denial(default_new_pod(found, ranges, release), ranges, release)


def the_violation(found: Pod, *ranges: LimitRangeAmounts) -> LimitRangeViolation:
    verdict = refused(found, *ranges)
    assert verdict is not None
    (violation,) = verdict.violations
    return violation


def test_a_container_gets_the_default_limit_and_request_it_lacks() -> None:
    shape = default_new_pod(
        pod([box()]),
        [limits(item(default=memory("1Gi"), defaultRequest=memory("512Mi")))],
        NEWEST,
    )
    assert shape.containers[0].requests == {"memory": 512 * MILLI_MI}
    assert shape.containers[0].limits == {"memory": MILLI_GI}


def test_a_containers_own_values_are_never_overruled() -> None:
    shape = default_new_pod(
        pod([box("64Mi", "128Mi")]),
        [limits(item(default=memory("1Gi"), defaultRequest=memory("512Mi")))],
        NEWEST,
    )
    assert shape.containers[0].requests == {"memory": 64 * MILLI_MI}
    assert shape.containers[0].limits == {"memory": 128 * MILLI_MI}


def test_a_limit_becomes_the_request_before_any_limit_range_applies() -> None:
    shape = default_new_pod(
        pod([box(limit="2Gi")]), [limits(item(defaultRequest=memory("512Mi")))], NEWEST
    )
    assert shape.containers[0].requests == {"memory": 2 * MILLI_GI}


@pytest.mark.parametrize(
    ("bounds", "requested", "limit"),
    [
        ({"max": memory("1Gi")}, 1024, 1024),
        ({"min": memory("256Mi")}, 256, None),
        ({"min": memory("256Mi"), "max": memory("1Gi")}, 1024, 1024),
        ({"default": memory("512Mi"), "max": memory("1Gi")}, 512, 512),
        ({"defaultRequest": memory("128Mi"), "min": memory("64Mi")}, 128, None),
    ],
)
def test_a_range_without_defaults_makes_them_of_its_bounds(
    bounds: Json, requested: int, limit: int | None
) -> None:
    part = default_new_pod(pod([box()]), [limits(item(**bounds))], NEWEST).containers[0]
    assert part.requests["memory"] == requested * MILLI_MI
    assert part.limits.get("memory") == (None if limit is None else limit * MILLI_MI)


def test_bounds_for_whole_pods_give_no_defaults() -> None:
    assert limits(item("Pod", max=memory("1Gi"))).bounds[0].default == {}


def test_init_containers_and_sidecars_get_defaults_too() -> None:
    shape = default_new_pod(
        pod([box()], init=[box(), box(sidecar=True)]),
        [limits(item(default=memory("1Gi")))],
        NEWEST,
    )
    assert [part.limits for part in shape.init_containers] == [{"memory": MILLI_GI}] * 2


def test_a_pod_with_pod_level_resources_gets_container_defaults_all_the_same() -> None:
    shape = default_new_pod(
        pod([box()], resources=stanza(limit="4Gi")),
        [limits(item(default=memory("1Gi")))],
        NEWEST,
    )
    assert shape.containers[0].limits == {"memory": MILLI_GI}


def test_container_defaults_count_when_the_pod_level_is_completed() -> None:
    shape = default_new_pod(
        pod([box(), box()], resources=stanza(limit="4Gi")),
        [limits(item(default=memory("1Gi")))],
        NEWEST,
    )
    assert shape.pod == Resources({"memory": 2 * MILLI_GI}, {"memory": 4 * MILLI_GI})


def test_before_the_fix_the_pod_level_is_completed_without_container_defaults() -> None:
    release = Release.of("1.38", {"PodLevelResourcesFixDefaulting": False})
    shape = default_new_pod(
        pod([box(), box()], resources=stanza(limit="4Gi")),
        [limits(item(default=memory("1Gi")))],
        release,
    )
    assert shape.pod == Resources({"memory": 4 * MILLI_GI}, {"memory": 4 * MILLI_GI})


def test_the_first_range_with_a_default_wins_but_the_last_item_within_one() -> None:
    first = limits(item(default=memory("1Gi")), item(default=memory("2Gi")))
    second = limits(item(default=memory("3Gi")))
    shape = default_new_pod(pod([box()]), [first, second], NEWEST)
    assert shape.containers[0].limits == {"memory": 2 * MILLI_GI}


def test_pod_defaults_are_ignored_as_every_release_does() -> None:
    ranges = [limits(item("Pod", default=memory("1Gi"), defaultRequest=memory("512Mi")))]
    assert default_new_pod(pod([box()]), ranges, NEWEST).pod is None


def test_pod_defaults_as_the_enhancement_proposes_them_fill_the_pod_level() -> None:
    ranges = [limits(item("Pod", default=memory("1Gi"), defaultRequest=memory("512Mi")))]
    shape = default_new_pod(pod([box()]), ranges, NEWEST, pod_defaults=True)
    assert shape.pod == Resources({"memory": 512 * MILLI_MI}, {"memory": MILLI_GI})
    assert shape.containers[0].limits == {}


def test_proposed_pod_defaults_do_not_change_what_the_pod_sets_or_cannot_set() -> None:
    default = memory("1Gi") | {"ephemeral-storage": "1Gi"}
    ranges = [limits(item("Pod", default=default, defaultRequest=default))]
    shape = decoding_defaults(pod([box()], resources=stanza("2Gi", "4Gi")), NEWEST)
    filled = apply_limit_ranges(shape, ranges, NEWEST, pod_defaults=True)
    assert filled.pod == Resources({"memory": 2 * MILLI_GI}, {"memory": 4 * MILLI_GI})


def test_proposed_pod_defaults_need_the_pod_level() -> None:
    release = Release.of("1.38", {"PodLevelResources": False})
    ranges = [limits(item("Pod", default=memory("1Gi")))]
    shape = decoding_defaults(pod([box()]), release)
    assert apply_limit_ranges(shape, ranges, release, pod_defaults=True).pod is None


def test_a_request_below_the_minimum_is_refused_with_both_numbers() -> None:
    violation = the_violation(pod([box("64Mi", "1Gi")]), limits(item(min=memory("128Mi"))))
    assert violation == LimitRangeViolation(
        range="limits",
        where="spec.containers[0]",
        type="Container",
        resource="memory",
        constraint="min",
        which="request",
        value=64 * MILLI_MI,
        allowed=128 * MILLI_MI,
    )


def test_a_limit_below_the_minimum_is_refused_even_with_a_large_request() -> None:
    shape = shape_of(pod([box("2Gi", "1Gi")]), NEWEST)
    (violation,) = limit_range_violations(shape, limits(item(min=memory("2Gi"))), NEWEST)
    assert (violation.which, violation.value) == ("limit", MILLI_GI)


def test_a_limit_above_the_maximum_is_refused() -> None:
    violation = the_violation(pod([box("64Mi", "2Gi")]), limits(item(max=memory("1Gi"))))
    assert (violation.constraint, violation.which) == ("max", "limit")


def test_a_request_above_the_maximum_is_refused_where_the_limit_was_filled_in() -> None:
    violation = the_violation(pod([box("2Gi")]), limits(item(max=memory("1Gi"))))
    assert (violation.which, violation.value) == ("request", 2 * MILLI_GI)


@pytest.mark.parametrize(
    ("bounds", "which"),
    [
        ({"min": memory("1Mi")}, "request"),
        ({"max": memory("1Gi")}, "limit"),
        ({"maxLimitRequestRatio": memory("2")}, "request"),
    ],
)
def test_a_value_missing_in_the_whole_pod_breaks_every_bound_on_it(
    bounds: Json, which: str
) -> None:
    violation = the_violation(pod([box(cpu=("1", "1"))]), limits(item("Pod", **bounds)))
    assert (violation.where, violation.which, violation.value) == ("spec", which, None)


def test_a_zero_has_no_ratio() -> None:
    ratio = limits(item(maxLimitRequestRatio=memory("2")))
    assert the_violation(pod([box("0", "1Gi")]), ratio).which == "request"
    assert the_violation(pod([box("1Gi", "0")]), ratio).which == "limit"


@pytest.mark.parametrize(
    ("value", "limit", "most", "times"),
    [
        ("1e999", "1.5e999", "1.5", None),
        ("1e999", "1.501e999", "1.5", 1501),
        ("1", "10e399", "1e300", 10**403),
        ("1Gi", "2Gi", "1e999", None),
        ("1Gi", "2Gi", "-1e999", 2000),
    ],
)
def test_a_ratio_is_exact_where_kubernetes_overflows(
    value: str, limit: str, most: str, times: int | None
) -> None:
    ratio = limits(item(maxLimitRequestRatio=memory(most)))
    found = refused(pod([box(value, limit)]), ratio)
    passed = [] if found is None else [each.value for each in found.violations]
    assert passed == ([] if times is None else [times])


def test_a_ratio_may_be_reached_but_not_passed() -> None:
    ratio = limits(item(maxLimitRequestRatio=memory("1.5")))
    assert refused(pod([box("2Gi", "3Gi")]), ratio) is None
    violation = the_violation(pod([box("1Gi", "2Gi")]), ratio)
    assert (violation.which, violation.value, violation.allowed) == ("ratio", 2000, 1500)


def test_init_containers_are_checked_one_by_one() -> None:
    found = pod([box("1Gi", "1Gi")], init=[box("2Gi", "2Gi"), box("3Gi", "3Gi", sidecar=True)])
    verdict = refused(found, limits(item(max=memory("1Gi"))))
    assert verdict is not None
    assert [violation.where for violation in verdict.violations] == [
        "spec.initContainers[0]",
        "spec.initContainers[1]",
    ]


def test_a_whole_pod_is_the_sum_of_containers_and_sidecars() -> None:
    found = pod([box("1Gi", "1Gi")], init=[box("1Gi", "1Gi", sidecar=True)])
    violation = the_violation(found, limits(item("Pod", max=memory("1Gi"))))
    assert violation.value == 2 * MILLI_GI


def test_before_sidecars_existed_init_containers_did_not_add_up() -> None:
    found = pod([box("1Gi", "1Gi")], init=[box("1Gi", "1Gi", sidecar=True)])
    assert (
        refused(found, limits(item("Pod", max=memory("1Gi"))), release=Release.of("1.27")) is None
    )


def test_pod_level_memory_stands_for_the_whole_pod() -> None:
    found = pod([box("1Gi", "1Gi")], resources=stanza("2Gi", "2Gi"))
    assert the_violation(found, limits(item("Pod", max=memory("1Gi")))).value == 2 * MILLI_GI


def test_pod_level_hugepages_are_not_seen_by_limit_ranges() -> None:
    pages = {"hugepages-2Mi": "4Mi"}
    found = pod([box("1Gi", "1Gi")], resources=stanza("2Gi", "2Gi", requests=pages, limits=pages))
    violation = the_violation(found, limits(item("Pod", max={"hugepages-2Mi": "8Mi"})))
    assert violation.value is None


def test_overhead_is_not_counted() -> None:
    found = pod([box("1Gi", "1Gi")], overhead={"memory": "1Gi"})
    assert refused(found, limits(item("Pod", max=memory("1Gi")))) is None


def test_claims_have_their_own_ranges() -> None:
    storage = limits(item("PersistentVolumeClaim", max={"storage": "1Gi"}))
    assert refused(pod([box()]), storage) is None


def test_the_first_range_that_refuses_is_named_with_all_it_refuses() -> None:
    found = pod([box("2Gi", "4Gi")])
    wide, narrow = limits(item(max=memory("8Gi"))), limits(item(max=memory("1Gi")), name="narrow")
    strict = limits(item(max=memory("1Mi"), maxLimitRequestRatio=memory("1")), name="strict")
    verdict = refused(found, wide, narrow, strict)
    assert verdict is not None
    assert verdict.index == 1
    assert {violation.range for violation in verdict.violations} == {"narrow"}


def test_numbers_too_large_for_thousandths_are_compared_in_whole_units() -> None:
    def shape_with(memory_limit: str) -> Shape:
        return shape_of(pod([box("1", memory_limit)]), NEWEST)

    half = limits(item(max=memory("9223372036854775.5")))
    assert limit_range_denial(shape_with("9223372036854775600m"), [half], NEWEST) is None
    small = limits(item(max=memory("1.5")))
    assert limit_range_denial(shape_with("1600m"), [small], NEWEST) is not None


def test_a_broken_quantity_is_named_by_its_field() -> None:
    with pytest.raises(InputError) as caught:
        limits(item(), item(max=memory("lots")))
    assert caught.value.field == "spec.limits[1].max[memory]"
