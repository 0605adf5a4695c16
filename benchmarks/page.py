"""Writes the tables of internals/performance.md and scale.md: `python -m benchmarks.page RESULTS`.

RESULTS is a file that `python -m benchmarks --json` wrote. A page is not changed if
the file has no figures for it.
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.table import markdown, value

_DOCS = Path(__file__).parent.parent / "docs"
_BEGIN = "<!-- table -->\n"
_END = "<!-- end of table -->\n"
_HEADER = ("figure", "to reach", "baseline", "plain server", "acpterm", "")
_SCALE = re.compile(r"(\d+ terminals, \w+): (.*?)(?:, (p50|p99))?(?:, of \d+)?")
_RESULTS = {None: "", True: "reached", False: "missed"}


def main(results: str) -> None:
    figures, machine = _read(results)
    scale = [figure for figure in figures if _SCALE.fullmatch(figure.name)]
    others = [figure for figure in figures if figure not in scale]
    of = ", ".join(f"{name} {what}" for name, what in machine.items() if name != "load")
    if others:
        _write("internals/performance.md", [_HEADER, *map(_row, others)], of)
    if scale:
        _write("scale.md", _scale_rows(scale), of)


def _write(page: str, rows: Sequence[tuple[str, ...]], machine: str) -> None:
    path = _DOCS / page
    head, _, rest = path.read_text().partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    path.write_text(f"{head}{_BEGIN}{markdown(rows)}\n\n{machine}.\n{_END}{tail}")


def _scale_rows(figures: Sequence[Figure]) -> list[tuple[str, ...]]:
    """Return the rows of the table of scale.md: one column for each load.

    The p50 and p99 of a latency are in one cell.
    """
    cells: dict[str, dict[str, str]] = {}
    loads: dict[str, None] = {}
    for figure in figures:
        found = _SCALE.fullmatch(figure.name)
        assert found is not None
        load, label, percentile = found.groups()
        loads[load] = None
        row = cells.setdefault(label + (", p50 and p99" if percentile else ""), {})
        before = f"{row[load]}, " if load in row else ""
        row[load] = before + _measured(figure)
    rows = [(label, *(row.get(load, "") for load in loads)) for label, row in cells.items()]
    return [("", *loads), *rows]


def _read(path: str) -> tuple[list[Figure], dict[str, object]]:
    contents = json.loads(Path(path).read_text())
    return [Figure(**figure) for figure in contents["figures"]], contents["machine"]


def _row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.name,
        figure.aim,
        "" if figure.baseline is None else value(figure.baseline, figure.unit),
        "" if figure.plain is None else value(figure.plain, figure.unit),
        _measured(figure),
        _RESULTS[figure.met],
    )


def _measured(figure: Figure) -> str:
    if figure.value is None:
        return "not available"
    measured = value(figure.value, figure.unit)
    return f"{measured} ({figure.compared})" if figure.compared else measured


if __name__ == "__main__":
    main(*sys.argv[1:])
