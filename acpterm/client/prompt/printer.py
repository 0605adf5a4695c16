"""What `acpterm prompt` prints, and the two ways of it: `print_text` and `print_json`."""

from typing import Protocol

from msgspec import Raw

from acpterm.acp.terminal_updates import ExitInfo
from acpterm.client.prompt.tool_calls import ToolCallState


class Printer(Protocol):
    """Prints what happens in a turn, as it happens. None of it waits."""

    def session(self, identifier: str) -> None:
        """Begin with a session."""

    def update(self, update: Raw) -> None:
        """Take a `session/update`, whatever it is about."""

    def message(self, text: str) -> None:
        """Take the next piece of the agent's message."""

    def call(self, call: ToolCallState) -> None:
        """Take a tool call of which something may have changed."""

    def asked(self, call: ToolCallState) -> None:
        """Take that the person is about to be asked whether a tool call may go on."""

    def plan(self, entries: list[tuple[str, str]]) -> None:
        """Take the agent's plan: what is to be done, and the state of it."""

    def output(self, terminal: str, data: bytes, lost: int) -> None:
        """Take the next output of a terminal, before which `lost` bytes are missing."""

    def ended(self, terminal: str, end: ExitInfo) -> None:
        """Take the end of a terminal's program."""

    def notice(self, text: str) -> None:
        """Tell the person something."""

    def end(self, stop_reason: str | None, status: int, error: str | None) -> None:
        """End: how the turn ended if it did, the exit status, and what was wrong if anything."""
