"""Configuration of all tests.

With `ACPTERM_NO_SKIPS=1`, as in CI, a skipped test fails: the reason of the skip names what to
install.

Hypothesis checks no deadlines, since the time of an example depends mostly on the load of the
machine. A timeout ends each test that hangs.

A shell's background job, and `nohup`, ignore some signals, and so would the programs of the tests:
these signals are not ignored here.
"""

import gc
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from trio._core._wakeup_socketpair import WakeupSocketpair

import acpterm
from acpterm.host import loss_facts
from acpterm.keeper import startup
from tests.support.depth import DEADLINE_S, EXAMPLES, examples
from tests.support.fish import data_home
from tests.support.forked_keepers import KeeperForks

settings.register_profile(
    "acpterm",
    deadline=None,
    derandomize=not EXAMPLES,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("acpterm")

for _number, _handler in (
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


def _close(pair: WakeupSocketpair) -> None:
    """Close trio's sockets for signals like trio, but no longer write to them before.

    trio closes them first: then Python prints an error for a signal that arrives in between.
    """
    if pair.old_wakeup_fd is not None:
        signal.set_wakeup_fd(pair.old_wakeup_fd)
    pair.wakeup_sock.close()
    pair.write_sock.close()


WakeupSocketpair.close = _close

NO_SKIPS = os.environ.get("ACPTERM_NO_SKIPS", "0") not in ("", "0")

# `make page` builds these with npm.
HAS_PAGE = NO_SKIPS or (Path(acpterm.__file__).parent / "web" / "page" / "vendor").is_dir()
collect_ignore = [] if HAS_PAGE else ["web/browser", "web/test_page_files.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not HAS_PAGE:
        terminalreporter.write_line("The tests of the page were left out: `make page` needs npm.")


@pytest.fixture(autouse=True, scope="session")
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the audit logs of hosts, and the user's settings, rules and data, out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in ("STATE", "CONFIG"):
            patch.setenv(f"XDG_{kind}_HOME", str(tmp_path_factory.mktemp(kind.lower())))
        patch.setenv("XDG_DATA_HOME", data_home(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(autouse=True, scope="session")
def patient_facts() -> Iterator[None]:
    """Let hosts in this process find out on a busy machine, too, what a command would lose.

    A daemon asks about what it does not know after `FACTS_S`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_facts, "FACTS_S", DEADLINE_S)
        yield


@pytest.fixture(autouse=True, scope="session")
def forked_keepers() -> Iterator[None]:
    """Fork the keepers of hosts in this process: a start takes 25 ms of processor time."""
    if sys.platform != "linux":
        yield
        return
    forks = KeeperForks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(startup, "_start_embedded", forks.start)
        yield
    forks.close()


def pytest_configure() -> None:
    """Disable garbage collection while tests are collected: most of the new objects stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Let the garbage collector see only the objects of tests, not those of the collection."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases of `costly` tests that are left out at the lesser depths.

    All cases but the first are `long`. Those are also `exhaustive` in which no parameter has a
    value that no earlier case has: without them, each value is still tested once.
    """
    seen: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for item in items:
        if not item.get_closest_marker("costly"):
            continue
        values = seen[item.nodeid.partition("[")[0]]
        params = item.callspec.params if hasattr(item, "callspec") else {}
        found = {(name, repr(value)) for name, value in params.items()}
        if values:
            item.add_marker(pytest.mark.long)
            if found <= values:
                item.add_marker(pytest.mark.exhaustive)
        values |= found


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    # An expected failure is reported as skipped, too, but lacks nothing.
    if NO_SKIPS and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}\nand ACPTERM_NO_SKIPS is set: install what is missing"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    _fail_if_skipped(report)
    return report
