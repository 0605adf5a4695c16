"""The part of a session that users see. `agent.session.Session` is the implementation."""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

import trio
from msgspec import Raw

from acpterm.host.entry import Session
from acpterm.host.sessions.agent_terminals import AgentTerminals
from acpterm.host.sessions.tool_calls import ToolCalls

Observer: TypeAlias = Callable[[str | None, dict[str, Raw], list[str]], None]
"""Called with the id of the tool call that an update is about (None for no call), the members of
the update, and the ids of the agent's own terminals that the update describes."""


class ObservedSession(Session, Protocol):
    """A session as a user sees it."""

    @property
    def cwd(self) -> str | None:
        """The directory of commands that name none."""

    @property
    def entries(self) -> Collection[str]:
        """The ids of the terminals that the agent may name."""

    @property
    def tool_calls(self) -> ToolCalls:
        """The tool calls that the session's updates have described."""

    @property
    def agent_terminals(self) -> AgentTerminals:
        """The terminals that the agent runs itself."""

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Call `observer` synchronously after each update for the duration of the block."""

    @property
    def closed(self) -> trio.Event:
        """Set when the session's connection has closed."""
