"""The agent's terminals in the proxy and in `prompt`, with a host that a test plays."""

import json

import pytest
import trio
from msgspec import Raw

from acpterm.agents.terminals import POLL_INTERVAL_S, SessionTerminals

TERMINAL = "s", "t"


class PrintingTerminal:
    """A host with one terminal, whose program prints all the time."""

    def __init__(self):
        self.reads = 0

    async def request(self, method, params):
        assert method == "_acpterm/terminal/read"
        self.reads += 1
        await trio.sleep(0.001)
        part = {"data": "eA==", "position": params.since + 1, "lost": 0}
        return Raw(json.dumps(part).encode())

    def call(self, method, _params, on_response):
        if method == "terminal/create":
            on_response(Raw(b'{"terminalId": "t"}'))
        return 1


class RecordingHost:
    """A host that records requests, and responds to the last one when the test calls `respond`."""

    def __init__(self):
        self.requests = []

    def call(self, method, _params, on_response):
        self.requests.append(method)
        self.respond = on_response
        return len(self.requests)

    def notify(self, method, params):
        assert method == "session/cancel"
        assert params["sessionId"] in "so"
        self.cancelled = params["_meta"]["acpterm"].terminals if "_meta" in params else None


def terminals_at(host, nursery, created=None):
    def note(terminal, *_):
        if created is not None:
            created.append(terminal)

    return SessionTerminals(
        host,
        nursery,
        respond=lambda *_: None,
        on_created=note,
        on_output=lambda *_: None,
        on_exit=lambda *_: None,
        drain=trio.lowlevel.checkpoint,
    )


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        ([], []),
        (["turn of o", "session o"], []),
        (["turn of s"], []),
        (["session s"], ["terminal/release"]),
        (["turn of s", "session s"], ["terminal/release"]),
    ],
)
async def test_terminal_that_is_created_too_late_is_ended(ended, expected):
    host, created = RecordingHost(), []
    async with trio.open_nursery() as nursery:
        terminals = terminals_at(host, nursery, created)
        terminals.request(1, "terminal/create", Raw(b'{"sessionId": "s"}'))
        for what in ended:
            if what.startswith("turn"):
                await terminals.end_turn(what[-1])
            else:
                terminals.close_session(what[-1])
        host.respond(Raw(b'{"terminalId": "t"}'))
        assert host.requests == ["terminal/create", *expected]
        assert created == [TERMINAL]


async def test_cancel_ends_the_terminals_of_its_sessions_turn_only():
    host = RecordingHost()
    async with trio.open_nursery() as nursery:
        terminals = terminals_at(host, nursery)

        def create(session, terminal):
            terminals.request(1, "terminal/create", Raw(b'{"sessionId": "%s"}' % session.encode()))
            host.respond(Raw(b'{"terminalId": "%s"}' % terminal.encode()))

        create("s", "first")
        await terminals.end_turn("s")
        for session, terminal in ("o", "other"), ("s", "second"), ("s", "third"):
            create(session, terminal)
        released = Raw(b'{"sessionId": "s", "terminalId": "third"}')
        terminals.request(2, "terminal/release", released)
        await terminals.end_turn("o")
        terminals.cancel_turn("s")
        assert host.cancelled == ["second", "third"]


async def test_terminal_that_goes_on_delays_no_turn_and_is_not_polled_faster(autojump_clock):
    host = PrintingTerminal()
    async with trio.open_nursery() as nursery:
        terminals = terminals_at(host, nursery)
        terminals.request(1, "terminal/create", Raw(b'{"sessionId": "s"}'))
        terminals.follow(TERMINAL)
        for _ in range(3):
            before = trio.current_time()
            await terminals.end_turn("s")
            assert trio.current_time() - before < POLL_INTERVAL_S
        before = host.reads
        await trio.sleep(10 * POLL_INTERVAL_S)
        assert host.reads - before <= 11
        nursery.cancel_scope.cancel()
