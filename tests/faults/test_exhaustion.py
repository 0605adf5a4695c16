"""Out of descriptors, PTYs, processes or memory: the request fails, and everything else works."""

import json
import os
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.faults import limits
from tests.faults.daemon import Daemon, daemon, until
from tests.faults.observers import Attached
from tests.faults.wire import Agent, RequestError, socket_agent, user_request
from tests.support.connector import connect_as_agent

pytestmark = [pytest.mark.long, pytest.mark.timeout(90)]

_INTERNAL_ERROR = -32603
_CREATES_MAX = 300
_DESCRIPTORS = 200
_PTYS = 8
_PROCESSES = 80
_FORKS_MAX = 120
_RING_BYTES = 8 << 20
_MARGIN_BYTES = 20 << 20
_FORKS = Path(__file__).with_name("forks.py")


@asynccontextmanager
async def _limited(
    directory: Path, *wrapper: str, **settings: str
) -> AsyncIterator[tuple[Daemon, Agent, str]]:
    """Run a daemon; yield it, an agent, and the id of a terminal that must keep working.

    After the block, check that terminal and the user's commands, and that the daemon ends and
    leaves nothing.
    """
    async with (
        daemon(directory, *wrapper, **settings) as running,
        socket_agent(running.socket) as agent,
    ):
        echo = await agent.create("/bin/cat")
        yield running, agent, echo
        await _check_keeps_serving(running, agent, echo)
        await agent.release(echo)
        assert await running.end() == 0
        await running.check_nothing_left()


async def _check_keeps_serving(running: Daemon, agent: Agent, echo: str) -> None:
    """Check that the existing terminal and the user's commands still work."""
    word = os.urandom(4).hex()
    await user_request(running.user_socket, "terminal/write", terminalId=echo, data=f"{word}\n")
    with trio.fail_after(10):
        while (await agent.output(echo))["output"].count(word) < 2:
            await trio.sleep(0.02)
    assert echo in [info["terminalId"] for info in await running.terminals()]
    assert (await running.status())["running"] >= 1


async def _check_attach(running: Daemon, terminal: str) -> None:
    """Check that the user can attach to a terminal and sees its output."""
    word = os.urandom(4).hex().encode()
    window = Attached(running, terminal)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(window.run)
            await until(lambda: window.shown, 15, "the window stays empty")
            write = {"terminalId": terminal, "data": f"{word.decode()}\n"}
            await user_request(running.user_socket, "terminal/write", **write)
            await until(lambda: word in window.shown, 10, "the window is not updated")
            nursery.cancel_scope.cancel()
    finally:
        window.close()


async def _create_until_refused(agent: Agent, attempts: int) -> tuple[list[str], RequestError]:
    """Create terminals until one is refused; return those that were created, and the error."""
    terminals: list[str] = []
    for _ in range(attempts):
        try:
            terminals.append(await agent.create("/bin/sleep", "100"))
        except RequestError as error:
            return terminals, error
    raise AssertionError(f"none of {attempts} creates was refused")


async def _create_within(agent: Agent, seconds: float) -> str:
    """Create a terminal; retry for some seconds while that is refused."""
    deadline = trio.current_time() + seconds
    while True:
        try:
            return await agent.create("/bin/echo", "again")
        except RequestError:
            if trio.current_time() > deadline:
                raise
            await trio.sleep(0.1)


def _check_clear(error: RequestError, *words: str) -> None:
    """Check that the reason in an error's message contains one of `words`.

    The reason is the part before the semicolon; advice follows it.
    """
    assert error.code == _INTERNAL_ERROR, error
    reason = error.message.partition(";")[0].lower()
    assert any(word in reason for word in words), error.message


async def _connect(path: str, count: int, streams: list[trio.SocketStream]) -> None:
    while len(streams) < count:
        streams.append(await connect_as_agent(path))


async def _check_recovers(agent: Agent, terminals: list[str]) -> None:
    """Check that terminals can be created again after others were released."""
    assert terminals
    for terminal in terminals[:3]:
        await agent.release(terminal)
    again = await agent.create("/bin/echo", "again")
    assert (await agent.wait(again))["exitCode"] == 0
    assert (await agent.output(again))["output"] == "again\n"
    for terminal in [*terminals[3:], again]:
        await agent.release(terminal)


async def test_create_is_refused_and_the_daemon_keeps_serving_when_descriptors_run_out(
    tmp_path, report
):
    async with _limited(tmp_path, *limits.few_descriptors(_DESCRIPTORS)) as (running, agent, echo):
        for pid in running.pids:
            assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (_DESCRIPTORS, _DESCRIPTORS)
        terminals, error = await _create_until_refused(agent, _CREATES_MAX)
        report.happened("out of descriptors: terminals")
        report.notes.append(f"{len(terminals)} terminals, then {error}")
        _check_clear(error, "descriptor", "open files")
        await _check_keeps_serving(running, agent, echo)
        await _check_recovers(agent, terminals)


async def test_user_is_served_when_agents_connections_use_up_the_descriptors(tmp_path, report):
    async with _limited(tmp_path, *limits.few_descriptors(_DESCRIPTORS)) as (running, agent, echo):
        for pid in running.pids:
            assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (_DESCRIPTORS, _DESCRIPTORS)
        streams: list[trio.SocketStream] = []
        with trio.move_on_after(5):
            await _connect(running.socket, 2 * _DESCRIPTORS, streams)
        report.happened("out of descriptors: connections")
        await _check_keeps_serving(running, agent, echo)
        for stream in streams:
            await trio.aclose_forcefully(stream)
        again = await agent.create("/bin/echo", "again")
        assert (await agent.wait(again))["exitCode"] == 0


async def test_create_is_refused_and_the_daemon_keeps_serving_when_ptys_run_out(tmp_path, report):
    async with _limited(tmp_path, *limits.few_ptys(_PTYS)) as (running, agent, echo):
        terminals, error = await _create_until_refused(agent, 2 * _PTYS)
        report.happened("out of PTYs")
        report.notes.append(f"{len(terminals)} terminals, then {error}")
        _check_clear(error, "pty", "pseudo")
        await _check_keeps_serving(running, agent, echo)
        await _check_recovers(agent, terminals)


@pytest.mark.parametrize("tracking", ["auto", "subreaper"])
async def test_create_is_refused_and_the_daemon_keeps_serving_when_processes_run_out(
    tmp_path, tracking, report
):
    with limits.few_processes(_PROCESSES) as wrapper:
        async with _limited(tmp_path, *wrapper, tracking=tracking) as (running, agent, echo):
            for pid in running.pids:
                limits.check_few_processes(pid, _PROCESSES)
            argv = [sys.executable, "-I", "-S", str(_FORKS), str(_FORKS_MAX)]
            greedy = await agent.create(*argv)
            with trio.fail_after(20):
                while "started" not in (await agent.output(greedy))["output"]:
                    await trio.sleep(0.02)
            started = int((await agent.output(greedy))["output"].split()[-1])
            assert started < _FORKS_MAX, "the limit was not reached"
            terminals, error = await _create_until_refused(agent, _PROCESSES)
            report.happened(f"out of processes, tracking {tracking}")
            report.notes.append(f"{len(terminals)} terminals, then {error}")
            _check_clear(error, "process")
            await _check_keeps_serving(running, agent, echo)
            await _check_attach(running, echo)
            # The user kills the cause, and everything works again.
            await user_request(running.user_socket, "terminal/kill", terminalId=greedy)
            await agent.wait(greedy)
            again = await _create_within(agent, 5)
            assert (await agent.wait(again))["exitCode"] == 0
            for terminal in [greedy, again, *terminals]:
                await agent.release(terminal)


async def test_create_is_refused_and_the_daemon_keeps_serving_without_memory_for_a_ring(
    tmp_path, report
):
    async with _limited(tmp_path, raw_bytes=str(_RING_BYTES)) as (running, agent, echo):
        keeper = running.pid
        before = resource.prlimit(keeper, resource.RLIMIT_AS)
        limit = limits.memory_size(keeper) + _MARGIN_BYTES
        resource.prlimit(keeper, resource.RLIMIT_AS, (limit, before[1]))
        assert resource.prlimit(keeper, resource.RLIMIT_AS)[0] == limit
        terminals, error = await _create_until_refused(agent, 2 * _MARGIN_BYTES // _RING_BYTES)
        report.happened("out of memory for a ring")
        report.notes.append(f"{len(terminals)} terminals, then {error}")
        _check_clear(error, "memory")
        await _check_keeps_serving(running, agent, echo)
        resource.prlimit(keeper, resource.RLIMIT_AS, before)
        await _check_recovers(agent, terminals)


@pytest.mark.parametrize("margin_mib", [16, 40, 70])
@pytest.mark.parametrize(
    "params",
    [
        {"command": "echo", "args": ["x" * (30 << 20)]},
        {"command": "echo", "cwd": "/" + "x" * (20 << 20)},
        {"command": "echo", "env": [{"name": f"A{n}", "value": "x" * 99} for n in range(1 << 17)]},
        {"command": "echo", "args": ["xy"] * (1 << 21)},
    ],
    ids=["argument", "directory", "variables", "arguments"],
)
async def test_request_without_memory_fails_alone(tmp_path, report, margin_mib, params):
    """The limit decides where memory runs out: in reading, decoding, handling or responding."""
    async with _limited(tmp_path) as (running, agent, echo):
        worker = await running.worker()
        before = resource.prlimit(worker, resource.RLIMIT_AS)
        stream = await connect_as_agent(running.socket)
        async with stream:
            limit = limits.memory_size(worker) + (margin_mib << 20)
            resource.prlimit(worker, resource.RLIMIT_AS, (limit, before[1]))
            error = await _error_of(stream, 1, "terminal/create", {"sessionId": "s", **params})
            report.happened("out of memory for a request")
            assert error["code"] in (-32600, -32602, -32603), error
            resource.prlimit(worker, resource.RLIMIT_AS, before)
            # The connection of the request still works, too.
            error = await _error_of(stream, 2, "no/such", {})
            assert "no method" in error["message"]
        await _check_keeps_serving(running, agent, echo)
        assert await running.worker() == worker


@pytest.mark.parametrize("margin_mib", [4, 24, 32, 40])
async def test_response_without_memory_fails_alone(tmp_path, report, margin_mib):
    async with _limited(tmp_path, output_bytes=str(16 << 20)) as (running, agent, echo):
        line = "yes | head -c 12M"
        terminal = await agent.create("/bin/sh", "-c", line, outputByteLimit=16 << 20)
        await agent.wait(terminal)
        worker = await running.worker()
        before = resource.prlimit(worker, resource.RLIMIT_AS)
        limit = limits.memory_size(worker) + (margin_mib << 20)
        resource.prlimit(worker, resource.RLIMIT_AS, (limit, before[1]))
        for _ in range(3):
            try:
                assert len((await agent.output(terminal))["output"]) > 10 << 20
            except RequestError as error:
                report.happened("out of memory for a response")
                if "there is no memory for it" not in error.message:
                    raise
        resource.prlimit(worker, resource.RLIMIT_AS, before)
        assert len((await agent.output(terminal))["output"]) > 10 << 20
        await _check_keeps_serving(running, agent, echo)
        assert await running.worker() == worker
        await agent.release(terminal)


async def test_id_without_memory_for_an_answer_is_refused(tmp_path):
    async with _limited(tmp_path) as (running, _, _):
        worker = await running.worker()
        before = resource.prlimit(worker, resource.RLIMIT_AS)
        async with await connect_as_agent(running.socket) as stream:
            limit = limits.memory_size(worker) + (64 << 20)
            resource.prlimit(worker, resource.RLIMIT_AS, (limit, before[1]))
            error = await _error_of(stream, "x" * (20 << 20), "no/such", {})
            assert "a string of at most 1024 characters" in error["message"]
            resource.prlimit(worker, resource.RLIMIT_AS, before)
        assert await running.worker() == worker


async def _error_of(
    stream: trio.SocketStream, id_: int | str, method: str, params: dict[str, Any]
) -> dict[str, Any]:
    """Send a request; return the error of its response, whose id may be null."""
    body = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
    await stream.send_all(json.dumps(body).encode() + b"\n")
    received = b""
    with trio.fail_after(20):
        while not received.endswith(b"\n"):
            data = await stream.receive_some(1 << 16)
            assert data, "the connection ended"
            received += data
    response = json.loads(received)
    assert response["id"] in (id_, None)
    error: dict[str, Any] = response["error"]
    return error
