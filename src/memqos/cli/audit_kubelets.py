"""Whether Memory QoS is on in a live cluster: what its kubelets run with, by their own answer."""

from collections import Counter
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Final, NamedTuple

from memqos.cli.cluster_access import LiveCluster, UnknownConfiguration
from memqos.errors import MemqosError
from memqos.kube.node import WINDOWS, Node, node_os
from memqos.settings.facts import NodeFacts, RawKubeletConfig
from memqos.settings.resolver import NodeSettings, resolve
from memqos.settings.settings import SettingsOptions
from memqos.units import name_some, pluralize

_MAX_ASKED: Final = 64
"""Kubelets asked: of a larger cluster a sample, with each version and image in it."""
_WORKERS: Final = 8


class KubeletAnswer(NamedTuple):
    """What one kubelet runs with, as facts and as the settings that follow."""

    node: str
    facts: NodeFacts
    settings: NodeSettings

    @property
    def is_on(self) -> bool:
        return self.settings.enablement.is_on

    @property
    def kind(self) -> tuple[object, ...]:
        """What values of pods depend on."""
        settings = self.settings.settings
        return self.is_on, settings.release.minor, settings.policy, settings.factor


class FleetKubelets(NamedTuple):
    """The kubelets that answered, and notes on those that did not."""

    answers: tuple[KubeletAnswer, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def typical(self) -> KubeletAnswer | None:
        """One of the kind that most are of."""
        kinds = Counter(answer.kind for answer in self.answers)
        most = max(kinds.values(), default=0)
        return next((each for each in self.answers if kinds[each.kind] == most), None)

    @property
    def disagreement(self) -> str | None:
        """Where the gate is on, and where it is not; None where all are alike."""
        on = [answer.node for answer in self.answers if answer.is_on]
        if len(on) in (0, len(self.answers)):
            return None
        asked = len(self.answers)
        return f"on for {len(on)} of {asked} kubelets queried ({name_some(on)}), off for the others"


def ask_kubelets(
    live: LiveCluster, nodes: Mapping[str, Node], options: SettingsOptions
) -> FleetKubelets:
    """Ask the kubelets of Linux nodes, a bounded number of them and several at a time.

    Where the API server refuses the first, no other is asked: it is the same right.
    """
    chosen = _sample(nodes)
    if not chosen:
        return FleetKubelets()
    first = live.kubelet_configuration(chosen[0])
    if isinstance(first, UnknownConfiguration) and first.is_forbidden:
        return FleetKubelets(notes=(str(first),))
    from concurrent.futures import ThreadPoolExecutor  # and logging: only for a live cluster

    with ThreadPoolExecutor(_WORKERS) as workers:
        found = dict(zip(chosen, workers.map(live.kubelet_configuration, chosen), strict=True))
    silent = [node for node, answer in found.items() if isinstance(answer, UnknownConfiguration)]
    answers, notes = [], []
    for node, answer in found.items():
        if isinstance(answer, RawKubeletConfig):
            try:
                answers.append(_answer_of(node, nodes[node], answer, options))
            except MemqosError as error:
                notes.append(f"the kubelet configuration of node {node} is not used: {error}")
    if silent:
        count = pluralize(len(silent), "kubelet")
        notes.append(
            f"{count} of {len(chosen)} queried kubelets did not answer: {name_some(silent)}"
        )
    linux = sum(1 for _ in _linux_nodes(nodes))
    if linux > len(chosen):
        notes.append(f"the MemoryQoS gate was read from {len(chosen)} of {linux:,} kubelets")
    return FleetKubelets(tuple(answers), tuple(notes))


def _answer_of(
    name: str, node: Node, configuration: RawKubeletConfig, options: SettingsOptions
) -> KubeletAnswer:
    info = node.status.node_info
    facts = NodeFacts(
        version=None if info is None else info.kubelet_version, configuration=configuration
    )
    return KubeletAnswer(name, facts, resolve(facts, options))


def _linux_nodes(nodes: Mapping[str, Node]) -> Iterator[tuple[str, Node]]:
    return ((name, node) for name, node in nodes.items() if node_os(node) != WINDOWS)


def _sample(nodes: Mapping[str, Node]) -> list[str]:
    """One node of each version and image first, then others, in the order of their names."""
    firsts: dict[tuple[str | None, str | None], str] = {}
    rest = []
    for name, node in sorted(_linux_nodes(nodes), key=itemgetter(0)):
        info = node.status.node_info
        kind = (None, None) if info is None else (info.kubelet_version, info.os_image)
        if firsts.setdefault(kind, name) != name:
            rest.append(name)
    return [*firsts.values(), *rest][:_MAX_ASKED]
