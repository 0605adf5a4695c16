"""The state of a `TerminalService`: its active provider, its options and its sessions.

A session is an interactive program in a terminal of its own, not an ACP session.
"""

import time
from typing import Any

import msgspec
from msgspec import Struct, field

from acpterm.api.service.types import OutputWaitOptions


class BashOptions(Struct, rename="camel", frozen=True):
    """Options for commands, which the service only stores for its caller."""

    crop_output: int = 10000
    timeout_seconds: float = 60.0


class SessionRecord(Struct, rename="camel"):
    """A session in `TerminalState`, until the service notices that the program has ended.

    `last_position` is up to where its output was read; `start_time` is in seconds since 1970.
    """

    id: str
    command: str
    last_position: int = 0
    start_time: float = field(default_factory=time.time)
    running: bool = True


class TerminalState(Struct, rename="camel"):
    """The state of a terminal service, which can be stored and restored as JSON values."""

    provider_name: str | None = None
    bash: BashOptions = BashOptions()
    interactive_config: OutputWaitOptions = OutputWaitOptions()
    sessions: dict[str, SessionRecord] = field(default_factory=dict)

    def register_session(self, id: str, command: str) -> None:  # noqa: A002
        """Add the session `id`, which starts now and runs `command`."""
        self.sessions[id] = SessionRecord(id, command)

    def update_session_position(self, id: str, position: int) -> None:  # noqa: A002
        """Record up to where the output of a session was read."""
        if (session := self.sessions.get(id)) is not None:
            session.last_position = position

    def get_session(self, id: str) -> SessionRecord | None:  # noqa: A002
        """Return the session with this id; None if there is none."""
        return self.sessions.get(id)

    def remove_session(self, id: str) -> None:  # noqa: A002
        """Forget the session with this id; do nothing if there is none."""
        self.sessions.pop(id, None)

    def list_sessions(self) -> list[SessionRecord]:
        """Return all sessions in the order of their start."""
        return list(self.sessions.values())

    def serialize(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        stored: dict[str, Any] = msgspec.to_builtins(self)
        return stored

    def deserialize(self, data: dict[str, Any]) -> None:
        """Replace the state by what `serialize` has returned."""
        found = msgspec.convert(data, TerminalState)
        for name in self.__struct_fields__:
            setattr(self, name, getattr(found, name))

    def show(self) -> list[str]:
        """Return the state as lines of text."""
        lines = [f"Provider: {self.provider_name or '(none)'}", f"Sessions: {len(self.sessions)}"]
        return lines + [f"  {each.id}: {each.command}" for each in self.sessions.values()]
