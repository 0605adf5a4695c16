"""Passes an agent's `terminal/*` and `_acpterm/*` requests on to the host, and the responses back.

`SessionTerminals` also records, per session, which terminals the agent has created and not
released, to clean up after the agent. Terminals outlive the turn that created them: agents run
background tasks in them. A cancelled turn ends those that it created; closing a session releases
its terminals; and closing the connection to the host ends all that remain.

`OutputPoller` reads the output of one terminal, from when a tool call embeds it until the program
has exited. Each read requests the output since a position; the host responds once there is some.
Reads are `POLL_INTERVAL_S` apart, so a flood of output is sampled instead of being read in full.

A release makes the terminal's id invalid, and agents release a terminal as soon as it has exited.
So `final_read`, called right before a release is passed on, requests the remaining output and the
exit status. The host receives these two requests before the release, and may respond to them in
either order.
"""

import base64
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import trio
from msgspec import Raw, UnsetType

from acpterm.acp.agent_api import EVENTS, EXTENSION_METHODS, ReadRequest
from acpterm.acp.agent_meta import EXTENSIONS, OWN, CancelMeta
from acpterm.acp.approvals import SESSION_OPEN
from acpterm.acp.base import Wire
from acpterm.acp.raw_json import items, members, text
from acpterm.acp.terminal import (
    TERMINAL_METHODS,
    TerminalExitStatus,
    TerminalRequest,
    WaitForTerminalExitResponse,
)
from acpterm.acp.terminal_updates import ProgramExit
from acpterm.agents.session_update import SessionKey
from acpterm.jsonrpc import Id, RpcError
from acpterm.link.endpoint import Endpoint
from acpterm.link.handshake import initialize_params
from acpterm.link.session import Response, ignore
from acpterm.runtime.command_line import command_line

# Without events: the host's notifications are not passed on to the agent.
_EXTENSION_METHODS: Final = [method for method in EXTENSION_METHODS if method != EVENTS]
# The agent's methods that the host handles.
HOST_METHODS: Final = frozenset((*TERMINAL_METHODS, *_EXTENSION_METHODS))
EXTENSIONS_META: Final = {OWN: {**EXTENSIONS, "methods": _EXTENSION_METHODS}}
"""Announces acpterm's extension methods to the agent, in `_meta` of the client's capabilities."""
# Maximum time to wait for the rest of the output that is shown.
SETTLE_TIMEOUT_S: Final = 2.0
READ_METHOD: Final = "_acpterm/terminal/read"
# Maximum number of bytes of one read, and of the final read.
CHUNK_BYTES: Final = 256 * 1024
FINAL_READ_BYTES: Final = 1024 * 1024
POLL_INTERVAL_S: Final = 0.2
# How long the host may delay the response to a read until there is output.
_WAIT_MS: Final = 60_000


class _Chunk(Wire):
    """The result of a `READ_METHOD` request: output up to `position`, after `lost` bytes."""

    data: str
    position: int
    lost: int
    exit_status: TerminalExitStatus | None = None


_chunks: Final = msgspec.json.Decoder(_Chunk)
_exit_responses: Final = msgspec.json.Decoder(WaitForTerminalExitResponse)


class OutputPoller:
    """Polls one terminal of the host; see `SessionTerminals` for the arguments.

    `on_exit` is called once, with an unknown exit if reading fails.
    """

    def __init__(
        self,
        host: Endpoint,
        terminal: SessionKey,
        on_output: Callable[[SessionKey, bytes, int], None],
        on_exit: Callable[[SessionKey, ProgramExit], None],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        self._host = host
        self._key = terminal
        self._on_output = on_output
        self._on_exit = on_exit
        self._drain = drain
        self._position = 0
        self._expedited: Final = trio.Event()
        self._final_read_sent = False
        self.done: Final = trio.Event()
        """Set once `on_exit` was called."""

    async def run(self) -> None:
        """Poll until the program has exited, or a request to the host fails."""
        try:
            while not self.done.is_set():
                await self._drain()
                chunk = _chunks.decode(
                    await self._host.request(READ_METHOD, self._read_params(CHUNK_BYTES, _WAIT_MS))
                )
                has_output = self._add(chunk)
                if chunk.exit_status is None:
                    with trio.move_on_after(POLL_INTERVAL_S):
                        await self._expedited.wait()
                elif not has_output:
                    self._finish(ProgramExit(chunk.exit_status.exit_code, chunk.exit_status.signal))
        except (RpcError, msgspec.DecodeError):
            # If the terminal was released, the final read calls `on_exit`. Otherwise no response
            # with more output will come.
            if not self._final_read_sent:
                self._finish(ProgramExit(None, None))

    async def catch_up(self) -> None:
        """Read the output so far, all of it if the program has exited or was released."""
        if self._final_read_sent:
            await self.done.wait()
            return
        with contextlib.suppress(RpcError, msgspec.DecodeError):
            chunk = _chunks.decode(
                await self._host.request(READ_METHOD, self._read_params(FINAL_READ_BYTES, 0))
            )
            self._add(chunk)
            if chunk.exit_status is not None:
                self._expedited.set()
                await self.done.wait()

    def final_read(self) -> None:
        """Request the remaining output and the exit status, before the terminal is released."""
        self._expedited.set()
        if self.done.is_set() or self._final_read_sent:
            return
        self._final_read_sent = True
        exits: list[ProgramExit] = []

        def on_read(response: Response) -> None:
            if not isinstance(response, RpcError):
                with contextlib.suppress(msgspec.DecodeError):
                    self._add(_chunks.decode(response))
            on_either()

        def on_wait(response: Response) -> None:
            # May be called before `on_read`: the host sends a known exit status at once.
            end = ProgramExit(None, None)
            if not isinstance(response, RpcError):
                with contextlib.suppress(msgspec.DecodeError):
                    status = _exit_responses.decode(response)
                    end = ProgramExit(status.exit_code, status.signal)
            exits.append(end)
            on_either()

        outstanding = 2

        def on_either() -> None:
            nonlocal outstanding
            outstanding -= 1
            if not outstanding:
                self._finish(exits[0])

        self._host.call(READ_METHOD, self._read_params(FINAL_READ_BYTES, 0), on_read)
        self._host.call("terminal/wait_for_exit", TerminalRequest(*self._key), on_wait)

    def _read_params(self, max_bytes: int, wait_ms: int) -> ReadRequest:
        return ReadRequest(
            *self._key, self._position, max_bytes=max_bytes, format="raw", wait_ms=wait_ms
        )

    def _add(self, chunk: _Chunk) -> bool:
        """Pass on what is new in a chunk; return whether there is new output."""
        data = base64.b64decode(chunk.data)
        start = chunk.position - len(data)
        lost = max(0, start - self._position)
        new = data[max(0, self._position - start) :]
        self._position = max(self._position, chunk.position)
        if new or lost:
            self._on_output(self._key, new, lost)
        return bool(new)

    def _finish(self, end: ProgramExit) -> None:
        if not self.done.is_set():
            self.done.set()
            self._on_exit(self._key, end)


@dataclass(eq=False)
class _Create:
    """A `terminal/create` to which the host has not responded yet."""

    session: str
    session_is_closed: bool = False


class SessionTerminals:
    """The terminals of one agent, which `host` runs.

    `respond` gets the id of each of the agent's requests, and the host's response. `on_created`
    gets each new terminal, its command and its directory, if known. `on_output` (with the number of
    bytes lost before) and `on_exit` are called for terminals for which `follow` was called. `drain`
    is awaited before each read, so that a slow receiver slows the polling down.
    """

    def __init__(
        self,
        host: Endpoint,
        nursery: trio.Nursery,
        *,
        respond: Callable[[Id, Response], None],
        on_created: Callable[[SessionKey, str, str | None], None],
        on_output: Callable[[SessionKey, bytes, int], None],
        on_exit: Callable[[SessionKey, ProgramExit], None],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        self.host: Final = host
        self._nursery = nursery
        self._respond = respond
        self._on_created = on_created
        self._on_output = on_output
        self._on_exit = on_exit
        self._drain = drain
        self._session_cwds: dict[str, str] = {}
        # The terminals that the agent has created and not released, in the order of their creation.
        self._held: dict[SessionKey, None] = {}
        # The ids of the terminals created since the session's last turn, also of released ones.
        self._new: dict[str, list[str]] = {}
        self._pollers: dict[SessionKey, OutputPoller] = {}
        self._creates: set[_Create] = set()
        # The pollers for which the next call of `settle` waits.
        self._settling: list[OutputPoller] = []
        # The id of our request to the host, for each pending request of the agent.
        self._host_request_ids: dict[Id, int] = {}

    def request(self, id_: Id, method: str, params: Raw | UnsetType) -> None:
        fields = members(params)
        session = text(fields.get("sessionId")) or ""
        key = session, text(fields.get("terminalId")) or ""
        if method == "terminal/release":
            if poller := self._pollers.get(key):
                poller.final_read()
                self._settling.append(poller)
            self._held.pop(key, None)

        create = _Create(session) if method == "terminal/create" else None
        if create is not None:
            self._creates.add(create)

        def on_response(response: Response) -> None:
            self._host_request_ids.pop(id_, None)
            if create is not None:
                self._creates.discard(create)
                result = None if isinstance(response, RpcError) else response
                if (terminal_id := text(members(result).get("terminalId"))) is not None:
                    self._take(create, (session, terminal_id), fields)
            self._respond(id_, response)

        host_request_id = self.host.call(method, params, on_response)
        if host_request_id is not None and id_ is not None:
            self._host_request_ids[id_] = host_request_id

    def _take(self, create: _Create, terminal: SessionKey, fields: dict[str, Raw]) -> None:
        """Record the terminal that `create` has created; release it if its session was closed."""
        self._held[terminal] = None
        cwd = text(fields.get("cwd")) or self._session_cwds.get(create.session)
        self._on_created(terminal, _command(fields), cwd)
        if create.session_is_closed:
            self._release(terminal)
        else:
            self._new.setdefault(create.session, []).append(terminal[1])

    def cancel(self, id_: Id) -> bool:
        host_request_id = self._host_request_ids.get(id_)
        if host_request_id is not None:
            self.host.cancel(host_request_id)
        return host_request_id is not None

    async def drain(self) -> None:
        await self.host.drain()

    def notify(self, method: str, params: Raw | UnsetType | dict[str, Any]) -> None:
        self.host.notify(method, params)

    def cancel_turn(self, session: str) -> None:
        """End the terminals that the turn has created: kill at once, release after two seconds."""
        meta = {OWN: CancelMeta(self._new.get(session, []))}
        self.host.notify("session/cancel", {"sessionId": session, "_meta": meta})

    def name_agent(self, info: dict[str, Raw]) -> None:
        """Send the host the agent's name, from the agent's `agentInfo`."""
        if name := text(info.get("name")):
            self.host.call("initialize", initialize_params(name), ignore)

    def open_session(self, session: str, cwd: str) -> None:
        """Send the host the directory of a session, in which its commands run by default."""
        self._session_cwds[session] = cwd
        params = {"sessionId": session, "cwd": cwd}
        self.host.call("_acpterm/session/set", params, ignore)
        # The host refuses this unless the client is an approver. A refusal leaves the directory the
        # default one of commands, but sandboxes do not use it.
        self.host.call(SESSION_OPEN, params, ignore)

    def close_session(self, session: str) -> list[SessionKey]:
        """Release the terminals of a session that is closed, and return them."""
        self._session_cwds.pop(session, None)
        self._new.pop(session, None)
        for create in self._creates:
            create.session_is_closed |= create.session == session
        left = self._held_in(session)
        for key in left:
            self._release(key)
        # For what commands have left running, whose terminals the agent has released.
        self.host.notify("session/cancel", {"sessionId": session})
        return left

    def follow(self, terminal: SessionKey) -> None:
        if terminal in self._pollers:
            return
        poller = OutputPoller(self.host, terminal, self._on_output, self._on_exit, self._drain)
        self._pollers[terminal] = poller
        self._nursery.start_soon(self._run, terminal, poller)

    async def settle(self, terminals: Iterable[SessionKey] = ()) -> None:
        """Wait for the output so far of `terminals`, and of those released since the last call."""
        pollers = [poller for key in terminals if (poller := self._pollers.get(key))]
        pollers += self._settling
        self._settling = []
        if pollers:
            with trio.move_on_after(SETTLE_TIMEOUT_S):
                async with trio.open_nursery() as nursery:
                    for poller in pollers:
                        nursery.start_soon(poller.catch_up)

    async def end_turn(self, session: str) -> None:
        """Wait for the output so far; a later `cancel_turn` does not end these terminals."""
        self._new.pop(session, None)
        await self.settle(self._held_in(session))

    def _held_in(self, session: str) -> list[SessionKey]:
        return [key for key in self._held if key[0] == session]

    def _release(self, key: SessionKey) -> None:
        if poller := self._pollers.get(key):
            poller.final_read()
        del self._held[key]
        self.host.call("terminal/release", TerminalRequest(*key), ignore)

    async def _run(self, terminal: SessionKey, poller: OutputPoller) -> None:
        await poller.run()
        if not poller.done.is_set():
            await poller.done.wait()
        self._pollers.pop(terminal, None)


def _command(params: dict[str, Raw]) -> str:
    command = text(params.get("command")) or ""
    args = [arg for item in items(params.get("args")) if (arg := text(item)) is not None]
    return command_line(command, args)
