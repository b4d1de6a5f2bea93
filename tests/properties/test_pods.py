"""What holds for every pod, release and node."""

from collections.abc import Iterator

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.builders import Json
from tests.fakes.pod_messages import encode_pod
from tests.properties.strategies import (
    LARGEST,
    containers,
    odd_pods,
    pods,
    releases,
    settings_strategy,
)

from memqos.host.pods_api import decode_pod
from memqos.kube.aggregate import aggregate_limits, aggregate_requests, has_pod_level, pod_requests
from memqos.kube.defaulting import apply_defaults
from memqos.kube.explanations import why_class, why_defaulted, why_total
from memqos.kube.oom import BEST_EFFORT_SCORE, GUARANTEED, LOWEST_BURSTABLE
from memqos.kube.pod import Container, Pod, PodOS, PodStatus, ResourceRequirements
from memqos.kube.qos import compute_qos_class, qos_class
from memqos.kube.quantity import whole
from memqos.kube.resources import MEMORY, Amounts
from memqos.kube.shape import Part, Shape, containers_of, shape_of, with_shape
from memqos.kube.validation import validate
from memqos.plan.levels import class_demand, plan_levels
from memqos.plan.pod import PodPlan, plan_pod
from memqos.plan.semantics import Planner, semantics
from memqos.plan.setting import MAX, NEEDS_NODE, FileSettings
from memqos.release import Release
from memqos.settings.settings import Settings


def valid(pod: Pod, node_settings: Settings) -> tuple[Shape, PodPlan]:
    """Shape and plan of a valid pod; others are not looked at."""
    found = semantics(pod, node_settings)
    assume(found.plan is not None)
    assert found.plan is not None
    return found.shape, found.plan


def cgroups(plan: PodPlan) -> Iterator[FileSettings]:
    yield plan.settings
    for container in plan.containers:
        yield container.settings


def memory_of(amounts: Amounts) -> int:
    return whole(amounts.get(MEMORY, 0))


class TestMemoryHigh:
    @given(pods, settings_strategy(node=True))
    def test_a_container_is_throttled_above_its_request_and_within_its_limit(
        self, pod: Pod, node_settings: Settings
    ) -> None:
        """Its limit is its own, else what the node has to give."""
        shape, plan = valid(pod, node_settings)
        for part, container in zip(shape.parts, plan.containers, strict=True):
            high = container.settings["memory.high"].value
            if high is not None:
                assert isinstance(high, int)
                most = memory_of(part.limits) or node_settings.memory_allocatable
                assert most is not None
                assert memory_of(part.requests) < high <= most

    @given(pods, settings_strategy(oldest=27, node=True))
    def test_from_1_27_on_at_a_whole_page(self, pod: Pod, node_settings: Settings) -> None:
        _, plan = valid(pod, node_settings)
        for settings in cgroups(plan):
            high = settings["memory.high"].value
            assert high is None or isinstance(high, int)
            assert not (high or 0) % node_settings.page_size

    @given(pods, settings_strategy(oldest=37))
    def test_a_pod_is_throttled_above_its_request_and_within_its_limit(
        self, pod: Pod, node_settings: Settings
    ) -> None:
        _, plan = valid(pod, node_settings)
        high = plan.settings["memory.high"].value
        if high is not None:
            assert isinstance(high, int)
            assert memory_of(plan.requests) < high <= memory_of(plan.limits)
            assert high <= int(plan.settings["memory.max"].value or LARGEST**2)

    @given(pods, settings_strategy())
    def test_a_pod_guaranteed_by_its_containers_is_never_throttled(
        self, pod: Pod, node_settings: Settings
    ) -> None:
        shape, plan = valid(pod, node_settings)
        if plan.qos == "Guaranteed" and not has_pod_level(shape, node_settings.release):
            assert all(settings["memory.high"].value is None for settings in cgroups(plan))


class TestProtection:
    @given(pods, settings_strategy())
    def test_nobody_is_protected_twice(self, pod: Pod, node_settings: Settings) -> None:
        _, plan = valid(pod, node_settings)
        for settings in cgroups(plan):
            assert not (settings["memory.min"].value and settings["memory.low"].value)

    @given(pods, settings_strategy(oldest=36))
    def test_policy_none_protects_nobody(self, pod: Pod, node_settings: Settings) -> None:
        _, plan = valid(pod, msgspec.structs.replace(node_settings, policy="None"))
        for settings in cgroups(plan):
            assert not settings["memory.min"].value
            assert not settings["memory.low"].value

    @given(pods, settings_strategy())
    def test_a_pod_claims_all_that_its_running_containers_claim(
        self, pod: Pod, node_settings: Settings
    ) -> None:
        """A cgroup is never protected further than its parent is."""
        _, plan = valid(pod, node_settings)
        for name in ("memory.min", "memory.low"):
            claims = [int(each.settings[name].value or 0) for each in plan.containers]
            running = sum(
                claim
                for claim, each in zip(claims, plan.containers, strict=True)
                if each.role != "init"
            )
            # Each container's part of a byte was rounded up on its own.
            claimed = int(plan.settings[name].value or 0) + len(claims)
            assert max(running, *claims) <= claimed

    @given(st.lists(pods, max_size=3), settings_strategy())
    def test_the_levels_claim_all_that_their_pods_claim(
        self, several: list[Pod], node_settings: Settings
    ) -> None:
        """BestEffort pods are not counted, even those whose containers request memory."""
        plans = [
            plan for pod in several if (plan := semantics(pod, node_settings).plan) is not None
        ]
        levels = plan_levels(class_demand(plans), node_settings)
        counted = [plan for plan in plans if plan.qos != "BestEffort"]
        burstable = [plan for plan in counted if plan.qos == "Burstable"]
        for level, below in ((levels.kubepods, counted), (levels.burstable, burstable)):
            for name in ("memory.min", "memory.low"):
                if name in level and level[name].value is not None:
                    claimed = [int(plan.settings[name].value or 0) for plan in below]
                    assert sum(claimed) <= int(level[name].value or 0)


class TestLimits:
    @given(pods, settings_strategy())
    def test_no_running_container_may_use_more_than_its_pod(
        self, pod: Pod, node_settings: Settings
    ) -> None:
        _, plan = valid(pod, node_settings)
        most = plan.settings["memory.max"].value
        if most is not None:
            for container in plan.containers:
                if container.role == "regular":
                    assert container.settings["memory.max"].value != MAX
                    assert int(container.settings["memory.max"].value or 0) <= int(most)


class TestScores:
    @given(pods, settings_strategy(node=True))
    def test_burstable_lies_between_guaranteed_and_best_effort(
        self, pod: Pod, node_settings: Settings
    ) -> None:
        shape, plan = valid(pod, node_settings)
        for container in plan.containers:
            score = container.settings["oom_score_adj"].value
            assert isinstance(score, int)
            if shape.node_critical or plan.qos == "Guaranteed":
                assert score == GUARANTEED
            elif plan.qos == "BestEffort":
                assert score == BEST_EFFORT_SCORE
            else:
                assert LOWEST_BURSTABLE <= score < BEST_EFFORT_SCORE


class TestWithoutANode:
    @given(pods, settings_strategy(node=False), st.integers(1, LARGEST), st.integers(0, LARGEST))
    def test_what_is_reported_holds_on_every_node(
        self, pod: Pod, node_settings: Settings, capacity: int, allocatable: int
    ) -> None:
        _, plan = valid(pod, node_settings)
        somewhere = msgspec.structs.replace(
            node_settings, memory_capacity=capacity, memory_allocatable=allocatable
        )
        _, there = valid(pod, somewhere)
        for here_settings, there_settings in zip(cgroups(plan), cgroups(there), strict=True):
            assert here_settings.keys() == there_settings.keys()
            for name, setting in here_settings.items():
                found = there_settings[name].value
                assert found != NEEDS_NODE
                assert setting.value in (NEEDS_NODE, found)


class TestDefaulting:
    @given(pods, releases())
    def test_defaulting_twice_is_defaulting_once(self, pod: Pod, release: Release) -> None:
        once = apply_defaults(pod, release)
        again = with_shape(pod, once)
        assert shape_of(again, release) == once
        assert apply_defaults(again, release) == once

    @given(pods, releases())
    def test_what_is_written_stays(self, pod: Pod, release: Release) -> None:
        before, after = shape_of(pod, release), apply_defaults(pod, release)
        sides = [(old.requests, new.requests) for old, new in pairs(before, after)]
        sides += [(old.limits, new.limits) for old, new in pairs(before, after)]
        if before.pod is not None and after.pod is not None:
            sides.append((before.pod.requests, after.pod.requests))
            sides.append((before.pod.limits, after.pod.limits))
        for old, new in sides:
            assert old.items() <= new.items()

    @given(pods, releases())
    def test_a_pod_limit_that_is_completed_covers_the_request(
        self, pod: Pod, release: Release
    ) -> None:
        before, after = shape_of(pod, release), apply_defaults(pod, release)
        if before.pod is not None and after.pod is not None:
            for name in after.pod.limits.keys() - before.pod.limits.keys():
                assert after.pod.limits[name] >= after.pod.requests[name]

    @given(pods, releases())
    def test_a_limited_container_requests_something(self, pod: Pod, release: Release) -> None:
        for part in apply_defaults(pod, release).parts:
            assert part.limits.keys() <= part.requests.keys()

    @given(pods, releases())
    def test_the_class_is_that_of_the_pod_as_stored(self, pod: Pod, release: Release) -> None:
        once = apply_defaults(pod, release)
        qos = compute_qos_class(once, release)
        stored = msgspec.structs.replace(once, stored_class=qos)
        assert qos_class(once, release) == qos_class(stored, release) == qos
        assert compute_qos_class(apply_defaults(with_shape(pod, once), release), release) == qos


def pairs(before: Shape, after: Shape) -> Iterator[tuple[Part, Part]]:
    yield from zip(before.parts, after.parts, strict=True)


class TestAggregate:
    @given(pods, releases())
    def test_it_is_never_below_any_part(self, pod: Pod, release: Release) -> None:
        shape = apply_defaults(pod, release)
        requests, limits = aggregate_requests(shape), aggregate_limits(shape)
        for part in shape.parts:
            for name, amount in part.requests.items():
                assert requests[name] >= amount
            for name, amount in part.limits.items():
                assert limits[name] >= amount

    @given(pods, releases())
    def test_nor_below_what_starts_beside_the_sidecars_before_it(
        self, pod: Pod, release: Release
    ) -> None:
        # Without regular containers nothing hides what starting takes.
        shape = msgspec.structs.replace(apply_defaults(pod, release), containers=())
        requests = aggregate_requests(shape)
        for index, part in enumerate(shape.init_containers):
            before = [each for each in shape.init_containers[:index] if each.role == "sidecar"]
            for name, amount in part.requests.items():
                beside = sum(each.requests.get(name, 0) for each in before)
                assert requests[name] >= amount + beside

    @given(pods, releases())
    def test_nor_below_all_that_runs_together(self, pod: Pod, release: Release) -> None:
        shape = apply_defaults(pod, release)
        together = [part for part in shape.parts if part.role in ("regular", "sidecar")]
        requests = aggregate_requests(shape)
        for name, total in requests.items():
            assert total >= sum(part.requests.get(name, 0) for part in together)

    @given(pods, containers, st.sampled_from(["containers", "init_containers"]), releases())
    def test_another_container_never_lowers_it(
        self, pod: Pod, container: Json, group: str, release: Release
    ) -> None:
        added = msgspec.convert({"name": "added", "image": "image", **container}, Container)
        larger = msgspec.structs.replace(
            pod,
            spec=msgspec.structs.replace(
                pod.spec, **{group: (*(getattr(pod.spec, group) or ()), added)}
            ),
        )
        before, after = apply_defaults(pod, release), apply_defaults(larger, release)
        together = aggregate_requests(after)
        assert all(together[name] >= amount for name, amount in aggregate_requests(before).items())
        if before.pod is None:
            total = pod_requests(after, release)
            assert all(
                total[name] >= amount for name, amount in pod_requests(before, release).items()
            )


class TestValidation:
    @given(odd_pods, releases())
    def test_it_never_fails_whatever_the_resources(self, pod: Pod, release: Release) -> None:
        for error in validate(pod, apply_defaults(pod, release), release):
            assert error.field.startswith("spec.")
            assert error.field in str(error)

    @given(odd_pods, settings_strategy())
    def test_a_pod_is_planned_or_refused(self, pod: Pod, node_settings: Settings) -> None:
        found = semantics(pod, node_settings)
        assert (found.plan is None) == bool(found.errors)


def variants(pod: Pod) -> Iterator[Pod]:
    """The pod, and pods that differ from it in one respect."""
    spec = pod.spec
    others = [
        msgspec.structs.replace(container, restart_policy="Always")
        for container in spec.init_containers or ()
    ]
    changes: list[Json] = [
        {},
        {"init_containers": tuple(others)},
        {"init_containers": None},
        {"resources": None},
        {"resources": ResourceRequirements()},
        {"overhead": None},
        {"os": PodOS("windows")},
        {"priority_class_name": "system-node-critical"},
        {"containers": (spec.containers or ())[:1]},
    ]
    for change in changes:
        yield msgspec.structs.replace(pod, spec=msgspec.structs.replace(spec, **change))
    yield msgspec.structs.replace(pod, status=PodStatus(qos_class="BestEffort"))


class TestPlanner:
    @given(pods | odd_pods, settings_strategy())
    def test_what_is_remembered_is_what_would_be_worked_out(
        self, pod: Pod, node_settings: Settings
    ) -> None:
        planner = Planner(node_settings)
        several = list(variants(pod))
        for each in several + several:
            found = planner.semantics(each)
            shape = apply_defaults(each, node_settings.release)
            assert found.shape == shape
            assert list(found.errors) == validate(each, shape, node_settings.release)
            if found.plan is not None:
                assert found.plan == plan_pod(
                    shape, node_settings, qos_class(shape, node_settings.release)
                )


class TestReasons:
    @given(pods, settings_strategy())
    def test_every_value_can_be_explained(self, pod: Pod, node_settings: Settings) -> None:
        shape, plan = valid(pod, node_settings)
        for settings in cgroups(plan):
            for setting in settings.values():
                assert setting.because.text
        release = node_settings.release
        names = [container.name for container in containers_of(pod)]
        assert why_class(shape, names, release)
        assert all(why_defaulted(shape_of(pod, release), shape, names, release))
        for side, totals in (("requests", plan.requests), ("limits", plan.limits)):
            for name in totals:
                assert why_total(shape, totals, name, side, release)


@given(pods, settings_strategy())
def test_a_pod_of_the_pods_api_is_planned_as_the_same_pod_in_json(
    pod: Pod, settings: Settings
) -> None:
    decoded = decode_pod(encode_pod(msgspec.to_builtins(pod)))
    assert semantics(decoded, settings) == semantics(pod, settings)
