"""Whether Memory QoS is on for what is shown, and by which source."""

from typing import Any, Final, Literal

import msgspec

from memqos.kube.kubelet import KubeletConfiguration
from memqos.release import Release, default, stage
from memqos.settings.facts import NodeFacts, RawKubeletConfig
from memqos.settings.settings import SettingsOptions

MEMORY_QOS: Final = "MemoryQoS"

EnablementState = Literal["on", "off", "as if on"]
EnablementSource = Literal["release default", "kubelet file", "flag", "configz", "stated"]


class Enablement(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the gate MemoryQoS, and where it comes from."""

    state: EnablementState
    source: EnablementSource
    because: str

    def __str__(self) -> str:
        shown = "shown " if self.state == "as if on" else ""
        return f"{MEMORY_QOS} is {shown}{self.state}: {self.because}"

    @property
    def is_on(self) -> bool:
        """Whether what is shown follows from the gate being on."""
        return self.state != "off"

    @property
    def data(self) -> dict[str, Any]:
        """For scripts."""
        return {"state": self.state, "source": self.source, "sentence": str(self)}


def is_assumed_on(facts: NodeFacts, options: SettingsOptions) -> bool:
    """Whether nothing says which node it is about, so that the question is what it would do."""
    return options.assume_gate_on and MEMORY_QOS not in options.gates and not _names_node(facts)


def _names_node(facts: NodeFacts) -> bool:
    return any(
        (
            facts.is_observed,
            facts.version,
            facts.server_version,
            facts.capacity,
            facts.configuration,
        )
    )


def enablement_of(
    facts: NodeFacts,
    options: SettingsOptions,
    release: Release,
    config: KubeletConfiguration | None,
) -> Enablement:
    """Why the gate is what it is in `release`; `config` is None where none is known."""
    state: EnablementState = "on" if release.is_enabled(MEMORY_QOS) else "off"
    # A gate of its own name comes before one that switches all of its stage.
    names = (MEMORY_QOS, "AllAlpha" if stage(MEMORY_QOS, release.minor) == "alpha" else "AllBeta")
    for name in names:
        if name in options.gates:
            words = f"stated as {name}={_go_bool(options.gates[name])}"
            return Enablement(state=state, source="stated", because=words)
        if config is None or facts.configuration is None or name not in config.feature_gates:
            continue
        return _of_configuration(state, facts.configuration, name, config.feature_gates[name])
    if is_assumed_on(facts, options):
        is_on = "on" if default(MEMORY_QOS, release.minor) else "off"
        words = (
            f"no kubelet is known; by default it is {is_on} in {release} "
            f"({stage(MEMORY_QOS, release.minor)})"
        )
        return Enablement(state="as if on", source="release default", because=words)
    known = (
        " and no kubelet configuration is known"
        if config is None or facts.configuration is None
        else f" not changed by {facts.configuration.name}"
    )
    words = f"the default of {release},{known}"
    return Enablement(state=state, source="release default", because=words)


def _of_configuration(
    state: EnablementState, configuration: RawKubeletConfig, gate: str, is_set: bool
) -> Enablement:
    setting = f"{gate}={_go_bool(is_set)}"
    source: EnablementSource = "kubelet file"
    words = f"kubelet configuration {configuration.name} has {setting}"
    if gate in configuration.flag_gates:
        source, words = "flag", f"the running kubelet has --feature-gates={setting}"
    elif configuration.is_from_kubelet:
        source, words = "configz", f"the running kubelet has {setting}, by {configuration.name}"
    return Enablement(state=state, source=source, because=words)


def _go_bool(is_on: bool) -> str:
    return "true" if is_on else "false"
