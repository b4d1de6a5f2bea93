"""Where protection is claimed: by containers, by pods, or with a margin."""

import pytest
from tests.builders import MI, Json, box, node_settings, of_containers, planned, pod

from memqos.plan.effective import Claim, effective
from memqos.plan.pod import PodPlan
from memqos.plan.setting import FileValue
from memqos.settings.settings import Placement

GUARANTEED = box("512Mi", "512Mi", cpu=("1", "1"))
BURSTABLE = box("256Mi", "512Mi")
RELEASES = ["1.22", "1.32", "1.36", "1.38"]
HARD: list[Placement] = ["containers", "pods", "margin"]


def plan(placement: Placement, *containers: Json, release: str = "1.38") -> PodPlan:
    at = node_settings(release, policy="TieredReservation", placement=placement)
    return planned(pod(containers), at)


def mins(found: PodPlan) -> tuple[FileValue, list[FileValue]]:
    return found.settings["memory.min"].value, of_containers(found, "memory.min")


@pytest.mark.parametrize("release", RELEASES)
def test_by_pods_the_pod_claims_and_its_containers_do_not(release: str) -> None:
    found = plan("pods", GUARANTEED, GUARANTEED, release=release)
    assert mins(found) == (1024 * MI, [0, 0])


@pytest.mark.parametrize("release", RELEASES)
def test_with_a_margin_containers_claim_a_tenth_less(release: str) -> None:
    found = plan("margin", GUARANTEED, release=release)
    (claim,) = mins(found)[1]
    assert mins(found)[0] == 512 * MI
    assert isinstance(claim, int)
    assert 0.899 < claim / (512 * MI) <= 0.9
    assert claim % 4096 == 0


def test_soft_protection_goes_to_the_pod_as_well() -> None:
    found = plan("pods", BURSTABLE)
    assert found.settings["memory.low"].value == 256 * MI
    assert of_containers(found, "memory.low") == [0]


def test_a_margin_is_of_no_use_where_the_limit_leaves_one() -> None:
    assert plan("margin", BURSTABLE) == plan("containers", BURSTABLE)


@pytest.mark.parametrize("placement", HARD)
def test_what_claims_nothing_is_the_same_wherever_it_is_claimed(placement: Placement) -> None:
    nothing = box(cpu=("1", None))
    assert plan(placement, nothing) == plan("containers", nothing)


def test_the_reason_names_the_cgroup_that_claims() -> None:
    because = plan("pods", GUARANTEED).containers[0].settings["memory.min"].because
    assert because.rule == "protection/at-pod"
    assert because.steps == ("protection of the container = 512Mi, set on its pod",)


# The pod at its own limit, and the node short of memory, with all of a pod's memory in use.
@pytest.mark.parametrize(
    ("placement", "recursive", "at_own_limit", "node_short"),
    [
        ("containers", True, 512, 512),
        ("containers", False, 512, 512),
        ("pods", True, 0, 512),
        ("pods", False, 0, 0),
        ("margin", True, 461, 512),
        ("margin", False, 461, 461),
    ],
)
def test_what_the_kernel_holds_off_the_container(
    placement: Placement, recursive: bool, at_own_limit: int, node_short: int
) -> None:
    found = plan(placement, GUARANTEED)
    of_pod, (of_container,) = mins(found)
    assert isinstance(of_pod, int)
    assert isinstance(of_container, int)
    full = 512 * MI
    claims = {
        "/kubepods": Claim(of_pod, 0, full),
        "/kubepods/pod": Claim(of_pod, 0, full),
        "/kubepods/pod/container": Claim(of_container, 0, full),
    }
    protected = [
        effective(claims, recursive=recursive, page_size=4096, target=target)[
            "/kubepods/pod/container"
        ].min.effective
        for target in ("/kubepods/pod", "/")
    ]
    assert [round(each / MI) for each in protected] == [at_own_limit, node_short]
