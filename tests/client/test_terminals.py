"""The agent's terminals in the proxy and in `prompt`, with a host that a test plays."""

import json

import pytest
import trio
from msgspec import Raw

from acpterm.client.output_poller import POLL_INTERVAL_S
from acpterm.client.terminals import SETTLE_TIMEOUT_S, Terminals

TERMINAL = "s", "t"


class PromotedTerminal:
    """A host with one terminal, which prints all the time and no longer ends with its agent."""

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


def terminals_at(host, nursery, created=None):
    def note(terminal, *_):
        if created is not None:
            created.append(terminal)

    return Terminals(
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
        (["turn of s"], ["terminal/kill"]),
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


async def test_terminal_that_is_created_after_its_turn_is_released_after_the_next():
    host = RecordingHost()
    async with trio.open_nursery() as nursery:
        terminals = terminals_at(host, nursery)
        terminals.request(1, "terminal/create", Raw(b'{"sessionId": "s"}'))
        await terminals.end_turn("s")
        host.respond(Raw(b'{"terminalId": "t"}'))
        await terminals.end_turn("s")
        await terminals.end_turn("s")
        assert host.requests == ["terminal/create", "terminal/kill", "terminal/release"]


async def test_terminal_that_does_not_end_delays_no_later_turn_and_is_not_polled_faster(
    autojump_clock,
):
    host, durations = PromotedTerminal(), []
    async with trio.open_nursery() as nursery:
        terminals = terminals_at(host, nursery)
        terminals.request(1, "terminal/create", Raw(b'{"sessionId": "s"}'))
        terminals.follow(TERMINAL)
        for _ in range(3):
            before = trio.current_time()
            await terminals.end_turn("s")
            durations.append(trio.current_time() - before)
        before = host.reads
        await trio.sleep(10 * POLL_INTERVAL_S)
        assert host.reads - before <= 11
        nursery.cancel_scope.cancel()
    # The terminal is killed after the first turn, and released after the second.
    assert durations == [SETTLE_TIMEOUT_S, SETTLE_TIMEOUT_S, 0]
