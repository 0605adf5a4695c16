"""Ended terminals leave nothing: no descriptor, process, thread, task or control group."""

import contextlib
import gc
import os
from collections import Counter
from pathlib import Path

import psutil
import pytest
import trio

from acpterm.pty.processes import read_all
from acpterm.pty.tracking.cgroup import Cgroups
from tests.support.agent import agent_at
from tests.support.daemon import daemon
from tests.support.hosts import agent_here, agent_on_stdio
from tests.support.polling import poll
from tests.support.processes import alive, environment

WAYS = ["cgroup", "subreaper"]


def own_cgroup_directory():
    """Return the directory where this process and its daemons may create control groups, if any."""
    found = Cgroups.find()
    if found is None:
        return None
    found.close()
    return Path(found.base).parent


def cgroup_directory_of(pid):
    """Return the directory of the daemon's control groups, if it creates any."""
    own = own_cgroup_directory()
    found = own and next(own.glob(f"acpterm-{pid}-*"), None)
    return found and str(found)


class Traces:
    """The resources of a daemon that a terminal might leak."""

    def __init__(self, pid):
        self.process = psutil.Process(pid)
        self.directory = cgroup_directory_of(pid)

    def look(self):
        groups = []
        if self.directory is not None and os.path.isdir(self.directory):
            groups = [entry for entry in os.listdir(self.directory) if entry.startswith("term_")]
        children = [found for found in read_all() if found and found.ppid == self.process.pid]
        return {
            "descriptors": self.descriptors(),
            # Some idle threads remain for a while; a leak of one per terminal would be far more.
            "threads": self.process.num_threads() > 40,
            "children": sorted(child.pid for child in children),
            "zombies": [child.pid for child in children if child.zombie],
            "groups": groups,
        }

    async def until(self, before):
        """Wait until the daemon has no more resources than `before`, which `look` returned earlier.

        If that takes too long, fail with both.
        """
        try:
            await poll(lambda: self.is_within(before))
        except trio.TooSlowError:
            pytest.fail(f"there is now {self.look()}, and was {before}")

    def is_within(self, before):
        now = self.look()
        # The earlier count may have included a descriptor in use.
        return not (now.pop("descriptors") - before["descriptors"]) and now == {
            name: what for name, what in before.items() if name != "descriptors"
        }

    def descriptors(self):
        """Count the open files by name."""
        directory = f"/proc/{self.process.pid}/fd"
        found = Counter()
        for fd in os.listdir(directory):
            with contextlib.suppress(FileNotFoundError):
                found[os.readlink(f"{directory}/{fd}")] += 1
        return found


@pytest.fixture
def settings(tmp_path):
    def make(tracking):
        if tracking == "cgroup" and own_cgroup_directory() is None:
            pytest.skip("this process may make no control groups")
        return environment(
            XDG_CONFIG_HOME=str(tmp_path),
            ACPTERM_TRACKING=tracking,
            ACPTERM_KILL_GRACE="0.3",
        )

    return make


async def run_many(agent, count):
    """Run `count` terminals one after the other."""
    for number in range(count):
        terminal = await agent.create("echo", args=[str(number)])
        of = agent.of(terminal)
        id_, wait = agent.prepare("terminal/wait_for_exit", of)
        await agent.send(wait)
        assert (await agent.result(id_))["exitCode"] == 0
        last = [agent.prepare(f"terminal/{method}", of) for method in ("output", "release")]
        await agent.send(b"".join(line for _, line in last))
        output, released = [await agent.result(id_) for id_, _ in last]
        assert (output["output"], released) == (f"{number}\n", {})


@pytest.mark.exhaustive
@pytest.mark.long
@pytest.mark.parametrize("tracking", WAYS)
async def test_500_sequential_terminals_leave_nothing(tmp_path, settings, tracking):
    env = settings(tracking)
    async with daemon(tmp_path, env=env) as (process, path), agent_at(path) as agent:
        traces = Traces(process.pid)
        await run_many(agent, 10)
        before = await at_rest(traces)
        # The slower ways could leak the same: a fifth of the rounds shows it.
        await run_many(agent, 500 if tracking == "cgroup" else 100)
        await traces.until(before)
        assert traces.look()["zombies"] == []


async def at_rest(traces):
    """Wait until the daemon's resources no longer change and no terminal is left; return them."""
    last = None

    def look():
        nonlocal last
        before, last = last, traces.look()
        rest = last["groups"] or last["zombies"] or len(last["children"]) > 1
        return before if before == last and not rest else None

    return await poll(look)


LINES = [
    "exec sleep 60",
    "trap '' TERM; while :; do sleep 0.1; done",
    "(setsid sleep 60 &); (env -i setsid sleep 60 &); read x",
    "seq 20000; read x",
    "exit 3",
]


@pytest.mark.long
@pytest.mark.parametrize("tracking", WAYS)
async def test_50_concurrent_terminals_that_are_killed_leave_nothing(tmp_path, settings, tracking):
    env = settings(tracking)
    async with daemon(tmp_path, env=env) as (process, path), agent_at(path) as agent:
        traces = Traces(process.pid)
        await run_many(agent, 10)
        before = await at_rest(traces)
        # All are requested at once; half are ended while the others are being created.
        requests = [
            await agent.start(
                "terminal/create",
                {"sessionId": agent.session, "command": LINES[number % len(LINES)]},
            )
            for number in range(50)
        ]
        terminals = []
        pending = []
        for number, id_ in enumerate(requests):
            terminal = (await agent.result(id_))["terminalId"]
            terminals.append(terminal)
            of = agent.of(terminal)
            pending.append(await agent.start("terminal/wait_for_exit", of))
            if number % 2:
                pending.append(await agent.start("terminal/kill", of))
        pending += [await agent.start("terminal/release", agent.of(one)) for one in terminals]
        with trio.fail_after(30):
            for id_ in pending:
                await agent.result(id_)
        await traces.until(before)


@pytest.mark.long
@pytest.mark.parametrize("tracking", ["cgroup", "subreaper"])
async def test_connections_that_close_with_running_terminals_leave_nothing(
    tmp_path, settings, tracking
):
    env = settings(tracking)
    async with daemon(tmp_path, env=env) as (process, path):
        traces = Traces(process.pid)
        async with agent_at(path) as agent:
            await run_many(agent, 5)
        before = await at_rest(traces)
        for _ in range(10):
            async with agent_at(path) as agent:
                for line in LINES:
                    await agent.start(
                        "terminal/create", {"sessionId": agent.session, "command": line}
                    )
                await agent.output(await agent.create("read x"))
        await traces.until(before)


@pytest.mark.parametrize("tracking", ["cgroup", "subreaper"])
@pytest.mark.long
async def test_host_leaves_no_process_and_no_directory(tmp_path, settings, tracking):
    env = settings(tracking)
    async with agent_on_stdio(tmp_path, env=env) as (process, agent):
        traces = Traces(process.pid)
        for line in LINES:
            await agent.create(line)
        terminal = await agent.create("(setsid sleep 60 &); echo up; read x")
        await agent.until_output(terminal, "up")
        found = traces.process.children(recursive=True)
        assert len(found) >= len(LINES)
        process.terminate()
        assert await process.wait() == 0
    await poll(lambda: not any(alive(child.pid) for child in found))
    assert traces.directory is None or not os.path.exists(traces.directory)  # noqa: ASYNC240


@pytest.mark.long
async def test_terminals_leave_no_task(host, agent):
    await run_many(agent, 5)
    await poll(lambda: not host.terminals.pool._running)
    before = trio.lowlevel.current_statistics().tasks_living
    await run_many(agent, 50)
    terminals = [await agent.create(LINES[number % 2]) for number in range(20)]
    requests = [await agent.start("terminal/wait_for_exit", agent.of(one)) for one in terminals]
    requests += [await agent.start("terminal/release", agent.of(one)) for one in terminals]
    for id_ in requests:
        await agent.result(id_)
    await poll(lambda: not host.terminals.pool._running)
    assert host.terminals.pool.terminals == {}
    await poll(lambda: trio.lowlevel.current_statistics().tasks_living <= before)


@pytest.mark.long
async def test_failed_creates_leave_nothing(agent):
    await run_many(agent, 3)
    process = psutil.Process()
    await poll(lambda: not [p for p in process.children(recursive=True) if p.name() == "echo"])
    before = process.num_fds()
    for _ in range(20):
        output, status = await agent.run("no-such-program", args=[])
        assert status["exitCode"] == 127
        assert "no-such-program" in output
    await poll(lambda: process.num_fds() <= before)


@pytest.mark.long
async def test_background_that_has_ended_leaves_nothing():
    traces = Traces(os.getpid())

    def rings():
        return sum(n for name, n in traces.descriptors().items() if "acpterm-ring" in name)

    gc.collect()  # of earlier tests in this process
    before = rings()
    async with agent_here() as agent:
        # Longer than the period of the monitor, which must not hold the terminal afterwards.
        output, _ = await agent.run("sleep 1 & echo $!")
        assert rings() > before
        await poll(lambda: not alive(int(output)))
        await poll(lambda: rings() <= before)
