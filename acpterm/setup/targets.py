"""What `acpterm setup` writes: MCP entries, proxy entries, and the skill.

A target is a file, and the part of it that acpterm writes: entries among other settings, or the
whole file. It returns the contents of the file with this part (`within`) and without it
(`without`). An entry that runs acpterm is acpterm's, even if the user has written it. An entry of
the same name that runs another program is never changed.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files as package_files
from typing import Any, Final, NamedTuple

from acpterm.setup import files
from acpterm.setup.agents import ACP_COMMANDS, AGENTS, Agent, Entry, acp_agents
from acpterm.setup.document import Document, Format
from acpterm.setup.files import SetupError
from acpterm.setup.launch import LaunchCommand, acpterm_words, environment, is_acpterm

SERVER: Final = "acpterm"
"""The name of the MCP server in settings."""
_PROXIED: Final = " (acpterm)"
"""The end of the names of agents that run behind the proxy."""

Path = tuple[str, ...]


class NewContent(NamedTuple):
    """The new contents of a target's file; `parents` objects were created around the entries."""

    data: bytes | None
    parents: int


@dataclass(frozen=True)
class EntriesTarget:
    name: str
    """The name of the target's record."""
    path: str
    format: Format
    entries: Mapping[Path, Callable[[Any], Entry]]
    """For each entry, by its path in the settings, a function that returns the new entry for the
    present one of acpterm (None if there is none)."""
    container: Path
    """The path in the settings of the object that has the entries."""
    is_own: Callable[[str, Any], bool]
    """Return whether an entry with this name and this value is acpterm's."""
    mode: int = 0o600

    def own(self, content: bytes | None) -> dict[Path, Any]:
        return dict(self._own(self._decode(content)))

    def is_set_up(self, content: bytes | None) -> bool:
        document = self._decode(content)
        wanted = {path: self._entry(document, path) for path in self.entries}
        return dict(self._own(document)) == wanted

    def without(self, content: bytes | None, parents: int) -> bytes | None:
        document = self._decode(content)
        for path, _ in list(self._own(document)):
            document = document.remove(path, parents)
        return content if content is None else document.text.encode()

    def within(self, content: bytes | None, current: bytes | None) -> NewContent:
        """Add acpterm's entries, of which `current` may have some, to `content`, which has none."""
        document, present = self._decode(content), self._decode(current)
        parents = document.missing_parents(next(iter(self.entries)))
        for path in self.entries:
            entry = self._entry(present, path)
            if document.get(path) is not None:
                raise SetupError(
                    f"{self.path}: {'.'.join(path)} exists, and does not run acpterm. Rename it, "
                    "or remove it"
                )
            document = document.add(path, entry)
        return NewContent(document.text.encode(), parents)

    def _decode(self, content: bytes | None) -> Document:
        return Document.decode(self.path, self.format, content)

    def _entry(self, document: Document, path: Path) -> Entry:
        present = document.get(path)
        return self.entries[path](present if self.is_own(path[-1], present) else None)

    def _own(self, document: Document) -> Iterator[tuple[Path, Any]]:
        container = document.get(self.container)
        if isinstance(container, dict):
            for name, value in container.items():
                if self.is_own(name, value):
                    yield (*self.container, name), value


@dataclass(frozen=True)
class SkillTarget:
    """The file SKILL.md in the directory of an agent's skills."""

    name: str
    path: str
    mode: int = 0o644

    def is_set_up(self, content: bytes | None) -> bool:
        return content == skill()

    def without(self, content: bytes | None, parents: int) -> bytes | None:
        del parents
        if content not in (None, skill()):
            raise SetupError(
                f"{self.path}: has been changed since it was installed. Delete it yourself"
            )
        return None

    def within(self, content: bytes | None, current: bytes | None) -> NewContent:
        del content, current
        return NewContent(skill(), 0)


Target = EntriesTarget | SkillTarget


def skill() -> bytes:
    return (package_files("acpterm") / "skill" / "SKILL.md").read_bytes()


def server_target(agent: Agent, tools: str | None) -> EntriesTarget:
    path = (agent.servers, SERVER)
    return EntriesTarget(
        name=f"{agent.name}-mcp",
        path=agent.settings(),
        format=agent.format,
        entries={path: partial(_server_entry, agent, tools)},
        container=path[:-1],
        is_own=_is_server,
    )


def proxy_target(agent: Agent, *, undo: bool = False) -> EntriesTarget:
    """Return the target with an entry for each installed agent that speaks ACP; `undo`: none."""
    if agent.editor_agents is None:
        raise SetupError(
            f"{agent.title} runs no agents over ACP, so its settings have no place for acpterm "
            "proxy. Of the editors with ACP, setup knows zed; docs/proxy.md has the lines for "
            f"others. To give {agent.title} terminals: acpterm setup {agent.name}"
        )
    found = {} if undo else acp_agents()
    if not found and not undo:
        raise SetupError(f"no agent with ACP is on the PATH: {', '.join(ACP_COMMANDS)}")
    container = (agent.editor_agents,)
    entries: dict[Path, Callable[[Any], Entry]] = {
        (*container, title + _PROXIED): partial(_proxy_entry, agent, words)
        for title, words in found.items()
    }
    return EntriesTarget(
        name=f"{agent.name}-proxy",
        path=agent.settings(),
        format=agent.format,
        entries=entries,
        container=container,
        is_own=_is_proxied,
    )


def skill_target(agent: Agent) -> SkillTarget:
    directory = agent.skills()
    owner = os.path.basename(os.path.dirname(directory)).lstrip(".")
    return SkillTarget(f"{owner}-skill", os.path.join(directory, "acpterm", "SKILL.md"))


def _server_entry(agent: Agent, tools: str | None, present: Any) -> Entry:
    words = acpterm_words(from_desktop=agent.from_desktop)
    arguments = [] if tools in (None, "session") else ["--tools", tools or ""]
    env: dict[str, str] = {}
    if present is not None:
        line = _words(present)
        # An existing entry keeps its set of tools, unless another one is asked for.
        if tools is None:
            arguments = line[line.index("mcp") + 1 :]
        env = present.get("env") or present.get("environment") or {}
    if agent.clears_environment:
        env = {**env, **environment()}
    entry = agent.entry(LaunchCommand(words[0], [*words[1:], "mcp", *arguments], env))
    return {**(present or {}), **entry}


def _proxy_entry(agent: Agent, command: list[str], present: Any) -> Entry:
    words = acpterm_words(from_desktop=agent.from_desktop)
    args = [*words[1:], "proxy", "--terminals", "ours", "--", *command]
    env = (present or {}).get("env") or {}
    return {**(present or {}), "type": "custom", "command": words[0], "args": args, "env": env}


def _is_server(name: str, value: Any) -> bool:
    return name == SERVER and is_acpterm(_words(value), "mcp")


def _is_proxied(name: str, value: Any) -> bool:
    return name.endswith(_PROXIED) and is_acpterm(_words(value), "proxy")


def _words(value: Any) -> list[str]:
    if not isinstance(value, dict):
        return []
    command, args = value.get("command"), value.get("args", [])
    words: list[Any] = command if isinstance(command, list) else [command]
    words = [*words, *args] if isinstance(args, list) else words
    return words if all(isinstance(word, str) for word in words) else []


class AgentState(NamedTuple):
    name: str
    title: str
    is_installed: bool
    settings: str
    parts: list[str]
    """The parts that are set up: any of `mcp`, `proxy` and `skill`."""
    error: str | None
    """Why the settings cannot be read; None if they can."""


def overview() -> list[AgentState]:
    return [_state(agent) for agent in AGENTS]


def has_skill(agent: Agent) -> bool:
    return os.path.exists(skill_target(agent).path)


def _state(agent: Agent) -> AgentState:
    parts, error = [], None
    try:
        content = files.read(agent.settings())
        if server_target(agent, None).own(content):
            parts.append("mcp")
        if agent.editor_agents and proxy_target(agent, undo=True).own(content):
            parts.append("proxy")
    except SetupError as found:
        error = str(found)
    if has_skill(agent):
        parts.append("skill")
    return AgentState(agent.name, agent.title, agent.is_installed(), agent.settings(), parts, error)
