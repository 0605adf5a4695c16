"""Many agents at once, each with a thread, a connection, a session and several terminals.

The program of each terminal writes `LINES` numbered lines, and then echoes its input. All latencies
are in milliseconds.
"""

import base64
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import msgspec

from benchmarks.client import Client
from benchmarks.processes import Daemon

LINES = 500
_POLL_S = 0.2
_PROGRAM = 'n=0; while [ $n -lt "$2" ]; do n=$((n + 1)); echo "$1 line $n"; done; exec cat'


class Agent:
    """An agent: a connection with one session, and terminals; `number` distinguishes agents."""

    def __init__(self, daemon: Daemon, number: int) -> None:
        self.number = number
        self.client = daemon.client()
        self.terminals: list[str] = []
        self.create_ms: list[float] = []

    def _params(self, terminal: str) -> dict[str, str]:
        return {"sessionId": f"s{self.number}", "terminalId": terminal}

    def create(self) -> str:
        """Create a terminal; return its id. Raises `RuntimeError` if the daemon refuses it."""
        name = f"{self.number}.{len(self.terminals)}"
        params = {"sessionId": f"s{self.number}", "command": "/bin/sh"}
        args = ["-c", _PROGRAM, "sh", name, str(LINES)]
        before = time.perf_counter()
        result = self.client.ask("terminal/create", {**params, "args": args})
        self.create_ms.append(_ms_since(before))
        self.terminals.append(result["terminalId"])
        return self.terminals[-1]

    def output(self, terminal: str) -> str:
        return str(self.client.ask("terminal/output", self._params(terminal))["output"])

    def exit_status(self, terminal: str) -> Any:
        """Return the exit status of a terminal's program; None if it still runs."""
        return self.client.ask("terminal/output", self._params(terminal)).get("exitStatus")

    def has_run(self, terminal: str) -> bool:
        """Return whether a terminal's program has written its last line.

        Raises `RuntimeError` if the program has ended before.
        """
        output = self.output(terminal)
        if f" line {LINES}\n" in output:
            return True
        status = self.exit_status(terminal)
        if status is not None:
            raise RuntimeError(f"a terminal has ended with {status}:\n{output}")
        return False

    def is_whole(self, terminal: str) -> bool:
        """Return whether a terminal's output begins with all lines, each once and in order."""
        name = f"{self.number}.{self.terminals.index(terminal)}"
        wanted = "".join(f"{name} line {number}\n" for number in range(1, LINES + 1))
        return self.output(terminal).startswith(wanted)

    def release(self, terminals: Iterable[str]) -> list[float]:
        """Release terminals by pipelined requests; return the time until each response."""
        lines = [
            self.client.encode("terminal/release", self._params(terminal))[1]
            for terminal in terminals
        ]
        before = time.perf_counter()
        self.client.send(b"".join(lines))
        taken = []
        for _ in lines:
            self.client.receive()
            taken.append(_ms_since(before))
        return taken


class Crowd:
    """`count` agents with `each` terminals each, once `fill` has created them."""

    def __init__(self, daemon: Daemon, count: int, each: int) -> None:
        self.agents = [Agent(daemon, number) for number in range(count)]
        self._each = each
        self._stopped: str | None = None
        self._daemon = daemon

    def stop(self, reason: str) -> None:
        """Make `fill` raise `RuntimeError(reason)` instead of creating or waiting any longer."""
        self._stopped = reason

    def _check(self) -> None:
        if self._stopped is not None:
            raise RuntimeError(self._stopped)

    def fill(self, timeout_s: float) -> tuple[float, float]:
        """Create all terminals.

        Return the seconds until all creates are answered, and until all programs have written their
        lines. Raises `TimeoutError` after `timeout_s`, and `RuntimeError` after `stop`.
        """
        began = time.perf_counter()
        answered = []
        lock = threading.Lock()

        def work(agent: Agent) -> None:
            for _ in range(self._each):
                self._check()
                agent.create()
            with lock:
                answered.append(time.perf_counter() - began)
            for terminal in agent.terminals:
                while not agent.has_run(terminal):
                    self._check()
                    if time.perf_counter() - began > timeout_s:
                        raise TimeoutError(f"not all programs run after {timeout_s:g} s")
                    time.sleep(_POLL_S)

        self._all(work)
        return max(answered), time.perf_counter() - began

    def _all(self, work: Callable[[Agent], None]) -> None:
        with ThreadPoolExecutor(len(self.agents)) as pool:
            for future in [pool.submit(work, agent) for agent in self.agents]:
                future.result()

    def create_ms(self) -> list[float]:
        return [taken for agent in self.agents for taken in agent.create_ms]

    def whole(self) -> int:
        """Return the number of terminals whose output has all lines (`Agent.is_whole`)."""
        return sum(agent.is_whole(one) for agent in self.agents for one in agent.terminals)

    def output_ms(self, count: int) -> list[float]:
        """Read the output of a random terminal `count` times; return the time of each."""
        taken = []
        for agent in self._some(count):
            terminal = random.choice(agent.terminals)
            before = time.perf_counter()
            agent.output(terminal)
            taken.append(_ms_since(before))
        return taken

    def _some(self, count: int) -> Iterator[Agent]:
        for _ in range(count):
            yield random.choice(self.agents)

    def again_ms(self, count: int) -> list[float]:
        """Create and release one more terminal, `count` times; return the time of each create."""
        taken = []
        for agent in self._some(count):
            terminal = agent.create()
            taken.append(agent.create_ms.pop())
            while not agent.has_run(terminal):
                time.sleep(_POLL_S)
            agent.release([agent.terminals.pop()])
        return taken

    def list_ms(self, count: int) -> list[float]:
        """List all terminals `count` times, as `acpterm ls` does; return the time of each."""
        user = Client(self._daemon.user_socket)
        taken = []
        for _ in range(count):
            before = time.perf_counter()
            user.ask("_acpterm/terminal/list", {})
            taken.append(_ms_since(before))
        user.close()
        return taken

    def echo_ms(self, count: int) -> list[float]:
        """Type about `count` keys into attached terminals; return the time of each key's echo."""
        taken = []
        for agent in self._some(max(1, count // 10)):
            terminal = random.choice(agent.terminals)
            with _Window(self._daemon.user_socket, terminal) as window:
                taken += [window.key_ms(agent, key) for key in "qwertyuiop"]
        return taken

    def release(self) -> list[float]:
        """Release all terminals at once; return the time until each response."""
        taken: list[float] = []

        def work(agent: Agent) -> None:
            taken.extend(agent.release(agent.terminals))

        self._all(work)
        return taken

    def close(self) -> None:
        for agent in self.agents:
            agent.client.close()


class _Window:
    """A window of the user, attached to a terminal during the block."""

    def __init__(self, socket: str, terminal: str) -> None:
        self._terminal = terminal
        self._client = Client(socket)
        self._decode = msgspec.json.Decoder().decode

    def __enter__(self) -> Self:
        params = {"terminalId": self._terminal, "token": "t", "cols": 80, "rows": 24}
        self._client.send(self._client.encode("_acpterm/terminal/attach", params)[1])
        self._shown()
        time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def _shown(self) -> bytes:
        """Return the next data for the window."""
        while True:
            message = self._decode(self._client.next_line())
            if message.get("method") == "_acpterm/terminal/attached":
                return base64.b64decode(message["params"]["data"])
            if "error" in message:
                raise RuntimeError(f"the server answered {message['error']}")

    def key_ms(self, agent: Agent, key: str) -> float:
        params = {"sessionId": f"s{agent.number}", "terminalId": self._terminal, "data": key}
        before = time.perf_counter()
        agent.client.ask("_acpterm/terminal/write", params)
        while key.encode() not in self._shown():
            pass
        return _ms_since(before)


def _ms_since(before: float) -> float:
    return 1000 * (time.perf_counter() - before)
