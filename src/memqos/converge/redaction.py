"""What of a node may leave it: secrets stay behind.

What is kept is listed, rather than what is left out: of pods and of the kubelet's configuration
only what memqos itself decodes, of annotations only those a pod's cgroup is named by.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from memqos.kernel.keyed import lines_about
from memqos.kube.kubelet import ATTRIBUTES
from memqos.kube.pod import Container, Pod, PodSpec, PodStatus
from memqos.manifests.agent_state import AgentState

_ANNOTATIONS: Final = "kubernetes.io/config."
_TYPE_META: Final = ("apiVersion", "kind")
_STATISTICS: Final = frozenset(
    {
        "anon",
        "file",
        "shmem",
        "inactive_file",
        "active_file",
        "unevictable",
        "slab_reclaimable",
        "slab_unreclaimable",
    }
)


def redact_pod(pod: Pod, *, images: bool) -> Pod:
    """A pod without its annotations, but for those that say where it comes from."""
    annotations = {
        name: value
        for name, value in (pod.metadata.annotations or {}).items()
        if name.startswith(_ANNOTATIONS)
    }
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, annotations=annotations or None),
        spec=pod.spec if images else _without_images(pod),
        status=_without_message(pod.status),
    )


def redact_configuration(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fields of a KubeletConfiguration that decide about memory, and the names of the rest."""
    kept = {name: value for name, value in data.items() if name in (*_TYPE_META, *ATTRIBUTES)}
    return kept, [name for name in data if name not in kept]


def redact_cgroup(files: Mapping[str, str]) -> dict[str, str]:
    """A cgroup's files, of memory.stat only the lines that a decision may rest on."""
    return {
        file: lines_about(content, _STATISTICS) if file == "memory.stat" else content
        for file, content in files.items()
    }


def redact_agent(agent: AgentState | None) -> AgentState | None:
    """What an agent plans, without the error it last met, which may quote anything."""
    return None if agent is None else msgspec.structs.replace(agent, failing=None)


def _without_message(status: PodStatus | None) -> PodStatus | None:
    """A message may quote anything; that of an eviction is the kubelet's, and about memory."""
    if status is None or status.reason == "Evicted":
        return status
    return msgspec.structs.replace(status, message=None)


def _without_images(pod: Pod) -> PodSpec:
    spec = pod.spec
    return msgspec.structs.replace(
        spec,
        containers=_drop_images(spec.containers),
        init_containers=_drop_images(spec.init_containers),
        ephemeral_containers=_drop_images(spec.ephemeral_containers),
    )


def _drop_images(containers: tuple[Container, ...] | None) -> tuple[Container, ...] | None:
    if containers is None:
        return None
    return tuple(msgspec.structs.replace(container, image=None) for container in containers)
