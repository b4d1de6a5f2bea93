"""The picture of memory levels of an explained pod."""

from memqos.draw.explained import Explained, terms_line
from memqos.draw.levels import Bar, Chart
from memqos.kube.resources import MEMORY, Amounts, whole
from memqos.plan.setting import MAX, Settings, Value
from memqos.plan.terms import Terms


def picture(explained: Explained, terms: Terms) -> Chart:
    """The picture of memory levels for this very pod."""
    plan = explained.plan
    bars = [_bar("pod", "pod cgroup", plan.requests, plan.limits, plan.settings)]
    for name, part, container in zip(
        explained.names, explained.semantics.shape.parts, plan.containers, strict=True
    ):
        bars.append(_bar(name, container.role, part.requests, part.limits, container.settings))
    return Chart(
        f"{explained.label} · {plan.qos}", terms_line(terms), tuple(bars), terms.memory_allocatable
    )


def _bar(name: str, role: str, requests: Amounts, limits: Amounts, settings: Settings) -> Bar:
    def level(file: str) -> Value:
        return settings[file].value if file in settings else None

    def protected(file: str) -> int | None:
        value = level(file)
        return value if isinstance(value, int) else None

    return Bar(
        name=name,
        role=role,
        request=whole(requests[MEMORY]) if MEMORY in requests else None,
        limit=whole(limits[MEMORY]) if MEMORY in limits else None,
        min=protected("memory.min"),
        low=protected("memory.low"),
        high=level("memory.high"),
        max=MAX if level("memory.max") is None else level("memory.max"),
        oom_score_adj=level("oom_score_adj"),
    )
