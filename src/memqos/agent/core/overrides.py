"""What a pod asks for itself with its annotations, and how much of that it is granted.

A pod may weaken what the node's policy gives it: be observed instead of written to, be throttled
later, be reserved less. More than that is granted to allow-listed namespaces alone.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, get_args

from memqos.agent.configuration import AgentConfiguration, AgentMode
from memqos.agent.configuration.fields import CONFIG_FIELDS, ConfigPath, decode_text_value
from memqos.errors import InputError, nearest_name
from memqos.kube.pod import Pod
from memqos.kube.shape import is_critical
from memqos.settings.settings import KNOWS_POLICY, Policy, Settings

ANNOTATION_PREFIX: Final = "memqos.io/"
MODE_ANNOTATION: Final = "memqos.io/mode"
FACTOR_ANNOTATION: Final = "memqos.io/throttling-factor"
RESERVATION_ANNOTATION: Final = "memqos.io/reservation"

_MAX_NAMED: Final = 5
"""So many unknown annotations of a pod are named: it may have thousands."""
_LONGEST: Final = 300
_POLICIES: Final = get_args(Policy)
_CRITICAL: Final = frozenset({"system-node-critical", "system-cluster-critical"})
_OWN_LABEL: Final = ("app.kubernetes.io/name", "memqos")


class Overrides(NamedTuple):
    """How one pod is treated. What is None is left to the node's settings."""

    mode: AgentMode
    factor: float | None = None
    reservation: Policy | None = None
    throttled: bool = True
    """Whether memory.high may be set at all: never for system-critical pods and memqos itself."""
    refused: tuple[str, ...] = ()
    """Annotations that were ignored, each with its reason; a few of them if they are many."""
    ignored: int = 0
    """How many were."""


def overrides_of(
    pod: Pod, configuration: AgentConfiguration, settings: Settings | None = None
) -> Overrides:
    """What a selected pod is granted under these settings; without, those configured."""
    annotations = pod.metadata.annotations or {}
    given = _NodePolicy(
        configuration.mode_of(pod) or "observe",
        configuration,
        settings,
        (pod.metadata.namespace or "default") in configuration.allow_namespaces,
    )
    granted: dict[str, Any] = {"mode": given.mode}
    refused: list[str] = []
    ignored = 0
    for name in sorted(name for name in annotations if name.startswith(ANNOTATION_PREFIX)):
        if name not in _ANNOTATIONS and len(refused) >= _MAX_NAMED:
            ignored += 1
            continue
        try:
            granted |= _grant(name, annotations[name], given)
        except InputError as error:
            ignored += 1
            refused.append(_short(f"{name}: {error}"))
    throttled = may_be_throttled(pod)
    return Overrides(**granted, throttled=throttled, refused=tuple(refused), ignored=ignored)


def may_be_throttled(pod: Pod) -> bool:
    """Not so if the node depends on the pod, or if it is memqos itself."""
    labels = pod.metadata.labels or {}
    return not (
        is_critical(pod)
        or pod.spec.priority_class_name in _CRITICAL
        or labels.get(_OWN_LABEL[0]) == _OWN_LABEL[1]
    )


class _NodePolicy(NamedTuple):
    """What the node gives a pod, and whether the pod may have more."""

    mode: AgentMode
    configuration: AgentConfiguration
    settings: Settings | None
    may_have_more: bool

    @property
    def factor(self) -> float | None:
        return self.configuration.factor if self.settings is None else self.settings.factor

    @property
    def knows_policy(self) -> bool:
        return self.settings is None or KNOWS_POLICY.at(self.settings.release.minor)

    @property
    def policy(self) -> Policy:
        if not self.knows_policy:
            return "HardReservation"  # before 1.36 every request is memory.min
        return (
            self.configuration.policy if self.settings is None else self.settings.policy
        ) or "None"


def _grant(name: str, text: str, given: _NodePolicy) -> dict[str, Any]:
    if name not in _ANNOTATIONS:
        raise InputError("there is no such annotation", hint=_suggestion(name))
    field, path, is_weaker = _ANNOTATIONS[name]
    value = decode_text_value(CONFIG_FIELDS[path], text)
    if field == "reservation" and value != "None" and not given.knows_policy:
        assert given.settings is not None
        raise InputError(f"Kubernetes {given.settings.release} allows only None besides its own")
    if not given.may_have_more and not is_weaker(value, given):
        raise InputError(
            f"{text} exceeds the node's policy",
            hint="allowNamespaces of the agent's configuration may grant it",
        )
    return {field: value}


def _observes(value: str, given: _NodePolicy) -> bool:
    return value in ("observe", given.mode)


def _throttles_later(value: float, given: _NodePolicy) -> bool:
    # Without a factor nothing is throttled, so any factor but 1 throttles earlier.
    return value == 1 or (given.factor is not None and value >= given.factor)


def _reserves_less(value: str, given: _NodePolicy) -> bool:
    return _POLICIES.index(value) <= _POLICIES.index(given.policy)


_ANNOTATIONS: Final[dict[str, tuple[str, ConfigPath, Callable[[Any, _NodePolicy], bool]]]] = {
    MODE_ANNOTATION: ("mode", ("mode",), _observes),
    FACTOR_ANNOTATION: ("factor", ("factor",), _throttles_later),
    RESERVATION_ANNOTATION: ("reservation", ("policy",), _reserves_less),
}
"""Annotation → what it overrides, the field of the configuration it is read as, what is weaker."""


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _suggestion(name: str) -> str:
    near = nearest_name(name, _ANNOTATIONS)
    return f"did you mean {near}?" if near is not None else f"there are {', '.join(_ANNOTATIONS)}"
