"""Replays recorded admissions: limit ranges, quotas, resizes, and what autoscalers see."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from memqos.cli.replay.pods import ReplayCase, amount_texts, case_release, shape_data
from memqos.cluster.autoscaling import UnknownRequest, hpa_request
from memqos.cluster.limit_range import (
    LimitRange,
    LimitRangeViolation,
    apply_limit_ranges,
    complete_limit_range,
    limit_range_amounts,
    limit_range_denial,
    pod_totals,
)
from memqos.cluster.quota import (
    QUOTA_SCOPES,
    Quota,
    ScopeSelectorTerm,
    matches_scope,
    quota_of,
    quota_usage,
)
from memqos.cluster.quota import ResourceQuota as StoredQuota
from memqos.cluster.quota_admission import check_quotas
from memqos.cluster.resize import resize_pod
from memqos.errors import InputError
from memqos.kube.defaulting import apply_defaults, decoding_defaults, prepare_for_storage
from memqos.kube.pod import Container, Pod, ResourceRequirements
from memqos.kube.qos import qos_class
from memqos.kube.quantity import MILLI, Quantity, milli_of, nano_of
from memqos.kube.resources import format_amount
from memqos.kube.shape import shape_of, with_shape
from memqos.release import Release

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def replay_limitrange(case: ReplayCase) -> dict[str, Any]:
    """The defaults of limit ranges, then their checks."""
    release = case_release(case)
    pod = msgspec.convert(case["pod"], Pod)
    # Only the API server's defaulting rounds quantities up to thousandths.
    in_nanos = case["mode"] != "apiserver"
    amount, unit = (nano_of, MILLI) if in_nanos else (milli_of, 1)
    ranges = [
        limit_range_amounts(item, amount)
        for item in msgspec.convert(case["limit_ranges"], list[LimitRange])
    ]
    if not in_nanos:
        ranges = [complete_limit_range(limits) for limits in ranges]
        changed = apply_limit_ranges(decoding_defaults(pod, release), ranges, release)
        # Recorded without the last step of creation, which drops fields of disabled gates.
        stored = (
            prepare_for_storage(changed, release)
            if release.is_enabled("PodLevelResources")
            else changed
        )
        actual = {"mutated": shape_data(pod, changed), "stored": shape_data(pod, stored)}
    else:
        stored = apply_limit_ranges(shape_of(pod, release, nano_of), ranges, release)
        actual = {"mutated": shape_data(pod, stored, unit)}
    whole_pod = pod_totals(stored, release)
    found = limit_range_denial(stored, ranges, release, unit=unit)
    texts = dict(_texts(case, unit))
    violations = (
        [] if found is None else [_violation_data(item, texts, unit) for item in found.violations]
    )
    return actual | {
        "pod_requests": amount_texts(whole_pod.requests, unit),
        "pod_limits": amount_texts(whole_pod.limits, unit),
        "denied": found is not None,
        "denied_by": None if found is None else found.index,
        "violations": sorted(violations, key=lambda item: json.dumps(item, sort_keys=True)),
    }


def replay_quota_usage(case: ReplayCase) -> dict[str, Any]:
    """What a pod charges, and the scopes it is in."""
    release = case_release(case)
    pod = _as_stored(case["pod"], case["mode"], release)
    selectors = msgspec.convert(case["scope_selectors"], list[ScopeSelectorTerm])
    return {
        "qos": qos_class(shape_of(pod, release), release),
        "usage": amount_texts(quota_usage(pod, release, _NOW)),
        "scopes": {
            scope: matches_scope(ScopeSelectorTerm(scope), pod, release) for scope in QUOTA_SCOPES
        },
        "selector_matches": [matches_scope(each, pod, release) for each in selectors],
    }


def replay_quota_admission(case: ReplayCase) -> dict[str, Any]:
    """Whether quotas admit a pod, or its resize."""
    release, mode = case_release(case), case["mode"]
    old = case.get("old_pod")
    verdict = check_quotas(
        _as_stored(case["pod"], mode, release),
        [_quota(item) for item in case["quotas"]],
        release,
        _NOW,
        resized_from=None if old is None else _as_stored(old, mode, release),
    )
    return {
        "allowed": verdict.allowed,
        "reason": verdict.reason,
        "quota": verdict.quota,
        "matching_quotas": list(verdict.matching),
        "exceeded": {
            item.resource: {
                "requested": format_amount(item.resource, item.requested),
                "used": format_amount(item.resource, item.used),
                "hard": format_amount(item.resource, item.hard),
            }
            for item in verdict.exceeded
        }
        or None,
        "missing": {item.resource: list(item.containers) for item in verdict.missing} or None,
        "new_used": {name: amount_texts(used) for name, used in verdict.new_used.items()}
        if verdict.allowed
        else None,
    }


def replay_resize(case: ReplayCase) -> dict[str, Any]:
    """An in-place resize of a stored pod."""
    release = case_release(case)
    old = _as_stored(case["old_pod"], "apiserver", release)
    new = _propose(old, case["new_resources"])
    result = resize_pod(old, new, release)
    return {
        "valid": result.valid,
        "errors": [{"field": error.field, "type": error.type} for error in result.errors],
        "old_effective": shape_data(old, result.before) | {"qos": result.class_before},
        "new_effective": shape_data(new, result.after) | {"qos": result.class_after},
        "qos_changed": result.class_before != result.class_after,
    }


def replay_hpa_requests(case: ReplayCase) -> dict[str, Any]:
    """What an autoscaler divides usage by: one pod whose request is unknown fails them all."""
    release, resource, container = case_release(case), case["resource"], case["container"]
    requests = {
        pod.metadata.name: hpa_request(pod, resource, release, container)
        for pod in msgspec.convert(case["pods"], list[Pod])
    }
    failed = [each for each in requests.values() if isinstance(each, UnknownRequest)]
    return {
        "requests_milli": None if failed else requests,
        "error": failed[0].failure if failed else None,
        "per_pod": {name: _request_data(request) for name, request in requests.items()},
    }


def _as_stored(raw: Any, mode: str, release: Release) -> Pod:
    pod = msgspec.convert(raw, Pod)
    return with_shape(pod, apply_defaults(pod, release)) if mode == "apiserver" else pod


def _quota(item: Mapping[str, Any]) -> Quota:
    amounts = {"hard": item.get("hard"), "used": item.get("used")}
    scopes = {"scopes": item.get("scopes"), "scopeSelector": item.get("scopeSelector")}
    stored = {"metadata": {"name": item["name"]}, "spec": scopes, "status": amounts}
    return quota_of(msgspec.convert(stored, StoredQuota))


def _propose(old: Pod, resources: Mapping[str, Any]) -> Pod:
    spec = old.spec
    changes: dict[str, Any] = {}
    if "containers" in resources:
        changes["containers"] = _replace_containers(spec.containers or (), resources["containers"])
    if "init_containers" in resources:
        changes["init_containers"] = _replace_containers(
            spec.init_containers or (), resources["init_containers"]
        )
    if "pod" in resources:
        changes["resources"] = msgspec.convert(resources["pod"], ResourceRequirements | None)
    return msgspec.structs.replace(old, spec=msgspec.structs.replace(spec, **changes))


def _replace_containers(old: tuple[Container, ...], new: list[Any]) -> tuple[Container, ...]:
    added = Container(image="img")
    return tuple(
        msgspec.structs.replace(
            old[index] if index < len(old) else added,
            name=item["name"],
            resources=msgspec.convert(item.get("resources"), ResourceRequirements | None),
        )
        for index, item in enumerate(new)
    )


def _request_data(request: int | UnknownRequest) -> dict[str, Any]:
    if isinstance(request, UnknownRequest):
        return {"milli": None, "error": request.failure}
    return {"milli": request, "error": None}


def _violation_data(
    item: LimitRangeViolation, texts: Mapping[int, str], unit: int
) -> dict[str, Any]:
    requested = item.value
    if requested is None:
        actual = None
    elif item.which == "ratio":
        actual = f"{requested / 1000:f}"
    else:
        actual = texts.get(int(requested)) or format_amount(item.resource, int(requested), unit)
    return {
        "type": item.type,
        "resource": item.resource,
        "constraint": item.constraint,
        "which": item.which,
        "actual": actual,
        "missing": requested is None,
        "enforced": texts[item.allowed],
    }


def _texts(value: Any, unit: int) -> Iterator[tuple[int, str]]:
    """Each quantity of a case as Kubernetes prints it: violations were recorded in that order."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner, unit)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, unit)
    elif isinstance(value, str):
        try:
            quantity = Quantity.parse(value)
        except InputError:
            return
        amount = quantity.milli if unit == 1 else quantity.nano
        yield amount, Quantity(amount * (MILLI // unit), quantity.format).canonical
