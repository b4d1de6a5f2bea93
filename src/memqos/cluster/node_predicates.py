"""Whether a node's labels, name, taints and ports let a pod run there."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from memqos.kube.node import Taint
from memqos.kube.pod import NodeSelectorRequirement, NodeSelectorTerm, Pod, Toleration

_ANY_ADDRESS: Final = "0.0.0.0"
_TCP: Final = "TCP"

HostPort = tuple[str, str, int]
"""Address, protocol and port."""


def matches_node(pod: Pod, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the pod's nodeSelector and required node affinity choose a node."""
    spec = pod.spec
    if any([labels.get(key) != value for key, value in (spec.node_selector or {}).items()]):
        return False
    affinity = spec.affinity and spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    if not required:
        return True
    return any([_term_holds(term, name, labels) for term in required.node_selector_terms or ()])


def tolerates(toleration: Toleration, taint: Taint, *, compares_numbers: bool = False) -> bool:
    """Whether a toleration covers a taint; Lt and Gt count only where `compares_numbers`."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in (None, "", "Equal"):
        return (toleration.value or "") == (taint.value or "")
    if toleration.operator == "Exists":
        return True
    return compares_numbers and _compares(
        toleration.operator or "", taint.value or "", toleration.value or ""
    )


def has_untolerated_taint(
    pod: Pod, taints: Iterable[Taint], effect: str, *, compares_numbers: bool = False
) -> bool:
    """Whether a taint of this effect keeps the pod away."""
    tolerations = pod.spec.tolerations or ()
    return any(
        not any(
            tolerates(toleration, taint, compares_numbers=compares_numbers)
            for toleration in tolerations
        )
        for taint in taints
        if taint.effect == effect
    )


def host_ports(pod: Pod) -> Iterator[HostPort]:
    """The ports of the node that a pod takes, those of its sidecars included."""
    sidecars = [each for each in pod.spec.init_containers or () if each.restart_policy == "Always"]
    for container in (*(pod.spec.containers or ()), *sidecars):
        for port in container.ports or ():
            if port.host_port and port.host_port > 0:
                yield (port.host_ip or _ANY_ADDRESS, port.protocol or _TCP, port.host_port)


def has_free_ports(pod: Pod, others: Iterable[Pod]) -> bool:
    """Whether no port of the node that the pod takes is taken by another pod."""
    ports = list(host_ports(pod))
    if not ports:
        return True
    return not any(
        (protocol, port) == (other_protocol, other_port)
        and (address == other_address or _ANY_ADDRESS in (address, other_address))
        for other in others
        for other_address, other_protocol, other_port in host_ports(other)
        for address, protocol, port in ports
    )


def _term_holds(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return False
    return all([_holds(each, labels) for each in expressions]) and all(
        [_holds(each, {"metadata.name": name}) for each in fields]
    )


def _holds(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values or ()
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return (
                value is not None
                and len(values) == 1
                and _compares(requirement.operator, value, values[0])
            )


def _compares(operator: str, value: str, bound: str) -> bool:
    try:
        number, other = int(value), int(bound)
    except ValueError:
        return False
    return (operator == "Lt" and number < other) or (operator == "Gt" and number > other)
