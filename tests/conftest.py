"""What all tests share.

Where nothing may be missing a skipped test has failed: `ACPTERM_NO_SKIPS=1` says so, and CI does.
A test that skips says what it lacks; there that has to be put right instead.

How long an example takes says more about what else the machine does than about what is tested, so
hypothesis does not judge it. A test that hangs is ended by its timeout.
"""

import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from acpterm.keeper import client
from tests.support.depth import examples
from tests.support.starting import AFRESH, start_embedded_keeper

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
    """Fork the keepers of hosts in this process: a Python for each would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        if not AFRESH:
            patch.setattr(client, "_start_embedded", start_embedded_keeper)
        yield


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
