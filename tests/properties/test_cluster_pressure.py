"""What holds of eviction, admission and fit for every pod and node."""

from itertools import pairwise
from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from memqos.cli.replay.pressure import tie_groups
from memqos.cluster.eviction_loop import EvictionSettings, EvictionState, evict_once
from memqos.cluster.eviction_order import EVICTION_KEYS, PodMemoryUsage, eviction_order
from memqos.cluster.eviction_signals import SignalObservation
from memqos.cluster.fit import judge_fit
from memqos.cluster.fit_demand import (
    NodeInfo,
    SchedulingDemand,
    node_info,
    scheduling_demand,
    scheduling_demands,
)
from memqos.cluster.fit_scores import SchedulerProfile
from memqos.cluster.fit_survey import survey_fit
from memqos.cluster.pressure_admission import pressure_admission
from memqos.kube.duration import SECOND
from memqos.kube.kubelet.thresholds import MEMORY_AVAILABLE, NodeCondition, read_thresholds
from memqos.kube.pod import ObjectMeta, Pod
from memqos.kube.shape import shape_of
from memqos.release import Release

releases = st.sampled_from([Release.of(f"1.{minor}") for minor in range(22, 39)])
AMOUNTS = [0, 1, 2, 3, 5, 8, 40]
SCARCE = ["ephemeral-storage", "example.com/gpu", "hugepages-2Mi"]
LISTS: list[dict[str, str]] = [
    {},
    *[{name: str(amount)} for name in ("cpu", "memory") for amount in AMOUNTS],
    *[{"cpu": str(cpu), "memory": str(memory)} for cpu in AMOUNTS for memory in AMOUNTS],
    *[{name: "2", "memory": "1"} for name in SCARCE],
]
lists = st.sampled_from(LISTS)
policies = st.sampled_from([None, "Always"])


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    regular = draw(st.lists(lists, min_size=1, max_size=3))
    init = draw(st.lists(st.tuples(lists, policies), max_size=2))
    pod_level = draw(st.none() | st.tuples(lists, lists))
    spec = {
        "containers": [
            {"name": f"c{index}", "resources": {"requests": requests}}
            for index, requests in enumerate(regular)
        ],
        "initContainers": [
            {"name": f"i{index}", "resources": {"requests": requests}, "restartPolicy": policy}
            for index, (requests, policy) in enumerate(init)
        ],
        "resources": pod_level and {"requests": pod_level[0], "limits": pod_level[1]},
        "overhead": draw(lists),
        "priority": draw(st.sampled_from([None, -5, 0, 5, 2_000_000_000])),
        "tolerations": draw(st.sampled_from([None, [{"operator": "Exists"}]])),
    }
    return msgspec.convert({"spec": spec}, Pod)


usages = st.none() | st.builds(PodMemoryUsage, st.none() | st.sampled_from(AMOUNTS))


@st.composite
def named_pods(draw: st.DrawFn) -> list[tuple[Pod, PodMemoryUsage | None]]:
    found = draw(st.lists(st.tuples(pods(), usages), max_size=5))
    return [
        (msgspec.structs.replace(pod, metadata=ObjectMeta(name=str(index))), usage)
        for index, (pod, usage) in enumerate(found)
    ]


class TestEvictionOrder:
    @given(named_pods(), releases)
    def test_the_order_holds_every_pod_once(
        self, given_pods: list[tuple[Pod, PodMemoryUsage | None]], release: Release
    ) -> None:
        order = eviction_order(given_pods, release)
        assert sorted(str(ranked.pod.metadata.name) for ranked in order) == sorted(
            str(pod.metadata.name) for pod, _ in given_pods
        )

    @given(named_pods(), releases)
    def test_pods_with_equal_keys_keep_their_order(
        self, given_pods: list[tuple[Pod, PodMemoryUsage | None]], release: Release
    ) -> None:
        groups = tie_groups(eviction_order(given_pods, release))
        for group in groups:
            places = [int(ranked.pod.metadata.name or 0) for ranked in group]
            assert places == sorted(places)

    @given(named_pods(), releases, st.randoms(use_true_random=False))
    def test_the_order_of_input_changes_nothing_else(
        self, given_pods: list[tuple[Pod, PodMemoryUsage | None]], release: Release, chance: Random
    ) -> None:
        def groups(some: list[tuple[Pod, PodMemoryUsage | None]]) -> list[set[str | None]]:
            found = tie_groups(eviction_order(some, release))
            return [{ranked.pod.metadata.name for ranked in group} for group in found]

        shuffled = list(given_pods)
        chance.shuffle(shuffled)
        assert groups(given_pods) == groups(shuffled)

    @given(named_pods(), releases)
    def test_the_key_that_is_reported_does_put_the_pod_ahead(
        self, given_pods: list[tuple[Pod, PodMemoryUsage | None]], release: Release
    ) -> None:
        order = eviction_order(given_pods, release)
        for this, following in pairwise(order):
            if this.ahead_by == "no stats":
                assert this.usage is None
                assert following.usage is not None
            elif this.ahead_by == "over request":
                assert this.over_request
                assert not following.over_request
            elif this.ahead_by == "priority":
                assert this.priority < following.priority
            elif this.ahead_by == "excess":
                assert this.usage is not None
                assert following.usage is not None
                assert this.usage * 1000 - this.request > following.usage * 1000 - following.request
            else:
                assert this.ahead_by not in EVICTION_KEYS

    @given(named_pods(), releases, st.integers(min_value=1, max_value=50))
    def test_using_more_never_saves_a_pod(
        self, given_pods: list[tuple[Pod, PodMemoryUsage | None]], release: Release, more: int
    ) -> None:
        hungry = next((i for i, (_, usage) in enumerate(given_pods) if usage is not None), None)
        if hungry is None:
            return
        pod, usage = given_pods[hungry]
        assert usage is not None
        eating = list(given_pods)
        eating[hungry] = pod, PodMemoryUsage((usage.working_set or 0) + more)

        def place(some: list[tuple[Pod, PodMemoryUsage | None]]) -> int:
            names = [ranked.pod.metadata.name for ranked in eviction_order(some, release)]
            return names.index(pod.metadata.name)

        assert place(eating) <= place(given_pods)


class TestEvictionLoop:
    @given(
        named_pods(),
        st.lists(st.tuples(st.integers(1, 200), st.integers(0, 100)), max_size=6),
        st.integers(0, 100),
        releases,
    )
    def test_only_met_thresholds_evict_and_never_a_critical_pod(
        self,
        given_pods: list[tuple[Pod, PodMemoryUsage | None]],
        steps: list[tuple[int, int]],
        transition: int,
        release: Release,
    ) -> None:
        read = read_thresholds(
            {MEMORY_AVAILABLE: "20"},
            {MEMORY_AVAILABLE: "50%"},
            {MEMORY_AVAILABLE: "60s"},
            {MEMORY_AVAILABLE: "10"},
        )
        settings = EvictionSettings(read.thresholds, transition * SECOND, 30)
        state, now = EvictionState(), 0
        for later, available in steps:
            now += later * SECOND
            seen = {MEMORY_AVAILABLE: SignalObservation(available, 100, now)}
            step, state = evict_once(state, now, seen, given_pods, settings, release)
            assert set(step.met).isdisjoint(step.waiting)
            if available >= 60:
                assert not step.met
                assert not step.waiting
            if available < 20:
                assert any(threshold.hard for threshold in step.met)
            if step.evicted is not None:
                assert step.reclaiming in step.met
                assert not step.evicted.critical
                assert step.grace_period is not None


CONDITIONS: list[NodeCondition] = ["MemoryPressure", "DiskPressure", "PIDPressure"]


class TestAdmission:
    @given(pods(), st.sets(st.sampled_from(CONDITIONS)), st.sampled_from(CONDITIONS), releases)
    def test_more_pressure_never_admits_a_pod(
        self, pod: Pod, conditions: set[NodeCondition], one_more: NodeCondition, release: Release
    ) -> None:
        shape = shape_of(pod, release)
        before = pressure_admission(pod, shape, conditions, release)
        after = pressure_admission(pod, shape, conditions | {one_more}, release)
        assert before.admitted or not after.admitted
        assert (before.reason is None) is before.admitted


profiles = st.builds(
    SchedulerProfile,
    weights=st.lists(
        st.tuples(
            st.sampled_from(["cpu", "memory", "ephemeral-storage", "example.com/gpu"]),
            st.integers(1, 5),
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda term: term[0],
    ).map(tuple),
)


@st.composite
def node_infos(draw: st.DrawFn, release: Release) -> NodeInfo:
    names = ["cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi", "pods"]
    sizes = draw(st.tuples(*[st.sampled_from([0, 1, 3, 10, 100]) for _ in names]))
    has = {name: size * 1000 for name, size in zip(names, sizes, strict=True)}
    running = draw(st.lists(pods(), max_size=2))
    return node_info("node", has, scheduling_demands(running, release))


def demand(pod: Pod, release: Release) -> SchedulingDemand:
    return scheduling_demand(pod, shape_of(pod, release), release)


class TestFit:
    @given(st.data(), pods(), releases)
    def test_a_larger_node_never_refuses_what_a_smaller_one_takes(
        self, data: st.DataObject, pod: Pod, release: Release
    ) -> None:
        node = data.draw(node_infos(release))
        grown = data.draw(st.sampled_from(sorted(node.allocatable)))
        larger = msgspec.structs.replace(
            node, allocatable=node.allocatable | {grown: node.allocatable[grown] + 1000}
        )
        demanded = demand(pod, release)
        before, after = judge_fit(demanded, node, release), judge_fit(demanded, larger, release)
        short = {shortage.resource for shortage in before.shortages}
        assert {shortage.resource for shortage in after.shortages} <= short

    @given(pods(), pods(), releases)
    def test_another_pod_on_the_node_never_helps(
        self, pod: Pod, other: Pod, release: Release
    ) -> None:
        has = {"cpu": 10_000, "memory": 10_000, "pods": 2_000}
        demanded = demand(pod, release)
        alone = judge_fit(demanded, node_info("n", has, []), release)
        shared = judge_fit(demanded, node_info("n", has, [demand(other, release)]), release)
        assert len(alone.shortages) <= len(shared.shortages)

    @given(st.data(), pods(), profiles, releases)
    def test_shortages_lack_something_and_scores_are_percentages(
        self, data: st.DataObject, pod: Pod, profile: SchedulerProfile, release: Release
    ) -> None:
        verdict = judge_fit(demand(pod, release), data.draw(node_infos(release)), release, profile)
        assert all(shortage.lacking > 0 for shortage in verdict.shortages)
        least, most, balanced = verdict.scores
        assert 0 <= least <= 100
        assert 0 <= most <= 100
        assert least + most <= 100
        assert balanced is None or 50 <= balanced <= 100

    @given(st.data(), st.lists(pods(), max_size=2), profiles, releases)
    def test_a_survey_agrees_with_judging_every_node(
        self,
        data: st.DataObject,
        given_pods: list[Pod],
        profile: SchedulerProfile,
        release: Release,
    ) -> None:
        nodes = [
            msgspec.structs.replace(node, name=str(index))
            for index, node in enumerate(data.draw(st.lists(node_infos(release), max_size=4)))
        ]
        demands = list(scheduling_demands(given_pods, release))
        for demanded, found in zip(
            demands, survey_fit(demands, nodes, release, profile), strict=True
        ):
            verdicts = [judge_fit(demanded, node, release, profile) for node in nodes]
            fitting = {
                verdict.node: verdict.scores for verdict in verdicts if verdict.code == "Success"
            }
            assert (found.nodes, found.fitting) == (len(nodes), len(fitting))
            assert (found.best is None) is (not fitting)
            if found.best is not None:
                assert found.scores == fitting[found.best]
                liked = {
                    name: scores.least_allocated + (scores.balanced or 0)
                    for name, scores in fitting.items()
                }
                assert liked[found.best] == max(liked.values())
            shortages = [shortage for verdict in verdicts for shortage in verdict.shortages]
            for resource, scarcity in found.scarce.items():
                of_it = [each for each in shortages if each.resource == resource]
                assert scarcity.nodes == len(of_it)
                assert scarcity.unresolvable == sum(each.unresolvable for each in of_it)
                if scarcity.nodes == len(nodes):
                    assert scarcity.lacking == min(each.lacking for each in of_it)
                else:
                    assert scarcity.lacking <= 0
            assert {each.resource for each in shortages} == found.scarce.keys()
