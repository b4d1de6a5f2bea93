"""Reads which machines a test module wants, without importing it."""

import ast
from collections.abc import Collection, Iterable
from pathlib import Path

from msgspec import structs

from memqos.lab.vm.topology import SUITES, Suite, Topology

NAME = "MACHINES"
DEFAULT: Suite = "bookworm"


class Undeclared(Exception):
    """A module in tests/vm/guest that does not say which machines it runs on."""


def machines_of(module: Path) -> dict[str, Topology]:
    """The module's `MACHINES = {"name": Topology(...), ...}`, all of whose values are literals."""
    for statement in ast.parse(module.read_bytes()).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys, values)) if (
                name == NAME
            ):
                return {
                    _name(key, module): _topology(value, module)
                    for key, value in zip(keys, values, strict=True)
                }
    raise Undeclared(f'{module.name} needs a line such as {NAME} = {{"small": Topology()}}')


def shared(modules: Iterable[Path]) -> list[tuple[list[Path], Topology]]:
    """Modules that want the same machine, to be run in one: booting takes longer than most tests.

    Where systemd owns the cgroups a module may leave units behind, so it has a machine of its own.
    """
    found: dict[tuple[Topology, Path | None], list[Path]] = {}
    for module in modules:
        for topology in machines_of(module).values():
            alone = module if topology.init == "systemd" else None
            found.setdefault((topology, alone), []).append(module)
    return [(together, topology) for (topology, _), together in found.items()]


def in_suites(
    groups: Iterable[tuple[list[Path], Topology]], suites: Collection[Suite], smoke: Collection[str]
) -> list[tuple[list[Path], Topology]]:
    """The groups as they are, and again on other systems: whole in `suites`, else `smoke` alone.

    A module that names a suite is about that one.
    """
    found = []
    for modules, topology in groups:
        found.append((modules, topology))
        if topology.suite != DEFAULT:
            continue
        for suite in SUITES:
            chosen = [each for each in modules if suite in suites or each.stem in smoke]
            if suite != DEFAULT and chosen:
                found.append((chosen, structs.replace(topology, suite=suite)))
    return found


def _name(key: ast.expr | None, module: Path) -> str:
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return key.value
    raise Undeclared(f"{NAME} in {module.name}: the names are plain strings")


def _topology(call: ast.expr, module: Path) -> Topology:
    match call:
        case ast.Call(func=ast.Name(id=Topology.__name__), args=[], keywords=keywords):
            try:
                return Topology(
                    **{word.arg: ast.literal_eval(word.value) for word in keywords if word.arg}
                )
            except (TypeError, ValueError) as error:
                raise Undeclared(f"{NAME} in {module.name}: {error}") from error
    raise Undeclared(f"{NAME} in {module.name}: write each machine as Topology(name=value, ...)")
