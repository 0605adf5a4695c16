"""When a terminal wrote what: exact for what came lately, bounded for what came long ago."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpterm.pty.program import Program
from acpterm.terminal.timeline import MARKS_MAX, SIZES_MAX, Resize, Slice, Timeline
from tests.support.hosts import poll
from tests.support.pools import running_pool


def timeline(kept=1 << 30, start=0.0):
    return Timeline(start, kept=kept, size=(80, 24))


def test_nothing_was_written_yet():
    line = timeline()
    assert (line.end, line.last, list(line.slices(0, 0))) == (0, None, [])
    with pytest.raises(ValueError, match="no such position: 0"):
        line.slice_at(0)


def test_what_comes_within_a_grain_is_one_slice_and_times_count_from_the_start():
    line = timeline(start=1000.0)
    for now, size in [(1000.5, 10), (1000.505, 10), (1000.52, 10), (1060.0, 5)]:
        line.record(size, now)
    assert list(line.slices(0, 35)) == [
        Slice(0.5, 0, 20),
        Slice(pytest.approx(0.52), 20, 30),
        Slice(60.0, 30, 35),
    ]
    assert (line.end, line.last) == (35, 1060.0)


def test_a_part_is_cut_to_what_was_asked_for():
    line = timeline()
    line.record(10, 1.0)
    line.record(10, 2.0)
    assert list(line.slices(5, 12)) == [Slice(1.0, 5, 10), Slice(2.0, 10, 12)]
    assert line.slice_at(15) == Slice(2.0, 15, 20)
    for position in (-1, 20):
        with pytest.raises(ValueError, match="no such position"):
            line.slice_at(position)


def test_sizes_are_told_in_order_with_their_position_and_part_the_output():
    line = timeline()
    line.record(10, 1.0)
    line.record_size(100, 30, 1.001)
    line.record(10, 1.002)
    assert line.resize_at(0) == Resize(1.001, 10, 100, 30)
    assert line.resize_at(1) is None
    assert list(line.slices(0, 20)) == [Slice(1.0, 0, 10), Slice(1.002, 10, 20)]


def test_of_many_sizes_the_last_are_kept_and_what_was_before_them_is_the_first():
    line = timeline()
    assert line.size == (80, 24)
    for number in range(SIZES_MAX + 3):
        line.record_size(number + 1, 24, float(number))
    assert line.size == (3, 24)
    assert line.first_resize == 3
    assert line.resize_at(0) == line.resize_at(3) == Resize(3.0, 0, 4, 24)
    assert line.resize_at(SIZES_MAX + 2).cols == SIZES_MAX + 3
    assert line.resize_at(SIZES_MAX + 3) is None


def written(line, times):
    """Note ten bytes at each time: the true time by position."""
    for number, now in enumerate(times):
        line.record(10, now)
        yield number * 10, now


def test_marks_are_bounded_and_what_came_lately_stays_exact():
    line = timeline()
    times = [number * 0.011 for number in range(50_000)]
    true = dict(written(line, times))
    assert len(line._times) == len(line._positions) <= MARKS_MAX
    late = list(true.items())[-MARKS_MAX // 4 :]
    assert all(line.slice_at(position).time == time for position, time in late)
    # Nothing is told to be later than it was, nor much earlier.
    error = [time - line.slice_at(position).time for position, time in true.items()]
    assert min(error) == 0
    assert max(error) < times[-1] / 100


def test_marks_of_what_the_ring_has_dropped_go_first():
    line = timeline(kept=10_000)
    for position, now in written(line, [number * 1.0 for number in range(10_000)]):
        # The oldest that is kept, ten bytes a second.
        oldest = max(0, position - 9_990)
        assert line.slice_at(oldest).time == now - (position - oldest) / 10


def test_bursts_with_pauses_between_them_stay_apart():
    line = timeline()
    times = [burst * 600 + step * 0.02 for burst in range(100) for step in range(200)]
    true = dict(written(line, times))
    assert len(line._times) <= MARKS_MAX
    # Each within its burst of four seconds.
    assert all(0 <= time - line.slice_at(at).time < 4 for at, time in true.items())


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 1000)), max_size=50), st.data())
def test_slices_are_in_order_without_a_gap(noted, data):
    line = timeline()
    now = 0.0
    for pause, size in noted:
        now += pause
        line.record(size, now)
    begin = data.draw(st.integers(0, line.end))
    end = data.draw(st.integers(begin, line.end))
    position, last = begin, 0.0
    for found in line.slices(begin, end):
        assert found.position == position < found.end
        assert found.time >= last
        position, last = found.end, found.time
    assert position == end


def test_slices_can_be_gone_through_while_more_comes():
    line = timeline()
    list(written(line, [number * 1.0 for number in range(100)]))
    found = line.slices(0, 1000)
    next(found)
    list(written(line, [100 + number * 1.0 for number in range(5000)]))
    rest = list(found)
    assert rest[0].position == 10
    assert rest[-1].end == 1000


def test_it_has_hardly_any_memory_while_nothing_comes():
    line = timeline()
    parts = (line._times, line._positions, line._resizes)
    assert sum(sys.getsizeof(part) for part in (line, *parts)) < 1500
    for number in range(100_000):
        line.record(1, number * 1.0)
    assert sys.getsizeof(line._times) + sys.getsizeof(line._positions) < 50_000


async def test_a_terminal_has_one():
    async with running_pool() as pool:
        program = Program(["/bin/sh", "-c", "echo one; read x; echo two"], {}, "/", 0o22)
        terminal = await pool.create(lambda _: program, size=(80, 24))
        await poll(lambda: terminal.timeline.end or None)
        before = terminal.timeline.end
        terminal.resize(80, 24)
        assert terminal.timeline.resized == 0
        terminal.resize(100, 30)
        assert terminal.timeline.resize_at(0)[1:] == (before, 100, 30)
        terminal.keyboard.type(b"\n")
        status = await terminal.wait_exited()
        line = terminal.timeline
        assert line.end == terminal.ring.end
        first, *_, last = line.slices(0, line.end)
        # Output is read some time after it was written: on a busy machine that may be long.
        assert 0 <= first.time < last.time <= status.wall + 2
        assert line.last == pytest.approx(line.start + last.time, abs=2)


def test_output_that_an_earlier_process_had_consumed_is_of_no_time():
    line = Timeline(0.0, kept=1 << 30, size=(80, 24), end=10, known_from=30)
    line.record(20, 100.0)
    assert line.position_at(0.0) == line.position_at(100.0) == line.position_at(200.0) == 30
    line.record(5, 101.0)
    assert line.position_at(50.0) == 30
    assert line.position_at(102.0) == 35
