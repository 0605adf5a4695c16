"""`acpterm logs`: prints and follows the text that agents read, and reports missing output."""

import base64
import itertools
import socket
import subprocess
import time
from datetime import UTC, datetime

import pytest
import trio

from acpterm.cli._params import parse_time
from acpterm.commands.output.show import ColouredStream, Lines, last_lines
from acpterm.commands.output.text_follow import TextStream, continue_text
from acpterm.terminal.text.stream import TextView
from tests.support.cases import each_case
from tests.support.commands import command_environment, run, running
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.starting import ACPTERM
from tests.support.user import user_at, user_terminals_at


@pytest.mark.long
async def test_logs_prints_the_text_that_agents_read(agent, path):
    command = r"printf '\033[31mred\033[m\n1%%\r2%%\rdone\nö\n'; printf half"
    terminal = await agent.create_ended(command)
    text = (await agent.output(terminal))["output"]
    assert text == "red\ndone\nö\nhalf"
    assert await run(path, "logs", terminal) == (0, f"{text}\n", "")
    assert await run(path, "logs", "@last", "--tail", "2") == (0, "ö\nhalf\n", "")
    assert await run(path, "logs", "@last", "--tail", "0") == (0, "", "")


async def test_logs_fails_when_the_terminal_does_not_exist(path):
    done = await run(path, "logs", "nothing")
    assert (done.status, done.out) == (1, "")
    assert "there is no terminal 'nothing'" in done.err


async def test_logs_follow_prints_each_line_once_until_the_program_exits(agent, path, tmp_path):
    terminal = await agent.create_until(
        "tw", "echo one; printf tw; read x; echo o; read x; echo three"
    )
    async with running(tmp_path, path, "logs", "-f", terminal) as logs:
        await poll(lambda: logs.out == "one\n")
        await agent.type(terminal, "\n")
        await poll(lambda: logs.out.startswith("one\ntw\no\n"))
        assert logs.process.poll() is None
        await agent.type(terminal, "\n")
        assert await logs.wait() == 0
        assert (logs.out, logs.err) == ((await agent.output(terminal))["output"], "")


async def test_logs_follow_prints_an_overwritten_line_once_when_it_starts_within_it(
    agent, path, tmp_path
):
    command = r"stty -echo; echo a; printf 'x|\b'; read x; printf '/\b'; read x; printf '\n'"
    terminal = await agent.create_until("x|", command)
    async with running(tmp_path, path, "logs", "-f", terminal) as logs:
        await poll(lambda: logs.out == "a\n")
        await agent.type(terminal, "\n")
        await agent.until_output(terminal, "x/")
        await agent.type(terminal, "\n")
        assert await logs.wait() == 0
        assert logs.out == "a\nx/\n"


@pytest.mark.long
async def test_logs_follow_prints_all_output_when_the_terminal_is_released_at_its_exit(
    agent, path, tmp_path
):
    for number in range(5):
        terminal = await agent.create_until("begun", "echo begun; read x; seq 1000")
        async with running(tmp_path, path, "logs", "-f", terminal) as logs:
            await poll(lambda logs=logs: "begun\n" in logs.out)
            await agent.type(terminal, "\n")
            await agent.wait(terminal)
            await agent.release(terminal)
            assert await logs.wait() == 0, number
            assert logs.lines[-1000:] == [f"{n}\n" for n in range(1, 1001)]


@pytest.mark.long
async def test_logs_follow_reports_missing_bytes_when_a_flood_overruns_it(agent, path):
    terminal = await agent.create("stty -echo; echo 0; read x; seq 3000000; echo the end")
    process = subprocess.Popen(
        [*ACPTERM, "logs", "-f", terminal],
        env=command_environment(path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    first = await trio.to_thread.run_sync(process.stdout.readline)
    await agent.type(terminal, "\n")
    # The pipe is not read until the program has ended.
    await agent.wait(terminal)
    out, err = await trio.to_thread.run_sync(process.communicate)
    lines = (first + out).decode().splitlines()
    assert (lines[0], lines[-1]) == ("0", "the end")
    numbers = [int(line) for line in lines[:-1]]
    gaps = [b for a, b in itertools.pairwise(numbers) if b != a + 1]
    reports = err.decode().splitlines()
    assert all(line.endswith(" bytes are missing here]") for line in reports)
    # Each report leaves at most half a line, which is no number of the sequence either.
    assert 1 <= len(reports) <= len(gaps) <= 2 * len(reports)
    lost = sum(int(line[1:].split()[0]) for line in reports)
    whole = sum(len(str(n)) + 2 for n in range(3_000_001))
    printed = sum(len(str(n)) + 2 for n in numbers)
    assert lost + printed == pytest.approx(whole, abs=20 * len(reports))


@pytest.mark.long
async def test_logs_prints_text_whose_raw_output_was_overwritten(agent, path):
    bar = """awk 'BEGIN { for (i = 0; i < 200000; i++) printf "\\r%09d", i; print "" }'"""
    terminal = await agent.create_ended(f"echo first; {bar}; echo last")
    done = await run(path, "logs", terminal)
    assert done == (0, "first\n000199999\nlast\n", "")
    done = await run(path, "logs", terminal, "--since", "@0")
    assert "first" not in done.out
    assert done.err.endswith(" bytes are missing here]\n")


async def test_logs_prints_all_output_when_the_agent_has_set_a_small_limit(agent, path):
    terminal = await agent.create_ended("seq 100", outputByteLimit=10)
    everything = "".join(f"{n}\n" for n in range(1, 101))
    assert await run(path, "logs", terminal) == (0, everything, "")


@pytest.mark.long
async def test_logs_prints_text_since_a_position_and_raw_output(agent, path):
    terminal = await agent.create_ended(r"printf 'one\n\033[31mtwo\r\n'")
    assert await run(path, "logs", terminal, "--since", "@5") == (0, "two\n", "")
    assert (await run(path, "logs", terminal, "--raw")).out == "one\r\n\x1b[31mtwo\r\r\n"
    assert (await run(path, "logs", "--raw", "-n1", terminal)).out == "\x1b[31mtwo\r\r\n"
    done = await run(path, "logs", terminal, "--since", "@1000")
    assert done.status == 1
    assert "since 1000 is after the end of the output, 16" in done.err


COLOURED = (
    "\x1b[1;31mred\x1b[0m plain \x1b[38;5;82m256\x1b[m \x1b[38:2::1:2:3mtrue\x1b[39m\n"
    "\x1b[44mtwo\nlines\x1b[49m\n" + "\x1b[32mlong é漢 " * 100 + "\x1b[m\n"
)


async def test_logs_keeps_only_the_colours_with_colour(agent, path, tmp_path):
    (tmp_path / "coloured").write_text(COLOURED)
    title = r"printf '\033]0;title\a\033[?25l'"
    terminal = await agent.create_ended(f"cat coloured; {title}; cat coloured", cwd=str(tmp_path))
    for option in "--colour", "--color":
        done = await run(path, "logs", option, terminal)
        assert done == (0, f"{COLOURED}{COLOURED}\x1b[m", "")
    done = await run(path, "logs", "--colour", "-n2", terminal)
    start = "\x1b[38:2::1:2:3m\x1b[39m\x1b[44m"
    assert done.out == start + "".join(COLOURED.splitlines(keepends=True)[2:]) + "\x1b[m"
    assert (await run(path, "logs", "--colour", "--raw", terminal)).status == 2


@each_case(
    ("output", "text"),
    [
        ("\x1b[31m10%\r\x1b[32m20%\n", "\x1b[m\x1b[31m\x1b[32m20%\n"),
        ("\x1b[31mabc\x1b[m\rX\n", "X\x1b[m\x1b[31mbc\x1b[m\n"),
        ("\x1b[31mab\b\x1b[Kc\n", "\x1b[m\x1b[31mac\n"),
        ("ab\x1b[2K\rc\x1b[3A\x1b]0;t\x1b\\\n", "c\n"),
    ],
)
def test_coloured_stream_overwrites_with_colours_at_every_split(output, text):
    data = output.encode()
    for split in range(len(data)):
        stream = ColouredStream()
        assert stream.feed(data[:split]) + stream.feed(data[split:]) == text
        assert stream.line == ""


@pytest.mark.parametrize("redraw", ["\r\033[32m%d\033[m of many", "\b\b\b\b%d", "\033[2K\r%d"])
def test_coloured_line_that_is_redrawn_for_ever_takes_little_memory(redraw):
    short, whole = ColouredStream(), ColouredStream()
    for number in range(1000, 1400):
        short.feed((redraw % number).encode())
    whole.feed("".join(redraw % number for number in range(1000, 1400)).encode())
    assert short.line == whole.line
    assert "1399" in short.line
    assert len(short._pending) < 2000


@pytest.mark.long
async def test_logs_follow_exits_with_0_when_its_pipe_has_no_reader(agent, path):
    terminal = await agent.create_until("5", "seq 5; sleep 1000")
    line = f'"{ACPTERM[0]}" -m acpterm logs -f {terminal} | head -n 1'
    with trio.fail_after(DEADLINE_S):
        done = await trio.run_process(
            ["bash", "-c", f"set -o pipefail; {line}"],
            env=command_environment(path),
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
        )
    assert (done.stdout, done.stderr) == (b"1\n", b"")


async def test_logs_follow_exits_with_0_when_the_peer_of_its_socket_closes(agent, path, tmp_path):
    terminal = await agent.create("echo begun; sleep 1000")
    reader, writer = socket.socketpair()
    async with running(tmp_path, path, "logs", "-f", terminal, stdout=writer) as logs:
        writer.close()
        with reader:
            assert await trio.to_thread.run_sync(reader.recv, 100) == b"begun\n"
            assert logs.process.poll() is None
        assert await logs.wait() == 0


async def test_logs_follow_exits_with_130_at_ctrl_c(agent, path, tmp_path):
    terminal = await agent.create("echo begun; sleep 1000")
    async with running(tmp_path, path, "logs", "-f", terminal) as logs:
        await poll(lambda: logs.out == "begun\n")
        logs.interrupt()
        assert await logs.wait() == 130


async def test_logs_prints_a_released_terminal_that_a_tool_call_shows(agent, path):
    terminal = await agent.create_ended("echo kept")
    call = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t"}
    content = [{"type": "terminal", "terminalId": terminal}]
    params = {"sessionId": agent.session, "update": {**call, "content": content}}
    await agent.notify("session/update", params)
    await agent.release(terminal)
    assert await run(path, "logs", terminal) == (0, "kept\n", "")


@pytest.mark.long
async def test_logs_follow_updates_an_unfinished_line_in_a_window(agent, path):
    async with user_terminals_at(path) as window:
        terminal = await agent.create(
            r"stty -echo; printf 'wait'; read x; printf ' on\r1%%'; read x; printf '\r99%%\n'"
        )
        await agent.until_output(terminal, "wait")
        env = [{"name": n, "value": v} for n, v in command_environment(path).items()]
        words = [*ACPTERM[1:], "logs", "-f", terminal]
        recorded = await window.create(ACPTERM[0], args=words, env=env)
        await window.until_output(recorded, "wait")
        await agent.type(terminal, "\n")
        await window.until_output(recorded, "1%")
        await agent.type(terminal, "\n")
        await window.wait(recorded)
        shown = (await window.output(recorded))["output"]
        assert shown.rstrip() == "99%t on"
        await window.release(recorded)


PRINT_HIDDEN = r"printf 'safe \342\200\256gnp.exe\342\200\213 \363\240\201\250end\n'"
HIDDEN_TEXT = "safe \u202egnp.exe\u200b \U000e0068end"
ESCAPED_TEXT = r"safe \u202egnp.exe\u200b \U000e0068end"


@pytest.mark.parametrize(
    "words",
    [
        ["logs"],
        ["logs", "-f"],
        ["export", "--format", "text"],
        ["wait", "--for", "safe.*end"],
        ["screen"],
    ],
)
@pytest.mark.long
async def test_hidden_text_is_escaped_in_a_window_and_unchanged_elsewhere(agent, path, words):
    async with user_terminals_at(path) as window:
        terminal = await agent.create_ended(PRINT_HIDDEN)
        assert (await run(path, *words, terminal)).out == f"{HIDDEN_TEXT}\n"
        env = [{"name": n, "value": v} for n, v in command_environment(path).items()]
        recorded = await window.create(ACPTERM[0], args=[*ACPTERM[1:], *words, terminal], env=env)
        assert (await window.wait(recorded))["exitCode"] == 0
        assert (await window.output(recorded))["output"] == f"{ESCAPED_TEXT}\n"


# Text that is parsed in parts


PROGRAM = (
    "one\r\n\x1b[31mré\x1b[0m\x1b]0;title\x07d\r\n10%\r20%\x1b[K\rdone\r\n|\b/\b-\b\n"
    "漢\x1b[1Gx\n\x1b[2Kabc\x1b[Kdef\b\b\x1b[K!\nlast 🎉"
).encode()


@each_case("split", range(0, len(PROGRAM) + 1, 1))
def test_continued_text_equals_the_whole_text_at_every_split(split):
    view = TextView(10_000)
    view.feed(PROGRAM[:split])
    finished, stream = continue_text(view.text(), PROGRAM[:split])
    finished += stream.feed(PROGRAM[split:])
    whole = TextView(10_000)
    whole.feed(PROGRAM)
    assert finished + stream.line == whole.text()


def test_continued_text_keeps_a_line_whose_first_bytes_are_missing():
    view = TextView(10_000)
    beginning = b"first\n" + b"x" * 100 + b"\x1b[3"
    view.feed(beginning)
    finished, stream = continue_text(view.text(), beginning[-20:])
    finished += stream.feed(b"1my\nz")
    assert (finished, stream.line) == ("first\n" + "x" * 100 + "y\n", "z")


def test_text_stream_returns_the_same_text_when_fed_byte_by_byte():
    stream = TextStream()
    finished = "".join(stream.feed(bytes([byte])) for byte in PROGRAM)
    whole = TextStream()
    assert (whole.feed(PROGRAM), whole.line) == (finished, stream.line)


@each_case(
    ("text", "number", "expected"),
    [
        ("", 1, ""),
        ("a", 1, "a"),
        ("a\n", 1, "a\n"),
        ("a\nb\n", 1, "b\n"),
        ("a\nb", 1, "b"),
        ("a\nb\n\n", 2, "b\n\n"),
        ("a\nb", 5, "a\nb"),
        ("a\nb", 0, ""),
    ],
)
def test_last_lines_returns_the_requested_number_of_lines(text, number, expected):
    assert last_lines(text, number) == expected


def test_lines_overwrites_an_unfinished_line_in_a_window_while_it_fits():
    lines = Lines(lambda: 10)
    assert lines.show("", "abc") == "abc"
    assert lines.show("", "abcd") == "d"
    assert lines.show("", "xy") == "\r    \rxy"
    assert lines.show("xyz\n", "") == "z\n"
    assert lines.show("", "a" * 12) == "a" * 12
    assert lines.show("", "b" * 12) == ""
    assert lines.show("c" * 12 + "\nnext\n", "p") == "\n" + "c" * 12 + "\nnext\np"
    assert lines.finish("p") == "\n"
    assert lines.finish("") == ""


def test_lines_prints_only_finished_lines_without_a_window():
    lines = Lines(None)
    assert lines.show("", "10%") == ""
    assert lines.show("", "20%") == ""
    assert lines.show("done\n", "ne") == "done\n"
    assert lines.finish("next") == "next\n"


# Times


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("90s", -90),
        ("1h30m", -5400),
        ("2d", -172800),
        ("10:00", -1800),
        ("10:29:59", -1),
        # A time later than now is of yesterday.
        ("10:31", 60 - 86400),
        ("2026-05-04T10:30", 0),
        ("2026-05-04 10:31", 60),
        ("2026-05-04T10:30:00+00:00", 0),
        ("2026-05-04", -37800),
    ],
)
def test_parse_time_accepts_durations_times_and_dates(text, at, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        now = datetime(2026, 5, 4, 10, 30, tzinfo=UTC).timestamp()
        assert parse_time(text, now) == now + at
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "x", "5", "5x", "25:00", "10:99", "@", "@x", "2026-13-01"])
async def test_since_refuses_text_that_is_no_time(tmp_path, text):
    done = await run(str(tmp_path / "agent.sock"), "logs", "x", "--since", text)
    assert (done.status, done.out) == (2, "")
    assert f"'{text}' is no time and no position" in done.err
    assert ("the position is @5" in done.err) == (text == "5")


@pytest.mark.long
async def test_logs_since_a_time_prints_only_later_output(agent, path):
    terminal = await agent.create_until("one", "echo one; read x; printf 'two\\nth'; read x")
    between = time.time() + 0.05
    # The timeline has a sample every few hundredths of a second.
    await poll(lambda: time.time() > between + 0.05)
    await agent.type(terminal, "\n")
    await agent.until_output(terminal, "th")
    at = datetime.fromtimestamp(between, UTC).isoformat()
    assert (await run(path, "logs", terminal, "--since", at)).out.endswith("two\nth\n")
    assert "one" not in (await run(path, "logs", terminal, "--since", at)).out
    raw = (await run(path, "logs", terminal, "--raw", "--since", at)).out
    assert raw.endswith("two\r\nth")
    assert "one" not in raw
    assert "one\n" in (await run(path, "logs", terminal, "--since", "5m")).out


async def test_logs_prints_a_timestamp_before_each_line(agent, path, tmp_path):
    before = time.time()
    terminal = await agent.create_until(
        "one", "stty -echo; echo one; read x; printf 'two\\nth'; read x"
    )
    async with running(tmp_path, path, "logs", "-f", "--timestamps", terminal) as logs:
        await poll(lambda: logs.out.endswith(" one\n"))
        between = time.time()
        await poll(lambda: time.time() > between + 0.05)
        await agent.type(terminal, "\n")
        await poll(lambda: logs.out.endswith(" two\n"))
        await agent.type(terminal, "\n")
        await logs.wait()
        stamps, words = zip(*(line.split(" ", 1) for line in logs.lines), strict=True)
    assert words == ("one\n", "two\n", "th\n")
    first, second, third = (datetime.fromisoformat(stamp).timestamp() for stamp in stamps)
    assert before - 0.1 < first < between < second <= third < time.time()
    last = await run(path, "logs", "--timestamps", "-n1", terminal)
    assert last.out == logs.lines[-1]
    done = await run(path, "logs", "--timestamps", "--raw", terminal)
    assert (done.status, done.out) == (2, "")


async def test_logs_prints_no_timestamp_within_a_line_that_has_a_line_separator(agent, path):
    terminal = await agent.create_ended(r"printf 'a\342\200\250b\nc\342\200\250d'")
    done = await run(path, "logs", "--timestamps", terminal)
    words = [line.partition(" ")[2] for line in done.out.removesuffix("\n").split("\n")]
    assert words == ["a\u2028b", "c\u2028d"]


async def start_detached(path, command):
    done = await run(path, "run", "-d", "--", "sh", "-c", f"stty -echo; {command}")
    return done.out.strip()


async def press_enter(path, terminal):
    assert (await run(path, "send", terminal, "--key", "Enter")).status == 0


@pytest.mark.long
async def test_timestamps_continue_when_the_worker_is_replaced(path, tmp_path):
    terminal = await start_detached(path, "echo one; read x; echo two; read x; echo three; read x")
    async with running(tmp_path, path, "logs", "-f", "--timestamps", terminal) as logs:
        await poll(lambda: logs.out.endswith(" one\n"))
        for word in "two", "three":
            assert (await run(path, "restart")).status == 0
            await press_enter(path, terminal)
            await poll(lambda word=word: logs.out.endswith(f" {word}\n"))
    assert "bytes are" not in logs.err


@pytest.mark.long
async def test_follow_with_times_succeeds_before_a_new_worker_has_parsed_the_output(path):
    # This output takes long to parse again: the colour changes at each character.
    paint = r"""awk 'BEGIN { for (i = 0; i < 150000; i++) printf "\033[3%dm%d", i % 8, i % 10 }'"""
    terminal = await start_detached(path, f"{paint}; echo; echo over; read x")
    assert (await run(path, "wait", terminal, "--for", "over")).status == 0
    user_socket = path.replace("agent.sock", "user.sock")
    async with user_at(user_socket) as before:
        end = (await before.terminal_request("get", terminal))["position"]
    assert (await run(path, "restart")).status == 0
    async with user_at(user_socket) as after:
        params = {"token": "t", "since": end - 10, "times": True, "stay": False}
        assert (await after.terminal_request("follow", terminal, **params))["position"] == end
        (notification,) = [one["params"] for one in after.by_token["t"]]
        assert base64.b64decode(notification["data"]).endswith(b"over\r\n")
        assert "at" not in notification


@pytest.mark.long
async def test_output_from_before_a_new_worker_has_no_time(path, tmp_path):
    terminal = await start_detached(path, "echo old; read x; echo new; read x")
    assert (await run(path, "wait", terminal, "--for", "old")).status == 0
    assert (await run(path, "restart")).status == 0
    done = await run(path, "logs", "--timestamps", "-n5", terminal)
    assert (done.status, done.out) == (0, "")
    assert done.err.startswith("[5 bytes are left out: they came before the daemon's worker was")
    assert await run(path, "logs", "--since", "5m", terminal) == (0, "", "")
    async with running(tmp_path, path, "logs", "-f", "--timestamps", terminal) as logs:
        await press_enter(path, terminal)
        await poll(lambda: logs.out.endswith(" new\n"))
    assert "old" not in logs.out
    assert logs.err.startswith("[5 bytes are left out")
    assert (await run(path, "logs", "--since", "5m", terminal)).out == "new\n"
    assert (await run(path, "logs", terminal)).out == "old\nnew\n"
