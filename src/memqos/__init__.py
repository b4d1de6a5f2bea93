"""Memory quality of service for Kubernetes nodes.

    >>> import memqos
    >>> (pod,) = memqos.load("examples/one.yaml")
    >>> explained = memqos.explain(pod, release="1.37", capacity="16Gi", factor=0.9)
    >>> explained.qos_class
    'Burstable'
    >>> explained.setting("memory.high", "app").value
    993210368

`load`, `explain`, `plan` and `audit` are what most programs need (docs/library.md). The other
names below are the types of their results, and the parts they are made of. Each is imported when it
is first used, so that `import memqos` costs next to nothing.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from memqos.errors import InputError as InputError
    from memqos.errors import JournalError as JournalError
    from memqos.errors import MemqosError as MemqosError
    from memqos.errors import Unreachable as Unreachable
    from memqos.errors import UnsupportedRelease as UnsupportedRelease
    from memqos.errors import WriteRefused as WriteRefused
    from memqos.findings.finding import Finding as Finding
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
    from memqos.library import AuditSummary as AuditSummary
    from memqos.library import Explanation as Explanation
    from memqos.library import LoadedPod as LoadedPod
    from memqos.library import PlannedNode as PlannedNode
    from memqos.library import audit as audit
    from memqos.library import explain as explain
    from memqos.library import load as load
    from memqos.library import plan as plan
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

    __version__: str

_HOME: Final = {
    "AuditSummary": "library",
    "Explanation": "library",
    "Finding": "findings.finding",
    "LoadedPod": "library",
    "PlannedNode": "library",
    "explain": "library",
    "load": "library",
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

_CALLABLE: Final = ("audit", "plan")
"""Packages that are functions of `library` as well."""

__all__ = sorted([*_HOME, *_CALLABLE, "__version__"])  # noqa: PLE0605 - a list of names, in order


class CallablePackage(ModuleType):
    """A package that is also the function of its name in `memqos.library`.

    `memqos.plan` is the package as soon as one of its modules is imported, whatever else it was
    before, so the package itself has to answer a call.
    """

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        function = getattr(import_module("memqos.library"), self.__name__.rpartition(".")[2])
        return function(*arguments, **options)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("memqos")
    if name in _CALLABLE:
        return import_module(f"memqos.{name}")
    name = _FORMER_NAMES.get(name, name)
    if name not in _HOME:
        raise AttributeError(f"module 'memqos' has no attribute {name!r}")
    return getattr(import_module(f"memqos.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
