"""Links lead somewhere, and every page is found: what `make docs` checks, without its packages."""

import re
import runpy
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

import click
import pytest

from memqos.cli.main import cli

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
SITE: Final = [*sorted(DOCS.glob("*.md")), *sorted((DOCS / "commands").glob("*.md"))]
PAGES: Final = [*sorted(ROOT.glob("*.md")), *SITE, *sorted((DOCS / "decisions").glob("*.md"))]
LINK: Final = re.compile(r"\[[^\]\n]*(?:\n[^\]\n]+)?\]\(([^)\s]+)\)")
CODE_BLOCK: Final = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
CODE: Final = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[str]:
    """The targets in this repository."""
    found = LINK.findall(CODE.sub("", page.read_text()))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """What headings are linked by: lower case, without punctuation, blanks as hyphens."""
    headings = re.findall(r"^#+ +(.+)$", CODE_BLOCK.sub("", page.read_text()), re.MULTILINE)
    plain = (re.sub(r"\]\([^)]*\)", "", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def is_broken(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    # The site has files of other folders as downloads; a folder is no page of it.
    missing = not (target.is_file() if page.is_relative_to(DOCS) else target.exists())
    return missing or (bool(anchor) and anchor not in anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_of_a_page_is_broken(page: Path) -> None:
    assert [link for link in links(page) if is_broken(page, link)] == []


def test_every_page_is_linked_from_the_first_one_and_in_the_navigation() -> None:
    index = DOCS / "index.md"
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in links(index)}
    pages = {page for page in SITE if page != index}
    assert {page.name for page in pages - linked} == set()
    patterns = " ".join(runpy.run_path(str(DOCS / "conf.py"))["NAVIGATION"].values()).split()
    names = {str(page.relative_to(DOCS).with_suffix("")) for page in pages}
    assert {name for name in names if not any(fnmatch(name, each) for each in patterns)} == set()
    assert {each for each in patterns if "*" not in each} <= names


def test_every_command_has_a_page() -> None:
    pages = {page.stem for page in (DOCS / "commands").glob("*.md")}
    assert pages == set(cli.list_commands(click.Context(cli))) - {"completion"}
