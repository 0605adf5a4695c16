"""Reconnecting to a daemon: how long it is tried, and when the daemon counts as gone."""

import errno
import socket

import pytest
import trio

from acpterm.config import Settings
from acpterm.link import daemon_stream, handshake
from acpterm.link.daemon import DaemonError
from acpterm.link.daemon_stream import Answered, Connected
from acpterm.link.handshake import HandshakeError, HungUpError, Welcome

HANGS = "no worker answers within 30 s: acpterm restart starts another worker"
ABSENT = FileNotFoundError()
DEAF = ConnectionRefusedError()
FULL = BlockingIOError(errno.EAGAIN, "its queue of connections is full")
DEAD = HungUpError("it closes the connection")
DONE = Answered(Connected(None), Welcome("secret", resumed=True))


class Daemon:
    """The outcomes of successive attempts to connect; the last one is repeated."""

    def __init__(self, monkeypatch, tmp_path, *attempts):
        monkeypatch.setattr(daemon_stream, "_attempt", self._connect)
        self.settings = Settings(socket=str(tmp_path / "agent.sock"))
        self.paths = []
        self._attempts = list(attempts)

    async def _connect(self, path, params):
        del params
        self.paths.append(path)
        await trio.lowlevel.checkpoint()
        attempt = self._attempts[0] if len(self._attempts) == 1 else self._attempts.pop(0)
        if isinstance(attempt, float):
            await trio.sleep(attempt)
            return DONE
        if isinstance(attempt, Exception):
            raise attempt
        return attempt

    async def reconnect(self, seconds=30.0, **more):
        return await daemon_stream.reconnect(self.settings, {}, seconds, **more)


@pytest.mark.parametrize(
    ("attempt", "seconds", "why"),
    [
        (ABSENT, 0.5, "it has ended"),
        (DEAF, 3.0, "it was killed"),
        (FULL, 30.0, HANGS),
        (DEAD, 30.0, HANGS),
        (1000.0, 30.0, HANGS),
    ],
    ids=["no socket", "no listener", "queue full", "worker dies", "worker does not answer"],
)
async def test_reconnect_retries_while_a_worker_may_come(
    monkeypatch, tmp_path, autojump_clock, attempt, seconds, why
):
    daemon = Daemon(monkeypatch, tmp_path, attempt)
    began = trio.current_time()
    with pytest.raises(DaemonError) as caught:
        await daemon.reconnect()
    assert trio.current_time() - began == pytest.approx(seconds, abs=0.06)
    assert str(caught.value) == why


async def test_reconnect_fails_when_no_process_listens_at_the_socket(tmp_path, autojump_clock):
    path = str(tmp_path / "agent.sock")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
    with pytest.raises(DaemonError, match="it was killed"):
        await daemon_stream.reconnect(Settings(socket=path), {}, 30.0)


async def test_reconnect_gives_up_after_the_timeout(monkeypatch, tmp_path, autojump_clock):
    daemon = Daemon(monkeypatch, tmp_path, DEAF)
    began = trio.current_time()
    with pytest.raises(DaemonError, match="no worker answers within 1 s: acpterm restart"):
        await daemon.reconnect(1.0)
    assert trio.current_time() - began == pytest.approx(1)


async def test_reconnect_waits_for_a_slow_worker(monkeypatch, tmp_path, autojump_clock):
    daemon = Daemon(monkeypatch, tmp_path, DEAD, 25.0)
    assert await daemon.reconnect() == DONE


async def test_reconnect_finds_a_daemon_that_was_restarted(monkeypatch, tmp_path, autojump_clock):
    # Killed; socket removed; then up with a worker that dies, and with one that does not.
    attempts = [*[DEAF] * 30, *[ABSENT] * 5, DEAD, *[DEAF] * 30, DONE]
    daemon = Daemon(monkeypatch, tmp_path, *attempts)
    assert await daemon.reconnect() == DONE
    assert len(daemon.paths) == len(attempts)


async def test_reconnect_stops_when_the_daemon_refuses(monkeypatch, tmp_path, autojump_clock):
    daemon = Daemon(monkeypatch, tmp_path, HandshakeError("it may be of another version"))
    with pytest.raises(DaemonError, match="of another version"):
        await daemon.reconnect()
    assert len(daemon.paths) == 1


async def test_reconnect_error_includes_the_keepers_message(monkeypatch, tmp_path, autojump_clock):
    daemon = Daemon(monkeypatch, tmp_path, 1000.0)
    (tmp_path / "agent.sock.lock").write_text("12\nfive workers failed: run acpterm restart\n")
    with pytest.raises(DaemonError, match="within 30 s: five workers failed: run acpterm restart"):
        await daemon.reconnect()


async def test_reconnect_as_user_uses_the_user_socket(monkeypatch, tmp_path):
    daemon = Daemon(monkeypatch, tmp_path, DONE)
    await daemon.reconnect()
    await daemon.reconnect(user=True)
    assert daemon.paths == [str(tmp_path / "agent.sock"), str(tmp_path / "user.sock")]


@pytest.mark.parametrize(
    ("result", "welcome"),
    [
        (b'{"_meta":{"acpterm":{"resume":"x","resumed":true}}}', Welcome("x", resumed=True)),
        (b'{"_meta":{"acpterm":{"resume":"x"}}}', Welcome("x")),
        (b'{"_meta":{"acpterm":{"resume":1,"resumed":1}}}', Welcome()),
        (b'{"_meta":null}', Welcome()),
        (b"{}", Welcome()),
        (b"[]", Welcome()),
    ],
)
def test_welcome_is_parsed_leniently(result, welcome):
    assert handshake.read_welcome(handshake.Raw(result)) == welcome
