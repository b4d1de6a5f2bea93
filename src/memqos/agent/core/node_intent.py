"""The intent of a whole node: of its pods one by one, and of the cgroups above them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from memqos.agent.core.node_guard import NodeGuard
from memqos.agent.core.observed import ObservedCgroups
from memqos.agent.core.pod_intent import IntentPlanner, Notice, PodIntent
from memqos.agent.core.reservations import (
    PodReservations,
    level_cgroups,
    pods_without_reservation,
    without_reservation,
)
from memqos.kube.pod import Pod
from memqos.kube.resources_in_use import unreported_limits, with_limit_in_use
from memqos.kube.shape import containers_of
from memqos.plan.changes import as_stored, magnitude
from memqos.plan.levels import CgroupFilePath, class_demand, kubelet_levels, plan_levels
from memqos.plan.names import outer
from memqos.plan.pod import PodPlan
from memqos.plan.setting import FileSettings, Setting
from memqos.plan.tree import Cgroup, Level, by_file, cgroup_uid, reserved_cgroups

if TYPE_CHECKING:
    from memqos.agent.core.numa_bindings import NumaBindings


class NodeIntent:
    """The pods of a node and how their cgroups should be, given the cgroups that exist."""

    def __init__(
        self,
        planner: IntentPlanner,
        cgroups: ObservedCgroups,
        guard: NodeGuard | None = None,
        bindings: "NumaBindings | None" = None,
    ) -> None:
        node_settings = planner.node_settings
        self._guard = guard
        self.bindings = bindings
        self.planner = planner
        self.configuration = planner.configuration
        self.reserved = tuple(
            reserved_cgroups(
                planner.names, node_settings.settings, node_settings.config, node_settings.capacity
            )
        )
        self.reservable = self._reservable_bytes()
        """The most that all memory.min may come to."""
        self.intents: dict[str, PodIntent] = {}
        """By the UID in the cgroup's name, or else by namespace/name."""
        self.by_path: dict[str, PodIntent] = {}
        """By the path of the pod's cgroup."""
        self.unreserved: frozenset[str] = frozenset()
        """Paths of pods whose memory.min is not reserved."""
        self.enforces = False
        """Whether any pod is written to."""
        self.has_pods = False
        """Whether the pods of the node are known."""
        self._observed = cgroups
        self.kubelet_managed: dict[CgroupFilePath, Setting] = {}
        """Files above pods that the running kubelet writes itself, and what it puts there."""
        self._parents: tuple[Cgroup, ...] | None = None
        self._last_parents: tuple[Cgroup, ...] = ()

    def accept_pods(self, pods: Iterable[Pod]) -> list[PodIntent]:
        """Take in all the pods of the node; those that are new, changed or removed."""
        intents: dict[str, PodIntent] = {}
        changed: list[PodIntent] = []
        for pod in pods:
            key = cgroup_uid(pod) or f"{pod.metadata.namespace}/{pod.metadata.name}"
            intent = self.intents.get(key)
            if intent is None or (intent.pod is not pod and intent.pod != pod):
                intent = self._plan_intent(pod)
                if intent is not None:
                    changed.append(intent)
            if intent is not None:
                intents[key] = intent
        changed += [intent for key, intent in self.intents.items() if key not in intents]
        self.has_pods = True
        self.intents = intents
        self.by_path = {each.path: each for each in intents.values() if each.path is not None}
        self.enforces = any([each.mode == "enforce" for each in intents.values()])
        if changed:
            self.invalidate_reservations()
        return changed

    def accept_limits(self, pod: str) -> None:
        """Plan a pod again, given the limits that its containers have now."""
        intent = self.by_path.get(pod)
        if intent is None or not (intent.cgroups and unreported_limits(intent.pod)):
            return
        planned = self._plan_intent(intent.pod)
        if planned is not None and planned != intent:
            key = next(key for key, each in self.intents.items() if each is intent)
            self.intents = {**self.intents, key: planned}
            self.by_path = {**self.by_path, pod: planned}
            self.invalidate_reservations()

    def _plan_intent(self, pod: Pod) -> PodIntent | None:
        """By the resources that the kubelet reports, or has set already and will report."""
        intent = self.planner.intent_of(pod)
        limits = {} if intent is None else self._actual_limits(intent)
        resized = pod
        for name, limit in limits.items():
            resized = with_limit_in_use(resized, name, limit)
        if resized is not pod:
            intent = self.planner.intent_of(resized)
        return intent and msgspec.structs.replace(intent, pod=pod)

    def _actual_limits(self, intent: PodIntent) -> dict[str, int]:
        """Container → the limit of its spec, which its cgroup has before the kubelet reports it."""
        limits = unreported_limits(intent.pod) if intent.cgroups else {}
        return {
            name: limits[name]
            for cgroup in intent.cgroups
            if (name := cgroup.container or "") in limits
            and as_stored("memory.max", limits[name], self.planner.page_size)
            in self._observed.values(cgroup.path, "memory.max")
        }

    def invalidate_reservations(self) -> None:
        """Pods were added or removed, or claim other amounts."""
        self._parents = None

    def update_reservations(self) -> frozenset[str]:
        """Choose again whose memory.min fits; the pods for which the answer is another one."""
        if self._parents is not None:
            return frozenset()
        observed = self._observed.pods
        planned = [
            intent
            for path in observed
            if (intent := self.by_path.get(path)) and self.uses_plan(intent)
        ]
        paths = {intent.path for intent in planned}
        taken = sum(
            [self._observed.number(path, "memory.min") for path in observed if path not in paths]
        )
        before, self.unreserved = (
            self.unreserved,
            pods_without_reservation(planned, taken, self.reservable),
        )
        # Without a first list of pods the sums would be 0.
        plans = self._plans() if self.has_pods else ()
        self.kubelet_managed = kubelet_levels(self.planner.node_settings, plans)
        sums = level_cgroups(self._reservations(), self.planner.names)
        self._parents = self._last_parents = tuple(map(self._with_kubelet_settings, sums))
        return before ^ self.unreserved

    def _plans(self) -> list[PodPlan]:
        return [each.plan for each in self.intents.values() if each.plan is not None]

    def _with_kubelet_settings(self, cgroup: Cgroup) -> Cgroup:
        """What a kubelet writes is its own: two sums in one file would be a fight."""
        kubelet_settings = {
            file: setting
            for (path, file), setting in self.kubelet_managed.items()
            if path == cgroup.path
        }
        return (
            msgspec.structs.replace(cgroup, settings=cgroup.settings | kubelet_settings)
            if kubelet_settings
            else cgroup
        )

    @property
    def parent_cgroups(self) -> tuple[Cgroup, ...]:
        """The cgroups above the pods, as they should be."""
        self.update_reservations()
        assert self._parents is not None
        return self._parents

    @property
    def last_parent_cgroups(self) -> tuple[Cgroup, ...]:
        """The same as they were last worked out: for those who only look."""
        return self._last_parents

    def cgroups_of(self, pod: str) -> tuple[Cgroup, ...]:
        """The cgroups of a pod, as they should be."""
        intent = self.by_path.get(pod)
        if intent is None:
            return ()
        cgroups = intent.cgroups
        if self._guard is not None:
            cgroups = tuple([self._guard.apply_to(each) for each in cgroups])
        if self.bindings is not None:
            cgroups = self.bindings.apply_to(pod, cgroups)
        if pod not in self.unreserved:
            return cgroups
        return tuple(
            without_reservation(each, intent.reservation[0], self.reservable) for each in cgroups
        )

    def notices_of(self, pod: str) -> tuple[Notice, ...]:
        """What the author of a pod should know."""
        intent = self.by_path.get(pod)
        if intent is None:
            return ()
        bindings = () if self.bindings is None else self.bindings.notices.get(pod, ())
        return (*intent.notices, *bindings)

    def intent_of(self, pod: str | None) -> PodIntent | None:
        """The intent of the pod whose cgroup this is, if it is one's."""
        return None if pod is None else self.by_path.get(pod)

    def knows_cgroup(self, path: str, pod: str) -> bool:
        """Whether the source knows a cgroup of a pod; what is not selected needs no names."""
        intent = self.by_path.get(pod)
        if intent is None:
            return False
        container = outer(path)
        return (
            path == pod or intent.mode is None or any(c.path == container for c in intent.cgroups)
        )

    def is_enforced(self, cgroup: Cgroup, pod: str | None) -> bool:
        """Whether memqos writes to a cgroup, of a pod if it is of one."""
        if self.planner.node_settings.doubt is not None:
            return False
        if pod is not None:
            intent = self.by_path.get(pod)
            return intent is not None and intent.mode == "enforce"
        if cgroup.level == "reserved":
            return self.configuration.mode == "enforce" and self.configuration.canary is None
        return self.enforces

    def should_restore(self, level: Level, pod: str | None = None) -> bool:
        """Whether memqos restores what it may have written to a cgroup before."""
        if self.configuration.mode == "observe":
            return True
        if self.planner.node_settings.doubt is not None:
            # Values were written under known settings; restoring them on a doubt is a guess, too.
            return False
        if pod is not None:
            intent = self.by_path.get(pod)
            return intent is not None and intent.mode != "enforce"
        if level == "reserved":
            return self.configuration.canary is not None
        if self.enforces or not self.has_pods:
            return False
        # Not while the source misses pods that have cgroups: their protection would go too.
        return all(path in self.by_path for path in self._observed.pods)

    def managed_value(self, place: CgroupFilePath) -> str | None:
        """What the running kubelet puts into a file above pods; None where it writes none."""
        setting = self.kubelet_managed.get(place)
        if setting is None:
            return None
        return as_stored(place[1], setting.value, self.planner.page_size)

    def kubelet_value(self, path: str, file: str, pod: str | None) -> str | None:
        """What a kubelet alone would have in a file; None where it writes none."""
        settings = (
            self._kubelet_parent_settings(path)
            if pod is None
            else self._kubelet_pod_settings(path, pod)
        )
        setting = settings.get(file)
        if setting is None or setting.value is None:
            return None
        return as_stored(file, setting.value, self.planner.page_size)

    def _kubelet_parent_settings(self, path: str) -> FileSettings:
        found = plan_levels(class_demand(self._plans()), self.planner.node_settings.settings)
        names = self.planner.names
        by_path = {names.kubepods: found.kubepods, names.burstable: found.burstable}
        return by_path.get(path, {})

    def _kubelet_pod_settings(self, path: str, pod: str) -> FileSettings:
        intent = self.by_path.get(pod)
        plan = None if intent is None else self.planner.kubelet_plan(intent.pod) or intent.plan
        if intent is None or plan is None:
            return {}
        if path == pod:
            return by_file(plan.settings)
        name = next((each.container for each in intent.cgroups if each.path == outer(path)), None)
        for container, planned in zip(containers_of(intent.pod), plan.containers, strict=True):
            if container.name == name:
                return planned.settings
        return {}

    def _reservations(self) -> dict[str, PodReservations]:
        """What the pods that exist claim: as planned where memqos decides, else as found."""
        claims: dict[str, PodReservations] = {}
        for path in self._observed.pods:
            intent = self.by_path.get(path)
            if intent is not None and self.uses_plan(intent):
                minimum, low = intent.reservation
                claims[path] = PodReservations(0 if path in self.unreserved else minimum, low)
            else:
                found = [self._observed.number(path, file) for file in ("memory.min", "memory.low")]
                claims[path] = PodReservations(*found)
        return claims

    def uses_plan(self, intent: PodIntent) -> bool:
        """Whether the plan, not the present value, says what a pod claims."""
        observing = self.configuration.mode == "observe"
        return intent.mode == "enforce" or (observing and intent.mode is not None)

    def _reservable_bytes(self) -> int:
        page = self.planner.page_size
        reserved = sum(
            magnitude(as_stored("memory.min", setting.value, page))
            for cgroup in self.reserved
            if (setting := cgroup.settings.get("memory.min")) is not None
        )
        share = int(self.planner.node_settings.capacity.memory * self.configuration.min_share)
        return max(0, share - reserved)
