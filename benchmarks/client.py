"""A bare client of a host: a blocking socket, msgspec, and no checks.

What it costs is in every figure of the host, so it is as little as a client can do. Its reading
is used by the baselines too, where there is something to read.
"""

import itertools
import socket
import time
from typing import Any

import msgspec

SESSION = "benchmark"
_CHUNK = 256 * 1024


class Answer(msgspec.Struct):
    """An answer to a request."""

    id: int
    result: Any = None
    error: Any = None


class Lines:
    """Whole lines out of a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._rest = b""

    def next(self) -> bytes:
        """Wait for a line; give it without its end."""
        line, found, self._rest = self._rest.partition(b"\n")
        if found:
            return line
        pieces = [line]
        while True:
            data = self._sock.recv(_CHUNK)
            if not data:
                raise EOFError("the host closed the connection")
            end = data.find(b"\n")
            if end >= 0:
                pieces.append(data[:end])
                self._rest = data[end + 1 :]
                return b"".join(pieces)
            pieces.append(data)


class Client:
    """One connection to a host; requests are answered one at a time, or as they come."""

    def __init__(self, path: str) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.connect(path)
        self._lines = Lines(self._sock)
        self._ids = itertools.count(1)
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder(Answer).decode
        # The daemon serves from here on.
        self.ask("initialize", {"protocolVersion": 1})

    def close(self) -> None:
        """Close the connection, which ends its terminals."""
        self._sock.close()

    def encode(self, method: str, params: dict[str, Any]) -> tuple[int, bytes]:
        """Make a request: its id, and its line."""
        id_ = next(self._ids)
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        return id_, self._encode(message) + b"\n"

    def send(self, data: bytes) -> None:
        """Send lines."""
        self._sock.sendall(data)

    def receive(self) -> Answer:
        """Wait for the next answer, to whichever request."""
        answer = self._decode(self._lines.next())
        if answer.error is not None:
            raise RuntimeError(f"the host answered {answer.error}")
        return answer

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request and wait for its result."""
        _, line = self.encode(method, params)
        self._sock.sendall(line)
        return self.receive().result

    def create(self, command: str, *args: str, argv: bool = True) -> dict[str, str]:
        """Create a terminal; give the params that name it. `argv` False leaves `args` away."""
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


def polls(client: Client, terminal: dict[str, str], count: int, pause: float) -> list[float]:
    """Ask `count` times for the output, `pause` seconds apart: milliseconds until each answer."""
    taken = []
    for _ in range(count):
        time.sleep(pause)
        before = time.perf_counter()
        client.output(terminal)
        taken.append(1000 * (time.perf_counter() - before))
    return taken
