"""`acpterm setup`: it shows the change, asks, and writes."""

import json
import os
import pty

import pytest

from tests.support.commands import command_environment, run
from tests.support.polling import poll
from tests.support.starting import start

NOWHERE = "/nowhere/agent.sock"


@pytest.fixture
def env(tmp_path):
    """The environment of a user whose home directory is empty."""
    home = tmp_path / "home"
    home.mkdir()
    return {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "CLAUDE_CONFIG_DIR": "",
        "CODEX_HOME": "",
    }


async def test_dry_run_shows_the_change_and_writes_nothing(env, tmp_path):
    status, out, err = await run(NOWHERE, "setup", "codex", "--dry-run", **env)
    assert (status, err) == (0, "")
    assert "+[mcp_servers.acpterm]" in out
    assert list((tmp_path / "home").iterdir()) == []


async def test_change_without_a_terminal_needs_yes(env, tmp_path):
    status, out, err = await run(NOWHERE, "setup", "claude", **env)
    assert status == 1
    assert '"acpterm": {' in out
    assert "--yes" in err
    assert list((tmp_path / "home").iterdir()) == []


async def test_setup_and_undo(env, tmp_path):
    file = tmp_path / "home" / ".claude.json"
    file.write_text('{\n  "numStartups": 3\n}\n')
    status, out, _ = await run(NOWHERE, "setup", "claude", "--yes", "--tools", "claude", **env)
    assert status == 0
    assert "Wrote" in out
    entry = json.loads(file.read_text())["mcpServers"]["acpterm"]
    assert entry["args"][-3:] == ["mcp", "--tools", "claude"]
    status, out, _ = await run(NOWHERE, "setup", "claude", **env)
    assert status == 0
    assert "is set up already" in out
    status, out, _ = await run(NOWHERE, "setup", "--json", **env)
    assert json.loads(out)[0]["parts"] == ["mcp"]
    status, out, _ = await run(NOWHERE, "setup", "claude", "--undo", "--yes", **env)
    assert status == 0
    assert file.read_text() == '{\n  "numStartups": 3\n}\n'
    status, out, _ = await run(NOWHERE, "setup", "claude", "--undo", **env)
    assert "is not set up" in out


@pytest.mark.parametrize(
    ("agent", "advice"), [("codex", 'approval_policy "never"'), ("gemini", "/permissions")]
)
async def test_setup_says_what_the_agent_needs_besides(env, agent, advice):
    status, out, _ = await run(NOWHERE, "setup", agent, "--yes", **env)
    assert status == 0
    assert advice in out


async def test_question_is_answered_on_the_terminal(env, tmp_path):
    file = tmp_path / "home" / ".codex" / "config.toml"
    for answer, status in ((b"n\n", 1), (b"y\n", 0)):
        master, slave = pty.openpty()
        environment = command_environment(NOWHERE, **env, TERM="xterm")
        process = start(
            ["setup", "codex"], env=environment, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        try:
            os.set_blocking(master, False)
            shown = bytearray()

            def asks(shown=shown, master=master):
                try:
                    shown.extend(os.read(master, 65536))
                except BlockingIOError:
                    return False
                return b"[y/N]" in shown

            await poll(asks)
            assert b"\x1b[32m+[mcp_servers.acpterm]" in shown
            assert not file.exists()
            os.write(master, answer)
            await poll(lambda process=process: process.poll() is not None)
        finally:
            process.kill()
            process.wait()
            os.close(master)
        assert process.returncode == status
        assert file.exists() == (status == 0)


async def test_skill_is_installed_for_all_agents_that_are_there(env, tmp_path):
    home = tmp_path / "home"
    (home / ".codex").mkdir()
    (home / ".cursor").mkdir()
    status, out, _ = await run(NOWHERE, "setup", "--skill", "--yes", **env)
    assert status == 0
    assert "Codex, Cursor" in out
    assert (home / ".agents" / "skills" / "acpterm" / "SKILL.md").exists()
    assert not (home / ".claude").exists()
    status, _, _ = await run(NOWHERE, "setup", "--skill", "--undo", "--yes", **env)
    assert not (home / ".agents").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--undo"], "say which AGENT"),
        (["--proxy", "--skill", "zed"], "run the command twice"),
        (["--tools", "pool", "--undo", "codex"], "--tools is for the MCP entry"),
        (["vim"], "'vim' is not one of"),
    ],
)
async def test_options_that_do_not_go_together(env, words, message):
    status, _, err = await run(NOWHERE, "setup", *words, **env)
    assert status == 2
    assert message in err


async def test_skill_for_no_installed_agent_is_an_error(env, tmp_path):
    status, _, err = await run(NOWHERE, "setup", "--skill", "--yes", **env)
    assert status == 1
    assert "none of the agents is installed" in err


async def test_text_in_settings_cannot_control_the_terminal(env, tmp_path):
    file = tmp_path / "home" / ".claude.json"
    file.write_text('{\n  "a": "\x9b2J\u202e"\n}\n')
    _, out, _ = await run(NOWHERE, "setup", "claude", "--dry-run", **env)
    assert "acpterm" in out
    assert "\x9b" not in out
    assert "\u202e" not in out
