"""A program's output and exit: reading, backpressure, draining and reports."""

import os
import random
import signal

import pytest
import trio
import trio.lowlevel

from acpterm.keeper import ring_file, startup
from tests.keeper.terminals import RING_BYTES, is_alive, not_left, poll, read_ring, run, spawn
from tests.pty.tracer import tracing


async def test_output_of_fast_programs_is_complete_when_they_have_exited(keeper):
    for number in range(20):
        terminal = await spawn(keeper, f"echo line {number}; :")
        report = await terminal.wait_exited()
        terminal.consume_all()
        assert terminal.output[: report.end] == f"line {number}\r\n".encode()
        keeper.forget(terminal.name)
        terminal.close()


async def test_large_last_output_is_before_the_end_position(keeper):
    terminal = await spawn(keeper, "head -c 200000 /dev/zero | tr '\\0' x; :")
    report = await terminal.wait_exited()
    assert report.end == 200_000
    assert await terminal.wait_closed() == b"x" * 200_000
    assert terminal.end == 200_000
    terminal.close()


async def test_exit_is_reported_before_the_close(keeper):
    terminal = await spawn(keeper, "exit 3; :")
    await terminal.wait_closed()
    assert terminal.events == ["exited", "closed"]
    terminal.close()


async def test_exit_does_not_wait_for_a_background_process(keeper):
    terminal = await spawn(keeper, "trap '' HUP; sleep 60 & echo $!; exit 4; :")
    report = await terminal.wait_exited()
    assert os.waitstatus_to_exitcode(report.status) == 4
    pid = int(terminal.output)
    with not_left(pid):
        assert terminal.end is None
        os.kill(pid, signal.SIGKILL)
        await terminal.wait_closed()
        # The keeper adopted the orphan and has reaped it.
        await poll(lambda: not os.path.exists(f"/proc/{pid}"))
    terminal.close()


@pytest.mark.long
async def test_exit_is_reported_while_a_background_process_floods(keeper):
    terminal = await spawn(keeper, "trap '' HUP; sh -c 'echo $$; exec yes' & exit 0; :")
    report = await terminal.wait_exited()
    await terminal.wait_for(lambda self: b"\r" in self.output)
    pid = int(terminal.output[: terminal.output.index(b"\r")])
    with not_left(pid):
        assert terminal.end is None
        await terminal.wait_for(lambda self: len(self.output) > report.end + 1_000_000)
        os.kill(pid, signal.SIGKILL)
        await terminal.wait_closed()
    terminal.close()


@pytest.mark.long
async def test_full_ring_stops_the_program_and_loses_no_byte(keeper):
    terminal = await spawn(keeper, "seq 300000", consume=False)
    header = terminal.ring.header
    await poll(lambda: header[ring_file.STALLED])
    assert header[ring_file.HEAD] == header[ring_file.RESERVED] == RING_BYTES
    expected = "".join(f"{number}\r\n" for number in range(1, 300_001)).encode()
    output, draw = b"", random.Random(1)
    with trio.fail_after(30):
        while len(output) < len(expected):
            start, data = read_ring(terminal.ring, len(output), draw.choice([1, 100, 5000, 70_000]))
            assert start == len(output)
            output += data
            header[ring_file.CONSUMED] = len(output)
            assert header[ring_file.RESERVED] <= len(output) + terminal.ring.capacity
            if header[ring_file.STALLED]:
                keeper.kick()
            await trio.lowlevel.checkpoint()
    assert output == expected
    assert (await terminal.wait_exited()).end == len(expected)
    terminal.close()


async def test_memory_of_consumed_output_is_released_when_the_program_is_idle(keeper):
    terminal = await spawn(keeper, "head -c 400000 /dev/zero; read x; :")
    await terminal.wait_for(lambda self: len(self.output) == 400_000)
    await poll(lambda: os.fstat(terminal.found.ring).st_blocks * 512 <= 5 * 4096)
    os.write(terminal.found.master, b"\n")
    await terminal.wait_closed()


async def test_keeper_finds_free_space_without_a_wake_up(keeper):
    terminal = await spawn(keeper, "seq 100000", consume=False)
    header = terminal.ring.header
    await poll(lambda: header[ring_file.STALLED])
    # In a later turn only periodic checks find free space that is less than the keeper waits for.
    await run(keeper, "true")
    assert header[ring_file.HEAD] == RING_BYTES
    header[ring_file.CONSUMED] = 1000
    await poll(lambda: header[ring_file.HEAD] == RING_BYTES + 1000)
    keeper.forget(terminal.name)
    terminal.close()


def test_write_is_reserved_before_it_begins(monkeypatch):
    from acpterm.keeper.process.loop import Loop
    from acpterm.keeper.programs import reading

    fd, file = ring_file.create_ring(0)
    header, announced = file.header, []

    def readv(_fd, buffers):
        room = sum(map(len, buffers))
        announced.append(header[ring_file.RESERVED] == header[ring_file.HEAD] + room)
        return (room + 1) // 2

    monkeypatch.setattr(reading.os, "readv", readv)
    reader = reading.Reader(Loop())
    for bound in (1000, 50_000, 50_000):
        assert reader.read(-1, file, bound, reading.PLAIN) in (
            reading.LIMIT_REACHED,
            reading.RING_FULL,
        )
        assert header[ring_file.RESERVED] == header[ring_file.HEAD]
    assert header[ring_file.HEAD] == RING_BYTES
    assert all(announced)
    file.close()
    os.close(fd)


def test_output_at_the_end_of_the_ring_is_complete_when_the_keeper_is_killed(monkeypatch):
    from acpterm.keeper.process.loop import Loop
    from acpterm.keeper.programs import reading

    fd, file = ring_file.create_ring(0)
    head = file.capacity - 2
    file.header[ring_file.HEAD] = file.header[ring_file.CONSUMED] = head
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    os.write(writes, b"abcdef")
    reader, killed_at, read = reading.Reader(Loop(), recoverable=True), [], os.readv

    def readv(fd, buffers):
        read(fd, buffers)
        killed_at.append(file.header[ring_file.RESERVED])
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(reading.os, "readv", readv)
        with pytest.raises(RuntimeError):
            reader.read(reads, file, 1000, reading.PLAIN)
    # A killed keeper does not restore this.
    file.header[ring_file.RESERVED] = killed_at[0]
    file.recover()
    assert reader.read(reads, file, 1000, reading.PLAIN) == reading.EMPTY
    assert read_ring(file, head, 1000) == (head, b"abcdef")
    file.close()
    for each in (fd, reads, writes):
        os.close(each)


def test_read_of_a_flood_stops_when_another_descriptor_is_ready(monkeypatch):
    from acpterm.keeper.process.loop import Loop
    from acpterm.keeper.programs import reading

    fd, file = ring_file.create_ring(1 << 20)
    reads, writes = os.pipe()
    loop = Loop()
    loop.add_reader(reads, lambda: None)
    monkeypatch.setattr(reading.os, "readv", lambda _fd, _buffers: 4096)
    reader = reading.Reader(loop)
    assert reader.read(-1, file, 200_000, reading.GATHER) == reading.LIMIT_REACHED
    assert file.header[ring_file.HEAD] >= 200_000
    os.write(writes, b"x")
    before = file.header[ring_file.HEAD]
    assert reader.read(-1, file, 200_000, reading.GATHER) == reading.LIMIT_REACHED
    assert file.header[ring_file.HEAD] - before <= 8 * 4096
    file.close()
    for each in (fd, reads, writes):
        os.close(each)


async def test_exit_with_a_full_ring_is_reported_once_there_is_free_space(keeper):
    # The last few kilobytes are still in the kernel's buffer.
    size = RING_BYTES + 1000
    line = f"head -c {size} /dev/zero | tr '\\0' x; exit 5; :"
    terminal = await spawn(keeper, line, consume=False)
    await poll(lambda: terminal.ring.header[ring_file.STALLED])
    await poll(lambda: not is_alive(terminal.pid))
    # The exit of a program that is started later is reported later.
    await run(keeper, "true")
    assert terminal.report is None
    terminal.consumes = True
    terminal.consume_all()
    report = await terminal.wait_exited()
    assert report.end == size
    assert os.waitstatus_to_exitcode(report.status) == 5
    assert len(await terminal.wait_closed()) == size
    terminal.close()


async def test_output_that_grows_waits_for_room(keeper):
    # Each of these bytes becomes a U+FFFD, which has three.
    line = "head -c 60000 /dev/zero | tr '\\0' '\\377'; exit 5; :"
    terminal = await spawn(keeper, line, encoding="gb18030", consume=False)
    header = terminal.ring.header
    await poll(lambda: header[ring_file.STALLED])
    for _ in range(10):
        await run(keeper, "true")
        assert header[ring_file.STALLED]
    assert header[ring_file.RESERVED] == header[ring_file.HEAD] <= RING_BYTES
    terminal.consumes = True
    terminal.consume_all()
    assert (await terminal.wait_closed()).decode() == "\ufffd" * 60_000
    assert os.waitstatus_to_exitcode(terminal.report.status) == 5
    terminal.close()


async def test_program_that_closes_its_terminal_has_not_exited(keeper):
    line = "exec 0<&- 1>&- 2>&-; for i in 1 2; do sleep 0.1; echo $i >/dev/tty; done; sleep 60"
    terminal = await spawn(keeper, line)
    await terminal.wait_for(lambda self: self.output == b"1\r\n2\r\n")
    assert terminal.events == []
    os.kill(terminal.pid, signal.SIGKILL)
    await terminal.wait_exited()
    assert os.waitstatus_to_exitcode(terminal.report.status) == -signal.SIGKILL
    keeper.forget(terminal.name)  # hangs up `sleep`
    terminal.close()


async def test_closing_the_master_ends_the_output_and_hangs_up(keeper):
    terminal = await spawn(keeper, "sleep 60; :")
    keeper.close_master(terminal.name)
    os.close(terminal.master)
    terminal.master = None
    report = await terminal.wait_exited()
    assert os.waitstatus_to_exitcode(report.status) == -signal.SIGHUP
    await terminal.wait_closed()
    terminal.close()


async def test_forgotten_program_is_killed_and_reaped(keeper):
    terminal = await spawn(keeper, "trap '' HUP; sleep 60 & wait; :")
    keeper.forget(terminal.name)
    await poll(lambda: not os.path.exists(f"/proc/{terminal.pid}"))
    assert terminal.events == []
    terminal.close()


async def test_stalled_terminal_does_not_delay_others(keeper):
    stalled = [await spawn(keeper, "yes; :", consume=False) for _ in range(3)]
    for terminal in stalled:
        await poll(lambda terminal=terminal: terminal.ring.header[ring_file.STALLED])
    assert (await run(keeper, "echo", "quick")).output == "quick\n"
    for terminal in stalled:
        keeper.forget(terminal.name)
        terminal.close()


@pytest.mark.long
async def test_keeper_serves_all_terminals_when_several_flood(keeper):
    terminals = [await spawn(keeper, "yes; :") for _ in range(8)]
    # The first ones have a lead.
    for terminal in terminals:
        await terminal.wait_for(lambda self: self.output)
    before = [len(terminal.output) for terminal in terminals]
    for terminal, size in zip(terminals, before, strict=True):
        await terminal.wait_for(lambda self, size=size: len(self.output) > size + 500_000)
    # With equal turns the factor is below 2; the rest allows for how the system schedules `yes`.
    sizes = sorted(
        len(terminal.output) - size for terminal, size in zip(terminals, before, strict=True)
    )
    assert sizes[-1] < 6 * sizes[0], sizes
    for terminal in terminals:
        keeper.forget(terminal.name)
        terminal.close()


@pytest.mark.long
@pytest.mark.parametrize("without", ["pidfd_open", "pidfd_open, os.waitid", "eventfd"])
async def test_exits_are_detected_when_the_system_lacks_a_call(without, monkeypatch):
    main = f"import os, runpy; del os.{without}; runpy.run_path(%r, run_name='__main__')"
    python, *flags, path = startup.keeper_command()
    command = [python, *flags, "-c", main % path]
    monkeypatch.setattr(startup, "keeper_command", lambda: command)
    async with startup.embedded_keeper() as keeper:
        background = await spawn(keeper, "trap '' HUP; sleep 60 & echo $!; exit 4; :")
        assert os.waitstatus_to_exitcode((await background.wait_exited()).status) == 4
        for code in range(10):
            ended = await run(keeper, f"seq 20000; exit {code}; :")
            assert ended.code == code
            assert ended.output.endswith("\n20000\n")
        background.close()


async def test_traced_program_is_reported_when_the_tracer_detaches(keeper):
    terminal = await spawn(keeper, "read x; exit 3; :")
    with tracing(terminal.pid):
        os.write(terminal.master, b"\n")
        await poll(lambda: not is_alive(terminal.pid))
        # The exit of a program that is started later is reported later.
        await run(keeper, "true")
        assert terminal.report is None
    report = await terminal.wait_exited()
    assert os.waitstatus_to_exitcode(report.status) == 3
    await terminal.wait_closed()
    terminal.close()


async def test_exit_tells_the_orphans_that_run_then(keeper):
    left = await run(keeper, "setsid sleep 600 >/dev/null 2>&1 & echo $!; :")
    orphan = int(left.output)
    try:
        assert left.report.orphans == [orphan]
        running = await spawn(keeper, "cat")
        assert (await run(keeper, "true; :")).report.orphans == [orphan]
        os.kill(running.pid, signal.SIGKILL)
        await running.wait_closed()
    finally:
        os.kill(orphan, signal.SIGKILL)
    await poll(lambda: not os.path.exists(f"/proc/{orphan}"))
    assert (await run(keeper, "true; :")).report.orphans == []
