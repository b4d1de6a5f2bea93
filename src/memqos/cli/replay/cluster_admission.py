"""Replays recorded admissions: limit ranges, quotas, resizes, and what autoscalers see."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from memqos.cli.replay.pods import Case, release_of, shape_data, spelled_amounts
from memqos.cluster import hpa
from memqos.cluster.limitrange import LimitRange, completed, mutated, range_of
from memqos.cluster.limitrange_checks import Violation, compared, denial
from memqos.cluster.quota import SCOPES, Quota, ScopeSelectorTerm, in_scope, quota_of
from memqos.cluster.quota import ResourceQuota as StoredQuota
from memqos.cluster.quota_admission import admit
from memqos.cluster.quota_usage import usage
from memqos.cluster.resize import resize as resized
from memqos.errors import InputError
from memqos.kube.defaulting import decoded, defaulted, prepared
from memqos.kube.pod import Container, Pod, ResourceRequirements
from memqos.kube.qos import qos_class
from memqos.kube.quantity import Quantity
from memqos.kube.resources import spelled
from memqos.kube.shape import shape_of, written
from memqos.release import Release

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def limitrange(case: Case) -> dict[str, Any]:
    """The defaults of limit ranges, then their checks."""
    release = release_of(case)
    pod = msgspec.convert(case["pod"], Pod)
    ranges = [range_of(item) for item in msgspec.convert(case["limit_ranges"], list[LimitRange])]
    if case["mode"] == "apiserver":
        ranges = [completed(limits) for limits in ranges]
        changed = mutated(decoded(pod, release), ranges, release)
        # Recorded without the last step of creation, which drops what a disabled gate rules.
        stored = prepared(changed, release) if release.enabled("PodLevelResources") else changed
        actual = {"mutated": shape_data(pod, changed), "stored": shape_data(pod, stored)}
    else:
        stored = mutated(shape_of(pod, release), ranges, release)
        actual = {"mutated": shape_data(pod, stored)}
    whole_pod = compared(stored, release)
    found = denial(stored, ranges, release)
    texts = dict(_texts(case))
    violations = [] if found is None else [_violation(item, texts) for item in found.violations]
    return actual | {
        "pod_requests": spelled_amounts(whole_pod.requests),
        "pod_limits": spelled_amounts(whole_pod.limits),
        "denied": found is not None,
        "denied_by": None if found is None else found.index,
        "violations": sorted(violations, key=lambda item: json.dumps(item, sort_keys=True)),
    }


def quota_usage(case: Case) -> dict[str, Any]:
    """What a pod charges, and the scopes it is in."""
    release = release_of(case)
    pod = _as_stored(case["pod"], case["mode"], release)
    terms = msgspec.convert(case["scope_selectors"], list[ScopeSelectorTerm])
    return {
        "qos": qos_class(shape_of(pod, release), release),
        "usage": spelled_amounts(usage(pod, release, _NOW)),
        "scopes": {scope: in_scope(ScopeSelectorTerm(scope), pod, release) for scope in SCOPES},
        "selector_matches": [in_scope(term, pod, release) for term in terms],
    }


def quota_admission(case: Case) -> dict[str, Any]:
    """Whether quotas admit a pod, or its resize."""
    release, mode = release_of(case), case["mode"]
    old = case.get("old_pod")
    verdict = admit(
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
                "requested": spelled(item.resource, item.asked),
                "used": spelled(item.resource, item.used),
                "hard": spelled(item.resource, item.hard),
            }
            for item in verdict.exceeded
        }
        or None,
        "missing": {item.resource: list(item.containers) for item in verdict.missing} or None,
        "new_used": {name: spelled_amounts(used) for name, used in verdict.new_used.items()}
        if verdict.allowed
        else None,
    }


def resize(case: Case) -> dict[str, Any]:
    """An in-place resize of a stored pod."""
    release = release_of(case)
    old = _as_stored(case["old_pod"], "apiserver", release)
    new = _proposed(old, case["new_resources"])
    result = resized(old, new, release)
    return {
        "valid": result.valid,
        "errors": [{"field": error.field, "type": error.type} for error in result.errors],
        "old_effective": shape_data(old, result.before) | {"qos": result.class_before},
        "new_effective": shape_data(new, result.after) | {"qos": result.class_after},
        "qos_changed": result.class_before != result.class_after,
    }


def hpa_requests(case: Case) -> dict[str, Any]:
    """What an autoscaler divides usage by."""
    release, resource, container = release_of(case), case["resource"], case["container"]
    pods = msgspec.convert(case["pods"], list[Pod])
    together = hpa.hpa_requests(pods, resource, release, container)
    return {
        "requests_milli": None if isinstance(together, hpa.Unknown) else together,
        "error": together.failure if isinstance(together, hpa.Unknown) else None,
        "per_pod": {
            pod.metadata.name: _request(hpa.hpa_request(pod, resource, release, container))
            for pod in pods
        },
    }


def _as_stored(raw: Any, mode: str, release: Release) -> Pod:
    pod = msgspec.convert(raw, Pod)
    return written(pod, defaulted(pod, release)) if mode == "apiserver" else pod


def _quota(item: Mapping[str, Any]) -> Quota:
    amounts = {"hard": item.get("hard"), "used": item.get("used")}
    scopes = {"scopes": item.get("scopes"), "scopeSelector": item.get("scopeSelector")}
    stored = {"metadata": {"name": item["name"]}, "spec": scopes, "status": amounts}
    return quota_of(msgspec.convert(stored, StoredQuota))


def _proposed(old: Pod, resources: Mapping[str, Any]) -> Pod:
    spec = old.spec
    changes: dict[str, Any] = {}
    if "containers" in resources:
        changes["containers"] = _replaced(spec.containers or (), resources["containers"])
    if "init_containers" in resources:
        changes["init_containers"] = _replaced(
            spec.init_containers or (), resources["init_containers"]
        )
    if "pod" in resources:
        changes["resources"] = msgspec.convert(resources["pod"], ResourceRequirements | None)
    return msgspec.structs.replace(old, spec=msgspec.structs.replace(spec, **changes))


def _replaced(old: tuple[Container, ...], new: list[Any]) -> tuple[Container, ...]:
    added = Container(image="img")
    return tuple(
        msgspec.structs.replace(
            old[index] if index < len(old) else added,
            name=item["name"],
            resources=msgspec.convert(item.get("resources"), ResourceRequirements | None),
        )
        for index, item in enumerate(new)
    )


def _request(request: int | hpa.Unknown) -> dict[str, Any]:
    if isinstance(request, hpa.Unknown):
        return {"milli": None, "error": request.failure}
    return {"milli": request, "error": None}


def _violation(item: Violation, texts: Mapping[int, str]) -> dict[str, Any]:
    asked = item.asked
    if asked is None:
        actual = None
    elif item.which == "ratio":
        actual = f"{asked / 1000:f}"
    else:
        actual = texts.get(int(asked)) or spelled(item.resource, int(asked))
    return {
        "type": item.type,
        "resource": item.resource,
        "constraint": item.constraint,
        "which": item.which,
        "actual": actual,
        "missing": asked is None,
        "enforced": texts[item.allowed],
    }


def _texts(value: Any) -> Iterator[tuple[int, str]]:
    """Each quantity of a case as Kubernetes prints it: violations were recorded in that order."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str):
        try:
            quantity = Quantity.parse(value)
        except InputError:
            return
        yield quantity.milli, quantity.canonical
