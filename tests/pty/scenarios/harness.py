"""Helpers of the scenarios: start programs, wait for them, and register scenarios."""

import os
import subprocess

import trio
import trio.testing

from acpterm.pty import linux
from acpterm.pty.tracking import marks
from acpterm.pty.tracking.cgroup import Cgroups
from tests.support.depth import DEADLINE_S

SCENARIOS = {}


# The exit status of a scenario that cannot run here, after it has printed the reason.
SKIPPED = 77


class SkippedError(Exception):
    """This machine lacks something that the scenario needs."""


def require_cgroups():
    """Skip the scenario unless this process may make control groups."""
    if (groups := Cgroups.find()) is None:
        raise SkippedError("this process may make no control groups")
    groups.close()


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


async def poll(condition):
    with trio.fail_after(DEADLINE_S):
        while (found := condition()) is None or found is False:
            await trio.sleep(0.005)
    return found


def alive(pid):
    found = linux.read_stat(pid)
    return found is not None and not found.zombie


def new(subreaper, name):
    """Create a tree whose program starts now."""
    tree = subreaper.new(name)
    tree.begins()
    return tree


def start(tree, line, marker="ACPTERM_TERMINAL_ID=one"):
    """Start a shell line as the tree's first child: a session leader, with the tree's mark."""
    name, _, value = marker.partition("=")
    process = subprocess.Popen(
        ["/bin/sh", "-c", line],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={"PATH": os.environ["PATH"], name: value},
    )
    tree.started(process.pid)
    return process


def start_marked(tree, line):
    """Start a shell line as a terminal's program: in its control group, with all marks."""
    tree.begins()
    join = "" if tree.join is None else f"echo 0 > {tree.join}; "
    with marks.inherited(tree.rlimits):
        process = subprocess.Popen(
            ["/bin/sh", "-c", join + line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={"PATH": os.environ["PATH"], **tree.environment},
        )
    tree.started(process.pid)
    return process


def pids(process, count):
    return [int(process.stdout.readline()) for _ in range(count)]


async def executes_sleep(pid):
    """Wait until a process executes sleep, such as that of `env -i setsid sleep`.

    It has left its session then, and no exec follows, during which it has no environment.
    """

    def is_sleep():
        with open(f"/proc/{pid}/cmdline", "rb") as line:
            return line.read().startswith(b"sleep")

    await poll(is_sleep)


async def reap(tree, process):
    """Reap the first child, and report that to the tree."""
    code = await poll(process.poll)
    tree.reaped()
    return code


# A shell line: its process leaves session and parent, clears its environment, prints its pid.
VANISH = "(env -i setsid sh -c 'echo $$; exec sleep 60' &)"
