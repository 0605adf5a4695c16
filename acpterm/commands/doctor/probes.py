"""Checks that create a terminal, an emulator and a control group, and set limits, as a trial.

They are created in this process, as the daemon would create them. The daemon's environment may
differ: a daemon that systemd starts has its own control groups.
"""

import os
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from acpterm.commands.doctor.check import CheckResult, missing, ok, problem
from acpterm.commands.format import summary_line
from acpterm.config import Settings
from acpterm.host.launch.launch import Launch
from acpterm.host.launch.placement import Placement
from acpterm.jsonrpc import RpcError
from acpterm.keeper.startup import embedded_keeper
from acpterm.providers.local import LocalProvider
from acpterm.pty import linux
from acpterm.pty.input_wait import syscalls
from acpterm.pty.limits import RLIMITS
from acpterm.pty.tracking.cgroup import Cgroups
from acpterm.pty.tracking.trees import TrackingError, Trees, open_trees
from acpterm.runtime import exec_context
from acpterm.terminal.pool import Pool
from acpterm.terminal.status import EndedBy
from acpterm.terminal.terminal import Terminal
from acpterm.terminal.vt import library
from acpterm.terminal.vt.emulator import Emulator
from acpterm.terminal.vt.library import EmulatorMissingError

# Maximum seconds until a program has started, on a busy machine, and until its prompt is detected.
_START_TIMEOUT_S: Final = 10.0
_PROMPT_TIMEOUT_S: Final = 1.0
_POLL_S: Final = 0.02
# Not the configured shell, which `programs.shell` checks.
_SHELL: Final = "/bin/sh"
_MARKER: Final = "acpterm-doctor"
_LIMITS: Final = {"memory": 1 << 24, "cpu": 0.25, "processes": 8, "disk_io": 1 << 20}
_LIMITS_ADVICE: Final = (
    "a profile with such a limit refuses terminals, unless its unenforceable_limits = 'warn'; for "
    "control groups run the daemon as systemd service (Delegate=yes, see systemd/acpterm.service)"
)
_CGROUPS: Final = "control groups"
_DELEGATE_ADVICE: Final = (
    "processes are found by their descent instead, which works; for control groups run the daemon "
    "as systemd user service (Delegate=yes, see systemd/acpterm.service)"
)


async def terminal(settings: Settings) -> list[CheckResult]:
    """Check that a terminal can be created, and that a program waiting for input is detected."""
    try:
        async with _open_pool(settings) as (pool, trees):
            launch = Launch(
                settings=settings,
                context=exec_context.current(),
                command=_SHELL,
                args=["-c", f"printf {_MARKER}; read x"],
                cwd="/",
            )
            placement = Placement(LocalProvider(), workspace="/")
            created, _ = await launch.start(pool, placement)
            waits = await _detect_prompt(created)
            has_output = created.ring.end >= len(_MARKER)
            created.kill(EndedBy.USER)
            await created.wait_exited()
            pool.release(created, EndedBy.USER)
            await created.wait_closed()
            found = f"can be made; its processes are known by {trees.tracking}"
    except TrackingError as error:
        return [
            problem("a terminal", summary_line(str(error)), "see the setting tracking", fatal=True)
        ]
    except (RpcError, OSError) as error:
        what = summary_line(str(error))
        advice = "see the results for PTYs, processes and open files"
        return [problem("a terminal", what, advice, fatal=True)]
    if not has_output:
        advice = f"check that the shell works: {_SHELL}"
        return [problem("a terminal", "the output of its program is missing", advice, fatal=True)]
    return [ok("a terminal", found), _input_result(waits)]


async def _detect_prompt(created: Terminal) -> bool | None:
    """Wait until the program of the terminal `created` waits for input; return whether it does."""
    pid: int | None = 0
    # The program's first output shows that it has started.
    with trio.move_on_after(_START_TIMEOUT_S):
        while created.exit is None and created.ring.end < len(_MARKER):
            await created.wait_changed()
    with trio.move_on_after(_PROMPT_TIMEOUT_S):
        while created.exit is None and (pid := created.waiting_process()) == 0:  # noqa: ASYNC110  no event reports this
            await trio.sleep(_POLL_S)
    return None if pid is None else pid > 0


def _input_result(waits: bool | None) -> CheckResult:
    name = "input prompts"
    if waits:
        return ok(name, "programs that wait for input are detected")
    if not syscalls.KNOWN:
        advice = "only Linux on x86_64 and aarch64 supports it; all else works"
        return missing(name, "programs that wait for input cannot be detected", advice)
    advice = "allow the inspection of processes by ptrace (kernel.yama.ptrace_scope below 2)"
    return missing(name, "a program that waits for input was not detected", advice)


@asynccontextmanager
async def _open_pool(settings: Settings) -> AsyncIterator[tuple[Pool, Trees]]:
    """Run a pool of terminals in this process for the duration of the block."""
    async with (
        embedded_keeper() as keeper,
        open_trees(settings.tracking, parent=keeper.pid) as trees,
        trio.open_nursery() as nursery,
    ):
        pool = Pool(keeper, trees, grace=0.1)
        await nursery.start(pool.run)
        try:
            yield pool, trees
        finally:
            with trio.CancelScope(shield=True):
                await pool.shut_down(1)
            nursery.cancel_scope.cancel()


async def emulator() -> CheckResult:
    """Check that the terminal emulator loads, and that it shows what a program prints."""
    # Not in a thread: the check `terminal` loads libghostty-vt too, and two threads must not load
    # it at the same time.
    await trio.lowlevel.checkpoint()
    name = "emulator"
    try:
        library.load()
        trial = Emulator(20, 2)
        trial.feed(f"\x1b[1m{_MARKER}".encode())
        text = trial.screen().text()
    except EmulatorMissingError as error:
        advice = "screens, pictures and attach to full-screen programs need it; all else works"
        return missing(name, summary_line(str(error)), advice)
    if text != _MARKER:
        advice = f"reinstall {library.PACKAGE}, in the version that acpterm requires"
        return problem(name, f"shows {summary_line(text)!r} instead of {_MARKER!r}", advice)
    return ok(name, "libghostty-vt shows what a program prints")


def pidfd() -> CheckResult:
    """Check that the system has pidfds, descriptors of processes."""
    if linux.has_pidfd():
        return ok("pidfd", "children are waited for and signalled by descriptor")
    advice = "the keeper uses SIGCHLD instead; Linux 5.4 has them, unless a filter refuses"
    return missing("pidfd", "there are none", advice)


def subreaper() -> CheckResult:
    """Check that this process can become a subreaper: the parent of its descendants' orphans."""
    if linux.become_subreaper():
        return ok("subreaper", "orphans of a terminal's programs become the daemon's children")
    advice = "without control groups, a program that leaves its session may outlive its terminal"
    return missing("subreaper", "is not available", advice)


async def control_groups() -> CheckResult:
    """Check that terminals can have control groups, and that these can be killed as a whole."""
    cgroups = Cgroups.find()
    if cgroups is None:
        found = "version 2 is not delegated to this shell's processes"
        if not _exists("/sys/fs/cgroup/cgroup.controllers"):
            found = "there is no hierarchy of version 2 at /sys/fs/cgroup"
        return missing(_CGROUPS, found, _DELEGATE_ADVICE)
    try:
        group = cgroups.new("doctor")
        try:
            if group.join and _exists(group.join.replace("cgroup.procs", "cgroup.kill")):
                return ok(_CGROUPS, "version 2, delegated, with cgroup.kill")
            advice = "processes are killed one by one instead; Linux 5.14 has it"
            return missing(_CGROUPS, "version 2, delegated, but no cgroup.kill", advice)
        finally:
            await group.close()
    except OSError as error:
        return missing(_CGROUPS, f"none can be made: {error.strerror}", _DELEGATE_ADVICE)
    finally:
        cgroups.close()


async def limits(settings: Settings) -> list[CheckResult]:
    """Check which limits of terminals' programs can be set on this machine."""
    try:
        async with _open_pool(settings) as (_, trees):
            tree = trees.new("doctor-limits")
            try:
                enforcement = trees.enforce("doctor-limits", _LIMITS)
            finally:
                await tree.close()
    except (TrackingError, OSError) as error:
        return [problem("limits", summary_line(str(error)), "see the setting tracking")]
    refused: defaultdict[str, list[str]] = defaultdict(list)
    for failed in enforcement.unenforced if enforcement else ():
        refused[failed.reason].append(failed.limit)
    enforced = [*(enforcement.limits if enforcement else ()), *RLIMITS]
    return [
        ok("limits", f"enforced here: {', '.join(enforced)}"),
        *(
            missing(
                "limits",
                f"not enforced here: {', '.join(names)}: {summary_line(reason)}",
                _LIMITS_ADVICE,
            )
            for reason, names in refused.items()
        ),
    ]


def _exists(path: str) -> bool:
    return os.path.exists(path)
