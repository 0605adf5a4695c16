"""Writes the table of docs/performance.md: `python -m benchmarks.page RESULTS`.

RESULTS is a file that `python -m benchmarks --json` wrote.
"""

import json
import sys
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.table import markdown, value

_PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
_BEGIN = "<!-- table -->\n"
_END = "<!-- end of table -->\n"
_HEADER = ("figure", "to reach", "baseline", "plain server", "acpterm", "")
_RESULTS = {None: "", True: "reached", False: "missed"}


def main(results: str) -> None:
    figures, machine = _read(results)
    rows = [_row(figure) for figure in figures]
    of = ", ".join(f"{name} {what}" for name, what in machine.items() if name != "load")
    page = _PAGE.read_text()
    head, _, rest = page.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    _PAGE.write_text(f"{head}{_BEGIN}{markdown([_HEADER, *rows])}\n\n{of}.\n{_END}{tail}")


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
