"""Replays recorded quantities: parsing, spelling and arithmetic."""

from collections.abc import Callable
from typing import Any

from memqos.cli.replay.pods import ReplayCase
from memqos.errors import InputError
from memqos.kube.quantity import Quantity


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
