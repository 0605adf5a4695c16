"""How the readers of floods take turns."""

import math

import pytest
import trio
from trio.testing import MockClock

from acpterm.pty.master import How
from acpterm.terminal.floods import (
    ASKED,
    CALM,
    QUICK,
    SLOW,
    TURN,
    TURN_ALONE,
    TURN_ASKED,
    Floods,
)


@pytest.fixture
def clock():
    """The clock of each test that names it: it jumps to when there is something to do."""
    return MockClock(autojump_threshold=0)


async def test_who_is_alone_reads_as_much_as_there_is(clock):
    floods = Floods()
    assert floods.turn("a", -math.inf) == (How.GATHER, TURN_ALONE)
    for _ in range(100):
        floods.note("a")
        await trio.sleep(0.001)
    assert floods.turn("a", trio.current_time()) == (How.GATHER, TURN_ALONE)


async def test_of_several_who_flood_none_waits_for_its_terminal(clock):
    floods = Floods()
    for name in "abcd" * 3:
        floods.note(name)
        await trio.sleep(0.001)
    for name in "abcd":
        assert floods.others(name)
        assert floods.turn(name, trio.current_time()) == (How.WAITING, TURN)
    # Who does not flood is read when there is something.
    assert floods.turn("quiet", -math.inf) == (How.PLAIN, TURN)


async def test_the_last_that_floods_is_alone_after_a_while(clock):
    floods = Floods()
    floods.note("a")
    floods.note("b")
    assert floods.others("a")
    assert floods.others("b")
    await trio.sleep(0.6 * CALM)
    floods.note("a")
    assert floods.others("a")
    await trio.sleep(0.6 * CALM)
    assert not floods.others("a")
    assert floods.others("b")
    await trio.sleep(0.6 * CALM)
    assert not floods.others("b")


async def test_a_flood_that_is_over_is_read_when_there_is_something(clock):
    floods = Floods()
    floods.note("a")
    flooded = trio.current_time()
    await trio.sleep(0.9 * CALM)
    floods.note("b")
    assert floods.turn("a", flooded)[0] is How.WAITING
    await trio.sleep(0.2 * CALM)
    assert floods.turn("a", flooded)[0] is How.PLAIN


async def ticks(floods, count):
    before = trio.current_time()
    for _ in range(count):
        await floods.tick()
    return (trio.current_time() - before) / count


async def test_all_read_at_the_same_ticks_and_seldom_while_somebody_asks(clock):
    floods = Floods()
    await trio.sleep(0.0004)
    assert math.isclose(await ticks(floods, 50), QUICK, rel_tol=0.05)
    floods.asked()
    floods.note("a")
    floods.note("b")
    assert floods.turn("a", trio.current_time()) == (How.WAITING, TURN_ASKED)
    await floods.tick()
    assert math.isclose(await ticks(floods, 5), SLOW, rel_tol=0.05)
    woken = []

    async def reader():
        await trio.sleep(0.001)
        await floods.tick()
        woken.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(reader)
    assert len(set(woken)) == 1
    await trio.sleep(ASKED)
    assert floods.turn("a", trio.current_time())[0] is How.GATHER
    assert math.isclose(await ticks(floods, 50), QUICK, rel_tol=0.05)
