"""Each agent's settings: a realistic file, and what setup makes of it, byte for byte."""

import sys
from pathlib import Path

import pytest

from acpterm.cli.setup import command
from acpterm.setup.agents import AGENTS
from acpterm.setup.files import SetupError
from acpterm.setup.targets import overview, proxy_target
from tests.setup.conftest import agent, program, server

# For each agent: its settings file in the home directory, contents, and the contents after setup.
FORMATS = {
    "claude": (
        ".claude.json",
        """\
{
  "numStartups": 12,
  "mcpServers": {
    "github": {
      "type": "http",
      "url": "https://example.com/mcp"
    }
  },
  "projects": {
    "/home/me/src": {
      "mcpServers": {}
    }
  }
}""",
        """\
{
  "numStartups": 12,
  "mcpServers": {
    "github": {
      "type": "http",
      "url": "https://example.com/mcp"
    },
    "acpterm": {
      "type": "stdio",
      "command": "acpterm",
      "args": [
        "mcp"
      ],
      "env": {},
      "alwaysLoad": true
    }
  },
  "projects": {
    "/home/me/src": {
      "mcpServers": {}
    }
  }
}""",
    ),
    "codex": (
        ".codex/config.toml",
        """\
model = "gpt-5"   # the large one
approval_policy = "on-request"

[mcp_servers.docs]
command = "npx"
args = ["-y", "docs-mcp"]

[mcp_servers.docs.env]
TOKEN = "x"

[projects."/home/me/src"]
trust_level = "trusted"
""",
        """\
model = "gpt-5"   # the large one
approval_policy = "on-request"

[mcp_servers.docs]
command = "npx"
args = ["-y", "docs-mcp"]

[mcp_servers.docs.env]
TOKEN = "x"

[projects."/home/me/src"]
trust_level = "trusted"

[mcp_servers.acpterm]
command = "acpterm"
args = ["mcp"]
required = true
""",
    ),
    "gemini": (
        ".gemini/settings.json",
        """\
{
\t"theme": "Default", // dark
\t"mcpServers": {
\t\t"files": { "command": "npx", "args": ["files"] } // keep
\t\t// "old": {}
\t}
}
""",
        """\
{
\t"theme": "Default", // dark
\t"mcpServers": {
\t\t"files": { "command": "npx", "args": ["files"] }, // keep
\t\t"acpterm": {
\t\t\t"command": "acpterm",
\t\t\t"args": [
\t\t\t\t"mcp"
\t\t\t]
\t\t}
\t\t// "old": {}
\t}
}
""",
    ),
    "opencode": (
        ".config/opencode/opencode.jsonc",
        """\
// OpenCode
{
    "$schema": "https://opencode.ai/config.json",
    /* servers,
       all local */
    "mcp": {
        "docs": {"type": "local", "command": ["docs"], "enabled": false},
    },
    "theme": "system",
}
""",
        """\
// OpenCode
{
    "$schema": "https://opencode.ai/config.json",
    /* servers,
       all local */
    "mcp": {
        "docs": {"type": "local", "command": ["docs"], "enabled": false},
        "acpterm": {
            "type": "local",
            "command": [
                "acpterm",
                "mcp"
            ],
            "enabled": true
        },
    },
    "theme": "system",
}
""",
    ),
    "copilot": (
        ".copilot/mcp-config.json",
        '{"mcpServers":{"docs":{"type":"local","command":"docs","args":[],"tools":["*"]}}}',
        (
            '{"mcpServers":{"docs":{"type":"local","command":"docs","args":[],"tools":["*"]},'
            '"acpterm":{"type":"local","command":"acpterm","args":["mcp"],"tools":["*"]}}}'
        ),
    ),
    "cursor": (
        ".cursor/mcp.json",
        '{\r\n  "mcpServers": {}\r\n}\r\n',
        (
            '{\r\n  "mcpServers": {\r\n    "acpterm": {\r\n      "type": "stdio",\r\n'
            '      "command": "HOME/bin/acpterm",\r\n'
            '      "args": [\r\n        "mcp"\r\n      ],\r\n'
            '      "env": {}\r\n    }\r\n  }\r\n}\r\n'
        ),
    ),
    "zed": (
        ".config/zed/settings.json",
        """\
// Zed settings
//
// For information on how to configure Zed, see the Zed documentation
{
  "theme": { "mode": "system", "light": "One Light" },
  "vim_mode": true
}
""",
        """\
// Zed settings
//
// For information on how to configure Zed, see the Zed documentation
{
  "theme": { "mode": "system", "light": "One Light" },
  "vim_mode": true,
  "context_servers": {
    "acpterm": {
      "command": "HOME/bin/acpterm",
      "args": [
        "mcp"
      ],
      "env": {}
    }
  }
}
""",
    ),
}


def content_of(target):
    return Path(target.path).read_bytes()


def test_each_agent_has_a_format_and_is_a_choice_of_the_command():
    names = [agent.name for agent in AGENTS]
    assert list(FORMATS) == names
    assert list(command.params[0].type.choices) == names


@pytest.mark.parametrize("name", FORMATS)
def test_entry_is_added_and_undo_restores_the_file(home, setup, name):
    path, before, after = FORMATS[name]
    file = home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(before.encode())
    setup.write(server(name))
    assert file.read_bytes().decode() == after.replace("HOME", str(home))
    assert not setup.write(server(name)).is_needed, "it is set up already"
    setup.undo(server(name))
    assert file.read_bytes().decode() == before
    assert not setup.undo(server(name)).is_needed


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xef\xbb\xbf", b"  "])
def test_missing_or_empty_file_gets_the_entry_and_undo_restores_it(home, setup, name, content):
    target = server(name)
    directory = home / target.path.removeprefix(f"{home}/").split("/")[0]
    if content is not None:
        file = home / target.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    setup.write(target)
    assert len(server(name).own(content_of(target))) == 1
    setup.undo(target)
    if content is None:
        assert not directory.exists(), "the directories that setup has created remain"
    else:
        assert file.read_bytes() == content


@pytest.mark.parametrize("name", FORMATS)
def test_undo_removes_only_the_entry_from_a_file_that_was_written_since(home, setup, name):
    path, before, _ = FORMATS[name]
    file = home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(before.encode())
    setup.write(server(name))
    # The agent has changed another setting, and written the rest as it was.
    extra = b"# more\n" if name == "codex" else b" "
    file.write_bytes(file.read_bytes() + extra)
    setup.undo(server(name))
    left = file.read_bytes().decode()
    assert "acpterm" not in left
    if name != "codex":  # an empty line remains
        assert left == before + extra.decode()


def test_undo_leaves_a_comment_in_an_object_that_setup_created(home, setup):
    file = home / ".config" / "zed" / "settings.json"
    file.parent.mkdir(parents=True)
    file.write_text('{\n  "vim_mode": true\n}\n')
    setup.write(server("zed"))
    opening = '"context_servers": {'
    file.write_text(file.read_text().replace(opening, f"{opening} // mine"))
    setup.undo(server("zed"))
    assert file.read_text() == ('{\n  "vim_mode": true,\n  "context_servers": { // mine\n  }\n}\n')
    setup.write(server("zed"))


@pytest.mark.parametrize("name", FORMATS)
def test_undo_leaves_an_entry_of_another_program(home, setup, name):
    path, _, after = FORMATS[name]
    file = home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    foreign = after.replace('"HOME/bin/acpterm"', '"other"').replace('"acpterm",', '"other",')
    foreign = foreign.replace('command = "acpterm"', 'command = "other"')
    assert "other" in foreign
    file.write_bytes(foreign.encode())
    assert not setup.undo(server(name)).is_needed
    with pytest.raises(SetupError, match="does not run acpterm"):
        setup.write(server(name))
    assert file.read_bytes().decode() == foreign


def test_tools_are_written_and_kept_by_a_second_setup(home, setup):
    setup.write(server("gemini", "pool"))
    file = home / ".gemini" / "settings.json"
    assert '"--tools",\n        "pool"' in file.read_text()
    assert not setup.write(server("gemini")).is_needed
    setup.write(server("gemini", "session"))
    assert "pool" not in file.read_text()
    setup.undo(server("gemini"))
    assert not file.exists()


def test_second_setup_keeps_what_the_user_added_to_the_entry(home, setup):
    file = home / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_text(
        '{"mcpServers": {"acpterm": {"command": "/old/acpterm", "args": ["mcp"], '
        '"env": {"A": "b"}, "trust": true}}}'
    )
    setup.write(server("gemini", "codex"))
    assert file.read_text() == (
        '{"mcpServers": {"acpterm": {"command": "acpterm", "args": ["mcp", "--tools", "codex"], '
        '"env": {"A": "b"}, "trust": true}}}'
    )


@pytest.mark.parametrize("name", ["codex", "copilot", "cursor"])
def test_agent_that_clears_the_environment_gets_what_decides_on_the_daemon(
    home, setup, monkeypatch, name
):
    monkeypatch.setenv("ACPTERM_SOCKET", "/run/acpterm/me/agent.sock")
    target = server(name)
    setup.write(target)
    [entry] = target.own(content_of(target)).values()
    assert entry["env"] == {"ACPTERM_SOCKET": "/run/acpterm/me/agent.sock"}


def test_command_is_its_path_if_the_name_is_not_on_the_path(home, setup, monkeypatch):
    elsewhere = program(home / "venv" / "bin" / "acpterm")
    monkeypatch.setattr(sys, "argv", [str(elsewhere)])
    setup.write(server("claude"))
    assert f'"command": "{elsewhere}"' in (home / ".claude.json").read_text()


def test_command_ignores_an_activated_virtual_environment(home, setup, monkeypatch):
    venv = program(home / "venv" / "bin" / "acpterm").parent
    monkeypatch.setattr(sys, "argv", [str(venv / "acpterm")])
    monkeypatch.setenv("PATH", f"{venv}:/bin")
    monkeypatch.setenv("VIRTUAL_ENV", str(home / "venv"))
    setup.write(server("claude"))
    assert f'"command": "{venv}/acpterm"' in (home / ".claude.json").read_text()


def test_command_is_the_link_on_the_path_rather_than_its_target(home, setup, monkeypatch):
    real = program(home / "pipx" / "acpterm")
    (home / "bin" / "acpterm").unlink()
    (home / "bin" / "acpterm").symlink_to(real)
    monkeypatch.setattr(sys, "argv", [str(real)])
    setup.write(server("zed"))
    assert str(home / "bin" / "acpterm") in (home / ".config/zed/settings.json").read_text()


def test_command_without_a_file_on_the_path_runs_the_module(home, setup, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/lib/acpterm/acpterm/__main__.py"])
    (home / "bin" / "acpterm").unlink()
    setup.write(server("opencode"))
    target = server("opencode")
    [entry] = target.own(content_of(target)).values()
    assert entry["command"] == [sys.executable, "-P", "-m", "acpterm", "mcp"]


def test_proxy_adds_the_installed_agents_to_zed(home, setup):
    program(home / "bin" / "gemini")
    program(home / "bin" / "codex-acp")
    file = home / ".config" / "zed" / "settings.json"
    file.parent.mkdir(parents=True)
    before = (
        '{\n  "agent_servers": {\n    "Mine": {"type": "custom", "command": "x"} // me\n  }\n}\n'
    )
    file.write_text(before)
    zed = agent("zed")
    setup.write(proxy_target(zed))
    [codex, gemini] = proxy_target(zed).own(file.read_bytes()).items()
    assert codex[0] == ("agent_servers", "Codex (acpterm)")
    assert gemini[1] == {
        "type": "custom",
        "command": str(home / "bin" / "acpterm"),
        "args": ["proxy", "--terminals", "ours", "--", str(home / "bin" / "gemini"), "--acp"],
        "env": {},
    }
    assert not setup.write(proxy_target(zed)).is_needed
    # Now another agent is installed.
    program(home / "bin" / "kimi")
    setup.write(proxy_target(zed))
    assert len(proxy_target(zed).own(file.read_bytes())) == 3
    setup.undo(proxy_target(zed, undo=True))
    assert file.read_text() == before


@pytest.mark.parametrize("proxy_first", [False, True])
def test_server_and_proxy_in_one_file_are_undone_in_any_order(home, setup, proxy_first):
    program(home / "bin" / "gemini")
    path, before, _ = FORMATS["zed"]
    file = home / path
    file.parent.mkdir(parents=True)
    file.write_text(before)
    zed = agent("zed")
    setup.write(server("zed"))
    setup.write(proxy_target(zed))
    undone = [server("zed"), proxy_target(zed, undo=True)]
    for target in reversed(undone) if proxy_first else undone:
        setup.undo(target)
    assert file.read_text() == before


def test_proxy_says_why_it_is_not_for_an_agent_without_acp_client(home):
    with pytest.raises(SetupError, match=r"runs no agents over ACP.*acpterm setup codex"):
        proxy_target(agent("codex"))
    with pytest.raises(SetupError, match=r"no agent with ACP is on the PATH: .*gemini --acp"):
        proxy_target(agent("zed"))


def test_settings_are_where_the_agents_variables_say(home, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/c")
    monkeypatch.setenv("CODEX_HOME", "/x")
    monkeypatch.setenv("COPILOT_HOME", "/p")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/g")
    paths = {name: agent(name).settings() for name in FORMATS}
    assert paths["claude"] == "/c/.claude.json"
    assert paths["codex"] == "/x/config.toml"
    assert paths["copilot"] == "/p/mcp-config.json"
    assert paths["opencode"] == "/g/opencode/opencode.json"
    assert paths["zed"] == "/g/zed/settings.json"
    assert agent("claude").skills() == "/c/skills"


def test_overview_lists_what_is_installed_and_set_up(home, setup):
    program(home / "bin" / "gemini")
    setup.write(server("codex"))
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").write_text('{\n  "a": ?\n}')
    states = {state.name: state for state in overview()}
    assert states["gemini"].is_installed
    assert states["codex"].parts == ["mcp"]
    assert not states["claude"].is_installed
    assert "mcp.json:2: " in states["cursor"].error
