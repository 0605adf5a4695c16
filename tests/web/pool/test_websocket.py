"""The WebSocket of a PTY pool: attach, type, resize, exit, errors, events, slow clients."""

import pytest
import trio

from acpterm.acp.pool import HISTORY_BYTES
from acpterm.host.user.attach import BEHIND_BYTES
from tests.support.agent import agent_of
from tests.support.hosts import host_here
from tests.support.polling import poll
from tests.support.pool_client import pool_client
from tests.support.user import UserTerminals, user_of

# A program that prints a line when it has read one.
ECHO = ["-c", "stty -echo; echo ready; while read -r line; do echo got:$line; done"]


async def users_terminal(user, *args, name=None, **more):
    """Create a terminal of the user that runs sh; return its id."""
    params = {"command": "/bin/sh", "args": list(args), "name": name, **more}
    return (await user.request("terminal/create", params))["terminalId"]


async def test_client_attaches_types_and_sees_the_output_and_the_exit():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        await users_terminal(user, *ECHO, name="pty-1")
        await pool.until_event("created")
        history = await pool.attach("pty-1")
        if "ready" not in history:
            await pool.until_data("ready\r\n")
        await pool.send("pty:input", "pty-1", data="one\n")
        assert await pool.until_data("got:one\r\n")
        await pool.send("pty:input", "pty-1", data="\x04")
        exited = await pool.until_type("pty:exit")
    assert exited == {"type": "pty:exit", "id": "pty-1", "exitCode": 0}


async def test_history_and_output_have_each_byte_once():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        terminal = await users_terminal(
            user, "-c", "i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done"
        )
        found = await pool.attach(terminal)
        await pool.until_type("pty:exit")
        found += "".join(m["data"] for m in pool.skipped if m["type"] == "pty:output")
    assert found == "".join(f"{i}\r\n" for i in range(2000))


async def test_exit_code_of_a_program_that_a_signal_ended_is_128_and_its_number():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        terminal = await users_terminal(user, "-c", "echo on; kill -9 $$")
        await pool.attach(terminal)
        assert (await pool.until_type("pty:exit"))["exitCode"] == 137


async def test_client_that_attaches_after_the_end_gets_the_history_and_the_exit():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        terminal = await users_terminal(user, "-c", "echo last words; exit 3")
        await user.terminal_request("wait", terminal)
        assert await pool.attach(terminal) == "last words\r\n"
        assert (await pool.until_type("pty:exit"))["exitCode"] == 3


async def test_history_of_a_silent_terminal_is_empty():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        assert await pool.attach(await users_terminal(user, "-c", "read x")) == ""


async def test_history_is_the_last_64_kib_from_the_start_of_a_line():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        script = "i=10000; while [ $i -lt 30000 ]; do echo $i; i=$((i+1)); done; read x"
        terminal = await users_terminal(user, "-c", script)
        await UserTerminals(user).until_output(terminal, "29999\n")
        history = await pool.attach(terminal)
    lines = history.split("\r\n")
    assert lines[:-1] == [str(i) for i in range(30000 - len(lines) + 1, 30000)]
    assert HISTORY_BYTES - 7 < len(history) <= HISTORY_BYTES
    # The modes that follow show nothing.
    assert lines[-1].startswith("\x1b")


async def test_history_of_a_full_screen_program_is_its_screen():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        script = (
            "echo before; printf '\\033[?1049h\\033[2J\\033[5;5Hfive'; "
            "head -c 100000 /dev/zero | tr '\\0' '\\a'; printf '\\033[6;6Hsix'; read x"
        )
        terminal = await users_terminal(user, "-c", script)
        await UserTerminals(user).until_output(terminal, "six")
        history = await pool.attach(terminal)
    assert "before" in history
    assert "\x1b[?1049h" in history
    assert history.index("\x1b[?1049h\x1b[<9u") < history.index("five") < history.index("six")
    assert len(history) < 20_000


async def test_queries_of_a_program_do_not_reach_the_browser():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        first = r"printf 'a\033[cb\033]52;c;c2VjcmV0\ac'; read x"
        second = r"printf 'd\033[6ne\033[>qf'; read x"
        terminal = await users_terminal(user, "-c", f"stty -echo; {first}; {second}")
        history = await pool.attach(terminal)
        if history != "abc":
            assert history + await pool.until_data("c") == "abc"
        await pool.send("pty:input", terminal, data="\n")
        assert await pool.until_data("f") == "def"


async def test_character_that_is_printed_in_two_parts_is_sent_whole():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        script = "stty -echo; printf 'a\\303'; read x; printf '\\251b'; read x"
        terminal = await users_terminal(user, "-c", script)
        await UserTerminals(user).until_output(terminal, "a")
        history = await pool.attach(terminal)
        await pool.send("pty:input", terminal, data="\n")
        assert history + await pool.until_data("b") == "a\u00e9b"


async def test_detached_client_gets_no_more_output():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        terminal = await users_terminal(user, *ECHO)
        await pool.attach(terminal)
        await pool.send("pty:detach", terminal)
        await pool.send("pty:detach", terminal)
        await pool.send("pty:input", terminal, data="one\n")
        await pool.until(lambda message: "got:one" in message.get("output", ""))
        assert "got:one" in await pool.attach(terminal)
    assert not any("got" in m.get("data", "") for m in pool.skipped)


async def test_second_attach_sends_the_history_again_and_output_once():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        terminal = await users_terminal(user, *ECHO)
        await UserTerminals(user).until_output(terminal, "ready\n")
        assert await pool.attach(terminal) == await pool.attach(terminal) == "ready\r\n"
        await pool.send("pty:input", terminal, data="one\n")
        await pool.send("pty:input", terminal, data="\x04")
        await pool.until_type("pty:exit")
    output = "".join(m["data"] for m in pool.skipped if m["type"] == "pty:output")
    assert output == "got:one\r\n"


async def test_terminal_of_an_agent_can_be_seen_and_not_typed_into():
    async with host_here() as host, agent_of(host) as agent, pool_client(host) as pool:
        terminal = await agent.create("read x && echo got:$x")
        await pool.attach(terminal)
        await pool.send("pty:input", terminal, data="one\n")
        error = await pool.until_type("pty:error")
        entry = host.terminals.registry.find(terminal)
        assert entry.terminal.ring.end == 0
        host.terminals.registry.promote(entry)
        await pool.send("pty:input", terminal, data="two\n")
        await pool.until_data("got:two")
    assert error == {
        "type": "pty:error",
        "id": terminal,
        "error": "This terminal is an agent's: promote it to type into it",
    }


async def test_resize_changes_the_size():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        terminal = await users_terminal(user, "-c", "read x; stty size; read x")
        await pool.attach(terminal)
        await pool.send("pty:resize", terminal, cols=100, rows=30)
        await pool.send("pty:input", terminal, data="\n")
        assert "30 100" in await pool.until_data("30 100")


@pytest.mark.parametrize(("cols", "rows"), [(1_000_000, 24), (80, 1_000_000), (0, 24), (80, 0)])
async def test_resize_to_an_impossible_size_is_an_error_and_changes_nothing(cols, rows):
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        terminal = await users_terminal(user, "-c", "read x")
        await pool.send("pty:resize", terminal, cols=cols, rows=rows)
        error = await pool.until_type("pty:error")
        info = await user.request("terminal/get", {"terminalId": terminal})
    assert error["id"] == terminal
    assert "must be an integer" in error["error"]
    assert (info["cols"], info["rows"]) == (200, 40)


@pytest.mark.parametrize("kind", ["pty:attach", "pty:detach", "pty:input", "pty:resize"])
@pytest.mark.parametrize("identifier", ["pty-9", "", "@last", "term_", "t"])
async def test_unknown_id_is_the_error_of_the_document(kind, identifier):
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        await users_terminal(user, "-c", "read x", name="tty")
        more = {"pty:input": {"data": "x"}, "pty:resize": {"cols": 80, "rows": 24}}.get(kind, {})
        await pool.send(kind, identifier, **more)
        error = await pool.until_type("pty:error")
    assert error == {"type": "pty:error", "id": identifier, "error": "Session not found"}


async def test_socket_lives_on_after_messages_that_are_not_valid():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        terminal = await users_terminal(user, *ECHO)
        for frame in ("", "{", "[]", "null", b"\x00\xff", '{"type": "pty:none"}', "{}"):
            await pool.socket.put(frame)
            assert (await pool.until_type("pty:error"))["id"] == ""
        await pool.send("pty:input", terminal, data="one\n")
        await pool.until(lambda message: "got:one" in message.get("output", ""))


async def test_input_that_no_program_reads_is_an_error_when_the_queue_is_full():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        terminal = await users_terminal(user, "-c", "stty raw -echo; echo raw; sleep 60")
        await UserTerminals(user).until_output(terminal, "raw")
        async with trio.open_nursery() as nursery:

            async def type_on():
                while True:
                    await pool.send("pty:input", terminal, data="x" * 500_000)

            nursery.start_soon(type_on)
            error = await pool.until_type("pty:error")
            nursery.cancel_scope.cancel()
    assert "does not read its input" in error["error"]


async def test_slow_client_costs_one_message_and_is_sent_a_history_in_place_of_what_it_missed():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        script = "read x; yes 0123456789 | head -c 800000; echo the end; read x"
        terminal = await users_terminal(user, "-c", f"stty -echo; {script}", name="flood")
        await pool.attach("flood")
        await user.terminal_request("write", terminal, data="\n")
        await UserTerminals(user).until_output(terminal, "the end")
        entry = host.terminals.registry.find(terminal)
        assert entry.terminal.ring.end > BEHIND_BYTES + 100_000
        history = ""
        sent = 0
        while "the end" not in history:
            message = await pool.until(lambda message: message["type"].startswith("pty:"))
            sent += len(message.get("data", ""))
            history = message.get("history", "")
    assert history.startswith("\x1bc")
    assert len(history) < HISTORY_BYTES + 1000
    assert sent <= 64 * 1024 + BEHIND_BYTES
    # Escaped as JSON, a byte of output takes at most six.
    assert pool.socket.largest < 6 * HISTORY_BYTES


async def test_lost_connection_ends_all_tasks():
    async with host_here() as host, user_of(host) as user:
        terminal = await users_terminal(user, *ECHO)
        with trio.fail_after(10):
            async with pool_client(host) as pool:
                await pool.attach(terminal)
                pool.socket.is_broken = True
                await user.terminal_request("write", terminal, data="one\n")
                await poll(lambda: not host.terminals.events.has_subscribers)


async def test_closed_socket_leaves_the_terminals():
    async with host_here() as host, user_of(host) as user:
        terminal = await users_terminal(user, *ECHO)
        async with pool_client(host) as pool:
            await pool.attach(terminal)
            await pool.socket.put(None)
            await poll(lambda: not host.terminals.events.has_subscribers)
        async with pool_client(host) as pool:
            await pool.send("pty:input", terminal, data="one\n")
            await pool.until(lambda message: "got:one" in message.get("output", ""))


async def test_host_is_needed_while_a_client_is_connected():
    async with host_here() as host:
        assert not host.is_needed()
        async with pool_client(host) as pool:
            await pool.send("pty:attach", "none")
            await pool.until_type("pty:error")
            assert host.is_needed()
        assert not host.is_needed()
