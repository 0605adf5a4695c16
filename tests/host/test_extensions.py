"""acpterm's own methods: read, write, resize, signal, set the directory."""

import base64
import os
import sys
import time

import pytest
import trio

from acpterm.jsonrpc import RpcError
from acpterm.terminal import views
from tests.support.cases import each_case
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_here
from tests.support.polling import poll

TEXT = "aé→🙂b\x1b[31mred\x1b[0m\r\nend"


async def printed(agent, text: str, *, own=None, **more) -> str:
    """Print `text` unchanged in a terminal, which converts LF to CRLF."""
    escaped = "".join(f"\\{byte:03o}" for byte in text.replace("\r\n", "\n").encode())
    terminal = await agent.create(f"printf '{escaped}'", own=own, **more)
    await agent.wait(terminal)
    return terminal


async def refused(agent, method: str, code: int, says: str, **params) -> None:
    with pytest.raises(RpcError) as caught:
        await agent.request(method, params)
    assert caught.value.code == code
    assert says in caught.value.message


# read


def output_of(read):
    """Return the response `read` without what waits for input, which depends on the time."""
    return {name: value for name, value in read.items() if not name.startswith("waiting")}


async def test_read_returns_output_and_the_next_position(agent):
    terminal = await agent.create("printf one; read line; printf two")
    await agent.until_output(terminal, "one")
    first = await agent.read_from(terminal)
    assert output_of(first) == {"data": "one", "position": 3, "lost": 0}
    again = await agent.read_from(terminal, since=first["position"])
    assert output_of(again) == {"data": "", "position": 3, "lost": 0}
    await agent.type(terminal, "\n")
    await agent.wait(terminal)
    rest = await agent.read_from(terminal, since=3)
    assert rest["data"] == "\ntwo"
    assert rest["position"] == 3 + len("\r\ntwo")
    assert rest["exitStatus"]["exitCode"] == 0
    whole = await agent.read_from(terminal, since=0)
    assert whole["data"] == "one\ntwo"


async def test_read_has_only_the_row_that_was_drawn_again_and_output_has_it_in_its_place(agent):
    again = r"printf '\033[3Aa 2\r\033[3B'"
    terminal = await agent.create(f"stty -echo; echo a 1; echo b 1; echo go; read x; {again}")
    await agent.until_output(terminal, "go")
    position = (await agent.read_from(terminal, since=0))["position"]
    await agent.type(terminal, "\n")
    await agent.wait(terminal)
    assert (await agent.read_from(terminal, since=position))["data"] == "a 2\n"
    assert (await agent.output(terminal))["output"] == "a 2\nb 1\ngo\n"


async def test_read_waits_until_there_is_output(agent):
    terminal = await agent.create("printf one; read line; echo two; sleep 60")
    await agent.until_output(terminal, "one")
    read = await agent.start("_acpterm/terminal/read", agent.of(terminal, since=3, waitMs=60_000))
    await agent.output(terminal)
    assert not agent.has_response(read)
    began = time.monotonic()
    await agent.type(terminal, "\n")
    assert (await agent.result(read))["data"]
    assert time.monotonic() - began < DEADLINE_S
    assert "exitStatus" not in await agent.output(terminal)


async def test_read_does_not_wait_when_there_is_output(agent):
    terminal = await agent.create("printf one; sleep 60")
    await agent.until_output(terminal, "one")
    with trio.fail_after(DEADLINE_S):
        assert (await agent.read_from(terminal, waitMs=60_000))["data"] == "one"
        assert (await agent.read_from(terminal, since=1, waitMs=60_000))["data"] == "ne"


async def test_read_computes_its_result_once(monkeypatch):
    created = []
    one_by_one = views.since

    def since(*args, **kwargs):
        created.append(one_by_one(*args, **kwargs))
        return created[-1]

    monkeypatch.setattr(views, "since", since)
    async with agent_here() as agent:
        terminal = await agent.create("printf précis; read line")
        await agent.until_output(terminal, "précis")
        assert (await agent.read_from(terminal, waitMs=5000))["data"] == "précis"
    assert len(created) == 1


async def test_read_returns_nothing_after_its_timeout(agent):
    terminal = await agent.create("sleep 60")
    began = time.monotonic()
    nothing = output_of(await agent.read_from(terminal, waitMs=80))
    assert nothing == {"data": "", "position": 0, "lost": 0}
    assert 0.07 < time.monotonic() - began < DEADLINE_S


@each_case("form", ["text", "raw", "screen"])
async def test_pending_read_is_answered_when_the_program_exits(agent, form):
    terminal = await agent.create("stty -echo; echo ready; read line; exit 7")
    await agent.until_output(terminal, "ready")
    position = (await agent.read_from(terminal))["position"]
    read = await agent.start(
        "_acpterm/terminal/read",
        agent.of(terminal, since=position, waitMs=60_000, format=form),
    )
    await agent.type(terminal, "\n")
    answer = await agent.result(read)
    if "exitStatus" not in answer:  # the line's end was echoed
        answer = await agent.read_from(
            terminal, since=answer["position"], waitMs=60_000, format=form
        )
    assert answer["exitStatus"]["exitCode"] == 7


@pytest.mark.parametrize("method", ["terminal/kill", "terminal/release"])
async def test_pending_read_is_answered_when_the_terminal_is_killed_or_released(agent, method):
    terminal = await agent.create("sleep 60")
    read = await agent.start("_acpterm/terminal/read", agent.of(terminal, waitMs=60_000))
    await agent.request(method, agent.of(terminal))
    assert (await agent.result(read))["exitStatus"]["signal"] == "SIGTERM"


async def test_read_before_a_release_is_answered(agent):
    terminal = await agent.create("sleep 60")
    read, asks = agent.prepare("_acpterm/terminal/read", agent.of(terminal, waitMs=60_000))
    release, releases = agent.prepare("terminal/release", agent.of(terminal))
    await agent.send(asks + releases)
    assert await agent.result(release) == {}
    assert (await agent.result(read))["exitStatus"]["signal"] == "SIGTERM"


async def test_raw_format_is_base64_of_the_bytes(agent):
    terminal = await printed(agent, TEXT)
    answer = await agent.read_from(terminal, format="raw")
    assert answer["encoding"] == "base64"
    assert base64.b64decode(answer["data"]) == TEXT.encode()
    assert answer["position"] == len(TEXT.encode())
    part = await agent.read_from(terminal, format="raw", since=2, maxBytes=3)
    assert base64.b64decode(part["data"]) == TEXT.encode()[2:5]
    assert part["position"] == 5


async def test_screen_format_returns_the_whole_screen(agent):
    terminal = await printed(agent, "old\x1b[2J\x1b[2;3Hnew")
    answer = await agent.read_from(terminal, format="screen")
    assert answer["data"].rstrip() == "\n  new"
    assert "encoding" not in answer
    assert answer["position"] == len("old\x1b[2J\x1b[2;3Hnew")
    since = await agent.read_from(terminal, format="screen", since=answer["position"])
    assert since["data"] == answer["data"]


async def test_screen_can_be_read_while_the_program_floods(agent):
    terminal = await agent.create("yes a line that comes again and again")
    with trio.fail_after(DEADLINE_S):
        await agent.until_output(terminal, "again and again\na line", count=40)
        answer = await agent.read_from(terminal, format="screen")
        assert answer["data"].count("\n") > 30
        # Output that came meanwhile is left to the next read.
        later = await agent.read_from(
            terminal, since=answer["position"], format="raw", waitMs=60_000
        )
    assert later["position"] > answer["position"]


async def test_format_defaults_to_the_terminals(agent):
    terminal = await printed(agent, TEXT, own={"format": "raw"})
    assert (await agent.read_from(terminal))["encoding"] == "base64"
    assert (await agent.read_from(terminal, format="text"))["data"] == "aé→🙂bred\nend"


@each_case("most", [*range(1, 12), 1000])
async def test_chunks_of_any_size_join_without_splitting_characters(agent, most):
    terminal = await printed(agent, TEXT)
    position, parts = 0, []
    while True:
        answer = await agent.read_from(terminal, since=position, maxBytes=most)
        if answer["position"] == position:
            break
        assert answer["position"] > position
        assert answer["lost"] == 0
        parts.append(answer["data"])
        position = answer["position"]
    assert position == len(TEXT.encode())
    assert "".join(parts) == "aé→🙂bred\nend"


async def test_incomplete_character_does_not_end_a_wait(agent):
    # é byte by byte, and at the end a character that stays incomplete.
    command = "printf 'a\\303'; read x; printf '\\251'; read x; printf '\\342\\206'"
    terminal = await agent.create(f"stty -echo -icrnl; echo; {command}")
    await poll_raw(agent, terminal, b"\r\na\xc3")
    first = await agent.read_from(terminal)
    assert (first["data"], first["position"]) == ("\na", 3)
    assert (await agent.read_from(terminal, since=3))["position"] == 3
    read = await agent.start("_acpterm/terminal/read", agent.of(terminal, since=3, waitMs=60_000))
    await agent.output(terminal)
    assert not agent.has_response(read)
    await agent.type(terminal, "\n")
    second = await agent.result(read)
    assert (second["data"].strip(), second["lost"]) == ("é", 0)
    await agent.type(terminal, "\n")
    await agent.wait(terminal)
    rest = await agent.read_from(terminal, since=second["position"])
    assert rest["data"].strip() == "\ufffd"


async def poll_raw(agent, terminal, wanted: bytes) -> None:
    """Wait until the raw output equals `wanted`."""
    position = 0
    data = b""
    with trio.fail_after(DEADLINE_S):
        while data != wanted:
            answer = await agent.read_from(terminal, since=position, format="raw", waitMs=60_000)
            data += base64.b64decode(answer["data"])
            position = answer["position"]


async def test_lost_bytes_are_counted():
    async with agent_here(raw_bytes=1000) as agent:
        terminal = await agent.create("seq 1000 1999")
        await agent.wait(terminal)
        raw = await agent.read_from(terminal, since=100, format="raw")
        assert (raw["position"], raw["lost"]) == (6000, 4900)
        assert len(base64.b64decode(raw["data"])) == 1000
        # Text begins with a complete line; the bytes skipped for that count as lost.
        text = await agent.read_from(terminal, since=102)
        assert text["data"].startswith("1834\n")
        assert text["data"].endswith("1999\n")
        assert text["lost"] == 5004 - 102
        oldest = await agent.read_from(terminal, format="raw")
        assert (oldest["position"], oldest["lost"]) == (6000, 0)
        none = await agent.read_from(terminal, since=6000, format="raw")
        assert (none["data"], none["position"], none["lost"]) == ("", 6000, 0)


async def test_following_reader_gets_every_byte_once(agent):
    terminal = await agent.create("seq 1 20000")
    parts, position = [], 0
    while True:
        answer = await agent.read_from(terminal, since=position, waitMs=10_000)
        assert answer["lost"] == 0
        parts.append(answer["data"])
        position = answer["position"]
        if "exitStatus" in answer and not answer["data"]:
            break
    assert "".join(parts) == "".join(f"{number}\n" for number in range(1, 20001))


async def test_read_returns_at_most_a_mebibyte():
    async with agent_here(raw_bytes=3 << 20) as agent:
        terminal = await agent.create("head -c 2000000 /dev/zero | tr '\\0' x")
        await agent.wait(terminal)
        for more in ({}, {"maxBytes": 10**9}):
            answer = await agent.read_from(terminal, **more)
            assert (len(answer["data"]), answer["position"]) == (1 << 20, 1 << 20)


@each_case("form", ["text", "raw", "screen"])
async def test_position_after_the_end_is_refused(agent, form):
    terminal = await agent.create("printf 12345; sleep 60")
    await agent.until_output(terminal, "12345")
    says = "since 6 is after the end of the output, 5: use the position"
    with trio.fail_after(DEADLINE_S):
        await refused(
            agent,
            "_acpterm/terminal/read",
            -32602,
            says,
            **agent.of(terminal, since=6, waitMs=60_000, format=form),
        )
    assert (await agent.read_from(terminal, since=5))["data"] == ""


@each_case(
    ("method", "params", "says"),
    [
        ("read", {"since": -1}, "params.since is -1: it must be an integer, 0 or more"),
        ("read", {"since": "0"}, "params.since is"),
        ("read", {"maxBytes": 0}, "params.maxBytes is 0: it must be an integer, 1 or more"),
        ("read", {"format": "html"}, 'must be "text" or "raw" or "screen"'),
        ("read", {"waitMs": -1}, "params.waitMs is -1"),
        ("read", {"waitMs": 0.5}, "params.waitMs is 0.5"),
        ("write", {}, "params.data is missing: it must be a string, what to type"),
        ("write", {"data": 7}, "params.data is 7"),
        ("resize", {"cols": 80}, "params.rows is missing"),
        ("resize", {"cols": 0, "rows": 24}, "params.cols is 0: it must be an integer, 1 to 10000"),
        ("resize", {"cols": 80, "rows": 10001}, "params.rows is 10001"),
        ("signal", {}, "params.signal is missing"),
        ("signal", {"signal": 9}, "params.signal is 9"),
        ("signal", {"signal": "SIGNONE"}, "there is no signal 'SIGNONE'"),
        ("signal", {"signal": ""}, "there is no signal ''"),
        ("signal", {"signal": "SIGRTMIN+99"}, "there is no signal 'SIGRTMIN+99'"),
    ],
)
async def test_invalid_values_are_named_in_the_error(agent, method, params, says):
    terminal = await agent.create("sleep 60")
    method = f"_acpterm/terminal/{method}"
    await refused(agent, method, -32602, says, **agent.of(terminal, **params))
    assert "exitStatus" not in await agent.output(terminal)


@each_case(
    "params", [{"cols": 0}, {"rows": 10001}, {"timeoutMs": 0}, {"shell": 1}, {"format": "html"}, 7]
)
async def test_invalid_values_in_the_meta_of_create_are_named(agent, params):
    create = {"sessionId": "s", "command": "true", "_meta": {"acpterm": params}}
    name = f"params._meta.acpterm.{next(iter(params))}" if params != 7 else "_meta.acpterm is 7"
    await refused(agent, "terminal/create", -32602, name, **create)


# write


async def test_written_input_reaches_the_program_and_is_echoed(agent):
    terminal = await agent.create("read line; echo got $line")
    assert await agent.type(terminal, "é→🙂\n") == {"written": 10}
    await agent.wait(terminal)
    assert (await agent.output(terminal))["output"] == "é→🙂\ngot é→🙂\n"


async def test_empty_write_succeeds(agent):
    assert await agent.type(await agent.create("sleep 60"), "") == {"written": 0}


async def test_control_character_acts_like_the_key(agent):
    terminal = await agent.create("trap 'echo caught; exit 5' INT; echo go; read line")
    await agent.until_output(terminal, "go")
    await agent.type(terminal, "\x03")
    assert (await agent.wait(terminal))["exitCode"] == 5
    terminal = await agent.create("cat")
    await agent.type(terminal, "\x04")
    assert (await agent.wait(terminal))["exitCode"] == 0


async def test_write_that_does_not_fit_waits_and_delays_no_other_request(agent):
    terminal = await agent.create("stty raw -echo; echo ready; exec sleep 60")
    await agent.until_output(terminal, "ready")
    write = await agent.start("_acpterm/terminal/write", agent.of(terminal, data="x" * 300_000))
    assert (await agent.run("echo other"))[0] == "other\n"
    assert not agent.has_response(write)
    await agent.kill(terminal)
    await refused_answer(agent, write, terminal)


async def refused_answer(agent, id_, terminal):
    with trio.fail_after(DEADLINE_S), pytest.raises(RpcError) as caught:
        await agent.result(id_)
    assert caught.value.code == -32602
    assert f"terminal '{terminal}' has ended" in caught.value.message


async def test_long_write_reaches_a_slow_reader_completely(agent):
    terminal = await agent.create("stty raw -echo; echo ready; head -c 200000 | wc -c")
    await agent.until_output(terminal, "ready")
    assert await agent.type(terminal, "x" * 200_000) == {"written": 200_000}
    await agent.wait(terminal)
    assert "200000" in (await agent.output(terminal))["output"]


async def test_line_that_the_terminal_would_cut_is_refused_whole(agent):
    terminal = await agent.create("read line; echo got ${#line}")
    says = "a line of 4096 bytes is too long"
    params = agent.of(terminal, data="first\n" + "x" * 4096 + "\n")
    await refused(agent, "_acpterm/terminal/write", -32602, says, **params)
    assert await agent.type(terminal, "x" * 4095 + "\n") == {"written": 4096}
    await agent.wait(terminal)
    assert (await agent.output(terminal))["output"].endswith("\ngot 4095\n")


async def test_lines_typed_before_the_program_reads_all_arrive(tmp_path):
    os.mkfifo(tmp_path / "go")
    lines = [f"{n:03} {'x' * 995}\n" for n in range(20)]
    async with agent_here() as agent:
        terminal = await agent.create(
            "stty -echo; echo ready; read x <go; head -n 20", cwd=str(tmp_path)
        )
        await agent.until_output(terminal, "ready")
        writes = [
            await agent.start("_acpterm/terminal/write", agent.of(terminal, data=line))
            for line in lines
        ]
        await agent.output(terminal)
        assert not agent.has_response(writes[-1])
        await trio.Path(tmp_path / "go").write_text("\n")
        assert [await agent.result(write) for write in writes] == [{"written": 1000}] * 20
        await agent.wait(terminal)
        assert (await agent.output(terminal))["output"] == f"ready\n{''.join(lines)}"


async def test_write_of_dropped_input_fails_when_the_interrupt_key_was_typed(agent):
    terminal = await agent.create("trap 'exit 5' INT; echo go; while :; do sleep 0.01; done")
    await agent.until_output(terminal, "go")
    params = agent.of(terminal, data="line\n" * 2000)
    write = await agent.start("_acpterm/terminal/write", params)
    await agent.output(terminal)
    assert await agent.type(terminal, "\x03") == {"written": 1}
    with pytest.raises(RpcError, match="key was pressed that interrupts the program"):
        await agent.result(write)
    assert (await agent.wait(terminal))["exitCode"] == 5


# resize


async def test_resize_reaches_the_program_with_sigwinch(agent):
    terminal = await agent.create(
        "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.01; done",
        own={"cols": 90, "rows": 33},
    )
    assert await agent.until_output(terminal, "33 90\n")
    await agent.request("_acpterm/terminal/resize", agent.of(terminal, cols=101, rows=7))
    await agent.wait(terminal)
    assert (await agent.output(terminal))["output"] == "33 90\n7 101\n"


@pytest.mark.parametrize(("cols", "rows"), [(1, 1), (10_000, 10_000)])
async def test_smallest_and_largest_size_are_accepted(agent, cols, rows):
    own = {"cols": cols, "rows": rows}
    assert (await agent.run("stty size", _meta={"acpterm": own}))[0] == f"{rows} {cols}\n"
    terminal = await agent.create("read line; stty size")
    await agent.request("_acpterm/terminal/resize", agent.of(terminal, cols=cols, rows=rows))
    await agent.type(terminal, "\n")
    await agent.wait(terminal)
    assert (await agent.output(terminal))["output"] == f"\n{rows} {cols}\n"


async def test_screen_has_the_new_size_after_a_resize(agent):
    terminal = await agent.create("read line; printf 1234567890; read line")
    await agent.request("_acpterm/terminal/resize", agent.of(terminal, cols=4, rows=5))
    await agent.type(terminal, "\n")
    await agent.until_output(terminal, "1234567890")
    screen = await agent.read_from(terminal, format="screen")
    assert screen["data"].split() == ["1234", "5678", "90"]


async def test_screen_is_refused_for_a_window_that_is_too_large():
    says = "a screen of 1000 columns and 1001 rows is too large"
    async with agent_here() as agent:
        with pytest.raises(RpcError, match=says) as caught:
            await agent.create("true", own={"format": "screen", "cols": 1000, "rows": 1001})
        assert caught.value.code == -32602
        terminal = await agent.create(
            "read line; stty size; read line", own={"format": "screen", "cols": 1000, "rows": 1000}
        )
        assert (await agent.output(terminal))["output"] == ""
        await agent.request("_acpterm/terminal/resize", agent.of(terminal, cols=1000, rows=1001))
        await agent.type(terminal, "\n")
        for method in "terminal/output", "_acpterm/terminal/read":
            with pytest.raises(RpcError, match=says) as caught:
                await agent.request(method, agent.of(terminal))
            assert caught.value.code == -32602
        with trio.fail_after(DEADLINE_S):
            while (await agent.read_from(terminal, format="text"))["data"] != "\n1001 1000\n":
                await trio.sleep(0.005)
        await agent.request("_acpterm/terminal/resize", agent.of(terminal, cols=80, rows=24))
        assert "1001 1000" in (await agent.output(terminal))["output"]


# signal


@each_case("name", ["SIGUSR1", "usr1", "SIGINT", "Int", "SIGRTMIN+3"])
async def test_signal_reaches_the_foreground_group(agent, name):
    number = {"SIGRTMIN+3": "37"}.get(name, name.upper().removeprefix("SIG"))
    terminal = await agent.create(
        f"trap 'echo caught; exit 5' {number}; echo go; while :; do sleep 0.01; done"
    )
    await agent.until_output(terminal, "go")
    await agent.request("_acpterm/terminal/signal", agent.of(terminal, signal=name))
    assert (await agent.wait(terminal))["exitCode"] == 5


async def test_signal_does_not_reach_background_groups(agent):
    # With job control a background job has a group of its own.
    terminal = await agent.create(
        "trap 'echo caught; sleep 0.1; kill %1; exit 5' USR1; set -m; "
        "sh -c 'trap \"echo no\" USR1; echo in; while :; do sleep 0.01; done' & "
        "while :; do read x; done"
    )
    await agent.until_output(terminal, "in")
    await agent.request("_acpterm/terminal/signal", agent.of(terminal, signal="SIGUSR1"))
    await agent.wait(terminal)
    output = (await agent.output(terminal))["output"]
    assert "caught" in output
    assert "no\n" not in output


GONE = """
import os, signal
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if not child:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    os._exit(0)
os.waitpid(child, 0)
print("alone", flush=True)
signal.pause()
"""


async def test_signal_fails_without_a_foreground_group(agent):
    terminal = await agent.create(sys.executable, args=["-S", "-c", GONE])
    await agent.until_output(terminal, "alone")
    says = f"no process group is in the foreground of terminal '{terminal}', or it may not be"
    params = agent.of(terminal, signal="SIGUSR1")
    await refused(agent, "_acpterm/terminal/signal", -32602, says, **params)


async def test_death_by_signal_method_is_reported_with_its_name(agent):
    terminal = await agent.create("echo go; exec sleep 60")
    await agent.until_output(terminal, "go")
    await agent.request("_acpterm/terminal/signal", agent.of(terminal, signal="SIGKILL"))
    status = await agent.wait(terminal)
    assert (status["exitCode"], status["signal"]) == (None, "SIGKILL")
    assert status["_meta"]["acpterm"]["endedBy"] == "exited"


async def test_sigcont_continues_a_stopped_program(agent):
    terminal = await agent.create("echo $$; read line; exit 5")
    pid = int(await agent.until_output(terminal, "\n"))

    def state() -> str:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]

    await agent.request("_acpterm/terminal/signal", agent.of(terminal, signal="SIGSTOP"))
    await poll(lambda: state() == "T")
    await agent.request("_acpterm/terminal/signal", agent.of(terminal, signal="SIGCONT"))
    await poll(lambda: state() != "T")
    await agent.type(terminal, "\n")
    assert (await agent.wait(terminal))["exitCode"] == 5


# After the end


async def test_only_read_works_after_the_exit(agent):
    terminal = await agent.create("echo x")
    await agent.wait(terminal)
    says = f"terminal '{terminal}' has ended"
    for method, params in (
        ("write", {"data": "x"}),
        ("resize", {"cols": 80, "rows": 24}),
        ("signal", {"signal": "SIGINT"}),
    ):
        await refused_later(agent, f"_acpterm/terminal/{method}", says, terminal, params)
    # Input that arrives before the PTY has closed may be echoed.
    assert (await agent.read_from(terminal))["data"].startswith("x\n")


async def test_refused_resize_is_not_recorded(host, agent):
    terminal = await agent.create("sleep 60", own={"cols": 90, "rows": 33})
    (entry,) = host.terminals.registry
    await agent.request("terminal/kill", agent.of(terminal))
    with trio.fail_after(DEADLINE_S):
        await entry.terminal.wait_closed()
    with pytest.raises(RpcError, match="has ended"):
        await agent.request("_acpterm/terminal/resize", agent.of(terminal, cols=7, rows=5))
    # A restart would use this size.
    assert (entry.record.cols, entry.record.rows) == (90, 33)


async def refused_later(agent, method, says, terminal, params):
    """Repeat a request until it is refused as invalid, with a message that contains `says`.

    It may succeed until the PTY has been closed.
    """
    with trio.fail_after(DEADLINE_S):
        while True:
            try:
                await agent.request(method, agent.of(terminal, **params))
            except RpcError as error:
                assert (error.code, says in error.message) == (-32602, True), error  # noqa: PT017
                return
            await trio.sleep(0.005)


# session/set


async def test_session_set_sets_the_directory(agent, tmp_path):
    assert (await agent.run("pwd"))[0] == f"{os.getcwd()}\n"
    await agent.request("_acpterm/session/set", {"sessionId": agent.session, "cwd": str(tmp_path)})
    assert (await agent.run("pwd"))[0] == f"{tmp_path}\n"
    assert (await agent.run("pwd", cwd="/usr"))[0] == "/usr\n"
    agent.session = "another"
    assert (await agent.run("pwd"))[0] == f"{os.getcwd()}\n"


@each_case(
    ("cwd", "says"),
    [
        ("relative", "cwd 'relative' is not absolute"),
        ("", "cwd '' is not absolute"),
        ("/\0", "holds a NUL character"),
        (None, "params.cwd is null"),
        (7, "params.cwd is 7"),
    ],
)
async def test_invalid_directory_is_refused_and_the_old_one_kept(agent, tmp_path, cwd, says):
    good = {"sessionId": agent.session, "cwd": str(tmp_path)}
    await agent.request("_acpterm/session/set", good)
    await refused(agent, "_acpterm/session/set", -32602, says, **(good | {"cwd": cwd}))
    assert (await agent.run("pwd"))[0] == f"{tmp_path}\n"


async def test_requests_take_effect_in_order(agent, tmp_path):
    for number in range(10):
        directory = tmp_path / str(number)
        directory.mkdir()
        _, set_ = agent.prepare(
            "_acpterm/session/set", {"sessionId": agent.session, "cwd": str(directory)}
        )
        create, line = agent.prepare(
            "terminal/create", {"sessionId": agent.session, "command": "pwd"}
        )
        _, back = agent.prepare(
            "_acpterm/session/set", {"sessionId": agent.session, "cwd": str(tmp_path)}
        )
        await agent.send(set_ + line + back)
        terminal = (await agent.result(create))["terminalId"]
        await agent.wait(terminal)
        assert (await agent.output(terminal))["output"] == f"{directory}\n"


async def test_concurrent_writes_are_typed_in_order(agent):
    terminal = await agent.create("stty raw -echo; echo on; head -c 2000")
    await agent.until_output(terminal, "on")
    lines = [
        agent.prepare("_acpterm/terminal/write", agent.of(terminal, data=f"{n:04}"))[1]
        for n in range(500)
    ]
    await agent.send(b"".join(lines))
    await agent.wait(terminal)
    typed = (await agent.output(terminal))["output"].split("\n", 1)[1].strip()
    assert typed == "".join(f"{n:04}" for n in range(500))


async def test_every_extension_method_is_advertised_and_answered(agent):
    answer = await agent.request("initialize", {"protocolVersion": 1})
    methods = answer["clientCapabilities"]["_meta"]["acpterm"]["methods"]
    assert len(methods) == 11
    for method in methods:
        with pytest.raises(RpcError) as caught:
            await agent.request(method, {})
        assert caught.value.code == -32602
