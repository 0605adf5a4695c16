"""One figure: what was measured, the baseline beside it, and whether the aim is met."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Figure:
    """A measured figure. `host` and `baseline` are in `unit`; no baseline is None."""

    name: str
    unit: str
    host: float
    baseline: float | None
    aim: str
    """What is to be reached, in words; empty for a figure that is only reported."""
    reached: float | None = None
    """What the aim speaks of: the ratio, the difference or the figure itself."""
    met: bool | None = None
    detail: dict[str, Any] = field(default_factory=dict)


def compare(
    name: str,
    unit: str,
    host: float,
    baseline: float,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    more: float | None = None,
    **detail: Any,
) -> Figure:
    """Make a figure from a host's value and its baseline's, and one aim.

    `at_most`, `at_least`: times the baseline; `more`: how much more than the baseline, in `unit`.
    """
    figure = Figure(name, unit, host, baseline, "", host / baseline, None, detail)
    if at_most is not None:
        figure.aim, figure.met = f"at most {at_most:g} times", host <= at_most * baseline
    elif at_least is not None:
        figure.aim, figure.met = f"at least {at_least:g} times", host >= at_least * baseline
    elif more is not None:
        figure.reached = host - baseline
        figure.aim, figure.met = f"at most {more:g} {unit} more", host - baseline <= more
    return figure


def below(name: str, unit: str, host: float, most: float, **detail: Any) -> Figure:
    """Make a figure that has no baseline, only a most."""
    return Figure(name, unit, host, None, f"at most {most:g} {unit}", host, host <= most, detail)


def report(name: str, unit: str, host: float, baseline: float | None, **detail: Any) -> Figure:
    """Make a figure without an aim."""
    ratio = None if baseline is None else host / baseline
    return Figure(name, unit, host, baseline, "", ratio, None, detail)


def p50(values: Sequence[float]) -> float:
    """Give the median."""
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    """Give the value that one in a hundred is above."""
    return sorted(values)[max(0, -(-99 * len(values) // 100) - 1)]
