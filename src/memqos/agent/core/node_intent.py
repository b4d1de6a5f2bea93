"""What an agent wants of a whole node: its pods one by one, and what stands above them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from memqos.agent.core.guarding import Guard
from memqos.agent.core.notices import Notice
from memqos.agent.core.observed import Cgroups
from memqos.agent.core.pod_intent import Desires, Wish
from memqos.agent.core.reservations import Claims, left_out, levels, without_reservation
from memqos.converge.settings import File
from memqos.kube.pod import Pod
from memqos.kube.shape import containers_of
from memqos.plan.changes import number, stored
from memqos.plan.levels import demand_of, plan_levels
from memqos.plan.names import outer
from memqos.plan.pod import PodPlan
from memqos.plan.setting import Setting, Settings
from memqos.plan.tree import Cgroup, Level, by_file, cgroup_uid, reserved_cgroups

if TYPE_CHECKING:
    from memqos.agent.core.bindings import Bindings


class Aims:
    """The pods of a node and what is wanted of them; told what is there, whom to leave out."""

    def __init__(
        self,
        desires: Desires,
        cgroups: Cgroups,
        guard: Guard | None = None,
        bindings: "Bindings | None" = None,
    ) -> None:
        ground = desires.ground
        self._guard = guard
        self.bindings = bindings
        self.desires = desires
        self.configuration = desires.configuration
        self.reserved = tuple(
            reserved_cgroups(desires.names, ground.terms, ground.config, ground.capacity)
        )
        self.limit = self._limit()
        """The most that all memory.min may come to."""
        self.wishes: dict[str, Wish] = {}
        """By the UID in the cgroup's name, or else by namespace/name."""
        self.by_path: dict[str, Wish] = {}
        """By the path of the pod's cgroup."""
        self.left_out: frozenset[str] = frozenset()
        """Paths of pods whose memory.min is not reserved."""
        self.enforces = False
        """Whether any pod is written to."""
        self.is_told = False
        """Whether the pods of the node are known."""
        self._cgroups = cgroups
        self.kubelet_keeps: dict[File, Setting] = {}
        """Files above pods that the running kubelet writes itself, and what it puts there."""
        self._above: tuple[Cgroup, ...] | None = None
        self._above_last: tuple[Cgroup, ...] = ()

    def accept(self, pods: Iterable[Pod]) -> list[Wish]:
        """Take in all the pods of the node; those that are new, other than before, or gone."""
        wishes: dict[str, Wish] = {}
        news: list[Wish] = []
        for pod in pods:
            key = cgroup_uid(pod) or f"{pod.metadata.namespace}/{pod.metadata.name}"
            wish = self.wishes.get(key)
            if wish is None or (wish.pod is not pod and wish.pod != pod):
                wish = self.desires.of(pod)
                if wish is not None:
                    news.append(wish)
            if wish is not None:
                wishes[key] = wish
        news += [wish for key, wish in self.wishes.items() if key not in wishes]
        self.is_told = True
        self.wishes = wishes
        self.by_path = {wish.path: wish for wish in wishes.values() if wish.path is not None}
        self.enforces = any([wish.mode == "enforce" for wish in wishes.values()])
        if news:
            self.claims_changed()
        return news

    def claims_changed(self) -> None:
        """Pods have come or gone, or claim something else."""
        self._above = None

    def reconsider(self) -> frozenset[str]:
        """Choose anew whose memory.min fits; the pods for which the answer is another one."""
        if self._above is not None:
            return frozenset()
        there = self._cgroups.pods
        ours = [wish for path in there if (wish := self.by_path.get(path)) and self.decides(wish)]
        mine = {wish.path for wish in ours}
        taken = sum(
            [self._cgroups.number(path, "memory.min") for path in there if path not in mine]
        )
        before, self.left_out = self.left_out, left_out(ours, taken, self.limit)
        # Before the pods are known there is nothing to count.
        plans = self._plans() if self.is_told else ()
        self.kubelet_keeps = self.desires.ground.kubelet_levels(plans)
        sums = levels(self._claims(), self.desires.names)
        self._above = self._above_last = tuple(map(self._beside_kubelet, sums))
        return before ^ self.left_out

    def _plans(self) -> list[PodPlan]:
        return [wish.plan for wish in self.wishes.values() if wish.plan is not None]

    def _beside_kubelet(self, cgroup: Cgroup) -> Cgroup:
        """What a kubelet keeps is its own: two sums in one file would be a fight."""
        kept = {
            file: setting
            for (path, file), setting in self.kubelet_keeps.items()
            if path == cgroup.path
        }
        return msgspec.structs.replace(cgroup, settings=cgroup.settings | kept) if kept else cgroup

    @property
    def above(self) -> tuple[Cgroup, ...]:
        """The cgroups above the pods, as they should be."""
        self.reconsider()
        assert self._above is not None
        return self._above

    @property
    def above_now(self) -> tuple[Cgroup, ...]:
        """The same as they were last worked out: for those who only look."""
        return self._above_last

    def of(self, pod: str) -> tuple[Cgroup, ...]:
        """The cgroups of a pod, as they should be."""
        wish = self.by_path.get(pod)
        if wish is None:
            return ()
        cgroups = wish.cgroups
        if self._guard is not None:
            cgroups = tuple([self._guard.applied(each) for each in cgroups])
        if self.bindings is not None:
            cgroups = self.bindings.applied(pod, cgroups)
        if pod not in self.left_out:
            return cgroups
        return tuple(without_reservation(each, wish.claims[0], self.limit) for each in cgroups)

    def notices(self, pod: str) -> tuple[Notice, ...]:
        """What the author of a pod should know."""
        wish = self.by_path.get(pod)
        if wish is None:
            return ()
        bindings = () if self.bindings is None else self.bindings.notices.get(pod, ())
        return (*wish.notices, *bindings)

    def wish_of(self, pod: str | None) -> Wish | None:
        """What is wanted of the pod whose cgroup this is, if it is one's."""
        return None if pod is None else self.by_path.get(pod)

    def names(self, path: str, pod: str) -> bool:
        """Whether the source has told of a cgroup of a pod; what is not selected needs no names."""
        wish = self.by_path.get(pod)
        if wish is None:
            return False
        container = outer(path)
        return path == pod or wish.mode is None or any(c.path == container for c in wish.cgroups)

    def is_enforced(self, cgroup: Cgroup, pod: str | None) -> bool:
        """Whether memqos writes to a cgroup, of a pod if it is of one."""
        if self.desires.ground.doubt is not None:
            return False
        if pod is not None:
            wish = self.by_path.get(pod)
            return wish is not None and wish.mode == "enforce"
        if cgroup.level == "reserved":
            return self.configuration.mode == "enforce" and self.configuration.canary is None
        return self.enforces

    def leaves(self, level: Level, pod: str | None = None) -> bool:
        """Whether memqos gives back what it may have written to a cgroup before."""
        if self.configuration.mode == "observe":
            return True
        if self.desires.ground.doubt is not None:
            # What is there was written when all was known; to take it away would be a guess, too.
            return False
        if pod is not None:
            wish = self.by_path.get(pod)
            return wish is not None and wish.mode != "enforce"
        if level == "reserved":
            return self.configuration.canary is not None
        if self.enforces or not self.is_told:
            return False
        # A source that does not tell of pods that are there is no reason to take protection away.
        return all(path in self.by_path for path in self._cgroups.pods)

    def kubelet_wants(self, path: str, file: str, pod: str | None) -> str | None:
        """What a kubelet alone would have in a file; None where it has no say."""
        settings = self._kubelet_above(path) if pod is None else self._kubelet_below(path, pod)
        setting = settings.get(file)
        if setting is None or setting.value is None:
            return None
        return stored(file, setting.value, self.desires.page_size)

    def _kubelet_above(self, path: str) -> Settings:
        found = plan_levels(demand_of(self._plans()), self.desires.ground.terms)
        names = self.desires.names
        by_path = {names.kubepods: found.kubepods, names.burstable: found.burstable}
        return by_path.get(path, {})

    def _kubelet_below(self, path: str, pod: str) -> Settings:
        wish = self.by_path.get(pod)
        plan = None if wish is None else self.desires.kubelet_plan(wish.pod) or wish.plan
        if wish is None or plan is None:
            return {}
        if path == pod:
            return by_file(plan.settings)
        name = next((each.container for each in wish.cgroups if each.path == outer(path)), None)
        for container, planned in zip(containers_of(wish.pod), plan.containers, strict=True):
            if container.name == name:
                return planned.settings
        return {}

    def _claims(self) -> dict[str, Claims]:
        """What the pods that are there claim: as planned where memqos decides, else as found."""
        claims: dict[str, Claims] = {}
        for path in self._cgroups.pods:
            wish = self.by_path.get(path)
            if wish is not None and self.decides(wish):
                minimum, low = wish.claims
                claims[path] = Claims(0 if path in self.left_out else minimum, low)
            else:
                found = [self._cgroups.number(path, file) for file in ("memory.min", "memory.low")]
                claims[path] = Claims(*found)
        return claims

    def decides(self, wish: Wish) -> bool:
        """Whether the plan, not the present value, says what a pod claims."""
        observing = self.configuration.mode == "observe"
        return wish.mode == "enforce" or (observing and wish.mode is not None)

    def _limit(self) -> int:
        page = self.desires.page_size
        reserved = sum(
            number(stored("memory.min", setting.value, page))
            for cgroup in self.reserved
            if (setting := cgroup.settings.get("memory.min")) is not None
        )
        share = int(self.desires.ground.capacity.memory * self.configuration.min_share)
        return max(0, share - reserved)
