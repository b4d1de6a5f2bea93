"""Reads JUnit XML: what became of each test."""

import re
from typing import Literal, NamedTuple
from xml.etree import ElementTree

Verdict = Literal["passed", "failed", "skipped"]

_VERDICTS: dict[str, Verdict] = {"failure": "failed", "error": "failed", "skipped": "skipped"}


class Case(NamedTuple):
    name: str
    verdict: Verdict
    text: str
    """Why it failed or was skipped, and what it printed."""


def cases(xml: bytes) -> list[Case]:
    """Every test in the report, in the order they ran; none where there is no report."""
    if not xml.strip():
        return []
    return [_case(element) for element in ElementTree.fromstring(xml).iter("testcase")]


def _case(element: ElementTree.Element) -> Case:
    verdicts = {_VERDICTS[child.tag] for child in element if child.tag in _VERDICTS}
    verdict: Verdict = "failed" if "failed" in verdicts else next(iter(verdicts), "passed")
    texts = (_text_of(child) for child in element)
    return Case(element.get("name", ""), verdict, "\n".join(text for text in texts if text))


def _text_of(element: ElementTree.Element) -> str:
    text = (element.text or element.get("message") or "").strip("\n")
    # pytest writes a heading also over output that is empty.
    return "" if re.fullmatch(r"-+ Captured \w+ -+\s*", text) else text
