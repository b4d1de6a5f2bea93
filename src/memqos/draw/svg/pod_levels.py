"""The memory levels of an explained pod, as a chart to draw."""

from memqos.draw.svg.levels import LevelBar, LevelsChart
from memqos.draw.text.pod import PodExplanation, settings_line
from memqos.kube.resources import MEMORY, Amounts, whole
from memqos.plan.setting import MAX, NEEDS_NODE, FileSettings, FileValue
from memqos.settings.enablement import Enablement
from memqos.settings.settings import Settings
from memqos.units import format_bytes


def pod_levels_chart(
    explained: PodExplanation, settings: Settings, enablement: Enablement
) -> LevelsChart:
    """The chart of a pod and its containers."""
    plan = explained.plan
    bars = [_level_bar("pod", "pod cgroup", plan.requests, plan.limits, plan.settings)]
    for name, part, container in zip(
        explained.names, explained.semantics.shape.parts, plan.containers, strict=True
    ):
        bars.append(
            _level_bar(name, container.role, part.requests, part.limits, container.settings)
        )
    namespace = f" in {explained.namespace}" if explained.namespace else ""
    return LevelsChart(
        f"{explained.label}{namespace} · {plan.qos}",
        settings_line(settings, enablement),
        tuple(bars),
        settings.memory_allocatable,
        explained.notes,
    )


def _level_bar(
    name: str, role: str, requests: Amounts, limits: Amounts, settings: FileSettings
) -> LevelBar:
    def level(file: str) -> FileValue:
        return settings[file].value if file in settings else None

    def level_bytes(file: str) -> int | None:
        value = level(file)
        return value if isinstance(value, int) else None

    return LevelBar(
        name=name,
        role=role,
        request=whole(requests[MEMORY]) if MEMORY in requests else None,
        limit=whole(limits[MEMORY]) if MEMORY in limits else None,
        min=level_bytes("memory.min"),
        low=level_bytes("memory.low"),
        high=level("memory.high"),
        max=MAX if level("memory.max") is None else level("memory.max"),
        oom_score_adj=level("oom_score_adj"),
        note=_swap_note(level("memory.swap.max")),
    )


def _swap_note(swap: FileValue) -> str:
    if not swap:
        return ""
    if swap == NEEDS_NODE:
        return "may swap: how much needs the node"
    return f"may swap {format_bytes(swap) if isinstance(swap, int) else 'without limit'}"
