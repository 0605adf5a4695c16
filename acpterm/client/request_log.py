"""Tracks the requests between an agent and the daemon, to resume a lost connection.

Sans-IO: it is given the bytes of both directions. `sent` and `received` are called before the bytes
are passed on, in the order in which they are: an agent that has a response may use the id of its
request again at once. These two only queue the bytes, so that parsing does not delay a message;
`settle` parses the queued bytes, and is called after they were passed on. The caller holds a lock
during all calls except `sent` and `received`, each of which is called by one thread only.
"""

from collections import deque
from typing import Final

from msgspec import UNSET, Raw

from acpterm.client.envelope import cancelled_id, parse_envelope
from acpterm.client.handshake import read_welcome
from acpterm.client.unanswered import Unanswered
from acpterm.jsonrpc import LineSplitter, Oversized, RpcError, encode_error


class RequestLog:
    """The agent's unanswered messages, and the secret to resume its connection with."""

    def __init__(self, max_line: int) -> None:
        self.unanswered: Final = Unanswered()
        self.secret: str | None = None
        self._lines = LineSplitter(max_line)
        # Whether to drop the rest of the current line: this daemon has not read its beginning.
        self._drops_line = False
        # Bytes passed on and not parsed yet; True for those that the agent has sent.
        self._unparsed: deque[tuple[bool, bytes]] = deque()

    def sent(self, data: bytes) -> bytes:
        """Queue bytes from the agent for parsing; return the bytes to pass on."""
        self._unparsed.append((True, data))
        if self._drops_line:
            _, newline, data = data.partition(b"\n")
            self._drops_line = not newline
        return data

    def received(self, lines: bytes) -> None:
        """Queue complete lines from the daemon for parsing."""
        self._unparsed.append((False, lines))

    def settle(self) -> None:
        """Parse the queued bytes."""
        while self._unparsed:
            by_agent, data = self._unparsed.popleft()
            if by_agent:
                self._settle_sent(data)
            elif self.unanswered:
                self._settle_received(data)

    def _settle_sent(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if isinstance(line, Oversized):
                continue
            message = parse_envelope(line)
            if not isinstance(message.method, str):
                continue
            if message.is_request:
                self.unanswered.request(message.key, message.method, line + b"\n")
            elif message.method == "$/cancel_request":
                self.unanswered.cancel(cancelled_id(message.params), line + b"\n")
            else:
                self.unanswered.notification(message.method, line + b"\n")

    def _settle_received(self, lines: bytes) -> None:
        for line in lines.split(b"\n"):
            message = parse_envelope(line)
            if not message.is_response:
                continue
            method = self.unanswered.answered(message.key, failed=message.error is not UNSET)
            if method == "initialize" and isinstance(message.result, Raw):
                self.secret = read_welcome(message.result).secret or self.secret

    def repeat(self) -> tuple[list[bytes], bytes]:
        """Return the lines to send on another connection, and the errors for the agent."""
        self.settle()
        lines, errors = self.unanswered.lost()
        partial = self._lines.unfinished
        self._drops_line = partial is None
        lines.append(partial or b"")
        return lines, b"".join(encode_error(id_, error) for id_, error in errors)

    def fail(self, error: RpcError) -> bytes:
        """Return an error response for each pending request."""
        self.settle()
        return b"".join(encode_error(id_, error) for id_ in self.unanswered.ids)
