"""Containers are bound to the NUMA nodes that the kubelet, or memqos itself, has assigned."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from tests.builders import Json, box, stanza
from tests.fakes.numa import MEMS, POOLS, Site, changes, full

from memqos.converge.node_plan import PlanOptions, plan_observation
from memqos.converge.observation import ObservedNode, observe_snapshot
from memqos.errors import InputError
from memqos.manifests.snapshot import read_snapshot
from memqos.settings.settings import Numa

NODES: Final = Path(__file__).parents[1] / "nodes"


def recorded() -> Json:
    node: Json = json.loads((NODES / "numa.json").read_text())
    return node


def observed(node: Json) -> ObservedNode:
    return observe_snapshot(read_snapshot(json.dumps(node).encode(), "node"), "node")


def bound_in(node: Json) -> list[str]:
    return [path for path, files in node["cgroups"].items() if files.get(MEMS, "").strip()]


def without_memory_manager(node: Json) -> Json:
    """The same node, had its kubelet no Memory Manager."""
    node["memory_manager_state"] = '{"policyName":"None","machineState":{},"checksum":0}'
    text = node["kubelet_configuration"]
    node["kubelet_configuration"] = text.replace("Policy: Static", "Policy: None")
    return node


class TestTheRecordedNode:
    def test_is_converged_with_its_own_state(self) -> None:
        plan = plan_observation(observed(recorded()), PlanOptions(numa="state"))
        assert plan.comparison.changes == ()
        assert plan.notes == ()
        planned = {
            path
            for path, cgroup in plan.tree.cgroups.items()
            if MEMS in cgroup.settings and cgroup.settings[MEMS].value
        }
        assert planned == set(bound_in(recorded()))

    def test_shows_exactly_the_container_that_is_bound_otherwise(self) -> None:
        node = recorded()
        for path in bound_in(node):
            for wrong, kind in (("1", "~"), ("0-1", "~"), ("", "+")):
                node["cgroups"][path][MEMS] = wrong
                (change,) = plan_observation(
                    observed(node), PlanOptions(numa="state")
                ).comparison.changes
                assert (change.path, change.new, change.kind) == (path, "0", kind)
                assert change.setting.because.rule == "numa/kubelet"
            node["cgroups"][path][MEMS] = "0"

    def test_sets_free_what_the_kubelet_would_not_bind(self) -> None:
        node = recorded()
        path = "/kubepods/burstable/pod568fb4db-df45-acdf-1e62-150d7d3650f7/"
        (path,) = [
            each
            for each in node["cgroups"]
            if each.startswith(path) and node["cgroups"][each]["memory.low"].strip() != "0"
        ]
        node["cgroups"][path][MEMS] = "1\n"
        (change,) = plan_observation(observed(node), PlanOptions(numa="state")).comparison.changes
        assert (change.path, change.old, change.new, change.kind) == (path, "1", "", "-")
        assert change.setting.because.rule == "numa/unassigned"

    def test_is_not_asked_about_numa_by_itself(self) -> None:
        node = recorded()
        for path in bound_in(node):
            node["cgroups"][path][MEMS] = "1"
        assert plan_observation(observed(node), PlanOptions()).comparison.changes == ()

    def test_is_allocated_by_memqos_as_its_kubelet_did(self) -> None:
        node = without_memory_manager(recorded())
        bound = bound_in(node)
        for path in bound:
            node["cgroups"][path][MEMS] = ""
        plan = plan_observation(observed(node), PlanOptions(numa="allocate"))
        assert changes(plan) == dict.fromkeys(bound, "0")
        assert {change.setting.because.rule for change in plan.comparison.changes} == {
            "numa/memqos"
        }

    def test_keeps_what_it_has_when_memqos_takes_over(self) -> None:
        node = without_memory_manager(recorded())
        assert (
            plan_observation(observed(node), PlanOptions(numa="allocate")).comparison.changes == ()
        )

    def test_is_left_to_a_kubelet_that_assigns_memory_itself(self) -> None:
        with pytest.raises(InputError, match=r"assigns NUMA memory itself.*--numa state"):
            plan_observation(observed(recorded()), PlanOptions(numa="allocate"))


class TestTheStateOfAKubelet:
    def test_has_to_be_there(self) -> None:
        node = recorded()
        node["memory_manager_state"] = ""
        with pytest.raises(InputError, match="no memory_manager_state is known"):
            plan_observation(observed(node), PlanOptions(numa="state"))

    @pytest.mark.parametrize("numa", ["state", "allocate"])
    def test_has_to_be_sound(self, numa: Numa) -> None:
        node = recorded()
        node["memory_manager_state"] = node["memory_manager_state"][:-40]
        with pytest.raises(InputError, match=r"not a state file.*checkpoint verify"):
            plan_observation(observed(node), PlanOptions(numa=numa))

    def test_of_a_kubelet_without_memory_manager_binds_and_frees_nobody(self) -> None:
        node = recorded()
        node["memory_manager_state"] = '{"policyName":"None","machineState":{},"checksum":0}'
        plan = plan_observation(observed(node), PlanOptions(numa="state"))
        assert plan.comparison.changes == ()
        assert "the kubelet's policy is None" in plan.notes[-1]

    def test_that_does_not_know_a_container_leaves_it_alone(self) -> None:
        site = Site()
        site.runs("late", full("2Gi"), mems={"c0": "1"})
        site.state = recorded()["memory_manager_state"]
        plan = site.plan("state")
        assert plan.comparison.changes == ()
        assert plan.notes[-1] == (
            "Guaranteed, but not in the memory_manager_state, so not changed: default/late c0"
        )


class TestMemqossOwnAllocation:
    def test_fills_the_nodes_in_turn_and_stays_as_it_is(self) -> None:
        site = Site()
        for name in ("a", "b", "c"):
            site.runs(name, full("6Gi"))
        plan = site.plan()
        assert site.bound(plan) == {"ac0": "0", "bc0": "1"}
        (note,) = plan.notes
        assert note.startswith("default/c: not changed: container c0 requests memory 6Gi; no nodes")
        site.write(plan)
        assert site.plan().comparison.changes == ()

    def test_leaves_a_container_where_it_is(self) -> None:
        site = Site()
        site.runs("old", full("2Gi"))
        site.runs("new", full("2Gi"), mems={"c0": "1"})
        assert site.bound(site.plan()) == {"oldc0": "0", "newc0": "1"}

    def test_moves_who_has_no_room_where_he_is(self) -> None:
        site = Site()
        site.runs("a", full("6Gi"), mems={"c0": "1"})
        site.runs("b", full("6Gi"), mems={"c0": "1"})
        assert site.bound(site.plan()) == {"ac0": "1", "bc0": "0"}

    def test_narrows_what_is_bound_to_more_nodes_than_the_policy_allows(self) -> None:
        site = Site()
        site.runs("a", full("6Gi"), mems={"c0": "0-1"})
        assert site.bound(site.plan()) == {"ac0": "0"}
        lax = Site(topologyManagerPolicy="best-effort")
        lax.runs("a", full("6Gi"), mems={"c0": "0-1"})
        assert lax.bound(lax.plan()) == {"ac0": "0-1"}

    def test_brings_a_restarted_container_to_the_others_of_its_pod(self) -> None:
        site = Site(topologyManagerScope="pod")
        site.runs("a", full("2Gi"), full("2Gi"), mems={"c0": "1"})
        assert site.bound(site.plan()) == {"ac0": "1", "ac1": "1"}

    @pytest.mark.parametrize(
        ("policy", "bound"),
        [
            ("single-numa-node", {"ac0": "0", "bc0": "1"}),
            ("none", {"ac0": "0", "bc0": "1", "cc0": "0", "cc1": "1"}),
        ],
    )
    def test_does_not_spread_a_pod_that_has_to_be_together(
        self, policy: str, bound: dict[str, str]
    ) -> None:
        site = Site(topologyManagerScope="pod", topologyManagerPolicy=policy)
        site.runs("a", full("5Gi"))
        site.runs("b", full("5Gi"), mems={"c0": "1"})
        site.runs("c", full("4Gi"), full("4Gi"))
        plan = site.plan()
        assert site.bound(plan) == bound
        site.write(plan)
        assert site.plan().comparison.changes == ()

    def test_brings_a_spread_pod_together(self) -> None:
        site = Site(topologyManagerScope="pod", topologyManagerPolicy="single-numa-node")
        site.runs("a", full("4Gi"), full("4Gi"), mems={"c0": "0", "c1": "1"})
        assert site.bound(site.plan()) == {"ac0": "0", "ac1": "0"}

    def test_does_not_keep_memory_for_init_containers_that_are_done(self) -> None:
        site = Site(nodes=1)
        site.runs("a", full("2Gi"), init=(full("9Gi"),))
        site.runs("b", full("6Gi"), init=(full("9Gi"),))
        assert site.bound(site.plan()) == {"ac0": "0", "bc0": "0"}

    def test_takes_who_is_bound_to_all_nodes_for_free(self) -> None:
        site = Site()
        site.runs("burst", box("1Gi", "2Gi"), mems={"c0": "0-1"})
        site.cgroups = {
            path.replace("/kubepods/podburst", "/kubepods/burstable/podburst"): files
            for path, files in site.cgroups.items()
        }
        assert site.plan().comparison.changes == ()

    def test_keeps_what_crun_has_bound_within_its_scope(self) -> None:
        site = Site(cgroupDriver="systemd")
        site.runs("a", full("2Gi"))
        pod = "/kubepods.slice/kubepods-poda.slice"
        scope = f"{pod}/cri-containerd-ac0.scope"
        site.cgroups = {
            "/kubepods.slice": {MEMS: ""},
            pod: {MEMS: ""},
            scope: {MEMS: ""},
            f"{scope}/container": {MEMS: "1"},
        }
        assert changes(site.plan()) == {}

    def test_sets_others_than_guaranteed_pods_free(self) -> None:
        site = Site()
        site.runs("burst", box("1Gi", "2Gi"), mems={"c0": "1"})
        site.cgroups = {
            path.replace("/kubepods/podburst", "/kubepods/burstable/podburst"): files
            for path, files in site.cgroups.items()
        }
        assert site.bound(site.plan()) == {}

    def test_counts_a_pool_once_however_often_it_looks(self) -> None:
        site = Site(nodes=1, topologyManagerScope="pod")
        whole = stanza("4Gi", "4Gi", cpu=("2", "2"))
        site.runs("a", full("1Gi"), box(), resources=whole)
        plan = site.plan(gates=POOLS)
        assert site.bound(plan) == {"ac0": "0", "ac1": "0"}
        site.write(plan)
        # 9 Gi can be held: counted twice, the pool would leave no room.
        site.runs("b", full("5Gi"))
        plan = site.plan(gates=POOLS)
        assert (site.bound(plan)["bc0"], plan.notes) == ("0", ())
        site.write(plan)
        assert site.plan(gates=POOLS).comparison.changes == ()

    def test_uses_only_nodes_that_pods_may_use(self) -> None:
        site = Site(reservedMemory=[{"numaNode": 1, "limits": {"memory": "1Gi"}}])
        site.cgroups["/kubepods"][MEMS] = "1"
        site.runs("a", full("6Gi"))
        site.runs("b", full("6Gi"))
        plan = site.plan()
        assert site.bound(plan) == {"kubepods": "1", "ac0": "1"}
        assert "default/b: not changed" in plan.notes[0]

    def test_splits_evenly_what_nobody_said_how_to_reserve(self) -> None:
        site = Site(reservedMemory=[])
        site.runs("a", full("9728Mi"))
        site.runs("b", full("9728Mi"))
        assert site.bound(site.plan()) == {"ac0": "0", "bc0": "1"}

    def test_is_not_bound_by_the_kubelets_number_of_nodes(self) -> None:
        site = Site(nodes=64)
        site.runs("a", full("600Gi"))
        assert site.bound(site.plan()) == {"ac0": "1-60"}

    @pytest.mark.parametrize(
        ("config", "words"),
        [
            ({"reservedMemory": [{"numaNode": 7, "limits": {"memory": "1Gi"}}]}, "no node 7"),
            ({"topologyManagerPolicyOptions": {"prefer-far-ones": "true"}}, "no such option"),
        ],
    )
    def test_says_what_keeps_it_from_choosing(self, config: Json, words: str) -> None:
        with pytest.raises(InputError, match=words):
            Site(**config).plan()

    def test_needs_a_machine_whose_nodes_are_known(self) -> None:
        with pytest.raises(InputError, match="no NUMA node is known"):
            Site(nodes=0).plan()


class TestACgroupAbove:
    def test_that_does_not_have_the_node_is_named(self) -> None:
        node = recorded()
        node["cgroups"]["/kubepods"][MEMS] = "1\n"
        plan = plan_observation(observed(node), PlanOptions(numa="state"))
        assert plan.comparison.changes == ()
        assert (
            "default/p1-node1 c0: belongs on node 0, but /kubepods is bound to node 1: not changed"
        ) in plan.notes

    def test_of_a_machine_without_the_node_is_the_machine(self) -> None:
        node = recorded()
        del node["numa"]["node0"]
        notes = plan_observation(observed(node), PlanOptions(numa="state")).notes
        assert any("belongs on node 0, but the machine has node 1" in note for note in notes)

    def test_that_does_not_pass_cpusets_on_is_reported(self) -> None:
        site = Site()
        site.runs("a", full("2Gi"))
        del site.cgroups["/kubepods/poda/ac0"][MEMS]
        assert site.plan().notes == (
            "no container has a cpuset.mems: the cpuset controller is not enabled for them",
        )


def pod_level(**config: Any) -> Site:
    site = Site(**config)
    site.runs("whole", box(), resources=stanza("4Gi", "4Gi", cpu=("2", "2")))
    return site


class TestAPodWithPodLevelResources:
    def test_is_told_that_it_is_not_aligned(self) -> None:
        assert pod_level(memoryManagerPolicy="Static").plan("off").unaligned == ("default/whole",)
        assert pod_level().plan("allocate").unaligned == ("default/whole",)

    def test_is_told_nothing_where_no_memory_is_aligned_or_the_pod_is(self) -> None:
        assert pod_level().plan("off").unaligned == ()
        aligned = pod_level(memoryManagerPolicy="Static", topologyManagerScope="pod")
        assert aligned.plan("allocate", POOLS).unaligned == ()
