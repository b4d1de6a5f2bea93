"""`memqos admit`: new pods against the limit ranges and quotas of a namespace."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.commands import Done, memqos

STATE = "examples/cluster/namespace.yaml"


def pod(name: str = "web", request: str = "", limit: str = "", namespace: str = "shop") -> str:
    resources: dict[str, Any] = {}
    if request:
        resources["requests"] = {"memory": request}
    if limit:
        resources["limits"] = {"memory": limit}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"containers": [{"name": "app", "image": "i", "resources": resources}]},
        }
    )


def quota(hard: dict[str, str], used: dict[str, str] | None, **spec: Any) -> str:
    status = {} if used is None else {"status": {"hard": hard, "used": used}}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "compute"},
            "spec": {"hard": hard, **spec},
            **status,
        }
    )


def limits(**item: Any) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "sizes"},
            "spec": {"limits": [{"type": "Container", **item}]},
        }
    )


def admit(pods: str, state: str, tmp_path: Path, *options: str) -> Done:
    file = tmp_path / "state.yaml"
    file.write_text(state)
    return memqos("admit", "-", "--namespace-state", str(file), *options, stdin=pods)


def test_what_a_limit_range_fills_in_is_marked_and_named() -> None:
    done = memqos("admit", "-", "--namespace-state", STATE, stdin=pod())
    assert done.code == 0
    assert "pod/web in shop  admitted as Burstable" in done.out
    assert ["└", "app", "+100m", "+256Mi", "+512Mi"] in done.rows()
    assert "+ limit range sizes: app requests.memory, app requests.cpu, app limits.memory" in (
        done.out
    )


def test_a_request_taken_from_its_limit_is_told_apart(tmp_path: Path) -> None:
    done = admit(pod(limit="1Gi"), limits(max={"memory": "2Gi"}), tmp_path)
    assert "+ its limit: app requests.memory" in done.out


@pytest.mark.parametrize(
    ("given", "item", "says"),
    [
        (
            pod(limit="3Gi"),
            {"max": {"memory": "2Gi"}},
            "app: memory limit 3Gi, max of a Container is 2Gi: 1Gi too much",
        ),
        (
            pod(request="32Mi", limit="1Gi"),
            {"min": {"memory": "64Mi"}},
            "app: memory request 32Mi, min of a Container is 64Mi: 32Mi too little",
        ),
        (
            pod(request="256Mi", limit="1Gi"),
            {"maxLimitRequestRatio": {"memory": "2"}},
            "app: memory limit is 4 times the request, maxLimitRequestRatio is 2",
        ),
        (
            pod(request="256Mi"),
            {"maxLimitRequestRatio": {"memory": "2"}},
            "app: memory limit is missing, and maxLimitRequestRatio is 2",
        ),
        (
            pod(),
            {"type": "Pod", "min": {"memory": "64Mi"}},
            "pod: memory request is missing, and min of a Pod is 64Mi",
        ),
    ],
)
def test_a_limit_range_refuses_with_both_numbers(
    given: str, item: dict[str, Any], says: str, tmp_path: Path
) -> None:
    done = admit(given, limits(**item), tmp_path)
    assert done.code == 2
    assert "refused by limit range sizes" in done.out
    assert says in done.out


def test_a_quota_refuses_with_what_is_left(tmp_path: Path) -> None:
    state = quota({"requests.memory": "2Gi"}, {"requests.memory": "1536Mi"})
    done = admit(pod(request="1Gi", limit="1Gi"), state, tmp_path)
    assert done.code == 2
    assert "refused by quota compute" in done.out
    assert "requests.memory: 1Gi requested, 512Mi of 2Gi is left: 512Mi too much" in done.out


def test_pods_are_admitted_one_after_another_and_quotas_grow(tmp_path: Path) -> None:
    state = quota({"requests.memory": "2Gi"}, {"requests.memory": "0"})
    three = "---\n".join(pod(name, "1Gi", "1Gi") for name in ("a", "b", "c"))
    done = admit(three, state, tmp_path, "-o", "json")
    assert [each["admitted"] for each in done.data["pods"]] == [True, True, False]
    assert done.data["quotas"]["*"]["compute"]["used"] == {"requests.memory": "2Gi"}
    assert done.code == 2


def test_a_refused_pod_is_charged_to_nobody(tmp_path: Path) -> None:
    state = quota({"requests.memory": "2Gi"}, {"requests.memory": "0"})
    pods = "---\n".join([pod("big", "3Gi", "3Gi"), pod("small", "2Gi", "2Gi")])
    done = admit(pods, state, tmp_path, "-o", "json")
    assert [each["admitted"] for each in done.data["pods"]] == [False, True]


def test_every_replica_of_a_workload_is_a_pod() -> None:
    done = memqos("admit", "examples/shop.yaml", "--namespace-state", STATE)
    assert "deployment/api in shop  all 3 replicas admitted as Burstable" in done.out
    assert ["requests.memory", "2.25Gi", "3", "×", "832Mi", "4800Mi", "8Gi"] in done.rows()


def test_replicas_are_admitted_until_the_quota_is_full(tmp_path: Path) -> None:
    template = yaml.safe_load(pod(request="1Gi", limit="1Gi"))
    workload = yaml.safe_dump(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {"replicas": 5, "template": {"spec": template["spec"]}},
        }
    )
    done = admit(workload, quota({"pods": "3"}, {"pods": "1"}), tmp_path)
    assert "2 of 5 replicas admitted, then quota compute refuses" in done.out
    assert done.code == 2


def test_a_quota_that_nobody_has_counted_refuses(tmp_path: Path) -> None:
    done = admit(pod(request="1Gi", limit="1Gi"), quota({"requests.memory": "2Gi"}, None), tmp_path)
    assert done.code == 2
    assert "note: quota compute has no status.hard: its spec.hard is used" in done.out
    assert "its status has no usage of requests.memory" in done.out


def test_what_a_quota_bounds_must_be_declared(tmp_path: Path) -> None:
    done = admit(pod(), quota({"limits.memory": "2Gi"}, {"limits.memory": "0"}), tmp_path)
    assert "every container must set it: app does not" in done.out


def test_a_scope_decides_whether_a_quota_counts(tmp_path: Path) -> None:
    state = quota({"pods": "0"}, {"pods": "0"}, scopes=["BestEffort"])
    counted = admit(pod("best"), state, tmp_path, "--why")
    assert counted.code == 2
    assert "quota compute counts it: scope BestEffort" in counted.out
    passed = admit(pod("better", "1Gi", "2Gi"), state, tmp_path, "--why")
    assert passed.code == 0
    assert "quota compute does not count it: scope BestEffort" in passed.out


def test_why_tells_each_check_with_its_numbers() -> None:
    done = memqos("admit", "-", "--namespace-state", STATE, "--why", stdin=pod())
    for line in (
        "app: requests.memory = 256Mi (limit range sizes)",
        "limit range sizes, Container: app memory request 256Mi, limit 512Mi: keeps max 4Gi",
        "limit range sizes, Pod: pod memory request 256Mi, limit 512Mi: keeps max 6Gi",
        "quota compute counts it: it has no scope",
    ):
        assert line in done.out


def test_another_namespace_is_another_matter() -> None:
    done = memqos("admit", "-", "--namespace-state", STATE, stdin=pod(namespace="other"))
    assert done.code == 0
    assert "no LimitRange or ResourceQuota is given for namespace other" in done.out


def test_a_pod_without_a_namespace_goes_to_the_only_one_there_is() -> None:
    done = memqos("admit", "examples/one.yaml", "--namespace-state", STATE)
    assert "pod/web in shop" in done.out


def test_defaults_of_type_pod_are_refused_until_they_are_asked_for(tmp_path: Path) -> None:
    state = limits(type="Pod", default={"memory": "1Gi"})
    refused = admit(pod(request="256Mi"), state, tmp_path)
    assert refused.code == 1
    assert "state.yaml:7:5: spec.limits[0].default: Forbidden" in refused.err
    assert "--pod-defaults" in refused.err
    assert refused.out == ""
    asked = admit(pod(request="256Mi"), state, tmp_path, "--pod-defaults", "--release", "1.37")
    assert asked.code == 0
    assert "+ limit range sizes: pod limits.memory" in asked.out
    older = admit(pod(request="256Mi"), state, tmp_path, "--pod-defaults", "--release", "1.30")
    assert "--pod-defaults changes nothing" in older.out


def test_an_error_that_a_limit_range_brought_about_says_so() -> None:
    done = memqos("admit", "-", "--namespace-state", STATE, stdin=pod(request="1Gi"))
    assert done.code == 1
    assert done.out == ""
    assert (
        "must be less than or equal to memory limit of 512Mi – limit ranges filled in" in done.err
    )
    assert "<stdin>:11:7: spec.containers[0].resources.requests" in done.err


def test_an_invalid_pod_is_in_the_data_with_its_errors() -> None:
    done = memqos("admit", "-", "--namespace-state", STATE, "-o", "json", stdin=pod(request="1Gi"))
    (found,) = done.data["pods"]
    assert not found["admitted"]
    assert found["errors"][0]["field"] == "spec.containers[0].resources.requests"


def test_data_has_the_exact_shortfall(tmp_path: Path) -> None:
    state = quota({"requests.memory": "2Gi"}, {"requests.memory": "1536Mi"})
    done = admit(pod(request="1Gi", limit="1Gi"), state, tmp_path, "-o", "yaml")
    (found,) = yaml.safe_load(done.out)["pods"]
    assert found["refusedBy"] == "quota compute"
    assert found["quota"]["exceeded"] == [
        {
            "resource": "requests.memory",
            "asked": "1Gi",
            "used": "1536Mi",
            "hard": "2Gi",
            "by": "512Mi",
        }
    ]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("apiVersion: v1\nkind: Pod\n", "'Pod' is not used here – expected LimitRange or"),
        ("kind: List\nitems: [{kind: Pod}, {kind: Pod}]\n", "'Pod' is not used here"),
        ("metadata: {name: x}\n", "kind: required, but missing"),
        (limits(max={"memory": "x"}), "spec.limits[0].max.memory: 'x' is not a quantity"),
        (limits(max="2Gi"), "expected a mapping, got a string"),
        (
            limits(type="container"),
            "7:11: spec.limits[0].type: 'container' is not a type of limit ranges – write "
            "Container",
        ),
        (quota({"memory": "1GB"}, None), "spec.hard.memory: '1GB' is not a quantity"),
        (
            quota(
                {"pods": "1"},
                {"pods": "0"},
                scopeSelector={
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "Is"}]
                },
            ),
            "'Is' is not an operator of a scope selector",
        ),
        ("kind: List\nitems: 3\n", "items: expected a list, got an integer"),
        ("", "no document"),
    ],
)
def test_a_state_that_cannot_be_read_gives_no_verdict(
    state: str, says: str, tmp_path: Path
) -> None:
    done = admit(pod(), state, tmp_path)
    assert done.code == 1
    assert done.out == ""
    assert says in done.err
    assert "it could not be read completely, so there is no answer" in done.err


def test_a_missing_file_is_reported() -> None:
    done = memqos("admit", "-", "--namespace-state", "none.yaml", stdin=pod())
    assert done.code == 1
    assert "none.yaml: no such file" in done.err


def test_the_pods_of_a_snapshot_are_admitted_again() -> None:
    done = memqos("admit", "tests/nodes/systemd.json", "--namespace-state", STATE)
    assert done.code == 0
    assert done.out.count("it exists already") == 12


@pytest.mark.parametrize("arguments", [["-"], ["--namespace-state", STATE]])
def test_wrong_usage_exits_with_64(arguments: list[str]) -> None:
    assert memqos("admit", *arguments).code == 64


class TestAPolicy:
    POLICY = """
apiVersion: memqos.io/v1alpha1
kind: AdmissionPolicy
rules:
- {id: no-best-effort, check: class, forbid: [BestEffort]}
- {id: near, check: limit-ratio, most: 2, mode: warn}
- {id: small, check: bounds, of: requests, most: 1Gi, only: {namespaces: [shop]}}
"""

    @pytest.fixture
    def policy(self, tmp_path: Path) -> str:
        (tmp_path / "policy.yaml").write_text(self.POLICY)
        return str(tmp_path / "policy.yaml")

    def pod(self, folder: Path, resources: str, namespace: str = "shop") -> str:
        (folder / "pod.yaml").write_text(
            f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: {namespace}}}\n"
            f"spec: {{containers: [{{name: a, image: i, resources: {resources}}}]}}\n"
        )
        return str(folder / "pod.yaml")

    def test_refuses_a_pod_that_breaks_a_rule(self, tmp_path: Path, policy: str) -> None:
        code, out, _ = memqos("admit", self.pod(tmp_path, "{}"), "--policy", policy)
        assert code == 2
        assert "pod/p in shop  refused by the policy\n  no-best-effort: " in out

    def test_warns_and_lets_in(self, tmp_path: Path, policy: str) -> None:
        wide = "{requests: {memory: 64Mi}, limits: {memory: 1Gi}}"
        code, out, _ = memqos("admit", self.pod(tmp_path, wide), "--policy", policy)
        assert code == 0
        assert "  warning: near: container a has a memory limit of 1Gi" in out

    def test_is_about_the_pods_it_names(self, tmp_path: Path, policy: str) -> None:
        large = "{requests: {memory: 2Gi}, limits: {memory: 2Gi}}"
        assert memqos("admit", self.pod(tmp_path, large), "--policy", policy)[0] == 2
        assert memqos("admit", self.pod(tmp_path, large, "other"), "--policy", policy)[0] == 0

    def test_judges_what_limit_ranges_have_filled_in(self, tmp_path: Path, policy: str) -> None:
        state = tmp_path / "state.yaml"
        state.write_text(
            "apiVersion: v1\nkind: LimitRange\nmetadata: {name: r, namespace: shop}\n"
            "spec: {limits: [{type: Container, default: {memory: 64Mi}}]}\n"
        )
        arguments = ("admit", self.pod(tmp_path, "{}"), "--policy", policy)
        assert memqos(*arguments, "--namespace-state", str(state))[0] == 0

    def test_that_refuses_charges_no_quota(self, tmp_path: Path, policy: str) -> None:
        state = tmp_path / "state.yaml"
        state.write_text(
            "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: shop}\n"
            "spec: {hard: {pods: 5}}\nstatus: {hard: {pods: 5}, used: {pods: 1}}\n"
        )
        done = memqos(
            *("admit", self.pod(tmp_path, "{}"), "--policy", policy),
            *("--namespace-state", str(state), "-o", "json"),
        )
        assert done.code == 2
        (pod,) = done.data["pods"]
        assert pod["refusedBy"] == "the policy"
        assert [(each["rule"], each["mode"]) for each in pod["breaches"]] == [
            ("no-best-effort", "refuse")
        ]
        assert pod["quota"] is None
        assert done.data["quotas"]["shop"]["q"]["used"] == {"pods": "1"}

    def test_that_cannot_hold_is_refused_where_it_stands(self, tmp_path: Path) -> None:
        code, _, err = memqos(
            "admit", self.pod(tmp_path, "{}"), "--policy", "examples/broken/policy.yaml"
        )
        assert code == 1
        assert "policy.yaml:5:10" in err

    def test_is_a_file_and_no_folder(self, tmp_path: Path) -> None:
        code, _, err = memqos("admit", self.pod(tmp_path, "{}"), "--policy", "examples")
        assert code == 1
        assert err == "memqos: examples: this is a folder, but one file is expected\n"
