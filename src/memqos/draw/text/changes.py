"""A node compared with its plan: what would change, and what memqos does not write; text, data."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from memqos.draw.text.lines import Line, Style, Styled, Table
from memqos.plan.changes import Change, Comparison
from memqos.plan.effective import Protection
from memqos.plan.names import outer
from memqos.plan.setting import Reason
from memqos.plan.tree import Cgroup, Unresolved
from memqos.units import format_bytes

_EMPTY = "(empty)"
_KNOB = {"memory.min": "min", "memory.low": "low"}
_SHOWN: Final = 5
_KIND_STYLES: Final[dict[str, Style]] = {"+": "added", "~": "changed", "-": "removed"}
_DROP: Final = {"honoured": 6}


def changes_text(
    comparison: Comparison, protections: Mapping[str, Protection], *, why: bool
) -> list[Line]:
    """The changes as a table, for review before they are written."""
    lines: list[Line] = []
    if comparison.changes:
        rows = [["", "cgroup", "file", "now", "", "planned", "honoured"]]
        rows += [_change_row(change, protections) for change in comparison.changes]
        if not protections:
            rows = [row[:-1] for row in rows]
        lines.append(Table(rows, left=3, drop=_DROP if protections else {}))
        if why:
            for change in comparison.changes:
                lines += ["", *_reason_lines(change, change.setting.because)]
    if comparison.withheld:
        lines += ["", "withheld on this kernel, neither set nor reset (--allow-old-kernel writes):"]
        rows = [
            [" ", _cgroup_name(c), c.file, *_both_contents(c), "withheld"]
            for c in comparison.withheld
        ]
        lines.append(Table(rows, left=3, has_remarks=True))
    if comparison.unmanaged:
        lines += ["", "differs from the kubelet's values, and not written by memqos:"]
        rows = [[" ", _cgroup_name(c), c.file, c.old, "≠", c.new] for c in comparison.unmanaged]
        lines.append(Table(rows, left=3))
    return lines


def changes_summary(comparison: Comparison) -> str:
    """One line."""
    withheld = f", {len(comparison.withheld)} withheld" if comparison.withheld else ""
    if not comparison.changes:
        return f"converged: nothing to change{withheld}"
    kinds = {"+": "to set", "~": "to change", "-": "to reset"}
    counts = [
        f"{sum(change.kind == kind for change in comparison.changes)} {words}"
        for kind, words in kinds.items()
        if any(change.kind == kind for change in comparison.changes)
    ]
    return ", ".join(counts) + withheld


def gaps_text(
    unresolved: Iterable[Unresolved], orphans: Sequence[str], missing: Iterable[Cgroup]
) -> list[str]:
    """Pods without a cgroup, and cgroups without a pod.

    That a container's cgroup is missing is no news: it has not started, or has ended.
    """
    lines = [
        f"unresolved: {f'{each.pod} {each.container}' if each.container else each.pod}: {each.why}"
        for each in unresolved
    ]
    lines += [
        f"missing: {each.path}: planned for {each.pod or 'all pods'}, but the cgroup does not exist"
        for each in missing
        if each.level != "container"
    ]
    if orphans:
        shown = ", ".join(orphans[:_SHOWN]) + (" …" if len(orphans) > _SHOWN else "")
        lines.append(
            f"unknown: pod cgroups that belong to no known pod: {len(orphans)} ({shown}) – their "
            f"protection is not planned; a kubelet that has just started does not list all pods "
            f"yet"
        )
    return lines


def _change_row(change: Change, protections: Mapping[str, Protection]) -> list[str]:
    return [
        Styled(change.kind, _KIND_STYLES[change.kind]),
        _cgroup_name(change),
        change.file,
        *_both_contents(change),
        _effective_words(change, protections),
    ]


def _cgroup_name(change: Change) -> str:
    within = "" if outer(change.path) == change.path else ", within"
    if change.container is not None:
        return f"{change.pod} {change.container}{within}"
    if change.level == "container":
        return f"{change.pod} (sandbox){within}"
    return change.pod or change.path


def _both_contents(change: Change) -> tuple[str, str, str]:
    """Old and new; in bytes where a short form would not show the difference."""
    old, new = _content_text(change.old), _content_text(change.new)
    return (change.old, "→", change.new) if old == new else (old, "→", new)


def _content_text(content: str) -> str:
    return format_bytes(int(content)) if content.isdigit() else content or _EMPTY


def _effective_words(change: Change, protections: Mapping[str, Protection]) -> str:
    knob = _KNOB.get(change.file)
    protection = protections.get(change.path)
    if knob is None or protection is None:
        return ""
    share = protection.min if knob == "min" else protection.low
    text = format_bytes(share.effective)
    return f"{text}, {share.taken_by} takes {format_bytes(share.lost)}" if share.lost else text


def _reason_lines(change: Change, reason: Reason) -> list[str]:
    both = f"{change.old or _EMPTY} → {change.new or _EMPTY}"
    lines = [f"{change.path}/{change.file}: {both}", f"  {reason.text}"]
    lines += [f"  {step}" for step in reason.steps]
    lines.append(f"  rule {reason.rule} ({reason.source})")
    return lines if reason.differs is None else [*lines, f"  {reason.differs}"]


def changes_data(
    changes: Iterable[Change], protections: Mapping[str, Protection]
) -> list[dict[str, Any]]:
    """Changes as plain data."""
    return [
        {
            "kind": change.kind,
            "path": change.path,
            "file": change.file,
            "old": change.old,
            "new": change.new,
            "level": change.level,
            "pod": change.pod,
            "container": change.container,
            "honoured": _effective_bytes(change, protections),
            "because": msgspec.to_builtins(change.setting.because),
        }
        for change in changes
    ]


def _effective_bytes(change: Change, protections: Mapping[str, Protection]) -> int | None:
    knob, protection = _KNOB.get(change.file), protections.get(change.path)
    if knob is None or protection is None:
        return None
    return protection.min.effective if knob == "min" else protection.low.effective
