"""The times of output: exact for recent output, approximate for old output, in bounded memory."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpterm.pty.program import Program
from acpterm.terminal.spec import TerminalSpec
from acpterm.terminal.timeline import SAMPLES_MAX, SIZES_MAX, Resize, Sample, TimedSlice, Timeline
from tests.support.polling import poll
from tests.support.pools import running_pool


def slices(line, position, end):
    """Yield the slices of the timeline `line` between two positions; the last one ends at `end`."""
    while position < end:
        found = line.slice_at(position)
        position = min(found.end, end)
        yield found._replace(end=position)


def timeline(kept=1 << 30, start=0.0):
    return Timeline(start, kept=kept, size=(80, 24))


def test_timeline_is_empty_before_any_output():
    line = timeline()
    assert (line.end, line.last, list(slices(line, 0, 0))) == (0, None, [])
    with pytest.raises(ValueError, match="no such position: 0"):
        line.slice_at(0)


def test_output_within_a_grain_is_one_slice_with_a_time_since_the_start():
    line = timeline(start=1000.0)
    for now, size in [(1000.5, 10), (1000.505, 10), (1000.52, 10), (1060.0, 5)]:
        line.record(size, now)
    assert list(slices(line, 0, 35)) == [
        TimedSlice(0.5, 0, 20),
        TimedSlice(pytest.approx(0.52), 20, 30),
        TimedSlice(60.0, 30, 35),
    ]
    assert (line.end, line.last) == (35, 1060.0)


def test_slices_are_cut_to_the_requested_range():
    line = timeline()
    line.record(10, 1.0)
    line.record(10, 2.0)
    assert list(slices(line, 5, 12)) == [TimedSlice(1.0, 5, 10), TimedSlice(2.0, 10, 12)]
    assert line.slice_at(15) == TimedSlice(2.0, 15, 20)
    for position in (-1, 20):
        with pytest.raises(ValueError, match="no such position"):
            line.slice_at(position)


def test_sizes_are_kept_in_order_and_divide_the_output():
    line = timeline()
    line.record(10, 1.0)
    line.record_size(100, 30, 1.001)
    line.record(10, 1.002)
    assert line.resize_at(0) == Resize(1.001, 10, 100, 30)
    assert line.resize_at(1) is None
    assert list(slices(line, 0, 20)) == [TimedSlice(1.0, 0, 10), TimedSlice(1.002, 10, 20)]


def test_last_sizes_are_retained_and_an_older_one_becomes_the_initial_size():
    line = timeline()
    assert line.size == (80, 24)
    for number in range(SIZES_MAX + 3):
        line.record_size(number + 1, 24, float(number))
    assert line.size == (3, 24)
    assert line.first_resize == 3
    assert line.resize_at(0) == line.resize_at(3) == Resize(3.0, 0, 4, 24)
    assert line.resize_at(SIZES_MAX + 2).cols == SIZES_MAX + 3
    assert line.resize_at(SIZES_MAX + 3) is None


def record_all(line, times):
    """Record ten bytes at each time; yield their position and time."""
    for number, now in enumerate(times):
        line.record(10, now)
        yield number * 10, now


def test_samples_are_bounded_and_recent_times_stay_exact():
    line = timeline()
    times = [number * 0.011 for number in range(50_000)]
    true_times = dict(record_all(line, times))
    assert len(line._times) == len(line._positions) <= SAMPLES_MAX
    late = list(true_times.items())[-SAMPLES_MAX // 4 :]
    assert all(line.slice_at(position).time == time for position, time in late)
    # No time is later than the real one, or much earlier.
    error = [time - line.slice_at(position).time for position, time in true_times.items()]
    assert min(error) == 0
    assert max(error) < times[-1] / 100


def test_samples_of_dropped_output_are_removed_first():
    line = timeline(kept=10_000)
    for position, now in record_all(line, [number * 1.0 for number in range(10_000)]):
        # The oldest retained position, at ten bytes a second.
        oldest = max(0, position - 9_990)
        assert line.slice_at(oldest).time == now - (position - oldest) / 10


def test_bursts_with_pauses_between_them_stay_separate():
    line = timeline()
    times = [burst * 600 + step * 0.02 for burst in range(100) for step in range(200)]
    true_times = dict(record_all(line, times))
    assert len(line._times) <= SAMPLES_MAX
    # Each time is within its burst of four seconds.
    assert all(0 <= time - line.slice_at(at).time < 4 for at, time in true_times.items())


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 1000)), max_size=50), st.data())
def test_slices_are_in_order_without_a_gap(records, data):
    line = timeline()
    now = 0.0
    for pause, size in records:
        now += pause
        line.record(size, now)
    begin = data.draw(st.integers(0, line.end))
    end = data.draw(st.integers(begin, line.end))
    position, last = begin, 0.0
    for found in slices(line, begin, end):
        assert found.position == position < found.end
        assert found.time >= last
        position, last = found.end, found.time
    assert position == end


def test_slices_can_be_read_while_output_arrives():
    line = timeline()
    list(record_all(line, [number * 1.0 for number in range(100)]))
    found = slices(line, 0, 1000)
    next(found)
    list(record_all(line, [100 + number * 1.0 for number in range(5000)]))
    rest = list(found)
    assert rest[0].position == 10
    assert rest[-1].end == 1000


def test_timeline_takes_little_memory_without_output():
    line = timeline()
    parts = (line._times, line._positions, line._resizes)
    assert sum(sys.getsizeof(part) for part in (line, *parts)) < 1500
    for number in range(100_000):
        line.record(1, number * 1.0)
    assert sys.getsizeof(line._times) + sys.getsizeof(line._positions) < 50_000


async def test_terminal_records_a_timeline():
    async with running_pool() as pool:
        program = Program(["/bin/sh", "-c", "echo one; read x; echo two"], {}, "/", 0o22)
        terminal = await pool.create(program, TerminalSpec(size=(80, 24)))
        before = len("one\r\n")
        await poll(lambda: terminal.timeline.end == before)
        terminal.resize(80, 24)
        assert terminal.timeline.resized == 0
        terminal.resize(100, 30)
        assert terminal.timeline.resize_at(0)[1:] == (before, 100, 30)
        terminal.keyboard.type(b"\n")
        status = await terminal.wait_exited()
        line = terminal.timeline
        assert line.end == terminal.ring.end
        first, *_, last = slices(line, 0, line.end)
        # On a busy machine, output may be read long after it was written.
        assert 0 <= first.time < last.time <= status.wall + 10
        assert line.last == pytest.approx(line.start + last.time, abs=2)


def test_output_that_an_earlier_process_consumed_has_no_time():
    first = Sample(position=10, time=5.0)
    line = Timeline(0.0, kept=1 << 30, size=(80, 24), first=first, known_from=30, last=4.0)
    assert line.end == 10
    assert line.slice_at(9) == (5.0, 9, 10)
    line.record(20, 100.0)
    assert line.last == 4.0
    assert line.position_at(0.0) == line.position_at(100.0) == line.position_at(200.0) == 30
    line.record(5, 101.0)
    assert line.position_at(50.0) == 30
    assert line.position_at(102.0) == 35
