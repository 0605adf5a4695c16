"""A small agent that keeps its terminals when the daemon's worker is replaced.

    python docs/examples/resume_agent.py SOCKET 'for n in 1 2 3 4 5; do echo $n; sleep 1; done'
    acpterm restart                                     # in another window, or: kill -9 WORKER

It connects to the daemon's socket itself, so it sees the connection close. Then it connects again,
presents the secret that `initialize` gave it, and sends its unanswered request again with the same
id. What the command prints is printed, each line once; it exits with the command's exit code, or 1.

Standard library only: copy from it. An agent that spawns `acpterm stdio` needs nothing of this:
`acpterm stdio` does it.
"""

import base64
import itertools
import json
import socket
import sys
import time
from typing import Any

JSON = dict[str, Any]
# What the daemon's setting `resume_timeout` has by default.
RESUME_TIMEOUT_S = 30.0


class GoneError(Exception):
    """The daemon is gone, and the terminals with it."""


class Daemon:
    """A connection to the daemon at `path`, with one request at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._ids = itertools.count(1)
        self._secret: str | None = None
        self._connect(time.monotonic())

    def request(self, method: str, params: JSON) -> JSON:
        """Ask, and wait for the result, however many connections that takes."""
        number = next(self._ids)
        while True:
            answer = self._ask(number, method, params)
            if answer is not None:
                break
            self._connect(time.monotonic() + RESUME_TIMEOUT_S)
            if method in ("_acpterm/terminal/write", "_acpterm/terminal/signal"):
                # Nobody knows whether it was typed, so it must not simply be typed again.
                raise GoneError(f"the worker was replaced during {method}: look at the output")
            # Any other request is sent again, with its id: a create is not executed twice.
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        return answer["result"]

    def _connect(self, deadline: float) -> None:
        """Connect, and resume what was; raise `GoneError` when there is nothing left."""
        own = {} if self._secret is None else {"resume": self._secret}
        params = {"protocolVersion": 1, "_meta": {"acpterm": own}}
        while (answer := self._try_to_connect(params)) is None:
            if time.monotonic() >= deadline:
                raise GoneError(f"no daemon answers at {self.path}")
            time.sleep(0.1)
        said = answer.get("result", {}).get("_meta", {}).get("acpterm", {})
        if self._secret is not None and not said.get("resumed"):
            raise GoneError("another daemon is there, which has none of the terminals")
        self._secret = said.get("resume")

    def _try_to_connect(self, params: JSON) -> JSON | None:
        """Connect, and return the answer to `initialize`; None if there is none."""
        sock = socket.socket(socket.AF_UNIX)
        self._stream: Any = sock.makefile("rwb")
        try:
            sock.connect(self.path)
            # The daemon listens while it has no worker: the answer comes when there is one.
            sock.settimeout(RESUME_TIMEOUT_S)
            answer = self._ask(next(self._ids), "initialize", params)
            sock.settimeout(None)
        except OSError:
            return None
        finally:
            sock.close()  # the stream still has the connection
        return answer

    def _ask(self, number: int, method: str, params: JSON) -> JSON | None:
        """Send a request and return its answer; None when the connection is lost before that."""
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        try:
            self._stream.write(json.dumps(message).encode() + b"\n")
            self._stream.flush()
        except (BrokenPipeError, ConnectionResetError):
            pass  # what came before the end can still be read
        try:
            while line := self._stream.readline():
                # Half a line at the end is no message.
                if line.endswith(b"\n") and json.loads(line).get("id") == number:
                    return json.loads(line)
        except ConnectionResetError:
            pass
        return None


def run(daemon: Daemon, command: str) -> int:
    """Run a command, print what it prints, and return its exit code."""
    created = daemon.request("terminal/create", {"sessionId": "s", "command": command})
    names = {"sessionId": "s", "terminalId": created["terminalId"]}
    position, status = 0, None
    while status is None:
        # `since` makes it right to ask again: the same bytes come again, and nothing twice.
        params = {**names, "since": position, "waitMs": 60_000, "format": "raw"}
        part = daemon.request("_acpterm/terminal/read", params)
        sys.stdout.buffer.write(base64.b64decode(part["data"]))
        sys.stdout.buffer.flush()
        position = part["position"]
        # The last part may come with the end, or before it.
        status = None if part["data"] else part.get("exitStatus")
    daemon.request("terminal/release", names)
    return 1 if status["exitCode"] is None else status["exitCode"]


def main() -> int:
    """Run the command that the command line names."""
    path, command = sys.argv[1:]
    try:
        return run(Daemon(path), command)
    except (GoneError, RuntimeError) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
