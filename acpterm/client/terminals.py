"""Passes an agent's `terminal/*` and `_acpterm/*` requests on to the host, and the responses back.

`Terminals` also records, per session, which terminals the agent has created and not released, to
clean up after the agent. Terminals outlive the turn that created them: agents run background tasks
in them. A cancelled turn ends those that it created; closing a session releases its terminals; and
closing the connection to the host ends all that remain.

The output of a terminal is read only after a call of `follow`, which the caller makes when a tool
call embeds the terminal: then the terminal has an `OutputPoller` until the program has exited.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import trio
from msgspec import Raw, UnsetType

from acpterm.acp.agent_api import EVENTS, EXTENSION_METHODS
from acpterm.acp.agent_meta import EXTENSIONS, OWN, CancelMeta
from acpterm.acp.approvals import SESSION_OPEN
from acpterm.acp.raw_json import items, members, text
from acpterm.acp.terminal import TERMINAL_METHODS, TerminalRequest
from acpterm.acp.terminal_updates import ProgramExit
from acpterm.client.output_poller import OutputPoller
from acpterm.client.session_update import SessionKey
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


@dataclass(eq=False)
class _Create:
    """A `terminal/create` to which the host has not responded yet."""

    session: str
    session_is_closed: bool = False


class Terminals:
    """The terminals of one agent, which `host` runs.

    - `respond` is called with the id of each of the agent's requests and the host's response.
    - `on_created` is called with each new terminal, its command and its working directory (None if
      unknown).
    - `on_output` is called with output of a terminal for which `follow` was called, and with the
      number of bytes lost before that output.
    - `on_exit` is called with a terminal for which `follow` was called, and with the exit of its
      program (an unknown exit if reading fails).
    - `drain` is awaited before more output is read. It should wait until the receiver has taken
      earlier output.
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
        self._host = host
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
        """Pass a request of the agent on to the host; the response goes to `respond`."""
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

        host_request_id = self._host.call(method, params, on_response)
        if host_request_id is not None and id_ is not None:
            self._host_request_ids[id_] = host_request_id

    def _take(self, create: _Create, terminal: SessionKey, fields: dict[str, Raw]) -> None:
        """Record the terminal that the request `create` has created; `fields` are its params.

        If the session was closed meanwhile, release the terminal.
        """
        self._held[terminal] = None
        cwd = text(fields.get("cwd")) or self._session_cwds.get(create.session)
        self._on_created(terminal, _command(fields), cwd)
        if create.session_is_closed:
            self._release(terminal)
        else:
            self._new.setdefault(create.session, []).append(terminal[1])

    def cancel(self, id_: Id) -> bool:
        """Cancel the agent's request `id_` at the host; return False if it is not pending there."""
        host_request_id = self._host_request_ids.get(id_)
        if host_request_id is not None:
            self._host.cancel(host_request_id)
        return host_request_id is not None

    async def drain(self) -> None:
        """Wait until the send queue to the host has fallen to its high-water mark."""
        await self._host.drain()

    def notify(self, method: str, params: Raw | UnsetType | dict[str, Any]) -> None:
        """Pass a notification on to the host, for example a `session/update`."""
        self._host.notify(method, params)

    def cancel_turn(self, session: str) -> None:
        """End the terminals that the session's turn has created; leave its others unchanged.

        The host kills a terminal at once, and releases it after two seconds.
        """
        meta = {OWN: CancelMeta(self._new.get(session, []))}
        self._host.notify("session/cancel", {"sessionId": session, "_meta": meta})

    def name_agent(self, info: dict[str, Raw]) -> None:
        """Send the host the agent's name, from the agent's `agentInfo`."""
        if name := text(info.get("name")):
            self._host.call("initialize", initialize_params(name), ignore)

    def open_session(self, session: str, cwd: str) -> None:
        """Record `cwd`, the directory of a session, and send it to the host.

        The session's commands run in this directory by default. If this client is an approver,
        commands in a sandbox may write to the directory.
        """
        self._session_cwds[session] = cwd
        params = {"sessionId": session, "cwd": cwd}
        self._host.call("_acpterm/session/set", params, ignore)
        # The host refuses this unless the client is an approver. A refusal leaves the directory the
        # default one of commands, but sandboxes do not use it.
        self._host.call(SESSION_OPEN, params, ignore)

    def close_session(self, session: str) -> list[SessionKey]:
        """Release the terminals of `session`, and return them; call this when it is closed."""
        self._session_cwds.pop(session, None)
        self._new.pop(session, None)
        for create in self._creates:
            create.session_is_closed |= create.session == session
        left = self._held_in(session)
        for key in left:
            self._release(key)
        # For what commands have left running, whose terminals the agent has released.
        self._host.notify("session/cancel", {"sessionId": session})
        return left

    def follow(self, terminal: SessionKey) -> None:
        """Start to poll a terminal's output from its beginning, unless it is polled already."""
        if terminal in self._pollers:
            return
        poller = OutputPoller(
            self._host,
            terminal,
            on_output=lambda data, lost: self._on_output(terminal, data, lost),
            on_exit=lambda end: self._on_exit(terminal, end),
            drain=self._drain,
        )
        self._pollers[terminal] = poller
        self._nursery.start_soon(self._run, terminal, poller)

    async def settle(self, terminals: Iterable[SessionKey] = ()) -> None:
        """Wait, for at most `SETTLE_TIMEOUT_S`, for the output so far of certain terminals.

        These are `terminals`, and the terminals that the agent has released since the last call.
        """
        pollers = [poller for key in terminals if (poller := self._pollers.get(key))]
        pollers += self._settling
        self._settling = []
        if pollers:
            with trio.move_on_after(SETTLE_TIMEOUT_S):
                async with trio.open_nursery() as nursery:
                    for poller in pollers:
                        nursery.start_soon(poller.catch_up)

    async def end_turn(self, session: str) -> None:
        """Wait for the output so far of the session's terminals, as `settle` does.

        Later calls of `cancel_turn` do not end these terminals.
        """
        self._new.pop(session, None)
        await self.settle(self._held_in(session))

    def _held_in(self, session: str) -> list[SessionKey]:
        return [key for key in self._held if key[0] == session]

    def _release(self, key: SessionKey) -> None:
        if poller := self._pollers.get(key):
            poller.final_read()
        del self._held[key]
        self._host.call("terminal/release", TerminalRequest(*key), ignore)

    async def _run(self, terminal: SessionKey, poller: OutputPoller) -> None:
        await poller.run()
        if not poller.done.is_set():
            await poller.done.wait()
        self._pollers.pop(terminal, None)


def _command(params: dict[str, Raw]) -> str:
    """Return the command and arguments in the params of a `terminal/create` as a command line."""
    command = text(params.get("command")) or ""
    args = [arg for item in items(params.get("args")) if (arg := text(item)) is not None]
    return command_line(command, args)
