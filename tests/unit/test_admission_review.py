"""Reviews of pods and how they are answered."""

import base64
import json
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.reviews import UID, container, review

from memqos.cluster.limit_range import LimitRange, LimitRangeAmounts, limit_range_amounts
from memqos.errors import InputError
from memqos.findings import policy as policies
from memqos.findings.policy import (
    AdmissionPolicy,
    AnyPolicyRule,
    ForbidClass,
    LimitRatio,
    PolicyMode,
    PolicyRule,
    RequiredResources,
)
from memqos.kube.admission_review import Response, encode_review, pointer
from memqos.kube.pod import Pod
from memqos.release import Release
from memqos.serve import admission
from memqos.serve.admission import PodReviewer

RELEASE = Release.of("1.36")
OPEN = AdmissionPolicy("memqos.io/v1alpha1", "AdmissionPolicy")
CLOSED = msgspec.structs.replace(OPEN, on_error="refuse")


def door(policy: AdmissionPolicy = OPEN, **ranges: LimitRangeAmounts) -> PodReviewer:
    return PodReviewer(policy, RELEASE, {name: [each] for name, each in ranges.items()})


def answer(given: Response) -> dict[str, Any]:
    found = json.loads(encode_review(given))
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
        response = answer(door(shop=limit_range_amounts(limits)).mutate(review(spec)))
        assert patched(spec, response)["resources"]["limits"] == {"memory": "2Gi"}
        elsewhere = answer(
            door(shop=limit_range_amounts(limits)).mutate(review(spec, namespace="test"))
        )
        assert "patch" not in elsewhere

    def test_leaves_containers_to_the_api_server(self) -> None:
        spec = {"containers": [container(limits={"memory": "1Gi"})]}
        assert "patch" not in answer(door().mutate(review(spec)))

    def test_changes_nothing_where_pod_level_resources_are_off(self) -> None:
        spec = {"containers": [container()], "resources": {"limits": {"memory": "4Gi"}}}
        old = PodReviewer(OPEN, Release.of("1.31"))
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
        assert let_through["warnings"][0].startswith("memqos cannot check this pod: ")
        refused = answer(door(CLOSED).validate(review(spec)))
        assert not refused["allowed"]
        assert refused["status"]["code"] == 500

    def test_a_resize_answers_for_what_it_changes(self) -> None:
        near = LimitRatio(id="near", most=2)
        policy = msgspec.structs.replace(OPEN, rules=(near,))

        def spec(*limits: str) -> dict[str, Any]:
            return {
                "containers": [
                    {
                        **container(requests={"memory": "1Gi"}, limits={"memory": limit}),
                        "name": f"c{index}",
                    }
                    for index, limit in enumerate(limits)
                ]
            }

        def resized(*limits: str) -> dict[str, Any]:
            old = {"metadata": {"name": "web"}, "spec": spec("3Gi", "1Gi")}
            body = review(spec(*limits), operation="UPDATE", subResource="resize", oldObject=old)
            return answer(door(policy).validate(body))

        assert resized("3Gi", "2Gi") == {"uid": UID, "allowed": True}
        message = resized("3Gi", "4Gi")["status"]["message"]
        assert "container c1" in message
        assert "container c0" not in message
        assert "container c0" in resized("5Gi", "1Gi")["status"]["message"]


class TestAPodThatMakesARuleFail:
    NO_BEST_EFFORT = ForbidClass(id="no-be", forbid=("BestEffort",))

    @pytest.mark.parametrize("limit", ["10e399", "1e999", "9" * 128, 10**30, -1e300])
    def test_with_a_quantity_beyond_all_bounds_is_refused(self, limit: Any) -> None:
        policy = msgspec.structs.replace(CLOSED, rules=(LimitRatio(id="near", most=2),))
        spec = {"containers": [container(requests={"memory": "1Gi"}, limits={"memory": limit})]}
        answer(door(policy).mutate(review(spec)))
        response = answer(door(policy).validate(review(spec)))
        assert not response["allowed"]
        assert len(response["status"]["message"]) <= 4096

    def test_is_answered_as_that_rule_says_and_the_others_are_judged(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_rule: Any, pod: Pod, *_: Any) -> Iterator[str]:
            *others, _last = pod.spec.containers or ()
            yield from [f"no {each.name}" for each in others]
            raise ZeroDivisionError("nobody thought of it")

        judges: dict[type[PolicyRule], Any] = {**policies._RULE_CHECKERS, RequiredResources: fail}
        monkeypatch.setattr(policies, "_RULE_CHECKERS", judges)

        def response(
            policy: AdmissionPolicy, *rules: AnyPolicyRule, containers: int = 1
        ) -> dict[str, Any]:
            judged = msgspec.structs.replace(policy, rules=rules)
            named = [{**container(), "name": f"c{index}"} for index in range(containers)]
            return answer(door(judged).validate(review({"containers": named})))

        failing = RequiredResources(id="sized")
        why = "sized: the rule cannot be judged: ZeroDivisionError: nobody thought of it"
        assert response(OPEN, failing)["warnings"] == [why]
        assert response(CLOSED, failing)["status"]["message"] == why
        both = response(OPEN, failing, self.NO_BEST_EFFORT)
        assert both["status"]["message"] == "no-be: the pod is BestEffort"
        assert both["warnings"] == [why]
        assert response(OPEN, failing, containers=2)["status"]["message"] == "sized: no c0"
        closed = msgspec.structs.replace(failing, on_error="refuse")
        assert not response(OPEN, closed)["allowed"]
        opened = msgspec.structs.replace(failing, on_error="allow")
        assert response(CLOSED, opened)["allowed"]

    def test_outside_of_all_rules_is_answered_as_the_policy_says(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*_: Any) -> None:
            raise ZeroDivisionError("again")

        monkeypatch.setattr(admission, "prepare_for_storage", fail)
        spec = {"containers": [container()], "resources": {"limits": {"memory": "1Gi"}}}
        for path in ("mutate", "validate"):
            refused = answer(getattr(door(CLOSED), path)(review(spec)))
            assert refused["status"]["message"].endswith("ZeroDivisionError: again")
            assert answer(getattr(door(), path)(review(spec)))["allowed"]
        assert caplog.messages[0] == "cannot check a pod of 'shop': ZeroDivisionError: 'again'"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"containers": [container()] * 1001}, "1,001 containers"),
        ({"containers": [container()], "tolerations": [{}] * 100_001}, "100,000 values"),
        ({"containers": [{"name": "x" * 1000}]}, "1,000 characters"),
        ({"containers": [container(limits={"example.com/" + "x" * 988: 1})]}, "1,000 characters"),
        ({"containers": [container(limits={"memory": "0" * 1000})]}, "1,000 characters"),
        ({"containers": [], "overhead": {str(n): 1 for n in range(10_001)}}, "10,001 requests"),
    ],
)
def test_a_pod_larger_than_any_that_runs_is_answered_as_the_policy_says(
    spec: dict[str, Any], why: str
) -> None:
    assert why in answer(door().validate(review(spec)))["warnings"][0]
    refused = answer(door(CLOSED).validate(review(spec)))
    assert why in refused["status"]["message"]
    assert len(refused["status"]["message"]) < 300


@pytest.mark.parametrize("wide", ["\N{GRINNING FACE}", "\N{CJK UNIFIED IDEOGRAPH-4E2D}"])
@pytest.mark.parametrize("is_escaped", [True, False])
def test_a_large_text_with_a_wide_character_is_never_decoded(wide: str, is_escaped: bool) -> None:
    """That would take up to four times the memory of the review."""
    spec = {"containers": [{**container(), "name": wide + "x" * (8 << 20)}]}
    body = review(spec)
    if not is_escaped:
        body = body.replace(json.dumps(wide)[1:-1].encode(), wide.encode())
    tracemalloc.start()
    try:
        answers = [answer(door(policy).validate(body)) for policy in (CLOSED, OPEN)]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    refused, let_through = answers
    assert (refused["allowed"], let_through["allowed"]) == (False, True)
    why = "memqos cannot check this pod: it has more than 8Mi and characters beyond U+00FF"
    assert (refused["status"]["message"], let_through["warnings"]) == (why, [why])


@pytest.mark.parametrize("uid", ["", "x" * 254])
def test_nor_is_the_uid_of_such_a_review_if_it_is_none(uid: str) -> None:
    spec = {"containers": [{**container(), "name": "\N{GRINNING FACE}" + "x" * (8 << 20)}]}
    with pytest.raises(InputError, match="no uid of at most 253 characters"):
        door(CLOSED).validate(review(spec, uid=uid))


def test_a_patch_larger_than_any_that_helps_is_not_sent() -> None:
    limits = {f"hugepages-{number}Ki": f"{number}Ki" for number in range(1, 2000)}
    spec = {"containers": [container()], "resources": {"limits": limits}}
    assert "its patch has" in answer(door().mutate(review(spec)))["warnings"][0]
    assert not answer(door(CLOSED).mutate(review(spec)))["allowed"]


@pytest.mark.parametrize("mode", ["refuse", "warn"])
def test_an_answer_names_some_of_many_faults_and_how_many_there_are(mode: PolicyMode) -> None:
    policy = msgspec.structs.replace(OPEN, rules=(RequiredResources(id="sized", mode=mode),))
    containers = [{**container(), "name": f"c{index}", "image": "app"} for index in range(900)]
    response = answer(door(policy).validate(review({"containers": containers})))
    if mode == "refuse":
        texts = response["status"]["message"].split("; ")
        assert len(response["status"]["message"]) <= 4096
        assert texts[-1] == f"and {1800 - (len(texts) - 1)} more"
    else:
        texts = response["warnings"]
        assert sum(map(len, texts)) <= 4096
        assert texts[-1] == f"and {1800 - 15} more warnings of memqos"
    assert texts[0] == "sized: container c0 has no memory in its requests"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        review({}, uid="x" * 254),
        b"{",
        b"\xff",
        b"{}",
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        b'{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_review_is_refused(body: bytes) -> None:
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


def test_a_container_more_is_judged_by_few_calls() -> None:
    rules = (
        ForbidClass(id="no-be", forbid=("BestEffort",)),
        LimitRatio(id="near", most=2),
        policies.ResourceBounds(id="sane", least="64Mi", most="8Gi"),
    )
    at_the_door = door(msgspec.structs.replace(OPEN, rules=rules))
    sizes = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}

    def calls(containers: int) -> int:
        each = [{**container(**sizes), "name": f"c{index}"} for index in range(containers)]
        body = review({"containers": each})
        assert at_the_door.validate(body).warnings == ()
        counted: Counter[str] = Counter()
        before = sys.getprofile()
        sys.setprofile(lambda _frame, event, _of: counted.update([event]))
        try:
            at_the_door.validate(body)
        finally:
            sys.setprofile(before)
        return counted["call"] + counted["c_call"]

    # No number of the policy is read again, and no text is a call: the webhook's cost is that.
    assert calls(110) - calls(10) < 100 * 50


def test_pointers_are_escaped() -> None:
    assert pointer(("spec", "a/b~c")) == "/spec/a~1b~0c"
