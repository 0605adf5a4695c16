"""Messages between keeper and worker, on a real socket pair."""

import os
import socket

import pytest
import trio
import trio.testing

from acpterm.keeper import protocol
from acpterm.keeper.keeper_socket import KeeperSocket
from acpterm.keeper.reports import KeeperLostError
from acpterm.keeper.startup import worker_pair
from acpterm.pty.tracking import marks
from tests.pty.scarcity import no_descriptors
from tests.support.depth import DEADLINE_S


@pytest.fixture
def ends():
    one, two = protocol.socket_pair()
    yield one, two
    one.close()
    two.close()


def test_worker_is_recognised_as_detached_by_its_environment():
    assert protocol.KEEPER_FD_VARIABLE in marks.DETACHED


def test_message_arrives_with_its_fields_and_descriptors(ends):
    one, two = ends
    reader, writer = os.pipe()
    protocol.send(
        one, protocol.encode("put", "key", b"\0value", None, 1.5, ["ä", "\udcff"]), [writer]
    )
    os.close(writer)
    message = protocol.receive(two)
    assert message.kind == "put"
    assert message.fields == ("key", b"\0value", None, 1.5, ["ä", "\udcff"])
    assert not message.cut
    [passed] = message.fds
    assert not os.get_inheritable(passed)
    os.write(passed, b"x")
    assert os.read(reader, 1) == b"x"
    message.close()
    os.close(reader)


@pytest.mark.parametrize("size", [60_000, 65_536, 70_000, 10_000_000])
def test_message_of_any_size_arrives(ends, size):
    one, two = ends
    value = os.urandom(size)
    protocol.send(one, protocol.encode("put", "key", value), [0])
    message = protocol.receive(two)
    assert message.fields == ("key", value)
    assert len(message.fds) == 1
    message.close()


def test_receive_and_send_raise_when_they_would_block(ends):
    one, two = ends
    with pytest.raises(BlockingIOError):
        protocol.receive(two)
    with pytest.raises(BlockingIOError):  # noqa: PT012
        for _ in range(100_000):
            protocol.send(one, protocol.encode("put", "key", b"x" * 1000))


def test_messages_sent_before_the_close_are_received_before_it(ends):
    one, two = ends
    # The peer left messages unread. That error must not hide the messages that it had sent.
    protocol.send(two, protocol.encode("spawn"))
    for number in range(10):
        protocol.send(one, protocol.encode("put", number))
    one.close()
    assert [protocol.receive(two).fields for _ in range(10)] == [(n,) for n in range(10)]
    assert protocol.receive(two) is None


def test_send_raises_broken_pipe_when_the_peer_has_closed(ends):
    one, two = ends
    protocol.send(one, protocol.encode("put"))
    protocol.send(two, protocol.encode("put"))
    two.close()
    with pytest.raises(BrokenPipeError):
        protocol.send(one, protocol.encode("put"))
    assert protocol.receive(one).kind == "put"


async def test_flushed_returns_when_the_keeper_is_lost():
    ours, keepers = worker_pair()
    connection = KeeperSocket(ours)
    while connection.is_flushed:
        connection.send("put", "key", b"x" * 1000)
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.flushed)
            await trio.testing.wait_all_tasks_blocked()
            keepers.close()
            with pytest.raises(KeeperLostError):
                await connection.receive_until(lambda: False, lambda _: None)
    connection.close()


def test_lost_descriptors_are_reported_when_the_table_is_full(ends):
    one, two = ends
    protocol.send(one, protocol.encode("spawned", 1), [0, 1, 2])
    with no_descriptors(but=1):
        message = protocol.receive(two)
        assert message.cut
        assert len(message.fds) == 1
        message.close()


def test_message_of_another_version_is_refused(ends):
    import marshal

    one, two = ends
    one.send(marshal.dumps((protocol.VERSION + 1, "hello"), 2))
    with pytest.raises(
        protocol.ProtocolError, match="protocol version 2: this side speaks version 1"
    ):
        protocol.receive(two)


@pytest.mark.parametrize("data", [b"x", b"\xff" * 9, b"i\1\0\0\0"])
def test_invalid_message_is_refused_and_its_descriptors_closed(ends, data):
    one, two = ends
    free = os.dup(0)
    os.close(free)
    with socket.socket(fileno=os.dup(one.fileno())) as raw:
        socket.send_fds(raw, [data], [0])
    with pytest.raises(protocol.ProtocolError, match="not a message"):
        protocol.receive(two)
    again = os.dup(0)
    os.close(again)
    assert again == free
