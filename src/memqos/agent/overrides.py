"""What a pod asks for itself with its annotations, and how much of that it is granted.

A pod may weaken what the node's policy gives it: be observed instead of written to, be throttled
later, be reserved less. More than that is granted to allow-listed namespaces alone.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, get_args

from memqos.agent.configuration import Configuration, Mode
from memqos.api.pod import Pod
from memqos.api.positions import brief
from memqos.api.shape import is_critical
from memqos.errors import InputError
from memqos.plan.terms import KNOWS_POLICY, Policy, Terms

PREFIX: Final = "memqos.io/"
MODE: Final = "memqos.io/mode"
FACTOR: Final = "memqos.io/throttling-factor"
RESERVATION: Final = "memqos.io/reservation"

_MODES: Final = get_args(Mode)
_POLICIES: Final = get_args(Policy)
_CRITICAL: Final = frozenset({"system-node-critical", "system-cluster-critical"})
_ITSELF: Final = ("app.kubernetes.io/name", "memqos")


class Overrides(NamedTuple):
    """How one pod is treated. What is None is left to the node's terms."""

    mode: Mode
    factor: float | None = None
    reservation: Policy | None = None
    throttled: bool = True
    """Whether memory.high may be set at all: never for system-critical pods and memqos itself."""
    refused: tuple[str, ...] = ()
    """Annotations that were ignored, each with its reason."""


def overrides_of(pod: Pod, configuration: Configuration, terms: Terms | None = None) -> Overrides:
    """What a selected pod is granted, under the terms in force; without, those configured."""
    annotations = pod.metadata.annotations or {}
    given = _Given(configuration, terms)
    allowed = (pod.metadata.namespace or "default") in configuration.allow_namespaces
    node_mode = configuration.mode_of(pod) or "observe"
    granted: dict[str, Any] = {"mode": node_mode}
    refused: list[str] = []
    for name in sorted(name for name in annotations if name.startswith(PREFIX)):
        try:
            if name not in _ANNOTATIONS:
                raise InputError("there is no such annotation", hint=_suggestion(name))
            field, read, is_weaker = _ANNOTATIONS[name]
            asked = read(annotations[name], given)
            if not allowed and not is_weaker(asked, given, node_mode):
                raise InputError(
                    f"{annotations[name]} is more than the node's policy gives",
                    hint="allowNamespaces of the agent's configuration may grant it",
                )
            granted[field] = asked
        except InputError as error:
            refused.append(f"{name}: {error}")
    return Overrides(**granted, throttled=may_be_throttled(pod), refused=tuple(refused))


def may_be_throttled(pod: Pod) -> bool:
    """Not so if the node depends on the pod, or if it is memqos itself."""
    labels = pod.metadata.labels or {}
    return not (
        is_critical(pod)
        or pod.spec.priority_class_name in _CRITICAL
        or labels.get(_ITSELF[0]) == _ITSELF[1]
    )


class _Given(NamedTuple):
    """What the node gives."""

    configuration: Configuration
    terms: Terms | None

    @property
    def factor(self) -> float | None:
        return self.configuration.factor if self.terms is None else self.terms.factor

    @property
    def knows_policy(self) -> bool:
        return self.terms is None or KNOWS_POLICY.at(self.terms.release.minor)

    @property
    def policy(self) -> Policy:
        if not self.knows_policy:
            return "HardReservation"  # such releases reserve every request
        return (self.configuration.policy if self.terms is None else self.terms.policy) or "None"


def _read_mode(text: str, given: _Given) -> str:
    if text not in _MODES:
        raise InputError(f"{brief(text)} is no mode", hint="expected observe or enforce")
    return text


def _read_factor(text: str, given: _Given) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor <= 1:
        raise InputError(f"{brief(text)} is not a factor above 0 and up to 1")
    return factor


def _read_reservation(text: str, given: _Given) -> str:
    if text not in _POLICIES:
        raise InputError(f"{brief(text)} is no policy", hint=f"expected {' or '.join(_POLICIES)}")
    if text != "None" and not given.knows_policy:
        assert given.terms is not None
        raise InputError(f"Kubernetes {given.terms.release} knows only None beside its own")
    return text


def _observes(asked: str, given: _Given, node_mode: Mode) -> bool:
    return asked in ("observe", node_mode)


def _throttles_later(asked: float, given: _Given, node_mode: Mode) -> bool:
    # Without a factor nothing is throttled, so any factor is more; 1 never is.
    return asked == 1 or (given.factor is not None and asked >= given.factor)


def _reserves_less(asked: str, given: _Given, node_mode: Mode) -> bool:
    return _POLICIES.index(asked) <= _POLICIES.index(given.policy)


_ANNOTATIONS: Final[
    dict[str, tuple[str, Callable[[str, _Given], Any], Callable[[Any, _Given, Mode], bool]]]
] = {
    MODE: ("mode", _read_mode, _observes),
    FACTOR: ("factor", _read_factor, _throttles_later),
    RESERVATION: ("reservation", _read_reservation, _reserves_less),
}


def _suggestion(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, _ANNOTATIONS, n=1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(_ANNOTATIONS)}"
