"""What all tests share: where nothing may be missing, a skipped test has failed.

`ACPTERM_NO_SKIPS=1` says so; CI does. A test that skips says what it lacks: there it has to be put
right instead.
"""

import os
from collections.abc import Generator
from typing import Any

import pytest

NO_SKIPS = os.environ.get("ACPTERM_NO_SKIPS", "0") not in ("", "0")


def _refuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    # An expected failure is reported as skipped as well; that one is no gap.
    if NO_SKIPS and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}\nand ACPTERM_NO_SKIPS is set: what is missing has to be there"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    _refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    _refuse(report)
    return report
