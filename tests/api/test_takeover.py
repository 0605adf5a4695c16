"""The Python API while the daemon's worker is replaced."""

import os
import signal

import anyio
import pytest

import acpterm
from tests.api.test_client import ROLES, connect
from tests.support.backends import on_both_backends
from tests.support.depth import DEADLINE_S


@ROLES
@on_both_backends
@pytest.mark.long
async def test_waits_and_events_go_on_after_the_worker_was_killed(daemon, settings, role):
    worker = daemon.request("status")["workerPid"]
    async with connect(settings, role) as client:
        terminal = await client.create("stty -echo; echo ready; read x; echo $x; exit 5")
        ready = await terminal.wait_for("ready\n", timeout=DEADLINE_S)
        found = {}

        async def wait_for():
            found["waited"] = await terminal.wait_for("after\n", since=ready.position)

        async def wait():
            found["exit"] = await terminal.wait()

        async def listen():
            async with client.events() as events:
                listening.set()
                seen = found["events"] = []
                async for event in events:
                    seen.append(event.event)
                    if event.event == "exited":
                        return

        listening = anyio.Event()
        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                for task in (wait_for, wait, listen):
                    tasks.start_soon(task)
                await listening.wait()
                await terminal.info()
                os.kill(worker, signal.SIGKILL)
                assert (await terminal.info()).state == "running"
                await terminal.write("after\n")
        assert found["waited"].text == "after\n"
        assert found["exit"].code == 5
        assert "reconnected" in found["events"]
        assert isinstance(await terminal.output(), acpterm.RetainedOutput)
        await terminal.release()
