"""Numbers on the command line."""

import math
from typing import Any

import click


class Finite(click.FloatRange):
    """A number, which click's own need not be: it takes `nan` and `inf`."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number
