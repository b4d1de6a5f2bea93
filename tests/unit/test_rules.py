"""One registry of rules: each id is defined once, with one text, and everybody quotes that."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.commands import ROOT, memqos

from memqos.findings.catalogue import AUDIT_RULES, DOCTOR_RULES, RULES_BY_ID
from memqos.plan.rules import RULES

LISTED = """
    pod/oom-killed pod/invalid pod/node-refuses pod/downgrade pod/exit-137 pod/evicted pod/tmpfs
    pod/hpa pod/throttled pod/no-request pod/above-request pod/idle-request pod/high-limit
    pod/no-limit pod/pod-level pod/restarts node/kernel node/runtime node/cgroup-v1 node/skew
    node/os node/overcommitted node/hard-protection node/lost-low node/unasked node/full
    node/hugepages node/limits node/swap namespace/no-limit-range namespace/quota machine/cgroup-v2
    machine/kernel machine/runtime machine/nri machine/swap machine/zram machine/thrashing
    machine/psi machine/recursive-protection tree/memory-controller tree/driver tree/memory-min
    tree/stale agent/unmanaged agent/left-alone agent/manages agent/pending tree/differs
    throttling/livelock throttling/unreclaimable throttling/now throttling/before
    protection/lost-min protection/lost-low protection/unasked-min protection/unasked-low
    protection/unknown plan/refused plan/terms plan/pods plan/unresolved plan/unnamed
    numa/pod-level
""".split()  # noqa: SIM905
SOURCES = sorted((ROOT / "src" / "memqos").rglob("*.py"))
IDS = {*RULES, *RULES_BY_ID}


@cache
def nodes() -> list[tuple[Path, ast.Constant | ast.Call]]:
    """The literals and calls of the whole source."""
    return [
        (source, node)
        for source in SOURCES
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Constant | ast.Call)
    ]


def literals() -> Iterator[tuple[Path, str]]:
    for source, node in nodes():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield source, node.value


def definitions() -> Iterator[str]:
    """The ids of all rules that the source defines with a literal."""
    for _, node in nodes():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Rule", "RuleInfo"):
            id = node.args[0]
            if isinstance(id, ast.Constant):
                yield str(id.value)


def test_every_rule_is_defined_once_and_registered() -> None:
    assert sorted(definitions()) == sorted(IDS)
    assert not RULES.keys() & RULES_BY_ID.keys()
    assert len(RULES_BY_ID) == len(AUDIT_RULES) + len(DOCTOR_RULES)


def test_no_id_of_a_rule_is_spelled_anywhere_else() -> None:
    spelled = sorted(text for _, text in literals() if text in IDS)
    assert spelled == sorted(IDS)
    pieces = [
        (source.name, text)
        for source, text in literals()
        if text.endswith("-") and any(id.startswith(text) and "/" in text for id in IDS)
    ]
    assert pieces == []


def test_no_text_of_a_rule_is_spelled_twice() -> None:
    times = Counter(text for _, text in literals())
    # A finding's rule has a short text, and may share it with another command's.
    assert [rule.id for rule in RULES.values() if times[rule.text] != 1] == []


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_has_a_text_and_a_source(rule: object) -> None:
    assert getattr(rule, "text", "")
    assert getattr(rule, "source", "")


def test_the_command_lists_the_rules_of_audit_and_doctor() -> None:
    assert [each["id"] for each in memqos("rules", "-o", "json").data] == LISTED


def test_a_rule_that_differs_from_a_document_says_so_and_is_on_the_page_of_differences() -> None:
    page = (ROOT / "docs" / "differences.md").read_text()
    differing = {rule.id: rule.differs for rule in RULES.values() if rule.differs is not None}
    assert {"high/neither", "gate-off", "eviction/rank", "oom/burstable"} <= set(differing)
    for rule, words in differing.items():
        assert f"`{rule}`" in page
        assert "kubelet 1." in words, rule
