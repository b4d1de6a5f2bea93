"""Bare manifests find their cgroups by what the runtime knows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.eventually import PATIENCE
from tests.fakes.agent import LEVELS, SteppedNode
from tests.fakes.cgroups import FakeKernel
from tests.fakes.node import memory_folder
from tests.fakes.runtime import FakeRuntime

from memqos.converge.pod_sources import PodSource
from memqos.converge.runtime_labels import LabelledPods, add_container_ids
from memqos.host.cri import CriClient, ListedContainer
from memqos.kube.pod import Pod
from memqos.plan.semantics import is_stored
from memqos.plan.tree import cgroup_uid, container_ids


def bare(name: str = "web", **metadata: Any) -> Pod:
    resources = {"limits": {"memory": "64Mi"}}
    containers = [{"name": "a", "image": "i", "resources": resources}]
    manifest = {"metadata": {"name": name, **metadata}, "spec": {"containers": containers}}
    return msgspec.convert(manifest, Pod)


def listed(
    id: str, pod: str = "web", uid: str = "u1", container: str = "a", created_at: int = 0
) -> ListedContainer:
    return ListedContainer(
        id,
        {
            "io.kubernetes.pod.namespace": "default",
            "io.kubernetes.pod.name": pod,
            "io.kubernetes.pod.uid": uid,
            "io.kubernetes.container.name": container,
        },
        created_at,
    )


class TestAManifest:
    def test_is_told_its_uid_and_its_containers(self) -> None:
        (pod,) = add_container_ids([bare()], {"containerd": [listed("c1")]}, "node")
        assert cgroup_uid(pod) == "u1"
        assert container_ids(pod) == {"a": "containerd://c1"}
        # It is still a manifest: what it leaves out has yet to be defaulted.
        assert not is_stored(pod)

    def test_of_a_static_pod_goes_by_its_node_too(self) -> None:
        (pod,) = add_container_ids([bare()], {"cri-o": [listed("c1", pod="web-node")]}, "node")
        assert container_ids(pod) == {"a": "cri-o://c1"}

    def test_means_the_pod_and_the_container_made_last(self) -> None:
        containers = [
            listed("old", uid="u0", created_at=1),
            listed("new", created_at=5),
            listed("restarted", created_at=7),
        ]
        (pod,) = add_container_ids([bare()], {"containerd": containers}, "node")
        assert (cgroup_uid(pod), container_ids(pod)) == ("u1", {"a": "containerd://restarted"})

    def test_that_does_not_run_here_stays_as_it_is(self) -> None:
        pod = bare()
        assert add_container_ids([pod], {"containerd": [listed("c1", pod="other")]}, "node") == [
            pod
        ]

    def test_is_the_same_object_as_long_as_nothing_changes(self) -> None:
        class Source(PodSource):
            one = bare()

            def pods(self) -> list[Pod]:
                return [self.one]

            def describe(self) -> str:
                return "one"

        containers = [listed("c1")]
        source = LabelledPods(Source(), lambda: {"containerd": containers}, "node")
        (first,), (again,) = source.pods(), source.pods()
        assert first is again
        containers.append(listed("c2", created_at=9))
        (later,) = source.pods()
        assert container_ids(later) == {"a": "containerd://c2"}


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


def test_a_runtime_lists_what_has_a_cgroup(folder: Path) -> None:
    kernel = FakeKernel(folder)
    fake = FakeRuntime(folder, kernel)
    for name, state in (("c1", 1), ("c2", 2)):
        kernel.make(f"/{name}")
        fake.start(name, f"/{name}")
        fake.label(name, {"io.kubernetes.pod.name": "web"}, state=state, created_at=1 << 60)
    with fake.serving():
        client = CriClient(str(fake.socket), PATIENCE)
        found = client.containers()
        client.close()
    assert found == [ListedContainer("c1", {"io.kubernetes.pod.name": "web"}, 1 << 60)]


def test_an_agent_needs_no_more_than_manifests_and_a_runtime(folder: Path) -> None:
    bed = SteppedNode(folder)
    pod = bare()
    running: list[ListedContainer] = []

    class Source(PodSource):
        def pods(self) -> list[Pod]:
            return [pod]

        def describe(self) -> str:
            return "one"

    bed.reader.source = LabelledPods(Source(), lambda: {"containerd": running}, "node")
    bed.wait(1)
    path = f"{LEVELS[0]}/podu1"
    burstable = f"{LEVELS[1]}/podu1"
    for made in (burstable, f"{burstable}/c1"):
        bed.kernel.make(made)
        bed.core.note_cgroup_created(made, bed.now)
    running.append(listed("c1"))
    bed.wait(2)
    # Only the limit is given, so the request is as much; without cpu it is Burstable.
    assert bed.mi(f"{burstable}/c1", "memory.low") == 64
    assert bed.kernel.identity(path) is None
