"""A resize in place: allowed or not, and what it changes on the node."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from memqos.cluster.limit_effect import LimitEffect
from memqos.cluster.resize import Resize
from memqos.cluster.resize_verdict import ResizeAdmission, ResizeVerdict, resize_help
from memqos.draw.text.lines import Line, Table
from memqos.draw.text.pod import GATED_FILES, cpu_max_text, setting_cell
from memqos.errors import InputError
from memqos.kube.explanations import why_class
from memqos.kube.pod import Container, Pod
from memqos.kube.shape import Shape
from memqos.plan.pod import PodPlan
from memqos.plan.setting import FileSettings, FileValue, Setting
from memqos.plan.tree import by_file
from memqos.release import Release
from memqos.units import format_bytes

_PLAIN_FILES = ("oom_score_adj", "memory.oom.group", "cpu.weight")


class ResizeChange(msgspec.Struct, frozen=True):
    """One value that a resize changes; `cgroup` is `pod` or the name of a container."""

    cgroup: str
    file: str
    before: Setting
    after: Setting


class LimitChange(msgspec.Struct, frozen=True):
    """A container whose memory limit is lowered, and what that does to it at its usage."""

    container: str
    limit: int
    usage: int
    effect: LimitEffect


class NodeAnswers(msgspec.Struct, frozen=True):
    """What the node's kubelet, and the API server that knows the node, make of a resize."""

    kubelet: ResizeVerdict
    apiserver: ResizeAdmission | None = None

    @property
    def accepted(self) -> bool:
        allowed = self.apiserver is None or self.apiserver.allowed
        return allowed and self.kubelet.verdict in ("Accepted", "Unchanged")


class ResizeReport(msgspec.Struct, frozen=True, kw_only=True):
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
    changes: tuple[ResizeChange, ...] = ()
    changes_gate_off: tuple[ResizeChange, ...] | None = None
    """The same with MemoryQoS off; None where it is known whether it is on."""
    restarting: tuple[tuple[str, str], ...] = ()
    """Containers that are restarted, and for which resource."""
    notes: tuple[str, ...] = ()
    answers: NodeAnswers | None = None
    """None where no node is given, or the resize is not valid."""
    lowered: tuple[LimitChange, ...] = ()

    @property
    def accepted(self) -> bool:
        return self.resize.valid and (self.answers is None or self.answers.accepted)


def resize_changes(
    before: PodPlan, after: PodPlan, names: tuple[str, ...]
) -> Iterator[ResizeChange]:
    """Every value that differs, the pod's first."""
    for change in _all_values(before, after, names):
        if change.before.value != change.after.value:
            yield change


def gate_off_changes(
    changes: Iterable[ResizeChange], before: PodPlan, after: PodPlan, names: tuple[str, ...]
) -> Iterator[ResizeChange]:
    """Every value that differs with MemoryQoS off, or that differs with it on."""
    known = {(change.cgroup, change.file) for change in changes}
    for change in _all_values(before, after, names):
        is_changed = change.before.value != change.after.value
        if is_changed or (change.cgroup, change.file) in known:
            yield change


def _all_values(before: PodPlan, after: PodPlan, names: tuple[str, ...]) -> Iterator[ResizeChange]:
    yield from _setting_pairs("pod", before.settings, after.settings)
    for name, old, new in zip(names, before.containers, after.containers, strict=True):
        yield from _setting_pairs(name, old.settings, new.settings)


def _setting_pairs(
    cgroup: str, before: FileSettings, after: FileSettings
) -> Iterator[ResizeChange]:
    was, becomes = by_file(before), by_file(after)
    for file, setting in becomes.items():
        if file in was:
            yield ResizeChange(cgroup, file, was[file], setting)


def resize_restarts(old: Pod, before: Shape, after: Shape) -> Iterator[tuple[str, str]]:
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


def resize_text(found: ResizeReport) -> list[Line]:
    """The verdict, and every value that changes."""
    namespace = f" in {found.namespace}" if found.namespace else ""
    result = found.resize
    classes = (
        f"stays {result.class_before}"
        if result.class_before == result.class_after
        else f"{result.class_before} would become {result.class_after}"
    )
    lines: list[Line] = [f"{found.label}{namespace}  {_headline(found)} · {classes}"]
    lines += [f"  {refusal}" for refusal in found.refusals]
    if found.answers is not None:
        lines += _answer_lines(found.answers)
    if result.valid:
        lines += _change_lines(found)
    lines += [f"  {_lowered_text(each)}" for each in found.lowered]
    lines += [f"  note: {note}" for note in found.notes]
    return lines


def _headline(found: ResizeReport) -> str:
    answers = found.answers
    if not found.resize.valid:
        return "cannot be resized"
    if answers is None or answers.accepted:
        return "can be resized"
    if answers.apiserver is not None and not answers.apiserver.allowed:
        return "cannot be resized on its node"
    if answers.kubelet.still_pending:
        return "cannot be resized now, the kubelet retries it"
    return "valid, but cannot be resized in place"


def _answer_lines(answers: NodeAnswers) -> Iterator[str]:
    admission, verdict = answers.apiserver, answers.kubelet
    if admission is not None and not admission.allowed:
        yield f"  the API server refuses it, {admission.cause}: {admission.message}"
    why = f", {verdict.message}" if verdict.message else ""
    is_asked = admission is None or admission.allowed
    decides = "the kubelet's decision" if is_asked else "the kubelet would decide"
    yield f"  {decides}: {verdict.verdict}{why}"
    if verdict.preempted:
        names = ", ".join([pod.metadata.name or "?" for pod in verdict.preempted])
        yield f"  it evicts other pods for it: {names}"
    help_text = resize_help(verdict, admission)
    if help_text is not None:
        yield f"  fix: {help_text}"


_EFFECTS: Final[Mapping[LimitEffect, str]] = {
    "restart": "it is restarted with the new limit",
    "fits": "it keeps running: usage is below the new limit",
    "held back": "the kubelet delays the limit until usage is below it",
    "deadly": "the kernel reclaims, then OOM-kills: usage is not below the new limit",
}


def _lowered_text(each: LimitChange) -> str:
    return (
        f"{each.container} uses {format_bytes(each.usage)} of a new limit of "
        f"{format_bytes(each.limit)}: {_EFFECTS[each.effect]}"
    )


def _change_lines(found: ResizeReport) -> Iterator[Line]:
    if not found.changes:
        yield "  nothing changes on the node"
        return
    rows = [["", "", "", "before", "after"]]
    owner = ""
    for change, gate in _marked_changes(found):
        title = "" if change.cgroup == owner else change.cgroup
        owner = change.cgroup
        file = "" if gate == "off" else change.file
        values = [_value_text(change.file, each) for each in _pair(change)]
        rows.append([title, file, gate, *values])
    if found.changes_gate_off is None:
        rows = [[row[0], row[1], *row[3:]] for row in rows]
    yield Table(rows, left=2 if found.changes_gate_off is None else 3)
    restarted = {name for name, _ in found.restarting}
    for name, resource in found.restarting:
        yield f"  {name} is restarted: its resizePolicy for {resource} is RestartContainer"
    for change in found.changes:
        # oom_score_adj belongs to processes: runtimes write it as they start one, and an update of
        # a container's resources does not (runc update has no such option).
        if change.file == "oom_score_adj" and change.cgroup not in restarted:
            yield (
                f"  {change.cgroup} keeps oom_score_adj {change.before.value} until it is "
                "restarted: runtimes set it when a container starts"
            )


def _marked_changes(found: ResizeReport) -> Iterator[tuple[ResizeChange, str]]:
    """The changes, and for which state of the gate; those of its files for both."""
    off = {(each.cgroup, each.file): each for each in found.changes_gate_off or ()}
    for change in found.changes:
        gate_off = off.get((change.cgroup, change.file))
        if gate_off is None or change.file not in GATED_FILES:
            yield change, ""
        else:
            yield change, "on"
            yield gate_off, "off"


def _pair(change: ResizeChange) -> tuple[Setting, Setting]:
    return change.before, change.after


def _value_text(file: str, setting: Setting) -> str:
    if file == "cpu.max":
        return cpu_max_text(setting)
    return setting_cell(setting, plain=file in _PLAIN_FILES)


def resize_reasons(found: ResizeReport) -> list[str]:
    """The rule behind every value that changes."""
    lines = ["", f"why {found.label}", *[f"  {line}" for line in _why_classes(found)]]
    for change in found.changes:
        reason = change.after.because
        lines.append(f"  {change.cgroup} {change.file} → {_exact_value(change.after.value)}")
        lines.append(f"    {reason.text}")
        lines += [f"    {step}" for step in reason.steps]
        lines.append(f"    rule {reason.rule} ({reason.source})")
    return lines


def _why_classes(found: ResizeReport) -> Iterator[str]:
    result, names = found.resize, list(found.names)
    yield f"class {result.class_before} before: {why_class(result.before, names, found.release)}"
    if result.before.parts and len(result.after.parts) == len(result.before.parts):
        after = msgspec.structs.replace(result.after, stored_class=None)
        yield f"class {result.class_after} after: {why_class(after, names, found.release)}"


def _exact_value(value: FileValue) -> str:
    return "not written" if value is None else str(value)


def resize_data(found: ResizeReport, *, why: bool) -> dict[str, Any]:
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
        "changes": [_change_data(change, why=why) for change in found.changes],
        **(
            {}
            if found.changes_gate_off is None
            else {
                "by_enablement": {
                    "on": [_change_data(change, why=why) for change in found.changes],
                    "off": [_change_data(change, why=why) for change in found.changes_gate_off],
                }
            }
        ),
        "restarted": [
            {"container": name, "resource": resource} for name, resource in found.restarting
        ],
        "notes": list(found.notes),
        **({} if found.answers is None else _answers_data(found.answers)),
        "lowered": msgspec.to_builtins(found.lowered),
        **({"why": list(_why_classes(found))} if why else {}),
    }


def _answers_data(answers: NodeAnswers) -> dict[str, Any]:
    verdict, admission = answers.kubelet, answers.apiserver
    return {
        "kubelet": {
            "verdict": verdict.verdict,
            "rule": verdict.obstacle or verdict.reason,
            "reason": verdict.reason,
            "message": verdict.message,
            "still_pending": verdict.still_pending,
            "preempted": [pod.metadata.name for pod in verdict.preempted],
            "help": resize_help(verdict, answers.apiserver),
        },
        "api_admission": None
        if admission is None
        else {
            "allowed": admission.allowed,
            "cause": admission.cause,
            "message": admission.message,
        },
    }


def _change_data(change: ResizeChange, *, why: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "cgroup": change.cgroup,
        "file": change.file,
        "before": change.before.value,
        "after": change.after.value,
    }
    return data | ({"because": msgspec.to_builtins(change.after.because)} if why else {})
