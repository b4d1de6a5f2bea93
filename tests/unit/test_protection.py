"""memory.min and memory.low of containers and pods: who is protected, and how."""

from typing import Any

import pytest
from tests.builders import (
    GI,
    MI,
    Json,
    box,
    node_settings,
    of_containers,
    planned,
    pod,
    stanza,
    written,
)

from memqos.kube.shape import shape_of
from memqos.plan.pod import plan_pod
from memqos.plan.setting import FileValue
from memqos.settings.settings import Policy, Settings

BEFORE_POLICIES = [f"1.{minor}" for minor in range(22, 36)]
WITH_POLICIES = ["1.36", "1.37", "1.38"]
POLICIES: list[Policy] = ["None", "TieredReservation", "HardReservation"]

GUARANTEED = box("1Gi", "1Gi", cpu=("1", "1"))
BURSTABLE = box("1Gi", "2Gi")
FILES = ("memory.min", "memory.low")


def protection_of(container: Json, at: Settings) -> tuple[Json, Json]:
    """What a pod's cgroup and its only container's are written."""
    plan = planned(pod([container]), at)
    pod_files, container_files = written(plan.settings), written(plan.containers[0].settings)
    return (
        {name: value for name, value in pod_files.items() if name in FILES},
        {name: value for name, value in container_files.items() if name in FILES},
    )


class TestBeforePolicies:
    @pytest.mark.parametrize("release", BEFORE_POLICIES)
    @pytest.mark.parametrize("container", [GUARANTEED, BURSTABLE], ids=["Guaranteed", "Burstable"])
    def test_whatever_is_requested_is_never_reclaimed(self, release: str, container: Json) -> None:
        protected = {"memory.min": GI}
        assert protection_of(container, node_settings(release)) == (protected, protected)

    @pytest.mark.parametrize("release", BEFORE_POLICIES)
    @pytest.mark.parametrize("container", [GUARANTEED, BURSTABLE, box()])
    def test_a_policy_changes_nothing(self, release: str, container: Json) -> None:
        found = [
            planned(pod([container]), node_settings(release, policy=policy)) for policy in POLICIES
        ]
        assert found[0] == found[1] == found[2]

    @pytest.mark.parametrize("release", BEFORE_POLICIES)
    def test_nothing_is_written_where_nothing_is_requested(self, release: str) -> None:
        assert protection_of(box(), node_settings(release)) == ({}, {})
        assert protection_of(box(cpu=("1", None)), node_settings(release)) == ({}, {})


class TestNone:
    @pytest.mark.parametrize("release", WITH_POLICIES)
    @pytest.mark.parametrize("container", [GUARANTEED, BURSTABLE, box()])
    def test_policy_none_protects_nobody(self, release: str, container: Json) -> None:
        of_pod, of_container = protection_of(container, node_settings(release))
        assert of_pod == {}
        assert of_container == {"memory.min": 0, "memory.low": 0}

    def test_what_containers_may_have_had_is_taken_back(self) -> None:
        settings = planned(pod([BURSTABLE]), node_settings()).containers[0].settings
        assert settings["memory.min"].rule.resets
        assert settings["memory.low"].rule.resets


class TestTiered:
    @pytest.mark.parametrize("release", WITH_POLICIES)
    def test_a_guaranteed_pod_is_protected_with_min(self, release: str) -> None:
        protected = {"memory.min": GI}
        at = node_settings(release, policy="TieredReservation")
        assert protection_of(GUARANTEED, at) == (protected, protected)

    @pytest.mark.parametrize("release", WITH_POLICIES)
    def test_a_burstable_pod_is_protected_with_low(self, release: str) -> None:
        protected = {"memory.low": GI}
        at = node_settings(release, policy="TieredReservation")
        assert protection_of(BURSTABLE, at) == (protected, protected)

    @pytest.mark.parametrize("release", WITH_POLICIES)
    @pytest.mark.parametrize("container", [box(), box(cpu=("1", None)), box("0", "1Gi")])
    def test_a_container_that_requests_nothing_is_reset(
        self, release: str, container: Json
    ) -> None:
        at = node_settings(release, policy="TieredReservation")
        assert protection_of(container, at) == ({}, {"memory.min": 0, "memory.low": 0})

    def test_the_class_of_the_pod_decides_for_every_container(self) -> None:
        mixed = pod([GUARANTEED, BURSTABLE, box()])
        plan = planned(mixed, node_settings(policy="TieredReservation"))
        assert of_containers(plan, "memory.min") == [None, None, 0]
        assert of_containers(plan, "memory.low") == [GI, GI, 0]

    def test_the_stored_class_decides_even_where_requests_give_another(self) -> None:
        kept = pod([BURSTABLE], qos_class="Guaranteed")
        plan = planned(kept, node_settings(policy="TieredReservation"))
        assert plan.settings["memory.min"].value == GI
        assert of_containers(plan, "memory.min") == [GI]

    def test_a_stored_pod_that_is_best_effort_by_its_pod_level_is_protected_with_low(self) -> None:
        """Pod-level hugepages alone make it BestEffort, though a container requests memory."""
        huge = {"hugepages-2Mi": "4Mi"}
        odd = pod([box("1Gi")], resources=stanza(requests=huge, limits=huge))
        at = node_settings(policy="TieredReservation")
        plan = plan_pod(shape_of(odd, at.release), at, "BestEffort")
        assert plan.settings["memory.low"].value == GI
        assert of_containers(plan, "memory.low") == [GI]


class TestHard:
    @pytest.mark.parametrize("release", WITH_POLICIES)
    @pytest.mark.parametrize("container", [GUARANTEED, BURSTABLE], ids=["Guaranteed", "Burstable"])
    def test_every_request_is_protected_with_min(self, release: str, container: Json) -> None:
        protected = {"memory.min": GI}
        at = node_settings(release, policy="HardReservation")
        assert protection_of(container, at) == (protected, protected)

    @pytest.mark.parametrize("release", WITH_POLICIES)
    def test_a_container_that_requests_nothing_is_reset(self, release: str) -> None:
        at = node_settings(release, policy="HardReservation")
        assert protection_of(box(), at) == ({}, {"memory.min": 0, "memory.low": 0})


class TestWhatAPodRequests:
    """The pod's cgroup holds the request of the pod, the container's its own."""

    AT = node_settings(policy="HardReservation")

    def protected(self, **spec: Any) -> tuple[FileValue, list[FileValue]]:
        plan = planned(pod([box("1Gi", "4Gi"), box("2Gi", "4Gi")], **spec), self.AT)
        return plan.settings["memory.min"].value, of_containers(plan, "memory.min")

    def test_containers_together(self) -> None:
        assert self.protected() == (3 * GI, [GI, 2 * GI])

    def test_sidecars_with_them(self) -> None:
        assert self.protected(init=[box("1Gi", sidecar=True)]) == (4 * GI, [GI, GI, 2 * GI])

    def test_an_init_container_only_where_it_needs_more(self) -> None:
        assert self.protected(init=[box("2Gi")])[0] == 3 * GI
        assert self.protected(init=[box("5Gi")]) == (5 * GI, [5 * GI, GI, 2 * GI])

    def test_an_init_container_with_the_sidecars_before_it(self) -> None:
        sidecar, init = box("2Gi", sidecar=True), box("4Gi")
        assert self.protected(init=[sidecar, init])[0] == 6 * GI
        assert self.protected(init=[init, sidecar])[0] == 5 * GI

    def test_overhead_on_top_of_the_pod_alone(self) -> None:
        assert self.protected(overhead={"memory": "100Mi"}) == (
            3 * GI + 100 * MI,
            [GI, 2 * GI],
        )

    def test_a_pod_level_request_in_place_of_the_containers(self) -> None:
        assert self.protected(resources=stanza("7Gi"), overhead={"memory": "1Gi"}) == (
            8 * GI,
            [GI, 2 * GI],
        )

    def test_a_part_of_a_byte_counts_as_a_byte(self) -> None:
        plan = planned(pod([box("1.5"), box("0.001")]), self.AT)
        assert of_containers(plan, "memory.min") == [2, 1]
        assert plan.settings["memory.min"].value == 2

    @pytest.mark.parametrize("release", ["1.22", "1.27"])
    def test_before_sidecars_one_was_an_init_container(self, release: str) -> None:
        plan = planned(pod([box("1Gi")], init=[box("2Gi", sidecar=True)]), node_settings(release))
        assert plan.settings["memory.min"].value == 2 * GI
        assert [container.role for container in plan.containers] == ["init", "regular"]

    @pytest.mark.parametrize(("on", "total"), [(False, 2 * GI), (True, 3 * GI)])
    def test_in_1_28_the_gate_decides(self, on: bool, total: int) -> None:
        at = node_settings("1.28", gates={"SidecarContainers": on})
        plan = planned(pod([box("1Gi")], init=[box("2Gi", sidecar=True)]), at)
        assert plan.settings["memory.min"].value == total
