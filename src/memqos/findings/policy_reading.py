"""A policy out of a document: what cannot hold is refused where it stands."""

from collections.abc import Iterator

import msgspec

from memqos.errors import InputError, quote_brief
from memqos.findings.policy import (
    POLICY_API_VERSION,
    POLICY_CHECKS,
    POLICY_KIND,
    AdmissionPolicy,
    ResourceBounds,
)
from memqos.kube.label_selection import requirements
from memqos.kube.quantity import Quantity
from memqos.manifests.documents import Document
from memqos.manifests.positions import FieldPath
from memqos.manifests.refusals import decoding_error


def policy_from_document(document: Document) -> AdmissionPolicy:
    """The policy that a document holds; raise InputError where it holds none, or a wrong one."""
    if document.kind != POLICY_KIND:
        raise document.error(
            f"{quote_brief(document.kind)} is no policy"
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
            yield document.error(f"{quote_brief(rule.id)} is the id of two rules", (*here, "id"))
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
