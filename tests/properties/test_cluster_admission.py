"""What holds for admission, resize and autoscaling whatever the pod."""

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import Json, default_new_pod, pod

from memqos.cluster.autoscaling import UnknownRequest, cluster_autoscaler_requests, hpa_request
from memqos.cluster.limit_range import (
    LimitRangeAmounts,
    LimitRangeBounds,
    apply_limit_ranges,
    complete_limit_range,
    limit_range_denial,
    limit_range_violations,
)
from memqos.cluster.quota import Quota, quota_usage
from memqos.cluster.quota_admission import check_quotas
from memqos.cluster.resize import resize_pod
from memqos.kube.defaulting import apply_defaults, decoding_defaults
from memqos.kube.pod import Pod
from memqos.kube.resources import Amounts
from memqos.kube.shape import with_shape
from memqos.kube.validation import validate
from memqos.release import Release

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NEWEST = Release.of("1.38")
NAMES = ("cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "example.com/gpu")
PLENTY = 10**12

releases = st.sampled_from([Release.of(minor) for minor in (22, 28, 33, 36, 38)])
names = st.sampled_from(NAMES)
amounts = st.dictionaries(names, st.integers(0, 6).map(lambda n: n * 2_097_152_000), max_size=3)
lists = st.dictionaries(names, st.sampled_from(["0", "2Mi", "4Mi", "8Mi", "16Mi"]), max_size=3)
stanzas = st.fixed_dictionaries({}, optional={"requests": lists, "limits": lists})
boxes = st.fixed_dictionaries({"resources": stanzas})
init_boxes = st.fixed_dictionaries(
    {"resources": stanzas}, optional={"restartPolicy": st.just("Always")}
)
pods = st.builds(
    pod,
    st.lists(boxes, min_size=1, max_size=2),
    init=st.lists(init_boxes, max_size=2),
    resources=st.none() | stanzas,
    overhead=st.none() | lists,
    activeDeadlineSeconds=st.none() | st.just(60),
)


@st.composite
def requirements(draw: st.DrawFn) -> Json:
    """A stanza of cpu and memory in which no request passes its limit."""
    sides: Json = {"requests": {}, "limits": {}}
    for name in ("cpu", "memory"):
        request, limit = sorted((draw(st.integers(1, 3)), draw(st.integers(1, 3))))
        sides["requests"][name] = str(request)
        if draw(st.booleans()):
            sides["limits"][name] = str(limit)
    return sides


@st.composite
def ranges(draw: st.DrawFn) -> LimitRangeAmounts:
    items = [
        LimitRangeBounds(
            draw(st.sampled_from(["Container", "Pod", "PersistentVolumeClaim"])),
            min=draw(amounts),
            max=draw(amounts),
            ratio=draw(amounts),
            default=draw(amounts),
            default_request=draw(amounts),
        )
        for _ in range(draw(st.integers(0, 2)))
    ]
    return complete_limit_range(LimitRangeAmounts("limits", tuple(items)))


quotas = st.builds(
    Quota,
    st.just("quota"),
    hard=st.dictionaries(
        st.sampled_from(["pods", "count/pods", "memory", "limits.cpu", "requests.example.com/gpu"]),
        st.integers(0, 40).map(lambda n: n * 1_048_576_000),
        min_size=1,
    ),
    used=st.just({}),
).map(lambda quota: msgspec.structs.replace(quota, used=dict.fromkeys(quota.hard, 0)))


def stored(found: Pod, release: Release = NEWEST) -> Pod:
    return with_shape(found, apply_defaults(found, release))


@given(pods, st.lists(ranges(), max_size=3), releases, st.booleans())
def test_limit_ranges_change_a_pod_once(
    found: Pod, limits: list[LimitRangeAmounts], release: Release, proposed: bool
) -> None:
    once = apply_limit_ranges(
        decoding_defaults(found, release), limits, release, pod_defaults=proposed
    )
    assert apply_limit_ranges(once, limits, release, pod_defaults=proposed) == once


@given(ranges())
def test_completing_a_range_again_changes_nothing(limits: LimitRangeAmounts) -> None:
    assert complete_limit_range(limits) == limits


@given(pods, ranges(), releases)
def test_a_range_never_misses_the_min_or_max_that_it_fills_in(
    found: Pod, limits: LimitRangeAmounts, release: Release
) -> None:
    shape = default_new_pod(found, [limits], release)
    assert not [
        violation
        for violation in limit_range_violations(shape, limits, release)
        if violation.type == "Container"
        and violation.constraint != "ratio"
        and violation.value is None
    ]


@given(pods, st.lists(ranges(), max_size=3), releases)
def test_a_pod_is_refused_by_the_first_range_that_would_refuse_it_alone(
    found: Pod, limits: list[LimitRangeAmounts], release: Release
) -> None:
    shape = default_new_pod(found, limits, release)
    alone = [index for index, one in enumerate(limits) if limit_range_denial(shape, [one], release)]
    verdict = limit_range_denial(shape, limits, release)
    assert (verdict.index if verdict else None) == (alone[0] if alone else None)


def charged_in_turn(found: Iterable[Pod], quota: Quota, release: Release) -> Amounts | None:
    for one in found:
        verdict = check_quotas(one, [quota], release, NOW)
        if not verdict.allowed:
            return None
        quota = msgspec.structs.replace(quota, used=verdict.new_used["quota"])
    return quota.used


@given(st.lists(pods, max_size=4), st.sets(st.sampled_from(["pods", "requests.example.com/gpu"])))
def test_pods_charge_a_quota_the_sum_of_what_each_charges(
    found: list[Pod], names: set[str]
) -> None:
    bound = Quota("quota", dict.fromkeys(names, PLENTY), dict.fromkeys(names, 0))
    kept = [stored(one) for one in found]
    used = charged_in_turn(kept, bound, NEWEST)
    each = [quota_usage(one, NEWEST, NOW) for one in kept]
    assert used == {name: sum(charge.get(name, 0) for charge in each) for name in names}
    assert used == charged_in_turn(reversed(kept), bound, NEWEST)


@given(pods, quotas, st.integers(0, 10**11), releases)
def test_what_a_quota_admits_a_larger_one_admits(
    found: Pod, bound: Quota, more: int, release: Release
) -> None:
    kept = stored(found, release)
    larger = msgspec.structs.replace(
        bound, hard={name: amount + more for name, amount in bound.hard.items()}
    )
    if check_quotas(kept, [bound], release, NOW).allowed:
        assert check_quotas(kept, [larger], release, NOW).allowed


@given(pods, quotas, releases)
def test_what_exceeds_a_quota_requests_more_than_is_left(
    found: Pod, bound: Quota, release: Release
) -> None:
    verdict = check_quotas(stored(found, release), [bound], release, NOW)
    assert verdict.allowed is (verdict.reason is None)
    assert all(one.requested > one.allowed for one in verdict.exceeded)
    assert bool(verdict.exceeded) is (verdict.reason == "exceeded")


@given(pods, quotas, releases)
def test_resizing_to_the_same_is_never_charged(found: Pod, bound: Quota, release: Release) -> None:
    kept = stored(found, release)
    verdict = check_quotas(kept, [bound], release, NOW, resized_from=kept)
    assert verdict.reason != "exceeded"
    if verdict.allowed:
        assert verdict.new_used == {"quota": bound.used}


@given(pods)
def test_resizing_a_pod_to_itself_is_as_valid_as_the_pod(found: Pod) -> None:
    kept = stored(found)
    result = resize_pod(kept, kept, NEWEST)
    assert result.valid is (not validate(kept, result.before, NEWEST))
    assert result.after == result.before


@given(
    st.lists(st.tuples(requirements(), requirements()), min_size=1, max_size=3),
    st.lists(st.tuples(requirements(), requirements()), max_size=2),
)
def test_cpu_and_memory_change_freely_as_long_as_nothing_goes_and_the_class_stays(
    regular: list[tuple[Json, Json]], init: list[tuple[Json, Json]]
) -> None:
    def of(side: int) -> Pod:
        return pod(
            [{"resources": change[side]} for change in regular],
            init=[{"resources": change[side], "restartPolicy": "Always"} for change in init],
        )

    result = resize_pod(stored(of(0)), of(1), NEWEST)
    removed = any(old["limits"].keys() - new["limits"].keys() for old, new in regular + init)
    assert result.valid is (not removed and result.class_after == result.class_before)


@given(requirements(), st.sampled_from(["hugepages-2Mi", "ephemeral-storage", "example.com/gpu"]))
def test_nothing_but_cpu_and_memory_is_ever_resized(resources: Json, name: str) -> None:
    more = {side: found | {name: "2Mi"} for side, found in resources.items()}
    old, new = pod([{"resources": resources}]), pod([{"resources": more}])
    assert not resize_pod(stored(old), new, NEWEST).valid
    assert not resize_pod(stored(new), old, NEWEST).valid


@given(pods, st.sampled_from(NAMES), releases)
def test_the_autoscaler_of_nodes_never_sees_less_than_that_of_pods(
    found: Pod, resource: str, release: Release
) -> None:
    request = hpa_request(found, resource, release)
    if not isinstance(request, UnknownRequest):
        assert request <= cluster_autoscaler_requests(found, release).get(resource, 0)


@given(
    st.lists(requirements(), min_size=1, max_size=3),
    st.lists(st.tuples(requirements(), st.booleans()), max_size=3),
)
def test_a_pod_is_the_sum_of_its_containers_that_can_be_named(
    regular: list[Json], init: list[tuple[Json, bool]]
) -> None:
    found = pod(
        [{"resources": resources} for resources in regular],
        init=[
            {"resources": resources, "restartPolicy": "Always" if sidecar else None}
            for resources, sidecar in init
        ],
    )
    containers = (*(found.spec.containers or ()), *(found.spec.init_containers or ()))
    each = [hpa_request(found, "memory", NEWEST, container.name) for container in containers]
    named = [one for one in each if not isinstance(one, UnknownRequest)]
    assert hpa_request(found, "memory", NEWEST) == sum(named)
    assert len(named) == len(regular) + sum(sidecar for _, sidecar in init)
