"""All there is to look at, at once, each for a bounded time; nothing that goes wrong is raised."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import trio

from acpterm.client.errors import root_error
from acpterm.client.user.doctor import paths, probes, programs, system
from acpterm.client.user.doctor.check import CheckResult, problem
from acpterm.client.user.format import summary_line

# Seconds that one look may take: a program, and what it says at the end.
_TIMEOUT_S: Final = 3.0

Outcome: TypeAlias = CheckResult | list[CheckResult]


class AsyncCheck(NamedTuple):
    """A look that waits for something."""

    look: Callable[[], Awaitable[Outcome]]


Check: TypeAlias = Callable[[], Outcome] | AsyncCheck


async def examine(config: str | None, socket: str | None) -> list[CheckResult]:
    """Look at everything: what was found, in an order to be read in."""
    settings, read = paths.settings_file(config, socket)
    looks: dict[str, Check] = {
        "Python": system.python,
        "system": system.system,
        "a terminal": AsyncCheck(partial(probes.terminal, settings)),
        "emulator": AsyncCheck(probes.emulator),
        "shell": AsyncCheck(partial(programs.shell, settings)),
        "pidfd": probes.pidfd,
        "control groups": AsyncCheck(probes.control_groups),
        "subreaper": probes.subreaper,
        "PTYs": system.ptys,
        "open files": system.open_files,
        "processes": system.processes,
        "locale": system.utf8,
        "TERM": system.term,
        "settings": lambda: read,
        "runtime folder": paths.runtime,
        "sockets": partial(paths.sockets, settings),
        "state": partial(paths.recordings, settings),
        "logs": partial(paths.logs, settings),
        "daemon": AsyncCheck(partial(paths.daemon, settings, config)),
        "systemd": AsyncCheck(programs.systemd),
    }
    found: dict[str, list[CheckResult]] = {}

    async def one(name: str, look: Check) -> None:
        found[name] = await _bounded(name, look)

    async with trio.open_nursery() as nursery:
        for name, look in looks.items():
            nursery.start_soon(one, name, look)
    return [finding for name in looks for finding in found[name]]


async def _bounded(name: str, look: Check) -> list[CheckResult]:
    try:
        with trio.fail_after(_TIMEOUT_S):
            if isinstance(look, AsyncCheck):
                found = await look.look()
            else:
                # A file on a server that is gone blocks whoever looks at it: in a thread, then.
                found = await trio.to_thread.run_sync(look, abandon_on_cancel=True)
    except trio.TooSlowError:
        what = f"no answer within {_TIMEOUT_S:g} s"
        return [problem(name, what, "see whether the machine is overloaded, or something hangs")]
    except Exception as error:  # noqa: BLE001  whatever it is: it is one line of what was found
        what = f"could not be looked at: {type(error).__name__}: {summary_line(root_error(error))}"
        return [problem(name, what, "this is a mistake of acpterm's: please report it")]
    return found if isinstance(found, list) else [found]
