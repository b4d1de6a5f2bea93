"""What memqos advises a refused pod to do lets it in."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import GI, MI, box, pod

from memqos.kube.pod import Pod
from memqos.numa.admission import AdmittedPod, RefusedPod
from memqos.numa.advice import AdvisedChange, advise
from memqos.numa.machine_state import NumaMemory
from memqos.numa.manager import Manager, ManagerSettings, start_manager
from memqos.numa.topology_manager import (
    TOPOLOGY_POLICY_NAMES,
    TOPOLOGY_SCOPE_NAMES,
    TopologySettings,
    configure_topology,
)
from memqos.release import Release

HUGE = "hugepages-2Mi"
SIZES = st.integers(1, 24).map(lambda halves: halves * GI // 2 + 3 * MI)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    containers = []
    for _ in range(draw(st.integers(1, 2))):
        size = str(draw(SIZES))
        pages = {HUGE: f"{draw(st.integers(1, 5))}Gi"} if draw(st.booleans()) else {}
        containers.append(box(size, size, cpu=("1", "1"), requests=pages, limits=pages))
    init = containers[:1] if draw(st.booleans()) else ()
    return pod(containers, init=init, uid=f"uid-{draw(st.integers(0, 1 << 40))}")


@st.composite
def kubelets(draw: st.DrawFn) -> Manager:
    count = draw(st.integers(1, 4))
    policy, scope = (
        draw(st.sampled_from(TOPOLOGY_POLICY_NAMES)),
        draw(st.sampled_from(TOPOLOGY_SCOPE_NAMES)),
    )
    topology = configure_topology(policy, scope, {}, range(count), None)
    assert isinstance(topology, TopologySettings)
    machine = tuple(
        NumaMemory(i, draw(st.integers(6, 12)) * GI, {HUGE: draw(st.integers(0, 4)) * GI})
        for i in range(count)
    )
    settings = ManagerSettings(
        machine=machine,
        policy="Static",
        topology=topology,
        release=Release.of("1.38"),
        reserved={0: {"memory": GI}},
        as_kubelet=True,
    )
    manager = start_manager(settings)
    assert isinstance(manager, Manager)
    for each in draw(st.lists(pods(), max_size=4)):
        manager, _ = manager.admit(each)
    return manager


def changed(manager: Manager, refused_pod: Pod, change: AdvisedChange) -> tuple[Manager, Pod]:
    """The change made by hand, as somebody would who reads the advice."""
    for uid in change.uids:
        manager = manager.delete_pod(uid)
    settings = manager.settings
    topology = settings.topology
    if change.kind == "topology_policy":
        policy: Any = change.value
        scope = "none" if policy == "none" else topology.scope
        topology = msgspec.structs.replace(topology, policy=policy, scope=scope)
    elif change.kind == "scope":
        other: Any = change.value
        topology = msgspec.structs.replace(topology, scope=other)
    policy_now = change.value if change.kind == "memory_policy" else settings.policy
    settings = msgspec.structs.replace(settings, topology=topology, policy=policy_now)
    data = msgspec.to_builtins(refused_pod)
    for size in change.sizes:
        for group in ("initContainers", "containers"):
            for container in data["spec"].get(group, ()):
                if container["name"] == size.container:
                    for side in ("requests", "limits"):
                        container["resources"][side][size.resource] = size.text
    return msgspec.structs.replace(manager, settings=settings), msgspec.convert(data, Pod)


@given(kubelets(), pods())
def test_every_change_lets_the_pod_in(manager: Manager, refused_pod: Pod) -> None:
    _, outcome = manager.admit(refused_pod)
    if not isinstance(outcome, RefusedPod):
        return
    advice = advise(manager, refused_pod, outcome)
    assert advice.changes
    assert not advice.gave_up
    for change in advice.changes:
        other, smaller = changed(manager, refused_pod, change)
        _, after = other.admit(smaller)
        assert isinstance(after, AdmittedPod), change


@given(kubelets(), pods())
def test_no_pod_of_several_goes_in_vain(manager: Manager, refused_pod: Pod) -> None:
    _, outcome = manager.admit(refused_pod)
    if not isinstance(outcome, RefusedPod):
        return
    for change in advise(manager, refused_pod, outcome).changes:
        for kept in change.uids:
            fewer = msgspec.structs.replace(
                change, uids=tuple(uid for uid in change.uids if uid != kept)
            )
            other, _ = changed(manager, refused_pod, fewer)
            _, after = other.admit(refused_pod)
            assert isinstance(after, RefusedPod)
