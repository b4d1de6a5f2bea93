"""Amounts of memory as values of options."""

from typing import Any

import click

from memqos.api.quantity import Quantity
from memqos.errors import InputError


class Bytes(click.ParamType[int]):
    """A quantity above nothing, in bytes."""

    name = "QUANTITY"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            amount = Quantity.parse(value).value
        except InputError as error:
            self.fail(str(error), param, ctx)
        if amount <= 0:
            self.fail(f"{value!r} is not a positive amount", param, ctx)
        return amount
