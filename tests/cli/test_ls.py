"""`acpterm ls`: its rows, their format, and updates with --watch."""

import json
import os
import re
import shlex
from collections.abc import Callable

import pytest
import trio

from tests.support.agent import agent_at
from tests.support.commands import command_environment, report_status, run, run_process, running
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.starting import ACPTERM
from tests.support.tmux import needs_tmux, tmux_server

HEADER = "ID  NAME  STATE  OWNER  AGENT  SESSION  WHERE  SIZE  AGE  OUTPUT  COMMAND\n"


def rows(out: str) -> list[list[str]]:
    """Return the cells of each line except the first."""
    return [re.split(r" {2,}", line) for line in out.splitlines()[1:]]


def states(out: str) -> list[str]:
    return [row[2] for row in rows(out)]


async def test_ls_is_empty_and_starts_no_daemon_when_none_runs(tmp_path):
    path = str(tmp_path / "run" / "agent.sock")
    assert await run(path, "ls") == (0, HEADER, "")
    assert await run(path, "ls", "--json") == (0, "[]\n", "")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words", [["ls"], ["ls", "--watch"], ["run", "-d"], ["run"], ["status"]])
async def test_command_fails_and_starts_no_daemon_when_none_is_at_the_named_socket(tmp_path, words):
    mistyped = str(tmp_path / "other" / "agent.sock")
    done = await run(str(tmp_path / "agent.sock"), *words, "--socket", mistyped)
    assert (done.status, done.out) == (2, "")
    assert f"no daemon listens at '{mistyped}': acpterm serve --socket" in done.err
    assert os.listdir(tmp_path) == []


async def test_ls_prints_a_row_for_each_terminal(user, path):
    async with agent_at(path) as agent:
        await agent.request(
            "initialize", {"protocolVersion": 1, "clientInfo": {"name": "robot", "version": "1"}}
        )
        agents = await agent.create("sleep 1000 # agent")
        users = await user.create("exit 3", name="build", cols=90, rows=30)

        await poll_state(path, "exited 3")
        found = rows((await run(path, "ls")).out)
    assert [row[:2] for row in found] == [[agents[5:13], "-"], [users[5:13], "build"]]
    assert found[0][2:8] == ["running", "agent", "robot", "session-1", "-", "200x40"]
    assert found[1][2:8] == ["exited 3", "user", "-", "-", "-", "90x30"]
    assert [row[-1] for row in found] == ["sleep 1000 # agent", "exit 3"]
    assert re.fullmatch(r"\d+s", found[0][8])
    assert found[1][9] == "-"


@pytest.mark.long
async def test_ls_shows_the_state_of_each_terminal(agent, path):
    busy = await agent.create("sleep 1000")
    prompt = await agent.create("sh", args=["-c", "read x"])
    killed = await agent.create("kill -TERM $$")
    shown = await agent.create("echo hi")
    for one in (killed, shown):
        await agent.wait(one)
    content = [{"type": "terminal", "terminalId": shown}]
    update = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t", "content": content}
    await agent.notify("session/update", {"sessionId": agent.session, "update": update})
    await agent.release(shown)
    await poll_command(path, lambda out: "waits for input" in out, "ls")
    with_all = (await run(path, "ls", "--all")).out
    assert [row[0] for row in rows(with_all)] == [
        one[5:13] for one in (prompt, busy, killed, shown)
    ]
    *others, released = states(with_all)
    assert others == ["sh waits for input", "running", "ended by SIGTERM"]
    assert re.fullmatch(r"exited 0, released \d+s ago", released)
    assert states((await run(path, "ls")).out) == states(with_all)[:3]


async def test_ls_json_has_the_daemons_terminal_info(user, path):
    identifier = await user.create("sleep 1000", name="one")
    status, out, err = await run(path, "ls", "--json")
    (found,) = json.loads(out)
    assert (status, err, out.count("\n")) == (0, "", 1)
    assert found["terminalId"] == identifier
    assert (found["name"], found["state"], found["owner"]) == ("one", "running", "user")
    assert found["command"] == "sleep 1000"


CONTROLS = "printf '\x1b]0;owned\x07' # \u202eevil [bold]x[/bold] \U0001f600 日本\n\r\tnext"


async def test_ls_escapes_control_characters_of_a_command(user, path):
    await user.create(f"sleep 1000; {CONTROLS}")
    out = (await run(path, "ls")).out
    assert len(out.splitlines()) == 2
    assert "\x1b" not in out
    assert "\\x1b]0;owned\\x07" in out
    assert "\\u202eevil [bold]x[/bold] \U0001f600 日本\\n\\r\\tnext" in out


async def test_ls_json_escapes_control_characters_of_a_command(user, path):
    command = "sleep 1000 # \x7f\x9b31m\x9d0;owned\x9c\u202eevil\U000e0041"
    await user.create(command)
    status, out, err = await run(path, "ls", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)[0]["command"] == command
    assert r"\u007f\u009b31m\u009d0;owned\u009c\u202eevil\udb40\udc41" in out
    assert out.isascii()
    assert "\x7f" not in out


async def test_ls_replaces_characters_that_the_encoding_of_stdout_lacks(user, path):
    await user.create("sleep 1000 # ä日")
    status, out, _ = await run_process(path, "ls", PYTHONIOENCODING="ascii")
    assert status == 0
    assert "sleep 1000 # ??" in out


async def test_ls_fails_when_the_settings_file_is_missing(path):
    status, out, err = await run(path, "ls", "--config", "/missing")
    assert (status, out) == (1, "")
    assert err == "acpterm: /missing: cannot be read: No such file or directory\n"


@pytest.mark.long
async def test_ls_lists_what_waits_then_what_runs_then_what_has_ended_newest_first(user, path):
    await user.create("read x; exit 3", name="waits")
    await user.create("sleep 1000", name="one")
    await user.create("read x; exit 3", name="over last")
    await user.create("exit 0", name="over")
    await user.create("sleep 1000", name="two")
    await poll_state(path, "exited 0")
    assert (await run(path, "send", "over last", "--enter")).status == 0
    await poll_state(path, "exited 3")
    await poll_command(path, lambda out: out, "ls", "--quiet", "--waiting")
    assert [row[1] for row in rows((await run(path, "ls")).out)] == [
        "waits", "two", "one", "over last", "over",
    ]  # fmt: skip
    assert [row[1] for row in rows((await run(path, "ls", "--waiting")).out)] == ["waits"]


async def test_ls_lists_only_the_terminals_of_an_agent_or_a_session(agent, user, path):
    mine = await user.create("sleep 1000")
    await agent.request(
        "initialize", {"protocolVersion": 1, "clientInfo": {"name": "Robot One", "version": ""}}
    )
    agents = await agent.create("sleep 1000")

    async def ids(*words):
        return (await run(path, "ls", "--quiet", *words)).out.split()

    assert set(await ids()) == {mine, agents}
    assert await ids("--agent", "robot") == await ids("--session", "session-") == [agents]
    assert await ids("--agent", "two") == await ids("--session", "ession-") == []
    assert await ids("--agent", "robot", "--session", "session-1", "--running") == [agents]


@pytest.mark.long
async def test_ls_running_omits_exited_terminals_and_quiet_prints_ids(user, path):
    over = await user.create("exit 3")
    one = await user.create("sleep 1000", name="one")
    await poll_state(path, "exited 3")
    assert [row[1] for row in rows((await run(path, "ls", "--running")).out)] == ["one"]
    assert await run(path, "ls", "--quiet") == (0, f"{one}\n{over}\n", "")
    assert await run(path, "ls", "-q", "--running") == (0, f"{one}\n", "")
    (found,) = json.loads((await run(path, "ls", "--running", "--json")).out)
    assert found["terminalId"] == one
    assert await run(path, "kill", one) == (0, f"{one}: ended by SIGTERM\n", "")
    assert await run(path, "ls", "-q", "-r") == (0, "", "")


@pytest.mark.parametrize("other", ["--watch", "--json"])
async def test_ls_refuses_quiet_with_another_output_option(tmp_path, other):
    done = await run(str(tmp_path / "agent.sock"), "ls", "--quiet", other)
    assert done.status == 2
    assert f"--quiet prints ids only: leave {other} out" in done.err


async def test_ls_and_inspect_show_a_program_that_is_stopped(user, path):
    identifier = await user.create("timeout 100 sh -c 'read x'; :")
    why = "stopped: sh wants to read the terminal in the background"

    with trio.fail_after(DEADLINE_S):
        while "stopped" not in (await user.list())[0]:
            await trio.lowlevel.checkpoint()
    assert f"{why}  " in (await run(path, "ls")).out
    out = (await run(path, "inspect", identifier)).out
    assert re.search(rf"\nstate +{why}\nstopped +pid \d+: use timeout --foreground\n", out)


# Watching


async def test_ls_watch_json_prints_a_line_for_each_change(tmp_path, user, path):
    async with running(tmp_path, path, "ls", "--watch", "--json") as watch:
        await poll(lambda: watch.lines or None)
        assert json.loads(watch.lines[0]) == []
        identifier = await user.create("read x; exit 4")
        await poll(lambda: any('"waitingForInput":true' in line for line in watch.lines))
        await user.terminal_request("write", identifier, data="\n")
        await poll(lambda: any('"exited"' in line for line in watch.lines))
        watch.interrupt()
        assert await watch.wait() == 0
    last = json.loads(watch.lines[-1])
    assert [(one["terminalId"], one["exitStatus"]["exitCode"]) for one in last] == [(identifier, 4)]
    assert len(set(watch.lines)) == len(watch.lines)


async def test_ls_watch_fails_when_the_daemon_exits(tmp_path):
    async with daemon(tmp_path) as (process, path), running(tmp_path, path, "ls", "-w") as watch:
        await poll(lambda: "COMMAND" in watch.out)
        process.terminate()
        assert await watch.wait() == 1
    assert "is gone" in watch.err


# On a terminal


@pytest.mark.parametrize(
    ("height", "names", "last"),
    [
        (8, ["two", "one", "over 3", "over 2", "over 1", "over 0"], "over 0"),
        (7, ["two", "one", "over 3", "over 2"], "and 2 ended: see acpterm ls --all"),
        (4, ["two"], "and 1 running, 4 ended: see acpterm ls --all"),
        (1, [], "and 2 running, 4 ended: see acpterm ls --all"),
    ],
)
@needs_tmux
@pytest.mark.long
async def test_ls_shows_as_many_terminals_as_fit_and_counts_the_rest(
    tmux, busy, height, names, last
):
    words = shlex.join([*ACPTERM, "ls"])
    script = f"stty rows {height}; {words}; echo; {words} --all; echo over; exec sleep 1000"
    pane = tmux.pane(["sh", "-c", script], env=command_environment(busy), size=(100, 24))
    pane.until("\nover")
    shown, everything = pane.text.split("\n\n")
    listed = [line for line in shown.splitlines() if re.match("[0-9a-f]{8} ", line)]
    assert [re.split(r" {2,}", line)[1] for line in listed] == names
    assert last in shown.splitlines()[-1]
    assert "over 0" in everything
    assert "see acpterm" not in everything


@needs_tmux
@pytest.mark.long
async def test_ls_keeps_the_names_at_40_columns(tmux, busy):
    pane = tmux.pane(report_status([*ACPTERM, "ls"]), env=command_environment(busy), size=(40, 24))
    pane.until("ended 0")
    header, *listed = pane.text.splitlines()[:-1]
    assert header.split() == ["ID", "NAME", "STATE", "COMMAND"]
    assert [re.split(r" {2,}", line)[1] for line in listed][:3] == ["two", "one", "over 3"]


@pytest.fixture
async def busy(user, path):
    """Two running terminals, `one` and `two`, and four that have ended: `over 0` to `over 3`."""
    for number in range(4):
        identifier = await user.create("exit 0", name=f"over {number}")
        assert (await run(path, "wait", identifier)).status == 0
    for name in ("one", "two"):
        await user.create("sleep 1000", name=name)
    return path


@pytest.fixture
def tmux(tmp_path):
    with tmux_server(tmp_path / "tmux") as server:
        yield server


@needs_tmux
@pytest.mark.long
async def test_ls_fits_the_width_and_has_colours_on_a_terminal(tmux, user, path):
    await user.create("exit 3; " + "x" * 300, name="bad")
    await poll_state(path, "exited 3")
    env = command_environment(path)
    for columns, words in ((80, ["exited 3", "user", "x…"]), (40, ["exited 3", "…"])):
        pane = tmux.pane(report_status([*ACPTERM, "ls"]), size=(columns, 10), env=env)
        pane.until("ended 0")
        header, row, _ = pane.text.splitlines()
        assert header.startswith("ID ")
        assert [word for word in words if word not in row] == []
        assert "\x1b[31mexited 3" in "\n".join(pane.screen(colours=True))


@needs_tmux
@pytest.mark.parametrize("more", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.long
async def test_ls_prints_no_colours_with_no_color_or_a_dumb_terminal(tmux, user, path, more):
    await user.create("exit 3")
    await poll_state(path, "exited 3")
    env = command_environment(path)
    # tmux sets a TERM of its own.
    words = ["env", *(f"{name}={value}" for name, value in more.items()), *ACPTERM, "ls"]
    pane = tmux.pane(report_status(words), env=env)
    pane.until("ended 0")
    assert "exited 3" in pane.text
    # NO_COLOR is about colours only: bold text is still allowed.
    shown = "\n".join(pane.screen(colours=True))
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", shown)


@needs_tmux
@pytest.mark.parametrize(("key", "status"), [("C-c", 0), ("q", 0), ("C-\\", 131)])
@pytest.mark.long
async def test_ls_watch_updates_its_screen_and_restores_the_terminal_at_the_end(
    tmux, user, path, key, status
):
    pane = tmux.pane(
        report_status([*ACPTERM, "ls", "--watch"]), env=command_environment(path), size=(100, 6)
    )
    pane.until("COMMAND")
    assert pane.of("alternate_on", "cursor_flag") == ["1", "0"]
    identifier = await user.create("read x", name="mine")
    pane.until(lambda: "waits for input" in pane.text and "mine" in pane.text)
    await user.terminal_request("kill", identifier)
    pane.until("ended by")
    pane.resize(50, 6)
    pane.until(lambda: "OWNER" not in pane.text and "COMMAND" in pane.text)
    pane.type("xyz")
    for number in range(8):
        await user.create(f"exit 0; number {number}")
    # The newest is listed first.
    pane.until(lambda: "1-4 of 9" in pane.text and "mine" not in pane.text)
    pane.keys("End")
    pane.until(lambda: "6-9 of 9" in pane.text and "mine" in pane.text)
    assert "xyz" not in pane.text
    pane.keys(key)
    pane.until(f"ended {status}")
    assert pane.of("alternate_on", "cursor_flag") == ["0", "1"]
    assert pane.text == f"ended {status}"


@needs_tmux
@pytest.mark.parametrize("words", [[], ["--json"]])
@pytest.mark.long
async def test_ls_watch_ends_at_q_while_the_terminal_stops_its_output(
    tmux, user, path, tmp_path, words
):
    watch = shlex.join([*ACPTERM, "ls", "--watch", *words])
    script = f"{watch}; touch {tmp_path}/ended; exec sleep 1000"
    pane = tmux.pane(["/bin/sh", "-c", script], env=command_environment(path), size=(100, 20))
    pane.until("[]" if words else "none")
    pane.keys("C-s")
    # The command has to print the list again.
    await user.create("exit 0")
    pane.keys("x", "q")
    await poll((tmp_path / "ended").exists)


@needs_tmux
@pytest.mark.long
async def test_ls_watch_filters_rows_and_attaches_at_enter(tmux, user, path):
    await user.create("sleep 1000", name="other")
    await user.create("echo here I am; exec cat", name="mine")
    pane = tmux.pane(
        report_status([*ACPTERM, "ls", "--watch"]), env=command_environment(path), size=(100, 9)
    )
    pane.until("1-2 of 2")
    pane.type("/I AM")
    pane.until(lambda: "/I AM" in pane.text and "other" not in pane.text)
    pane.keys("Enter")
    pane.until("1-1 of 1   filter: I AM")
    pane.keys("Enter")
    pane.until(lambda: pane.text.startswith("here I am"))
    pane.line("typed")
    pane.until("typed\ntyped")
    pane.keys("C-\\")
    pane.until("mine runs on")
    pane.keys("Escape")
    pane.until("1-2 of 2")
    # The main screen still has what the last window left: wait for something new.
    assert (await run(path, "send", "mine", "again", "--enter")).status == 0
    pane.keys("k", "Enter")
    pane.until("again\nagain")
    # Ctrl-D ends the program: the last line reports its exit status.
    pane.keys("C-d")
    pane.until("mine exited with 0")
    pane.until("exited 0")
    pane.keys("q")
    pane.until("ended 0")


async def test_ls_watch_shows_why_a_terminal_cannot_be_attached(path):
    words = [*ACPTERM, "ls", "--watch"]
    assert (await run(path, "run", "-d", "--name", "outer", "--", *words)).status == 0
    await poll_command(path, lambda out: "1-1 of 1" in out, "screen", "outer")
    assert (await run(path, "send", "outer", "--enter")).status == 0
    refusal = "'outer' is the one you are in"
    await poll_command(path, lambda out: refusal in out, "screen", "outer")
    assert (await run(path, "send", "outer", "q")).status == 0
    assert (await run(path, "wait", "outer")).status == 0


@needs_tmux
@pytest.mark.parametrize("key", ["C-c", "q"])
@pytest.mark.parametrize("words", [["TERM=dumb"], ["TERM=dumb", "--json"]])
@pytest.mark.long
async def test_ls_watch_ends_at_the_same_keys_on_a_dumb_terminal(tmux, user, path, words, key):
    term, *more = words
    pane = tmux.pane(
        report_status(["env", term, *ACPTERM, "ls", "--watch", *more]),
        env=command_environment(path),
        size=(100, 20),
    )
    pane.until("[]" if more else "COMMAND")
    pane.type("xyz")
    await user.create("exit 0", name="mine")
    pane.until("mine")
    assert "xyz" not in pane.text
    pane.keys(key)
    pane.until("ended 0")


@needs_tmux
@pytest.mark.long
async def test_ls_watch_does_not_change_the_tty_as_a_background_job(tmux, path):
    pane = tmux.pane(["bash", "--norc", "--noprofile", "-m"], env=command_environment(path))
    pane.line(f"{shlex.join(ACPTERM)} ls --watch --json &")
    pane.until("[]")
    # A background job that changes the tty's settings would be stopped by SIGTTOU.
    pane.line("jobs; kill %1; wait; echo over")
    pane.until("\nover")
    assert "Running" in pane.text
    assert "Stopped" not in pane.text


async def poll_state(path: str, state: str) -> None:
    """Poll until `ls` prints a terminal in `state`."""
    await poll_command(path, lambda out: state in states(out), "ls")


async def poll_command(path: str, check: Callable[[str], bool], *words: str) -> None:
    """Run a command until `check` is true of what it prints."""
    with trio.fail_after(DEADLINE_S):
        while not check((await run(path, *words)).out):
            await trio.sleep(0.01)


async def test_ls_kill_and_wait_show_what_a_command_has_left_running(agent, path):
    terminal = await agent.create("sleep 600 & echo $!; exit 3")
    pid = (await agent.until_output(terminal, "\n")).strip()
    short = terminal[5:13]
    assert await run(path, "wait", short) == (
        3,
        "",
        (f"[1 process still running: sleep 600 (pid {pid}); to end that: acpterm kill {short}]\n"),
    )
    assert states((await run(path, "ls", "--running")).out) == ["exited 3, 1 still running"]
    state = (await run(path, "inspect", short)).out.splitlines()[2]
    assert re.fullmatch(r"state +exited 3 after \w+, 1 still running", state)
    how = f"had exited with 3 already; ended sleep 600 (pid {pid})"
    assert (await run(path, "kill", short)).out == f"{short}: {how}\n"
    assert states((await run(path, "ls")).out) == ["exited 3"]
