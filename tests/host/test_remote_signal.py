"""Signals to a program on another host that cannot be reached, or that has not started."""

import pytest
import trio

from acpterm.config.places import SlurmPlace
from acpterm.jsonrpc import RpcError
from acpterm.providers.provider import Prepared
from acpterm.terminal.remote import RemoteExit
from tests.support.hosts import host_here
from tests.support.user import user_of


class Program:
    """A program that no signal reaches."""

    answers_queries = False

    def __init__(self, *, is_queued):
        self.host = None if is_queued else "node1"
        self.is_queued = is_queued

    async def follow(self, _):
        await trio.sleep_forever()

    async def end(self, _):
        return False

    async def signal(self, _):
        return False

    async def exit(self, code, signal):
        return RemoteExit(code, signal)


class Place:
    """A place whose programs run on this machine."""

    name, isolation = "slurm:cpu", "none"

    def __init__(self, program):
        self._program = program

    async def check(self):
        return "works"

    async def prepare(self, command):
        return Prepared(["sleep", "60"], None, command.env, "/", "token", self._program.host)

    async def clean_up(self, token):
        pass

    async def close(self):
        pass

    def program(self, _):
        return self._program

    async def run(self):
        await trio.sleep_forever()

    def end_session(self, session):
        pass


@pytest.mark.parametrize(
    ("is_queued", "expected"),
    [
        (True, "the program in terminal '{}' is queued: it has not started"),
        (
            False,
            (
                "no process group is in the foreground of terminal '{}', or it may not be "
                "signalled, or its host cannot be reached"
            ),
        ),
    ],
)
async def test_signal_that_is_not_sent_is_an_error_with_the_cause(monkeypatch, is_queued, expected):
    program = Program(is_queued=is_queued)
    monkeypatch.setattr("acpterm.host.policy.make", lambda *_, **__: Place(program))
    place = {"cpu": SlurmPlace()}
    async with host_here(slurm=place, kill_grace=0.1) as host, user_of(host) as user:
        params = {"command": "true", "cwd": "/", "provider": "slurm:cpu"}
        terminal = (await user.request("terminal/create", params))["terminalId"]
        with pytest.raises(RpcError) as caught:
            await user.terminal_request("signal", terminal, signal="SIGINT")
        assert caught.value.message == expected.format(terminal)
