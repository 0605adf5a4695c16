"""`acpterm stdio` when the daemon's worker dies: repeated messages, and what the agent sees."""

import json
import os
from contextlib import asynccontextmanager

import pytest
import trio

from acpterm.agents import stdio
from acpterm.config import Settings
from acpterm.link.daemon import DaemonError
from tests.support.depth import DEADLINE_S
from tests.support.fake_host import SECRET, fake_host
from tests.support.rpc import MessageStream, encode


class Agent(MessageStream):
    """The agent in front of the relay, on two pipes."""

    def __init__(self, writes, reads):
        self.writes = trio.lowlevel.FdStream(writes)
        self.reads = trio.lowlevel.FdStream(reads)
        super().__init__(trio.StapledStream(self.writes, self.reads))

    async def ask(self, id_, method="terminal/output", **params):
        """Send a request with the id `id_`; return the message that was sent."""
        line = encode(id=id_, method=method, params={"sessionId": "s", **params})
        await self.send(line)
        return json.loads(line)


@asynccontextmanager
async def relayed(tmp_path, *, secret=SECRET, limits=None, **settings):
    """Run the relay in this process; yield the agent, a connection, the daemon and the outcome.

    The connection is the daemon's end of the relay's first one. `limits` are timeouts and bounds of
    the relay.
    """
    reads, to_relay = os.pipe()
    from_relay, writes = os.pipe()
    agent = Agent(to_relay, from_relay)
    outcome = Outcome()
    async with fake_host(tmp_path) as host, trio.open_nursery() as nursery:
        chosen = Settings(socket=host.path, **settings)

        @nursery.start_soon
        async def run():
            try:
                await stdio.relay_stdio(reads, writes, chosen, None, **(limits or {}))
            except* DaemonError as errors:
                outcome.error = str(errors.exceptions[0])
                while isinstance(errors.exceptions[0], BaseExceptionGroup):
                    errors = errors.exceptions[0]
                    outcome.error = str(errors.exceptions[0])
            os.close(writes)
            outcome.over.set()

        first = await host.connected(secret=secret)
        async with agent.writes, agent.reads:
            yield agent, first, host, outcome
        nursery.cancel_scope.cancel()
    os.close(reads)


class Outcome:
    def __init__(self):
        self.over = trio.Event()
        self.error = None

    async def wait(self):
        with trio.fail_after(DEADLINE_S):
            await self.over.wait()
        return self.error


async def test_unanswered_requests_are_repeated_in_order_with_their_ids(tmp_path):
    async with relayed(tmp_path) as (agent, first, host, _):
        requests = [
            await agent.ask(1, "terminal/create", command="make"),
            await agent.ask("two", "terminal/wait_for_exit", terminalId="t"),
            await agent.ask(3),
        ]
        assert [await first.receive() for _ in requests] == requests
        await first.respond(requests[1], {"exitCode": 0})
        assert (await agent.receive())["id"] == "two"
        await first.lose()
        second = await host.resumed()
        assert [await second.receive(), await second.receive()] == [requests[0], requests[2]]
        await second.respond(requests[2], {"output": ""})
        await second.respond(requests[0], {"terminalId": "t"})
        assert [(await agent.receive())["id"], (await agent.receive())["id"]] == [3, 1]
        # The connection works as before.
        later = await agent.ask(1)
        assert await second.receive() == later


async def test_answered_request_is_not_repeated(tmp_path):
    async with relayed(tmp_path) as (agent, first, host, _):
        request = await agent.ask(1)
        await first.respond(await first.receive(), {"output": "all of it"})
        await first.lose()
        assert (await agent.receive())["id"] == request["id"]
        second = await host.resumed()
        later = await agent.ask(2)
        assert await second.receive() == later


async def test_incomplete_line_of_the_daemon_never_reaches_the_agent(tmp_path):
    async with relayed(tmp_path) as (agent, first, host, _):
        request = await agent.ask(1)
        await first.receive()
        await first.send(
            b'{"jsonrpc":"2.0","id":9,"result":{}}\n{"jsonrpc":"2.0","id":1,"result":{"ou'
        )
        assert (await agent.receive())["id"] == 9
        await first.lose()
        second = await host.resumed()
        assert await second.receive() == request
        await second.respond(request, {"output": "whole"})
        assert (await agent.receive())["result"] == {"output": "whole"}


async def test_incomplete_line_of_the_agent_is_sent_again_from_its_beginning(tmp_path):
    async with relayed(tmp_path) as (agent, first, host, _):
        line = b'{"jsonrpc":"2.0","id":1,"method":"terminal/output","params":{"sessionId":"s"}}\n'
        await agent.send(line[:30])
        with trio.fail_after(DEADLINE_S):
            assert await first.stream.receive_some() == line[:30]
        await first.lose()
        second = await host.resumed()
        await agent.send(line[30:])
        assert await second.receive() == json.loads(line)


async def test_rest_of_an_oversized_line_is_not_sent_as_a_line(tmp_path):
    async with relayed(tmp_path, max_message_bytes=1024) as (agent, first, host, _):
        await agent.send(b'{"x":"' + b"y" * 5000)
        with trio.fail_after(DEADLINE_S):
            received = b""
            while len(received) < 5006:
                received += await first.stream.receive_some()
        await first.lose()
        second = await host.resumed()
        await agent.send(b'yy"}')
        await agent.send(b"\n")
        request = await agent.ask(1)
        assert await second.receive() == request


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("_acpterm/terminal/write", "it is unknown whether it was typed; read the screen before"),
        ("_acpterm/terminal/signal", "it is unknown whether the signal was sent; read the screen"),
    ],
)
async def test_write_and_signal_are_not_repeated_and_fail(tmp_path, method, expected):
    async with relayed(tmp_path) as (agent, first, host, _):
        request = await agent.ask(1, method, terminalId="t", data="rm -r x\n")
        waits = await agent.ask(2, "terminal/wait_for_exit", terminalId="t")
        assert [await first.receive(), await first.receive()] == [request, waits]
        await first.lose()
        second = await host.resumed()
        answer = await agent.receive()
        assert (answer["id"], answer["error"]["code"]) == (1, -32603)
        assert expected in answer["error"]["message"]
        assert await second.receive() == waits


async def test_messages_sent_without_a_worker_reach_the_next_one(tmp_path):
    async with relayed(tmp_path) as (agent, first, host, _):
        await first.lose()
        second = await host.accept()
        typed = await agent.ask(1, "_acpterm/terminal/write", data="x")
        await second.welcome(resumed=True)
        assert await second.receive() == typed
        await second.respond(typed, {"written": 1})
        assert (await agent.receive())["result"] == {"written": 1}


async def test_relay_tries_the_next_worker_when_one_dies_before_it_responds(tmp_path):
    async with relayed(tmp_path) as (agent, first, host, _):
        request = await agent.ask(1)
        await first.receive()
        await first.lose()
        await (await host.accept()).lose()
        second = await host.accept()
        await second.expect("initialize")
        await second.lose()
        third = await host.resumed()
        await third.lose()
        fourth = await host.resumed()
        assert await fourth.receive() == request


async def test_newest_secret_is_used_even_from_the_agents_own_initialize(tmp_path):
    async with relayed(tmp_path) as (agent, first, host, _):
        own = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
        await agent.send_message(**own)
        assert await first.receive() == own
        result = {"protocolVersion": 1, "_meta": {"acpterm": {"resume": "newer"}}}
        await first.respond(own, result)
        assert (await agent.receive())["result"] == result
        await first.lose()
        second = await host.connected(secret="newest", resumed=True)
        assert second.presented == "newer"
        await second.lose()
        third = await host.connected(resumed=True)
        assert third.presented == "newest"


async def test_possibly_unread_notifications_are_repeated_in_order(tmp_path):
    async with relayed(tmp_path) as (agent, first, host, _):
        read = {"sessionId": "s", "update": {"sessionUpdate": "tool_call", "toolCallId": "read"}}
        await agent.notify("session/update", read)
        request = await agent.ask(1)
        update = {"sessionId": "s", "update": {"sessionUpdate": "tool_call", "toolCallId": "c"}}
        await agent.notify("session/update", update)
        await agent.notify("session/cancel", {"sessionId": "s"})
        for _ in range(3):
            await first.receive()
        await first.respond(request)
        await agent.receive()
        await first.lose()
        second = await host.resumed()
        assert (await second.expect("session/update"))["params"] == update
        assert (await second.expect("session/cancel"))["params"] == {"sessionId": "s"}


async def test_cancelled_request_is_cancelled_again(tmp_path):
    async with relayed(tmp_path) as (agent, first, host, _):
        request = await agent.ask(1, "terminal/wait_for_exit", terminalId="t")
        await agent.notify("$/cancel_request", {"requestId": 1})
        assert await first.receive() == request
        await first.lose()
        second = await host.resumed()
        assert await second.receive() == request
        assert (await second.expect("$/cancel_request"))["params"] == {"requestId": 1}


async def test_relay_fails_when_the_daemon_does_not_know_the_connection(tmp_path):
    async with relayed(tmp_path) as (agent, first, host, outcome):
        await agent.ask(1)
        await first.receive()
        await first.lose()
        await host.connected(secret="fresh", resumed=False)
        answer = await agent.receive()
        assert (answer["id"], answer["error"]["code"]) == (1, -32603)
        assert "the daemon is gone, and the terminals with it" in answer["error"]["message"]
        assert await agent.receive_rest() == b""
        assert (
            f"the daemon at {host.path} is gone, and the terminals with it" in await outcome.wait()
        )


@pytest.mark.parametrize("settings", [{"secret": None}, {"resume_timeout": 0.0}], ids=str)
async def test_relay_fails_at_once_without_a_secret_or_with_timeout_0(tmp_path, settings):
    async with relayed(tmp_path, **settings) as (agent, first, _, outcome):
        await first.lose()
        assert "it has closed the connection" in await outcome.wait()
        assert await agent.receive_rest() == b""


async def test_relay_fails_soon_when_the_daemon_no_longer_listens(tmp_path):
    async with relayed(tmp_path) as (agent, first, host, outcome):
        await host.stop()
        await first.lose()
        assert "it has ended" in await outcome.wait()
        assert await agent.receive_rest() == b""


async def test_relay_fails_after_the_timeout_with_the_keepers_message(tmp_path):
    async with relayed(tmp_path, resume_timeout=0.2) as (_, first, host, outcome):
        host.lock("1234\nthe worker failed five times: run acpterm restart\n")
        await first.lose()
        message = await outcome.wait()
        assert (
            "no worker answers within 0.2 s: the worker failed five times: run acpterm" in message
        )


async def test_next_worker_answers_pending_requests_after_stdin_ended(
    tmp_path,
):
    async with relayed(tmp_path) as (agent, first, host, outcome):
        request = await agent.ask(1, "terminal/wait_for_exit", terminalId="t")
        await first.receive()
        await agent.writes.aclose()
        assert await first.receive_rest() == b""
        await first.lose()
        second = await host.resumed()
        assert await second.receive() == request
        assert await second.receive_rest() == b""
        await second.respond(request, {"exitCode": None, "signal": "SIGTERM"})
        await second.lose()
        assert (await agent.receive())["result"]["signal"] == "SIGTERM"
        assert await outcome.wait() is None


async def test_end_of_stdin_without_a_worker_reaches_the_next_worker(tmp_path):
    async with relayed(tmp_path) as (agent, first, host, outcome):
        await first.lose()
        second = await host.accept()
        await agent.writes.aclose()
        await second.welcome(resumed=True)
        assert await second.receive_rest() == b""
        await second.lose()
        assert await outcome.wait() is None


async def test_responses_are_read_while_requests_are_repeated(tmp_path):
    async with relayed(tmp_path) as (agent, first, host, _):
        # More than the socket buffers hold, in both directions.
        requests = []
        for number in range(20):
            requests.append(await agent.ask(number, "terminal/create", args=["x" * 50_000]))
            assert await first.receive() == requests[-1]
        await first.lose()
        second = await host.resumed()
        for request in requests:
            assert await second.receive() == request
            await second.respond(request, {"terminalId": "y" * 100_000})
            assert (await agent.receive())["id"] == request["id"]


async def test_relay_stops_reading_above_the_limit_of_unanswered_bytes(tmp_path):
    async with relayed(tmp_path, limits={"unanswered_bytes_max": 1000}) as (agent, first, _, _):
        large = await agent.ask(1, "terminal/create", args=["x" * 2000])
        assert await first.receive() == large
        request = await agent.ask(2)
        with trio.move_on_after(0.1) as waited:
            await first.stream.receive_some()
        assert waited.cancelled_caught
        await first.respond(large)
        assert await first.receive() == request
