"""What an agent and the daemon say to each other, as far as it is needed to resume a connection.

Sans-IO: bytes in, as they pass. `sent` and `received` are called before they are passed on, in the
order in which they pass: an agent that has an answer may use the id of its request again at once.
They only queue the bytes, so that nothing is parsed while a message is on its way; `settle` parses
what is queued, and is called after it was passed on. Calls are made under a lock of the caller's,
except `sent` and `received`, of which each is called by one thread.
"""

from collections import deque
from typing import Final

from msgspec import UNSET, Raw, UnsetType

from acpterm.acp.raw_json import members
from acpterm.client.envelope import parse_envelope
from acpterm.client.handshake import read_welcome
from acpterm.client.unanswered import Unanswered
from acpterm.jsonrpc import Id, LineSplitter, Oversized, RpcError, encode_error


class RequestLog:
    """What the agent asks and is answered, as far as it is needed to resume a connection."""

    def __init__(self, max_line: int) -> None:
        self.unanswered: Final = Unanswered()
        self.secret: str | None = None
        self._lines = LineSplitter(max_line)
        # Whether the rest of a line is not to be sent: the daemon has not read its beginning.
        self._skips = False
        # What was passed on and is not parsed yet; true for what the agent has sent.
        self._passed: deque[tuple[bool, bytes]] = deque()

    def sent(self, data: bytes) -> bytes:
        """Note what the agent sends; return what of it to pass on."""
        self._passed.append((True, data))
        if self._skips:
            _, end, data = data.partition(b"\n")
            self._skips = not end
        return data

    def received(self, lines: bytes) -> None:
        """Note what the daemon sends, in whole lines."""
        self._passed.append((False, lines))

    def settle(self) -> None:
        """Parse what was passed on."""
        while self._passed:
            by_agent, data = self._passed.popleft()
            if by_agent:
                self._settle_sent(data)
            elif self.unanswered:
                self._settle_received(data)

    def _settle_sent(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if isinstance(line, Oversized):
                continue
            seen = parse_envelope(line)
            if not isinstance(seen.method, str):
                continue
            if seen.is_request:
                self.unanswered.request(seen.key, seen.method, line + b"\n")
            elif seen.method == "$/cancel_request":
                self.unanswered.cancel(_cancelled(seen.params), line + b"\n")
            else:
                self.unanswered.notification(seen.method, line + b"\n")

    def _settle_received(self, lines: bytes) -> None:
        for line in lines.split(b"\n"):
            seen = parse_envelope(line)
            if not seen.is_response:
                continue
            method = self.unanswered.answered(seen.key, failed=seen.error is not UNSET)
            if method == "initialize" and isinstance(seen.result, Raw):
                self.secret = read_welcome(seen.result).secret or self.secret

    def repeat(self) -> tuple[list[bytes], bytes]:
        """Return what to send on another connection, and what the agent is answered."""
        self.settle()
        lines, errors = self.unanswered.lost()
        begun = self._lines.unfinished
        self._skips = begun is None
        lines.append(begun or b"")
        return lines, b"".join(encode_error(id_, error) for id_, error in errors)

    def fail(self, error: RpcError) -> bytes:
        """Return an error for each request that has no answer."""
        self.settle()
        return b"".join(encode_error(id_, error) for id_ in self.unanswered.ids)


def _cancelled(params: Raw | UnsetType) -> Id:
    raw = members(params).get("requestId")
    return None if raw is None else parse_envelope(b'{"id":' + bytes(raw) + b"}").key
