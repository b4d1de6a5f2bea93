"""Who assigns NUMA nodes to containers: the kubelet, whose state is followed, or the agent itself.

Both take in pods as they were looked at, and answer for one pod at a time.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from memqos.agent.core.allotment import Allotment
from memqos.agent.core.notices import Notice
from memqos.agent.core.pod_intent import Wish
from memqos.converge.allocating import assignment_of, left_out_words, manager_of, resident_of
from memqos.converge.assigning import (
    KUBELET_ASSIGNS,
    STATE_FILE,
    assigned_in,
    assigns_nothing,
)
from memqos.converge.settings import Ground
from memqos.errors import InputError
from memqos.kube.kubelet import STATIC
from memqos.numa.machines import NumaMachine, machine_within
from memqos.numa.manager import Manager
from memqos.numa.residents import Resident
from memqos.numa.state import State
from memqos.plan.cpuset import Assignment

Assignments = Mapping[str, Assignment]
"""Container → what it is assigned; one that is left alone is not in it."""

NOTHING: Final[Assignments] = {}
_NO_NODES: Final = "no NUMA node is known, so none can be chosen"


class Standing(NamedTuple):
    """A pod as it was last looked at."""

    uid: str
    wish: Wish
    bound: Mapping[str, frozenset[int]]
    """Containers that are there, and what they are bound to."""
    ours: bool
    """Whether it is for the agent to say what the pod holds."""

    @property
    def containers(self) -> list[str]:
        return [each.container for each in self.wish.cgroups if each.container is not None]


class Answer(NamedTuple):
    """What is assigned to a pod, and why not all that could be."""

    assignments: Assignments = NOTHING
    notice: Notice | None = None


class Assigner(Protocol):
    """One of the two."""

    def told(self, state: State | None) -> str | None:
        """Take in the kubelet's state, None where there is none; what speaks against it."""

    def take(
        self, here: Iterable[Standing], gone: Iterable[str], permitted: frozenset[int]
    ) -> set[str]:
        """Take in pods that were looked at, and UIDs of some that are gone; whom else it concerns.

        `permitted` are the nodes that pods may use at all.
        """

    def of(self, standing: Standing) -> Answer:
        """What is assigned to a pod."""

    @property
    def state(self) -> State | None:
        """Who holds what, as far as that is known."""


class Following:
    """The kubelet assigns. A state that is not there leaves the last one in force."""

    def __init__(self, ground: Ground, state: State | None = None) -> None:
        self.state = state
        self._release = ground.terms.release
        self._residents: dict[str, tuple[Wish, Resident]] = {}

    def told(self, state: State | None) -> str | None:
        if state is None:
            known = "what it said before still counts" if self.state else "nobody is bound"
            return f"there is no {STATE_FILE}: {known}"
        self.state = state
        return None if state.policy == STATIC else f"{STATE_FILE}: {assigns_nothing(state)}"

    def take(
        self, here: Iterable[Standing], gone: Iterable[str], permitted: frozenset[int]
    ) -> set[str]:
        for uid in gone:
            self._residents.pop(uid, None)
        return set()

    def of(self, standing: Standing) -> Answer:
        if self.state is None or self.state.policy != STATIC:
            return Answer()
        wants = self._resident(standing).wants
        found = {
            name: assigned_in(self.state, (standing.uid, name), wants)
            for name in standing.containers
        }
        unknown = [name for name, each in found.items() if each is None]
        notice = None
        if unknown:
            what = f"left as it is: the {STATE_FILE} does not know {', '.join(unknown)}"
            notice = Notice("NumaUnknown", what)
        return Answer({name: each for name, each in found.items() if each is not None}, notice)

    def _resident(self, standing: Standing) -> Resident:
        """As it was worked out before, where its pod is the same."""
        kept = self._residents.get(standing.uid)
        if kept is None or kept[0] is not standing.wish:
            kept = standing.wish, resident_of(standing.wish.pod, {}, self._release)
            self._residents[standing.uid] = kept
        return kept[1]


class Allotting:
    """The agent assigns, by the rules of the Static policy, where the kubelet does not."""

    def __init__(self, ground: Ground, before: "Allotting | None" = None) -> None:
        """`before` is who has given out memory until now: what it gave stays given."""
        if ground.numa is None:
            raise InputError(_NO_NODES, field="numa", hint="is /sys mounted?")
        if ground.config.memory_manager_policy == STATIC:
            raise InputError(KUBELET_ASSIGNS, field="numa", hint="numa: state goes by its state")
        self._ground = ground
        self._machine = ground.numa
        manager = self._manager(ground.numa)
        self._allotment = Allotment(manager)
        self._standing: dict[str, tuple[Standing, Resident]] = {}
        self._is_kubelets = False
        if before is not None:
            self._standing = before._standing
            self._allotment = before._allotment
            self._allotment.renew(manager)

    @property
    def state(self) -> State:
        return self._allotment.state

    def told(self, state: State | None) -> str | None:
        self._is_kubelets = state is not None and state.policy == STATIC
        return f"{KUBELET_ASSIGNS}: nobody is bound by memqos" if self._is_kubelets else None

    def take(
        self, here: Iterable[Standing], gone: Iterable[str], permitted: frozenset[int]
    ) -> set[str]:
        machine = machine_within(self._ground.numa or self._machine, permitted)
        residents = [self._resident(each) for each in here]
        gone = list(gone)
        for uid in gone:
            self._standing.pop(uid, None)
        concerned = self._allotment.update((), gone)
        if machine != self._machine:
            self._allotment.renew(self._manager(machine))
            self._machine = machine
            concerned |= self._standing.keys()
        return concerned | self._allotment.update(residents)

    def of(self, standing: Standing) -> Answer:
        if self._is_kubelets or not standing.ours or standing.uid not in self._allotment:
            return Answer()
        left_out = self._allotment.left_out.get(standing.uid)
        if left_out is not None:
            what = f"left as it is: {left_out_words(left_out)}"
            return Answer(NOTHING, Notice("NumaRefused", what))
        state = self._allotment.state
        return Answer(
            {name: assignment_of(state, (standing.uid, name)) for name in standing.containers}
        )

    def _resident(self, standing: Standing) -> Resident:
        kept = self._standing.get(standing.uid)
        if kept is None or not _is_same(kept[0], standing):
            resident = resident_of(
                standing.wish.pod,
                standing.bound,
                self._ground.terms.release,
                ours=standing.ours,
            )
            kept = self._standing[standing.uid] = standing, resident
        return kept[1]

    def _manager(self, machine: NumaMachine) -> Manager:
        return manager_of(machine, self._ground.config, self._ground.terms.release)


def _is_same(one: Standing, other: Standing) -> bool:
    return one.wish is other.wish and one[2:] == other[2:]
