"""SIGKILL of the keeper under a service manager that stores its descriptors: programs continue."""

import base64
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.faults import numbered
from tests.faults.counts import rounds
from tests.faults.daemon import Daemon, alive, daemon, started, until
from tests.faults.service_manager import ServiceManager, closing
from tests.faults.wire import user_request

pytestmark = [pytest.mark.long, pytest.mark.timeout(90)]

_HELPER = [sys.executable, "-I", "-S", str(Path(__file__).with_name("with_descriptors.py"))]
_WRITER = Path(__file__).with_name("writer.py")
_PACES = (0, 0, 300)
_STATUS = 5
_RUN_S = 0.5


@rounds(3, 20)
async def test_programs_continue_when_the_keeper_is_killed_and_descriptors_are_stored(
    tmp_path, index, report
):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    with closing(ServiceManager(tmp_path / "notify")) as manager:
        await manager.open()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.run)
            async with daemon(first, env=manager.env) as running:
                await until(lambda: "READY=1" in manager.states, 10, "READY=1 was not sent")
                programs = [await _start(running, number) for number in range(len(_PACES))]
                await trio.sleep(_RUN_S + 0.1 * (index % 5))
                worker = await running.worker()
                os.kill(running.pid, signal.SIGKILL)
                assert running.process is not None
                await until(running.process.poll, 5, "the keeper is alive")
                await until(lambda: not alive(worker), 10, "the worker outlives its keeper")
            assert all(started(pid) == at for _, pid, at in programs), "a program has ended"
            wrapper, fds = manager.passed(_HELPER)
            second.mkdir()
            async with daemon(
                second, *wrapper, env=manager.env, pass_fds=fds, run=first / "run"
            ) as running:
                before = trio.current_time()
                for name, pid, at in programs:
                    await _check_adopted(running, name, pid, at)
                answered = trio.current_time() - before
                report.happened("SIGKILL of the keeper with an fd store", answered)
                (first / "stop").touch()
                for number, (name, pid, _) in enumerate(programs):
                    total = await until(lambda n=number: _count(first, n), 20, "it does not end")
                    await until(lambda p=pid: not alive(p), 10, "it does not exit")
                    report.checked_bytes += await _check_ended(running, name, total)
                assert await running.end() == 0
                await running.check_nothing_left(*(pid for _, pid, _ in programs))
            nursery.cancel_scope.cancel()


_BACKGROUND = """sleep 600 & echo $!
nohup sleep 600 >/dev/null 2>&1 & echo $!
setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $!
(setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $!)
"""


@pytest.mark.parametrize("tracking", ["auto", "subreaper"])
@pytest.mark.parametrize("detached", [False, True], ids=["on its terminal", "detached"])
async def test_background_continues_when_the_keeper_is_killed_and_can_be_killed_later(
    tmp_path, tracking, detached
):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    # The keeper closes the terminal, and ends its leader, if nothing uses it any more.
    line = "".join(_BACKGROUND.splitlines(keepends=True)[2 if detached else 0 :])
    with closing(ServiceManager(tmp_path / "notify")) as manager:
        await manager.open()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.run)
            async with daemon(first, env=manager.env, tracking=tracking) as running:
                await until(lambda: "READY=1" in manager.states, 10, "READY=1 was not sent")
                create = {"command": "bash", "args": ["-c", line], "name": "left"}
                await user_request(running.user_socket, "terminal/create", **create)
                await user_request(running.user_socket, "terminal/wait", terminalId="left")
                answer = await user_request(
                    running.user_socket, "terminal/read", terminalId="left", since=0, format="text"
                )
                pids = [int(word) for word in answer["data"].split()]
                at = [started(pid) for pid in pids]
                worker = await running.worker()
                os.kill(running.pid, signal.SIGKILL)
                assert running.process is not None
                await until(running.process.poll, 5, "the keeper is alive")
                await until(lambda: not alive(worker), 10, "the worker outlives its keeper")
            wrapper, fds = manager.passed(_HELPER)
            async with daemon(
                second,
                *wrapper,
                env=manager.env,
                pass_fds=fds,
                run=first / "run",
                tracking=tracking,
            ) as running:
                info = await user_request(running.user_socket, "terminal/get", terminalId="left")
                assert [started(pid) for pid in pids] == at
                assert {each["pid"] for each in info["background"]} == {*pids}
                await user_request(running.user_socket, "terminal/kill", terminalId="left")
                await until(lambda: not any(map(alive, pids)), 5, "the background is not killed")
                info = await user_request(running.user_socket, "terminal/get", terminalId="left")
                assert "background" not in info
                assert await running.end() == 0
                await running.check_nothing_left(*pids)
            nursery.cancel_scope.cancel()


async def _start(running: Daemon, number: int) -> tuple[str, int, str]:
    """Start a program of the user; return its terminal's name, its pid and its start time."""
    argv = ["-I", "-S", str(_WRITER), str(running.directory), f"program-{number}"]
    info = await user_request(
        running.user_socket,
        "terminal/create",
        command=sys.executable,
        args=[*argv, str(_PACES[number]), str(_STATUS)],
        name=f"program-{number}",
    )
    return info["name"], info["pid"], started(info["pid"])


def _count(directory: Path, number: int) -> int | None:
    path = directory / f"program-{number}.count"
    return int(path.read_text()) if path.exists() else None


async def _read(running: Daemon, name: str, since: int) -> tuple[int, bytes, dict[str, Any]]:
    """Read raw output; return its start position, the bytes and the whole response."""
    answer = await user_request(
        running.user_socket, "terminal/read", terminalId=name, since=since, format="raw"
    )
    return since + answer["lost"], base64.b64decode(answer["data"]), answer


async def _check_adopted(running: Daemon, name: str, pid: int, at: str) -> None:
    """Check that a program still runs and is listed, and that its output continues without a gap.

    `at` is the start time of its process: another process may have the same pid.
    """
    assert started(pid) == at
    info = await running.info(name)
    assert info["pid"] == pid
    assert info["state"] == "running"
    start, data, answer = await _read(running, name, 0)
    numbered.check_raw(start, data)
    position = answer["position"]
    with trio.fail_after(10):
        while not (await _read(running, name, position))[1]:
            await trio.sleep(0.02)


async def _check_ended(running: Daemon, name: str, total: int) -> int:
    """Check the whole output, and that the exit status is unknown; return the output's size."""
    answer = await user_request(running.user_socket, "terminal/wait", terminalId=name)
    # An unknown status is reported as 255, as a shell does, since two nulls break agents.
    assert answer["exitStatus"]["exitCode"] == 255, answer
    assert answer["exitStatus"]["signal"] is None, answer
    assert answer["exitStatus"]["endedBy"] == "lost", answer
    checked, position = 0, 0
    while True:
        start, data, answer = await _read(running, name, position)
        if not data:
            break
        numbered.check_raw(start, data)
        checked += len(data)
        position = answer["position"]
    assert position == total * numbered.LINE_BYTES
    return checked
