"""The WebSocket of a PTY pool, `/ws`: serves one client until it closes the socket.

Tasks, all in one nursery: the reader, which handles one message after the other and sends errors;
one task for each terminal that the client has attached to (`output`); and the tasks that send
events (`EventFeed`). They end when the client closes the socket, or when any of them notices that
the connection is lost.

A message that is not valid is answered with `pty:error`, and the socket stays open. If the client
does not read its errors, no more of its messages are handled.

Terminals do not belong to a socket: they run on when it is closed. A client that was disconnected,
for example when the worker was replaced, connects and attaches again.

Events (`EventFeed`): for each terminal, a client is sent `created`, then `output` and `promoted`,
and at last `closed`, when the program has exited or the terminal is released. Terminals that run
when the client connects are sent as `created` first.

    (none) ──created──▶ open ──closed──▶ (none)

One task reads the host's events; one task for each open terminal sends its output. If the client
is slow, the host drops events (`host.events`). Then the open terminals are compared with those of
the host, and the differences are sent as events.

Output is sent in parts: for a terminal, at most one `output` every `INTERVAL_S` seconds. A part has
the output since the part before, but at most the last `PART_BYTES`; older output is left out.

Ids: the id of a terminal on a socket is its name at the time when the client is first sent the
terminal. A terminal that has no name, or whose name is in use on the socket, has its id on the host
instead.

The id on the socket does not change while the terminal runs, even if the terminal is renamed and
another terminal gets the old name. Otherwise the user's input could reach the other terminal.
"""

from typing import Final

import msgspec
import trio

from acpterm.acp.pool import PoolTerminal, pool_terminal
from acpterm.acp.user_api import TerminalInfo
from acpterm.acp.user_streams import EventNotification
from acpterm.host import names, verbs
from acpterm.host.entry import TerminalEntry
from acpterm.host.registry import TerminalRegistry
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import RpcError
from acpterm.web.pool.channel import Channel, Send, SendingTask, TextSocket
from acpterm.web.pool.messages import (
    NOT_FOUND,
    AttachMessage,
    ClientMessage,
    DetachMessage,
    ErrorMessage,
    InputMessage,
    InvalidMessageError,
    ResizeMessage,
    TerminalEvent,
    parse,
)
from acpterm.web.pool.output import Attachment, OutputText, last_output

INTERVAL_S: Final = 0.1
PART_BYTES: Final = 16 * 1024

_KINDS: Final = frozenset({"created", "promoted", "exited", "released"})


class PoolIds:
    """Assigns ids on one client's socket to terminals, and finds terminals by these ids."""

    def __init__(self, registry: TerminalRegistry) -> None:
        self._registry: Final = registry
        self._ids: dict[str, str] = {}
        self._terminals: dict[str, str] = {}

    def describe(self, info: TerminalInfo) -> PoolTerminal:
        """Return a terminal as the pool describes it, with its id on this socket."""
        found = pool_terminal(info)
        identifier = self._ids.get(info.terminal_id)
        if identifier is None:
            identifier = info.terminal_id if found.id in self._terminals else found.id
            self._ids[info.terminal_id] = identifier
            self._terminals[identifier] = info.terminal_id
        return msgspec.structs.replace(found, id=identifier)

    def forget(self, terminal_id: str) -> None:
        """Release a terminal's id on the socket, so that another terminal can get this id."""
        identifier = self._ids.pop(terminal_id, None)
        if identifier is not None:
            del self._terminals[identifier]

    def find(self, identifier: str) -> TerminalEntry | None:
        """Return the terminal with this id on the socket, or else this id or name on the host."""
        if identifier in self._terminals:
            return self._registry.get(self._terminals[identifier])
        return self._registry.get(identifier) or names.named(self._registry, identifier)


class EventFeed:
    """Sends the events of all terminals to one client on `channel`, from tasks in `nursery`."""

    def __init__(
        self, user: UserConnection, ids: PoolIds, channel: Channel, nursery: trio.Nursery
    ) -> None:
        self._user: Final = user
        self._ids: Final = ids
        self._channel: Final = channel
        self._nursery: Final = nursery
        self._open: Final[dict[str, _OpenTerminal]] = {}

    async def run(self) -> None:
        with self._user.events.subscribe(lambda event: event.event in _KINDS) as subscription:
            for info in self._running():
                await self._created(info, is_new=False)
            while True:
                event = await subscription.next()
                if event.lost:
                    await self._compare()
                await self._apply(event)

    def _running(self) -> list[TerminalInfo]:
        return [
            self._user.info(entry)
            for entry in self._user.registry
            if entry.terminal.exit is None and entry.released_at is None
        ]

    async def _compare(self) -> None:
        """Send the differences between the open terminals and those of the host, as events."""
        running = {info.terminal_id: info for info in self._running()}
        for terminal_id in self._open.keys() - running.keys():
            await self._closed(terminal_id, None)
        for info in running.values():
            await self._created(info)
            await self._promoted(info)

    async def _apply(self, event: EventNotification) -> None:
        info = event.terminal
        if info is None:
            return
        if event.event == "created":
            await self._created(info)
        elif event.event == "promoted":
            await self._promoted(info)
        else:
            await self._closed(info.terminal_id, info)

    async def _created(self, info: TerminalInfo, *, is_new: bool = True) -> None:
        if info.terminal_id in self._open:
            return
        terminal = self._ids.describe(info)
        entry = self._user.registry.get(info.terminal_id)
        position = 0 if is_new else info.position
        opened = _OpenTerminal(self._user, terminal, entry, position, self._channel)
        self._open[info.terminal_id] = opened
        await self._channel.send(TerminalEvent("created", terminal))
        if entry is not None:
            self._nursery.start_soon(opened.run)

    async def _promoted(self, info: TerminalInfo) -> None:
        found = self._open.get(info.terminal_id)
        if found is None or info.owner == found.terminal.owner:
            return
        found.terminal = self._ids.describe(info)
        await self._channel.send(TerminalEvent("promoted", found.terminal))

    async def _closed(self, terminal_id: str, info: TerminalInfo | None) -> None:
        found = self._open.pop(terminal_id, None)
        if found is None:
            return
        found.stop()
        terminal = found.terminal if info is None else self._ids.describe(info)
        async with self._channel.turn() as send:
            await found.send_output(send)
            await send(TerminalEvent("closed", terminal))
        self._ids.forget(terminal_id)


class _OpenTerminal(SendingTask):
    """A terminal in the state *open*: the client was sent `created`, but not yet `closed`."""

    def __init__(
        self,
        user: UserConnection,
        terminal: PoolTerminal,
        entry: TerminalEntry | None,
        position: int,
        channel: Channel,
    ) -> None:
        super().__init__(channel)
        self.terminal = terminal
        self._clipboard: Final = user.settings.clipboard
        self._entry: Final = entry
        self._position = position
        self._text = OutputText(clipboard=self._clipboard)

    async def _send_all(self) -> None:
        if self._entry is None:
            return
        # What follows the last part before the exit is sent with `closed`.
        while await self._entry.terminal.wait_output(self._position) is None:
            async with self.turn() as send:
                await self.send_output(send)
            await trio.sleep(INTERVAL_S)

    async def send_output(self, send: Send) -> None:
        """Send the last `PART_BYTES` of the output that was not sent yet, if there is any."""
        if self._entry is None or self._entry.terminal.ring.end == self._position:
            return
        data, end = last_output(self._entry.terminal, PART_BYTES, self._position)
        if end - self._position > len(data):
            self._text = OutputText(clipboard=self._clipboard)
        self._position = end
        if text := self._text.feed(data):
            await send(TerminalEvent("output", self.terminal, text))


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
