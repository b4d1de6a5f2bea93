"""A resize in place: allowed or not, and what it changes on the node."""

from collections.abc import Iterator
from typing import Any

import msgspec

from memqos.cluster.resize import Resize
from memqos.draw.overview import cell, cpus
from memqos.draw.table import table
from memqos.errors import InputError
from memqos.kube.pod import Container, Pod
from memqos.kube.shape import Shape
from memqos.kube.why import why_class
from memqos.plan.pod import PodPlan
from memqos.plan.setting import Setting, Settings, Value
from memqos.plan.tree import by_file
from memqos.release import Release

_PLAIN = ("oom_score_adj", "memory.oom.group", "cpu.weight")


class Change(msgspec.Struct, frozen=True):
    """One value that a resize changes; `cgroup` is `pod` or the name of a container."""

    cgroup: str
    file: str
    before: Setting
    after: Setting


class Resizing(msgspec.Struct, frozen=True):
    """A resize, its verdict, and what it changes if it is allowed."""

    label: str
    namespace: str | None
    origins: tuple[str, str]
    """file:line of the old pod, and of the new one."""
    names: tuple[str, ...]
    release: Release
    resize: Resize
    refusals: tuple[InputError, ...]
    """The field errors, with their places in the new pod."""
    changes: tuple[Change, ...] = ()
    restarting: tuple[tuple[str, str], ...] = ()
    """Containers that are restarted, and for which resource."""
    notes: tuple[str, ...] = ()


def changes(before: PodPlan, after: PodPlan, names: tuple[str, ...]) -> Iterator[Change]:
    """Every value that differs, the pod's first."""
    yield from _changed("pod", before.settings, after.settings)
    for name, old, new in zip(names, before.containers, after.containers, strict=True):
        yield from _changed(name, old.settings, new.settings)


def _changed(cgroup: str, before: Settings, after: Settings) -> Iterator[Change]:
    was, becomes = by_file(before), by_file(after)
    for file, setting in becomes.items():
        if file in was and was[file].value != setting.value:
            yield Change(cgroup, file, was[file], setting)


def restarting(old: Pod, before: Shape, after: Shape) -> Iterator[tuple[str, str]]:
    """Containers whose policy is to restart when a resource that changes is resized."""
    containers: tuple[Container, ...] = (old.spec.init_containers or ()) + (
        old.spec.containers or ()
    )
    for container, was, becomes in zip(containers, before.parts, after.parts, strict=False):
        for policy in container.resize_policy or ():
            name = policy.resource_name
            is_changed = (was.requests.get(name), was.limits.get(name)) != (
                becomes.requests.get(name),
                becomes.limits.get(name),
            )
            if policy.restart_policy == "RestartContainer" and is_changed:
                yield container.name, name


def resizing(found: Resizing) -> list[str]:
    """The verdict, and every value that changes."""
    namespace = f" in {found.namespace}" if found.namespace else ""
    result = found.resize
    classes = (
        f"stays {result.class_before}"
        if result.class_before == result.class_after
        else f"{result.class_before} would become {result.class_after}"
    )
    verdict = "can be resized" if result.valid else "cannot be resized"
    lines = [f"{found.label}{namespace}  {verdict} · {classes}"]
    lines += [f"  {refusal}" for refusal in found.refusals]
    if result.valid:
        lines += _changes(found)
    lines += [f"  note: {note}" for note in found.notes]
    return lines


def _changes(found: Resizing) -> Iterator[str]:
    if not found.changes:
        yield "  nothing changes on the node"
        return
    rows = [["", "", "before", "after"]]
    owner = ""
    for change in found.changes:
        title = "" if change.cgroup == owner else change.cgroup
        owner = change.cgroup
        rows.append([title, change.file, *[_shown(change.file, each) for each in _pair(change)]])
    yield from table(rows, left=2)
    restarted = {name for name, _ in found.restarting}
    for name, resource in found.restarting:
        yield f"  {name} is restarted: its resizePolicy for {resource} is RestartContainer"
    for change in found.changes:
        if change.file == "oom_score_adj" and change.cgroup not in restarted:
            yield (
                f"  {change.cgroup} keeps oom_score_adj {change.before.value} until it is "
                "restarted: runtimes set it when a container starts"
            )


def _pair(change: Change) -> tuple[Setting, Setting]:
    return change.before, change.after


def _shown(file: str, setting: Setting) -> str:
    if file == "cpu.max":
        return cpus(setting)
    return cell(setting, plain=file in _PLAIN)


def resizing_reasons(found: Resizing) -> list[str]:
    """The rule behind every value that changes."""
    lines = ["", f"why {found.label}", *[f"  {line}" for line in _why_classes(found)]]
    for change in found.changes:
        reason = change.after.because
        lines.append(f"  {change.cgroup} {change.file} → {_exact(change.after.value)}")
        lines.append(f"    {reason.says}")
        lines += [f"    {step}" for step in reason.steps]
        lines.append(f"    rule {reason.rule} ({reason.source})")
    return lines


def _why_classes(found: Resizing) -> Iterator[str]:
    result, names = found.resize, list(found.names)
    yield f"class {result.class_before} before: {why_class(result.before, names, found.release)}"
    if result.before.parts and len(result.after.parts) == len(result.before.parts):
        after = msgspec.structs.replace(result.after, stored_class=None)
        yield f"class {result.class_after} after: {why_class(after, names, found.release)}"


def _exact(value: Value) -> str:
    return "not written" if value is None else str(value)


def resizing_data(found: Resizing, *, why: bool) -> dict[str, Any]:
    """The same as plain data."""
    result = found.resize
    return {
        "old": found.origins[0],
        "new": found.origins[1],
        "name": found.label,
        "namespace": found.namespace,
        "allowed": result.valid,
        "errors": [{"field": error.field, "message": error.message} for error in result.errors],
        "qosClass": {"before": result.class_before, "after": result.class_after},
        "changes": [_data(change, why=why) for change in found.changes],
        "restarted": [
            {"container": name, "resource": resource} for name, resource in found.restarting
        ],
        "notes": list(found.notes),
        **({"why": list(_why_classes(found))} if why else {}),
    }


def _data(change: Change, *, why: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "cgroup": change.cgroup,
        "file": change.file,
        "before": change.before.value,
        "after": change.after.value,
    }
    return data | ({"because": msgspec.to_builtins(change.after.because)} if why else {})
