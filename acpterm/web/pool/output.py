"""The output of one terminal as text, for the clients of a PTY pool that have attached to it.

`OutputText` turns bytes into text, part by part. `history` returns what a client is sent first.
`Attachment` sends history and output to one client that is attached:

- `pty:attached` is sent first, with the history up to a position. Then each `pty:output` begins
  where the message before it ended.
- A client that has fallen behind by more than `BEHIND_BYTES`, or by more than the ring retains, is
  sent another `pty:attached` instead of the output that it missed. The history in it may repeat
  output that the client was sent before, so it begins with a full reset (`ESC c`).
- `pty:exit` is the last message, once the program has exited and all its output was sent.

A message is made only when it can be sent (`Channel.turn`): for a client that stops reading, at
most one message is in memory, however much output there is.
"""

import codecs
from typing import Final

import trio

from acpterm.acp.pool import HISTORY_BYTES
from acpterm.host.entry import TerminalEntry
from acpterm.host.terminal_info import exit_code
from acpterm.host.user.attach import BEHIND_BYTES, CHUNK_BYTES, POLL_INTERVAL_S
from acpterm.host.user.connection import UserConnection
from acpterm.host.verbs import current_screen
from acpterm.jsonrpc import RpcError
from acpterm.terminal.terminal import Terminal
from acpterm.terminal.text.slices import resync
from acpterm.terminal.vt.paint import mode_sequences, snapshot
from acpterm.terminal.vt.queries import QueryFilter
from acpterm.web.pool.channel import Channel, Send, SendingTask
from acpterm.web.pool.messages import AttachedMessage, ExitMessage, OutputMessage

_RESET: Final = "\x1bc"


class OutputText:
    """Turns consecutive output into text, without a program's queries (`vt.queries`)."""

    def __init__(self, *, clipboard: bool) -> None:
        # A browser's terminal would answer the queries too, and type its answers.
        self._queries: Final = QueryFilter(clipboard=clipboard)
        self._decoder: Final = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        return self._decoder.decode(self._queries.feed(data))


def last_output(terminal: Terminal, limit: int, since: int = 0) -> tuple[bytes, int]:
    """Return the last bytes of the output, and the position at which the output ends."""
    ring = terminal.ring
    end = ring.end
    begin = max(since, ring.start, end - limit)
    if begin == since:
        return ring.read(begin, end - begin).data, end
    # Also read the byte before: if it is a line end, the rest begins with a whole line.
    part = ring.read(max(ring.start, begin - 1))
    data = part.data[: end - part.position]
    if part.position < begin and data[:1] == b"\n":
        return data[1:], end
    data = data[begin - part.position :]
    return data[resync(data) :], end


async def history(user: UserConnection, terminal: Terminal) -> tuple[bytes, int]:
    """Return the bytes that show a terminal to a client that attaches, and a position."""
    try:
        screen, position = await current_screen(user.sender, terminal)
    except RpcError:  # there is no emulator, or the screen is too large for a snapshot
        return last_output(terminal, HISTORY_BYTES)
    # Output would not show both screens of a full-screen program completely.
    if screen.is_alternate:
        return snapshot(screen) + screen.held, position
    data, end = last_output(terminal, HISTORY_BYTES)
    if end == position > len(data):
        # The output that has set the modes may be left out.
        modes = "".join(mode_sequences(screen)).encode()
        data, end = last_output(terminal, HISTORY_BYTES - len(modes))
        data = data.removesuffix(screen.held) + modes + screen.held
    return data, end


class Attachment(SendingTask):
    """Sends a terminal's history and output, on `channel`, to a client that has attached to it."""

    def __init__(
        self, user: UserConnection, entry: TerminalEntry, identifier: str, channel: Channel
    ) -> None:
        super().__init__(channel)
        self._user: Final = user
        self._terminal: Final = entry.terminal
        self._id: Final = identifier
        # The end of the output that the client was sent; -1 before it was sent the history.
        self._position = -1
        self._text = OutputText(clipboard=user.settings.clipboard)

    async def _send_all(self) -> None:
        terminal = self._terminal
        while True:
            status = await terminal.wait_output(self._position)
            async with self.turn() as send:
                if status is not None and self._position == terminal.ring.end:
                    code = exit_code(status, signal_code=True) or 0
                    await send(ExitMessage(self._id, code))
                    return
                await self._send_next(send)
            if self._position < terminal.ring.end:
                await trio.sleep(POLL_INTERVAL_S)

    async def _send_next(self, send: Send) -> None:
        """Send the next output; or the history, if the client is new or has fallen behind."""
        ring, position = self._terminal.ring, self._position
        if position >= 0 and ring.end - position <= BEHIND_BYTES:
            part = ring.read(position, CHUNK_BYTES)
            if not part.lost:
                self._position = part.position + len(part.data)
                if text := self._text.feed(part.data):
                    await send(OutputMessage(self._id, text))
                return
        self._text = OutputText(clipboard=self._user.settings.clipboard)
        data, self._position = await history(self._user, self._terminal)
        reset = _RESET if position >= 0 else ""
        await send(AttachedMessage(self._id, reset + self._text.feed(data)))
