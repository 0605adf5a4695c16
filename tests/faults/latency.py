"""A client in its own process that polls a quiet terminal, and measures the latency of responses.

It needs its own process: checks of megabytes of output in the same process would add latency.

`python -m tests.faults.latency SOCKET` prints a line for each response: when the request was sent
(seconds on the monotonic clock) and how long it took. When the connection is lost, it reconnects,
resumes its session, and repeats the request.
"""

import itertools
import json
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import trio

_SESSION = "latency"
_PAUSE_S = 0.02
_RETRY_S = 0.005
_STALE_S = 20


class LatencyProcess:
    """The responses that the process has measured."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _answers(self) -> list[tuple[float, float]]:
        *lines, _ = self._path.read_text().split("\n")
        pairs = (line.split() for line in lines)
        return [(float(sent), float(taken)) for sent, taken in pairs]

    async def longest(self, since: float) -> float:
        """Return the longest latency in seconds of the requests sent from `since` until now."""
        now = time.monotonic()
        with trio.fail_after(_STALE_S):
            while not any(sent > now for sent, _ in self._answers()):
                await trio.sleep(_PAUSE_S)
        return max(taken for sent, taken in self._answers() if sent >= since)


@contextmanager
def latency_process(path: str, directory: Path):
    """Run the process during the block."""
    file = directory / "latencies"
    with file.open("wb") as out:
        # With autogroups, Linux schedules each session as one unit: give it one of its own.
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.latency", path], stdout=out, start_new_session=True
        )
    try:
        yield LatencyProcess(file)
    finally:
        process.kill()
        process.wait()


class _Client:
    def __init__(self, path: str) -> None:
        self._path = path
        self._secret: str | None = None
        self._connect()

    def _connect(self) -> None:
        while True:
            self._socket = socket.socket(socket.AF_UNIX)
            try:
                self._socket.connect(self._path)
                self._file = self._socket.makefile("rwb")
                params = {"protocolVersion": 1}
                if self._secret is not None:
                    params["_meta"] = {"acpterm": {"resume": self._secret}}
                result = self._exchange(
                    {"id": "initialize", "method": "initialize", "params": params}
                )
            except OSError:
                self._socket.close()
                time.sleep(_RETRY_S)
            else:
                self._secret = result["_meta"]["acpterm"]["resume"]
                return

    def _exchange(self, message: dict[str, object]):
        self._file.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._file.flush()
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError
        return json.loads(line)["result"]

    def request(self, id_: int, method: str, params: dict[str, object]):
        """Return the result of a request; repeat the request when the connection is lost."""
        while True:
            try:
                return self._exchange({"id": id_, "method": method, "params": params})
            except OSError:
                self._socket.close()
                self._connect()


def main(path: str) -> None:
    """Poll until killed."""
    client, ids = _Client(path), itertools.count()
    name: dict[str, object] = {"sessionId": _SESSION}
    created = client.request(next(ids), "terminal/create", {**name, "command": "cat", "args": []})
    name["terminalId"] = created["terminalId"]
    while True:
        sent = time.monotonic()
        client.request(next(ids), "terminal/output", name)
        print(sent, time.monotonic() - sent, flush=True)
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main(sys.argv[1])
