"""An agent gives back what it wrote to pods that it no longer writes to."""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.agent import KUBEPODS, LEVELS, MI, SteppedNode, a_pod, container_paths, pod_path
from tests.fakes.node import memory_folder

from memqos.agent.core.guard import GuardState
from memqos.agent.core.node_guard import NodeGuard
from memqos.agent.reconcile import build_reconciler
from memqos.converge.journal import hierarchy_of, open_journal
from memqos.errors import InputError
from memqos.host.lock import Locked
from memqos.kube.selector import Selector

MIN, LOW, HIGH = "memory.min", "memory.low", "memory.high"
OBSERVE = {"memqos.io/mode": "observe"}


class Node(SteppedNode):
    """Two pods that are written to, and what was there before."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.web = self.run_pod(a_pod("web"))
        self.db = self.run_pod(a_pod("db", namespace="data"))
        self.kernel.set(pod_path(self.web), LOW, str(8 * MI))
        self.before = self.kernel.contents()
        self.wait(10)
        (self.container,) = container_paths(self.web)
        assert self.mi(self.container, HIGH) == 96

    def are_as_before(self, pod: dict[str, Any]) -> bool:
        return all(
            self.read(path, file) == self.before[f"{path[1:]}/{file}"].decode().strip()
            for path in (pod_path(pod), *container_paths(pod))
            for file in (MIN, LOW, HIGH)
        )

    def annotate(self, annotations: dict[str, str]) -> None:
        """The source tells of it when it is asked."""
        self.web = {**self.web, "metadata": {**self.web["metadata"], "annotations": annotations}}
        self.pods.manifests["web"] = self.web


@pytest.fixture
def node() -> Iterator[Node]:
    with memory_folder() as folder:
        yield Node(folder)


LEAVE: dict[str, dict[str, Any]] = {
    "a narrower selection": {"select": Selector(not_namespaces=("default",))},
    "a smaller canary": {"canary": Selector(namespaces=("data",))},
}


@pytest.mark.parametrize("options", LEAVE.values(), ids=LEAVE)
def test_a_pod_that_is_reached_no_longer_has_its_values_back(
    options: dict[str, Any], node: Node
) -> None:
    node.reload(**options)
    node.settle()
    assert node.are_as_before(node.web)
    assert node.mi(container_paths(node.db)[0], HIGH) == 96
    # What stands above follows: what others had given the pod, and what the other pod has.
    assert [node.mi(path, LOW) for path in LEVELS] == [72, 72, 0]
    message = node.log_events("restored")
    assert {event.fields["place"] for event in message} >= {f"{node.container}/{HIGH}"}
    assert node.core.report.restores == {(LOW, "written"): 2, (HIGH, "written"): 1}
    assert not node.core.drift.drifts


def test_a_pod_that_asks_to_be_observed_has_its_values_back(node: Node) -> None:
    node.annotate(OBSERVE)
    node.wait(61)
    assert node.are_as_before(node.web)
    assert not node.core.drift.drifts
    node.annotate({})
    node.wait(61)
    assert node.mi(node.container, HIGH) == 96
    node.roll_back()
    assert node.kernel.contents() == node.before


def test_what_is_wanted_of_a_pod_that_is_not_selected_is_nobodys_business(node: Node) -> None:
    node.kernel.refusals[node.container, HIGH] = errno.EBUSY
    node.kernel.set(node.container, HIGH, "max")
    node.wait(61)
    assert node.core.pending
    node.reload(select=Selector(not_namespaces=("default",)))
    node.settle()
    assert not node.core.pending


def test_when_the_last_pod_is_left_what_stands_above_has_its_values_back(node: Node) -> None:
    node.reload(canary=Selector(namespaces=("nobody",)))
    node.settle()
    assert node.kernel.contents() == node.before
    assert not node.writer.undo_entries


def test_pods_that_the_source_does_not_tell_of_are_no_reason_to_give_back(node: Node) -> None:
    after = node.kernel.contents()
    manifests = dict(node.pods.manifests)
    node.pods.manifests.clear()
    node.wait(120)
    assert node.kernel.contents() == after
    node.pods.manifests = manifests
    node.wait(61)
    node.crash()
    node.pods.failure = InputError("no kubelet yet")
    node.start()
    node.wait(120)
    assert node.kernel.contents() == after


def test_what_others_have_changed_since_is_left_and_said_once(node: Node) -> None:
    node.kernel.set(node.container, HIGH, str(33 * MI))
    node.reload(select=Selector(not_namespaces=("default",)))
    node.wait(180)
    assert node.mi(node.container, HIGH) == 33
    assert node.mi(node.container, LOW) == 0
    assert len(node.log_events("not restored")) == 1
    assert node.core.report.restores[HIGH, "conflict"] == 1
    # A person may still ask for it.
    assert [key[:2] for key in node.writer.undo_entries if key[0] == node.container] == [
        (node.container, HIGH)
    ]


def test_what_others_have_put_back_already_is_settled_and_no_conflict(node: Node) -> None:
    node.kernel.set(node.container, HIGH, "max")
    node.reload(select=Selector(not_namespaces=("default",)))
    node.settle()
    assert node.are_as_before(node.web)
    assert not node.log_events("not restored")
    assert not [key for key in node.writer.undo_entries if key[0] == node.container]


def test_what_is_refused_is_tried_again(node: Node) -> None:
    node.kernel.refusals[node.container, HIGH] = errno.EBUSY
    node.reload(select=Selector(not_namespaces=("default",)))
    node.wait(5)
    assert node.mi(node.container, HIGH) == 96
    assert node.core.report.restores[HIGH, "refused"] >= 2
    node.kernel.refusals.clear()
    node.wait(61)
    assert node.are_as_before(node.web)


def test_an_agent_started_with_a_narrower_selection_gives_back_what_the_last_one_wrote(
    node: Node,
) -> None:
    node.crash()
    node.start(select=Selector(not_namespaces=("default",)))
    node.settle()
    assert node.are_as_before(node.web)
    assert node.mi(container_paths(node.db)[0], HIGH) == 96


class TestToObserve:
    def test_gives_all_back_and_then_lets_others_write(self, node: Node) -> None:
        node.reload(mode="observe")
        node.settle()
        assert node.kernel.contents() == node.before
        with open_journal(str(node.folder / "run"), hierarchy_of(node.kernel, "this-boot")):
            pass

    def test_keeps_others_out_until_all_is_given_back(self, node: Node) -> None:
        node.kernel.refusals[node.container, HIGH] = errno.EBUSY
        node.reload(mode="observe")
        node.wait(60)
        hierarchy = hierarchy_of(node.kernel, "this-boot")
        with pytest.raises(Locked), open_journal(str(node.folder / "run"), hierarchy):
            pass
        node.kernel.refusals.clear()
        node.wait(120)
        assert node.kernel.contents() == node.before
        with open_journal(str(node.folder / "run"), hierarchy):
            pass

    def test_and_back_writes_again(self, node: Node) -> None:
        after = node.kernel.contents()
        node.reload(mode="observe")
        node.reload(mode="enforce")
        node.settle()
        assert node.kernel.contents() == after

    def test_at_the_start_writes_nothing_and_says_what_is_there(self, node: Node) -> None:
        after = node.kernel.contents()
        node.crash()
        node.start(mode="observe")
        node.wait(120)
        assert node.kernel.contents() == after
        (message,) = node.log_events("values written by memqos are in place")
        # Two pods and their containers, and two levels above; memory.high of the containers.
        assert message.fields["values"] == 4 + 2 + 2


def test_the_guard_forgets_whom_it_may_not_help(node: Node) -> None:
    guard = NodeGuard()
    node.core = build_reconciler(node.reader, node.writer, node.now, guard)
    node.settle()
    guard._excluded.add(node.container)
    guard._states[node.container] = GuardState(step=2)
    node.reload(select=Selector(not_namespaces=("default",)))
    node.settle()
    assert not guard.excluded
    assert not guard.widened


def test_the_last_pod_that_ends_takes_its_share_above_along(node: Node) -> None:
    for pod in (node.web, node.db):
        node.end_pod(pod)
    node.wait(61)
    assert [node.mi(path, LOW) for path in LEVELS] == [0, 0, 0]
    assert KUBEPODS not in {key[0] for key in node.writer.undo_entries}
