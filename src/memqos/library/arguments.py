"""The arguments of the library's functions, checked before anything is computed."""

import os
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from memqos.errors import InputError, quote_excerpt
from memqos.host.manifest_files import load_file
from memqos.kube.node import Node
from memqos.kube.pod import Pod
from memqos.kube.quantity import Quantity
from memqos.library.loading import LoadedPod, is_text, one_document, wrong_type
from memqos.manifests.documents import find_document
from memqos.settings.facts import NodeFacts, RawKubeletConfig, facts_of_node
from memqos.settings.resolver import NodeSettings, resolve
from memqos.settings.settings import POLICIES, SettingsOptions

_T = TypeVar("_T")
_TYPE_NAMES = {float: "number", int: "number"}
_TOO_LARGE: Final = 1 << 63
"""Bytes: the API server stores amounts in 64 bits."""

Amount = int | str
"""Bytes, or a quantity such as "16Gi"."""
Manifest = Mapping[str, Any]
"""A decoded object of Kubernetes."""


def take_pod(given: object) -> tuple[Pod, str, str | None]:
    """A pod, its name to show, and its namespace."""
    if isinstance(given, LoadedPod):
        return given.pod, f"{given.kind.lower()}/{given.name}", given.namespace
    if isinstance(given, Mapping):
        kind = given.get("kind", "Pod")
        if kind != "Pod":
            raise InputError(
                f"this is a {kind}, not a Pod",
                field="pod",
                hint="memqos.load() returns the pods of workloads",
            )
        given = _decode(given, Pod, "pod")
    if not isinstance(given, Pod):
        raise wrong_type("pod", given, "a Pod, a result of memqos.load(), or a decoded manifest")
    return given, f"pod/{given.metadata.name or '?'}", given.metadata.namespace


def resolve_arguments(
    *,
    release: str | None,
    gates: Mapping[str, bool] | None,
    policy: str | None,
    factor: float | None,
    kubelet: object,
    capacity: Amount | None = None,
    allocatable: Amount | None = None,
    node: object = None,
) -> NodeSettings:
    """The settings that arguments and objects add up to, after every argument is checked."""
    if release is not None and not isinstance(release, str):
        raise InputError(
            f"{release!r} is a {_TYPE_NAMES.get(type(release), type(release).__name__)}",
            field="release",
            hint='quote it: release="1.36"',
        )
    if policy is not None and policy not in (*POLICIES, "Disabled"):
        raise InputError(
            f"{policy!r} is not a policy", field="policy", hint=f"one of {', '.join(POLICIES)}"
        )
    if factor is not None and not (type(factor) in (int, float) and 0 < factor <= 1):
        raise InputError(f"{factor!r} is not a factor above 0 and up to 1", field="factor")
    options = SettingsOptions(
        release=release,
        gates=_gates(gates),
        policy=policy,  # type: ignore[arg-type] # one of POLICIES, or Disabled
        factor=factor,
        capacity=_bytes("capacity", capacity),
        allocatable=_bytes("allocatable", allocatable),
        assume_gate_on=True,
    )
    facts = NodeFacts() if node is None else facts_of_node(_node_of(node))
    if kubelet is not None:
        facts = msgspec.structs.replace(facts, configuration=_configuration(kubelet))
    return resolve(facts, options)


def _gates(gates: Mapping[str, bool] | None) -> dict[str, bool]:
    if gates is not None and not isinstance(gates, Mapping):
        raise wrong_type("gates", gates, 'a mapping, such as {"MemoryQoS": True}')
    for name, on in (gates or {}).items():
        if not isinstance(name, str):
            raise wrong_type("gates", name, "the name of a gate")
        if not isinstance(on, bool):
            raise InputError(f"{name} is {on!r}", field="gates", hint="write True or False")
    return dict(gates or {})


def _bytes(field: str, amount: Amount | None) -> int | None:
    if amount is None:
        return None
    if isinstance(amount, bool) or not isinstance(amount, int | str):
        raise wrong_type(field, amount, 'bytes, or a quantity such as "16Gi"')
    try:
        size = amount if isinstance(amount, int) else Quantity.parse(amount).value
    except InputError as error:
        raise InputError(error.what, field=field, hint=error.hint) from None
    if not 0 < size < _TOO_LARGE:
        raise InputError(
            f"{quote_excerpt(str(amount))} is not the size of a memory",
            field=field,
            hint="give bytes above 0 and below 2⁶³",
        )
    return size


def _node_of(given: object) -> Node:
    if isinstance(given, Node):
        return given
    if isinstance(given, Mapping):
        return _decode(given, Node, "node")
    if isinstance(given, str | os.PathLike):
        return _decode(one_document(given, "Node").data, Node, "node")
    raise wrong_type("node", given, "a Node, a decoded manifest, or a path")


def _decode(given: Mapping[str, Any], type: type[_T], field: str) -> _T:
    try:
        # YAML libraries decode times, which are texts in Kubernetes.
        return msgspec.convert(msgspec.to_builtins(dict(given)), type)
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(str(error), field=field) from None


def _configuration(given: object) -> RawKubeletConfig:
    if isinstance(given, Mapping):
        try:
            return RawKubeletConfig("kubelet", msgspec.json.encode(dict(given)))
        except TypeError as error:
            raise InputError(f"it cannot be JSON: {error}", field="kubelet") from None
    if not isinstance(given, str | os.PathLike):
        raise wrong_type("kubelet", given, "a KubeletConfiguration: decoded, its text, or a path")
    if is_text(given):
        return RawKubeletConfig("kubelet", given.encode())
    file, data = load_file(os.fspath(given))
    find_document(data, file, "KubeletConfiguration", "")
    return RawKubeletConfig(file, data)
