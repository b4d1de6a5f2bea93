"""The admission of a pod: what was filled in, what refused it, and by how much; text and data."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import msgspec

from memqos.cluster.creation import RESOURCE_SIDES, Creation, ResourceSide
from memqos.cluster.limit_range import (
    CONTAINER_TYPE,
    POD_TYPE,
    LimitRangeAmounts,
    LimitRangeBounds,
    LimitRangeViolation,
    pod_totals,
)
from memqos.cluster.quota import Quota
from memqos.cluster.quota_admission import QuotaVerdict
from memqos.draw.text.amounts import (
    quantity_text,
    quantity_texts,
    resources_data,
    short_amount,
    short_ratio,
)
from memqos.draw.text.lines import Line, Styled, Table
from memqos.findings.policy import PolicyBreach
from memqos.kube.resources import CPU, MEMORY, Amounts, Resources
from memqos.kube.shape import Part
from memqos.release import Release


class AdmissionReport(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, or the replicas of a workload, admitted one after another."""

    origin: str
    """file:line of the object it comes from."""
    label: str
    namespace: str
    names: tuple[str, ...]
    """Of the containers, in the order of `Shape.parts`."""
    release: Release
    replicas: int
    """How many were to be created."""
    admitted: int
    creation: Creation
    """Of the one that was refused, or of the last."""
    ranges: tuple[LimitRangeAmounts, ...]
    quotas: tuple[Quota, ...]
    """As the refused one met them, or the first of those that were admitted."""
    notes: tuple[str, ...] = ()
    breaches: tuple[PolicyBreach, ...] = ()
    """Rules of a policy that it does not keep."""

    @property
    def refused_by(self) -> str | None:
        """Who refused it: `limit range NAME`, whose rule, or `quota NAME`."""
        denial, verdict = self.creation.denial, self.creation.quotas
        if denial is not None:
            return f"limit range {self.ranges[denial.index].name}"
        for breach in self.breaches:
            if breach.mode == "refuse":
                return breach.source
        return None if verdict is None or verdict.allowed else f"quota {verdict.quota}"

    def owner(self, where: str) -> str:
        """The container that a field of the spec belongs to, or else the pod."""
        group, _, index = where.removeprefix("spec.").removesuffix("]").partition("[")
        if not index:
            return "pod"
        before = len(self.creation.stored.init_containers) if group == "containers" else 0
        return self.names[before + int(index)]


def admission_text(admitted: AdmissionReport) -> list[Line]:
    """The verdict, the pod as it would be stored, and what quotas count."""
    lines: list[Line] = [f"{admitted.label} in {admitted.namespace}  {_verdict_words(admitted)}"]
    lines += [f"  {line}" for line in _refusal_lines(admitted)]
    lines.append(_stored_table(admitted))
    lines += _default_sources(admitted)
    verdict = admitted.creation.quotas
    if verdict is not None:
        for quota in admitted.quotas:
            if quota.name in verdict.matching:
                lines += _quota_table(admitted, quota)
    lines += [f"  note: {note}" for note in admitted.notes]
    return lines


def _verdict_words(admitted: AdmissionReport) -> str:
    refused_by, qos = admitted.refused_by, admitted.creation.qos
    if admitted.replicas == 1:
        return f"refused by {refused_by}" if refused_by else f"admitted as {qos}"
    if refused_by is None:
        return f"all {admitted.replicas} replicas admitted as {qos}"
    return (
        f"{admitted.admitted} of {admitted.replicas} replicas admitted, then {refused_by} refuses"
    )


def _refusal_lines(admitted: AdmissionReport) -> Iterator[str]:
    denial, verdict = admitted.creation.denial, admitted.creation.quotas
    for violation in denial.violations if denial is not None else ():
        yield f"{admitted.owner(violation.where)}: {violation_text(violation)}"
    for breach in admitted.breaches:
        yield f"{'warning: ' if breach.mode == 'warn' else ''}{breach}"
    if verdict is not None:
        yield from quota_refusals(verdict)


def quota_refusals(verdict: QuotaVerdict) -> Iterator[str]:
    """What a quota refuses, and by how much."""
    for each in verdict.exceeded:
        name, left = each.resource, each.hard - each.used
        yield (
            f"{name}: {short_amount(name, each.requested)} requested, "
            f"{short_amount(name, max(0, left))} of {short_amount(name, each.hard)} is left: "
            f"{short_amount(name, each.requested - left)} too much"
        )
    for missing in verdict.missing:
        yield (
            f"{missing.resource} is limited by a quota, so every container must set it: "
            f"{', '.join(missing.containers)} does not"
        )
    if verdict.unknown:
        yield (
            f"its status has no usage of {', '.join(verdict.unknown)} – it is counted soon after "
            f"the quota is created: add status.used"
        )


def violation_text(violation: LimitRangeViolation) -> str:
    """What a limit range refuses, with both numbers."""
    name, which, allowed = violation.resource, violation.which, violation.allowed
    if violation.constraint == "ratio":
        bound = f"maxLimitRequestRatio is {short_ratio(allowed)}"
        if violation.value is None:
            return f"{name} {which} is missing, and {bound}"
        return f"{name} limit is {short_ratio(violation.value)} times the request, {bound}"
    bound = f"{violation.constraint} of a {violation.type} is {short_amount(name, allowed)}"
    if violation.value is None:
        return f"{name} {which} is missing, and {bound}"
    amount = int(violation.value)
    by = short_amount(name, abs(amount - allowed))
    return (
        f"{name} {which} {short_amount(name, amount)}, {bound}: "
        f"{by} too {'little' if violation.constraint == 'min' else 'much'}"
    )


def _stored_table(admitted: AdmissionReport) -> Line:
    """A row for the pod level and each container; what was filled in has a +."""
    shape = admitted.creation.stored
    rows: list[tuple[str, str | None, Part | Resources]] = []
    if shape.pod is not None:
        rows.append(("pod", None, shape.pod))
    last = len(admitted.names) - 1
    for index, (name, part) in enumerate(zip(admitted.names, shape.parts, strict=True)):
        role = "" if part.role == "regular" else f" ({part.role})"
        rows.append((f"{'└' if index == last else '├'} {name}{role}", name, part))
    columns: list[tuple[ResourceSide, str]] = [
        (side, resource)
        for side in RESOURCE_SIDES
        for resource in _cpu_memory_first(
            [name for *_, part in rows for name in getattr(part, side)]
        )
    ]
    if not columns:
        return "  no requests and no limits"
    filled = {(each.container, each.side, each.resource) for each in admitted.creation.filled}
    sides = ["", *[side for side, _ in columns]]
    heads = [sides[0]] + ["" if before == side else side for before, side in pairwise(sides)]
    lines = [heads, ["", *[resource for _, resource in columns]]]
    for title, owner, resources in rows:
        cells = [title]
        for side, resource in columns:
            amount = getattr(resources, side).get(resource)
            mark = "+" if (owner, side, resource) in filled else ""
            text = "–" if amount is None else mark + short_amount(resource, amount)
            cells.append(Styled(text, "added") if mark else text)
        lines.append(cells)
    return Table(lines)


def _cpu_memory_first(names: Iterable[str]) -> list[str]:
    """cpu and memory first."""
    return sorted(set(names), key=lambda name: (name != CPU, name != MEMORY, name))


def _default_sources(admitted: AdmissionReport) -> Iterator[str]:
    fields: dict[str, list[str]] = {}
    for each in admitted.creation.filled:
        field = f"{each.container or 'pod'} {each.side}.{each.resource}"
        fields.setdefault(each.source, []).append(field)
    for source, of_source in fields.items():
        yield f"  + {source}: {', '.join(of_source)}"


def _quota_table(admitted: AdmissionReport, quota: Quota) -> list[Table]:
    """What a quota has used before and after."""
    times = 1 if admitted.refused_by else admitted.replicas
    rows = [[f"quota {quota.name}", "used", "requested", "total", "hard"]]
    for name, amount in sorted(admitted.creation.charged.items()):
        if amount and name in quota.hard and name in quota.used:
            then = quota.used[name] + times * amount
            many = f"{times} × " if times > 1 else ""
            rows.append(
                [
                    f"  {name}",
                    short_amount(name, quota.used[name]),
                    many + short_amount(name, amount),
                    short_amount(name, then),
                    short_amount(name, quota.hard[name]),
                ]
            )
    return [Table(rows, indent="  ")] if len(rows) > 1 else []


def admission_reasons(admitted: AdmissionReport) -> list[str]:
    """Where every value that was filled in comes from, and what each check compared."""
    creation = admitted.creation
    lines = ["", f"why {admitted.label}"]
    lines += [
        f"  {each.container or 'pod'}: {each.side}.{each.resource} = "
        f"{short_amount(each.resource, each.amount)} ({each.source})"
        for each in creation.filled
    ]
    denial = creation.denial
    # After the first range that refuses a pod no other is checked.
    for limits in admitted.ranges if denial is None else admitted.ranges[: denial.index + 1]:
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
        "replicas": {"wanted": admitted.replicas, "admitted": admitted.admitted},
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
                    "asked": quantity_text(each.resource, each.requested),
                    "used": quantity_text(each.resource, each.used),
                    "hard": quantity_text(each.resource, each.hard),
                    "by": quantity_text(each.resource, each.requested - (each.hard - each.used)),
                }
                for each in verdict.exceeded
            ],
            "missing": {each.resource: list(each.containers) for each in verdict.missing},
            "unknown": list(verdict.unknown),
            "used": {name: quantity_texts(used) for name, used in verdict.new_used.items()},
        },
        "stored": {
            "pod": None if shape.pod is None else resources_data(shape.pod),
            "containers": {
                name: resources_data(part)
                for name, part in zip(admitted.names, shape.parts, strict=True)
            },
        },
        "filled": [
            {
                "container": each.container,
                "field": f"{each.side}.{each.resource}",
                "value": quantity_text(each.resource, each.amount),
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
        return short_ratio(amount) if is_ratio else quantity_text(violation.resource, int(amount))

    return {
        "limitRange": violation.range,
        "type": violation.type,
        "field": violation.where,
        "container": None if violation.where == "spec" else admitted.owner(violation.where),
        "resource": violation.resource,
        "constraint": violation.constraint,
        "which": violation.which,
        "asked": amount_text(violation.value, is_ratio=violation.which == "ratio"),
        "allowed": amount_text(violation.allowed, is_ratio=violation.constraint == "ratio"),
        "says": violation_text(violation),
    }


def quotas_data(quotas: Iterable[Quota]) -> dict[str, Any]:
    """What is used of each quota in the end."""
    return {
        quota.name: {"used": quantity_texts(quota.used), "hard": quantity_texts(quota.hard)}
        for quota in quotas
    }
