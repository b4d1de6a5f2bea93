"""The scores of recommenders as a picture: slack against violations, a panel for each dataset."""

import math
from collections.abc import Mapping
from typing import Final, Protocol

from memqos.draw.svg.elements import Markup, el, svg_document, svg_line, svg_text

_PANEL: Final = 390
_HEIGHT: Final = 230
_LEFT: Final = 64
_LABEL: Final = 14
_FLOOR: Final = 1e-5
"""Violations below this are drawn on the axis."""


class Scored(Protocol):
    """A score on a dataset."""

    @property
    def slack_share(self) -> float: ...
    @property
    def violation_share(self) -> float: ...


def scores_svg(scored: Mapping[str, Mapping[str, Scored]]) -> str:
    """Two panels a row; left and low is better."""
    panels = []
    for index, (name, scores) in enumerate(scored.items()):
        x, y = index % 2 * _PANEL, index // 2 * _HEIGHT
        panels.append(el("g", *_panel(name, scores), transform=f"translate({x} {y})"))
    height = math.ceil(len(scored) / 2) * _HEIGHT + 10
    title = "Slack against violations of recommenders"
    return svg_document(title, title, panels, 2 * _PANEL, height)


def _panel(name: str, scores: Mapping[str, Scored]) -> list[Markup]:
    right, top, bottom = _PANEL - 30, 44, _HEIGHT - 40
    most = max(score.slack_share for score in scores.values()) * 1.5
    worst = max([1e-3, *[score.violation_share for score in scores.values()]]) * 2

    def y(share: float) -> float:
        scale = math.log(worst / _FLOOR)
        return bottom - (bottom - top) * math.log(max(share, _FLOOR) / _FLOOR) / scale

    parts = [
        svg_text(20, 20, "ink title", name),
        svg_line("axis", _LEFT, bottom, right, bottom),
        svg_line("axis", _LEFT, top, _LEFT, bottom),
        svg_text(right - 160, bottom + 28, "dim", "slack, as a share of usage"),
        svg_text(20, 36, "dim", "share of samples above"),
    ]
    for step in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
        if step <= worst:
            label = "none" if step == _FLOOR else f"{step:.2%}"
            parts.append(svg_text(20, y(step) + 4, "dim", label))
    for share in (0, most / 2, most):
        at = _LEFT + (right - _LEFT) * share / most
        parts.append(svg_text(at - 8, bottom + 14, "dim", f"{share:.2f}"))
    free = 0.0
    for recommender, score in sorted(scores.items(), key=lambda each: -each[1].violation_share):
        x = _LEFT + (right - _LEFT) * score.slack_share / most
        at = y(score.violation_share)
        # Labels of points that are close stand below each other, right of all points.
        free = max(at + 4, free + _LABEL)
        look = "min" if recommender == "memqos" else "dim"
        parts.append(svg_line("axis", x + 5, at, right - 76, free - 4))
        parts.append(el("circle", cx=x, cy=at, r=5, class_=look))
        parts.append(svg_text(right - 72, free, "ink small", recommender))
    return parts
