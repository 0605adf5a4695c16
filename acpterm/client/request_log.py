"""What an agent and the daemon say to each other, as far as it is needed to resume a connection.

Sans-IO: bytes in, as they pass. `sent` and `received` are told of them before they are passed on:
an agent that has an answer may use the id of its request again at once.
"""

from typing import Final

from msgspec import UNSET, Raw, UnsetType

from acpterm.acp.members import members
from acpterm.client.envelope import peek
from acpterm.client.handshake import welcome_in
from acpterm.client.unanswered import Unanswered, fate_unknown
from acpterm.jsonrpc import Id, LineSplitter, Oversized, RpcError, encode_error


class RequestLog:
    """What the agent asks and is answered, as far as it is needed to resume a connection."""

    def __init__(self, max_line: int) -> None:
        self.unanswered: Final = Unanswered()
        self.secret: str | None = None
        self._lines = LineSplitter(max_line)
        # Whether the rest of a line is not to be sent: the daemon has not read its beginning.
        self._skips = False

    def sent(self, data: bytes) -> bytes:
        """Note what the agent sends, before it is sent; return what of it to send."""
        for line in self._lines.feed(data):
            if isinstance(line, Oversized):
                continue
            seen = peek(line)
            if not isinstance(seen.method, str):
                continue
            if seen.is_request:
                self.unanswered.request(seen.key, seen.method, line + b"\n")
            elif seen.method == "$/cancel_request":
                self.unanswered.cancel(_cancelled(seen.params), line + b"\n")
            else:
                self.unanswered.notification(seen.method, line + b"\n")
        if self._skips:
            _, end, data = data.partition(b"\n")
            self._skips = not end
        return data

    def received(self, lines: bytes) -> None:
        """Note what the daemon sends, in whole lines, before the agent has it."""
        if not self.unanswered:
            return
        for line in lines.split(b"\n"):
            seen = peek(line)
            if not seen.is_answer:
                continue
            method = self.unanswered.answered(seen.key, failed=seen.error is not UNSET)
            if method == "initialize" and isinstance(seen.result, Raw):
                self.secret = welcome_in(seen.result).secret or self.secret

    def repeat(self) -> tuple[list[bytes], bytes]:
        """Return what to send on another connection, and what the agent is answered."""
        lines, unknown = self.unanswered.lost()
        begun = self._lines.unfinished
        self._skips = begun is None
        lines.append(begun or b"")
        return lines, b"".join(encode_error(id_, fate_unknown(method)) for id_, method in unknown)

    def fail(self, error: RpcError) -> bytes:
        """Return an error for each request that has no answer."""
        return b"".join(encode_error(id_, error) for id_ in self.unanswered.ids)


def _cancelled(params: Raw | UnsetType) -> Id:
    raw = members(params).get("requestId")
    return None if raw is None else peek(b'{"id":' + bytes(raw) + b"}").key
