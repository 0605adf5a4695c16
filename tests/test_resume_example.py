"""The example of an agent that resumes its connection."""

import base64
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.support.daemon import daemon
from tests.support.fake_host import SECRET, fake_host
from tests.support.polling import poll
from tests.support.processes import environment

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "resume_agent.py"


class RunningExample:
    def __init__(self, process):
        self._process = process

    async def wait(self):
        """Wait until the example exits; return exit status, stdout and stderr."""
        status = await poll(self._process.poll)
        return status, self._process.stdout.read(), self._process.stderr.read()


@asynccontextmanager
async def example(path, command):
    process = subprocess.Popen(
        [sys.executable, EXAMPLE, path, command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        text=True,
    )
    with process:
        try:
            yield RunningExample(process)
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(process.wait)


async def send_output(worker, request, data, since, status=None):
    assert request["params"]["since"] == since
    body = {"data": base64.b64encode(data).decode(), "position": since + len(data), "lost": 0}
    await worker.respond(request, body | ({"exitStatus": status} if status else {}))


async def test_example_runs_a_command_with_a_daemon(tmp_path):
    async with daemon(tmp_path) as (_, path), example(path, "echo hi; exit 3") as agent:
        assert await agent.wait() == (3, "hi\n", "")


async def test_example_resumes_and_prints_each_line_once(tmp_path):
    async with fake_host(tmp_path) as host, example(host.path, "count") as agent:
        first = await host.connected()
        create = await first.expect("terminal/create")
        # The worker has executed the create, but only half of its response arrives.
        await first.send(b'{"jsonrpc":"2.0","id":')
        await first.lose()
        second = await host.connected(resumed=True)
        assert second.presented == SECRET
        assert await second.receive() == create
        await second.respond(create, {"terminalId": "t"})
        await send_output(second, await second.expect("_acpterm/terminal/read"), b"one\n", 0)
        read = await second.expect("_acpterm/terminal/read")
        await second.lose()
        # This worker dies before it responds.
        await (await host.accept()).lose()
        third = await host.connected(resumed=True, secret="another")
        assert await third.receive() == read
        status = {"exitCode": 5, "signal": None}
        await send_output(third, read, b"two\n", 4, status)
        await send_output(third, await third.expect("_acpterm/terminal/read"), b"", 8, status)
        await third.lose()
        fourth = await host.connected(resumed=True)
        assert fourth.presented == "another"
        await fourth.respond(await fourth.expect("terminal/release"))
        assert await agent.wait() == (5, "one\ntwo\n", "")


async def test_example_reports_lost_terminals(tmp_path):
    async with fake_host(tmp_path) as host, example(host.path, "count") as agent:
        first = await host.connected()
        await first.expect("terminal/create")
        await first.lose()
        await host.connected(resumed=False)
        status, out, err = await agent.wait()
        assert (status, out) == (1, "")
        assert err == "agent: another daemon is there, which has none of the terminals\n"
