"""How the sessions of a host's connections are counted, with stubs of the connections."""

import socket

import pytest
import trio

from acpterm.config.places import SshPlace
from acpterm.providers.ssh import connections
from acpterm.providers.ssh.connections import Connections
from acpterm.providers.ssh.master import Master


@pytest.fixture
def listening(monkeypatch):
    """Make connections that only listen; yield their sockets."""
    sockets = []

    async def start(master, options):
        await trio.lowlevel.checkpoint()
        sockets.append(one := socket.socket(socket.AF_UNIX))
        one.bind(master.path)
        one.listen(100)

    async def users_master(place, host):
        await trio.lowlevel.checkpoint()
        return None, []

    async def stop(master):
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(Master, "start", start)
    monkeypatch.setattr(Master, "stop", stop)
    monkeypatch.setattr(connections, "users_master", users_master)
    yield sockets
    for one in sockets:
        one.close()


async def test_creates_at_once_take_no_more_sessions_than_a_connection_has(listening, tmp_path):
    made = Connections(SshPlace(sessions=4), "box", str(tmp_path))
    taken = []

    async def take():
        master = await made.take()
        made.count(master.path, 1)
        taken.append(master.path)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        for _ in range(5):
            async with trio.open_nursery() as creates:
                for _ in range(4):
                    creates.start_soon(take)
        nursery.cancel_scope.cancel()
    assert max(taken.count(path) for path in taken) == 3
    assert len(listening) == 7
