"""Clients for fault tests: an agent on the socket that resumes, one on `acpterm stdio`, the user.

`SocketAgent` does what docs/protocol.md requires of an agent that connects by itself: it keeps the
secret of `initialize`, reconnects with it when the connection is lost, and repeats all requests
without a response, with the same ids. `StdioAgent` does none of that: `acpterm stdio` does it.
"""

import base64
import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio

from tests.support.connector import connect_as_agent

SESSION = "faults"
_RETRY_S = 0.02
_REQUEST_TIMEOUT_S = 40


class RequestError(Exception):
    """An error response."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]


class ResumeError(Exception):
    """The daemon no longer has the sessions of a connection."""


class _Pending:
    def __init__(self, line: bytes) -> None:
        self.line = line
        self.done = trio.Event()
        self.message: dict[str, Any] | None = None
        self.sent_at = trio.current_time()


class Agent:
    """Requests and their responses, independent of the transport."""

    def __init__(self) -> None:
        self.latencies: list[tuple[float, float, str]] = []
        """For each request: when it was sent, the seconds until its response, and its method."""
        self.repeated = 0
        """Requests that were sent more than once."""
        self._pending: dict[int, _Pending] = {}
        self._ids = itertools.count(1)
        self._lost: Exception | None = None

    async def _send(self, line: bytes) -> None:
        raise NotImplementedError

    def _receive(self, line: bytes) -> None:
        message = json.loads(line)
        pending = self._pending.pop(message["id"], None)
        assert pending is not None, f"a second response, or one to no request: {line[:200]!r}"
        pending.message = message
        pending.done.set()

    def _fail(self, error: Exception) -> None:
        self._lost = error
        for pending in self._pending.values():
            pending.done.set()

    async def start(self, method: str, params: dict[str, Any]) -> "_Pending":
        """Send a request; `result` waits for its response."""
        id_ = next(self._ids)
        body = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        pending = self._pending[id_] = _Pending(json.dumps(body).encode() + b"\n")
        await self._send(pending.line)
        return pending

    async def result(
        self, pending: "_Pending", method: str, timeout_s: float = _REQUEST_TIMEOUT_S
    ) -> Any:
        """Wait for the result of a request that was sent."""
        with trio.move_on_after(timeout_s):
            await pending.done.wait()
        if pending.message is None:
            raise self._lost or TimeoutError(f"{method} was not answered in {timeout_s:g} s")
        self.latencies.append((pending.sent_at, trio.current_time() - pending.sent_at, method))
        if "error" in pending.message:
            raise RequestError(pending.message["error"])
        return pending.message["result"]

    async def request(self, method: str, params: dict[str, Any], **more: Any) -> Any:
        """Send a request and wait for its result."""
        return await self.result(await self.start(method, params), method, **more)

    async def create(self, *argv: str, **more: Any) -> str:
        """Create a terminal; return its id."""
        params = {"sessionId": SESSION, "command": argv[0], "args": list(argv[1:]), **more}
        return str((await self.request("terminal/create", params))["terminalId"])

    async def output(self, terminal: str) -> dict[str, Any]:
        return await self.request("terminal/output", _name(terminal))

    async def wait(self, terminal: str) -> dict[str, Any]:
        """Wait for the exit, without a timeout."""
        params = _name(terminal)
        return await self.request("terminal/wait_for_exit", params, timeout_s=math.inf)

    async def kill(self, terminal: str) -> None:
        await self.request("terminal/kill", _name(terminal))

    async def release(self, terminal: str) -> None:
        await self.request("terminal/release", _name(terminal))

    async def read(self, terminal: str, since: int, **more: Any) -> tuple[int, bytes, int]:
        """Read raw output; return its start position, the bytes, and the next position."""
        params = {**_name(terminal), "since": since, "format": "raw", **more}
        result = await self.request("_acpterm/terminal/read", params)
        data = base64.b64decode(result["data"])
        assert since + result["lost"] + len(data) == result["position"], result
        return since + result["lost"], data, result["position"]

    def longest_answer(self, since: float = -math.inf) -> float:
        """Return the longest latency of a request sent since then, except waits for an exit."""
        return max(
            (
                taken
                for sent_at, taken, method in self.latencies
                if sent_at >= since and method != "terminal/wait_for_exit"
            ),
            default=0.0,
        )


class SocketAgent(Agent):
    """An agent that connects to the daemon's socket by itself."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.lost_connections = 0
        self.secret: str | None = None
        self._path = path
        self._stream: trio.SocketStream | None = None
        self._sending = trio.Lock()

    async def _send(self, line: bytes) -> None:
        stream = self._stream
        async with self._sending:
            if stream is None or stream is not self._stream:
                return  # After the reconnect it is sent with the other requests without a response.
            # The connection is lost: the request is sent again on the next one.
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._stream.send_all(line)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Stay connected until cancelled."""
        for connection in itertools.count():
            stream = await _connect(self._path, connect_as_agent)
            try:
                rest = await self._initialize(stream, first=connection == 0)
                if connection == 0:
                    task_status.started()
                await self._receive_all(stream, rest)
            except trio.BrokenResourceError:
                pass
            except ResumeError as error:
                self._fail(error)
                return
            finally:
                self._stream = None
                await trio.aclose_forcefully(stream)
            self.lost_connections += 1

    async def _initialize(self, stream: trio.SocketStream, *, first: bool) -> bytes:
        params: dict[str, Any] = {"protocolVersion": 1}
        if self.secret is not None:
            params["_meta"] = {"acpterm": {"resume": self.secret}}
        body = {"jsonrpc": "2.0", "id": "initialize", "method": "initialize", "params": params}
        await stream.send_all(json.dumps(body).encode() + b"\n")
        received = b""
        while b"\n" not in received:
            data = await stream.receive_some(1 << 16)
            if not data:
                raise trio.BrokenResourceError
            received += data
        line, _, rest = received.partition(b"\n")
        own = (json.loads(line)["result"].get("_meta") or {}).get("acpterm") or {}
        if self.secret is not None and not own.get("resumed"):
            raise ResumeError("the daemon did not resume the connection")
        assert first or self.secret is not None, "the connection was lost before it had a secret"
        self.secret = own.get("resume", self.secret)
        async with self._sending:
            unanswered = [pending.line for pending in self._pending.values()]
            self._stream = stream
            if not first:
                self.repeated += len(unanswered)
            if unanswered:
                await stream.send_all(b"".join(unanswered))
        return rest

    async def _receive_all(self, stream: trio.SocketStream, rest: bytes) -> None:
        while True:
            *lines, rest = rest.split(b"\n")
            for line in lines:
                self._receive(line)
            data = await stream.receive_some(1 << 18)
            if not data:
                return
            rest += data


class StdioAgent(Agent):
    """An agent that has spawned `acpterm stdio`."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        super().__init__()
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        with process.stdin, process.stdout:
            self._stdin = trio.lowlevel.FdStream(os.dup(process.stdin.fileno()))
            self._stdout = trio.lowlevel.FdStream(os.dup(process.stdout.fileno()))
        self._sending = trio.Lock()

    async def _send(self, line: bytes) -> None:
        async with self._sending:
            await self._stdin.send_all(line)

    async def run(self) -> None:
        """Receive responses until cancelled, or until `acpterm stdio` exits."""
        rest = b""
        while data := await self._stdout.receive_some(1 << 18):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._receive(line)
        assert not rest, f"half a message at the end: {rest[:200]!r}"
        self._fail(EOFError("acpterm stdio has ended"))

    async def close(self) -> None:
        """Close the stdin of `acpterm stdio`, and wait until it has exited."""
        await self._stdin.aclose()
        with trio.move_on_after(5):
            await trio.to_thread.run_sync(self.process.wait, abandon_on_cancel=True)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        await self._stdout.aclose()


@asynccontextmanager
async def socket_agent(path: str) -> AsyncIterator[SocketAgent]:
    """Connect an agent to the daemon's socket."""
    agent = SocketAgent(path)
    async with trio.open_nursery() as nursery:
        await nursery.start(agent.run)
        yield agent
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def stdio_agent(path: str, env: dict[str, str], log: Any) -> AsyncIterator[StdioAgent]:
    """Spawn `acpterm stdio` for the daemon at a socket.

    It is spawned by another process, which the daemon then takes for the agent. This process must
    not be the agent, since it connects as the user.
    """
    agent_of = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
    stdio = [sys.executable, "-m", "acpterm", "stdio", "--socket", path]
    process = subprocess.Popen(
        [sys.executable, "-c", agent_of, *stdio],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
    )
    agent = StdioAgent(process)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.run)
        try:
            await agent.request("initialize", {"protocolVersion": 1})
            yield agent
        finally:
            with trio.CancelScope(shield=True):
                await agent.close()
            nursery.cancel_scope.cancel()


async def user_request(path: str, method: str, timeout_s: float = 20, **params: Any) -> Any:
    """Request `_acpterm/METHOD` on a new connection; repeat it when that is lost."""
    with trio.move_on_after(timeout_s):
        while True:
            stream = await _connect(path)
            try:
                return await _request_once(stream, method, params)
            except trio.BrokenResourceError:
                await trio.sleep(_RETRY_S)
            finally:
                await trio.aclose_forcefully(stream)
    raise TimeoutError(f"{method} was not answered in {timeout_s:g} s")


async def _request_once(stream: trio.SocketStream, method: str, params: dict[str, Any]) -> Any:
    requests = [("initialize", {"protocolVersion": 1}), (f"_acpterm/{method}", params)]
    for id_, (name, body_params) in enumerate(requests):
        body = {"jsonrpc": "2.0", "id": id_, "method": name, "params": body_params}
        await stream.send_all(json.dumps(body).encode() + b"\n")
    received = b""
    while received.count(b"\n") < len(requests):
        data = await stream.receive_some(1 << 16)
        if not data:
            raise trio.BrokenResourceError
        received += data
    answer = json.loads(received.splitlines()[-1])
    if "error" in answer:
        raise RequestError(answer["error"])
    return answer["result"]


async def _connect(
    path: str, connect: Callable[[str], Awaitable[trio.SocketStream]] = trio.open_unix_socket
) -> trio.SocketStream:
    """Connect to a socket; retry until it exists."""
    while True:
        try:
            stream = await connect(path)
        except OSError:
            await trio.sleep(_RETRY_S)
        else:
            assert isinstance(stream, trio.SocketStream)
            return stream


def _name(terminal: str) -> dict[str, str]:
    return {"sessionId": SESSION, "terminalId": terminal}
