"""Runs all checks concurrently, each with a timeout.

A check that times out or raises an exception has the result `problem`.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import trio

from acpterm.commands.doctor import paths, probes, programs, system
from acpterm.commands.doctor.check import CheckResult, problem
from acpterm.commands.format import summary_line
from acpterm.link.errors import root_error
from acpterm.providers.provider import NAMES

# Timeout of a check in seconds. Longer than `programs.TIMEOUT_S`, so that a check that runs a
# program can report the program's timeout.
_TIMEOUT_S: Final = 3.0
# A place has its own timeout in the settings, whose error message says more: let that expire first.
_PLACE_TIMEOUT_S: Final = 600.0

Outcome: TypeAlias = CheckResult | list[CheckResult]


class AsyncCheck(NamedTuple):
    """A check that runs in the event loop, for at most `timeout_s` seconds.

    A check that is a plain function runs in a thread instead.
    """

    run: Callable[[], Awaitable[Outcome]]
    timeout_s: float = 3.0


Check: TypeAlias = Callable[[], Outcome] | AsyncCheck


async def examine(config: str | None, socket: str | None) -> list[CheckResult]:
    """Run all checks; return their results in the order in which to print them."""
    settings, settings_result = paths.settings_file(config, socket)
    checks: dict[str, Check] = {
        "Python": system.python,
        "system": system.system,
        "a terminal": AsyncCheck(partial(probes.terminal, settings)),
        "emulator": AsyncCheck(probes.emulator),
        "shell": AsyncCheck(partial(programs.shell, settings)),
        **{name: AsyncCheck(partial(programs.provider, settings, name)) for name in NAMES},
        **{
            name: AsyncCheck(partial(programs.place, settings, name), _PLACE_TIMEOUT_S)
            for name in settings.places
        },
        "pidfd": probes.pidfd,
        "control groups": AsyncCheck(probes.control_groups),
        "subreaper": probes.subreaper,
        "limits": AsyncCheck(partial(probes.limits, settings)),
        "PTYs": system.ptys,
        "open files": system.open_files,
        "processes": system.processes,
        "locale": system.utf8,
        "TERM": system.term,
        "settings": lambda: settings_result,
        "runtime directory": paths.runtime,
        "sockets": partial(paths.sockets, settings),
        "state": partial(paths.recordings, settings),
        "logs": partial(paths.logs, settings),
        "daemon": AsyncCheck(partial(paths.daemon, settings, config)),
        "systemd": AsyncCheck(programs.systemd),
        "way back": programs.git,
        "page": programs.web,
        "MCP": programs.mcp,
    }
    results: dict[str, list[CheckResult]] = {}

    async def run_one(name: str, check: Check) -> None:
        results[name] = await _run_bounded(name, check)

    async with trio.open_nursery() as nursery:
        for name, check in checks.items():
            nursery.start_soon(run_one, name, check)
    return [result for name in checks for result in results[name]]


async def _run_bounded(name: str, check: Check) -> list[CheckResult]:
    timeout_s = check.timeout_s if isinstance(check, AsyncCheck) else _TIMEOUT_S
    try:
        with trio.fail_after(timeout_s):
            if isinstance(check, AsyncCheck):
                outcome = await check.run()
            else:
                # Use a thread, since access to a file on an unreachable server can block forever.
                outcome = await trio.to_thread.run_sync(check, abandon_on_cancel=True)
    except trio.TooSlowError:
        what = f"no answer within {timeout_s:g} s"
        return [problem(name, what, "see whether the machine is overloaded, or something hangs")]
    except Exception as error:  # noqa: BLE001  a defect of one check must not hide the others
        what = f"could not be checked: {type(error).__name__}: {summary_line(root_error(error))}"
        return [problem(name, what, "this is a bug of acpterm: please report it")]
    return outcome if isinstance(outcome, list) else [outcome]
