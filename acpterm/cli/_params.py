"""Numbers and sizes on the command line."""

import math
import re
from typing import Any, Final

import click

_SIZE: Final = re.compile(r"([0-9]{1,6})x([0-9]{1,6})")
_CELLS_MAX: Final = 10_000


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


class Size(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """The size of a window: COLSxROWS."""

    name = "size"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Parse it."""
        if isinstance(value, tuple):
            return value
        found = _SIZE.fullmatch(str(value))
        cols, rows = (int(found[1]), int(found[2])) if found else (0, 0)
        if not (1 <= cols <= _CELLS_MAX and 1 <= rows <= _CELLS_MAX):
            self.fail(f"{value!r} is not a size: give COLSxROWS, such as 80x24", param, ctx)
        return cols, rows
