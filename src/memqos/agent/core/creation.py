"""The values of containers that a runtime is about to create or to resize, by the last view."""

from collections.abc import Mapping

import msgspec

from memqos.agent.core.pod_intent import MEMORY_FILES, ContainerIntent, IntentPlanner
from memqos.agent.core.view import NodeView, PodView
from memqos.converge.values import kernel_form, value_fault
from memqos.host.nri.messages import NriContainer
from memqos.kube.resources_in_use import with_limit_in_use
from memqos.plan.changes import DEFAULTS, as_stored
from memqos.plan.names import RuntimeName, names_of


class ContainerValues(msgspec.Struct, frozen=True, kw_only=True):
    """What a container should get from its runtime, beside what the kubelet has it set."""

    path: str
    """Of its cgroup."""
    pod: str
    """namespace/name."""
    container: str
    values: Mapping[str, str]
    """File → value; only those that differ from what would be there."""
    kubelet: Mapping[str, str]
    """File → value that the kubelet has the runtime store."""
    is_enforced: bool
    """Whether memqos writes to this pod."""

    def without(self, file: str) -> "ContainerValues":
        """The same but for one file."""
        values = {name: value for name, value in self.values.items() if name != file}
        return msgspec.structs.replace(self, values=values)

    def prior(self, file: str) -> str:
        """What would be there without memqos."""
        return self.kubelet.get(file, DEFAULTS[file])


def is_excluded(view: NodeView, pod_uid: str) -> bool:
    """Whether memqos knows a pod and plans nothing for it: it is not selected, or not valid."""
    pod = view.pods_by_uid.get(pod_uid)
    return pod is not None and pod.intent.mode is None


def values_at_creation(
    view: NodeView, container: NriContainer, runtime: RuntimeName
) -> ContainerValues | None:
    """What a new container gets; None where the agent does not know it."""
    pod = view.pods_by_uid.get(container.pod_uid)
    intent = None if pod is None else pod.intent.containers.get(container.name)
    if pod is None or intent is None:
        return None
    page_size = view.node_settings.settings.page_size
    # NRI shows what the kubelet sends from 0.10 on; before, it is what this kubelet plans.
    kubelet = {
        file: as_stored(file, setting.value, page_size)
        for file, setting in intent.kubelet.items()
        if setting.value is not None
    } | _sent_values(container, page_size)
    return _values(view, pod, intent, container, runtime, kubelet, {**DEFAULTS, **kubelet})


def values_at_resize(
    view: NodeView, planner: IntentPlanner, container: NriContainer, runtime: RuntimeName
) -> ContainerValues | None:
    """What a container gets whose memory limit is being changed; None where none is changed."""
    pod = view.pods_by_uid.get(container.pod_uid)
    if pod is None or not container.limit or container.name not in pod.intent.containers:
        return None
    resized = planner.intent_of(with_limit_in_use(pod.intent.pod, container.name, container.limit))
    if resized is None or container.name not in resized.containers:
        return None
    sent = _sent_values(container, view.node_settings.settings.page_size)
    # What is stored is applied again, so that a value that becomes the default is sent, too.
    intent = resized.containers[container.name]
    return _values(view, pod, intent, container, runtime, sent, sent)


def _values(
    view: NodeView,
    pod: PodView,
    intent: ContainerIntent,
    container: NriContainer,
    runtime: RuntimeName,
    kubelet: Mapping[str, str],
    expected: Mapping[str, str],
) -> ContainerValues | None:
    """`expected` is what would be there without an answer."""
    node_settings = view.node_settings
    page_size, names = node_settings.settings.page_size, names_of(node_settings.config)
    if pod.intent.path is None:
        return None
    # A runtime fails to start a container with a value that makes no sense or has no file.
    exist = view.files.get(names.kubepods, {})
    planned = {
        file: as_stored(file, setting.value, page_size)
        for file, setting in intent.settings.items()
        if file in exist and not (file == "memory.min" and pod.is_unreserved)
    }
    return ContainerValues(
        path=names.container(pod.intent.path, container.id, runtime),
        pod=pod.intent.key,
        container=container.name,
        values={
            file: value
            for file, value in planned.items()
            if value != expected.get(file) and value_fault(file, value) is None
        },
        kubelet=kubelet,
        is_enforced=pod.intent.mode == "enforce" and node_settings.doubt is None,
    )


def _sent_values(container: NriContainer, page_size: int) -> dict[str, str]:
    """What the kubelet sends, as far as the runtime shows it, in the kernel's form."""
    return {
        file: kernel_form(file, value, page_size)
        for file, value in container.unified.items()
        if file in MEMORY_FILES and value_fault(file, value) is None
    }
