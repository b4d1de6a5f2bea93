"""An admission policy: a platform's rules for new pods, which refuse or warn."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from memqos.errors import InputError, quote_excerpt
from memqos.kube.aggregate import has_pod_level
from memqos.kube.pod import Pod, QosClass
from memqos.kube.qos import qos_class
from memqos.kube.quantity import Quantity, milli_of, times
from memqos.kube.resources import MEMORY, Resources, legible
from memqos.kube.selector import Selector, requirements
from memqos.kube.shape import Part, Shape, containers_of
from memqos.manifests.documents import Document, decoding_error
from memqos.manifests.positions import FieldPath
from memqos.release import Release

POLICY_API_VERSION: Final = "memqos.io/v1alpha1"
POLICY_KIND: Final = "AdmissionPolicy"

PolicyMode = Literal["refuse", "warn"]
OnError = Literal["allow", "refuse"]
_Side = Literal["requests", "limits"]
_SIDES: Final[tuple[_Side, ...]] = ("requests", "limits")

PolicyRuleId = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        extra={"words": "an id of small letters, digits and dashes"},
    ),
]
Ratio = Annotated[float, Meta(ge=1, extra={"words": "a number from 1 on"})]


class PolicyRule(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    tag_field="check",
    forbid_unknown_fields=True,
):
    """What all rules have in common."""

    id: PolicyRuleId
    only: Selector = Selector()
    """The pods it is about."""
    mode: PolicyMode | None = None
    """None: as the policy says."""
    on_error: OnError | None = None
    """The same."""
    hint: str | None = None
    """A sentence of the platform's own, such as a contact."""


class ForbidClass(PolicyRule, frozen=True, kw_only=True, tag="class"):
    """Pods of these QoS classes are refused."""

    forbid: tuple[QosClass, ...]


class RequiredResources(PolicyRule, frozen=True, kw_only=True, tag="required"):
    """Every container, or the pod as a whole, has a request or limit."""

    resource: str = MEMORY
    of: tuple[_Side, ...] = _SIDES


class LimitRatio(PolicyRule, frozen=True, kw_only=True, tag="limit-ratio"):
    """A limit is at most so many times the request."""

    resource: str = MEMORY
    most: Ratio


class ResourceBounds(PolicyRule, frozen=True, kw_only=True, tag="bounds"):
    """The request or the limit of a container lies between these amounts."""

    resource: str = MEMORY
    of: _Side = "limits"
    least: str | None = None
    most: str | None = None


AnyPolicyRule = ForbidClass | RequiredResources | LimitRatio | ResourceBounds


class AdmissionPolicy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Rules, and what happens where they are broken or cannot be judged."""

    api_version: Literal["memqos.io/v1alpha1"]
    kind: Literal["AdmissionPolicy"]
    mode: PolicyMode = "refuse"
    on_error: OnError = "allow"
    """What happens to a pod that memqos itself cannot judge: fail open or closed."""
    rules: tuple[AnyPolicyRule, ...] = ()


class PolicyBreach(msgspec.Struct, frozen=True):
    """A rule that a pod does not keep."""

    rule: str
    mode: PolicyMode
    what: str
    hint: str | None = None
    source: str = "the policy"
    """Whose rule it is."""

    def __str__(self) -> str:
        text = f"{self.rule}: {self.what}"
        return text if self.hint is None else f"{text} – {self.hint}"


def policy_breaches(
    policy: AdmissionPolicy,
    pod: Pod,
    shape: Shape,
    namespace: str,
    release: Release,
    before: tuple[Pod, Shape] | None = None,
) -> list[PolicyBreach]:
    """All rules that a pod does not keep, in the policy's order.

    Where `before` is given, breaches which that pod has as well are skipped. A rule that fails is
    a breach or a warning as its `on_error` says, and the others are judged nevertheless.
    """
    found: list[PolicyBreach] = []
    for rule in policy.rules:
        broken: list[str] = []
        failure = None
        try:
            if rule.only.picks(pod, namespace):
                judge = _RULE_CHECKERS[type(rule)]
                broken += judge(rule, pod, shape, release)
                if before is not None:
                    old = set(judge(rule, *before, release))
                    broken = [what for what in broken if what not in old]
        except Exception as error:  # whatever a pod may bring about
            closed = (rule.on_error or policy.on_error) == "refuse"
            what = f"the rule cannot be judged: {type(error).__name__}: {error}"
            failure = PolicyBreach(rule.id, "refuse" if closed else "warn", what)
        # What was found before a rule failed counts: one container must not hide another.
        found += [
            PolicyBreach(rule.id, rule.mode or policy.mode, what, rule.hint) for what in broken
        ]
        if failure is not None:
            found.append(failure)
    return found


def _class_breaches(rule: ForbidClass, pod: Pod, shape: Shape, release: Release) -> Iterator[str]:
    found = qos_class(shape, release)
    if found in rule.forbid:
        yield f"the pod is {found}"


def _missing_breaches(
    rule: RequiredResources, pod: Pod, shape: Shape, release: Release
) -> Iterator[str]:
    for side in rule.of:
        for where, stanza in _stanzas(pod, shape, rule.resource, (side,), release):
            if not _amount(stanza, side, rule.resource):
                yield f"{where} has no {rule.resource} in its {side}"


def _ratio_breaches(rule: LimitRatio, pod: Pod, shape: Shape, release: Release) -> Iterator[str]:
    for where, stanza in _stanzas(pod, shape, rule.resource, _SIDES, release):
        request, limit = stanza.requests.get(rule.resource), stanza.limits.get(rule.resource)
        if not (request and limit):
            continue
        numerator, denominator = _exact(rule.most)
        if limit * denominator > request * numerator:
            yield (
                f"{where} has a {rule.resource} limit of {legible(rule.resource, limit)}, "
                f"{times(limit, request)} times its request of {legible(rule.resource, request)}; "
                f"at most {rule.most:g} times is allowed"
            )


def _bounds_breaches(
    rule: ResourceBounds, pod: Pod, shape: Shape, release: Release
) -> Iterator[str]:
    least = None if rule.least is None else milli_of(rule.least)
    most = None if rule.most is None else milli_of(rule.most)
    for where, stanza in _stanzas(pod, shape, rule.resource, (rule.of,), release):
        amount = _amount(stanza, rule.of, rule.resource)
        if amount is None:
            continue
        faults = []
        if least is not None and amount < least:
            faults.append(f"at least {rule.least} is required")
        if most is not None and amount > most:
            faults.append(f"at most {rule.most} is allowed")
        for fault in faults:
            size = legible(rule.resource, amount)
            yield f"{where} has {size} of {rule.resource} in its {rule.of}; {fault}"


_RULE_CHECKERS: Final[
    dict[type[PolicyRule], Callable[[Any, Pod, Shape, Release], Iterator[str]]]
] = {
    ForbidClass: _class_breaches,
    RequiredResources: _missing_breaches,
    LimitRatio: _ratio_breaches,
    ResourceBounds: _bounds_breaches,
}
POLICY_CHECKS: Final = tuple(str(rule.__struct_config__.tag) for rule in _RULE_CHECKERS)
"""What a rule may check, as files name it."""


@lru_cache
def _exact(ratio: float) -> tuple[int, int]:
    """A number as it is written: of 1.1, eleven tenths and not the float next to it.

    A policy has a few of them, and every container of every pod is compared with one.
    """
    return Fraction(repr(ratio)).as_integer_ratio()


def _amount(stanza: Part | Resources, side: _Side, resource: str) -> int | None:
    return (stanza.requests if side == "requests" else stanza.limits).get(resource)


def _stanzas(
    pod: Pod, shape: Shape, resource: str, sides: tuple[_Side, ...], release: Release
) -> Iterator[tuple[str, Part | Resources]]:
    """The resources that rules judge: the pod's if they are complete, else its containers'.

    Ephemeral containers have no resources and are skipped.
    """
    of_pod = shape.pod if has_pod_level(shape, release) else None
    if of_pod is not None and all(_amount(of_pod, side, resource) for side in sides):
        yield "the pod", of_pod
        return
    for container, part in zip(containers_of(pod), shape.parts, strict=True):
        if part.role != "ephemeral":
            yield f"container {container.name}", part


def policy_from_document(document: Document) -> AdmissionPolicy:
    """The policy that a document holds; raise InputError where it holds none, or a wrong one."""
    if document.kind != POLICY_KIND:
        raise document.error(
            f"{quote_excerpt(document.kind)} is no policy"
            if document.kind
            else "required, but missing",
            "kind",
            f"write kind: {POLICY_KIND} and apiVersion: {POLICY_API_VERSION}",
        )
    try:
        policy = msgspec.convert(document.data, AdmissionPolicy)
    except msgspec.ValidationError as error:
        fault = decoding_error(error, document.data, document)
        if fault.field is not None and fault.field.endswith(".check"):
            fault.hint = f"one of {', '.join(POLICY_CHECKS)}"
        raise fault from None
    for fault in _policy_faults(policy, document):
        raise fault
    return policy


def _policy_faults(policy: AdmissionPolicy, document: Document) -> Iterator[InputError]:
    known: set[str] = set()
    for index, rule in enumerate(policy.rules):
        here: FieldPath = ("rules", index)
        if rule.id in known:
            yield document.error(f"{quote_excerpt(rule.id)} is the id of two rules", (*here, "id"))
        known.add(rule.id)
        try:
            requirements(rule.only.labels)
        except InputError as error:
            yield document.error(error.what, (*here, "only", "labels"), error.hint)
        if isinstance(rule, ResourceBounds):
            yield from _bounds_faults(rule, document, here)


def _bounds_faults(
    rule: ResourceBounds, document: Document, here: FieldPath
) -> Iterator[InputError]:
    if rule.least is None and rule.most is None:
        yield document.error("neither least nor most is given", here, "give one of them")
    found: dict[str, Quantity] = {}
    for name, text in (("least", rule.least), ("most", rule.most)):
        if text is None:
            continue
        try:
            found[name] = Quantity.parse(text)
        except InputError as error:
            yield document.error(error.what, (*here, name), error.hint)
    if len(found) == 2 and found["least"] > found["most"]:
        yield document.error("least is more than most", (*here, "least"))
