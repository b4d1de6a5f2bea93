"""A policy out of a document: what cannot hold is refused where it stands."""

from collections.abc import Iterator

import msgspec

from memqos.errors import InputError, quote_brief
from memqos.findings.policy import API_VERSION, CHECKS, KIND, Bounds, Policy
from memqos.kube.label_selection import requirements
from memqos.kube.quantity import Quantity
from memqos.manifests.documents import Document
from memqos.manifests.positions import Path
from memqos.manifests.refusals import refusal


def policy_from(document: Document) -> Policy:
    """The policy that a document holds; raise InputError where it holds none, or a wrong one."""
    if document.kind != KIND:
        raise document.refused(
            f"{quote_brief(document.kind)} is no policy"
            if document.kind
            else "required, but missing",
            "kind",
            f"write kind: {KIND} and apiVersion: {API_VERSION}",
        )
    try:
        policy = msgspec.convert(document.data, Policy)
    except msgspec.ValidationError as error:
        fault = refusal(error, document.data, document)
        if fault.field is not None and fault.field.endswith(".check"):
            fault.hint = f"one of {', '.join(CHECKS)}"
        raise fault from None
    for fault in _faults(policy, document):
        raise fault
    return policy


def _faults(policy: Policy, document: Document) -> Iterator[InputError]:
    known: set[str] = set()
    for index, rule in enumerate(policy.rules):
        here: Path = ("rules", index)
        if rule.id in known:
            yield document.refused(f"{quote_brief(rule.id)} is the id of two rules", (*here, "id"))
        known.add(rule.id)
        try:
            requirements(rule.only.labels)
        except InputError as error:
            yield document.refused(error.what, (*here, "only", "labels"), error.hint)
        if isinstance(rule, Bounds):
            yield from _bounds_faults(rule, document, here)


def _bounds_faults(rule: Bounds, document: Document, here: Path) -> Iterator[InputError]:
    if rule.least is None and rule.most is None:
        yield document.refused("neither least nor most is given", here, "give one of them")
    found: dict[str, Quantity] = {}
    for name, text in (("least", rule.least), ("most", rule.most)):
        if text is None:
            continue
        try:
            found[name] = Quantity.parse(text)
        except InputError as error:
            yield document.refused(error.what, (*here, name), error.hint)
    if len(found) == 2 and found["least"] > found["most"]:
        yield document.refused("least is more than most", (*here, "least"))
