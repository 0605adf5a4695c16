"""A client of the user's socket: it collects notifications by the token of their request."""

import base64
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from msgspec import UNSET

from acpterm.host.host import Host
from tests.support.depth import DEADLINE_S
from tests.support.rpc import Message, RpcClient, running

PREFIX = "_acpterm/"


class User(RpcClient):
    """A connection to the user's socket of a host.

    `_acpterm/` may be omitted from the names of methods; `initialize` and names after a `/` are
    sent without it.
    """

    timeout_s = DEADLINE_S

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self.by_token: defaultdict[str | None, list[Message]] = defaultdict(list)
        """The notifications by their token; those without a token by None."""
        self._tokens = 0

    async def _receive_message(self, message: Message) -> None:
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            assert "id" not in message, f"a request to a client of the user's socket: {message!r}"
            self.by_token[token_of(message)].append(message)
        else:
            assert ("result" in message) != ("error" in message), message
        await super()._receive_message(message)

    def prepare(self, method: str, params: Any, id_: Any = UNSET) -> tuple[Any, bytes]:
        """Return id and line of a request that the test sends itself; by default with a new id."""
        return super().prepare(full_name(method), params or {}, id_)

    async def start(self, method: str, params: Any = None, id_: Any = UNSET) -> Any:
        """Send a request; return its id for `result`."""
        return await super().start(method, params, id_)

    async def request(self, method: str, params: Any = None) -> Any:
        """Send a request and wait for its result."""
        return await super().request(method, params)

    async def open(self, method: str, **params: Any) -> tuple[int, str]:
        """Start a request that stays pending and sends notifications; return id and token."""
        self._tokens += 1
        token = params.setdefault("token", f"token-{self._tokens}")
        return await self.start(method, params), token

    async def terminal_request(self, method: str, terminal: str, **more: Any) -> Any:
        """Send the request `_acpterm/terminal/METHOD` for a terminal and wait for its result."""
        return await self.request(f"terminal/{method}", {"terminalId": terminal, **more})

    async def create(self, command: str, name: str | None = None, **more: Any) -> str:
        """Create a terminal; return its id."""
        params = {"command": command, "name": name, **more}
        return str((await self.request("terminal/create", params))["terminalId"])

    async def until_output(self, terminal: str, text: str) -> None:
        """Poll until the output contains `text`."""
        with trio.fail_after(DEADLINE_S):
            while text not in (await self.terminal_request("output", terminal))["text"]:
                await trio.sleep(0.005)

    async def list(self, **params: Any) -> Any:
        """Return the terminals that `_acpterm/terminal/list` lists."""
        return (await self.request("terminal/list", params))["terminals"]

    async def close(self) -> None:
        """Cancel pending requests, then close the stream. (`stream.aclose` cancels none.)"""
        with trio.CancelScope(shield=True), trio.move_on_after(1):
            try:
                for id_ in self.methods.keys() - self.responses.keys():
                    await self.cancel(id_)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            await self.stream.aclose()


def full_name(method: str) -> str:
    """Return the name of a method on the wire."""
    if method == "initialize" or method.startswith(("_", "$")):
        return method
    return method.removeprefix("/") if method.startswith("/") else PREFIX + method


def token_of(message: Message) -> str | None:
    """Return the token of a notification; notifications of ACP have it in `_meta`."""
    params = message.get("params") or {}
    own = (params.get("_meta") or {}).get("acpterm") or {}
    return params.get("token", own.get("token"))


@asynccontextmanager
async def user_on(stream: trio.abc.Stream) -> AsyncIterator[User]:
    """Connect a user to the host at the other end of `stream`."""
    async with running(User(stream)) as user:
        yield user


@asynccontextmanager
async def user_of(host: Host, **more: Any) -> AsyncIterator[User]:
    """Connect a user to a host in this process; `more` are arguments of `Host.serve_user`."""
    ours, theirs = trio.socket.socketpair()
    async with trio.open_nursery() as nursery:
        serve = partial(host.serve_user, **more)
        nursery.start_soon(serve, trio.SocketStream(theirs), host.context)
        async with user_on(trio.SocketStream(ours)) as user:
            yield user


@asynccontextmanager
async def user_at(path: str) -> AsyncIterator[User]:
    """Connect a user to a daemon's user socket."""
    async with user_on(await trio.open_unix_socket(path)) as user:
        yield user


class UserTerminals:
    """Creates the user's own terminals, in which tests run acpterm's commands.

    Agents' terminals cannot be used: the daemon refuses the user's socket to commands in them.
    """

    def __init__(self, user: User) -> None:
        self._user = user
        self._raw: set[str] = set()

    async def create(self, command: str, *, own: dict[str, Any] | None = None, **more: Any) -> str:
        """Run a command in a terminal; `own` has the terminal's `format` (text or raw) and size."""
        size = {name: value for name, value in (own or {}).items() if name != "format"}
        created = await self._user.request("terminal/create", {"command": command, **more, **size})
        terminal = str(created["terminalId"])
        if (own or {}).get("format") == "raw":
            self._raw.add(terminal)
        return terminal

    async def output(self, terminal: str) -> dict[str, Any]:
        request = self._user.terminal_request
        if terminal not in self._raw:
            return {"output": (await request("output", terminal))["text"]}
        data = (await request("read", terminal, format="raw", maxBytes=1 << 20))["data"]
        return {"output": base64.b64decode(data).decode(errors="replace")}

    async def until_output(self, terminal: str, text: str) -> str:
        """Poll until the output contains `text`; return the output."""
        with trio.fail_after(DEADLINE_S):
            while text not in (output := (await self.output(terminal))["output"]):
                await trio.sleep(0.005)
        return str(output)

    async def type(self, terminal: str, data: str) -> Any:
        return await self._user.terminal_request("write", terminal, data=data)

    async def wait(self, terminal: str) -> Any:
        """Wait until the command has exited; return its exit status."""
        return (await self._user.terminal_request("wait", terminal))["exitStatus"]

    async def release(self, terminal: str) -> Any:
        return await self._user.terminal_request("release", terminal)


@asynccontextmanager
async def user_terminals_at(path: str) -> AsyncIterator[UserTerminals]:
    """Connect to the daemon whose agents' socket is at `path`."""
    async with user_at(path.replace("agent.sock", "user.sock")) as user:
        yield UserTerminals(user)
