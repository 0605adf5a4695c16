"""Changed records are stored once per turn, before a response, and in order."""

import trio

from acpterm.host.state.snapshot import Snapshot
from acpterm.host.state.writer import StateWriter
from tests.support.stores import MemoryStore


def test_key_changed_repeatedly_is_stored_once_with_its_last_value():
    store = MemoryStore()
    writer = StateWriter(store)
    value = b"first"
    writer.changed("a", lambda: value)
    writer.changed("b", lambda: b"b")
    value = b"last"
    writer.changed("a", lambda: value)
    assert store.calls == []
    writer.flush()
    assert store.calls == [("put", "a", b"last"), ("put", "b", b"b")]
    writer.flush()
    assert len(store.calls) == 2


def test_removed_key_is_deleted_and_not_stored():
    store = MemoryStore()
    writer = StateWriter(store)
    writer.changed("a", lambda: b"a")
    writer.removed("a")
    writer.flush()
    assert store.calls == [("delete", "a")]


def test_discarded_change_is_not_stored():
    store = MemoryStore()
    writer = StateWriter(store)
    writer.changed("t/x", lambda: b"")
    writer.discard("t/x")
    writer.flush()
    assert store.calls == []


def test_record_that_cannot_be_encoded_affects_no_other():
    store = MemoryStore()
    writer = StateWriter(store)
    writer.changed("a", lambda: 1 / 0)
    writer.changed("b", lambda: b"b")
    writer.flush()
    assert store.calls == [("put", "b", b"b")]


async def test_change_without_a_response_is_stored_in_the_next_turn(autojump_clock):
    store = MemoryStore()
    writer = StateWriter(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        for value in (b"1", b"2"):
            writer.changed("a", lambda value=value: value)
            await trio.testing.wait_all_tasks_blocked()
            assert store.calls[-1] == ("put", "a", value)
        nursery.cancel_scope.cancel()


def test_records_without_a_parent_are_unusable_and_others_are_read():
    store = MemoryStore()
    store.put("s/c9/0", b"")
    store.put("k/c9/0/1", b"")
    store.put("c/c1", b"damaged")
    store.put("something/else", b"")
    snapshot = Snapshot.read(store.entries)
    assert not snapshot.connections
    assert set(snapshot.unusable) == {"s/c9/0", "k/c9/0/1", "c/c1"}
