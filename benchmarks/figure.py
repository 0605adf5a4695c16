"""One figure: the measured value, its baseline from the same run, and whether the target is met."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Figure:
    """A measured figure: a value, its baseline and its target.

    `value`, `baseline` and `plain` are in `unit`.
    """

    name: str
    unit: str
    value: float | None
    """The measured value; None if this version of acpterm does not have what is measured."""
    baseline: float | None = None
    plain: float | None = None
    """The same measurement of `plain_server`, if that is not the baseline."""
    aim: str = ""
    """The target, in words; empty for a figure without a target."""
    compared: str = ""
    """The ratio of value and baseline, or their difference, in words."""
    met: bool | None = None
    """Whether the target is met; None without a target."""
    detail: dict[str, Any] = field(default_factory=dict)
    """Further values for the JSON file, such as those of each round."""


def compare(
    name: str,
    unit: str,
    value: float,
    baseline: float,
    *,
    plain: float | None = None,
    at_most: float | None = None,
    at_least: float | None = None,
    more: float | None = None,
    **detail: Any,
) -> Figure:
    """Return a figure with a baseline and at most one target.

    The target is a value of at most `at_most` times the baseline; or of at least `at_least` times
    the baseline; or of at most `more` (in `unit`) above the baseline.
    """
    figure = Figure(name, unit, value, baseline, plain, detail=detail)
    figure.compared = f"{value / baseline:.2f} times"
    if at_most is not None:
        figure.aim, figure.met = f"at most {at_most:g} times", value <= at_most * baseline
    elif at_least is not None:
        figure.aim, figure.met = f"at least {at_least:g} times", value >= at_least * baseline
    elif more is not None:
        figure.compared = f"{value - baseline:+.2f} {unit}"
        figure.aim, figure.met = f"at most {more:g} {unit} more", value - baseline <= more
    return figure


def below(
    name: str, unit: str, value: float, most: float, *, plain: float | None = None, **detail: Any
) -> Figure:
    """Return a figure without a baseline, with the target of at most `most`."""
    aim = f"at most {most:g} {unit}"
    return Figure(name, unit, value, None, plain, aim, "", value <= most, detail)


def above(name: str, unit: str, value: float, least: float, **detail: Any) -> Figure:
    """Return a figure without a baseline, with the target of at least `least`."""
    aim = f"at least {least:g} {unit}".rstrip()
    return Figure(name, unit, value, aim=aim, met=value >= least, detail=detail)


def report(name: str, unit: str, value: float, baseline: float | None, **detail: Any) -> Figure:
    """Return a figure without a target."""
    compared = "" if baseline is None else f"{value / baseline:.2f} times"
    return Figure(name, unit, value, baseline, compared=compared, detail=detail)


def unavailable(name: str, unit: str, aim: str, reason: str) -> Figure:
    """Return a figure that cannot be measured with this version of acpterm, and why."""
    return Figure(name, unit, None, aim=aim, detail={"reason": reason})


def p50(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return sorted(values)[max(0, -(-99 * len(values) // 100) - 1)]
