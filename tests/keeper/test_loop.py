"""The keeper's event loop: the assignment of events to handlers."""

import os

from acpterm.keeper.process.loop import Loop


def test_event_of_a_closed_descriptor_is_not_delivered_to_its_reused_number():
    loop = Loop()
    pipes = [os.pipe() for _ in range(2)]
    called = []
    opened = []

    def replace(own, other):
        """Handle an event of `own`: close `other`, and give its number to a new descriptor.

        `other` has an event in the same turn, the new descriptor has none.
        """
        called.append(own)
        loop.remove_reader(other)
        os.close(other)
        reads, writes = os.pipe()
        if reads != other:
            os.dup2(reads, other)
            os.close(reads)
        opened.append(writes)
        loop.add_reader(other, lambda: called.append("stale"))

    (first, first_writes), (second, second_writes) = pipes
    loop.add_reader(first, lambda: replace(first, second))
    loop.add_reader(second, lambda: replace(second, first))
    os.write(first_writes, b"x")
    os.write(second_writes, b"x")
    try:
        loop.turn(1.0)
        assert len(called) == 1
        assert "stale" not in called
    finally:
        for fd in (first, second, first_writes, second_writes, *opened):
            os.close(fd)
