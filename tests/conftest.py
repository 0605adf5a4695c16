"""Settings of all tests.

With `ACPTERM_NO_SKIPS=1`, which CI sets, a skipped test fails: whatever it lacks must be installed.

hypothesis has no deadline for examples, because their duration depends on the load of the machine.
A test that hangs is ended by its timeout.
"""

import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from acpterm.keeper import client
from tests.support.depth import examples
from tests.support.starting import NEW_PYTHON, start_embedded_keeper

settings.register_profile(
    "acpterm",
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("acpterm")

NO_SKIPS = os.environ.get("ACPTERM_NO_SKIPS", "0") not in ("", "0")


@pytest.fixture(autouse=True, scope="module")
def quick_keepers() -> Iterator[None]:
    """Fork the keepers of hosts in this process, since starting Python takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        if not NEW_PYTHON:
            patch.setattr(client, "_start_embedded", start_embedded_keeper)
        yield


def _refuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    # An expected failure is also reported as skipped.
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
