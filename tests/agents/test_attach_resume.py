"""An attached window when the daemon's worker is replaced."""

import base64
import math
import os
import pty
import signal
import termios
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio

from acpterm.acp.user_api import ScreenResponse, TerminalInfo
from acpterm.commands.attach.attach import attach
from acpterm.commands.attach.detach_keys import DetachFilter
from acpterm.commands.attach.tty import Tty
from acpterm.commands.client import open_user_client
from acpterm.config import Settings
from acpterm.jsonrpc import REQUEST_CANCELLED
from acpterm.link.daemon import DaemonError
from tests.cli.test_takeover import EXIT, INFO
from tests.support.depth import DEADLINE_S
from tests.support.fake_host import fake_host
from tests.support.polling import poll

DETACH = b"\x1c"


class Window:
    """A terminal in which `attach` runs."""

    def __init__(self):
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (24, 80))
        os.set_blocking(self.master, False)
        self.shown = b""
        self.over = None
        self.error = None
        self.left = trio.Event()

    def look(self):
        """Read all that was printed so far."""
        try:
            while data := os.read(self.master, 1 << 16):
                self.shown += data
        except BlockingIOError:
            pass
        return self.shown

    async def shows(self, text):
        await poll(lambda: text in self.look())

    def type(self, keys):
        os.write(self.master, keys)

    async def has_ended(self):
        with trio.fail_after(DEADLINE_S):
            await self.left.wait()


@asynccontextmanager
async def attached(tmp_path, info=INFO, **settings):
    """Attach a window; yield it, the daemon's end of its connection, and the daemon."""
    window = Window()
    info = msgspec.convert(info, TerminalInfo)
    async with fake_host(tmp_path, "user.sock") as host, trio.open_nursery() as nursery:
        path = host.path.replace("user.sock", "agent.sock")

        @nursery.start_soon
        async def run():
            try:
                async with open_user_client(
                    Settings(socket=path, **settings), start=False
                ) as front:
                    terminal = Tty(window.slave, window.slave)
                    window.over = await attach(front, terminal, info, DetachFilter("C-\\"))
            except* DaemonError as errors:
                window.error = repr(errors)
            window.left.set()

        try:
            yield window, await host.connected(), host
        finally:
            nursery.cancel_scope.cancel()
    os.close(window.master)
    os.close(window.slave)


async def is_asked(worker, size=(80, 24)):
    request = await worker.expect("_acpterm/terminal/attach")
    params = request["params"]
    assert (params["terminalId"], params["cols"], params["rows"]) == (INFO["terminalId"], *size)
    return request


async def show(worker, request, data, kind="screen", **more):
    encoded = base64.b64encode(data).decode()
    params = {"token": request["params"]["token"], "kind": kind, "data": encoded, **more}
    await worker.notify("_acpterm/terminal/attached", params)


async def answer_screen(worker, last_row=""):
    """Answer the request by which the window finds out whether its last row is blank."""
    request = await worker.expect("_acpterm/terminal/screen")
    modes = {"cursor_visible": True, "application_cursor": False, "bracketed_paste": False}
    rows = ["the picture", *[""] * 22, last_row]
    screen = ScreenResponse(rows, 80, 24, (11, 0), title=None, position=11, **modes)
    await worker.respond(request, msgspec.to_builtins(screen))


async def typed(worker):
    """Receive the request that writes input to the terminal; return it, and the input.

    Requests to repaint the window, over a notice, may come before it; they are not answered.
    """
    while True:
        request = await worker.receive()
        if request["method"] == "_acpterm/terminal/write":
            return request, base64.b64decode(request["params"]["data"])
        assert request["method"] == "_acpterm/terminal/window"


@pytest.fixture(autouse=True)
def settings_of_attach(monkeypatch):
    """Show no notice, which changes the window and asks the daemon; give a slow machine time."""
    monkeypatch.setattr("acpterm.commands.attach.attach._QUIET_S", math.inf)
    monkeypatch.setattr("acpterm.commands.attach.attach._FLUSH_TIMEOUT_S", DEADLINE_S)


@pytest.fixture
def notice(monkeypatch):
    """Show the notice at once."""
    monkeypatch.setattr("acpterm.commands.attach.attach._QUIET_S", 0)


async def test_window_keeps_its_picture_until_the_next_worker_repaints_it(tmp_path):
    async with attached(tmp_path) as (window, first, host):
        await show(first, await is_asked(first), b"the picture")
        await window.shows(b"the picture")
        await first.lose()
        second = await host.accept()
        before = window.look()
        await second.welcome()
        # The window may have been resized in the meantime.
        request = await is_asked(second)
        assert window.look() == before
        await show(second, request, b"a new picture")
        await window.shows(b"a new picture")
        await second.respond(request, {"reason": "exited", "exitStatus": EXIT})
        await window.has_ended()
    assert window.over.exit_status.exit_code == 3


@pytest.mark.usefixtures("notice")
async def test_notice_is_erased_when_the_daemon_ends_before_it_sends_the_final_screen(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("acpterm.commands.attach.attach.NOTICE_S", math.inf)
    async with attached(tmp_path) as (window, worker, _):
        request = await is_asked(worker)
        await show(worker, request, b"the picture")
        await answer_screen(worker)
        await window.shows(b"C-\\ leaves it]")
        await worker.respond(request, {"reason": "exited", "exitStatus": EXIT})
        screen = await worker.expect("_acpterm/terminal/screen")
        before = len(window.look())
        await worker.respond_error(screen, "the connection is closing", REQUEST_CANCELLED)
        await window.has_ended()
        assert b"\x1b[24H\x1b[2K" in window.look()[before:]
    assert window.error is None
    assert window.over.exit_status.exit_code == 3


ERASED = b"\x1b7\x1b[24;1H\x1b[0m\x1b[2K\x1b8"


@asynccontextmanager
async def with_notice(tmp_path, monkeypatch, *, alternate):
    """Attach a window that shows its notice; yield it, the daemon's end, and the request."""
    monkeypatch.setattr("acpterm.commands.attach.attach.NOTICE_S", math.inf)
    async with attached(tmp_path) as (window, worker, _):
        request = await is_asked(worker)
        await show(worker, request, b"the picture", alternate=alternate)
        if not alternate:
            await answer_screen(worker)
        await window.shows(b"C-\\ leaves it]")
        yield window, worker, request


@pytest.mark.usefixtures("notice")
async def test_key_removes_the_notice_before_its_time_is_over(tmp_path, monkeypatch):
    async with with_notice(tmp_path, monkeypatch, alternate=False) as (window, worker, _):
        window.type(b"a")
        await worker.expect("_acpterm/terminal/window")
        await worker.expect("_acpterm/terminal/write")


@pytest.mark.usefixtures("notice")
async def test_output_removes_the_notice_once_and_never_its_own_lines(tmp_path, monkeypatch):
    async with with_notice(tmp_path, monkeypatch, alternate=False) as (window, worker, request):
        await show(worker, request, b"a line, in two", kind="output")
        await show(worker, request, b" pieces", kind="output")
        await window.shows(ERASED + b"a line, in two pieces")
        window.type(b"a")
        await worker.expect("_acpterm/terminal/write")


@pytest.mark.usefixtures("notice")
async def test_output_on_the_alternate_screen_restores_the_line_of_the_notice(
    tmp_path, monkeypatch
):
    async with with_notice(tmp_path, monkeypatch, alternate=True) as (window, worker, request):
        await show(worker, request, b"output", kind="output")
        await worker.expect("_acpterm/terminal/window")
        await window.shows(ERASED + b"output")


@pytest.mark.usefixtures("notice")
async def test_notice_hides_no_line_that_may_scroll_off(tmp_path):
    async with attached(tmp_path) as (window, worker, _):
        request = await is_asked(worker)
        await show(worker, request, b"the picture")
        await answer_screen(worker, "a line")
        await show(worker, request, b"output", kind="output")
        await worker.respond(request, {"reason": "exited", "exitStatus": EXIT})
        await window.has_ended()
        assert b"leaves it" not in window.look()


async def test_notice_does_not_appear_for_a_command_that_ends_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("acpterm.commands.attach.attach._QUIET_S", DEADLINE_S)
    async with attached(tmp_path) as (window, worker, _):
        request = await is_asked(worker)
        await show(worker, request, b"the picture", alternate=True)
        await window.shows(b"the picture")
        await worker.respond(request, {"reason": "exited", "exitStatus": EXIT})
        await window.has_ended()
        assert b"leaves it" not in window.look()


@pytest.mark.usefixtures("notice")
async def test_notice_does_not_appear_once_the_program_has_exited(tmp_path):
    """Also if the window is slow, so that the last output is printed later."""
    info = {**INFO, "state": "queued"}
    async with attached(tmp_path, info) as (window, worker, _):
        request = await is_asked(worker)
        # More than a window takes that is not read.
        await show(worker, request, b"x" * 30_000)
        await answer_screen(worker)
        asked = await worker.expect("_acpterm/terminal/get")
        await worker.respond(request, {"reason": "exited", "exitStatus": EXIT})
        cancelled = await worker.expect("$/cancel_request")
        assert cancelled["params"]["requestId"] == asked["id"]
        await poll(lambda: window.look() and window.left.is_set())
        assert b"leaves it" not in window.look()


@pytest.mark.parametrize("alternate", [False, True])
async def test_window_continues_from_its_position(tmp_path, alternate):
    async with attached(tmp_path) as (_, first, host):
        request = await is_asked(first)
        assert request["params"]["scrollback"]
        await show(first, request, b"the picture", position=7, alternate=alternate)
        await show(first, request, b"output", kind="output", position=13)
        await first.lose()
        params = (await is_asked(await host.connected()))["params"]
        # The last output of a full-screen program does not belong on the main screen.
        assert params.get("since") == (None if alternate else 13)


async def test_window_with_frames_continues_from_the_position_of_its_main_screen(tmp_path):
    async with attached(tmp_path) as (_, first, host):
        request = await is_asked(first)
        await show(first, request, b"the picture", position=7)
        await show(first, request, b"frame", alternate=True)
        await show(first, request, b"frame", kind="output")
        await first.lose()
        params = (await is_asked(await host.connected()))["params"]
        assert (params["scrollback"], params["since"]) == (True, 7)


async def test_window_size_is_current_when_attached_again(tmp_path):
    async with attached(tmp_path) as (window, first, host):
        await is_asked(first)
        await first.lose()
        second = await host.accept()
        termios.tcsetwinsize(window.slave, (30, 100))
        os.kill(os.getpid(), signal.SIGWINCH)
        await second.welcome()
        await is_asked(second, (100, 30))


async def test_keys_ring_the_bell_and_are_dropped_without_a_worker(tmp_path):
    async with attached(tmp_path) as (window, first, host):
        await show(first, await is_asked(first), b"the picture")
        await window.shows(b"the picture")
        await first.lose()
        second = await host.accept()
        window.type(b"rm -r x\r")
        await window.shows(b"\a")
        await second.welcome()
        request = await is_asked(second)
        await show(second, request, b"a new picture")
        await window.shows(b"a new picture")
        window.type(b"ls\r")
        _, keys = await typed(second)
        assert keys == b"ls\r"


async def test_unanswered_input_rings_the_bell_when_the_worker_dies(tmp_path):
    async with attached(tmp_path) as (window, first, host):
        await show(first, await is_asked(first), b"the picture")
        await window.shows(b"the picture")
        window.type(b"rm -r x\r")
        await typed(first)
        assert b"\a" not in window.look()
        await first.lose()
        await window.shows(b"\a")
        second = await host.connected()
        await is_asked(second)


async def test_detach_key_works_without_a_worker(tmp_path):
    async with attached(tmp_path) as (window, first, host):
        await show(first, await is_asked(first), b"the picture")
        await window.shows(b"the picture")
        await first.lose()
        await host.accept()
        window.type(DETACH)
        await window.has_ended()
    assert (window.over, window.error) == (None, None)


@pytest.mark.parametrize("limit", [0.0, 0.2])
async def test_attach_times_out_and_restores_the_window_without_a_worker(tmp_path, limit):
    async with attached(tmp_path, resume_timeout=limit) as (window, first, _):
        await show(first, await is_asked(first), b"the picture")
        await window.shows(b"the picture")
        await first.lose()
        await window.has_ended()
        assert "is gone" in window.error
        assert window.look().endswith(b"\r\n\x1b[J")
        assert termios.tcgetattr(window.slave)[3] & termios.ECHO
