"""The agent's `terminal/*` and `_acpterm/*`: passed on to the host, and its answers back.

Kept beside that, for the ends that the agent does not care for: which terminals it holds, in which
session. A turn that is over kills those that are left (their ids stay valid); those left over from
an earlier turn are released. A session that is closed has its terminals released. What `cancel`
means the host knows itself: it kills at once, and releases after two seconds. All that is left goes
with the connection to the host.

A follower is there for each terminal that is shown, from its first showing to its end.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import trio
from msgspec import Raw, UnsetType

from acpterm.acp import TerminalRequest
from acpterm.acp.agent_api import EXTENSION_METHODS, EXTENSIONS, OWN
from acpterm.acp.raw_json import items, members, text
from acpterm.acp.terminal import TERMINAL_METHODS
from acpterm.acp.terminal_updates import ExitInfo
from acpterm.client.endpoint import Endpoint, Response
from acpterm.client.handshake import initialize_params
from acpterm.client.output_poller import OutputPoller
from acpterm.client.update import SessionKey
from acpterm.jsonrpc import Id, RpcError
from acpterm.runtime.command_line import command_line

# What the host answers an agent: all but `initialize`, which is for whoever connects.
METHODS: Final = frozenset((*TERMINAL_METHODS, *EXTENSION_METHODS))
EXTENDED: Final = {OWN: EXTENSIONS}
"""What an agent is told of that, in `_meta` of the client's capabilities."""
# Seconds that what is shown may take to be complete: when its turn is over, and before what the
# agent says after a release.
SETTLE_TIMEOUT_S: Final = 0.5
RELEASE_TIMEOUT_S: Final = 0.3


class Terminals:
    """What one agent has of a host.

    `answer` is called with the id of each request and its answer. `made` is told of each terminal
    with its command and folder, `take` and `ended` of the output and the end of those followed;
    `room` is waited for before there is more output.
    """

    def __init__(
        self,
        host: Endpoint,
        nursery: trio.Nursery,
        *,
        answer: Callable[[Id, Response], None],
        made: Callable[[SessionKey, str, str | None], None],
        take: Callable[[SessionKey, bytes, int], None],
        ended: Callable[[SessionKey, ExitInfo], None],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        self._host = host
        self._nursery = nursery
        self._answer = answer
        self._on_created = made
        self._on_output = take
        self._on_exit = ended
        self._room = room
        self._folders: dict[str, str] = {}
        # Those that the agent holds, and whether a turn has been over since each was made.
        self._held: dict[SessionKey, bool] = {}
        self._followers: dict[SessionKey, OutputPoller] = {}
        # How many turns of each session are over.
        self._turns: dict[str, int] = {}
        self._settling: list[OutputPoller] = []
        self._asked: dict[Id, int] = {}

    def request(self, id_: Id, method: str, params: Raw | UnsetType) -> None:
        """Pass on a request of the agent's; its answer comes back by itself."""
        found = members(params)
        session = text(found.get("sessionId")) or ""
        key = session, text(found.get("terminalId")) or ""
        if method == "terminal/release":
            if follower := self._followers.get(key):
                follower.final_read()
                self._settling.append(follower)
            self._held.pop(key, None)

        turn = self._turns.get(session, 0)

        def answered(answer: Response) -> None:
            self._asked.pop(id_, None)
            made = None if isinstance(answer, RpcError) else text(members(answer).get("terminalId"))
            if method == "terminal/create" and made is not None:
                terminal = session, made
                self._held[terminal] = False
                self._on_created(
                    terminal, _command(found), text(found.get("cwd")) or self._folders.get(session)
                )
                if self._turns.get(session, 0) != turn:
                    self._reclaim(terminal)
            self._answer(id_, answer)

        asked = self._host.call(method, params, answered)
        if asked is not None and id_ is not None:
            self._asked[id_] = asked

    def cancel(self, id_: Id) -> bool:
        """Pass on that the agent no longer wants a request; whether it is one of those here."""
        asked = self._asked.get(id_)
        if asked is not None:
            self._host.cancel(asked)
        return asked is not None

    async def drain(self) -> None:
        """Wait until the host has taken most of what it was told."""
        await self._host.drain()

    def notify(self, method: str, params: Raw | UnsetType | dict[str, str]) -> None:
        """Have the host know of a `session/update` or `session/cancel`."""
        self._host.notify(method, params)

    def name_agent(self, info: dict[str, Raw]) -> None:
        """Send the host the agent's name, from the `agentInfo` that it gives of itself."""
        if name := text(info.get("name")):
            self._host.call("initialize", initialize_params(name), _ignore)

    def open_session(self, session: str, cwd: str) -> None:
        """Learn a session's folder: that of its commands, unless they name another."""
        self._folders[session] = cwd
        self._host.call("_acpterm/session/set", {"sessionId": session, "cwd": cwd}, _ignore)

    def close_session(self, session: str) -> None:
        """Learn that a session is closed: nobody can use its terminals any more."""
        self._folders.pop(session, None)
        for key in [key for key in self._held if key[0] == session]:
            self._release(key)

    def follow(self, terminal: SessionKey) -> None:
        """Follow a terminal from its beginning, once."""
        if terminal in self._followers:
            return
        follower = OutputPoller(
            self._host,
            terminal,
            take=lambda data, lost: self._on_output(terminal, data, lost),
            ended=lambda end: self._on_exit(terminal, end),
            room=self._room,
        )
        self._followers[terminal] = follower
        self._nursery.start_soon(self._run, terminal, follower)

    async def settle(self, more: Iterable[SessionKey] = ()) -> None:
        """Wait until what is shown of terminals is complete, or `RELEASING` seconds.

        That is of those just released, and of `more`. To be awaited before the agent's next message
        is taken: that comes after.
        """
        for follower in [found for key in more if (found := self._followers.get(key))]:
            follower.expedite()
            self._settling.append(follower)
        if self._settling:
            settling, self._settling = self._settling, []
            with trio.move_on_after(RELEASE_TIMEOUT_S):
                for follower in settling:
                    await follower.done.wait()

    async def end_turn(self, session: str) -> None:
        """Kill what the session's turn has left, and wait until what is shown of it is complete.

        That takes at most `SETTLING` seconds.
        """
        self._turns[session] = self._turns.get(session, 0) + 1
        for key in [key for key in self._held if key[0] == session]:
            self._reclaim(key)
        followers = [follower for key, follower in self._followers.items() if key[0] == session]
        for follower in followers:
            follower.expedite()
        with trio.move_on_after(SETTLE_TIMEOUT_S):
            for follower in followers:
                await follower.done.wait()

    def _reclaim(self, key: SessionKey) -> None:
        """Deal with a terminal that a turn has left: kill it; release it if it was left before."""
        if self._held[key]:
            self._release(key)
        else:
            self._held[key] = True
            self._host.call("terminal/kill", TerminalRequest(*key), _ignore)

    def _release(self, key: SessionKey) -> None:
        if follower := self._followers.get(key):
            follower.final_read()
        del self._held[key]
        self._host.call("terminal/release", TerminalRequest(*key), _ignore)

    async def _run(self, terminal: SessionKey, follower: OutputPoller) -> None:
        await follower.run()
        if not follower.done.is_set():
            await follower.done.wait()
        self._followers.pop(terminal, None)


def _command(params: dict[str, Raw]) -> str:
    """Give a command in one line, as a person would type it."""
    command = text(params.get("command")) or ""
    args = [arg for item in items(params.get("args")) if (arg := text(item)) is not None]
    return command_line(command, args)


def _ignore(answer: Response) -> None:
    del answer
