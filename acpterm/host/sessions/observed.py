"""The interface through which the user's side observes an agent's session.

`agent.session.Session` implements it. The user's side does not import the agents' side.
"""

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

import trio
from msgspec import Raw

from acpterm.host.entry import Session
from acpterm.host.sessions.agent_terminals import AgentTerminals
from acpterm.host.sessions.tool_calls import ToolCalls

Observer: TypeAlias = Callable[[str | None, dict[str, Raw], list[str]], None]
"""Called with a tool call's id or None, the members, and the ids of agents' terminals."""


class ObservedSession(Session, Protocol):
    """An agent's session as the user's side sees it."""

    @property
    def cwd(self) -> str | None:
        """The directory of `terminal/create` requests without `cwd`; None if it was not set."""

    @property
    def entries(self) -> Collection[str]:
        """The ids of the session's terminals, including promoted ones, but no released ones."""

    @property
    def tool_calls(self) -> ToolCalls:
        """The tool calls that the session's updates have described."""

    @property
    def agent_terminals(self) -> AgentTerminals:
        """The terminals that the agent runs itself."""

    def observe(self, observer: Observer) -> AbstractContextManager[None]:
        """Call `observer` synchronously after each session update during the block."""

    @property
    def closed(self) -> trio.Event:
        """Set when the agent's connection has closed, or when the session is forgotten."""
