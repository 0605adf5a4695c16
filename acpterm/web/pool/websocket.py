"""The WebSocket of a PTY pool, `/ws`: serves one client until it closes the socket.

Tasks, all in one nursery: the reader, which handles one message after the other and sends errors;
one task for each terminal that the client has attached to (`output`); and the tasks that send
events (`events`). They end when the client closes the socket, or when any of them notices that the
connection is lost.

A message that is not valid is answered with `pty:error`, and the socket stays open. If the client
does not read its errors, no more of its messages are handled.

Terminals do not belong to a socket: they run on when it is closed. A client that was disconnected,
for example when the worker was replaced, connects and attaches again.
"""

from typing import Final

import trio

from acpterm.host import verbs
from acpterm.host.entry import TerminalEntry
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import RpcError
from acpterm.web.pool.channel import Channel, TextSocket
from acpterm.web.pool.events import EventFeed
from acpterm.web.pool.ids import PoolIds
from acpterm.web.pool.messages import (
    NOT_FOUND,
    AttachMessage,
    ClientMessage,
    DetachMessage,
    ErrorMessage,
    InputMessage,
    InvalidMessageError,
    ResizeMessage,
    parse,
)
from acpterm.web.pool.output import Attachment


async def serve_pool(socket: TextSocket, user: UserConnection) -> None:
    """Serve a client, whose state is `user`, until it closes `socket` or the connection is lost."""
    async with trio.open_nursery() as nursery:
        await _PoolSocket(socket, user, nursery).run()
        nursery.cancel_scope.cancel()


class _PoolSocket:
    def __init__(self, socket: TextSocket, user: UserConnection, nursery: trio.Nursery) -> None:
        self._socket: Final = socket
        self._user: Final = user
        self._nursery: Final = nursery
        self._channel: Final = Channel(socket, nursery.cancel_scope)
        self._ids: Final = PoolIds(user.registry)
        self._attachments: Final[dict[str, Attachment]] = {}

    async def run(self) -> None:
        feed = EventFeed(self._user, self._ids, self._channel, self._nursery)
        self._nursery.start_soon(feed.run)
        while True:
            try:
                frame = await self._socket.receive()
            except trio.BrokenResourceError:
                return
            if frame is None:
                return
            try:
                self._handle(parse(frame))
            except InvalidMessageError as error:
                await self._channel.send(ErrorMessage(error.id, str(error)))

    def _handle(self, message: ClientMessage) -> None:
        """Do what a message requests. Raises `InvalidMessageError` if that is not possible."""
        entry = self._ids.find(message.id)
        if entry is None:
            raise InvalidMessageError(message.id, NOT_FOUND)
        try:
            match message:
                case AttachMessage():
                    self._attach(entry, message.id)
                case DetachMessage():
                    self._detach(entry)
                case InputMessage():
                    self._type(entry, message)
                case ResizeMessage():
                    windows = self._user.windows
                    verbs.set_size(windows, entry, message.cols, message.rows)
        except RpcError as error:
            raise InvalidMessageError(message.id, error.message) from error

    def _attach(self, entry: TerminalEntry, identifier: str) -> None:
        self._detach(entry)
        attachment = Attachment(self._user, entry, identifier, self._channel)
        self._attachments[entry.id] = attachment
        self._nursery.start_soon(self._run, entry.id, attachment)

    async def _run(self, terminal_id: str, attachment: Attachment) -> None:
        await attachment.run()
        if self._attachments.get(terminal_id) is attachment:
            del self._attachments[terminal_id]

    def _detach(self, entry: TerminalEntry) -> None:
        if (attachment := self._attachments.pop(entry.id, None)) is not None:
            attachment.stop()

    def _type(self, entry: TerminalEntry, message: InputMessage) -> None:
        if not entry.is_users:
            raise InvalidMessageError(
                message.id, "This terminal is an agent's: promote it to type into it"
            )
        # The input is queued. The next message must not wait until the program has read it.
        verbs.type_in(self._user, entry, message.data.encode()).close()
