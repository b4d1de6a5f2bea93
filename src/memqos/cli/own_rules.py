"""Rules of other Python packages, for those commands that only judge.

A package offers them as entry points of the group `memqos.rules`. Its code runs with the rights of
the user of the command, so it is imported only where the command line names the package, and no
command that writes, serves or runs unattended takes the option.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import click
import msgspec

from memqos.errors import InputError, quote_excerpt
from memqos.findings.catalogue import RULES_BY_ID
from memqos.findings.finding import Finding

_GROUP: Final = "memqos.rules"
_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]*/[a-z0-9][a-z0-9-]*")
_OUR_GROUPS: Final = frozenset([id.partition("/")[0] for id in RULES_BY_ID])

RuleKind = Literal["node", "cluster", "pod"]
"""What a rule judges, for doctor, audit and admit: the name of its entry point."""

rules_option = click.option(
    "--rules",
    "packages",
    multiple=True,
    metavar="PACKAGE",
    help="Also apply the rules of this installed Python package. Its code is run.",
)


class OwnRule(msgspec.Struct, frozen=True):
    """A rule that is not memqos's. Called, it gives findings that have been checked."""

    package: str
    name: str
    judge: Callable[..., Iterable[Finding]]

    def __call__(self, *facts: object) -> list[Finding]:
        try:
            found = list(self.judge(*facts))
        except Exception as error:  # whatever another package may raise
            raise InputError(
                f"{self._text} failed: {type(error).__name__}: {error}",
                hint="the package has to be fixed, or run without --rules",
            ) from error
        for finding in found:
            self._check(finding)
        return found

    def _check(self, finding: object) -> None:
        if not isinstance(finding, Finding):
            raise InputError(f"{self._text} gave a {type(finding).__name__}, not a Finding")
        try:
            # A struct takes any value when it is made; this compares it with its types.
            msgspec.convert(msgspec.to_builtins(finding), Finding)
        except (msgspec.ValidationError, TypeError) as error:
            raise InputError(f"{self._text} gave a wrong Finding: {error}") from None
        group = finding.rule.partition("/")[0]
        if not _ID.fullmatch(finding.rule):
            raise InputError(
                f"{self._text} gave the id {quote_excerpt(finding.rule)}",
                hint="an id is group/name, of small letters, digits and hyphens",
            )
        if group in _OUR_GROUPS:
            raise InputError(
                f"{self._text} gave the id {finding.rule}, and the group {group} is memqos's own",
                hint="use a group of your own, such as the name of your team",
            )

    @property
    def _text(self) -> str:
        return f"the rule {self.name} of {self.package}"


def load_rules(packages: Iterable[str], kind: RuleKind) -> list[OwnRule]:
    """The rules of one kind in these packages, each of which must have one."""
    return [_load_rule(package, kind) for package in dict.fromkeys(packages)]


def is_own_group(id: str) -> bool:
    """Whether a rule or group may be that of another package."""
    return id.partition("/")[0] not in _OUR_GROUPS


def _load_rule(package: str, kind: RuleKind) -> OwnRule:
    from importlib import metadata  # a third of what audit imports, for those who name a package

    try:
        offered = metadata.distribution(package).entry_points.select(group=_GROUP)
    except (metadata.PackageNotFoundError, ValueError):
        raise InputError(
            f"the package {quote_excerpt(package)} is not installed",
            field="--rules",
            hint="install it beside memqos, in the same environment",
        ) from None
    by_kind = {each.name: each for each in offered}
    if kind not in by_kind:
        has = f"only for {', '.join(sorted(by_kind))}" if by_kind else "none at all"
        raise InputError(
            f"{package} has no rule for a {kind}, {has}",
            field="--rules",
            hint=f'it needs an entry point "{kind}" in the group {_GROUP}',
        )
    entry = by_kind[kind]
    try:
        judge: Any = entry.load()
    except Exception as error:  # whatever importing another package may raise
        raise InputError(
            f"the rule {entry.value} of {package} cannot be imported: "
            f"{type(error).__name__}: {error}",
            field="--rules",
        ) from error
    if not callable(judge):
        raise InputError(
            f"{entry.value} of {package} is a {type(judge).__name__}, not a function",
            field="--rules",
        )
    return OwnRule(package, entry.value, judge)
