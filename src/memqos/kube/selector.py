"""Selectors of pods, by namespace and by label."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from memqos.errors import InputError, quote_excerpt
from memqos.kube.pod import Pod

Operator = Literal["in", "notin", "exists", "absent"]

_HINT: Final = "write for example: tier in (web, db), team=a, stage!=test, gpu, !batch"
_TOKEN: Final = re.compile(r"\s*(?:(?P<sign>==|!=|[=!(),])|(?P<word>[^\s=!(),<>]+)|(?P<odd>\S))")
_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_KEY: Final = re.compile(rf"(?:(?=.{{1,253}}/){_LABEL}(?:\.{_LABEL})*/)?{_NAME}")
_VALUE: Final = re.compile(rf"(?:{_NAME})?")


class Requirement(NamedTuple):
    """One condition on a pod's labels."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it; a missing label differs from every value."""
        if self.operator == "in":
            return labels.get(self.key) in self.values
        if self.operator == "notin":
            return labels.get(self.key) not in self.values
        return (self.key in labels) == (self.operator == "exists")


@lru_cache
def requirements(text: str) -> tuple[Requirement, ...]:
    """The conditions of a selector, all of which must be met; an empty one has none."""
    tokens = _Tokens(text)
    found: list[Requirement] = []
    while not tokens.at_end:
        if found:
            tokens.expect(",")
        found.append(_requirement(tokens))
    return tuple(found)


def matches(text: str, labels: Mapping[str, str]) -> bool:
    """Whether a selector picks something with these labels."""
    return all([requirement.holds(labels) for requirement in requirements(text)])


class _Tokens:
    """The signs and words of a selector, one after the other."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found = [match[0].strip() for match in _TOKEN.finditer(text)]
        self._next = 0

    @property
    def at_end(self) -> bool:
        return self._next == len(self._found)

    @property
    def ahead(self) -> str:
        return "" if self.at_end else self._found[self._next]

    def take(self) -> str:
        token = self.ahead
        self._next += 1
        return token

    def expect(self, sign: str) -> None:
        if self.ahead != sign:
            raise self.error(f"expected {sign!r}")
        self.take()

    def error(self, what: str) -> InputError:
        met = repr(self.ahead) if self.ahead else "the end"
        return InputError(
            f"{quote_excerpt(self._text)} is not a label selector: {what}, got {met}", hint=_HINT
        )


def _requirement(tokens: _Tokens) -> Requirement:
    absent = tokens.ahead == "!"
    if absent:
        tokens.take()
    key = _check(tokens, _KEY, "a label's name")
    if absent:
        return Requirement(key, "absent")
    operator = tokens.ahead
    if operator in ("", ","):
        return Requirement(key, "exists")
    if operator in ("=", "==", "!="):
        tokens.take()
        value = "" if tokens.ahead in ("", ",") else _check(tokens, _VALUE, "a label's value")
        return Requirement(key, "notin" if operator == "!=" else "in", frozenset({value}))
    if operator in ("in", "notin"):
        tokens.take()
        return Requirement(key, "in" if operator == "in" else "notin", _values(tokens))
    raise tokens.error("expected '=', '!=', 'in', 'notin' or ','")


def _values(tokens: _Tokens) -> frozenset[str]:
    tokens.expect("(")
    values = set()
    while True:
        empty = tokens.ahead in (",", ")")
        values.add("" if empty else _check(tokens, _VALUE, "a label's value"))
        if tokens.ahead != ",":
            break
        tokens.take()
    tokens.expect(")")
    return frozenset(values)


def _check(tokens: _Tokens, shape: re.Pattern[str], expected: str) -> str:
    if not shape.fullmatch(tokens.ahead) or not tokens.ahead:
        raise tokens.error(f"expected {expected}")
    return tokens.take()


Namespace = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", extra={"words": "the name of a namespace"}
    ),
]


class LabelExpression(msgspec.Struct, frozen=True):
    """One of a workload's `matchExpressions`."""

    key: str = ""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = "In"
    values: tuple[str, ...] | None = None

    def __str__(self) -> str:
        values = f"({','.join(self.values or ())})"
        return {
            "In": f"{self.key} in {values}",
            "NotIn": f"{self.key} notin {values}",
            "Exists": self.key,
            "DoesNotExist": f"!{self.key}",
        }[self.operator]


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """How a workload selects its pods; as text, as the API server takes it in a query."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelExpression, ...] | None = None

    def __str__(self) -> str:
        labels = [f"{key}={value}" for key, value in (self.match_labels or {}).items()]
        return ",".join([*labels, *map(str, self.match_expressions or ())])


class Selector(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Pods by namespace and label; an empty one selects all."""

    namespaces: Annotated[
        tuple[Namespace, ...], Meta(description="Only pods of these namespaces.")
    ] = ()
    not_namespaces: Annotated[
        tuple[Namespace, ...], Meta(description="No pods of these namespaces.")
    ] = ()
    labels: Annotated[
        str,
        Meta(
            description="Only pods with such labels: "
            "tier in (web, db), team=a, stage!=test, gpu, !batch."
        ),
    ] = ""

    def picks(self, pod: Pod, namespace: str | None = None) -> bool:
        """Whether a pod is selected; `namespace` is where a pod without one will be created."""
        where = namespace or pod.metadata.namespace or "default"
        labels: Mapping[str, str] = pod.metadata.labels or {}
        return (
            (not self.namespaces or where in self.namespaces)
            and where not in self.not_namespaces
            and (not self.labels or matches(self.labels, labels))
        )
