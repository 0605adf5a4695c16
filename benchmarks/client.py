"""A minimal client: a blocking socket, msgspec, and no checks.

Its cost is part of every figure, so it does as little as possible. Baselines that are servers
(`plain_server`) are measured with the same client.
"""

import itertools
import socket
import time
from typing import Any

import msgspec

from benchmarks.connector import connect_as_agent

SESSION = "benchmark"
_CHUNK_BYTES = 256 * 1024


class Answer(msgspec.Struct):
    """A response to a request."""

    id: int
    result: Any = None
    error: Any = None


class Lines:
    """Whole lines from a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._rest = b""

    def next(self) -> bytes:
        """Wait for a line; return it without the LF. Raises `EOFError` at the end of the stream."""
        line, found, self._rest = self._rest.partition(b"\n")
        if found:
            return line
        pieces = [line]
        while True:
            data = self._sock.recv(_CHUNK_BYTES)
            if not data:
                raise EOFError("the server closed the connection")
            end = data.find(b"\n")
            if end >= 0:
                pieces.append(data[:end])
                self._rest = data[end + 1 :]
                return b"".join(pieces)
            pieces.append(data)


class Client:
    """One connection to a server.

    `ask` sends a request and waits for its response; `send` and `receive` allow pipelining.
    `path` is an agents' socket, or a user's socket if it ends in `user.sock`. `resume` is the
    secret of a lost connection whose sessions this connection resumes. `own` has further members of
    `_meta.acpterm` for `initialize`.
    """

    def __init__(
        self, path: str, resume: str | None = None, own: dict[str, Any] | None = None
    ) -> None:
        if path.endswith("user.sock"):
            self._sock = socket.socket(socket.AF_UNIX)
            self._sock.connect(path)
        else:
            self._sock = connect_as_agent(path)
        self._lines = Lines(self._sock)
        self._ids = itertools.count(1)
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(Answer).decode
        params: dict[str, Any] = {"protocolVersion": 1}
        own = dict(own or {})
        if resume is not None:
            own["resume"] = resume
        if own:
            params["_meta"] = {"acpterm": own}
        # The server is ready once it has responded.
        meta = ((self.ask("initialize", params)).get("_meta") or {}).get("acpterm") or {}
        self.resume: str | None = meta.get("resume")
        self.resumed: bool = meta.get("resumed") is True

    def close(self) -> None:
        """Close the connection, which ends its terminals."""
        self._sock.close()

    def encode(self, method: str, params: dict[str, Any]) -> tuple[int, bytes]:
        """Return the id and the line of a new request, which the caller passes to `send`."""
        id_ = next(self._ids)
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        return id_, self._encode(message) + b"\n"

    def send(self, data: bytes) -> None:
        """Send lines."""
        self._sock.sendall(data)

    def next_line(self) -> bytes:
        """Wait for the next message of any kind; return it undecoded."""
        return self._lines.next()

    def receive(self) -> Answer:
        """Wait for the next response to any request. Raises `RuntimeError` if it is an error."""
        answer = self._decode(self._lines.next())
        if answer.error is not None:
            raise RuntimeError(f"the server answered {answer.error}")
        return answer

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request, and return its result. Raises `RuntimeError` if it is an error."""
        _, line = self.encode(method, params)
        self._sock.sendall(line)
        return self.receive().result

    def create(self, command: str, *args: str, argv: bool = True) -> dict[str, str]:
        """Create a terminal; return the params that name it, for further requests.

        If `argv` is false, `command` is a line for the shell, and `args` is left out.
        """
        params: dict[str, Any] = {"sessionId": SESSION, "command": command}
        if argv:
            params["args"] = args
        result = self.ask("terminal/create", params)
        return {"sessionId": SESSION, "terminalId": result["terminalId"]}

    def output(self, terminal: dict[str, str]) -> dict[str, Any]:
        return self.ask("terminal/output", terminal)

    def wait(self, terminal: dict[str, str]) -> dict[str, Any]:
        return self.ask("terminal/wait_for_exit", terminal)

    def release(self, terminal: dict[str, str]) -> None:
        self.ask("terminal/release", terminal)

    def until_output(self, terminal: dict[str, str], text: str, timeout_s: float = 20) -> None:
        """Poll until the output contains `text`. Raises `TimeoutError` after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while text not in self.output(terminal)["output"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{text!r} did not appear in {timeout_s:g} s")
            time.sleep(0.005)


def polls(client: Client, terminal: dict[str, str], count: int, pause_s: float) -> list[float]:
    """Poll a terminal's output `count` times, `pause_s` seconds apart.

    Return the milliseconds until each response.
    """
    taken = []
    for _ in range(count):
        time.sleep(pause_s)
        before = time.perf_counter()
        client.output(terminal)
        taken.append(1000 * (time.perf_counter() - before))
    return taken
