"""Why a pod was admitted or refused: every check with its numbers, for people and for scripts."""

from collections.abc import Iterable, Iterator
from typing import Any

from memqos.cluster.limitrange import CONTAINER_TYPE, POD_TYPE, LimitRangeAmounts, LimitRangeBounds
from memqos.cluster.limitrange_checks import LimitRangeViolation, pod_totals
from memqos.cluster.quota import Quota
from memqos.draw.admission import AdmissionReport, violation_text
from memqos.draw.amounts import short_amount, short_ratio
from memqos.kube.resources import Amounts, Resources, format_amount
from memqos.kube.shape import Part


def admission_reasons(admitted: AdmissionReport) -> list[str]:
    """Where every value that was filled in comes from, and what each check compared."""
    creation = admitted.creation
    lines = ["", f"why {admitted.label}"]
    lines += [
        f"  {each.container or 'pod'}: {each.side}.{each.resource} = "
        f"{short_amount(each.resource, each.amount)} ({each.source})"
        for each in creation.filled
    ]
    asked = creation.denial
    # The first range that refuses a pod ends the matter.
    for limits in admitted.ranges if asked is None else admitted.ranges[: asked.index + 1]:
        lines += _range_lines(admitted, limits)
    if creation.quotas is not None:
        for quota in admitted.quotas:
            counts = "counts" if quota.name in creation.quotas.matching else "does not count"
            lines.append(f"  quota {quota.name} {counts} it: {_scopes(quota)}")
    return lines


def _range_lines(admitted: AdmissionReport, limits: LimitRangeAmounts) -> Iterator[str]:
    denial = admitted.creation.denial
    refused: dict[tuple[str, str, str, str], LimitRangeViolation] = {
        (each.where, each.type, each.resource, each.constraint): each
        for each in (denial.violations if denial is not None else ())
        if each.range == limits.name
    }
    for bounds in limits.bounds:
        title = f"limit range {limits.name}, {bounds.type}"
        for where, part in _subjects(admitted, bounds):
            for constraint, enforced in (
                ("min", bounds.min),
                ("max", bounds.max),
                ("ratio", bounds.ratio),
            ):
                for name, allowed in enforced.items():
                    found = refused.get((where, bounds.type, name, constraint))
                    kept = (
                        _check_words(name, part, constraint, allowed)
                        if found is None
                        else violation_text(found)
                    )
                    yield f"  {title}: {admitted.owner(where)} {kept}"


def _subjects(
    admitted: AdmissionReport, bounds: LimitRangeBounds
) -> Iterator[tuple[str, Part | Resources]]:
    shape = admitted.creation.stored
    if bounds.type == CONTAINER_TYPE:
        for index, part in enumerate(shape.containers):
            yield f"spec.containers[{index}]", part
        for index, part in enumerate(shape.init_containers):
            yield f"spec.initContainers[{index}]", part
    elif bounds.type == POD_TYPE:
        yield "spec", pod_totals(shape, admitted.release)


def _check_words(name: str, part: Part | Resources, constraint: str, allowed: int) -> str:
    bound = short_ratio(allowed) if constraint == "ratio" else short_amount(name, allowed)
    return (
        f"{name} request {_amount(name, part.requests)}, limit {_amount(name, part.limits)}: "
        f"keeps {constraint} {bound}"
    )


def _amount(name: str, amounts: Amounts) -> str:
    return short_amount(name, amounts[name]) if name in amounts else "–"


def _scopes(quota: Quota) -> str:
    if not quota.terms:
        return "it has no scope"
    return "scope " + ", ".join(
        " ".join([term.scope_name, *([term.operator, *term.values] if term.values else ())])
        for term in quota.terms
    )


def admission_data(admitted: AdmissionReport, *, why: bool) -> dict[str, Any]:
    """The same as plain data, amounts as Kubernetes spells them."""
    creation = admitted.creation
    shape, denial, verdict = creation.stored, creation.denial, creation.quotas
    data: dict[str, Any] = {
        "origin": admitted.origin,
        "name": admitted.label,
        "namespace": admitted.namespace,
        "admitted": admitted.refused_by is None and not creation.errors,
        "replicas": {"wanted": admitted.wanted, "admitted": admitted.admitted},
        "qosClass": creation.qos,
        "errors": [{"field": error.field, "message": error.message} for error in creation.errors],
        "refusedBy": admitted.refused_by,
        "violations": [_violation_data(admitted, each) for each in denial.violations]
        if denial
        else [],
        "breaches": [
            {"rule": each.rule, "mode": each.mode, "what": each.what, "hint": each.hint}
            for each in admitted.breaches
        ],
        "quota": None
        if verdict is None
        else {
            "counting": list(verdict.matching),
            "reason": verdict.reason,
            "exceeded": [
                {
                    "resource": each.resource,
                    "asked": _quantity_text(each.resource, each.asked),
                    "used": _quantity_text(each.resource, each.used),
                    "hard": _quantity_text(each.resource, each.hard),
                    "by": _quantity_text(each.resource, each.asked - (each.hard - each.used)),
                }
                for each in verdict.exceeded
            ],
            "missing": {each.resource: list(each.containers) for each in verdict.missing},
            "unknown": list(verdict.unknown),
            "used": {name: _quantity_texts(used) for name, used in verdict.new_used.items()},
        },
        "stored": {
            "pod": None if shape.pod is None else _resources_data(shape.pod),
            "containers": {
                name: _resources_data(part)
                for name, part in zip(admitted.names, shape.parts, strict=True)
            },
        },
        "filled": [
            {
                "container": each.container,
                "field": f"{each.side}.{each.resource}",
                "value": _quantity_text(each.resource, each.amount),
                "from": each.source,
            }
            for each in creation.filled
        ],
        "notes": list(admitted.notes),
    }
    if why:
        data["why"] = [line.strip() for line in admission_reasons(admitted)[2:]]
    return data


def _violation_data(admitted: AdmissionReport, violation: LimitRangeViolation) -> dict[str, Any]:
    def amount_text(amount: float | None, *, is_ratio: bool) -> str | None:
        if amount is None:
            return None
        return short_ratio(amount) if is_ratio else _quantity_text(violation.resource, int(amount))

    return {
        "limitRange": violation.range,
        "type": violation.type,
        "field": violation.where,
        "container": None if violation.where == "spec" else admitted.owner(violation.where),
        "resource": violation.resource,
        "constraint": violation.constraint,
        "which": violation.which,
        "asked": amount_text(violation.asked, is_ratio=violation.which == "ratio"),
        "allowed": amount_text(violation.allowed, is_ratio=violation.constraint == "ratio"),
        "says": violation_text(violation),
    }


def _resources_data(resources: Part | Resources) -> dict[str, Any]:
    return {
        "requests": _quantity_texts(resources.requests),
        "limits": _quantity_texts(resources.limits),
    }


def _quantity_texts(amounts: Amounts) -> dict[str, str]:
    return {name: _quantity_text(name, amount) for name, amount in amounts.items()}


def _quantity_text(name: str, amount: int) -> str:
    return format_amount(name.removeprefix("requests.").removeprefix("limits."), amount)


def quotas_data(quotas: Iterable[Quota]) -> dict[str, Any]:
    """What is used of each quota in the end."""
    return {
        quota.name: {"used": _quantity_texts(quota.used), "hard": _quantity_texts(quota.hard)}
        for quota in quotas
    }
