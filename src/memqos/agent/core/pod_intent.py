"""The intent of one pod: the release's plan, as selection and annotations change it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from memqos.agent.configuration import AgentConfiguration, AgentMode
from memqos.agent.core.overrides import overrides_of
from memqos.errors import InputError
from memqos.kube.kubelet import STATIC
from memqos.kube.pod import Pod
from memqos.kube.resources_in_use import is_terminal, with_resources_in_use
from memqos.kube.shape import containers_of
from memqos.plan.changes import as_stored
from memqos.plan.cpuset import MEMS
from memqos.plan.levels import PROTECTION_FILES
from memqos.plan.names import names_of
from memqos.plan.pod import PodPlan
from memqos.plan.rules import NEVER_THROTTLED, OPTED_OUT
from memqos.plan.semantics import Planner
from memqos.plan.setting import MAX, FileSettings, Setting
from memqos.plan.tree import Cgroup, Unresolved, cgroup_uid, pod_cgroups, pod_key
from memqos.settings.resolver import NodeSettings
from memqos.settings.settings import Policy

if TYPE_CHECKING:
    from memqos.numa.machines import NumaMachine

NoticeReason = Literal["NumaUnaligned", "NumaRefused", "NumaUnknown", "NumaBeyondParent"]
"""Why a pod's memory is not bound to NUMA nodes:

NumaUnaligned     its pod-level resources are ignored for alignment
NumaRefused       no nodes have enough memory for it by the rules
NumaUnknown       the kubelet's state does not know it
NumaBeyondParent  a cgroup above it, or the machine, does not have its nodes
"""


class Notice(msgspec.Struct, frozen=True):
    """One thing to know of a pod."""

    reason: NoticeReason
    what: str
    hint: str | None = None


MEMORY_FILES: Final = (*PROTECTION_FILES, "memory.high")
"""What an agent writes of every cgroup it looks after."""
WRITABLE_FILES: Final = (*MEMORY_FILES, MEMS)
"""The same and, where it is asked to, what binds containers to NUMA nodes."""


class ContainerIntent(NamedTuple):
    """How a container of a pod should be, whether it has a cgroup or not."""

    settings: FileSettings
    kubelet: FileSettings
    """What the kubelet itself has the runtime set; nothing where its MemoryQoS is off."""


class PodIntent(msgspec.Struct, frozen=True, kw_only=True):
    """One pod, and how its cgroups should be."""

    pod: Pod
    key: str
    """namespace/name."""
    mode: AgentMode | None
    """None where the pod is not selected: its values are not those of memqos."""
    path: str | None = None
    """Of the pod's own cgroup; None where it cannot be named."""
    cgroups: tuple[Cgroup, ...] = ()
    """The pod's own first; none where it is not selected."""
    unresolved: tuple[Unresolved, ...] = ()
    refused_annotations: tuple[str, ...] = ()
    """Annotations that are ignored, with the reason; a few of them if they are many."""
    plan: PodPlan | None = None
    """What the kubelet alone would plan."""
    reservation: tuple[int, int] = (0, 0)
    """The pod's memory.min and memory.low."""
    notices: tuple[Notice, ...] = ()
    ignored_annotations: int = 0
    """How many annotations are."""
    containers: Mapping[str, ContainerIntent] = {}
    """By name; only where the agent is a plugin of the runtime."""


class AgentSettings(NodeSettings, frozen=True, kw_only=True):
    """The settings of the node an agent runs on."""

    numa: "NumaMachine | None" = None
    """The machine's NUMA nodes, where the configuration binds containers to them."""


class IntentPlanner:
    """Makes the intents of pods, under one configuration on one node."""

    def __init__(
        self,
        configuration: AgentConfiguration,
        node_settings: AgentSettings,
        own_cgroup: str | None = None,
    ) -> None:
        self.configuration = configuration
        self.node_settings = node_settings
        self.names = names_of(node_settings.config)
        self._own_cgroup = own_cgroup
        self._planners: dict[tuple[float | None, Policy], Planner] = {}
        self._kubelet_planner: Planner | None = None

    def intent_of(self, pod: Pod) -> PodIntent | None:
        """The intent of a pod; None for one that has ended."""
        if is_terminal(pod):
            return None
        key = pod_key(pod)
        try:
            return self._plan_intent(pod, key)
        except InputError as error:
            return _unresolved_intent(pod, key, str(error))

    def _plan_intent(self, pod: Pod, key: str) -> PodIntent:
        plan, invalid = self._plan(pod)
        if plan is None:
            return _unresolved_intent(pod, key, invalid)
        uid = cgroup_uid(pod)
        path = None if uid is None else self.names.pod(uid, plan.qos)
        if self.configuration.mode_of(pod) is None:
            return PodIntent(pod=pod, key=key, mode=None, path=path, plan=plan)
        granted = overrides_of(pod, self.configuration, self.node_settings.settings)
        own, _ = self._plan(pod, granted.factor, granted.reservation)
        assert own is not None
        throttled = granted.throttled and not self._contains_memqos(path)
        kubelet_plan = None if throttled else self.kubelet_plan(pod)
        if kubelet_plan is not None:
            # The kubelet sets memory.high again at each restart and resize: a reset would not last.
            own = _with_high_of(own, kubelet_plan)
        cgroups: list[Cgroup] = []
        unresolved: list[Unresolved] = []
        instead: FileSettings = {}
        if granted.reservation == "None":
            # Before 1.36 there is no policy, and a plan reserves every request: reset it.
            instead |= {file: Setting(0, OPTED_OUT) for file in PROTECTION_FILES}
        if not throttled and kubelet_plan is None:
            instead["memory.high"] = Setting(MAX, NEVER_THROTTLED)
        for found in pod_cgroups(pod, own, self.names):
            if isinstance(found, Unresolved):
                unresolved.append(found)
            else:
                settings = _memory_settings(found.settings) | instead
                cgroups.append(msgspec.structs.replace(found, settings=settings))
        return PodIntent(
            pod=pod,
            key=key,
            # Mode observe writes nothing, whatever an annotation asks for.
            mode=granted.mode if self.configuration.mode == "enforce" else "observe",
            path=path,
            cgroups=tuple(cgroups),
            unresolved=tuple(unresolved),
            refused_annotations=granted.refused,
            plan=plan,
            reservation=self._reservation(cgroups),
            notices=self._notices(pod),
            ignored_annotations=granted.ignored,
            containers={}
            if self.configuration.nri == "off"
            else self._containers(pod, own, instead),
        )

    def _containers(
        self, pod: Pod, own: PodPlan, instead: FileSettings
    ) -> dict[str, ContainerIntent]:
        kubelet_plan = self.kubelet_plan(pod)
        kubelet = own.containers if kubelet_plan is None else kubelet_plan.containers
        return {
            container.name: ContainerIntent(
                _memory_settings(planned.settings) | instead,
                {} if kubelet_plan is None else _memory_settings(its.settings),
            )
            for container, planned, its in zip(
                containers_of(pod), own.containers, kubelet, strict=True
            )
        }

    def kubelet_plan(self, pod: Pod) -> PodPlan | None:
        """What the running kubelet plans for a pod; None where its MemoryQoS is not on."""
        kubelet, settings = self.node_settings.kubelet, self.node_settings.kubelet_settings
        if kubelet is None or settings is None or not kubelet.writes_levels:
            return None
        if self._kubelet_planner is None:
            self._kubelet_planner = Planner(settings)
        return self._kubelet_planner.semantics(pod).plan

    def _notices(self, pod: Pod) -> tuple[Notice, ...]:
        """KEP-2837 has it reported where pod-level resources keep memory from being aligned."""
        numa, config = self.configuration.numa, self.node_settings.config
        if pod.spec.resources is None or (
            numa != "allocate" and config.memory_manager_policy != STATIC
        ):
            return ()
        from memqos.numa.requests import alignment_texts, pod_for_kubelet, pods_without_alignment

        release = self.node_settings.settings.release
        found = pods_without_alignment(
            [pod_for_kubelet(with_resources_in_use(pod), release)],
            release,
            config.topology_manager_policy,
            config.topology_manager_scope,
        )
        return tuple([Notice("NumaUnaligned", *alignment_texts(release)) for _ in found])

    def _plan(
        self, pod: Pod, factor: float | None = None, policy: Policy | None = None
    ) -> tuple[PodPlan | None, str]:
        settings = self.node_settings.settings
        chosen = (settings.factor if factor is None else factor, policy or settings.policy)
        if chosen not in self._planners:
            changed = msgspec.structs.replace(settings, factor=chosen[0], policy=chosen[1])
            self._planners[chosen] = Planner(changed)
        judged = self._planners[chosen].semantics(pod)
        return judged.plan, f"invalid: {judged.errors[0]}" if judged.errors else ""

    def _contains_memqos(self, path: str | None) -> bool:
        return path is not None and f"{self._own_cgroup or ''}/".startswith(f"{path}/")

    def _reservation(self, cgroups: list[Cgroup]) -> tuple[int, int]:
        if not cgroups:
            return 0, 0
        return protection_in_plan(cgroups[0], "memory.min", self.page_size), protection_in_plan(
            cgroups[0], "memory.low", self.page_size
        )

    @property
    def page_size(self) -> int:
        return self.node_settings.settings.page_size


def _memory_settings(settings: FileSettings) -> FileSettings:
    return {name: settings[name] for name in MEMORY_FILES if name in settings}


def _unresolved_intent(pod: Pod, key: str, why: str) -> PodIntent:
    """A pod that no cgroup can be planned for, and so none is written to."""
    return PodIntent(pod=pod, key=key, mode=None, unresolved=(Unresolved(key, None, why),))


def _with_high_of(plan: PodPlan, other: PodPlan) -> PodPlan:
    """A plan with the memory.high of another one of the same pod."""
    replace = msgspec.structs.replace
    return replace(
        plan,
        settings=_high_of(plan.settings, other.settings),
        containers=tuple(
            replace(each, settings=_high_of(each.settings, its.settings))
            for each, its in zip(plan.containers, other.containers, strict=True)
        ),
    )


def _high_of(settings: FileSettings, other: FileSettings) -> FileSettings:
    without = {file: setting for file, setting in settings.items() if file != "memory.high"}
    return without | {file: other[file] for file in ("memory.high",) if file in other}


def protection_in_plan(cgroup: Cgroup, file: str, page_size: int) -> int:
    """How much protection a cgroup is planned to have."""
    setting = cgroup.settings.get(file)
    content = "0" if setting is None else as_stored(file, setting.value, page_size)
    return int(content) if content.isdigit() else 0
