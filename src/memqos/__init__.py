"""Memory quality of service for Kubernetes nodes.

The names below are the library's public ones; each is imported when it is first used, so that
`import memqos` costs next to nothing.

    >>> import memqos, msgspec
    >>> pod = msgspec.convert({"spec": {"containers": [{"name": "c", "image": "i"}]}}, memqos.Pod)
    >>> settings = memqos.resolve(memqos.NodeFacts(), memqos.SettingsOptions(release="1.37"))
    >>> print(settings.enablement)
    MemoryQoS is on: the default of 1.37, and no kubelet configuration is known
    >>> memqos.semantics(pod, settings.settings).plan.qos
    'BestEffort'

`Settings(Release.of("1.36"), factor=0.9)` are settings with the release's gates: MemoryQoS is off
there, so they give what `memqos explain` shows for the gate off. `Release.of("1.36", {"MemoryQoS":
True})` gives what it shows for the gate on.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from memqos.errors import InputError as InputError
    from memqos.errors import JournalError as JournalError
    from memqos.errors import MemqosError as MemqosError
    from memqos.errors import Unreachable as Unreachable
    from memqos.errors import UnsupportedRelease as UnsupportedRelease
    from memqos.errors import WriteRefused as WriteRefused
    from memqos.kube.defaulting import apply_defaults as apply_defaults
    from memqos.kube.kubelet import KubeletConfiguration as KubeletConfiguration
    from memqos.kube.kubelet.reading import kubelet_from as kubelet_from
    from memqos.kube.kubelet.reading import read_kubelet as read_kubelet
    from memqos.kube.node import Capacity as Capacity
    from memqos.kube.node import Node as Node
    from memqos.kube.node import allocatable as allocatable
    from memqos.kube.pod import Pod as Pod
    from memqos.kube.qos import qos_class as qos_class
    from memqos.kube.quantity import Quantity as Quantity
    from memqos.kube.shape import Shape as Shape
    from memqos.kube.validation import FieldError as FieldError
    from memqos.kube.validation import validate as validate
    from memqos.plan.effective import Claim as Claim
    from memqos.plan.effective import Protection as Protection
    from memqos.plan.effective import effective as effective
    from memqos.plan.names import cgroup_names as cgroup_names
    from memqos.plan.pod import PodPlan as PodPlan
    from memqos.plan.semantics import Planner as Planner
    from memqos.plan.semantics import Semantics as Semantics
    from memqos.plan.semantics import semantics as semantics
    from memqos.plan.setting import Reason as Reason
    from memqos.plan.setting import Setting as Setting
    from memqos.plan.tree import Cgroup as Cgroup
    from memqos.plan.tree import Tree as Tree
    from memqos.plan.tree import plan_node as plan_node
    from memqos.release import Release as Release
    from memqos.settings.facts import NodeFacts as NodeFacts
    from memqos.settings.resolver import NodeSettings as NodeSettings
    from memqos.settings.resolver import resolve as resolve
    from memqos.settings.settings import Settings as Settings
    from memqos.settings.settings import SettingsOptions as SettingsOptions

_HOME: Final = {
    "Capacity": "kube.node",
    "Cgroup": "plan.tree",
    "Claim": "plan.effective",
    "FieldError": "kube.validation",
    "InputError": "errors",
    "JournalError": "errors",
    "KubeletConfiguration": "kube.kubelet",
    "MemqosError": "errors",
    "Node": "kube.node",
    "NodeFacts": "settings.facts",
    "NodeSettings": "settings.resolver",
    "Planner": "plan.semantics",
    "Pod": "kube.pod",
    "PodPlan": "plan.pod",
    "Protection": "plan.effective",
    "Quantity": "kube.quantity",
    "Reason": "plan.setting",
    "Release": "release",
    "Semantics": "plan.semantics",
    "Setting": "plan.setting",
    "Settings": "settings.settings",
    "SettingsOptions": "settings.settings",
    "Shape": "kube.shape",
    "Tree": "plan.tree",
    "Unreachable": "errors",
    "UnsupportedRelease": "errors",
    "WriteRefused": "errors",
    "allocatable": "kube.node",
    "apply_defaults": "kube.defaulting",
    "cgroup_names": "plan.names",
    "effective": "plan.effective",
    "kubelet_from": "kube.kubelet.reading",
    "plan_node": "plan.tree",
    "qos_class": "kube.qos",
    "read_kubelet": "kube.kubelet.reading",
    "resolve": "settings.resolver",
    "semantics": "plan.semantics",
    "validate": "kube.validation",
}

_FORMER_NAMES: Final = {"Terms": "Settings", "defaulted": "apply_defaults"}
"""Names of earlier versions, which code that imports memqos may still use."""

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    name = _FORMER_NAMES.get(name, name)
    if name not in _HOME:
        raise AttributeError(f"module 'memqos' has no attribute {name!r}")
    return getattr(import_module(f"memqos.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
