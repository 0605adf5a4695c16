"""The agents that `acpterm setup` knows: their settings, the form of an entry, their skills.

The form of an entry is that of the agent's documentation, or of what its own command writes; the
comment at each agent names the source. All settings are the user's, not a project's.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from acpterm.setup.document import Format
from acpterm.setup.launch import LaunchCommand

Entry = Mapping[str, Any]


def home(path: str) -> str:
    return os.path.expanduser(path)


def _shared_skills() -> str:
    return home("~/.agents/skills")


@dataclass(frozen=True)
class Agent:
    name: str
    """The name in the command line of `acpterm setup`."""
    title: str
    programs: tuple[str, ...]
    """The names that the agent's program may have."""
    settings: Callable[[], str]
    """Return the path of the settings file."""
    format: Format
    servers: str
    """The name of the object in the settings that has the MCP servers."""
    entry: Callable[[LaunchCommand], Entry]
    """Return the MCP entry that starts acpterm in the given way."""
    skills: Callable[[], str] = _shared_skills
    """Return the directory of the user's skills."""
    advice: str = ""
    """What the user has to do so that the agent may use the tools."""
    from_desktop: bool = False
    """Whether the desktop usually starts the agent, whose PATH then is not that of a shell."""
    clears_environment: bool = False
    """Whether the agent passes only a few environment variables on to MCP servers."""
    editor_agents: str | None = None
    """The name of the object that has the agents which an editor runs over ACP; None elsewhere."""

    def is_installed(self) -> bool:
        """Return whether the program is on the PATH, or there are settings or their directory."""
        if any(shutil.which(program) for program in self.programs):
            return True
        settings = self.settings()
        directory = os.path.dirname(settings)
        return os.path.exists(settings) or (directory != home("~") and os.path.isdir(directory))


def _in(variable: str, default: str) -> str:
    """Return the directory in the environment variable, unless its path is relative."""
    directory = os.environ.get(variable, "")
    return directory if os.path.isabs(directory) else home(default)


def _claude_settings() -> str:
    if directory := os.environ.get("CLAUDE_CONFIG_DIR"):
        return os.path.join(directory, ".claude.json")
    return home("~/.claude.json")


def _opencode_settings() -> str:
    directory = os.path.join(_in("XDG_CONFIG_HOME", "~/.config"), "opencode")
    # OpenCode reads both files; opencode.jsonc overrides opencode.json.
    commented = os.path.join(directory, "opencode.jsonc")
    return commented if os.path.exists(commented) else os.path.join(directory, "opencode.json")


def _zed_settings() -> str:
    return os.path.join(_in("XDG_CONFIG_HOME", "~/.config"), "zed", "settings.json")


def _with_env(entry: dict[str, Any], launch: LaunchCommand, name: str = "env") -> Entry:
    return {**entry, name: launch.env} if launch.env else entry


def _stdio(launch: LaunchCommand) -> Entry:
    return {"type": "stdio", "command": launch.command, "args": launch.args, "env": launch.env}


def _claude(launch: LaunchCommand) -> Entry:
    # Otherwise the model sees no tool until it searches for one.
    return {**_stdio(launch), "alwaysLoad": True}


def _codex(launch: LaunchCommand) -> Entry:
    # Otherwise a turn begins without the tools if the server has not started within a second.
    return {**_plain(launch), "required": True}


def _plain(launch: LaunchCommand) -> Entry:
    return _with_env({"command": launch.command, "args": launch.args}, launch)


def _opencode(launch: LaunchCommand) -> Entry:
    command = [launch.command, *launch.args]
    entry = {"type": "local", "command": command, "enabled": True}
    return _with_env(entry, launch, "environment")


def _copilot(launch: LaunchCommand) -> Entry:
    entry = {"type": "local", "command": launch.command, "args": launch.args, "tools": ["*"]}
    return _with_env(entry, launch)


def _zed(launch: LaunchCommand) -> Entry:
    return {"command": launch.command, "args": launch.args, "env": launch.env}


AGENTS: Final = (
    # https://docs.claude.com/en/docs/claude-code/mcp: the user scope. The entry is the one that
    # `claude mcp add --scope user` writes (2.1). Skills: …/claude-code/skills.
    Agent(
        name="claude",
        title="Claude Code",
        programs=("claude",),
        settings=_claude_settings,
        format="json",
        servers="mcpServers",
        entry=_claude,
        skills=lambda: os.path.join(_in("CLAUDE_CONFIG_DIR", "~/.claude"), "skills"),
    ),
    # https://developers.openai.com/codex/mcp, and what `codex mcp add` writes (0.169). Servers get
    # HOME, PATH and few other variables. Skills: https://developers.openai.com/codex/skills.
    Agent(
        name="codex",
        title="Codex",
        programs=("codex",),
        settings=lambda: os.path.join(_in("CODEX_HOME", "~/.codex"), "config.toml"),
        format="toml",
        servers="mcp_servers",
        entry=_codex,
        advice="Codex asks before it calls a tool that does more than read. With approval_policy "
        '"never", as in codex exec, it refuses the call. To let the policy of acpterm decide, '
        'add to the entry: default_tools_approval_mode = "approve"',
        clears_environment=True,
    ),
    # https://geminicli.com/docs/tools/mcp-server, and what `gemini mcp add -s user` writes (0.61).
    # Gemini accepts comments. Skills: https://geminicli.com/docs/cli/using-agent-skills.
    Agent(
        name="gemini",
        title="Gemini CLI",
        programs=("gemini",),
        settings=lambda: home("~/.gemini/settings.json"),
        format="jsonc",
        servers="mcpServers",
        entry=_plain,
        advice="Gemini CLI starts no MCP server in a directory that you do not trust: type "
        "/permissions there",
    ),
    # https://opencode.ai/docs/mcp-servers and …/config. Version 2 reads the same form. Skills:
    # https://opencode.ai/docs/skills.
    Agent(
        name="opencode",
        title="OpenCode",
        programs=("opencode",),
        settings=_opencode_settings,
        format="jsonc",
        servers="mcp",
        entry=_opencode,
    ),
    # https://docs.github.com/en/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers, and
    # what `copilot mcp add` writes (1.0). Skills: …/customize-copilot/add-skills.
    Agent(
        name="copilot",
        title="Copilot CLI",
        programs=("copilot",),
        settings=lambda: os.path.join(_in("COPILOT_HOME", "~/.copilot"), "mcp-config.json"),
        format="json",
        servers="mcpServers",
        entry=_copilot,
        clears_environment=True,
    ),
    # https://cursor.com/docs/mcp: the global file. Skills: https://cursor.com/docs/skills.
    Agent(
        name="cursor",
        title="Cursor",
        programs=("cursor", "cursor-agent"),
        settings=lambda: home("~/.cursor/mcp.json"),
        format="jsonc",
        servers="mcpServers",
        entry=_stdio,
        from_desktop=True,
        clears_environment=True,
    ),
    # https://zed.dev/docs/ai/mcp; "source", which older versions wrote, is deprecated. The file,
    # the same on macOS: https://zed.dev/docs/configuring-zed. Agents:
    # https://zed.dev/docs/ai/external-agents. Skills: https://zed.dev/docs/ai/skills.
    Agent(
        name="zed",
        title="Zed",
        programs=("zed", "zeditor"),
        settings=_zed_settings,
        format="jsonc",
        servers="context_servers",
        entry=_zed,
        from_desktop=True,
        editor_agents="agent_servers",
    ),
)

# Agents that speak the Agent Client Protocol, some through an adapter program: the title that an
# editor shows, and a command line. Of several with one title, the first that is found is used.
_ACP_AGENTS: Final = (
    ("Claude Code", ("claude-agent-acp",)),
    ("Claude Code", ("claude-code-acp",)),
    ("Codex", ("codex-acp",)),
    ("Gemini CLI", ("gemini", "--acp")),
    ("OpenCode", ("opencode", "acp")),
    ("Copilot CLI", ("copilot", "--acp")),
    ("Kimi", ("kimi", "acp")),
)
ACP_COMMANDS: Final = tuple(" ".join(words) for _, words in _ACP_AGENTS)


def acp_agents() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for title, (program, *args) in _ACP_AGENTS:
        if title not in found and (path := shutil.which(program)):
            found[title] = [os.path.abspath(path), *args]
    return found
