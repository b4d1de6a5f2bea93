"""Histories against the levels that are proposed for them."""

from memqos.draw.svg.timeline import timeline_svg
from memqos.draw.svg.timeline_data import MemoryPoint, Timeline
from memqos.draw.text.size import risk_text
from memqos.errors import InputError
from memqos.release import Release
from memqos.settings.enablement import Enablement
from memqos.size.workloads import SizedContainer, SizeReport
from memqos.units import format_bytes

_MAX_DRAWN = 20


def size_svg(report: SizeReport, enablement: Enablement, release: Release) -> str:
    """One SVG document with the containers that are limited highest, twenty at most."""
    sized = [each for each in report.containers if each.recommendation.limit is not None]
    if not sized:
        raise InputError("nothing is sized, so there is nothing to draw", hint="-o table shows why")
    sized.sort(key=lambda each: -(each.recommendation.limit or 0))
    return timeline_svg([_timeline(each, enablement, release) for each in sized[:_MAX_DRAWN]])


def _timeline(each: SizedContainer, enablement: Enablement, release: Release) -> Timeline:
    found, levels = each.recommendation, each.levels
    replayed = None if levels is None else levels.replayed
    protected = 0 if replayed is None else replayed.protected
    is_min = levels is not None and levels.min == protected
    points = tuple(
        MemoryPoint(
            at * 1000,
            int(peak),
            min=protected if is_min else 0,
            low=0 if is_min else protected,
            high=None if replayed is None else replayed.high,
            max=found.limit,
        )
        for at, peak in each.history.need.slots.filled()
    )
    request, limit = found.request or 0, found.limit or 0
    subtitle = (
        f"request {format_bytes(request)} · limit {format_bytes(limit)} · "
        f"risk {risk_text(found.risk or 0.0)} of days · sure: {found.sureness} · "
        f"Kubernetes {release} · MemoryQoS {enablement.state}"
    )
    return Timeline(found.name.text, subtitle, points)
