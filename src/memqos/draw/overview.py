"""A pod at a glance: itself and its containers, a row each."""

from collections.abc import Iterator

from memqos.draw.explained import PodExplanation
from memqos.draw.table import short_bytes, table
from memqos.kube.resources import MEMORY, Amounts, whole
from memqos.plan.cpu import weight_of
from memqos.plan.pod import PodPlan
from memqos.plan.setting import NEEDS_NODE, FileSettings, Setting


def pod_overview(explained: PodExplanation) -> list[str]:
    """The pod and its containers, a row each."""
    plan = explained.plan
    namespace = f" in {explained.namespace}" if explained.namespace else ""
    rows = [
        ["", "", "", "memory.", "", "", "", "oom_", "cpu.", ""],
        ["", "request", "limit", "min", "low", "high", "max", "score_adj", "weight", "max"],
        _cgroup_row("pod", plan.requests, plan.limits, plan.settings),
    ]
    last = len(plan.containers) - 1
    for index, (name, part, container) in enumerate(
        zip(explained.names, explained.semantics.shape.parts, plan.containers, strict=True)
    ):
        branch = "└ " if index == last else "├ "
        role = "" if container.role == "regular" else f" ({container.role})"
        rows.append(
            _cgroup_row(branch + name + role, part.requests, part.limits, container.settings)
        )
    lines = [f"{explained.label}{namespace}  {plan.qos}", *table(rows)]
    for setting_name, value in _hugepages(plan):
        lines.append(f"  {setting_name} = {value}")
    lines += [f"  note: {note}" for note in explained.notes]
    return lines


def _cgroup_row(name: str, requests: Amounts, limits: Amounts, settings: FileSettings) -> list[str]:
    return [
        name,
        _memory_cell(requests),
        _memory_cell(limits),
        *[setting_cell(settings[f"memory.{level}"]) for level in ("min", "low", "high", "max")],
        setting_cell(settings["oom_score_adj"], plain=True) if "oom_score_adj" in settings else "",
        str(cpu_weight(settings)),
        cpu_max_text(settings["cpu.max"]),
    ]


def _memory_cell(amounts: Amounts) -> str:
    return short_bytes(whole(amounts[MEMORY])) if MEMORY in amounts else "–"


def setting_cell(setting: Setting, *, plain: bool = False) -> str:
    """A value for a column; bytes are shortened unless `plain`."""
    value = setting.value
    if value is None:
        return "–"
    if value == NEEDS_NODE:
        return "--node?"
    if isinstance(value, int) and not plain:
        return short_bytes(value)
    return str(value)


def cpu_max_text(setting: Setting) -> str:
    """cpu.max as a number of cpus."""
    quota, _, period = setting_cell(setting, plain=True).partition(" ")
    return f"{int(quota) / int(period):g} cpu" if quota.isdigit() else quota


def cpu_weight(settings: FileSettings) -> int:
    """The cpu.weight that the planned shares become."""
    shares = settings["cpu.shares"].value
    assert isinstance(shares, int)
    return weight_of(shares)


def _hugepages(plan: PodPlan) -> Iterator[tuple[str, str]]:
    for name, setting in plan.settings.items():
        if name.startswith("hugetlb.") and isinstance(setting.value, int) and setting.value:
            yield name, short_bytes(setting.value)
