"""A small agent that keeps its terminals when the daemon's worker is replaced.

    python3 docs/examples/resume_agent.py SOCKET 'for n in 1 2 3 4 5; do echo $n; sleep 1; done'
    acpterm restart                                     # in another window, or: kill -9 WORKER

It connects to the daemon's socket itself, so it sees the connection close. It then connects again,
sends the secret that `initialize` returned, and repeats its unanswered request with the same id. It
prints each line of the command's output once, and exits with the command's exit code, or 1.

Standard library only: copy from it. Agents that spawn `acpterm stdio` do not need this:
`acpterm stdio` resumes by itself.
"""

import base64
import itertools
import json
import socket
import sys
import time
from typing import Any

JSON = dict[str, Any]
# The default of the daemon's setting `resume_timeout`.
RESUME_TIMEOUT_S = 30.0


class GoneError(Exception):
    """The daemon has ended, and the terminals with it."""


class Daemon:
    """A connection to the daemon at `path`, with one pending request at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._ids = itertools.count(1)
        self._secret: str | None = None
        self._connect(time.monotonic())

    def request(self, method: str, params: JSON) -> JSON:
        """Send a request and return the result, reconnecting as often as necessary."""
        number = next(self._ids)
        while True:
            answer = self._ask(number, method, params)
            if answer is not None:
                break
            self._connect(time.monotonic() + RESUME_TIMEOUT_S)
            if method in ("_acpterm/terminal/write", "_acpterm/terminal/signal"):
                # It is unknown whether the request was executed, so it must not be repeated.
                raise GoneError(f"the worker was replaced during {method}: look at the output")
            # Other requests are repeated with the same id: a create is not executed twice.
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        return answer["result"]

    def _connect(self, deadline: float) -> None:
        """Connect and resume the sessions. Raises `GoneError` if they no longer exist."""
        own = {} if self._secret is None else {"resume": self._secret}
        params = {"protocolVersion": 1, "_meta": {"acpterm": own}}
        while (answer := self._try_to_connect(params)) is None:
            if time.monotonic() >= deadline:
                raise GoneError(f"no daemon answers at {self.path}")
            time.sleep(0.1)
        meta = answer.get("result", {}).get("_meta", {}).get("acpterm", {})
        if self._secret is not None and not meta.get("resumed"):
            raise GoneError("another daemon is there, which has none of the terminals")
        self._secret = meta.get("resume")

    def _try_to_connect(self, params: JSON) -> JSON | None:
        """Connect, and return the response to `initialize`; None if that fails."""
        sock = socket.socket(socket.AF_UNIX)
        self._stream: Any = sock.makefile("rwb")
        try:
            sock.connect(self.path)
            # The daemon listens even without a worker: the next worker responds.
            sock.settimeout(RESUME_TIMEOUT_S)
            answer = self._ask(next(self._ids), "initialize", params)
            sock.settimeout(None)
        except OSError:
            return None
        finally:
            sock.close()  # the stream still has the connection
        return answer

    def _ask(self, number: int, method: str, params: JSON) -> JSON | None:
        """Send a request and return the response; None if the connection is lost."""
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        try:
            self._stream.write(json.dumps(message).encode() + b"\n")
            self._stream.flush()
        except (BrokenPipeError, ConnectionResetError):
            pass  # messages received before can still be read
        try:
            while line := self._stream.readline():
                # An incomplete line at the end is not a message.
                if line.endswith(b"\n") and json.loads(line).get("id") == number:
                    return json.loads(line)
        except ConnectionResetError:
            pass
        return None


def run(daemon: Daemon, command: str) -> int:
    """Run a command and print its output; return its exit code, or 1 if a signal ended it."""
    created = daemon.request("terminal/create", {"sessionId": "s", "command": command})
    terminal = {"sessionId": "s", "terminalId": created["terminalId"]}
    position, status = 0, None
    while status is None:
        # With `since`, a repeated request returns the same bytes, so no output is duplicated.
        params = {**terminal, "since": position, "waitMs": 60_000, "format": "raw"}
        part = daemon.request("_acpterm/terminal/read", params)
        sys.stdout.buffer.write(base64.b64decode(part["data"]))
        sys.stdout.buffer.flush()
        position = part["position"]
        # Output may come together with the exit status: then read once more.
        status = None if part["data"] else part.get("exitStatus")
    daemon.request("terminal/release", terminal)
    return 1 if status["exitCode"] is None else status["exitCode"]


def main() -> int:
    """Run the command of the command line."""
    path, command = sys.argv[1:]
    try:
        return run(Daemon(path), command)
    except (GoneError, RuntimeError) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
