"""Lists the agents, and what is set up in each of them."""

import os
from typing import NamedTuple

from acpterm.client.setup import files
from acpterm.client.setup.agents import AGENTS, Agent
from acpterm.client.setup.errors import SetupError
from acpterm.client.setup.targets import proxy_target, server_target, skill_target


class AgentState(NamedTuple):
    """An agent: whether it is installed, and which parts of acpterm are set up in it."""

    name: str
    title: str
    is_installed: bool
    settings: str
    """The path of the settings file."""
    parts: list[str]
    """The parts that are set up: any of `mcp`, `proxy` and `skill`."""
    error: str | None
    """Why the settings cannot be read; None if they can."""


def overview() -> list[AgentState]:
    """Return the state of each agent."""
    return [_state(agent) for agent in AGENTS]


def has_skill(agent: Agent) -> bool:
    """Return whether there is a skill `acpterm` in the directory of the agent's skills."""
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
