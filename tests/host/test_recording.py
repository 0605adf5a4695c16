"""Recordings: their content, permissions and number, and failing disks."""

import errno
import fcntl
import json
import os
import re
import stat
import threading
from contextlib import asynccontextmanager

import pytest
import structlog.testing
import trio

from acpterm.config import Settings, default_record_dir
from acpterm.keeper.ring_file import RECORD_OFFSET
from acpterm.pty.master import Master
from acpterm.pty.program import Program
from acpterm.recording import recorder
from acpterm.recording.recorder import Recorder
from acpterm.terminal.keyboard import Keyboard
from acpterm.terminal.shared_ring import InputMark
from acpterm.terminal.spec import TerminalSpec
from acpterm.terminal.status import EndedBy
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.pools import running_pool
from tests.support.ptys import open_pair

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "state" / "recordings"


class Recording:
    """A pool, and a recorder in a nursery that can be cancelled separately."""

    def __init__(self, pool, recorder, nursery):
        self.pool = pool
        self.recorder = recorder
        self.nursery = nursery

    async def create(self, line, **more):
        program = Program(["/bin/sh", "-c", line], {"PATH": "/bin:/usr/bin"}, "/", 0o22)
        terminal = await self.pool.create(program, TerminalSpec(**more))
        self.path = self.recorder.start(
            terminal, command=line, nursery=self.nursery, env={"TERM": "xterm", "SECRET": "x"}
        )
        return terminal

    async def ended(self, terminal):
        """End the terminal, and wait for its recording."""
        self.pool.release(terminal, EndedBy.AGENT)
        await terminal.wait_closed()
        await poll(lambda: not self.nursery.child_tasks)


@asynccontextmanager
async def recordings(directory, limits=None, **settings):
    settings = Settings(record=True, record_dir=str(directory), **settings)
    async with running_pool(grace=0.2) as pool, trio.open_nursery() as nursery:
        yield Recording(pool, Recorder(settings, **(limits or {})), nursery)
        nursery.cancel_scope.cancel()


def read(path):
    data = path.read_bytes()
    assert data.endswith(b"\n")
    header, *events = [json.loads(line) for line in data.split(b"\n")[:-1]]
    times = [event[0] for event in events]
    assert times == sorted(times)
    return header, events


def of(events, code):
    return "".join(data for _, found, data in events if found == code)


def only(directory):
    (path,) = directory.iterdir()
    return path


def is_in(directory, fd):
    """Return whether `fd` is open on a file in `directory`.

    Tests replace functions of `os`, which recorders use, with ones that fail for such files only.
    """
    return os.path.realpath(f"/proc/self/fd/{fd}").startswith(f"{directory}/")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


async def test_recording_has_all_output_and_the_exit(directory):
    async with recordings(directory) as running:
        line = "stty -echo; echo one; read x; echo two; exit 3"
        terminal = await running.create(line, size=(90, 20))
        path = await poll(lambda: next(iter(directory.glob("*")), None))
        await poll(lambda: b"one\\r\\n" in path.read_bytes())
        await trio.sleep(0.3)
        terminal.keyboard.type(b"\n")
        await terminal.wait_exited()
        # It is on the disk soon, whenever the terminal is released.
        await poll(lambda: b"exited" in path.read_bytes())
        await running.ended(terminal)
        assert not terminal.keyboard.listeners
    header, events = read(path)
    assert (header["width"], header["height"]) == (90, 20)
    assert header["title"].startswith("stty -echo; echo one")
    assert header["env"] == {"TERM": "xterm"}
    assert of(events, "o") == "one\r\ntwo\r\n"
    assert events[-1][1:] == ["m", "exited with 3"]
    assert events[-2][0] - events[0][0] > 0.25


async def test_output_is_on_the_disk_while_the_program_runs(directory):
    async with recordings(directory) as running:
        terminal = await running.create("echo one; read x; echo two")
        path = await poll(lambda: next(iter(directory.glob("*")), None))
        await poll(lambda: b"one\\r\\n" in path.read_bytes())
        terminal.resize(70, 10)
        terminal.keyboard.type(b"\n")
        await poll(lambda: b"two" in path.read_bytes())
    assert of(read(path)[1], "r") == "70x10"


async def test_recording_is_readable_for_this_user_only(directory):
    before = os.umask(0)
    try:
        async with recordings(directory) as running:
            terminal = await running.create("true")
            await running.ended(terminal)
    finally:
        os.umask(before)
    path = only(directory)
    assert str(path) == running.path
    assert (mode(directory.parent), mode(directory), mode(path)) == (0o700, 0o700, 0o600)
    assert re.fullmatch(rf"\d{{8}}T\d{{6}}Z-{terminal.id}\.cast", path.name)


@pytest.mark.parametrize("loose", [0o770, 0o707])
async def test_directory_that_others_can_write_to_is_refused_with_a_log_line(directory, loose):
    directory.mkdir(parents=True)
    directory.chmod(loose)
    with structlog.testing.capture_logs() as logs:
        async with recordings(directory) as running:
            terminal = await running.create("echo one")
            assert (await terminal.wait_exited()).code == 0
            await running.ended(terminal)
    assert list(directory.iterdir()) == []
    (entry,) = [entry for entry in logs if "recording" in entry["event"]]
    assert f"run chmod 700 {directory}" in entry["error"]


async def test_symbolic_link_in_place_of_the_file_is_not_followed(directory, tmp_path, monkeypatch):
    directory.mkdir(mode=0o700, parents=True)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    monkeypatch.setattr(recorder.time, "strftime", lambda *_: "20260101T000000Z")
    with structlog.testing.capture_logs() as logs:
        async with recordings(directory) as running:
            program = Program(["/bin/echo", "one"], {}, "/", 0o22)
            terminal = await running.pool.create(program)
            (directory / f"20260101T000000Z-{terminal.id}.cast").symlink_to(victim)
            running.recorder.start(terminal, command="", nursery=running.nursery)
            await running.ended(terminal)
    assert victim.read_text() == "mine"
    assert [entry["event"] for entry in logs] == ["a recording was given up"]


async def test_oldest_recordings_are_removed_and_no_other_files(directory):
    directory.mkdir(mode=0o700, parents=True)
    old = [directory / f"2020010{day}T000000Z-term_{day}.cast" for day in range(1, 6)]
    others = [directory / "mine.cast", directory / "notes"]
    for path in (*old, *others):
        path.write_text("x")
    with old[1].open() as written:
        fcntl.flock(written, fcntl.LOCK_EX)
        async with recordings(directory, record_files=3) as running:
            await running.ended(await running.create("true"))
    left = set(directory.iterdir())
    # The one that is being written stays, in place of a later one.
    assert {old[1], old[4], *others} < left
    assert len(left) == 5


async def test_recordings_in_progress_are_not_removed(directory):
    async with recordings(directory, record_files=1) as running:
        terminals = [await running.create("echo one; read x") for _ in range(3)]
        await poll(lambda: len(list(directory.glob("*.cast"))) == 3)
        for terminal in terminals:
            running.pool.release(terminal, EndedBy.AGENT)
        await poll(lambda: not running.nursery.child_tasks)
        await running.ended(await running.create("true"))
    assert len(list(directory.iterdir())) == 1


async def test_recording_is_complete_once_output_has_ended_before_the_release(directory):
    async with recordings(directory, record_files=2) as running:
        held = [await running.create(f"echo {number}") for number in range(4)]
        for terminal in held:
            await terminal.wait_exited()
        await poll(lambda: not running.nursery.child_tasks)
        for terminal in held:
            assert not terminal.is_closed
        await running.create("echo last")
        await poll(lambda: len(list(directory.glob("*"))) == 2)


async def test_full_recording_ends_with_a_marker_and_the_terminal_runs_on(directory):
    async with recordings(directory, record_bytes=64 * 1024) as running:
        terminal = await running.create("seq 100000; read x; echo on")
        await poll(lambda: not running.nursery.child_tasks)
        terminal.keyboard.type(b"\n")
        assert (await terminal.wait_exited()).code == 0
        assert terminal.text.text().endswith("on\n")
    path = only(directory)
    assert 32 * 1024 < path.stat().st_size <= 64 * 1024
    _, events = read(path)
    assert events[-1][1:] == ["m", "the recording ends here: it is full"]


async def test_marker_reports_output_that_the_ring_dropped(directory, monkeypatch):
    go = threading.Event()
    write = os.write

    def slow(fd, data):
        # The first line; what comes after it is only read when that has been written.
        assert not is_in(directory, fd) or go.wait(DEADLINE_S)
        return write(fd, data)

    monkeypatch.setattr(os, "write", slow)
    async with recordings(directory) as running:
        terminal = await running.create("seq 10000", ring_size=1000)
        # A disk that hangs delays nothing else.
        with trio.fail_after(DEADLINE_S):
            await terminal.wait_exited()
        monkeypatch.setattr(os, "write", write)
        go.set()
        await running.ended(terminal)
    _, events = read(only(directory))
    marker, *rest = events
    assert marker[1] == "m"
    lost = int(re.fullmatch(r"(\d+) bytes are missing here", marker[2])[1])
    assert lost + len(of(rest, "o")) == terminal.ring.end
    assert of(rest, "o").endswith("9999\r\n10000\r\n")


async def test_full_disk_ends_one_recording_with_one_log_line_and_whole_lines(
    directory, monkeypatch
):
    write, written = os.write, []

    def full(fd, data):
        if not is_in(directory, fd):
            return write(fd, data)
        if not written:
            written.append(1)
            return write(fd, data)
        if len(written) == 1:
            written.append(2)
            return write(fd, data[: len(data) // 2 + 3])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with structlog.testing.capture_logs() as logs:
        async with recordings(directory) as running:
            terminal = await running.create("echo one; read x; echo two")
            await poll(lambda: not running.nursery.child_tasks)
            terminal.keyboard.type(b"\n")
            assert (await terminal.wait_exited()).code == 0
            await running.ended(terminal)
    assert [entry["event"] for entry in logs] == ["a recording was given up"]
    assert "No space left on device" in logs[0]["error"]
    header, events = read(only(directory))
    assert header["version"] == 2
    assert events == []


async def test_directory_that_cannot_be_created_affects_nothing_else(tmp_path):
    (tmp_path / "file").write_text("x")
    with structlog.testing.capture_logs() as logs:
        async with recordings(tmp_path / "file" / "recordings") as running:
            terminal = await running.create("echo one")
            assert (await terminal.wait_exited()).code == 0
            await poll(lambda: not running.nursery.child_tasks)
    assert [entry["event"] for entry in logs] == ["a recording was given up"]


async def test_cancelled_recording_writes_pending_output(directory):
    async with recordings(directory) as running:
        terminal = await running.create("echo one; read x")
        await poll(lambda: terminal.ring.end or None)
        path = await poll(lambda: next(iter(directory.glob("*")), None))
        await poll(lambda: b"one\\r\\n" in path.read_bytes())
        await poll(lambda: terminal._changed.statistics().tasks_waiting)
        # Not yet on the disk: the period has just begun.
        terminal.keyboard.type(b"typed")
        await poll(lambda: b"typed" in terminal.ring.read(0).data)
        running.nursery.cancel_scope.cancel()
    assert of(read(path)[1], "o") == "one\r\ntyped"


async def test_cancelled_recording_ends_in_time_while_the_disk_hangs(directory, monkeypatch):
    go, write = threading.Event(), os.write

    def slow(fd, data):
        assert not is_in(directory, fd) or go.wait(DEADLINE_S)
        return write(fd, data)

    with structlog.testing.capture_logs() as logs:
        async with recordings(directory, {"close_timeout_s": 0.2}) as running:
            terminal = await running.create("echo one; read x")
            path = await poll(lambda: next(iter(directory.glob("*")), None))
            await poll(lambda: b"one\\r\\n" in path.read_bytes())
            monkeypatch.setattr(os, "write", slow)
            terminal.keyboard.type(b"two\n")
            await terminal.wait_exited()
            running.nursery.cancel_scope.cancel()
            before = trio.current_time()
    assert trio.current_time() - before < DEADLINE_S / 2
    assert [entry["error"] for entry in logs] == ["the disk is too slow"]
    # The thread that has begun ends what it does, and the file with it.
    go.set()
    await poll(lambda: closed(path))
    assert of(read(path)[1], "o").startswith("one\r\ntwo\r\n")


def closed(path):
    """Return whether no writer holds the lock."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


# It takes its time before it turns the echo off: what is typed a moment before that is not
# recorded.
QUESTION = """
printf 'name: '; read name; sleep 0.5; stty -echo; printf 'password: '; read word; stty echo
printf 'again: '; read again; echo "$name $again"
"""


async def answer(terminal):
    for prompt, typed in (("name: ", b"joe\n"), ("word: ", b"secret\n"), ("again: ", b"yes\n")):
        await poll(lambda prompt=prompt: terminal.text.text().endswith(prompt))
        terminal.keyboard.type(typed)
    await terminal.wait_exited()


async def test_input_is_recorded_at_its_position_without_passwords(directory):
    async with recordings(directory, record_input=True) as running:
        terminal = await running.create(QUESTION)
        assert terminal.keyboard.listeners
        await answer(terminal)
        await running.ended(terminal)
        assert not terminal.keyboard.listeners
    path = only(directory)
    assert b"secret" not in path.read_bytes()
    _, events = read(path)
    assert of(events, "i") == "joe\nyes\n"
    order = "".join(data for _, code, data in events if code in "io")
    assert order.startswith("name: joe\njoe\r\npassword: ")


@pytest.mark.parametrize("echoes", [[True, True], [True, False], [False, True], [False, False]])
async def test_input_counts_as_echoed_only_if_the_echo_was_on_before_and_after(monkeypatch, echoes):
    ours, slave = open_pair(80, 24)
    master, received = Master(ours), []
    mark = InputMark(memoryview(bytearray(RECORD_OFFSET)).cast("Q"))
    keyboard = Keyboard(master, mark, lambda _: None)
    answers = iter(echoes)
    monkeypatch.setattr(Master, "echoes", property(lambda _: next(answers, True)))
    keyboard.listeners.append(lambda piece, shown: received.append((piece, shown)))
    keyboard.type(b"word")
    assert received == [(b"word", all(echoes))]
    master.close()
    os.close(slave)


async def test_input_is_not_recorded_by_default(directory):
    async with recordings(directory) as running:
        terminal = await running.create(QUESTION)
        assert not terminal.keyboard.listeners
        await answer(terminal)
        await running.ended(terminal)
    assert of(read(only(directory))[1], "i") == ""


async def test_pending_input_is_bounded(directory):
    async with recordings(directory, {"input_bytes_max": 5000}, record_input=True) as running:
        terminal = await running.create("cat > /dev/null")
        path = await poll(lambda: next(iter(directory.glob("*")), None))
        for _ in range(100):
            terminal.keyboard.type(b"x\n")
        await poll(lambda: b"x" in path.read_bytes())
        await running.ended(terminal)
    _, events = read(path)
    assert 0 < len(of(events, "i")) < 20
    assert "input is missing here" in of(events, "m")


def test_recording_is_off_by_default_and_its_directory_is_in_the_users_state(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert (Settings().record, Settings().record_input, Settings().record_dir) == (
        False,
        False,
        None,
    )
    assert default_record_dir() == str(tmp_path / "acpterm" / "recordings")
