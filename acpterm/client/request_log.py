"""Finds requests and responses in the bytes that `stdio_relay` relays.

`RequestLog.unanswered` keeps the pending requests, so that a lost connection can be resumed.

No I/O: the relay hands over the bytes of both directions. It calls `sent` or `received` before it
passes the bytes on. So the bytes are queued here in the right order, even if the agent uses the id
of a request again as soon as it has the response. These two methods only queue the bytes, so that
parsing delays no message; `settle` parses the queued bytes after they were passed on. The relay
calls `sent` from one thread only, and `received` from one thread only. It holds a lock during all
other calls.
"""

from collections import deque
from typing import Final

from msgspec import UNSET, Raw

from acpterm.client.envelope import cancelled_id, parse_envelope
from acpterm.client.handshake import read_welcome
from acpterm.client.unanswered import Unanswered
from acpterm.jsonrpc import LineSplitter, Oversized, RpcError, encode_error


class RequestLog:
    """Finds the agent's pending requests, and the secret for resuming, in the relayed bytes.

    `unanswered` has the pending requests and the notifications to send again. `secret` resumes the
    connection to the daemon; None if no response had one. `max_line` is the maximum length of a
    line from the agent, in bytes; longer lines are not recorded.
    """

    def __init__(self, max_line: int) -> None:
        self.unanswered: Final = Unanswered()
        self.secret: str | None = None
        self._lines = LineSplitter(max_line)
        # Whether to drop the rest of the agent's current line: its beginning went to the lost
        # connection, and was too long to keep.
        self._drops_line = False
        # Bytes that are not parsed yet, each with True if they came from the agent.
        self._unparsed: deque[tuple[bool, bytes]] = deque()

    def sent(self, data: bytes) -> bytes:
        """Queue bytes from the agent for parsing; return the bytes to pass on to the daemon.

        The returned bytes are `data`, with one exception. If the connection was lost in the middle
        of a line that is too long to be kept and sent again, the rest of that line is left out.
        """
        self._unparsed.append((True, data))
        if self._drops_line:
            _, newline, data = data.partition(b"\n")
            self._drops_line = not newline
        return data

    def received(self, lines: bytes) -> None:
        """Queue complete lines from the daemon for parsing."""
        self._unparsed.append((False, lines))

    def settle(self) -> None:
        """Parse the bytes queued by `sent` and `received`, and update `unanswered` and `secret`."""
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
        """Return what to send after a lost connection: lines to the daemon, bytes to the agent.

        The lines are for the next connection: the unanswered messages, and last the beginning of
        the line that the agent has not completed. The bytes are error responses to the requests
        that cannot be sent again.
        """
        self.settle()
        lines, errors = self.unanswered.lost()
        partial = self._lines.unfinished
        self._drops_line = partial is None
        lines.append(partial or b"")
        return lines, b"".join(encode_error(id_, error) for id_, error in errors)

    def fail(self, error: RpcError) -> bytes:
        """Return the bytes of an error response with `error` for each pending request.

        Afterwards no request is pending.
        """
        self.settle()
        ids = self.unanswered.ids
        for id_ in ids:
            self.unanswered.answered(id_, failed=True)
        return b"".join(encode_error(id_, error) for id_ in ids)
