"""Pods and settings out of plain data, in short."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from memqos.cluster.limit_range import LimitRangeAmounts, apply_limit_ranges
from memqos.kernel.log import LogRecord
from memqos.kernel.oom_report import OomReader, OomReport
from memqos.kube.defaulting import decoding_defaults, prepare_for_storage
from memqos.kube.pod import Pod
from memqos.kube.shape import Shape
from memqos.plan.pod import PodPlan
from memqos.plan.semantics import semantics
from memqos.plan.setting import FileSettings, FileValue
from memqos.release import Release
from memqos.settings.settings import PAGE_SIZE, Placement, Policy, Settings

KI: Final = 1 << 10
MI: Final = 1 << 20
GI: Final = 1 << 30

Json = dict[str, Any]


def stanza(
    request: object = None,
    limit: object = None,
    *,
    cpu: tuple[object, object] = (None, None),
    requests: Mapping[str, object] | None = None,
    limits: Mapping[str, object] | None = None,
) -> Json:
    """A `resources` stanza: memory first, cpu as (request, limit), other resources by name."""
    requested = {"cpu": cpu[0], "memory": request} | dict(requests or {})
    limited = {"cpu": cpu[1], "memory": limit} | dict(limits or {})
    sides = {"requests": _present(requested), "limits": _present(limited)}
    return {side: amounts for side, amounts in sides.items() if amounts}


def box(
    request: object = None, limit: object = None, *, sidecar: bool = False, **more: Any
) -> Json:
    """A container by its memory request and limit; pod() gives it a name."""
    container: Json = {"resources": stanza(request, limit, **more)}
    return container | {"restartPolicy": "Always"} if sidecar else container


def pod(
    containers: Iterable[Json],
    *,
    init: Iterable[Json] = (),
    ephemeral: Iterable[Json] = (),
    resources: Json | None = None,
    overhead: Json | None = None,
    uid: str | None = None,
    qos_class: str | None = None,
    status: Json | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Pod:
    """A pod as the API server would decode it; containers are named c0, i0, e0 and so on."""
    groups = {
        "containers": _named("c", containers),
        "initContainers": _named("i", init),
        "ephemeralContainers": _named("e", ephemeral),
    }
    data: Json = {
        "metadata": {"name": "pod", "uid": uid, "annotations": annotations, "labels": labels},
        "spec": {"resources": resources, "overhead": overhead, **groups, **spec},
    }
    if qos_class is not None or status is not None:
        data["status"] = {"qosClass": qos_class, **(status or {})}
    return msgspec.convert(data, Pod)


def node_settings(
    release: str = "1.38",
    *,
    factor: float | None = 0.9,
    policy: Policy = "None",
    gates: Mapping[str, bool] | None = None,
    capacity: int | None = None,
    allocatable: int | None = None,
    page_size: int = PAGE_SIZE,
    single_process_oom_kill: bool = False,
    placement: Placement = "containers",
) -> Settings:
    """Settings with MemoryQoS on, whatever the release's own default is."""
    return Settings(
        release=Release.of(release, {"MemoryQoS": True, **(gates or {})}),
        factor=factor,
        policy=policy,
        single_process_oom_kill=single_process_oom_kill,
        memory_capacity=capacity,
        memory_allocatable=allocatable,
        page_size=page_size,
        placement=placement,
    )


def planned(pod: Pod, node_settings: Settings) -> PodPlan:
    """The plan of a pod that is valid."""
    found = semantics(pod, node_settings)
    assert not found.errors
    assert found.plan is not None
    return found.plan


def written(settings: FileSettings) -> dict[str, FileValue]:
    """The values that are written, by file."""
    return {name: setting.value for name, setting in settings.items() if setting.value is not None}


def default_new_pod(
    pod: Pod, ranges: Iterable[LimitRangeAmounts], release: Release, *, pod_defaults: bool = False
) -> Shape:
    """The shape of a newly created pod after all defaulting, that of limit ranges included."""
    changed = apply_limit_ranges(
        decoding_defaults(pod, release), ranges, release, pod_defaults=pod_defaults
    )
    return prepare_for_storage(changed, release)


def oom_reports(records: Iterable[LogRecord]) -> list[OomReport]:
    """All reports in a log."""
    reader = OomReader()
    found = [report for record in records for report in reader.feed(record)]
    return [*found, *reader.flush()]


def of_containers(plan: PodPlan, name: str) -> list[FileValue]:
    """The value of one file of each container: init, regular, then ephemeral containers."""
    return [container.settings[name].value for container in plan.containers]


def _present(amounts: Mapping[str, object]) -> Json:
    return {name: amount for name, amount in amounts.items() if amount is not None}


def _named(prefix: str, containers: Iterable[Json]) -> list[Json]:
    return [
        {"name": f"{prefix}{index}", "image": "image", **container}
        for index, container in enumerate(containers)
    ]
