"""Replays recorded NUMA decisions: merges, runs of a kubelet, reservations and state files."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from memqos.cli.replay.pods import ReplayCase
from memqos.kube.kubelet import MemoryReservation
from memqos.kube.kubelet.validation import reserved_memory_faults
from memqos.kube.pod import Pod
from memqos.kube.quantity import Quantity
from memqos.kube.resources import HUGEPAGES, hugepage_size
from memqos.numa.admission import MEMORY_MANAGER, AdmissionOutcome, AdmittedPod
from memqos.numa.checkpoint import UnreadableCheckpoint, decode_checkpoint, fnv1a32, read_checkpoint
from memqos.numa.hints import Hint, HintProvider, Hints, HintSet, ProviderHints, iterate_hints
from memqos.numa.machine_state import (
    MachineMemory,
    MemoryBlock,
    MemoryBlocks,
    MemoryManagerState,
    NumaMemory,
    NumaNodeMap,
)
from memqos.numa.manager import Manager, ManagerSettings, StartRefused, start_manager
from memqos.numa.masks import mask_of, nodes_of
from memqos.numa.reserved_memory import (
    InvalidReservation,
    NumaReservation,
    reservation_totals,
    reserves_no_memory,
    system_reserved,
)
from memqos.numa.topology_manager import (
    InvalidTopology,
    TopologySettings,
    configure_topology,
    decide_affinity,
)
from memqos.release import Release

_Actual = dict[str, Any]


def replay_topology_merge(case: ReplayCase) -> _Actual:
    """Hints of several providers, merged by a policy."""
    topology = configure_topology(
        case["policy"],
        "container",
        _option_texts(case["policy_options"]),
        case["numa_nodes"],
        case["numa_distances"],
    )
    assert isinstance(topology, TopologySettings)
    answers = case["hints"].items()
    decision = decide_affinity(
        topology, [HintProvider(name, _hints_from(answer)) for name, answer in answers]
    )
    return {"hint": _hint_data(decision.hint), "admit": decision.admit}


def replay_topology_config(case: ReplayCase) -> _Actual:
    """The Topology Manager's settings on a machine."""
    topology = configure_topology(
        case["policy"],
        case["scope"],
        case["policy_options"],
        case["numa_nodes"],
        case["numa_distances"],
    )
    if isinstance(topology, InvalidTopology):
        return {"kind": topology.kind, "valid": False}
    return {
        "kind": "ok",
        "valid": True,
        "effective_policy": topology.policy,
        "effective_scope": topology.scope,
    }


def replay_memory_manager(case: ReplayCase) -> _Actual:
    """A kubelet's Memory Manager, step by step."""
    manager = start_manager(_settings(case))
    assert isinstance(manager, Manager)
    actual: _Actual = {
        "initial": {
            "allocatable": _blocks_data(_allocatable_blocks(manager.state.nodes)),
            "machine_state": _nodes_data(manager.state.nodes),
        },
        "steps": [],
    }
    for step in case["steps"]:
        if step["op"] == "restart":
            # What a restart changes stays so for the restarts after it.
            case = {**case, **step}
        after, answer = _step(manager, case, step)
        actual["steps"].append({"op": step["op"]} | answer | _manager_data(after))
        if after is None:
            break
        manager = after
    return actual


def _allocatable_blocks(nodes: NumaNodeMap) -> MemoryBlocks:
    """The allocatable memory of each node, as the kubelet reports it to monitoring."""
    return tuple(
        [
            MemoryBlock(name, (node,), table.allocatable)
            for node, of_node in sorted(nodes.items())
            for name, table in sorted(of_node.memory.items())
            if table.allocatable
        ]
    )


def replay_reserved_memory(case: ReplayCase) -> _Actual:
    """Reservations against a machine and what must be reserved."""
    reservations = _reservations(case["reserved_memory"])
    configured = [MemoryReservation(each.numa_node, each.limits) for each in reservations]
    required = {
        name: Quantity.parse(raw) for name, raw in case["node_allocatable_reservation"].items()
    }
    reserved = system_reserved(case["numa_nodes"], reservations, required)
    refused = isinstance(reserved, InvalidReservation)
    kind = reserved.kind if isinstance(reserved, InvalidReservation) else "ok"
    return {
        "config_validation": sorted({fault for fault, _ in reserved_memory_faults(configured)}),
        "kind": kind,
        "valid": not refused,
        "none_manager": "ok",
        "static_manager": kind
        if isinstance(reserved, InvalidReservation)
        else "no_system_reserved_memory"
        if reserves_no_memory(reserved)
        else "ok",
        "system_reserved": None
        if isinstance(reserved, InvalidReservation)
        else {str(node): sizes for node, sizes in reserved.items()},
    }


def replay_memory_state_checkpoint(case: ReplayCase) -> _Actual:
    """A state file: how it is read, and whether a kubelet starts with it."""
    if case["file"] is None:
        started = start_manager(_settings(case))
        return _loaded_data(MemoryManagerState(case["policy"]), "created") | {
            "manager_start": _start_kind(started)
        }
    sums = _checksums(case["file"])
    loaded = read_checkpoint(case["file"])
    if isinstance(loaded, UnreadableCheckpoint):
        return sums | {"load": loaded.kind, "manager_start": loaded.kind}
    started = start_manager(_settings(case), loaded.state)
    if loaded.state.policy != case["policy"]:
        return sums | {"load": "state_policy_mismatch", "manager_start": _start_kind(started)}
    state = loaded.state
    if not _release(case).is_enabled("PodLevelResourceManagers"):
        state = msgspec.structs.replace(state, pools={})
    return sums | _loaded_data(state, loaded.version) | {"manager_start": _start_kind(started)}


def _settings(case: ReplayCase) -> ManagerSettings:
    machine = _machine(case["machine"])
    ids = [numa.id for numa in machine]
    reservations = _reservations(case["reserved_memory"])
    topology = case.get("topology", {"policy": "none", "scope": "container"})
    distances = [numa["distances"] for numa in case["machine"]["numa"] if "distances" in numa]
    configured = configure_topology(
        topology["policy"],
        topology["scope"],
        _option_texts(topology.get("policy_options") or {}),
        ids,
        distances or None,
    )
    assert isinstance(configured, TopologySettings)
    return ManagerSettings(
        machine=machine,
        policy=case["policy"],
        topology=configured,
        release=_release(case),
        reserved=system_reserved(ids, reservations, reservation_totals(reservations)),
        as_kubelet=True,
    )


def _option_texts(options: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).lower() for name, value in options.items()}


def _step(
    manager: Manager, case: ReplayCase, step: Mapping[str, Any]
) -> tuple[Manager | None, _Actual]:
    if step["op"] == "admit":
        pod = msgspec.convert(step["pod"], Pod)
        extra = step.get("extra_hints")
        others = () if extra is None else (HintProvider("extra", _hints_from(extra)),)
        manager, outcome = manager.admit(
            pod, operation=step.get("operation", "add"), other_providers=others
        )
        return manager, _admission(manager, pod, outcome)
    if step["op"] == "restart":
        restarted = manager.restart(_settings(case))
        answer = {
            "started": isinstance(restarted, Manager),
            "error_kind": _start_kind(restarted),
        }
        return (restarted if isinstance(restarted, Manager) else None), answer
    if step["op"] == "delete_pod":
        return manager.delete_pod(step["pod_uid"]), {}
    change = manager.start_container if step["op"] == "start" else manager.remove_container
    return change(step["pod_uid"], step["container"]), {}


def _admission(manager: Manager, pod: Pod, outcome: AdmissionOutcome) -> _Actual:
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    uid = pod.metadata.uid or ""
    return {
        "admitted": isinstance(outcome, AdmittedPod),
        "reason": "" if isinstance(outcome, AdmittedPod) else outcome.reason,
        "hints": [
            {
                "container": call.container,
                "resources": _hints_data(
                    next(p.hints for p in call.providers if p.name == MEMORY_MANAGER)
                ),
            }
            for call in outcome.calls
        ],
        "affinity": {c.name: _hint_data(manager.get_affinity(uid, c.name)) for c in containers},
    }


def _manager_data(manager: Manager | None) -> _Actual:
    if manager is None:
        return _assignments_data(MemoryManagerState("")) | {"cpuset_mems": {}}
    return _assignments_data(manager.state) | {
        "cpuset_mems": {
            uid: {
                c.name: ",".join(map(str, manager.cpuset_nodes(uid, c.name)))
                for c in pod.containers
            }
            for uid, pod in manager.active.items()
        }
    }


def _assignments_data(state: MemoryManagerState) -> _Actual:
    return {
        "assignments": {
            uid: {name: _blocks_data(blocks) for name, blocks in containers.items()}
            for uid, containers in state.assignments.items()
        },
        "pod_assignments": {uid: _blocks_data(blocks) for uid, blocks in state.pools.items()},
        "machine_state": _nodes_data(state.nodes),
    }


def _loaded_data(state: MemoryManagerState, version: str) -> _Actual:
    return {"load": "ok", "loaded_as": version} | _assignments_data(state)


def _start_kind(started: Manager | StartRefused) -> str:
    return started.kind if isinstance(started, StartRefused) else "ok"


def _checksums(text: str) -> _Actual:
    found = decode_checkpoint(text)
    if isinstance(found, UnreadableCheckpoint):
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


def _release(case: ReplayCase) -> Release:
    return Release.of("1.38", case.get("feature_gates") or {})


def _machine(machine: Mapping[str, Any]) -> MachineMemory:
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


def _reservations(entries: Iterable[Mapping[str, Any]]) -> tuple[NumaReservation, ...]:
    return tuple([NumaReservation(entry["numa_node"], entry["limits"] or {}) for entry in entries])


def _hints_from(answer: Mapping[str, Any] | None) -> ProviderHints:
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


def _hints_data(answer: ProviderHints) -> _Actual | None:
    if answer is None:
        return None
    return {
        resource: None if hints is None else [_hint_data(hint) for hint in _all_hints(hints)]
        for resource, hints in answer.items()
    }


def _all_hints(hints: Hints | HintSet) -> Iterable[Hint]:
    return iterate_hints(hints) if isinstance(hints, HintSet) else hints


def _hint_data(hint: Hint) -> _Actual:
    nodes = None if hint.mask is None else list(nodes_of(hint.mask))
    return {"nodes": nodes, "preferred": hint.preferred}


def _blocks_data(blocks: MemoryBlocks) -> list[_Actual]:
    ordered = sorted(blocks, key=lambda block: (block.nodes, block.type))
    return [
        {"numa_affinity": list(block.nodes), "type": block.type, "size": block.size}
        for block in ordered
    ]


def _nodes_data(nodes: NumaNodeMap) -> _Actual:
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
