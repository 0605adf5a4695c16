"""Terminals through the Python API, as an agent and as the user."""

import re
import subprocess
import sys

import anyio
import pytest

import acpterm
from acpterm.acp.user_api import TerminalInfo
from tests.support.backends import on_both_backends
from tests.support.depth import DEADLINE_S

ROLES = pytest.mark.parametrize("role", ["agent", "user"])


def connect(settings, role, **options):
    agent = "tests" if role == "agent" else None
    return acpterm.connect(agent=agent, settings=settings, **options)


def test_import_of_the_package_imports_no_module_of_the_api():
    code = "import acpterm, sys; print([m for m in ('anyio', 'msgspec') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


def test_every_exported_name_can_be_imported():
    assert all(getattr(acpterm, name) is not None for name in acpterm.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = acpterm.nothing


@ROLES
@on_both_backends
async def test_terminal_is_read_typed_into_and_ends(settings, role):
    async with connect(settings, role) as client:
        assert client.role == role
        terminal = await client.create(
            "printf '\\033[1mName? '; read name; echo Hello, $name; exit 3"
        )
        first = await terminal.wait_for(r"\? ", timeout=DEADLINE_S)
        assert (first.reason, first.text) == ("match", "Name? ")
        await terminal.write("Ada\n")
        ended = await terminal.wait(DEADLINE_S)
        assert (ended.code, ended.signal, ended.ended_by) == (3, None, "exited")
        assert ended.wall_seconds > 0
        rest = await terminal.read(first.position)
        assert (rest.text, rest.lost, rest.exit) == ("Ada\nHello, Ada\n", 0, ended)
        everything = await terminal.output()
        assert everything.text == "Name? Ada\nHello, Ada\n"
        assert not everything.truncated
        assert (await terminal.read_raw()).data.startswith(b"\x1b[1mName? ")
        await terminal.release()
        with pytest.raises(acpterm.RequestError, match="terminal"):
            await terminal.read()


@ROLES
@on_both_backends
async def test_kill_and_signal_end_the_program(settings, role):
    async with connect(settings, role) as client:
        one, other = await client.create("sleep 60"), await client.create("sleep", ["60"])
        await one.kill()
        await other.wait_for(idle=0.05)
        await other.signal("SIGINT")
        assert (await one.wait(DEADLINE_S)).ended_by == role
        assert (await other.wait(DEADLINE_S)).signal == "SIGINT"
        await one.release()
        await other.release()


@ROLES
@on_both_backends
async def test_wait_returns_none_at_its_timeout_and_leaves_the_program(settings, role):
    async with connect(settings, role) as client:
        terminal = await client.create("cat")
        assert await terminal.wait(0.05) is None
        await terminal.write("still here\n")
        assert (await terminal.wait_for("here\n.*here", timeout=DEADLINE_S)).reason == "match"
        await terminal.release()


@ROLES
@on_both_backends
async def test_screen_has_rows_cursor_and_a_hash(settings, role):
    async with connect(settings, role) as client:
        terminal = await client.create(
            r"printf '\033[?1049h\033[2;3H\033[31mred\033[m'; exec cat", cols=20, rows=5
        )
        await terminal.wait_for("red", timeout=DEADLINE_S)
        screen = await terminal.screen()
        assert (screen.cols, screen.lines, screen.cursor) == (20, 5, (5, 1))
        assert screen.alternate
        assert screen.rows == ["", "  red", "", "", ""]
        assert screen.text() == "\n  red"
        assert "\x1b[" in screen.styled_rows[1]
        assert screen.hash == (await terminal.screen()).hash
        await terminal.write("x")
        await terminal.wait_for("redx", timeout=DEADLINE_S)
        assert (await terminal.screen()).hash != screen.hash
        await terminal.resize(30, 6)
        assert (await terminal.screen()).cols == 30
        await terminal.release()


@ROLES
@on_both_backends
async def test_info_and_terminals_describe_the_terminal(settings, role, tmp_path):
    async with connect(settings, role, cwd=str(tmp_path)) as client:
        (tmp_path / "below").mkdir()
        terminal = await client.create("cat", name=f"described-{role}", cwd="below", cols=33)
        info = await terminal.info()
        assert isinstance(info, TerminalInfo)
        assert (info.name, info.owner, info.cols) == (f"described-{role}", role, 33)
        assert info.cwd == str(tmp_path / "below")
        assert terminal.id in [each.terminal_id for each in await client.terminals()]
        same = client.terminal(terminal.id)
        await same.write("from another object\n")
        await terminal.wait_for("object", timeout=DEADLINE_S)
        await terminal.release()


@ROLES
@on_both_backends
async def test_number_sign_in_a_name_is_the_next_number(settings, role):
    async with connect(settings, role) as client:
        first, second = [await client.create("cat", name="num-#") for _ in range(2)]
        number = int(first.name.removeprefix("num-"))
        assert second.name == f"num-{number + 1}"
        terminal = client.terminal(second.name)
        await terminal.write("by name\n")
        assert (await terminal.wait_for("by name", timeout=DEADLINE_S)).match
        await first.release()
        assert (await client.create("cat", name="num-#")).name == f"num-{number + 2}"
        for info in await client.terminals():
            await client.terminal(info.terminal_id).release()


@on_both_backends
async def test_environment_reaches_the_program(settings, monkeypatch):
    monkeypatch.setenv("OF_THE_PROCESS", "inherited")
    async with connect(settings, "agent") as client:
        terminal = await client.create("echo $OF_THE_PROCESS $ADDED", env={"ADDED": "added"})
        await terminal.wait()
        assert (await terminal.output()).text == "inherited added\n"


@on_both_backends
async def test_options_of_agents_apply_to_their_terminals(settings):
    async with connect(settings, "agent") as client:
        late = await client.create("sleep 60", timeout=0.1)
        short = await client.create("seq 1000", output_bytes=10)
        text = await client.create("echo", ["a", "&&", "$HOME"], shell=True)
        assert (await late.wait(DEADLINE_S)).ended_by == "timeout"
        await short.wait()
        for _ in range(2):
            assert await short.output() == acpterm.RetainedOutput(
                "\n999\n1000\n",
                truncated=True,
                position=4893,
                exit=await short.wait(),
                beginning="",
                total_lines=1000,
            )
        await text.wait()
        assert (await text.output()).text == "a && $HOME\n"


@on_both_backends
async def test_agents_terminals_end_with_the_block(settings, daemon):
    async with connect(settings, "agent") as client:
        terminal = await client.create("sleep 60", name="short-lived")
        pid = (await terminal.info()).pid
    with anyio.fail_after(DEADLINE_S):
        while any(info["pid"] == pid for info in daemon.request("terminal/list")["terminals"]):
            await anyio.sleep(0.005)


@on_both_backends
async def test_users_terminals_outlive_the_block(settings):
    async with connect(settings, "user") as client:
        terminal = await client.create("cat")
    async with connect(settings, "user") as client:
        again = client.terminal(terminal.id)
        assert (await again.info()).state == "running"
        await again.release()


@on_both_backends
async def test_promoted_terminal_outlives_its_agent(settings, daemon):
    async with connect(settings, "agent") as client:
        terminal = await client.create("cat")
        assert (await terminal.promote()).owner == "user"
        with pytest.raises(acpterm.RequestError, match="user"):
            await terminal.write("x")
    assert daemon.info(terminal.id)["state"] == "running"
    daemon.request("terminal/release", terminalId=terminal.id)


@on_both_backends
async def test_refused_command_is_an_error_of_its_own(settings):
    async with connect(settings, "agent", profile="pool") as client:
        with pytest.raises(acpterm.CommandRefused, match="blocked"):
            await client.create("kill 1")
        with pytest.raises(acpterm.RequestError, match="directory") as it:
            await client.create("true", cwd="/no/such/directory")
        assert not isinstance(it.value, acpterm.CommandRefused)


@on_both_backends
async def test_options_of_agents_are_refused_for_the_user(settings):
    async with connect(settings, "user") as client:
        with pytest.raises(ValueError, match="for agents"):
            await client.create("true", timeout=3)


@ROLES
@on_both_backends
async def test_exception_of_the_block_arrives_without_a_group(settings, role):
    error = LookupError("of the block")
    with pytest.raises(LookupError) as caught:
        async with connect(settings, role):
            raise error
    assert caught.value is error
    assert caught.value.__cause__ is None


@on_both_backends
async def test_bytes_are_typed(settings):
    async with connect(settings, "user") as client:
        terminal = await client.create("stty -echo raw; echo ready; head -c 2 | od -An -tx1")
        await terminal.wait_for("ready", timeout=DEADLINE_S)
        await terminal.write(b"\xff\xfe")
        await terminal.wait()
        assert "ff fe" in (await terminal.output()).text
        await terminal.release()
    async with connect(settings, "agent") as client:
        terminal = await client.create("cat")
        await terminal.write("é\n".encode())
        await terminal.wait_for("é\n", timeout=DEADLINE_S)
        with pytest.raises(ValueError, match="utf-8"):
            await terminal.write(b"\xff")


@ROLES
@on_both_backends
async def test_events_report_what_happens(settings, role):
    async with connect(settings, role) as client, client.events() as events:
        terminal = await client.create("true", name=f"eventful-{role}")
        seen = []
        with anyio.fail_after(DEADLINE_S):
            async for event in events:
                if event.terminal is not None and event.terminal.terminal_id == terminal.id:
                    seen.append(event.event)
                    if event.event == "exited":
                        break
        assert seen[0] == "created"
        await terminal.release()


@pytest.mark.long
def test_wrong_socket_is_an_error_of_the_api(tmp_path):
    async def use():
        async with acpterm.connect(socket=str(tmp_path / "none")):
            pass

    with pytest.raises(acpterm.DaemonError, match=re.escape(str(tmp_path))):
        anyio.run(use)
