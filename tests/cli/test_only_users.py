"""Commands that change acpterm's or agents' settings are refused in an agent's terminal."""

import shlex
import sys

import pytest

from acpterm.pty import linux
from tests.support.agent import agent_at
from tests.support.commands import run
from tests.support.hosts import agent_here
from tests.support.user import user_terminals_at

NOWHERE = "/nowhere/agent.sock"
REFUSAL = "only the user changes these settings: ask the user to run this command"
ALLOW = ["policy", "allow", "--", "sudo"]
COMMANDS = [
    ALLOW,
    ["provider", "set", "local"],
    ["terminal", "provider", "set", "local"],
    ["setup", "codex", "--yes"],
]
WITHOUT_VARIABLES = ["env", "-u", "ACPTERM_TERMINAL_ID", "-u", "ACPTERM_DAEMON"]


@pytest.fixture
def home(tmp_path):
    """Return the environment variables of a user whose home directory is empty."""
    home = tmp_path / "home"
    home.mkdir()
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "CODEX_HOME": "",
    }


@pytest.fixture
def script(tmp_path, home):
    """Return a function that writes a script, and returns the command that runs the script.

    The script runs `acpterm`. The policy does not judge what scripts do.
    """

    def write(path, words, prefix=()):
        variables = [f"{name}={value}" for name, value in {**home, "ACPTERM_SOCKET": path}.items()]
        command = [*prefix, "env", *variables, sys.executable, "-m", "acpterm", *words]
        (tmp_path / "script").write_text(shlex.join(command))
        return f"sh {tmp_path}/script"

    return write


def written(tmp_path):
    """Return the names of the files that the commands have written."""
    return sorted(path.name for path in (tmp_path / "home").rglob("*") if path.is_file())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.long
async def test_daemon_refuses_them_in_an_agents_terminal(path, script, words, tmp_path):
    async with agent_at(path) as agent:
        output, status = await agent.run(script(path, words, WITHOUT_VARIABLES))
    assert status["exitCode"] == 1, output
    assert REFUSAL in " ".join(output.split())
    assert "you run in an agent's terminal" in " ".join(output.split())
    assert written(tmp_path) == []


@pytest.mark.long
async def test_agent_that_points_elsewhere_is_refused_by_its_marks(path, script, tmp_path):
    async with agent_at(path) as agent:
        output, status = await agent.run(script(NOWHERE, ALLOW, WITHOUT_VARIABLES))
    assert status["exitCode"] == 1, output
    assert REFUSAL in " ".join(output.split())
    assert written(tmp_path) == []


@pytest.mark.skipif(not linux.AVAILABLE, reason="requires /proc")
async def test_terminal_of_a_host_without_a_users_socket_is_refused(script, tmp_path):
    async with agent_here() as agent:
        output, status = await agent.run(script(NOWHERE, ALLOW, [*WITHOUT_VARIABLES, "setsid"]))
    assert status["exitCode"] == 1, output
    assert REFUSAL in " ".join(output.split())
    assert written(tmp_path) == []


async def test_users_own_terminal_may_run_them(path, script, tmp_path):
    async with user_terminals_at(path) as terminals:
        terminal = await terminals.create(script(path, ALLOW))
        status = await terminals.wait(terminal)
        assert status["exitCode"] == 0, await terminals.output(terminal)
    assert written(tmp_path) == ["rules.toml"]


async def test_user_may_run_them_without_a_daemon_and_none_is_started(home, tmp_path):
    path = str(tmp_path / "run" / "agent.sock")
    status, _, err = await run(path, "provider", "set", "local", **home)
    assert (status, err) == (0, "")
    assert written(tmp_path) == ["config.toml"]
    assert not (tmp_path / "run").exists()


async def test_invalid_settings_can_be_mended(path, home, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('provider = "jail"\n')
    status, _, err = await run(path, "provider", "set", "local", "--config", str(file), **home)
    assert (status, err) == (0, "")
    assert file.read_text() == 'provider = "local"\n'


@pytest.mark.long
@pytest.mark.parametrize("words", [["setup"], ["setup", "codex", "--dry-run"]], ids=" ".join)
async def test_agent_may_look_at_the_settings(path, script, words):
    async with agent_at(path) as agent:
        output, status = await agent.run(script(path, words))
    assert status["exitCode"] == 0, output
