"""Figures as a Markdown table and as JSON."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.figure import Figure

_HEADER = ("figure", "acpterm", "baseline", "compared", "plain server", "to reach", "")


def table(figures: Sequence[Figure]) -> str:
    """Return a table of figures in Markdown."""
    return markdown([_HEADER, *map(_row, figures)])


def markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table in Markdown; the first of `rows` is the header."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    )


def _row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.name,
        "not available" if figure.value is None else value(figure.value, figure.unit),
        "" if figure.baseline is None else value(figure.baseline, figure.unit),
        figure.compared,
        "" if figure.plain is None else value(figure.plain, figure.unit),
        figure.aim,
        {None: "", True: "reached", False: "missed"}[figure.met],
    )


def value(number: float, unit: str) -> str:
    """Return a number with its unit: without decimals from 100 on, else with two."""
    return (f"{number:.0f} {unit}" if abs(number) >= 100 else f"{number:.2f} {unit}").rstrip()


def machine() -> dict[str, object]:
    """Return a description of this machine, on which the figures were measured."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
    }


def write(path: str, figures: Sequence[Figure]) -> None:
    """Write the figures and the machine to the file `path`."""
    with open(path, "w") as file:
        json.dump({"machine": machine(), "figures": list(map(asdict, figures))}, file, indent=2)
        file.write("\n")
