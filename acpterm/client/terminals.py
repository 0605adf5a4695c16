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
from acpterm.acp.agent_api import OWN
from acpterm.acp.raw_json import items, members, text
from acpterm.acp.terminal_updates import End
from acpterm.client.endpoint import Answer, Endpoint
from acpterm.client.handshake import initialize_params
from acpterm.client.output_poller import Follower
from acpterm.client.update import Key
from acpterm.host.agent.methods import REQUESTS
from acpterm.host.agent.session_methods import EXTENSIONS
from acpterm.host.launch.command import in_a_line
from acpterm.jsonrpc import Id, RpcError

# What the host answers an agent: all but `initialize`, which is for whoever connects.
METHODS: Final = frozenset(REQUESTS) - {"initialize"}
EXTENDED: Final = {OWN: EXTENSIONS}
"""What an agent is told of that, in `_meta` of the client's capabilities."""
# Seconds that what is shown may take to be complete: when its turn is over, and before what the
# agent says after a release.
SETTLING: Final = 0.5
RELEASING: Final = 0.3


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
        answer: Callable[[Id, Answer], None],
        made: Callable[[Key, str, str | None], None],
        take: Callable[[Key, bytes, int], None],
        ended: Callable[[Key, End], None],
        room: Callable[[], Awaitable[None]],
    ) -> None:
        self._host = host
        self._nursery = nursery
        self._answer = answer
        self._made = made
        self._take = take
        self._ended = ended
        self._room = room
        self._folders: dict[str, str] = {}
        # Those that the agent holds, and whether a turn has been over since each was made.
        self._held: dict[Key, bool] = {}
        self._followers: dict[Key, Follower] = {}
        # How many turns of each session are over.
        self._turns: dict[str, int] = {}
        self._settling: list[Follower] = []
        self._asked: dict[Id, int] = {}

    def request(self, id_: Id, method: str, params: Raw | UnsetType) -> None:
        """Pass on a request of the agent's; its answer comes back by itself."""
        found = members(params)
        session = text(found.get("sessionId")) or ""
        key = session, text(found.get("terminalId")) or ""
        if method == "terminal/release":
            if follower := self._followers.get(key):
                follower.last_call()
                self._settling.append(follower)
            self._held.pop(key, None)

        turn = self._turns.get(session, 0)

        def answered(answer: Answer) -> None:
            self._asked.pop(id_, None)
            made = None if isinstance(answer, RpcError) else text(members(answer).get("terminalId"))
            if method == "terminal/create" and made is not None:
                terminal = session, made
                self._held[terminal] = False
                self._made(
                    terminal, _command(found), text(found.get("cwd")) or self._folders.get(session)
                )
                if self._turns.get(session, 0) != turn:
                    self._leave_over(terminal)
            self._answer(id_, answer)

        asked = self._host.ask(method, params, answered)
        if asked is not None and id_ is not None:
            self._asked[id_] = asked

    def cancel(self, id_: Id) -> bool:
        """Pass on that the agent no longer wants a request; whether it is one of those here."""
        asked = self._asked.get(id_)
        if asked is not None:
            self._host.cancel(asked)
        return asked is not None

    async def room(self) -> None:
        """Wait until the host has taken most of what it was told."""
        await self._host.room()

    def tell(self, method: str, params: Raw | UnsetType | dict[str, str]) -> None:
        """Have the host know of a `session/update` or `session/cancel`."""
        self._host.tell(method, params)

    def name_agent(self, info: dict[str, Raw]) -> None:
        """Send the host the agent's name, from the `agentInfo` that it gives of itself."""
        if name := text(info.get("name")):
            self._host.ask("initialize", initialize_params(name), _ignore)

    def enter(self, session: str, cwd: str) -> None:
        """Learn a session's folder: that of its commands, unless they name another."""
        self._folders[session] = cwd
        self._host.ask("_acpterm/session/set", {"sessionId": session, "cwd": cwd}, _ignore)

    def leave(self, session: str) -> None:
        """Learn that a session is closed: nobody can use its terminals any more."""
        self._folders.pop(session, None)
        for key in [key for key in self._held if key[0] == session]:
            self._release(key)

    def follow(self, terminal: Key) -> None:
        """Follow a terminal from its beginning, once."""
        if terminal in self._followers:
            return
        follower = Follower(
            self._host,
            terminal,
            take=lambda data, lost: self._take(terminal, data, lost),
            ended=lambda end: self._ended(terminal, end),
            room=self._room,
        )
        self._followers[terminal] = follower
        self._nursery.start_soon(self._run, terminal, follower)

    async def settle(self, more: Iterable[Key] = ()) -> None:
        """Wait until what is shown of terminals is complete, or `RELEASING` seconds.

        That is of those just released, and of `more`. To be awaited before the agent's next message
        is taken: that comes after.
        """
        for follower in [found for key in more if (found := self._followers.get(key))]:
            follower.hurry()
            self._settling.append(follower)
        if self._settling:
            settling, self._settling = self._settling, []
            with trio.move_on_after(RELEASING):
                for follower in settling:
                    await follower.done.wait()

    async def turn_over(self, session: str) -> None:
        """Kill what the session's turn has left, and wait until what is shown of it is complete.

        That takes at most `SETTLING` seconds.
        """
        self._turns[session] = self._turns.get(session, 0) + 1
        for key in [key for key in self._held if key[0] == session]:
            self._leave_over(key)
        followers = [follower for key, follower in self._followers.items() if key[0] == session]
        for follower in followers:
            follower.hurry()
        with trio.move_on_after(SETTLING):
            for follower in followers:
                await follower.done.wait()

    def _leave_over(self, key: Key) -> None:
        """Deal with a terminal that a turn has left: kill it; release it if it was left before."""
        if self._held[key]:
            self._release(key)
        else:
            self._held[key] = True
            self._host.ask("terminal/kill", TerminalRequest(*key), _ignore)

    def _release(self, key: Key) -> None:
        if follower := self._followers.get(key):
            follower.last_call()
        del self._held[key]
        self._host.ask("terminal/release", TerminalRequest(*key), _ignore)

    async def _run(self, terminal: Key, follower: Follower) -> None:
        await follower.run()
        if not follower.done.is_set():
            await follower.done.wait()
        self._followers.pop(terminal, None)


def _command(params: dict[str, Raw]) -> str:
    """Give a command in one line, as a person would type it."""
    command = text(params.get("command")) or ""
    args = [arg for item in items(params.get("args")) if (arg := text(item)) is not None]
    return in_a_line(command, args)


def _ignore(answer: Answer) -> None:
    del answer
