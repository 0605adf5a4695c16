"""The pool tools, with the inputs and outputs that their documentation shows."""

import json

import msgspec
import pytest
import trio

from acpterm.acp.pool import HISTORY_BYTES
from acpterm.config.profiles import ProfileTable
from acpterm.mcp.pool_tools import last_bytes
from tests.support.depth import DEADLINE_S
from tests.support.mcp import Tools, mcp_tools
from tests.support.user import user_of

BLOCKED = "Command blocked for security reasons"


def pool(tmp_path, **settings):
    return mcp_tools(tmp_path, "pool", pool_profile="pool", **settings)


def pool_with_limits(**limits: float) -> dict[str, ProfileTable]:
    return {"name": msgspec.convert({"base": "pool", "limits": limits}, ProfileTable)}


async def spawn(tools: Tools, *command: str, cwd: str = "/") -> dict:
    result = await tools.call("spawn_background_terminal", cwd=cwd, command=list(command))
    assert not result.is_error, result.blocks
    entry = json.loads(result.text)
    assert entry == result.data
    return entry


async def history(tools: Tools, identifier: str, expected: str) -> dict:
    """Read a terminal until its history contains `expected`."""
    with trio.fail_after(DEADLINE_S):
        while True:
            result = await tools.call("read_terminal", terminalId=identifier)
            found = json.loads(result.text)
            if expected in found["history"]:
                return found
            await trio.sleep(0.02)


async def test_pool_has_the_five_tools(tmp_path):
    async with pool(tmp_path) as tools:
        listed = (await tools.client.list_tools()).tools
    assert [tool.name for tool in listed] == [
        "list_terminals",
        "read_terminal",
        "spawn_background_terminal",
        "promote_terminal",
        "kill_terminal",
    ]


async def test_list_terminals_of_an_empty_pool_is_an_empty_array(tmp_path):
    async with pool(tmp_path) as tools:
        result = await tools.call("list_terminals")
    assert result.blocks == ["[]"]


async def test_spawn_background_terminal_returns_the_metadata(tmp_path):
    async with pool(tmp_path) as tools:
        result = await tools.call(
            "spawn_background_terminal", cwd=str(tmp_path), command=["sleep", "60"]
        )
        listed = await tools.call("list_terminals")
    created = result.data["createdAt"]
    assert result.blocks == [
        (
            f'{{"id":"pty-1","cwd":"{tmp_path}","owner":"agent","visible":false,'
            f'"createdAt":{created},"command":["sleep","60"]}}'
        )
    ]
    assert created > 1706234567890
    assert listed.blocks == [f"[{result.text}]"]


async def test_list_terminals_shows_the_terminals_of_the_user(tmp_path):
    async with (
        pool(tmp_path, agents_read_user_terminals=True) as tools,
        user_of(tools.host) as user,
    ):
        await user.request(
            "terminal/create", {"command": "sleep 60", "name": "pty-abc123", "cwd": "/"}
        )
        result = await tools.call("list_terminals")
    created = result.data["terminals"][0]["createdAt"]
    assert result.blocks == [
        f'[{{"id":"pty-abc123","cwd":"/","owner":"user","visible":true,"createdAt":{created}}}]'
    ]


async def test_read_terminal_returns_the_history(tmp_path):
    script = "echo '$ npm run dev'; echo Server started on port 3000; sleep 60"
    async with pool(tmp_path) as tools:
        entry = await spawn(tools, "sh", "-c", script)
        found = await history(tools, entry["id"], "3000\n")
    assert found == {
        "terminalId": "pty-1",
        "history": "$ npm run dev\nServer started on port 3000\n",
    }


async def test_read_terminal_of_a_silent_terminal_is_an_empty_string(tmp_path):
    async with pool(tmp_path) as tools:
        entry = await spawn(tools, "sleep", "60")
        result = await tools.call("read_terminal", terminalId=entry["id"])
    assert result.blocks == ['{"terminalId":"pty-1","history":""}']


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("short\n", "short\n"),
        ("x" * HISTORY_BYTES, "x" * HISTORY_BYTES),
        ("x" * 10 + "\n" + "y" * HISTORY_BYTES, "y" * HISTORY_BYTES),
        ("cut\n" + "y" * (HISTORY_BYTES - 2) + "\n", "y" * (HISTORY_BYTES - 2) + "\n"),
        ("é" * HISTORY_BYTES, "é" * (HISTORY_BYTES // 2)),
        ("a" + "é" * HISTORY_BYTES + "b", "é" * (HISTORY_BYTES // 2 - 1) + "b"),
    ],
)
def test_history_is_cut_at_a_line_start_where_possible(text, expected):
    assert last_bytes(text, HISTORY_BYTES) == expected


COMMANDS = [
        ["rm", "x"], ["sudo", "ls"], ["chmod", "+x", "f"], ["chown", "me", "f"], ["mkfs", "d"],
        ["dd", "if=a"], ["fdisk", "-l"], ["shutdown"], ["reboot"], ["halt"], ["poweroff"],
        ["kill", "1"], ["killall", "x"], ["pkill", "x"], ["sh", "-c", "rm -rf /"],
        ["sh", "-c", "echo > /dev/sda"], ["sh", "-c", "curl x | sh"], ["sh", "-c", "curl x | bash"],
        ["sh", "-c", "eval x"], ["sh", "-c", "echo `id`"], ["sh", "-c", "echo $(id)"],
]  # fmt: skip


async def test_spawn_of_a_blocked_command_or_pattern_is_refused(tmp_path):
    async with pool(tmp_path) as tools:
        for command in COMMANDS:
            result = await tools.call("spawn_background_terminal", cwd="/", command=command)
            assert result.is_error, command
            assert result.blocks == [BLOCKED], command


async def test_fourth_spawn_in_a_minute_is_refused(tmp_path):
    async with pool(tmp_path) as tools:
        for _ in range(3):
            await spawn(tools, "true")
        result = await tools.call("spawn_background_terminal", cwd="/", command=["true"])
    assert result.is_error
    assert result.blocks == ["Spawn rate limit exceeded (max 3/minute)"]


async def test_sixth_terminal_at_once_is_refused(tmp_path):
    limits = pool_with_limits(starts_per_minute=100)
    async with mcp_tools(tmp_path, "pool", pool_profile="name", profiles=limits) as tools:
        for _ in range(5):
            await spawn(tools, "sleep", "60")
        result = await tools.call("spawn_background_terminal", cwd="/", command=["true"])
    assert result.is_error
    assert result.blocks == ["Maximum concurrent agent terminals reached (5)"]


async def test_promote_terminal_transfers_ownership(tmp_path):
    async with pool(tmp_path) as tools:
        entry = await spawn(tools, "sleep", "60")
        result = await tools.call("promote_terminal", terminalId=entry["id"])
        again = await tools.call("promote_terminal", terminalId=entry["id"])
        listed = await tools.call("list_terminals")
    assert result.blocks == [
        (
            f'{{"id":"pty-1","cwd":"/","owner":"user","visible":true,'
            f'"createdAt":{entry["createdAt"]},"command":["sleep","60"]}}'
        )
    ]
    assert again.blocks == result.blocks
    assert listed.blocks == [f"[{result.text}]"]


async def test_promoted_terminal_can_be_read_and_not_killed(tmp_path):
    async with pool(tmp_path) as tools:
        entry = await spawn(tools, "sh", "-c", "echo ready; sleep 60")
        await tools.call("promote_terminal", terminalId=entry["id"])
        result = await tools.call("kill_terminal", terminalId=entry["id"])
        found = await history(tools, entry["id"], "ready\n")
    assert result.is_error
    assert result.blocks == ["Cannot kill visible or user-owned terminals"]
    assert found["history"] == "ready\n"


async def test_terminal_of_the_user_cannot_be_killed(tmp_path):
    async with (
        pool(tmp_path, agents_read_user_terminals=True) as tools,
        user_of(tools.host) as user,
    ):
        created = await user.request("terminal/create", {"command": "sleep 60", "cwd": "/"})
        result = await tools.call("kill_terminal", terminalId=created["terminalId"])
        info = await user.request("terminal/get", {"terminalId": created["terminalId"]})
    assert result.is_error
    assert result.blocks == ["Cannot kill visible or user-owned terminals"]
    assert info["state"] == "running"


async def test_kill_terminal_ends_a_background_terminal(tmp_path):
    async with pool(tmp_path) as tools:
        entry = await spawn(tools, "sleep", "60")
        result = await tools.call("kill_terminal", terminalId=entry["id"])
        listed = await tools.call("list_terminals")
    assert result.blocks == ['{"terminated":true,"id":"pty-1"}']
    assert listed.blocks == ["[]"]


async def test_kill_of_a_terminal_that_does_not_exist_succeeds(tmp_path):
    async with pool(tmp_path) as tools:
        entry = await spawn(tools, "sleep", "60")
        await tools.call("kill_terminal", terminalId=entry["id"])
        again = await tools.call("kill_terminal", terminalId=entry["id"])
        result = await tools.call("kill_terminal", terminalId="pty-xyz789")
    assert again.blocks == ['{"terminated":true,"id":"pty-1"}']
    assert result.blocks == ['{"terminated":true,"id":"pty-xyz789"}']


async def test_inactive_terminal_is_closed_unless_promoted(tmp_path):
    for idle_s in (0.5, 5.0):
        limits = pool_with_limits(idle=idle_s)
        async with mcp_tools(tmp_path, "pool", pool_profile="name", profiles=limits) as tools:
            # Unless promoted, the first one would be closed first.
            kept = await spawn(tools, "sleep", "60")
            await tools.call("promote_terminal", terminalId=kept["id"])
            other = await spawn(tools, "sleep", "60")
            found = [kept["id"], other["id"]]
            with trio.fail_after(DEADLINE_S):
                while other["id"] in found:
                    await trio.sleep(0.05)
                    listed = await tools.call("list_terminals")
                    found = [entry["id"] for entry in listed.data["terminals"]]
        # On a busy machine, the shorter time may be over before the promotion.
        if found:
            break
    assert found == [kept["id"]]


async def test_terminal_of_the_user_is_found_by_its_name(tmp_path):
    async with (
        pool(tmp_path, agents_read_user_terminals=True) as tools,
        user_of(tools.host) as user,
    ):
        script = "echo ready; sleep 60"
        await user.request("terminal/create", {"command": script, "name": "pty-u", "cwd": "/"})
        killed = await tools.call("kill_terminal", terminalId="pty-u")
        await history(tools, "pty-u", "ready\n")
    assert killed.is_error
    assert killed.blocks == ["Cannot kill visible or user-owned terminals"]


async def test_terminal_of_the_user_that_agents_may_not_read_seems_not_to_exist(tmp_path):
    async with pool(tmp_path) as tools, user_of(tools.host) as user:
        params = {"command": "sleep 60", "name": "pty-u", "cwd": "/"}
        created = await user.request("terminal/create", params)
        by_name = await tools.call("kill_terminal", terminalId="pty-u")
        by_id = await tools.call("kill_terminal", terminalId=created["terminalId"])
        info = await user.request("terminal/get", {"terminalId": created["terminalId"]})
    assert by_name.blocks == ['{"terminated":true,"id":"pty-u"}']
    assert by_id.data["terminated"]
    assert info["state"] == "running"


async def test_repeated_kill_ends_no_later_terminal(tmp_path):
    async with pool(tmp_path, keep_released=0) as tools:
        first = await spawn(tools, "sleep", "600")
        await tools.call("kill_terminal", terminalId=first["id"])
        second = await spawn(tools, "sleep", "600")
        await tools.call("kill_terminal", terminalId=first["id"])
        listed = json.loads((await tools.call("list_terminals")).text)
    assert [entry["id"] for entry in listed] == [second["id"]]
