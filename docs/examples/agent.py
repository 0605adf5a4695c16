"""A small agent that runs commands in acpterm's terminals. Standard library only: copy from it.

    python3 docs/examples/agent.py 'ls | head -3'                  spawns `acpterm stdio`
    python3 docs/examples/agent.py --socket PATH 'make test'       connects to a daemon itself
    python3 docs/examples/agent.py --timeout 2 --wire 'sleep 60'   kills it, and prints the messages

ACP is JSON-RPC 2.0, one message per line. `Host` is the connection; `Terminal` has the five methods
of a terminal and acpterm's own `read` and `write`; `run` is an agent's handling of one command. The
exit status is the command's exit code, or 1.
"""

import argparse
import asyncio
import base64
import itertools
import json
import os
import sys
from collections.abc import Callable
from typing import Any

JSON = dict[str, Any]
LONGEST_LINE = 64 * 1024 * 1024


class HostError(Exception):
    """The host responded with an error. Its message is written for a model to read."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Host:
    """A connection to acpterm. Any number of requests may be pending.

    `watch` is called with each message: with "→" and a message that was sent, or with "←" and a
    message that was received.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        watch: Callable[[str, JSON], None] | None = None,
    ) -> None:
        self._reader, self._writer, self._watch = reader, writer, watch
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[JSON]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, path: str, **more: Any) -> "Host":
        """Connect to the daemon that listens at `path`."""
        return cls(*await asyncio.open_unix_connection(path, limit=LONGEST_LINE), **more)

    @classmethod
    async def spawn(cls, *command: str, **more: Any) -> "Host":
        """Start a program that connects to a host, by default `acpterm stdio`.

        `acpterm stdio` starts the daemon if none is running. It exits when its stdin closes.
        """
        process = await asyncio.create_subprocess_exec(
            *(command or ("acpterm", "stdio", "--log-level", "error")),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        host = cls(process.stdout, process.stdin, **more)
        host._process = process
        return host

    async def close(self) -> None:
        """Close the connection. The host kills and releases its terminals."""
        self._writer.close()
        if self._process is not None:
            await self._process.wait()
        await self._task

    async def request(self, method: str, params: JSON) -> JSON:
        """Send a request and return its result.

        Raises `HostError` if the response is an error, and `EOFError` if the host closes the
        connection before it responds.
        """
        number = next(self._ids)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        if self._task.done():
            raise EOFError("the host has closed the connection")
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        answer = await future
        if "error" in answer:
            raise HostError(answer["error"]["code"], answer["error"]["message"])
        return answer["result"]

    def notify(self, method: str, params: JSON) -> None:
        """Send a notification."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send(self, message: JSON) -> None:
        if self._watch:
            self._watch("→", message)
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                message = json.loads(line)
                if self._watch:
                    self._watch("←", message)
                # The future is cancelled if the request timed out (asyncio.timeout).
                future = self._waiting.pop(message["id"], None)
                if future is not None and not future.done():
                    future.set_result(message)
        except ConnectionError:
            pass
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(EOFError("the host has closed the connection"))


class Terminal:
    """A terminal, from `create` to `release`."""

    def __init__(self, host: Host, session: str, terminal: str) -> None:
        self.host = host
        self.id = terminal
        self._names = {"sessionId": session, "terminalId": terminal}

    @classmethod
    async def create(cls, host: Host, session: str, command: str, **more: Any) -> "Terminal":
        """Start a command. `more`: args, env, cwd, outputByteLimit or _meta, as in ACP."""
        params = {"sessionId": session, "command": command, **more}
        result = await host.request("terminal/create", params)
        return cls(host, session, result["terminalId"])

    async def output(self) -> JSON:
        """Return {output, truncated}, and exitStatus once the command has exited."""
        return await self.host.request("terminal/output", self._names)

    async def wait(self) -> JSON:
        """Wait for the exit; return {exitCode, signal}, one of which is None."""
        return await self.host.request("terminal/wait_for_exit", self._names)

    async def kill(self) -> None:
        """End the command and its process tree. The output stays readable."""
        await self.host.request("terminal/kill", self._names)

    async def release(self) -> None:
        """Release the terminal. Every terminal must be released."""
        await self.host.request("terminal/release", self._names)

    async def read(self, since: int, wait_ms: int = 1000) -> tuple[bytes, int, JSON | None]:
        """Wait at most `wait_ms` for output after the position `since`.

        Return the bytes, the position of the next read, and the exit status; None while it runs.
        """
        answer = await self.host.request(
            "_acpterm/terminal/read",
            {**self._names, "since": since, "waitMs": wait_ms, "format": "raw"},
        )
        return base64.b64decode(answer["data"]), answer["position"], answer.get("exitStatus")

    async def write(self, text: str) -> None:
        """Type text."""
        await self.host.request("_acpterm/terminal/write", {**self._names, "data": text})


async def initialize(host: Host) -> JSON:
    """Send `initialize`. Raises `HostError` if the host has no terminals."""
    answer = await host.request(
        "initialize", {"protocolVersion": 1, "clientInfo": {"name": "example", "version": "1"}}
    )
    if not answer["clientCapabilities"]["terminal"]:
        raise HostError(-32601, "this host has no terminals")
    return answer


def report(host: Host, session: str, call: str, **more: Any) -> None:
    """Report the state of a tool call; only the first report of a call has a `title`."""
    kind = "tool_call" if "title" in more else "tool_call_update"
    update = {"sessionUpdate": kind, "toolCallId": call, **more}
    host.notify("session/update", {"sessionId": session, "update": update})


async def run(
    host: Host, session: str, call: str, command: str, seconds: float | None = None
) -> JSON:
    """Run one command as a tool call, for at most `seconds`; return its `terminal/output`."""
    terminal = await Terminal.create(host, session, command, outputByteLimit=50_000)
    try:
        content = [{"type": "terminal", "terminalId": terminal.id}]
        report(host, session, call, title=command, status="in_progress", content=content)
        try:
            async with asyncio.timeout(seconds):
                await terminal.wait()
        except TimeoutError:
            await terminal.kill()
            await terminal.wait()
        result = await terminal.output()
        good = result["exitStatus"]["exitCode"] == 0
        report(host, session, call, status="completed" if good else "failed")
        return result
    finally:
        await terminal.release()


async def main() -> int:
    """Run the command of the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Run a command in a terminal of acpterm.")
    parser.add_argument("command", help="a command line, as for sh -c")
    parser.add_argument(
        "--socket", help="connect to the daemon there; default: spawn acpterm stdio"
    )
    parser.add_argument("--timeout", type=float, help="seconds until the command is killed")
    parser.add_argument("--wire", action="store_true", help="print each message on stderr")
    options = parser.parse_args()

    def show(way: str, message: JSON) -> None:
        print(way, json.dumps(message), file=sys.stderr)

    watch = show if options.wire else None
    try:
        if options.socket:
            host = await Host.connect(options.socket, watch=watch)
        else:
            host = await Host.spawn(watch=watch)
        try:
            await initialize(host)
            session = f"example-{os.getpid()}"
            result = await run(host, session, "1", options.command, options.timeout)
        finally:
            await host.close()
    except (HostError, EOFError, OSError) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 1
    print(result["output"], end="")
    status = result["exitStatus"]
    if status["signal"]:
        print(f"agent: ended by {status['signal']}", file=sys.stderr)
        return 1
    return int(status["exitCode"])


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
