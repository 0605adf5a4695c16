"""Fixtures of the fault tests: a `report` that records the faults of each test."""

from collections.abc import Iterator

import pytest

from tests.faults.report import Report


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Iterator[Report]:
    """Record the faults of a test; they count as survived if it passes."""
    record = Report(request.node.nodeid)
    yield record
    call = request.node.stash.get(OUTCOME, None)
    record.write(held=call == "passed")


OUTCOME = pytest.StashKey[str]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    del call
    test_report = yield
    if test_report.when == "call":
        item.stash[OUTCOME] = test_report.outcome
    return test_report
