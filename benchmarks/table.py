"""Figures as a table for people and as JSON for programs."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.figure import Figure

_HEADER = ("figure", "acpterm", "baseline", "compared", "aim", "met")


def table(figures: Sequence[Figure]) -> str:
    """Write a table, in Markdown."""
    rows = [_HEADER, *map(_row, figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    rows.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    )


def _row(figure: Figure) -> tuple[str, ...]:
    compared = ""
    if figure.baseline is not None and figure.reached is not None:
        more = figure.aim.endswith("more")
        compared = f"{figure.reached:+.2f} {figure.unit}" if more else f"{figure.reached:.2f} times"
    return (
        figure.name,
        _value(figure.host, figure.unit),
        "" if figure.baseline is None else _value(figure.baseline, figure.unit),
        compared,
        figure.aim,
        {None: "", True: "yes", False: "NO"}[figure.met],
    )


def _value(value: float, unit: str) -> str:
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.2f} {unit}"


def machine() -> dict[str, object]:
    """Say what the figures were measured on."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
    }


def write(path: str, figures: Sequence[Figure]) -> None:
    """Write the figures, and the machine they are of, to the file `path`."""
    with open(path, "w") as file:
        json.dump({"machine": machine(), "figures": list(map(asdict, figures))}, file, indent=2)
        file.write("\n")
