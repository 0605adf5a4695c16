"""What a host records in the audit log."""

import json

import msgspec
import pytest

from acpterm.config import Settings
from acpterm.config.profiles import Limits, ProfileTable
from acpterm.host.audit_trail import COMMAND_CHARS_MAX
from acpterm.host.daemon_state import DaemonInfo
from acpterm.host.open_host import open_host
from acpterm.jsonrpc import RpcError
from acpterm.runtime.exec_context import current
from tests.support.agent import agent_of
from tests.support.user import user_of


@pytest.fixture
def settings(tmp_path):
    return Settings(audit_dir=str(tmp_path / "audit"))


@pytest.fixture
def recorded(tmp_path):
    """Return a function that returns the entries of the audit log about one kind of event."""

    def entries(event):
        log = (tmp_path / "audit" / "audit.jsonl").read_text()
        found = [json.loads(line) for line in log.splitlines()]
        return [entry for entry in found if entry["event"] == event]

    return entries


async def test_exit_of_a_forgotten_terminal_is_recorded(settings, recorded):
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        terminal = await agent.create("exec sleep 60")
        await agent.release(terminal)
        assert host.terminals.registry.get(terminal) is None
    (entry,) = recorded("exit")
    assert (entry["terminal"], entry["endedBy"]) == (terminal, "agent")


async def test_exit_names_the_limit_that_has_ended_the_program(settings, recorded):
    profiles = {"short": ProfileTable(limits=Limits(wall=0.2))}
    settings = msgspec.structs.replace(settings, profile="short", profiles=profiles)
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        await agent.wait(await agent.create("exec sleep 60"))
    (entry,) = recorded("exit")
    assert (entry["endedBy"], entry["limit"]) == ("timeout", "wall")


async def test_input_is_recorded_with_the_agent_and_its_session(settings, recorded):
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        await agent.initialize()
        await agent.type(await agent.create("exec cat"), "x\n")
    (entry,) = recorded("input")
    assert entry["agent"] == "tester"
    assert entry["session"] == agent.session
    assert entry["connection"] == "c1"


async def test_what_a_window_sends_by_itself_is_not_typed_by_the_user(settings, recorded):
    params = {"command": "stty raw; exec cat", "cwd": "/"}
    async with open_host(settings, current()) as host, user_of(host) as user:
        terminal = (await user.request("terminal/create", params))["terminalId"]
        for data in "\x1b[I", "\x1b[O", "\x1b[?62;22c", "\x1b[>1;10;0c", "\x1b[24;80R", "\x1b[0n":
            await user.terminal_request("write", terminal, data=data)
        await user.terminal_request("write", terminal, data="\x1b]11;rgb:0/0/0\x1b\\\x1b[I")
        # A key, and F3 with a modifier.
        await user.terminal_request("write", terminal, data="\x1b[A\x1b[I")
        await user.terminal_request("write", terminal, data="\x1b[1;2R")
        # No answer of a window has a line, which a shell would execute.
        await user.terminal_request("write", terminal, data="\x1b]x\nrm x\n\a")
    assert [(entry["by"], entry["bytes"]) for entry in recorded("input")] == [("user", 22)]


async def test_create_and_restart_by_the_user_are_recorded_with_their_arguments(
    settings, recorded, tmp_path
):
    params = {"command": "echo", "args": ["--password=hunter2", "x"], "cwd": str(tmp_path)}
    async with open_host(settings, current()) as host, user_of(host) as user:
        terminal = await user.request("terminal/create", params)
        await user.terminal_request("restart", terminal["terminalId"])
    created, restarted = recorded("create")
    for entry in (created, restarted):
        assert (entry["by"], entry["command"], entry["args"][1]) == ("user", "echo", "x")
        assert "hunter2" not in entry["args"][0]
        assert (entry["directory"], entry["provider"]) == (str(tmp_path), "local")


async def test_variables_that_change_what_is_executed_are_recorded(settings, recorded):
    env = {"PATH": "/x:/usr/bin:/bin", "FOO": "1", "GIT_DIR": "y" * COMMAND_CHARS_MAX}
    values = [{"name": name, "value": value} for name, value in env.items()]
    async with open_host(settings, current()) as host, agent_of(host) as agent:
        await agent.create("true", env=values)
        await agent.create("true")
    first, second = recorded("create")
    assert first["variables"] == ["PATH=/x:/usr/bin:/bin", "…"]
    assert "variables" not in second


async def test_long_command_is_cut_before_a_word_and_not_within_a_secret(
    settings, recorded, tmp_path
):
    before = "true ".ljust(COMMAND_CHARS_MAX - 20, "x")
    params = {"command": f"{before} --password=hunter2-{'y' * 100}", "cwd": str(tmp_path)}
    async with (
        open_host(settings, current()) as host,
        user_of(host) as user,
        agent_of(host) as agent,
    ):
        await user.request("terminal/create", params)
        await agent.create(**params)
        await agent.create("true", args=[before, f"--password=hunter2-{'y' * 100}"])
    lines, args = recorded("create")[:2], recorded("create")[2]["args"]
    assert [entry["command"] for entry in lines] == [f"{before} …"] * 2
    assert args == [before, "…"]


async def test_restart_leaves_the_program_running_when_its_provider_cannot_be_used():
    async with open_host(Settings(), current()) as host, user_of(host) as user:
        await user.request("terminal/create", {"command": "exec sleep 60"})
        (entry,) = host.terminals.registry
        entry.record.provider = "podman"
        with pytest.raises(RpcError, match="set the setting image"):
            await user.terminal_request("restart", entry.id)
        assert entry.record.killed_by is None
        assert [*host.terminals.registry.running] == [entry]


def test_sandboxes_hide_the_audit_log_the_rules_and_the_log_of_the_daemon():
    settings = Settings(audit_dir="/a", rules="/r/rules.toml", record_dir="/c")
    hidden = DaemonInfo("/s/agent.sock", "/s/user.sock").own_paths(settings)
    assert {"/a", "/r/rules.toml", "/c", "/s/agent.sock.log", "/s/user.sock"} <= {*hidden}
