"""Pages use the field's words: spelling is codespell's (make lint), phrases are checked here."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "commands").glob("*.md")),
]
NO_PROSE = re.compile(
    r"^ *```.*?^ *```$|^ {4}[^\n]*$|^\| `[a-z]+_[^\n]*$|`[^`\n]*`|\]\([^)]*\)",
    re.DOTALL | re.MULTILINE,
)
"""Blocks of code, metrics with their help, code within a line, and the targets of links."""


def avoided() -> dict[str, str]:
    """Each phrase with what to write instead."""
    lines = (ROOT / "tests" / "words" / "avoid.txt").read_text().splitlines()
    pairs = (line.partition(" = ") for line in lines if not line.startswith("#"))
    return {phrase: instead for phrase, _, instead in pairs}


def prose(text: str) -> str:
    """The text without code, every line where it was."""
    return NO_PROSE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)


def pattern(phrase: str) -> str:
    """Whole words, also across the end of a line."""
    return r"\b" + r"\s+".join(phrase.split()) + r"\b"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_plain_words(page: Path) -> None:
    text = prose(page.read_text())
    found = [
        f"{page.name}:{text.count(chr(10), 0, match.start()) + 1}: {phrase!r}: write {instead}"
        for phrase, instead in avoided().items()
        for match in re.finditer(pattern(phrase), text, re.IGNORECASE)
    ]
    assert not found, "\n".join(found)


def test_code_is_not_prose() -> None:
    page = "plain `told`\n```console\n$ told\n```\n[x](told.md)\n    told\nthe end"
    assert prose(page).split() == ["plain", "[x", "the", "end"]
    assert prose(page).count("\n") == page.count("\n")
