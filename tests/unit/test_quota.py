"""Resource quotas: what a pod charges, which quotas count it, and whether they admit it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.builders import GI, MI, Json, box, pod, stanza

from memqos.cluster.quota import (
    QUOTA_SCOPES,
    Quota,
    ResourceQuota,
    ScopeSelectorTerm,
    is_pod_quota,
    matches_scope,
    quota_applies,
    quota_of,
    quota_usage,
)
from memqos.cluster.quota_admission import (
    ExceededQuota,
    MissingResource,
    QuotaVerdict,
    check_quotas,
)
from memqos.errors import InputError
from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import ObjectMeta, Pod, PodStatus
from memqos.kube.shape import with_shape
from memqos.release import Release

NEWEST = Release.of("1.38")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
MILLI_GI = GI * 1000
MILLI_MI = MI * 1000


def stored(found: Pod, release: Release = NEWEST) -> Pod:
    return with_shape(found, apply_defaults(found, release))


def reporting(found: Pod, **status: Any) -> Pod:
    return msgspec.structs.replace(found, status=msgspec.convert(status, PodStatus))


def deleted(found: Pod, at: str, grace: int) -> Pod:
    metadata = ObjectMeta(deletion_timestamp=at, deletion_grace_period_seconds=grace)
    return msgspec.structs.replace(found, metadata=metadata)


def quota(hard: Json, used: Json | None = None, name: str = "quota", **spec: Any) -> Quota:
    used = dict.fromkeys(hard, "0") if used is None else used
    data = {"metadata": {"name": name}, "spec": spec, "status": {"hard": hard, "used": used}}
    return quota_of(msgspec.convert(data, ResourceQuota))


def verdict_on(found: Pod, *quotas: Quota, release: Release = NEWEST, **more: Any) -> QuotaVerdict:
    return check_quotas(stored(found, release), quotas, release, NOW, **more)


# Usage


def test_memory_is_charged_under_three_names() -> None:
    assert quota_usage(pod([box("1Gi", "2Gi")]), NEWEST, NOW) == {
        "count/pods": 1000,
        "pods": 1000,
        "memory": MILLI_GI,
        "requests.memory": MILLI_GI,
        "limits.memory": 2 * MILLI_GI,
    }


def test_pod_level_resources_take_the_place_of_the_containers() -> None:
    charged = quota_usage(pod([box("1Gi", "2Gi")], resources=stanza("3Gi", "4Gi")), NEWEST, NOW)
    assert (charged["memory"], charged["limits.memory"]) == (3 * MILLI_GI, 4 * MILLI_GI)


def test_overhead_is_charged_to_requests_and_to_limits_that_exist() -> None:
    charged = quota_usage(pod([box("1Gi")], overhead={"memory": "1Gi", "cpu": "1"}), NEWEST, NOW)
    assert charged["requests.memory"] == 2 * MILLI_GI
    assert charged["requests.cpu"] == 1000
    assert not {"limits.memory", "limits.cpu"} & charged.keys()


def test_hugepages_are_charged_twice_and_devices_by_request_alone() -> None:
    more = {"hugepages-2Mi": "4Mi", "example.com/gpu": "2"}
    charged = quota_usage(pod([box("1Gi", requests=more, limits=more)]), NEWEST, NOW)
    assert charged["hugepages-2Mi"] == charged["requests.hugepages-2Mi"] == 4 * MILLI_MI
    assert charged["requests.example.com/gpu"] == 2000
    assert not {"example.com/gpu", "limits.example.com/gpu"} & charged.keys()


def test_classes_of_devices_are_charged_since_they_can_be_requested() -> None:
    name = "deviceclass.resource.kubernetes.io/gpu"
    found = pod([box(requests={name: "1"}, limits={name: "1"})])
    assert quota_usage(found, NEWEST, NOW)[f"requests.{name}"] == 1000
    assert f"requests.{name}" not in quota_usage(found, Release.of("1.34"), NOW)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_counts_only_as_an_object(phase: str) -> None:
    assert quota_usage(reporting(pod([box("1Gi")]), phase=phase), NEWEST, NOW) == {
        "count/pods": 1000
    }


def test_a_pod_is_charged_until_its_grace_period_is_over() -> None:
    found = deleted(pod([box("1Gi")]), "2025-12-31T23:59:30Z", 30)
    assert "memory" in quota_usage(found, NEWEST, NOW)
    assert "memory" not in quota_usage(found, NEWEST, NOW + timedelta(seconds=1))


def test_a_grace_period_longer_than_any_date_is_not_over() -> None:
    found = deleted(pod([box("1Gi")]), "2025-12-31T00:00:00Z", 1 << 62)
    assert "memory" in quota_usage(found, NEWEST, NOW)


@pytest.mark.parametrize("at", ["yesterday", "2026-01-01", "2026-01-01T00:00:00"])
def test_a_deletion_time_that_is_none_is_refused(at: str) -> None:
    with pytest.raises(InputError) as caught:
        quota_usage(deleted(pod([box()]), at, 30), NEWEST, NOW)
    assert caught.value.field == "metadata.deletionTimestamp"


def test_what_dra_claims_add_is_not_charged() -> None:
    claim = {"resourceClaimName": "a", "mapping": [{"name": "memory", "quantity": "3Gi"}]}
    found = reporting(pod([box("1Gi")]), nodeAllocatableResourceClaimStatuses=[claim])
    counting = Release.of("1.38", {"DRANodeAllocatableResources": True})
    assert quota_usage(found, counting, NOW) == quota_usage(found, NEWEST, NOW)


def resizing(*, infeasible: bool = False, **status: Any) -> Pod:
    """A container that requests 1Gi and reports something else."""
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    return reporting(
        pod([box("1Gi", "1Gi")]),
        phase="Running",
        containerStatuses=[{"name": "c0", **status}],
        conditions=[pending] if infeasible else [],
    )


def test_while_a_pod_shrinks_it_is_charged_what_it_still_has() -> None:
    found = resizing(
        allocatedResources={"memory": "2Gi"}, resources=stanza(request="3Gi", limit="4Gi")
    )
    charged = quota_usage(found, NEWEST, NOW)
    assert (charged["memory"], charged["limits.memory"]) == (3 * MILLI_GI, 4 * MILLI_GI)


def test_while_a_pod_grows_it_is_charged_what_it_requests() -> None:
    small = stanza(request="512Mi", limit="512Mi")
    charged = quota_usage(
        resizing(allocatedResources={"memory": "512Mi"}, resources=small), NEWEST, NOW
    )
    assert (charged["memory"], charged["limits.memory"]) == (MILLI_GI, MILLI_GI)


@pytest.mark.parametrize("version", ["1.33", "1.38"])
def test_growth_that_the_node_can_never_grant_is_not_charged(version: str) -> None:
    small = stanza(request="256Mi", limit="512Mi")
    found = resizing(infeasible=True, allocatedResources={"memory": "512Mi"}, resources=small)
    charged = quota_usage(found, Release.of(version), NOW)
    assert (charged["memory"], charged["limits.memory"]) == (512 * MILLI_MI, 512 * MILLI_MI)


@pytest.mark.parametrize(
    ("version", "expected"), [("1.36", {"limits.memory": MILLI_GI}), ("1.38", {})]
)
def test_an_infeasible_resize_of_a_container_that_reports_nothing(
    version: str, expected: dict[str, int]
) -> None:
    charged = quota_usage(resizing(infeasible=True), Release.of(version), NOW)
    assert {name: charged[name] for name in charged if name == "limits.memory"} == expected


@pytest.mark.parametrize(("version", "expected"), [("1.36", 1), ("1.38", 4)])
def test_what_init_containers_report_counts_since_they_can_be_resized(
    version: str, expected: int
) -> None:
    found = reporting(
        pod([box("1Gi", "1Gi")], init=[box("1Gi", "1Gi")]),
        initContainerStatuses=[{"name": "i0", "resources": stanza("4Gi", "4Gi")}],
    )
    charged = quota_usage(found, Release.of(version), NOW)
    assert charged["memory"] == charged["limits.memory"] == expected * MILLI_GI


@pytest.mark.parametrize("version", ["1.32", "1.31"])
def test_without_in_place_resize_only_the_spec_is_charged(version: str) -> None:
    found = resizing(resources=stanza(request="3Gi", limit="4Gi"))
    charged = quota_usage(found, Release.of(version), NOW)
    assert (charged["memory"], charged["limits.memory"]) == (MILLI_GI, MILLI_GI)


def test_one_growing_and_one_shrinking_container_are_no_longer_charged_at_their_worst() -> None:
    found = reporting(
        pod([box("1Gi", "1Gi"), box("3Gi", "3Gi")]),
        containerStatuses=[
            {"name": "c0", "resources": stanza("3Gi", "3Gi")},
            {"name": "c1", "resources": stanza("1Gi", "1Gi")},
        ],
    )
    newest, older = quota_usage(found, NEWEST, NOW), quota_usage(found, Release.of("1.36"), NOW)
    assert (newest["memory"], newest["limits.memory"]) == (4 * MILLI_GI, 4 * MILLI_GI)
    assert (older["memory"], older["limits.memory"]) == (6 * MILLI_GI, 6 * MILLI_GI)


def test_an_empty_list_of_actual_limits_is_that_of_the_spec() -> None:
    found = reporting(
        pod([box("1Gi", "1Gi"), box("1Gi", "1Gi")]),
        containerStatuses=[
            {"name": "c0", "resources": stanza("2Gi", "2Gi")},
            {"name": "c1", "resources": {"requests": {"memory": "1Gi"}, "limits": {}}},
        ],
    )
    charged = quota_usage(found, NEWEST, NOW)
    assert charged["memory"] == charged["limits.memory"] == 3 * MILLI_GI


def test_what_is_reported_for_the_pod_as_a_whole_is_not_charged() -> None:
    found = reporting(
        pod([box("1Gi", "1Gi")], resources=stanza("2Gi", "2Gi")),
        resources=stanza("8Gi", "8Gi"),
        allocatedResources={"memory": "8Gi"},
    )
    charged = quota_usage(found, NEWEST, NOW)
    assert (charged["memory"], charged["limits.memory"]) == (2 * MILLI_GI, 2 * MILLI_GI)


# Scopes


def scopes_of(found: Pod) -> set[str]:
    return {
        scope for scope in QUOTA_SCOPES if matches_scope(ScopeSelectorTerm(scope), found, NEWEST)
    }


def test_every_pod_is_on_one_side_of_each_pair_of_scopes() -> None:
    assert scopes_of(pod([box()])) == {"BestEffort", "NotTerminating"}
    found = pod([box("1Gi")], activeDeadlineSeconds=0, priorityClassName="high")
    assert scopes_of(found) == {"NotBestEffort", "Terminating", "PriorityClass"}


def test_the_stored_class_decides_about_best_effort() -> None:
    assert "BestEffort" in scopes_of(pod([box("1Gi")], qos_class="BestEffort"))


@pytest.mark.parametrize("side", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("term", [{"namespaces": ["other"]}, {"namespaceSelector": {}}])
@pytest.mark.parametrize("preferred", [True, False])
def test_affinity_to_pods_of_other_namespaces_is_a_scope(
    side: str, term: Json, preferred: bool
) -> None:
    rule = (
        {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": term}]}
        if preferred
        else {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    )
    assert "CrossNamespacePodAffinity" in scopes_of(pod([box()], affinity={side: rule}))


def test_affinity_within_the_namespace_is_not_that_scope() -> None:
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
    found = pod([box()], affinity={"podAffinity": rule})
    assert "CrossNamespacePodAffinity" not in scopes_of(found)


@pytest.mark.parametrize(
    ("operator", "values", "matched"),
    [
        ("In", ["high"], {"high"}),
        ("NotIn", ["high"], {"low", None}),
        ("Exists", [], {"high", "low"}),
        ("DoesNotExist", [], {None}),
    ],
)
def test_priority_classes_are_selected_by_operator(
    operator: str, values: list[str], matched: set[str | None]
) -> None:
    term = ScopeSelectorTerm("PriorityClass", operator, tuple(values))
    names = ("high", "low", None)
    pods = {name: pod([box()], priorityClassName=name) for name in names}
    assert {name for name, found in pods.items() if matches_scope(term, found, NEWEST)} == matched


def test_an_operator_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="'Near' is not an operator"):
        matches_scope(ScopeSelectorTerm("PriorityClass", "Near"), pod([box()]), NEWEST)


def test_a_quota_counts_pods_that_are_in_all_its_scopes() -> None:
    high = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    both = quota({"pods": "1"}, scopes=["BestEffort"], scopeSelector={"matchExpressions": [high]})
    assert quota_applies(both, pod([box()], priorityClassName="high"), NEWEST)
    assert not quota_applies(both, pod([box()]), NEWEST)
    assert not quota_applies(both, pod([box("1Gi")], priorityClassName="high"), NEWEST)


def test_a_quota_that_bounds_nothing_of_pods_does_not_count_them() -> None:
    assert not quota_applies(quota({"services": "1"}), pod([box()]), NEWEST)


def test_no_pod_is_in_a_scope_that_is_not_about_pods() -> None:
    other = quota({"pods": "1"}, scopes=["VolumeAttributesClass"])
    assert not quota_applies(other, pod([box()]), NEWEST)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("limits.memory", True),
        ("requests.hugepages-2Mi", True),
        ("hugepages-1Gi", True),
        ("requests.example.com/gpu", True),
        ("example.com/gpu", False),
        ("requests.storage", False),
        ("services", False),
        ("count/deployments.apps", False),
        ("requests.deviceclass.resource.kubernetes.io/gpu", True),
    ],
)
def test_quotas_bound_pods_by_these_names(name: str, expected: bool) -> None:
    assert is_pod_quota(name) is expected


# Admission


def test_a_pod_that_fits_is_added_to_what_is_used() -> None:
    bound = quota({"limits.memory": "4Gi"}, {"limits.memory": "1Gi"})
    verdict = verdict_on(pod([box("1Gi", "3Gi")]), bound)
    assert verdict.allowed
    assert verdict.new_used == {"quota": {"limits.memory": 4 * MILLI_GI}}


def test_a_refusal_names_the_bound_and_what_is_left_of_it() -> None:
    bound = quota({"limits.memory": "4Gi", "pods": "9"}, {"limits.memory": "2Gi", "pods": "1"})
    verdict = verdict_on(pod([box("1Gi", "3Gi")]), bound)
    assert (verdict.allowed, verdict.reason, verdict.quota) == (False, "exceeded", "quota")
    assert verdict.exceeded == (
        ExceededQuota(
            "limits.memory", requested=3 * MILLI_GI, used=2 * MILLI_GI, hard=4 * MILLI_GI
        ),
    )
    assert verdict.exceeded[0].allowed == 2 * MILLI_GI


def test_a_quota_on_memory_requires_every_container_to_declare_it() -> None:
    found = pod([box("1Gi"), box()], init=[box(cpu=("1", "1"))])
    verdict = verdict_on(found, quota({"requests.memory": "9Gi", "pods": "9"}))
    assert verdict.reason == "missing_required"
    assert verdict.missing == (MissingResource("requests.memory", ("c1", "i0")),)


def test_a_quota_on_storage_wants_no_declaration() -> None:
    assert verdict_on(pod([box()]), quota({"requests.ephemeral-storage": "1Gi"})).allowed


def test_any_pod_level_value_frees_containers_from_declaring() -> None:
    found = pod([box()], resources=stanza(cpu=("1", "1")))
    bound = quota({"requests.memory": "1Gi"})
    assert verdict_on(found, bound).allowed
    without = Release.of("1.38", {"PodLevelResources": False})
    assert check_quotas(stored(found), [bound], without, NOW).reason == "missing_required"


def test_a_quota_whose_use_is_not_known_yet_admits_nothing() -> None:
    verdict = verdict_on(pod([box("1Gi")]), quota({"memory": "1Gi", "services": "1"}, {}))
    assert (verdict.reason, verdict.unknown) == ("status_unknown", ("memory",))


def test_quotas_that_do_not_count_the_pod_stay_as_they_are() -> None:
    other = quota({"pods": "1"}, {"pods": "1"}, name="other", scopes=["BestEffort"])
    verdict = verdict_on(pod([box("1Gi")]), other, quota({"pods": "2"}, {"pods": "1"}))
    assert verdict.allowed
    assert verdict.matching == ("quota",)
    assert verdict.new_used == {"other": {"pods": 1000}, "quota": {"pods": 2000}}


def test_asking_for_nothing_never_exceeds_even_an_overdrawn_quota() -> None:
    overdrawn = quota({"requests.memory": "1Gi"}, {"requests.memory": "2Gi"})
    assert verdict_on(pod([box("0")]), overdrawn).allowed


def test_a_resize_is_charged_what_it_adds() -> None:
    bound = quota({"requests.memory": "2Gi", "pods": "1"}, {"requests.memory": "1Gi", "pods": "1"})
    before = stored(pod([box("1Gi")]))
    grown = verdict_on(pod([box("1536Mi")]), bound, resized_from=before)
    assert grown.new_used == {"quota": {"requests.memory": 1536 * MILLI_MI, "pods": 1000}}
    too_much = verdict_on(pod([box("3Gi")]), bound, resized_from=before)
    assert too_much.exceeded == (
        ExceededQuota("requests.memory", requested=2 * MILLI_GI, used=MILLI_GI, hard=2 * MILLI_GI),
    )


def test_shrinking_gives_nothing_back_at_admission() -> None:
    bound = quota({"requests.memory": "2Gi"}, {"requests.memory": "2Gi"})
    verdict = verdict_on(pod([box("1Gi")]), bound, resized_from=stored(pod([box("2Gi")])))
    assert verdict.allowed
    assert verdict.new_used == {"quota": {"requests.memory": 2 * MILLI_GI}}


def test_a_pod_that_enters_a_scope_is_charged_in_full() -> None:
    bound = quota({"pods": "1"}, {"pods": "1"}, scopes=["Terminating"])
    verdict = verdict_on(
        pod([box("1Gi")], activeDeadlineSeconds=60), bound, resized_from=stored(pod([box("1Gi")]))
    )
    assert verdict.reason == "exceeded"
