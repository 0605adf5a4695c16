"""The printers of a turn: the base class, which prints nothing, and the one for programs.

`JsonPrinter` prints one JSON object per line: the agent's updates unchanged, and other events.

| `event` | other members |
| --- | --- |
| `session` | `sessionId` |
| `update` | `update`: the member `update` of a `session/update`, as the agent sent it |
| `output` | `terminalId`, `data`: text with control sequences; `lost`: bytes lost before, if any |
| `exit` | `terminalId`, `exitCode`, `signal`: one of the two is null, or both if unknown |
| `notice` | `text`: a notice for the user, usually about permissions |
| `end` | `stopReason` (null if the turn did not end), `status`, `error` (null if there was none) |
"""

import codecs
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw

from acpterm.acp.terminal_updates import ProgramExit
from acpterm.agents.prompt.tool_calls import ToolCallState
from acpterm.runtime.sanitize import escape_json

_encoder: Final = msgspec.json.Encoder()


class TurnPrinter:
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


class JsonPrinter(TurnPrinter):
    """Prints JSON objects; the methods without effect print what `update` has printed."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def session(self, identifier: str) -> None:
        self._event("session", sessionId=identifier)

    def update(self, update: Raw) -> None:
        self._event("update", update=update)

    def output(self, terminal: str, data: bytes, lost: int) -> None:
        if terminal not in self._decoders:
            self._decoders[terminal] = codecs.getincrementaldecoder("utf-8")("replace")
        text = self._decoders[terminal].decode(data)
        if text or lost:
            missing = {"lost": lost} if lost else {}
            self._event("output", terminalId=terminal, data=text, **missing)

    def exited(self, terminal: str, end: ProgramExit) -> None:
        decoder = self._decoders.pop(terminal, None)
        if decoder is not None and (rest := decoder.decode(b"", final=True)):
            self._event("output", terminalId=terminal, data=rest)
        self._event("exit", terminalId=terminal, exitCode=end.code, signal=end.signal)

    def notice(self, text: str) -> None:
        self._event("notice", text=text)

    def end(self, stop_reason: str | None, status: int, error: str | None) -> None:
        self._event("end", stopReason=stop_reason, status=status, error=error)

    def _event(self, name: str, **members: Any) -> None:
        # The agent's JSON may contain line feeds between tokens.
        line = _encoder.encode({"event": name, **members}).replace(b"\n", b" ")
        # Control characters in the agent's strings must not reach the user's terminal.
        self._write(escape_json(line.decode(errors="replace")).encode() + b"\n")
