"""How the sessions of a host's connections are counted, with stubs of the connections."""

import os
import socket
from types import SimpleNamespace

import pytest
import trio

from acpterm.config.places import SshPlace
from acpterm.providers.ssh import connections
from acpterm.providers.ssh.connections import Connections
from acpterm.providers.ssh.control import ControlLostError
from acpterm.providers.ssh.master import ControlMaster


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

    monkeypatch.setattr(ControlMaster, "start", start)
    monkeypatch.setattr(ControlMaster, "stop", stop)
    monkeypatch.setattr(connections, "users_master", users_master)
    yield sockets
    for one in sockets:
        one.close()


async def test_creates_at_once_take_no_more_sessions_than_a_connection_has(listening, tmp_path):
    made = Connections(SshPlace(sessions=4), "box", str(tmp_path))
    taken = []

    async def take():
        master = await made.free_master()
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


async def test_create_while_idle_connections_are_closed_gets_a_new_one(
    listening, monkeypatch, tmp_path, autojump_clock
):
    stopping = trio.Event()

    async def stop(master):
        stopping.set()
        await trio.sleep(1)
        os.unlink(master.path)
        listening[0].close()

    monkeypatch.setattr(ControlMaster, "stop", stop)
    made = Connections(SshPlace(), "box", str(tmp_path))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await made.free_master()
        await stopping.wait()
        master = await made.free_master()
        assert master.is_alive()
        assert len(listening) == 2
        nursery.cancel_scope.cancel()


async def test_connections_whose_control_channel_was_used_are_not_idle(
    listening, tmp_path, autojump_clock
):
    async def send(_):
        await trio.lowlevel.checkpoint()
        raise ControlLostError

    made = Connections(SshPlace(), "box", str(tmp_path))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await made.free_master()
        await trio.sleep(595)
        made._control = SimpleNamespace(is_lost=False, send=send, stop=lambda: None)
        await made.control()
        await trio.sleep(30)
        assert made._masters
        nursery.cancel_scope.cancel()
    assert not made._masters


async def test_beats_are_sent_until_connections_are_idle_although_no_program_runs(
    listening, tmp_path, autojump_clock
):
    beats = []

    async def send(line):
        await trio.lowlevel.checkpoint()
        beats.append(trio.current_time() - began)

    made = Connections(SshPlace(lost_timeout=60.0), "box", str(tmp_path))
    made._control = SimpleNamespace(
        is_lost=False, send=send, stop=lambda: None, closed=trio.Event()
    )
    made._control.closed.set()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await made.free_master()
        await trio.sleep(595)
        assert beats == [10.0 * number for number in range(1, 60)]
        await trio.sleep(30)
        assert not made._masters
        nursery.cancel_scope.cancel()


async def test_lost_control_channel_is_not_opened_again_for_a_beat_without_programs(
    listening, tmp_path, autojump_clock
):
    made = Connections(SshPlace(), "box", str(tmp_path))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await made.free_master()
        made._control = lost = SimpleNamespace(is_lost=True)
        await trio.sleep(300)
        assert made._control is lost
        nursery.cancel_scope.cancel()
        made._control = None
