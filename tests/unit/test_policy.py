"""Rules of a platform, and the pods that break them."""

from typing import Any

import pytest
from tests.builders import box, pod

from memqos.errors import InputError
from memqos.findings.policy import AdmissionPolicy, policy_breaches, policy_from_document
from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import Pod
from memqos.manifests.documents import Document, read_documents
from memqos.release import Release

RELEASE = Release.of("1.36")
HEAD = "apiVersion: memqos.io/v1alpha1\nkind: AdmissionPolicy\n"


def document(text: str) -> Document:
    (found,) = read_documents(text.encode(), "policy.yaml")
    assert isinstance(found, Document), found
    return found


def policy(*rules: str, head: str = "") -> AdmissionPolicy:
    return policy_from_document(
        document(f"{HEAD}{head}rules:\n" + "".join(f"- {{{r}}}\n" for r in rules))
    )


def broken(rules: AdmissionPolicy, found: Pod, namespace: str = "shop") -> list[str]:
    shape = apply_defaults(found, RELEASE)
    return [f"{b.mode} {b}" for b in policy_breaches(rules, found, shape, namespace, RELEASE)]


def sized(request: str | None = None, limit: str | None = None, **more: Any) -> Pod:
    return pod([box(request, limit)], **more)


class TestAClass:
    RULES = policy("id: no-be, check: class, forbid: [BestEffort], only: {namespaces: [shop]}")

    def test_that_is_forbidden_is_reported(self) -> None:
        assert broken(self.RULES, sized()) == ["refuse no-be: the pod is BestEffort"]

    def test_that_is_not_is_fine(self) -> None:
        assert broken(self.RULES, sized("1Gi")) == []

    def test_is_not_looked_at_in_other_namespaces(self) -> None:
        assert broken(self.RULES, sized(), "test") == []


class TestALimit:
    RULES = policy("id: near, check: limit-ratio, most: 2, mode: warn, hint: ask us")

    def test_may_be_as_far_above_the_request_as_the_rule_says(self) -> None:
        assert broken(self.RULES, sized("1Gi", "2Gi")) == []

    def test_further_above_breaks_it_and_the_hint_is_reported(self) -> None:
        (message,) = broken(self.RULES, sized("1Gi", "2560Mi"))
        assert message == (
            "warn near: container c0 has a memory limit of 2560Mi, 2.5 times its request of "
            "1Gi; at most 2 times is allowed – ask us"
        )

    @pytest.mark.parametrize(("limit", "ok"), [("24696061952", True), ("24696061953", False)])
    def test_is_held_against_the_ratio_as_written_to_the_byte(self, limit: str, ok: bool) -> None:
        # 2.3 times 10Gi; the float next to 2.3 is less than that.
        rules = policy("id: near, check: limit-ratio, most: 2.3")
        assert (broken(rules, sized("10Gi", limit)) == []) == ok

    def test_at_the_pod_level_stands_for_all_containers(self) -> None:
        resources = {"requests": {"memory": "1Gi"}, "limits": {"memory": "4Gi"}}
        (message,) = broken(self.RULES, sized("1Mi", "1Gi", resources=resources))
        assert message.startswith("warn near: the pod has a memory limit of 4Gi, 4 times")

    def test_is_missing_where_neither_container_nor_pod_has_one(self) -> None:
        rules = policy("id: limited, check: required, of: [limits]")
        assert broken(rules, sized("1Gi")) == [
            "refuse limited: container c0 has no memory in its limits"
        ]
        resources = {"limits": {"memory": "4Gi"}}
        assert broken(rules, sized("1Gi", resources=resources)) == []

    @pytest.mark.parametrize(
        ("limit", "ok"), [("63Mi", False), ("64Mi", True), ("8Gi", True), ("8193Mi", False)]
    )
    def test_lies_within_bounds(self, limit: str, ok: bool) -> None:
        rules = policy("id: sane, check: bounds, least: 64Mi, most: 8Gi")
        assert (broken(rules, sized("1Mi", limit)) == []) == ok


def test_labels_choose_pods() -> None:
    rules = policy("id: no-be, check: class, forbid: [BestEffort], only: {labels: 'tier in (web)'}")
    assert broken(rules, sized()) == []
    assert broken(rules, sized(labels={"tier": "web"}))


def test_a_rule_without_a_mode_takes_that_of_the_policy() -> None:
    rules = policy("id: no-be, check: class, forbid: [BestEffort]", head="mode: warn\n")
    assert broken(rules, sized()) == ["warn no-be: the pod is BestEffort"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod\n", "policy.yaml:1:7: kind: 'Pod' is no policy"),
        (
            HEAD + "rules:\n- {id: a, check: clas}\n",
            "policy.yaml:4:18: rules[0].check: invalid value 'clas' – one of class, required, ",
        ),
        (HEAD + "rules:\n- {id: a, check: limit-ratio}\n", "rules[0].most: required, but missing"),
        (HEAD + "rules:\n- {id: a, check: limit-ratio, most: 0.5}\n", "policy.yaml:4:37: "),
        (HEAD + "rules:\n- {id: A B, check: class, forbid: []}\n", "policy.yaml:4:8: rules[0].id"),
        (HEAD + "moed: warn\n", "unknown field moed"),
        (HEAD + "rules:\n- {id: a, check: bounds}\n", "neither least nor most is given"),
        (HEAD + "rules:\n- {id: a, check: bounds, least: 2Gi, most: 1Gi}\n", "more than most"),
        (HEAD + "rules:\n- {id: a, check: bounds, least: lots}\n", "'lots' is not a quantity"),
        (
            HEAD + "rules:\n- {id: a, check: class, forbid: [], only: {labels: 'a in b'}}\n",
            "policy.yaml:4:52: rules[0].only.labels: ",
        ),
        (
            HEAD + "rules:\n" + "- {id: a, check: class, forbid: []}\n" * 2,
            "policy.yaml:5:8: rules[1].id: 'a' is the id of two rules",
        ),
    ],
)
def test_a_wrong_policy_is_refused_where_it_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        policy_from_document(document(text))
    assert message in str(caught.value)
