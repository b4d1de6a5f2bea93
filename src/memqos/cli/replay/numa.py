"""Replays recorded NUMA decisions: merges, whole kubelet lives, reservations and state files."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from memqos.cli.replay.pods import Case
from memqos.kube.pod import Pod
from memqos.kube.quantity import Quantity
from memqos.kube.resources import HUGEPAGES, hugepage_size
from memqos.numa.admission import MEMORY_MANAGER, Admitted, Outcome
from memqos.numa.checkpoint import Unreadable, contents, fnv1a32, read
from memqos.numa.hints import Answer, Hint, Hints, Provider, hints_of
from memqos.numa.manager import Manager, Settings, StartRefused, start
from memqos.numa.masks import mask_of, nodes_of
from memqos.numa.memory import Blocks, Machine, NodeMap, NumaMemory, allocatable_blocks
from memqos.numa.offers import Offer
from memqos.numa.reserved import (
    Reservation,
    Unreservable,
    config_faults,
    is_empty,
    reserved_in,
    system_reserved,
)
from memqos.numa.state import State
from memqos.numa.topology import Misconfigured, Topology, configure, decide
from memqos.release import Release

Seen = dict[str, Any]


def topology_merge(case: Case) -> Seen:
    """Hints of several providers, merged under a policy."""
    options = {name: str(value).lower() for name, value in case["policy_options"].items()}
    topology = configure(
        case["policy"], "container", options, case["numa_nodes"], case["numa_distances"]
    )
    assert isinstance(topology, Topology)
    answers = case["hints"].items()
    decision = decide(topology, [Provider(name, _answer(answer)) for name, answer in answers])
    return {"hint": _hint(decision.hint), "admit": decision.admit}


def topology_config(case: Case) -> Seen:
    """The Topology Manager's settings on a machine."""
    topology = configure(
        case["policy"],
        case["scope"],
        case["policy_options"],
        case["numa_nodes"],
        case["numa_distances"],
    )
    if isinstance(topology, Misconfigured):
        return {"kind": topology.kind, "valid": False}
    return {
        "kind": "ok",
        "valid": True,
        "effective_policy": topology.policy,
        "effective_scope": topology.scope,
    }


def memory_manager(case: Case) -> Seen:
    """A kubelet's life, step by step."""
    manager = start(_settings(case))
    assert isinstance(manager, Manager)
    seen: Seen = {
        "initial": {
            "allocatable": _blocks(allocatable_blocks(manager.state.nodes)),
            "machine_state": _nodes(manager.state.nodes),
        },
        "steps": [],
    }
    for step in case["steps"]:
        after, said = _step(manager, case, step)
        seen["steps"].append({"op": step["op"]} | said | _situation(after))
        if after is None:
            break
        manager = after
    return seen


def reserved_memory(case: Case) -> Seen:
    """Reservations against a machine and what must be reserved."""
    reservations = _reservations(case["reserved_memory"])
    required = {
        name: Quantity.parse(raw) for name, raw in case["node_allocatable_reservation"].items()
    }
    reserved = system_reserved(case["numa_nodes"], reservations, required)
    refused = isinstance(reserved, Unreservable)
    kind = reserved.kind if isinstance(reserved, Unreservable) else "ok"
    return {
        "config_validation": list(config_faults(reservations)),
        "kind": kind,
        "valid": not refused,
        "none_manager": "ok",
        "static_manager": kind
        if isinstance(reserved, Unreservable)
        else "no_system_reserved_memory"
        if is_empty(reserved)
        else "ok",
        "system_reserved": None
        if isinstance(reserved, Unreservable)
        else {str(node): sizes for node, sizes in reserved.items()},
    }


def memory_state_checkpoint(case: Case) -> Seen:
    """A state file: what it is, and whether a kubelet starts over it."""
    if case["file"] is None:
        begun = start(_settings(case))
        return _load(State(case["policy"]), "created") | {"manager_start": _started(begun)}
    sums = _checksums(case["file"])
    loaded = read(case["file"])
    if isinstance(loaded, Unreadable):
        return sums | {"load": loaded.kind, "manager_start": loaded.kind}
    begun = start(_settings(case), loaded.state)
    if loaded.state.policy != case["policy"]:
        return sums | {"load": "state_policy_mismatch", "manager_start": _started(begun)}
    state = loaded.state
    if not _release(case).enabled("PodLevelResourceManagers"):
        state = msgspec.structs.replace(state, pools={})
    return sums | _load(state, loaded.version) | {"manager_start": _started(begun)}


def _settings(case: Case, changed: Mapping[str, Any] | None = None) -> Settings:
    case = {**case, **(changed or {})}
    machine = _machine(case["machine"])
    ids = [numa.id for numa in machine]
    reservations = _reservations(case["reserved_memory"])
    topology = case.get("topology", {"policy": "none", "scope": "container"})
    configured = configure(topology["policy"], topology["scope"], {}, ids, None)
    assert isinstance(configured, Topology)
    return Settings(
        machine=machine,
        policy=case["policy"],
        topology=configured,
        release=_release(case),
        reserved=system_reserved(ids, reservations, reserved_in(reservations)),
        as_kubelet=True,
    )


def _step(manager: Manager, case: Case, step: Mapping[str, Any]) -> tuple[Manager | None, Seen]:
    if step["op"] == "admit":
        pod = msgspec.convert(step["pod"], Pod)
        extra = step.get("extra_hints")
        others = () if extra is None else (Provider("extra", _answer(extra)),)
        manager, outcome = manager.admit(pod, operation=step.get("operation", "add"), others=others)
        return manager, _admission(manager, pod, outcome)
    if step["op"] == "restart":
        begun = manager.restart(_settings(case, step))
        said = {"started": isinstance(begun, Manager), "error_kind": _started(begun)}
        return (begun if isinstance(begun, Manager) else None), said
    if step["op"] == "delete_pod":
        return manager.delete(step["pod_uid"]), {}
    act = manager.start if step["op"] == "start" else manager.remove
    return act(step["pod_uid"], step["container"]), {}


def _admission(manager: Manager, pod: Pod, outcome: Outcome) -> Seen:
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    uid = pod.metadata.uid or ""
    return {
        "admitted": isinstance(outcome, Admitted),
        "reason": "" if isinstance(outcome, Admitted) else outcome.reason,
        "hints": [
            {
                "container": call.container,
                "resources": _answered(
                    next(p.answer for p in call.providers if p.name == MEMORY_MANAGER)
                ),
            }
            for call in outcome.calls
        ],
        "affinity": {c.name: _hint(manager.hint_of(uid, c.name)) for c in containers},
    }


def _situation(manager: Manager | None) -> Seen:
    if manager is None:
        return _holdings(State("")) | {"cpuset_mems": {}}
    return _holdings(manager.state) | {
        "cpuset_mems": {
            uid: {
                c.name: ",".join(map(str, manager.pinned_nodes(uid, c.name)))
                for c in wants.containers
            }
            for uid, wants in manager.active.items()
        }
    }


def _holdings(state: State) -> Seen:
    return {
        "assignments": {
            uid: {name: _blocks(blocks) for name, blocks in containers.items()}
            for uid, containers in state.assignments.items()
        },
        "pod_assignments": {uid: _blocks(blocks) for uid, blocks in state.pools.items()},
        "machine_state": _nodes(state.nodes),
    }


def _load(state: State, version: str) -> Seen:
    return {"load": "ok", "loaded_as": version} | _holdings(state)


def _started(begun: Manager | StartRefused) -> str:
    return begun.kind if isinstance(begun, StartRefused) else "ok"


def _checksums(text: str) -> Seen:
    found = contents(text)
    if isinstance(found, Unreadable):
        return {}
    sums = {"computed_legacy_checksum": fnv1a32(found.v1_text)}
    if found.is_v3:
        return sums | {
            "computed_data_checksum": fnv1a32(found.data_text),
            "legacy_hash_input": found.v1_text,
        }
    return sums | {
        "computed_v2_checksum": fnv1a32(found.v2_text),
        "v2_hash_input": found.v2_text,
    }


def _release(case: Case) -> Release:
    return Release.of("1.38", case.get("feature_gates") or {})


def _machine(machine: Mapping[str, Any]) -> Machine:
    return tuple(
        [
            NumaMemory(
                numa["id"],
                numa["memory"],
                {
                    HUGEPAGES + size: pages * (hugepage_size(HUGEPAGES + size) or 0)
                    for size, pages in numa["hugepages"].items()
                },
            )
            for numa in machine["numa"]
        ]
    )


def _reservations(entries: Iterable[Mapping[str, Any]]) -> tuple[Reservation, ...]:
    return tuple([Reservation(entry["numa_node"], entry["limits"]) for entry in entries])


def _answer(answer: Mapping[str, Any] | None) -> Answer:
    if answer is None:
        return None
    return {
        resource: None
        if hints is None
        else tuple(
            [
                Hint(None if hint["nodes"] is None else mask_of(hint["nodes"]), hint["preferred"])
                for hint in hints
            ]
        )
        for resource, hints in answer.items()
    }


def _answered(answer: Answer) -> Seen | None:
    if answer is None:
        return None
    return {
        resource: None if hints is None else [_hint(hint) for hint in _listed(hints)]
        for resource, hints in answer.items()
    }


def _listed(hints: Hints | Offer) -> Iterable[Hint]:
    return hints_of(hints) if isinstance(hints, Offer) else hints


def _hint(hint: Hint) -> Seen:
    nodes = None if hint.mask is None else list(nodes_of(hint.mask))
    return {"nodes": nodes, "preferred": hint.preferred}


def _blocks(blocks: Blocks) -> list[Seen]:
    ordered = sorted(blocks, key=lambda block: (block.nodes, block.type))
    return [
        {"numa_affinity": list(block.nodes), "type": block.type, "size": block.size}
        for block in ordered
    ]


def _nodes(nodes: NodeMap) -> Seen:
    return {
        str(i): {
            "cells": list(node.cells),
            "number_of_assignments": node.assignments,
            "memory": {
                name: {
                    "total": table.total,
                    "system_reserved": table.system_reserved,
                    "allocatable": table.allocatable,
                    "reserved": table.reserved,
                    "free": table.free,
                }
                for name, table in node.memory.items()
            },
        }
        for i, node in nodes.items()
    }
