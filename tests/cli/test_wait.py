"""`acpterm wait`: waits until a program ends or prints a match."""

import re
import socket
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from acpterm.cli.wait import RETAINED_CHARS, LineSearch
from tests.support.commands import run, run_process, running
from tests.support.daemon import user_socket
from tests.support.polling import poll
from tests.support.user import user_terminals_at

# If the machine stalls when the time is up, a timer ends the command, with one of these messages:
# without and with --for.
STALLED = "acpterm: timed out, while the daemon was waited for\n"
STALLED_IN_SEARCH = "acpterm: timed out, while the expression was looked for\n"


class Relay:
    """Relays connections to the user socket of the daemon at `path`, and records their bytes."""

    def __init__(self, path, directory):
        self.path = str(directory / "agent.sock")
        self._target = user_socket(path)
        self._sent = self._received = b""

    async def serve(self, task_status):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(user_socket(self.path))
            sock.listen()
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
            await trio.serve_listeners(self._relay, [listener], task_status=task_status)

    async def _relay(self, client):
        async with (
            await trio.open_unix_socket(self._target) as daemon,
            trio.open_nursery() as tasks,
        ):
            tasks.start_soon(self._send, client, daemon)
            # The command may close its connection at any time.
            with suppress(trio.BrokenResourceError):
                async for data in daemon:
                    await client.send_all(data)
                    self._received += data
            tasks.cancel_scope.cancel()

    async def _send(self, client, daemon):
        with suppress(trio.BrokenResourceError):
            async for data in client:
                await daemon.send_all(data)
                self._sent += data
            await daemon.send_eof()

    async def until_sent(self, text, count=1):
        """Wait until the daemon was sent `text`, `count` times."""
        await poll(lambda: self._sent.count(text) >= count)

    async def until_received(self, text):
        """Wait until the command was sent `text`."""
        await poll(lambda: text in self._received)


@asynccontextmanager
async def relay_to(path, tmp_path):
    """Relay connections to the user socket of the daemon at `path` during the block."""
    directory = tmp_path / "relay"
    directory.mkdir()
    async with trio.open_nursery() as nursery:
        relay = Relay(path, directory)
        await nursery.start(relay.serve)
        yield relay
        nursery.cancel_scope.cancel()


@pytest.mark.costly
@pytest.mark.parametrize(
    ("command", "status"), [("exit 3", 3), ("true", 0), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
async def test_wait_exits_with_the_status_of_the_program(agent, path, command, status):
    terminal = await agent.create(f"sleep 0.3; {command}")
    assert await run(path, "wait", terminal) == (status, "", "")
    assert await run(path, "wait", terminal) == (status, "", "")


async def test_wait_exits_with_the_first_failed_status_of_several_terminals(agent, path, tmp_path):
    one, two = await agent.create("read x; exit 0"), await agent.create("exit 4")
    three = await agent.create("exit 5")
    done = await run_process(path, "wait", one, two, three, "--timeout", "0.5")
    assert (done.status, done.out) == (124, "")
    # On a busy machine, the others may not be known to have ended.
    assert done.err in (
        STALLED,
        f"acpterm: terminal {one} has not ended within 0.5 s\n",
        *(
            f"acpterm: terminals {', '.join(left)} have not ended within 0.5 s\n"
            for left in ((one, two), (one, three), (one, two, three))
        ),
    )
    async with (
        relay_to(path, tmp_path) as relay,
        running(tmp_path, relay.path, "wait", one, two, three) as waiting,
    ):
        await relay.until_sent(b'"_acpterm/terminal/wait"', 3)
        await agent.type(one, "\n")
        assert await waiting.wait() == 4


async def test_wait_for_needs_a_match_in_each_terminal(agent, path):
    one, two = await agent.create("echo ok one"), await agent.create("echo ok two")
    done = await run(path, "wait", one, two, "--for", "ok")
    assert done == (0, "ok one\nok two\n", "")
    done = await run(path, "wait", one, two, "--for", "one")
    assert (done.status, done.out) == (1, "ok one\n")
    assert f"terminal {two} has ended and has not printed 'one'" in done.err


async def test_wait_exits_with_the_status_when_the_terminal_is_released(agent, path, tmp_path):
    terminal = await agent.create("read x; exit 5")
    async with (
        relay_to(path, tmp_path) as relay,
        running(tmp_path, relay.path, "wait", terminal) as waiting,
    ):
        await relay.until_sent(b'"_acpterm/terminal/wait"')
        await agent.type(terminal, "\n")
        await agent.wait(terminal)
        await agent.release(terminal)
        assert await waiting.wait() == 5


async def test_wait_for_prints_the_lines_of_a_match_in_earlier_output(agent, path):
    terminal = await agent.create("echo one; echo listening on port 80; sleep 1000")
    assert await run(path, "wait", terminal, "--for", r"port \d+$") == (
        0,
        "listening on port 80\n",
        "",
    )
    assert (await run(path, "wait", terminal, "--for", r"^one\nlis")).out == (
        "one\nlistening on port 80\n"
    )


async def test_wait_for_matches_an_unfinished_line_that_arrives_in_parts(agent, path, tmp_path):
    command = "stty -echo; printf 'pass'; read x; printf 'word: '; sleep 1000"
    terminal = await agent.create_until("pass", command)
    words = ["wait", terminal, "--for", "password: ?$"]
    async with (
        relay_to(path, tmp_path) as relay,
        running(tmp_path, relay.path, *words) as waiting,
    ):
        # The first part is sent before the second one is printed.
        await relay.until_received(b'"_acpterm/terminal/followed"')
        await agent.type(terminal, "\n")
        assert await waiting.wait() == 0
        assert waiting.out == "password: \n"


async def test_wait_for_fails_when_the_program_ends_without_a_match(agent, path):
    terminal = await agent.create("echo one")
    done = await run(path, "wait", terminal, "--for", "two")
    message = f"acpterm: terminal {terminal} has ended and has not printed 'two'\n"
    assert done == (1, "", message)


async def test_wait_reports_only_terminals_without_a_match_when_time_is_up(agent, path):
    never = await agent.create("echo one; sleep 1000")
    printed = await agent.create_until("ready", "echo ready; sleep 1000")
    # On a busy machine, not even the match may be found in the shorter time.
    for seconds in ("1", "10"):
        done = await run_process(
            path, "wait", never, printed, "--for", "ready", "--timeout", seconds
        )
        if done.out and done.err != STALLED_IN_SEARCH:
            break
    assert (done.status, done.out) == (124, "ready\n")
    assert f"terminal {never} has not printed 'ready' within {seconds} s" in done.err


async def test_wait_accepts_a_timeout_of_0_and_a_very_long_timeout(agent, path):
    one, two = await agent.create("sleep 1000"), await agent.create("echo x")
    done = await run_process(path, "wait", one, two, "--for", "x", "--timeout", "0")
    assert done.status == 124
    done = await run_process(path, "wait", two, "--timeout", "9000000")
    assert done.status == 0


async def test_wait_exits_with_124_when_the_time_is_up(agent, path):
    terminal = await agent.create("echo one; sleep 1000")
    for words, event in ([], "not ended"), (["--for", "two"], "not printed 'two'"):
        done = await run_process(path, "wait", terminal, *words, "--timeout", "0.2")
        assert (done.status, done.out) == (124, "")
        message = f"acpterm: terminal {terminal} has {event} within 0.2 s\n"
        assert done.err in (message, STALLED_IN_SEARCH if words else STALLED)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--for", "("], "is no regular expression"),
        (["--timeout", "nan"], "is no number"),
        (["--timeout", "-1"], "--timeout"),
    ],
)
async def test_wait_exits_with_2_at_an_invalid_command_line(path, words, expected):
    done = await run(path, "wait", "any", *words)
    assert done.status == 2
    assert expected in done.err


def line_search(pattern):
    return LineSearch(re.compile(pattern, re.MULTILINE))


def test_line_search_finds_a_match_across_parts():
    search = line_search(r"^b\nc$")
    assert search.find("a\nb\n", "") is None
    assert search.find("", "c") == "b\nc"


def test_line_search_finds_no_match_across_missing_output():
    search = line_search("b\nc")
    assert search.find("b\n", "") is None
    search.forget()
    assert search.find("c\n", "") is None


def test_line_search_retains_bounded_text_that_begins_with_a_line():
    search = line_search("^x")
    for _ in range(10):
        assert search.find("yx" * RETAINED_CHARS + "\n", "") is None
        assert search.find("y\n" * RETAINED_CHARS, "") is None
        assert len(search._retained) <= RETAINED_CHARS
    assert search.find("xy\n", "") == "xy"


@pytest.mark.parametrize(
    ("pattern", "lines"), [("^", "ab"), ("$", "ab"), ("b\n", "ab"), ("cd", "cd"), ("", "ab")]
)
def test_line_search_returns_the_lines_of_a_match(pattern, lines):
    assert line_search(pattern).find("ab\ncd\n", "") == lines


@pytest.mark.long
async def test_command_waits_until_the_program_asks_for_input(path):
    async with user_terminals_at(path) as terminals:
        script = "read go; read -s -p 'Password: ' x; exec bash --norc -i"
        window = await terminals.create(script)
        asked = await run(path, "wait", "--input", window)
        assert asked == (0, "bash waits for input\n", "")
        await terminals.type(window, "go\r")
        await terminals.until_output(window, "Password:")
        asked = await run(path, "wait", "--input", window)
        assert asked == (0, "bash waits for a password\n", "")
        await terminals.type(window, "secret\r")
        await terminals.until_output(window, "bash")
        timed_out = await run_process(path, "wait", "--input", "--timeout", "0.3", window)
        assert timed_out.status == 124
        message = f"acpterm: terminal {window} has not asked for input within 0.3 s\n"
        assert timed_out.err in (message, STALLED)
        await terminals.type(window, "exit 7\r")
        ended = await run(path, "wait", "--input", window)
        assert (ended.status, ended.out) == (1, "")
        assert "has ended and has not asked for input" in ended.err
