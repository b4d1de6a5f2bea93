"""Replays recorded pods: defaulting, validation, class, sums, oom scores and cgroup values."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from memqos.errors import InputError
from memqos.kube.aggregate import has_pod_level, pod_limits, pod_requests
from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import Container, Pod, QosClass
from memqos.kube.qos import compute_qos_class
from memqos.kube.quantity import MAX_INT64, Quantity, whole
from memqos.kube.resources import (
    MEMORY,
    Amounts,
    Resources,
    format_amount,
    hugepage_size,
    kubelet_memory,
)
from memqos.kube.shape import Part, Shape, containers_of, shape_of
from memqos.kube.validation import validate
from memqos.plan.container import LIMIT, ContainerPlan, container_rules
from memqos.plan.memory import MemoryResources
from memqos.plan.names import cgroup_names
from memqos.plan.pod import PodPlan, memory_of_pod, plan_pod
from memqos.plan.setting import MAX, FileSettings, Setting
from memqos.release import Release
from memqos.settings.settings import Settings

ReplayCase = Mapping[str, Any]

_MEMORY_FILES = ("memory.min", "memory.low", "memory.high", "memory.oom.group")


def case_release(case: ReplayCase) -> Release:
    """The release a case was recorded with."""
    return Release.of(case.get("release", "1.38"), case.get("gates") or {})


def case_settings(case: ReplayCase) -> Settings:
    """The settings of the kubelet and node a case was recorded with."""
    kubelet, node = case.get("kubelet") or {}, case.get("node") or {}
    return Settings(
        release=case_release(case),
        factor=kubelet.get("memory_throttling_factor"),
        policy=kubelet.get("memory_reservation_policy", "None"),
        single_process_oom_kill=kubelet.get("single_process_oom_kill", False),
        memory_capacity=node.get("memory_capacity"),
        memory_allocatable=node.get("memory_allocatable"),
    )


def replay_pod_semantics(case: ReplayCase) -> dict[str, Any]:
    """A pod from creation to cgroup values."""
    settings = case_settings(case)
    release = settings.release
    pod = msgspec.convert(case["pod"], Pod)
    shape = apply_defaults(pod, release)
    errors = validate(pod, shape, release)
    actual: dict[str, Any] = {
        "defaulted": shape_data(pod, shape),
        "errors": sorted(
            [{"field": error.field, "type": error.type} for error in errors],
            key=lambda error: (error["field"], error["type"]),
        ),
    }
    if errors:
        return actual
    added = case.get("ephemeral_containers_added_later")
    if added:
        later = msgspec.convert(added, tuple[Container, ...])
        pod = msgspec.structs.replace(
            pod, spec=msgspec.structs.replace(pod.spec, ephemeral_containers=later)
        )
        shape = msgspec.structs.replace(
            shape, ephemeral_containers=shape_of(pod, release).ephemeral_containers
        )
    actual |= {
        "qos_class": compute_qos_class(shape, release),
        "requests": amount_texts(pod_requests(shape, release)),
        "requests_without_overhead": amount_texts(pod_requests(shape, release, overhead=False)),
        "requests_from_containers": amount_texts(
            pod_requests(msgspec.structs.replace(shape, pod=None), release)
        ),
        "limits": amount_texts(pod_limits(shape, release)),
    }
    if shape.windows:
        return actual
    plan = _kubelet_plan(shape, settings)
    return actual | {
        "oom_score_adj": _oom_scores(pod, plan),
        "pod_cgroup": _pod_cgroup(plan),
        "container_cgroups": _container_cgroups(pod, plan),
    }


replay_pod_semantics_qos_off = replay_pod_semantics


def replay_pod_eras(case: ReplayCase) -> dict[str, Any]:
    """A valid, already defaulted pod in an older release: its memory files alone."""
    settings = case_settings(case)
    pod = msgspec.convert(case["pod"], Pod)
    shape = shape_of(pod, settings.release)
    plan = _kubelet_plan(shape, settings)
    return {
        "qos_class": plan.qos,
        "oom_score_adj": _oom_scores(pod, plan),
        "pod_cgroup": _only(_pod_cgroup(plan), "memory_max"),
        "container_cgroups": {
            name: _only(values, "memory_limit_in_bytes")
            for name, values in _container_cgroups(pod, plan).items()
        },
    }


def replay_dra_node_allocatable(case: ReplayCase) -> dict[str, Any]:
    """An already defaulted pod that has resources of its node through claims."""
    settings = case_settings(case)
    pod = msgspec.convert(case["pod"], Pod)
    shape = shape_of(pod, settings.release)
    plan = plan_pod(shape, settings, compute_qos_class(shape, settings.release))
    cgroups = _container_cgroups(pod, plan)
    for values in cgroups.values():
        del values["oom_score_adj"]
        values["unified"].pop("memory.oom.group", None)
    return {
        "qos_class": plan.qos,
        "requests": amount_texts(plan.requests),
        "limits": amount_texts(plan.limits),
        "oom_score_adj": _oom_scores(pod, plan),
        "pod_cgroup": _pod_cgroup(plan),
        "container_cgroups": cgroups,
    }


def memory_files(settings: FileSettings) -> dict[str, str]:
    """The memory files that are written, as texts."""
    return {
        name: str(settings[name].value)
        for name in _MEMORY_FILES
        if name in settings and settings[name].value is not None
    }


def _kubelet_plan(shape: Shape, settings: Settings) -> PodPlan:
    """The plan with the numbers of the kubelet, where memqos plans nothing by an overflow."""
    release = settings.release
    qos = compute_qos_class(shape, release)
    plan = plan_pod(shape, settings, qos)
    amounts = [plan.requests, plan.limits]
    amounts += [side for part in shape.parts for side in (part.requests, part.limits)]
    if max([whole(each.get(MEMORY, 0)) for each in amounts]) <= MAX_INT64:
        return plan
    pod_level = release.is_enabled("PodLevelResources") and has_pod_level(shape, release)
    level_limits = shape.pod.limits if shape.pod is not None and pod_level else {}
    request, limit = kubelet_memory(plan.requests), kubelet_memory(plan.limits)
    _, _, high, maximum = memory_of_pod(
        shape, settings, qos, request, limit, pod_level, level_limits
    )
    # ResourceConfigForPod(), kubelet cm/helpers_linux.go: a pod is protected by a positive sum.
    minimum, low, _, _ = memory_of_pod(
        shape, settings, qos, max(0, request), limit, pod_level, level_limits
    )
    own = {"memory.min": minimum, "memory.low": low, "memory.high": high, "memory.max": maximum}
    containers = tuple(
        ContainerPlan(
            part.role, planned.settings | _kubelet_files(part, settings, qos, level_limits)
        )
        for part, planned in zip(shape.parts, plan.containers, strict=True)
    )
    return msgspec.structs.replace(plan, settings=plan.settings | own, containers=containers)


def _kubelet_files(
    part: Part, settings: Settings, qos: QosClass, level_limits: Amounts
) -> FileSettings:
    rules = container_rules(settings.release)
    request, limit = kubelet_memory(part.requests), kubelet_memory(part.limits)
    resources = MemoryResources(qos, request, limit, bool(level_limits.get(MEMORY)))
    most = limit or kubelet_memory(level_limits)
    files = {"memory.max": Setting(most or MAX, LIMIT)}
    if rules.memory_qos:
        minimum, low = rules.protection(resources, settings)
        high = rules.high(resources, settings)
        files |= {"memory.min": minimum, "memory.low": low, "memory.high": high}
    return files


def shape_data(pod: Pod, shape: Shape, unit: int = 1) -> dict[str, Any]:
    """The requests and limits of a pod and its containers, in the recorded form."""
    return {
        "containers": _container_stanzas(pod.spec.containers or (), shape.containers, unit),
        "init_containers": _container_stanzas(
            pod.spec.init_containers or (), shape.init_containers, unit
        ),
        "pod": None if shape.pod is None else _stanza(shape.pod, unit),
    }


def _container_stanzas(
    containers: Iterable[Container], parts: Iterable[Part], unit: int
) -> list[dict[str, Any]]:
    return [
        {"name": container.name} | _stanza(part, unit)
        for container, part in zip(containers, parts, strict=True)
    ]


def _stanza(resources: Part | Resources, unit: int) -> dict[str, Any]:
    return {
        "requests": amount_texts(resources.requests, unit),
        "limits": amount_texts(resources.limits, unit),
    }


def amount_texts(amounts: Amounts, unit: int = 1) -> dict[str, str]:
    """Amounts, parts of a thousandth of which `unit` make one, as Kubernetes prints them."""
    return {name: format_amount(name, amount, unit) for name, amount in amounts.items()}


def _oom_scores(pod: Pod, plan: PodPlan) -> dict[str, Any]:
    return {
        container.name: planned.settings["oom_score_adj"].value
        for container, planned in zip(containers_of(pod), plan.containers, strict=True)
    }


def _pod_cgroup(plan: PodPlan) -> dict[str, Any]:
    settings = plan.settings
    quota, period = _cpu(settings)
    return {
        "cpu_shares": settings["cpu.shares"].value,
        "cpu_quota": quota,
        "cpu_period": period,
        "memory_max": settings["memory.max"].value,
        "hugepage_limits": {
            str(hugepage_size("hugepages-" + page.replace("B", "i"))): amount
            for page, amount in _hugepages(settings).items()
        },
        "unified": memory_files(settings),
    }


def _container_cgroups(pod: Pod, plan: PodPlan) -> dict[str, dict[str, Any]]:
    cgroups = {}
    for container, planned in zip(containers_of(pod), plan.containers, strict=True):
        settings = planned.settings
        quota, period = _cpu(settings)
        limit = settings["memory.max"].value
        cgroups[container.name] = {
            "cpu_shares": settings["cpu.shares"].value,
            "cpu_quota": quota,
            "cpu_period": period,
            "memory_limit_in_bytes": 0 if limit == MAX else limit,
            "hugepage_limits": _hugepages(settings),
            "oom_score_adj": settings["oom_score_adj"].value,
            "unified": memory_files(settings),
        }
    return cgroups


def _cpu(settings: FileSettings) -> tuple[int | None, int | None]:
    value = settings["cpu.max"].value
    if value is None:
        return None, None
    quota, period = str(value).split()
    return 0 if quota == MAX else int(quota), int(period)


def _hugepages(settings: FileSettings) -> dict[str, Any]:
    return {
        name.split(".")[1]: setting.value
        for name, setting in settings.items()
        if name.startswith("hugetlb.")
    }


def _only(values: dict[str, Any], key: str) -> dict[str, Any]:
    return {key: values[key], "unified": values["unified"]}


def replay_cgroup_names(case: ReplayCase) -> dict[str, Any]:
    """The names of a pod's cgroups."""
    names = cgroup_names(case["driver"], case["cgroup_root"])
    qos = case["qos_class"]
    return {
        "kubepods": names.kubepods,
        "burstable": names.burstable,
        "besteffort": names.besteffort,
        "qos": names.qos(qos),
        "pod": names.pod(case["pod_uid"], qos),
    }


def replay_quantity(case: ReplayCase) -> dict[str, Any]:
    """One quantity text, bare and as a JSON string."""
    text = case["text"]
    bare = _parse_or_none(Quantity.parse_bare, text)
    actual: dict[str, Any] = {
        "ok": bare is not None,
        "json_ok": _parse_or_none(Quantity.parse, text) is not None,
    }
    if bare is None:
        return actual
    return actual | {
        "canonical": str(bare),
        "canonical_recomputed": bare.canonical,
        "format": bare.format,
        "value": bare.value,
        "milli_value": bare.milli,
        "sign": (bare.nano > 0) - (bare.nano < 0),
    }


def replay_quantity_arith(case: ReplayCase) -> dict[str, Any]:
    """Sum, difference and order of two quantities."""
    a, b = Quantity.parse_bare(case["a"]), Quantity.parse_bare(case["b"])
    return {"add": str(a + b), "sub": str(a - b), "cmp": (a > b) - (a < b)}


def _parse_or_none(parse: Callable[[str], Quantity], text: str) -> Quantity | None:
    try:
        return parse(text)
    except InputError:
        return None
