"""Amounts of memory and of time as values of options."""

from typing import Any

import click

from memqos.errors import InputError
from memqos.kube.quantity import MAX_INT64, Quantity


class BytesType(click.ParamType[int]):
    """A quantity above nothing, in bytes."""

    name = "QUANTITY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            amount = Quantity.parse(value).value
        except InputError as error:
            self.fail(str(error), param, ctx)
        if not 0 < amount <= MAX_INT64:
            what = "a positive amount" if amount <= 0 else "an amount that a machine can have"
            self.fail(f"{value!r} is not {what}", param, ctx)
        return amount


class SecondsType(click.FloatRange):
    """A time to wait; unlike a plain range, it is always a number."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds: float = super().convert(value, param, ctx)
        if seconds != seconds:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds
