"""Passes an agent's `terminal/*` and `_acpterm/*` requests on to the host, and the responses back.

It also records which terminals the agent holds in which session, to clean up those that the agent
does not. The end of a turn kills the terminals that are left (their ids stay valid) and releases
those that were already left over by an earlier turn. Closing a session releases its terminals. The
host itself handles `session/cancel`: it kills at once, and releases after two seconds. Closing the
connection to the host ends all other terminals.

Each terminal that is shown has an `OutputPoller`, from when it is first shown until it has exited.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import trio
from msgspec import Raw, UnsetType

from acpterm.acp.agent_api import EXTENSION_METHODS, EXTENSIONS, OWN
from acpterm.acp.raw_json import items, members, text
from acpterm.acp.terminal import TERMINAL_METHODS, TerminalRequest
from acpterm.acp.terminal_updates import ExitInfo
from acpterm.client.endpoint import Endpoint, Response
from acpterm.client.handshake import initialize_params
from acpterm.client.output_poller import OutputPoller
from acpterm.client.update import SessionKey
from acpterm.jsonrpc import Id, RpcError
from acpterm.runtime.command_line import command_line

# The agent's methods that the host handles. `initialize` is the client's own.
HOST_METHODS: Final = frozenset((*TERMINAL_METHODS, *EXTENSION_METHODS))
EXTENSIONS_META: Final = {OWN: EXTENSIONS}
"""Announces those methods to the agent, in `_meta` of the client's capabilities."""
# Time for the output that is shown to become complete: at the end of a turn, and before the agent's
# message that follows a release is handled.
SETTLE_TIMEOUT_S: Final = 0.5
RELEASE_TIMEOUT_S: Final = 0.3


class Terminals:
    """The terminals of one agent.

    - `respond` is called with the id of each of the agent's requests and its response.
    - `on_created` is called with each new terminal, its command and its working directory.
    - `on_output` and `on_exit` are called for terminals that are followed; the former with the
      number of bytes lost before the output.
    - `drain` is awaited before more output is read.
    """

    def __init__(
        self,
        host: Endpoint,
        nursery: trio.Nursery,
        *,
        respond: Callable[[Id, Response], None],
        on_created: Callable[[SessionKey, str, str | None], None],
        on_output: Callable[[SessionKey, bytes, int], None],
        on_exit: Callable[[SessionKey, ExitInfo], None],
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
        # The terminals that the agent holds, and whether a turn has ended since each was created.
        self._held: dict[SessionKey, bool] = {}
        self._pollers: dict[SessionKey, OutputPoller] = {}
        # The number of turns that have ended, per session.
        self._turns: dict[str, int] = {}
        self._settling: list[OutputPoller] = []
        # Our request to the host for each pending request of the agent.
        self._host_request_ids: dict[Id, int] = {}

    def request(self, id_: Id, method: str, params: Raw | UnsetType) -> None:
        """Pass on a request of the agent; `respond` gets its response."""
        fields = members(params)
        session = text(fields.get("sessionId")) or ""
        key = session, text(fields.get("terminalId")) or ""
        if method == "terminal/release":
            if poller := self._pollers.get(key):
                poller.final_read()
                self._settling.append(poller)
            self._held.pop(key, None)

        turn = self._turns.get(session, 0)

        def on_response(response: Response) -> None:
            self._host_request_ids.pop(id_, None)
            result = None if isinstance(response, RpcError) else response
            terminal_id = text(members(result).get("terminalId"))
            if method == "terminal/create" and terminal_id is not None:
                terminal = session, terminal_id
                self._held[terminal] = False
                cwd = text(fields.get("cwd")) or self._session_cwds.get(session)
                self._on_created(terminal, _command(fields), cwd)
                if self._turns.get(session, 0) != turn:
                    self._reclaim(terminal)
            self._respond(id_, response)

        host_request_id = self._host.call(method, params, on_response)
        if host_request_id is not None and id_ is not None:
            self._host_request_ids[id_] = host_request_id

    def cancel(self, id_: Id) -> bool:
        """Cancel a pending request of the agent; return whether the host has it."""
        host_request_id = self._host_request_ids.get(id_)
        if host_request_id is not None:
            self._host.cancel(host_request_id)
        return host_request_id is not None

    async def drain(self) -> None:
        """Wait until at most the high-water mark is queued for the host."""
        await self._host.drain()

    def notify(self, method: str, params: Raw | UnsetType | dict[str, str]) -> None:
        """Pass on a `session/update` or `session/cancel`."""
        self._host.notify(method, params)

    def name_agent(self, info: dict[str, Raw]) -> None:
        """Send the host the agent's name, from the agent's `agentInfo`."""
        if name := text(info.get("name")):
            self._host.call("initialize", initialize_params(name), _ignore)

    def open_session(self, session: str, cwd: str) -> None:
        """Record a session's directory, the default for its commands, and send it to the host."""
        self._session_cwds[session] = cwd
        self._host.call("_acpterm/session/set", {"sessionId": session, "cwd": cwd}, _ignore)

    def close_session(self, session: str) -> None:
        """Release the terminals of a closed session: it cannot use them any more."""
        self._session_cwds.pop(session, None)
        for key in [key for key in self._held if key[0] == session]:
            self._release(key)

    def follow(self, terminal: SessionKey) -> None:
        """Start to poll a terminal from its beginning, unless that was started before."""
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
        """Wait until the output of terminals is complete, for at most `RELEASE_TIMEOUT_S`.

        This concerns terminals just released, and `terminals`. To be awaited before the agent's
        next message is handled, so that the output is shown above it.
        """
        for poller in [poller for key in terminals if (poller := self._pollers.get(key))]:
            poller.expedite()
            self._settling.append(poller)
        if self._settling:
            settling, self._settling = self._settling, []
            with trio.move_on_after(RELEASE_TIMEOUT_S):
                for poller in settling:
                    await poller.done.wait()

    async def end_turn(self, session: str) -> None:
        """Kill the terminals left over by a turn, and wait until their output is complete.

        Waits for at most `SETTLE_TIMEOUT_S`.
        """
        self._turns[session] = self._turns.get(session, 0) + 1
        for key in [key for key in self._held if key[0] == session]:
            self._reclaim(key)
        pollers = [poller for key, poller in self._pollers.items() if key[0] == session]
        for poller in pollers:
            poller.expedite()
        with trio.move_on_after(SETTLE_TIMEOUT_S):
            for poller in pollers:
                await poller.done.wait()

    def _reclaim(self, key: SessionKey) -> None:
        """Kill a terminal left over by a turn; release it if an earlier turn had left it over."""
        if self._held[key]:
            self._release(key)
        else:
            self._held[key] = True
            self._host.call("terminal/kill", TerminalRequest(*key), _ignore)

    def _release(self, key: SessionKey) -> None:
        if poller := self._pollers.get(key):
            poller.final_read()
        del self._held[key]
        self._host.call("terminal/release", TerminalRequest(*key), _ignore)

    async def _run(self, terminal: SessionKey, poller: OutputPoller) -> None:
        await poller.run()
        if not poller.done.is_set():
            await poller.done.wait()
        self._pollers.pop(terminal, None)


def _command(params: dict[str, Raw]) -> str:
    """Return a command as one line, as a user would type it."""
    command = text(params.get("command")) or ""
    args = [arg for item in items(params.get("args")) if (arg := text(item)) is not None]
    return command_line(command, args)


def _ignore(response: Response) -> None:
    del response
