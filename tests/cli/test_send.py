"""`acpterm send`: types text and keys, in order and completely."""

import base64
import hashlib
import sys
from unittest.mock import Mock

import pytest
import trio

from acpterm.cli import send as send_keys
from acpterm.keys import KNOWN, depends_on_cursor_mode, key_bytes
from tests.support.agent import agent_at
from tests.support.cases import each_case
from tests.support.commands import command_environment, run, run_with, running
from tests.support.daemon import user_socket
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.starting import ACPTERM
from tests.support.user import user_at

RAW = "stty raw -echo; echo ready; head -c {} | od -An -tx1 -v | tr -d ' \\n'"


async def received_bytes(path, count, *words, before=""):
    """Run `acpterm send` with `words`; return the bytes that a program receives from it.

    The program reads `count` bytes. `before` is shell text to run first.
    """
    async with agent_at(path) as agent:
        terminal = await agent.create_until("ready", before + RAW.format(count))
        done = await run(path, "send", terminal, *words)
        assert done == (0, "", "")
        with trio.fail_after(DEADLINE_S):
            await agent.wait(terminal)
        output = (await agent.output(terminal))["output"]
        return bytes.fromhex(output.split("ready")[1].strip())


async def test_send_joins_words_with_a_space_and_adds_no_newline(path):
    assert await received_bytes(path, 11, "npm", "test é") == "npm test é".encode()


async def test_send_last_refuses_a_terminal_of_an_agent(agent, path):
    async with user_at(user_socket(path)) as user:
        await agent.create("sleep 60")
        done = await run(path, "send", "@last", "secret")
        assert done.status == 1
        assert "name an agent's by its id or its name" in done.err
        created = await user.request("terminal/create", {"command": "read x; echo got $x"})
        await agent.create("sleep 60")
        assert await run(path, "send", "@last", "-e", "secret") == (0, "", "")
        await user.terminal_request("wait", created["terminalId"])
        assert "got secret" in (await user.terminal_request("read", created["terminalId"]))["data"]


@pytest.mark.long
async def test_send_types_enter_last(path):
    assert await received_bytes(path, 3, "-e", "ls") == b"ls\r"
    assert await received_bytes(path, 3, "ls", "--enter") == b"ls\r"


async def test_keys_and_text_are_typed_in_the_order_of_the_arguments(path):
    words = ["a", "-k", "C-c", "b", "c", "--key=Up", "-kEnter", "d", "-ek", "M-x"]
    sent = b"a\x03b c\x1b[A\rd\x1bx\r"
    assert await received_bytes(path, len(sent), *words) == sent


async def test_arguments_after_two_dashes_are_typed_as_text(path):
    sent = b"-e --key C-c"
    assert await received_bytes(path, len(sent), "--", "-e", "--key", "C-c") == sent


@pytest.mark.costly
@pytest.mark.parametrize("key", ["Enter", "C-c", "F5", "Up"])
async def test_send_refuses_a_key_name_as_text_and_shows_both_alternatives(agent, path, key):
    terminal = await agent.create("echo ready; read x; echo got $x")
    status, out, err = await run(path, "send", terminal, "y", key)
    assert (status, out) == (2, "")
    message = " ".join(err.split())
    assert f"To press the key: acpterm send {terminal} y --key {key}" in message
    assert f"to type the text: acpterm send {terminal} -- y {key}" in message
    assert "y" not in (await agent.output(terminal))["output"].replace("ready", "")


@pytest.mark.long
async def test_key_names_inside_a_text_are_typed_as_text(path):
    sent = b"Delete the end"
    assert await received_bytes(path, len(sent), "Delete", "the", "end") == sent
    assert await received_bytes(path, 6, "a Home") == b"a Home"


async def test_cursor_keys_follow_the_cursor_mode_of_the_program(path):
    words = ["--key", "Up", "--key", "Home", "--key", "C-Left"]
    sent = b"\x1bOA\x1bOH\x1b[1;5D"
    assert await received_bytes(path, len(sent), *words, before="printf '\\033[?1h'; ") == sent


@pytest.mark.long
async def test_paste_is_bracketed_only_when_the_program_enabled_it(path):
    sent = b"\x1b[200~a\rb\x1b[201~\r"
    words = ["--paste", "a\nb\x1b", "-e"]
    assert await received_bytes(path, len(sent), *words, before="printf '\\033[?2004h'; ") == sent
    assert await received_bytes(path, 4, *words) == b"a\rb\r"


class WrittenBytes:
    """A client of the daemon that collects what is typed."""

    def __init__(self):
        self.data = b""

    def terminal_request(self, *_):
        return Mock(application_cursor=False, bracketed_paste=False)

    def call(self, _method, params, *_):
        self.data += base64.b64decode(params.data)


@pytest.mark.parametrize("paste", [True, False])
def test_stdin_is_pasted_with_one_line_end_for_each_cr_lf_wherever_it_is_split(monkeypatch, paste):
    pieces = [b"a\r", b"\nb\r\n", b"c\r", b"\r", b""]
    monkeypatch.setattr(send_keys, "read_some", Mock(side_effect=pieces))
    client = WrittenBytes()
    send_keys.type_steps(client, "build", [send_keys.Text(None)], paste=paste)
    assert client.data == (b"a\rb\rc\r\r" if paste else b"".join(pieces))


# Reads its input only once much of it waits in the kernel's buffer, which holds 4 KiB on Linux.
READ_LATE = """
import array, fcntl, hashlib, sys, termios, time, tty
tty.setraw(0)
print("ready", flush=True)
waiting = array.array("i", (0,))
while waiting[0] < 1000:
    time.sleep(0.001)
    fcntl.ioctl(0, termios.FIONREAD, waiting)
print(hashlib.sha256(sys.stdin.buffer.read(int(sys.argv[1]))).hexdigest())
"""


async def test_send_types_all_of_a_large_stdin(agent, path, tmp_path):
    data = b"".join(b"%d\n" % n for n in range(20_000))
    (tmp_path / "in").write_bytes(data)
    args = ["-I", "-S", "-c", READ_LATE, str(len(data))]
    terminal = await agent.create_until("ready", sys.executable, args=args)
    with (tmp_path / "in").open() as stdin:
        more = {"stdin": stdin}
        async with running(tmp_path, path, "send", terminal, "-", **more) as sending:
            assert await sending.wait() == 0
    await agent.until_output(terminal, hashlib.sha256(data).hexdigest())


async def test_send_types_bytes_of_stdin_unchanged(agent, path):
    terminal = await agent.create_until("ready", RAW.format(3))
    done = await run_with(["send", terminal, "-"], b"\xff\x00\x80", env=command_environment(path))
    assert done.status == 0
    await agent.until_output(terminal, "ff0080")


@pytest.mark.long
async def test_send_reports_and_waits_when_the_program_does_not_read(agent, path, tmp_path):
    (tmp_path / "in").write_bytes(b"x" * 100_000)
    terminal = await agent.create_until("ready", "stty raw -echo; echo ready; sleep 1000")
    with (tmp_path / "in").open() as stdin:
        more = {"stdin": stdin}
        async with running(tmp_path, path, "send", terminal, "-", **more) as sending:
            await poll(lambda: "does not read its input" in sending.err)
            assert sending.process.poll() is None
            await agent.kill(terminal)
            assert await sending.wait() == 1
            assert "has ended" in sending.err


@pytest.mark.costly
@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        (["nothing", "a"], 1, "there is no terminal 'nothing'"),
        (["nothing"], 2, "say what to type"),
        (["nothing", "--key", "F13"], 2, KNOWN),
        (["nothing", "--key"], 2, "requires an argument"),
        ([], 2, "TERMINAL"),
    ],
)
async def test_send_fails_with_invalid_arguments(path, words, status, expected):
    done = await run(path, "send", *words)
    assert (done.status, done.out) == (status, "")
    assert expected in done.err


@pytest.mark.long
async def test_send_reports_a_stdin_that_is_closed_or_unreadable(agent, path):
    terminal = await agent.create("sleep 1000")
    for redirect, expected in (("<&-", "stdin is closed"), ("0>/dev/null", "stdin: Bad file")):
        line = f'"{ACPTERM[0]}" -m acpterm send {terminal} - {redirect}'
        done = await trio.run_process(
            ["sh", "-c", line], env=command_environment(path), capture_stderr=True, check=False
        )
        assert done.returncode == 1
        assert done.stderr.decode().startswith(f"acpterm: {expected}")


async def test_send_fails_when_the_program_has_ended(agent, path):
    terminal = await agent.create_ended("true")
    # Until its PTY is closed, which follows at once, something in the background could read.
    with trio.fail_after(DEADLINE_S):
        while (done := await run(path, "send", terminal, "a")).status == 0:
            await trio.sleep(0.01)
    assert done.status == 1
    assert "has ended" in done.err


@each_case(
    ("name", "keys"),
    [
        ("a", b"a"),
        ("é", "é".encode()),
        ("-", b"-"),
        ("C-c", b"\x03"),
        ("C-C", b"\x03"),
        ("c-a", b"\x01"),
        ("C-[", b"\x1b"),
        ("C-\\", b"\x1c"),
        ("C-Space", b"\0"),
        ("C-@", b"\0"),
        ("C-?", b"\x7f"),
        ("M-x", b"\x1bx"),
        ("M-C-x", b"\x1b\x18"),
        ("M--", b"\x1b-"),
        ("S-a", b"A"),
        ("Enter", b"\r"),
        ("enter", b"\r"),
        ("Tab", b"\t"),
        ("BTab", b"\x1b[Z"),
        ("S-Tab", b"\x1b[Z"),
        ("Escape", b"\x1b"),
        ("BSpace", b"\x7f"),
        ("C-BSpace", b"\b"),
        ("Up", b"\x1b[A"),
        ("S-Up", b"\x1b[1;2A"),
        ("C-M-S-Left", b"\x1b[1;8D"),
        ("End", b"\x1b[F"),
        ("PPage", b"\x1b[5~"),
        ("NPage", b"\x1b[6~"),
        ("IC", b"\x1b[2~"),
        ("C-DC", b"\x1b[3;5~"),
        ("F1", b"\x1bOP"),
        ("C-F1", b"\x1b[1;5P"),
        ("F5", b"\x1b[15~"),
        ("S-F12", b"\x1b[24;2~"),
    ],
)
def test_key_bytes_returns_the_bytes_of_xterm(name, keys):
    assert key_bytes(name) == keys


@each_case("name", ["", "F0", "F13", "Foo", "C-", "C-é", "C-Enter", "X-a", "C-1", "ab"])
def test_key_bytes_raises_when_the_key_is_unknown(name):
    with pytest.raises(ValueError, match=r"no key"):
        key_bytes(name)


def test_only_cursor_keys_depend_on_the_cursor_mode():
    assert [
        name for name in ("Up", "C-Home", "a", "F1", "PageUp") if depends_on_cursor_mode(name)
    ] == [
        "Up",
        "C-Home",
    ]
    assert key_bytes("Down", application=True) == b"\x1bOB"
