"""Reviews of pods and how they are answered."""

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.reviews import UID, container, review

from memqos.api.patch import pointer
from memqos.api.review import Response, answered
from memqos.cluster.limitrange import LimitRange, Range, range_of
from memqos.errors import InputError
from memqos.findings.policy import ForbidClass, LimitRatio, Policy
from memqos.release import Release
from memqos.serve.admission import Door

RELEASE = Release.of("1.36")
OPEN = Policy("memqos.io/v1alpha1", "AdmissionPolicy")
CLOSED = msgspec.structs.replace(OPEN, on_error="refuse")


def door(policy: Policy = OPEN, **ranges: Range) -> Door:
    return Door(policy, RELEASE, {name: [each] for name, each in ranges.items()})


def answer(given: Response) -> dict[str, Any]:
    found = json.loads(answered(given))
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: dict[str, Any] = found["response"]
    assert response["uid"] == UID
    return response


def patched(spec: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """The spec after the patch, by the letter of RFC 6902."""
    document: Any = {"spec": json.loads(json.dumps(spec))}
    assert response["patchType"] == "JSONPatch"
    for operation in json.loads(base64.b64decode(response["patch"])):
        assert operation["op"] == "add"
        *steps, last = [
            step.replace("~1", "/").replace("~0", "~") for step in operation["path"][1:].split("/")
        ]
        here = document
        for step in steps:
            here = here[step]
        here[last] = operation["value"]
    found: dict[str, Any] = document["spec"]
    return found


class TestMutating:
    def test_completes_the_pod_level(self) -> None:
        spec = {
            "containers": [container(requests={"cpu": "1", "memory": "1Gi"})],
            "resources": {"limits": {"memory": "4Gi"}},
        }
        response = answer(door().mutate(review(spec)))
        assert response["allowed"]
        assert patched(spec, response)["resources"] == {
            "limits": {"memory": "4Gi"},
            "requests": {"cpu": "1", "memory": "1Gi"},
        }

    @pytest.mark.parametrize("resources", [None, {}, {"limits": None}])
    def test_fills_in_the_defaults_of_a_limit_range_of_type_pod(self, resources: Any) -> None:
        limits = msgspec.convert(
            {"spec": {"limits": [{"type": "Pod", "default": {"memory": "2Gi"}}]}}, LimitRange
        )
        spec = {"containers": [container()], "resources": resources}
        response = answer(door(shop=range_of(limits)).mutate(review(spec)))
        assert patched(spec, response)["resources"]["limits"] == {"memory": "2Gi"}
        elsewhere = answer(door(shop=range_of(limits)).mutate(review(spec, namespace="test")))
        assert "patch" not in elsewhere

    def test_leaves_containers_to_the_api_server(self) -> None:
        spec = {"containers": [container(limits={"memory": "1Gi"})]}
        assert "patch" not in answer(door().mutate(review(spec)))

    def test_changes_nothing_where_pod_level_resources_are_off(self) -> None:
        spec = {"containers": [container()], "resources": {"limits": {"memory": "4Gi"}}}
        old = Door(OPEN, Release.of("1.31"))
        assert answer(old.mutate(review(spec))) == {"uid": UID, "allowed": True}

    def test_changes_nothing_twice(self) -> None:
        spec = {
            "containers": [container(requests={"memory": "1Gi"})],
            "resources": {"limits": {"memory": "4Gi", "example.com~a/b": "1"}},
        }
        after = patched(spec, answer(door().mutate(review(spec))))
        assert "patch" not in answer(door().mutate(review(after)))


class TestValidating:
    def test_refuses_what_kubernetes_would_refuse(self) -> None:
        spec = {"containers": [container(requests={"memory": "2Gi"}, limits={"memory": "1Gi"})]}
        response = answer(door().validate(review(spec)))
        assert not response["allowed"]
        assert response["status"]["code"] == 422
        assert "spec.containers[0].resources.requests" in response["status"]["message"]

    def test_refuses_what_breaks_a_rule_and_names_it(self) -> None:
        rule = ForbidClass(id="no-best-effort", forbid=("BestEffort",))
        policy = msgspec.structs.replace(OPEN, rules=(rule,))
        response = answer(door(policy).validate(review({"containers": [container()]})))
        assert response["status"] == {
            "code": 403,
            "reason": "Forbidden",
            "message": "no-best-effort: the pod is BestEffort",
        }

    def test_only_warns_in_warn_mode(self) -> None:
        rule = LimitRatio(id="near", most=2, mode="warn")
        policy = msgspec.structs.replace(OPEN, rules=(rule,))
        spec = {"containers": [container(requests={"memory": "1Gi"}, limits={"memory": "3Gi"})]}
        response = answer(door(policy).validate(review(spec)))
        assert response["allowed"]
        assert [warning.partition(":")[0] for warning in response["warnings"]] == ["near"]

    def test_judges_a_resize_by_the_rules_of_resizing(self) -> None:
        spec = {"containers": [container(requests={"memory": "1Gi"}, limits={"memory": "1Gi"})]}
        old = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web"},
            "spec": {"containers": [container(requests={"memory": "1Gi"})]},
            "status": {"qosClass": "Burstable"},
        }
        body = review(spec, operation="UPDATE", subResource="resize", oldObject=old)
        assert answer(door().validate(body))["allowed"]
        guaranteed = {
            "containers": [
                container(
                    requests={"memory": "1Gi", "cpu": "1"}, limits={"memory": "1Gi", "cpu": "1"}
                )
            ]
        }
        body = review(guaranteed, operation="UPDATE", subResource="resize", oldObject=old)
        response = answer(door().validate(body))
        assert not response["allowed"]
        assert "QOS" in response["status"]["message"].upper()

    @pytest.mark.parametrize(
        "request_", [{"operation": "DELETE"}, {"operation": "UPDATE"}, {"subResource": "exec"}]
    )
    def test_lets_all_else_through(self, request_: dict[str, Any]) -> None:
        spec = {"containers": [container(requests={"memory": "2Gi"}, limits={"memory": "1Gi"})]}
        assert answer(door().validate(review(spec, **request_)))["allowed"]

    @pytest.mark.parametrize(
        "spec", [7, {"containers": 7}, {"containers": [container(limits={"memory": "lots"})]}]
    )
    def test_a_pod_that_cannot_be_judged_is_let_through_or_not_as_the_policy_says(
        self, spec: Any
    ) -> None:
        let_through = answer(door().validate(review(spec)))
        assert let_through["allowed"]
        assert let_through["warnings"][0].startswith("memqos cannot judge this pod: ")
        refused = answer(door(CLOSED).validate(review(spec)))
        assert not refused["allowed"]
        assert refused["status"]["code"] == 500


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"{}",
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_review_is_told_apart(body: bytes) -> None:
    with pytest.raises(InputError):
        door().validate(body)


@given(
    spec=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["containers", "resources", "limits", "requests", "memory", "name", "cpu"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_every_review_is_answered_whatever_it_holds(spec: Any) -> None:
    for judge in (door().mutate, door().validate, door(CLOSED).mutate, door(CLOSED).validate):
        assert "allowed" in answer(judge(review(spec)))


def test_pointers_are_escaped() -> None:
    assert pointer(("spec", "a/b~c")) == "/spec/a~1b~0c"
