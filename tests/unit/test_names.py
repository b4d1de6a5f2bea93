"""How the package names things: by the words of the field, one meaning a word, few modules."""

import ast
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


def test_there_are_few_modules() -> None:
    assert len(modules()) <= 350
