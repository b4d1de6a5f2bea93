"""Label selectors mean what they mean to Kubernetes."""

import pytest

from memqos.errors import InputError
from memqos.kube.selector import Requirement, matches, requirements

WEB = {"tier": "web", "team": "a", "empty": ""}


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "  ",
        "tier",
        "tier=web",
        "tier==web",
        "tier = web , team = a",
        "tier in (web,db)",
        "tier in ( db , web )",
        "tier notin (db)",
        "tier!=db",
        "!batch",
        "! batch",
        "batch!=true",
        "batch notin (true)",
        "empty=",
        "empty in ()",
        "empty in (x,)",
        "tier=web,!batch,team in (a)",
        "in notin (x)",
    ],
)
def test_a_selector_picks_labels_that_meet_all_of_it(selector: str) -> None:
    assert matches(selector, WEB)


@pytest.mark.parametrize(
    "selector",
    [
        "batch",
        "tier=db",
        "tier=",
        "tier in (db)",
        "tier notin (web)",
        "tier!=web",
        "!tier",
        "tier=web,batch",
        "batch in ()",
        "batch=true",
    ],
)
def test_a_selector_picks_nothing_else(selector: str) -> None:
    assert not matches(selector, WEB)


@pytest.mark.parametrize(
    ("selector", "complaint"),
    [
        ("tier in (web", "expected ')', got the end"),
        ("tier in web", "expected '(', got 'web'"),
        ("tier web", "got 'web'"),
        ("=web", "a label's name, got '='"),
        ("tier=web,", "a label's name, got the end"),
        (",tier", "a label's name, got ','"),
        ("tier=a=b", "expected ',', got '='"),
        ("!", "a label's name, got the end"),
        ("!tier=web", "expected ',', got '='"),
        ("cpu>3", "got '>'"),
        ("a/b/c", "a label's name"),
        ("-tier", "a label's name"),
        ("UPPER.example/x", "a label's name"),
        (f"{'a' * 64}=x", "a label's name"),
        (f"tier={'a' * 64}", "a label's value"),
        ("tier=a b", "expected ',', got 'b'"),
        ("tier in (a b)", "expected ')', got 'b'"),
    ],
)
def test_what_is_no_selector_is_refused_with_an_example(selector: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        requirements(selector)
    assert complaint in str(caught.value)
    assert "tier in (web, db)" in str(caught.value)


def test_names_may_have_a_domain() -> None:
    (requirement,) = requirements("app.kubernetes.io/name in (web, db)")
    assert requirement == Requirement("app.kubernetes.io/name", "in", frozenset({"web", "db"}))
