"""The interface of the printers, `text_printer` and `json_printer`. This one prints nothing."""

from msgspec import Raw

from acpterm.acp.terminal_updates import ProgramExit
from acpterm.client.prompt.tool_calls import ToolCallState


class Printer:
    """Prints the events of a turn as they happen. No method blocks."""

    def session(self, identifier: str) -> None:
        """Print that the session is open."""

    def update(self, update: Raw) -> None:
        """Print a `session/update` of any kind."""

    def message(self, text: str) -> None:
        """Print the next piece of the agent's message."""

    def begin(self, call: ToolCallState) -> None:
        """Print that a tool call has begun, before the output of its terminals."""

    def tool_call(self, call: ToolCallState) -> None:
        """Print a tool call that has begun or changed; called after each of its updates."""

    def before_question(self, call: ToolCallState) -> None:
        """Print a tool call before the user is asked whether to allow it."""

    def plan(self, entries: list[tuple[str, str]]) -> None:
        """Print the agent's plan: the content and the status of each entry."""

    def output(self, terminal: str, data: bytes, lost: int) -> None:
        """Print output of a terminal, before which `lost` bytes are missing."""

    def exited(self, terminal: str, end: ProgramExit) -> None:
        """Print the exit of a terminal's program."""

    def notice(self, text: str) -> None:
        """Print a notice for the user."""

    def end(self, stop_reason: str | None, status: int, error: str | None) -> None:
        """Print the end of the run."""
