"""The connection of the proxy and the prompt to the daemon when the daemon's worker dies."""

from contextlib import asynccontextmanager

import pytest
import trio

from acpterm.agents.host_connection import connect_daemon, open_host_connection
from acpterm.agents.terminals import OutputPoller
from acpterm.config import Settings
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import NoAnswerError
from acpterm.link.errors import LostError
from acpterm.runtime import exec_context
from tests.support.depth import DEADLINE_S
from tests.support.editor import proxied, say, shown
from tests.support.fake_host import SECRET, fake_host


@asynccontextmanager
async def connected(tmp_path, *, secret=SECRET, **settings):
    """Yield a client's endpoint, the daemon's end of its first connection, and the daemon."""
    async with fake_host(tmp_path) as host:
        chosen = Settings(socket=host.path, **settings)
        daemon = await connect_daemon(chosen, None)
        async with trio.open_nursery() as nursery:
            first = await host.accept()

            async def welcome():
                await first.welcome(secret=secret)

            nursery.start_soon(welcome)
            opening = open_host_connection(daemon, chosen, exec_context.current(), "an agent")
            async with opening as connection:
                yield connection.endpoint, first, host


async def test_connection_fails_when_the_daemon_does_not_respond(tmp_path, autojump_clock):
    async with fake_host(tmp_path) as host:
        settings = Settings(socket=host.path)
        daemon = await connect_daemon(settings, None)
        with pytest.RaisesGroup(
            pytest.RaisesExc(NoAnswerError, match="within 30 s: acpterm restart starts another"),
            flatten_subgroups=True,
        ):
            context = exec_context.current()
            async with open_host_connection(daemon, settings, context, "an agent"):
                pytest.fail("the daemon has not answered")


class PendingRequest:
    """A request that was sent on `endpoint`; `answer` waits for its result."""

    def __init__(self, endpoint, method, params=None):
        self._received = trio.Event()
        self._answer = None
        self.id = endpoint.call(method, params or {"sessionId": "s"}, self._take)

    def _take(self, answer):
        self._answer = answer
        self._received.set()

    async def answer(self):
        with trio.fail_after(DEADLINE_S):
            await self._received.wait()
        if isinstance(self._answer, RpcError):
            raise self._answer
        return bytes(self._answer)


async def test_lost_requests_and_notifications_are_repeated_and_answered_once(tmp_path):
    async with connected(tmp_path) as (endpoint, first, host):
        answered = PendingRequest(endpoint, "terminal/output")
        create = PendingRequest(endpoint, "terminal/create")
        endpoint.notify("session/update", {"sessionId": "s", "update": {}})
        wait = PendingRequest(endpoint, "terminal/wait_for_exit")
        await first.respond(await first.receive(), {"output": "x"})
        assert await answered.answer() == b'{"output": "x"}'
        for _ in range(3):
            await first.receive()
        await first.send(b'{"jsonrpc":"2.0","id":')
        await first.lose()
        second = await host.resumed()
        assert (await second.expect("terminal/create"))["id"] == create.id
        await second.expect("session/update")
        again = await second.expect("terminal/wait_for_exit")
        assert again["id"] == wait.id
        await second.respond({"id": create.id}, {"terminalId": "t"})
        await second.respond(again, {"exitCode": 0})
        assert await create.answer() == b'{"terminalId": "t"}'
        assert await wait.answer() == b'{"exitCode": 0}'


async def test_lost_write_fails_and_a_write_made_meanwhile_is_sent(tmp_path):
    async with connected(tmp_path) as (endpoint, first, host):
        typed = PendingRequest(endpoint, "_acpterm/terminal/write")
        await first.receive()
        await first.lose()
        second = await host.accept()
        # The loss has been detected by now.
        later = PendingRequest(endpoint, "_acpterm/terminal/write")
        await second.welcome(resumed=True)
        with pytest.raises(RpcError, match="unknown whether it was typed"):
            await typed.answer()
        request = await second.expect("_acpterm/terminal/write")
        assert request["id"] == later.id
        await second.respond(request, {"written": 1})
        assert await later.answer() == b'{"written": 1}'


async def test_cancelled_request_is_cancelled_again(tmp_path):
    async with connected(tmp_path) as (endpoint, first, host):
        wait = PendingRequest(endpoint, "terminal/wait_for_exit")
        endpoint.cancel(wait.id)
        await first.receive()
        await first.lose()
        second = await host.resumed()
        assert (await second.receive())["id"] == wait.id
        assert (await second.expect("$/cancel_request"))["params"] == {"requestId": wait.id}


async def test_connection_is_resumed_after_every_loss(tmp_path):
    async with connected(tmp_path) as (endpoint, first, host):
        wait = PendingRequest(endpoint, "terminal/wait_for_exit")
        await first.receive()
        await first.lose()
        for _ in range(5):
            worker = await host.resumed()
            assert (await worker.receive())["id"] == wait.id
            await worker.lose()
        worker = await host.resumed()
        await worker.respond(await worker.receive(), {"exitCode": 0})
        assert await wait.answer() == b'{"exitCode": 0}'


@pytest.mark.parametrize("settings", [{"secret": None}, {"resume_timeout": 0.0}], ids=str)
async def test_requests_fail_after_a_loss_without_a_secret_or_timeout(tmp_path, settings):
    async with connected(tmp_path, **settings) as (endpoint, first, _):
        wait = PendingRequest(endpoint, "terminal/wait_for_exit")
        await first.receive()
        await first.lose()
        for pending in (wait, PendingRequest(endpoint, "terminal/output")):
            with pytest.raises(LostError, match="is gone"):
                await pending.answer()


async def test_requests_fail_when_the_daemon_does_not_know_the_connection(tmp_path):
    async with connected(tmp_path) as (endpoint, first, host):
        wait = PendingRequest(endpoint, "terminal/wait_for_exit")
        await first.receive()
        await first.lose()
        await host.connected(resumed=False)
        with pytest.raises(LostError, match="which has none of its terminals"):
            await wait.answer()


async def test_requests_fail_when_no_worker_comes_within_the_timeout(tmp_path):
    async with connected(tmp_path, resume_timeout=0.1) as (endpoint, first, host):
        host.lock("1\nno worker: run acpterm restart\n")
        wait = PendingRequest(endpoint, "terminal/wait_for_exit")
        await first.receive()
        await first.lose()
        with pytest.raises(LostError, match=r"no worker answers within 0\.1 s: no worker: run acp"):
            await wait.answer()


async def test_drain_blocks_while_there_is_no_worker(tmp_path):
    async with connected(tmp_path) as (endpoint, first, host):
        await first.lose()
        second = await host.accept()
        pending = [
            PendingRequest(endpoint, "terminal/create", {"sessionId": "s", "args": ["x" * 100_000]})
            for _ in range(5)
        ]
        with trio.move_on_after(0.05) as waited:
            await endpoint.drain()
        assert waited.cancelled_caught
        await second.welcome(resumed=True)
        for one in pending:
            request = await second.receive()
            assert request["id"] == one.id
            await second.respond(request)
        with trio.fail_after(DEADLINE_S):
            await endpoint.drain()


async def test_output_poller_continues_from_its_position_after_a_loss(tmp_path):
    received, ends = [], []

    async def drain():
        await trio.lowlevel.checkpoint()

    async with connected(tmp_path) as (endpoint, first, host), trio.open_nursery() as nursery:
        poller = OutputPoller(
            endpoint,
            ("s", "t"),
            lambda _, data, lost: received.append((data, lost)),
            lambda _, end: ends.append(end),
            drain,
        )
        nursery.start_soon(poller.run)
        read = await first.expect("_acpterm/terminal/read")
        await first.respond(read, {"data": "b25l", "position": 3, "lost": 0})
        read = await first.expect("_acpterm/terminal/read")
        assert read["params"]["since"] == 3
        await first.lose()
        second = await host.resumed()
        assert await second.receive() == read
        status = {"exitCode": 0, "signal": None}
        part = {"data": "dHdv", "position": 6, "lost": 0, "exitStatus": status}
        await second.respond(read, part)
        read = await second.expect("_acpterm/terminal/read")
        await second.respond(read, {**part, "data": "", "position": 6})
        with trio.fail_after(DEADLINE_S):
            await poller.done.wait()
    assert received == [(b"one", 0), (b"two", 0)]
    assert ends[0].code == 0


async def test_agent_behind_the_proxy_does_not_notice_a_loss(tmp_path):
    async with (
        fake_host(tmp_path) as host,
        proxied(settings={"socket": host.path}, embedded=False) as editor,
        trio.open_nursery() as nursery,
    ):

        @nursery.start_soon
        async def serve():
            first = await host.connected()
            # The agent's name from its `agentInfo`.
            named = await first.expect("initialize")
            assert named["params"]["clientInfo"]["name"] == "scripted"
            await first.respond(named)
            await first.expect("_acpterm/session/set")
            await first.expect("_acpterm/session/open")
            await first.expect("session/update")
            create = await first.expect("terminal/create")
            await first.lose()
            second = await host.resumed()
            # The responses to these were lost, too.
            await second.respond(await second.expect("_acpterm/session/set"))
            await second.respond(await second.expect("_acpterm/session/open"))
            await second.expect("session/update")
            assert await second.receive() == create
            await second.respond(create, {"terminalId": "t"})
            while True:
                await answer(second)

        await editor.open(str(tmp_path))
        assert await editor.prompt(*shown("make"), say("done")) == "end_turn"
        nursery.cancel_scope.cancel()
    assert "done" in editor.texts_sent
    assert editor.texts()[-1] == "```console\n$ make\nmade\n```"


async def answer(worker):
    """Answer the next request about the only terminal, whose program has exited."""
    message = await worker.receive()
    status = {"exitCode": 0, "signal": None}
    match message["method"]:
        case "_acpterm/terminal/read":
            since = message["params"]["since"]
            data = {"data": "" if since else "bWFkZQo=", "position": 5, "lost": 0}
            await worker.respond(message, {**data, "exitStatus": status})
        case "terminal/wait_for_exit":
            await worker.respond(message, status)
        case "terminal/output":
            output = {"output": "made\n", "truncated": False, "exitStatus": status}
            await worker.respond(message, output)
        case "terminal/release" | "terminal/kill":
            await worker.respond(message)
