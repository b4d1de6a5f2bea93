"""How the package names things: by the words of the field, one meaning a word, few modules."""

import ast
import importlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import memqos

SOURCE: Final = Path(str(memqos.__file__)).parent
IRREGULAR: Final = frozenset(
    """
    begun bound broken brought built caught chosen done drawn driven fallen forgotten found frozen
    given gone grown heard held hidden kept known laid led left lost made meant met paid put said
    seen sent shown spent split taken thrown told torn understood written
    """.split()  # noqa: SIM905
)
NOT_PARTICIPLES: Final = frozenset({"need", "feed", "seed", "speed", "exceed", "embed", "red"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> dict[str, ast.Module]:
    return {
        str(file.relative_to(SOURCE)): ast.parse(file.read_bytes())
        for file in sorted(SOURCE.rglob("*.py"))
    }


def functions() -> Iterator[Function]:
    """All but properties, which are values and may be named by what has become of something."""
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, Function) and not any(map(_is_property, node.decorator_list)):
                yield node


def _is_property(decorator: ast.expr) -> bool:
    name = decorator.attr if isinstance(decorator, ast.Attribute) else ast.unparse(decorator)
    return name == "setter" or name.endswith("property")


def is_participle(name: str) -> bool:
    """Whether the first word of a name says what was done, not what is done or what it is."""
    first = name.lstrip("_").partition("_")[0]
    return first in IRREGULAR or (first.endswith("ed") and first not in NOT_PARTICIPLES)


def test_functions_are_named_by_what_they_do_or_return() -> None:
    every = list(functions())
    by_participle = [each.name for each in every if is_participle(each.name)]
    assert len(by_participle) <= 0.03 * len(every), sorted(by_participle)


def public_names(tree: ast.Module) -> set[str]:
    """What a module defines at its top level, for others to import."""
    names = set()
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for each in targets if isinstance(each, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def test_a_public_name_means_one_thing() -> None:
    places = Counter(name for tree in modules().values() for name in public_names(tree))
    twice = {name: count for name, count in places.items() if count > 1}
    assert len(twice) <= 20, twice


def test_what_another_module_imports_is_public() -> None:
    """A name is not made private to be counted once."""
    private = [
        f"{name} imports {alias.name} of {node.module}"
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("memqos.")
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert private == []


def test_modules_are_neither_splinters_nor_drawers() -> None:
    """Features add modules; what counts is that each has one activity of a readable size."""
    lines = sorted(len(text.splitlines()) for text in map(Path.read_text, SOURCE.rglob("*.py")))
    assert 80 <= lines[len(lines) // 2] <= 180
    assert sum(count > 400 for count in lines) <= len(lines) // 20


def test_constructors_of_seven_fields_are_called_by_keywords() -> None:
    by_position = [
        f"{name}:{call.lineno} {ast.unparse(call.func)}"
        for name, tree in modules().items()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and len(call.args) > 6
        if ast.unparse(call.func).rpartition(".")[2].lstrip("_")[:1].isupper()
    ]
    assert by_position == []


FACE_THE_WORLD: Final = frozenset({"agent", "cli", "converge", "host", "lab", "library", "serve"})


def test_a_package_is_pure_unless_it_faces_the_world() -> None:
    """A new package is listed in the contract of the pure ones, or above."""
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (pure,) = [each for each in contracts if each["name"].startswith("Packages are pure")]
    every = {name.split("/")[0].removesuffix(".py") for name in modules()}
    listed = {name.removeprefix("memqos.") for name in pure["source_modules"]}
    assert listed == every - FACE_THE_WORLD - {"__init__", "__main__"}


def test_the_decision_on_names_lists_modules_that_exist() -> None:
    page = (SOURCE.parents[1] / "docs/decisions/0013-names.md").read_text()
    table = page.partition("## Modules")[2].partition("\n## ")[0]
    now = re.findall(r"^\| `([a-z_/]+)` \|", table, re.MULTILINE)
    assert len(now) > 100
    assert [name for name in now if not _is_in_package(name.replace("/", "."))] == []


def test_the_decision_on_names_lists_names_that_exist() -> None:
    page = (SOURCE.parents[1] / "docs/decisions/0013-names.md").read_text()
    table = page.partition("## Classes and functions")[2]
    now = set(re.findall(r"→ `(\w+)`", table))
    defined = {
        node.id if isinstance(node, ast.Name) else node.name
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, Function | ast.ClassDef | ast.Name)
    }
    assert len(now) > 500
    assert sorted(now - defined) == []


def test_the_architecture_page_names_modules_that_exist() -> None:
    page = (SOURCE.parents[1] / "docs/architecture.md").read_text()
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    named = {
        name
        for name in re.findall(r"\b([a-z]+(?:\.[a-z_]+)+)\b", page)
        if name.split(".")[0] in packages
    }
    missing = {name for name in named if not _is_in_package(name)}
    assert len(named) > 20
    assert not missing


def _is_in_package(dotted: str) -> bool:
    """A module, a package, or a name that a module or package defines."""
    path = SOURCE / dotted.replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    parent, _, name = dotted.rpartition(".")
    return bool(parent) and hasattr(importlib.import_module(f"memqos.{parent}"), name)
