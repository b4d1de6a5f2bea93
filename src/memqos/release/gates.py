"""Feature gates: what a gate is in a release, and which gates a set of overrides leaves on."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, TypeVar

import msgspec

from memqos.errors import UnsupportedRelease, nearest_name
from memqos.release._gate_dependencies import DEPENDENCIES
from memqos.release._gate_facts import ALIASES, HISTORY

_T = TypeVar("_T")

GateStage = Literal["alpha", "beta", "GA", "deprecated", "gone"]


class GateState(msgspec.Struct, frozen=True):
    """What a gate is in one release; a removed gate is on where its feature became permanent."""

    stage: GateStage
    on: bool
    locked: bool = False


_STATES = {
    "alpha off": GateState("alpha", on=False),
    "alpha on": GateState("alpha", on=True),
    "beta off": GateState("beta", on=False),
    "beta on": GateState("beta", on=True),
    "GA on": GateState("GA", on=True),
    "GA on locked": GateState("GA", on=True, locked=True),
    "deprecated off": GateState("deprecated", on=False),
    "deprecated off locked": GateState("deprecated", on=False, locked=True),
    "deprecated on": GateState("deprecated", on=True),
    "deprecated on locked": GateState("deprecated", on=True, locked=True),
    "gone off": GateState("gone", on=False, locked=True),
    "gone on": GateState("gone", on=True, locked=True),
}

# Setting one of these sets every gate of its stage that is not set by name.
_STAGE_SWITCHES: Mapping[str, GateStage] = {"AllAlpha": "alpha", "AllBeta": "beta"}


def gate_names() -> list[str]:
    """Every gate that is known, by name."""
    return sorted(HISTORY)


def canonical(name: str) -> str:
    """The name of a gate as Kubernetes spells it; refuses one that no release has."""
    if name in HISTORY:
        return name
    if name in ALIASES:
        return ALIASES[name]
    raise UnsupportedRelease(
        f"no Kubernetes release has a feature gate {name!r}", hint=_suggestion(name)
    )


def gate_state(name: str, minor: int) -> GateState | None:
    """What the gate is in that release; None where it does not exist yet."""
    words = _newest(HISTORY[canonical(name)], minor)
    return None if words is None else _STATES[words]


def stage(name: str, minor: int) -> GateStage | None:
    """The gate's stage in that release; None where it does not exist yet."""
    found = gate_state(name, minor)
    return None if found is None else found.stage


def default(name: str, minor: int) -> bool:
    """Whether the gate is on by default in that release."""
    found = gate_state(name, minor)
    return found is not None and found.on


def dependencies(name: str, minor: int) -> tuple[str, ...]:
    """The gates that must be on for this one to be on."""
    return _newest(DEPENDENCIES.get(canonical(name), {}), minor) or ()


def settable(name: str, on: bool, minor: int) -> str:
    """The canonical name of a gate that may be set to this value; refuses any other."""
    typed, name = name, canonical(name)
    found = gate_state(name, minor)
    if found is None or found.stage == "gone":
        alias = "" if typed == name else f" (which is called {name})"
        raise UnsupportedRelease(
            f"Kubernetes 1.{minor} has no feature gate {typed}{alias}", hint=_lifespan(name, minor)
        )
    if found.locked and found.on != on:
        raise UnsupportedRelease(
            f"feature gate {typed} is locked {'on' if found.on else 'off'} in Kubernetes 1.{minor}",
            hint="leave it unset",
        )
    return name


@lru_cache
def enabled_gates(minor: int, settings: tuple[tuple[str, bool], ...]) -> frozenset[str]:
    """The gates that are on: a gate is off where one that it depends on is off."""
    overrides = dict(settings)
    on = {name for name in HISTORY if default(name, minor)}
    for switch, switched in _STAGE_SWITCHES.items():
        if switch in overrides:
            of_stage = {name for name in HISTORY if stage(name, minor) == switched}
            on = on | of_stage if overrides[switch] else on - of_stage
    on |= {name for name, is_on in settings if is_on}
    on -= {name for name, is_on in settings if not is_on}
    while fallen := {
        name for name in DEPENDENCIES if name in on and not on.issuperset(dependencies(name, minor))
    }:
        on -= fallen
    return frozenset(on)


def _newest(entries: Mapping[int, _T], minor: int) -> _T | None:
    newest = None
    for since, value in entries.items():
        if since > minor:
            break
        newest = value
    return newest


def _lifespan(name: str, minor: int) -> str:
    history = HISTORY[name]
    first, last_change = min(history), max(history)
    return (
        f"it exists since 1.{first}" if minor < first else f"it existed until 1.{last_change - 1}"
    )


def _suggestion(name: str) -> str:
    near = nearest_name(name, (*HISTORY, *ALIASES))
    return f"did you mean {near}?" if near is not None else "check the spelling"
