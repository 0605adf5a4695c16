"""A small agent that runs commands in acpterm's terminals. Standard library only: copy from it.

    python docs/examples/agent.py 'ls | head -3'                  spawns `acpterm stdio`
    python docs/examples/agent.py --socket PATH 'make test'       connects to a daemon itself
    python docs/examples/agent.py --timeout 2 --wire 'sleep 60'   kills it, and shows the messages

ACP says it all in JSON-RPC 2.0, one message a line. `Host` is the connection, `Terminal` the five
methods of a terminal and acpterm's own `read` and `write`, `run` what an agent does for one
command. It exits with the command's exit code, or 1.
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
    """The host's answer was an error. Its message is written for a model to read."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Host:
    """A connection to acpterm. Any number of requests may wait for their answers at once.

    `watch` is called with each message: "→" and what was sent, "←" and what came.
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
        """Start a program that is the way to a host, by default `acpterm stdio`.

        That starts the daemon if it is not running. It ends when its stdin does.
        """
        process = await asyncio.create_subprocess_exec(
            *(command or (sys.executable, "-m", "acpterm", "stdio", "--log-level", "error")),
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
        """Hang up. The host kills and releases what this connection still has."""
        self._writer.close()
        if self._process is not None:
            await self._process.wait()
        await self._task

    async def request(self, method: str, params: JSON) -> JSON:
        """Ask, and wait for the result. Raises `HostError`, or `EOFError` without an answer."""
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
        """Say something that has no answer."""
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
                # Whoever asked may have given up waiting (asyncio.timeout): then nobody is told.
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
        """Start a command. `more` is args, env, cwd, outputByteLimit or _meta, as ACP has them."""
        params = {"sessionId": session, "command": command, **more}
        result = await host.request("terminal/create", params)
        return cls(host, session, result["terminalId"])

    async def output(self) -> JSON:
        """Poll: {output, truncated}, and exitStatus once the command has exited."""
        return await self.host.request("terminal/output", self._names)

    async def wait(self) -> JSON:
        """Wait for the end: {exitCode, signal}, of which one is None."""
        return await self.host.request("terminal/wait_for_exit", self._names)

    async def kill(self) -> None:
        """End the command and all that came from it. Its output can still be read."""
        await self.host.request("terminal/kill", self._names)

    async def release(self) -> None:
        """Give the terminal back: the last thing to do with each."""
        await self.host.request("terminal/release", self._names)

    async def read(self, since: int, wait_ms: int = 1000) -> tuple[bytes, int, JSON | None]:
        """Wait for new output: the bytes, where to read on, and the exit status if there is one."""
        answer = await self.host.request(
            "_acpterm/terminal/read",
            {**self._names, "since": since, "waitMs": wait_ms, "format": "raw"},
        )
        return base64.b64decode(answer["data"]), answer["position"], answer.get("exitStatus")

    async def write(self, text: str) -> None:
        """Type."""
        await self.host.request("_acpterm/terminal/write", {**self._names, "data": text})


async def initialize(host: Host) -> JSON:
    """Say hello. Raises `HostError` unless the host has terminals."""
    answer = await host.request(
        "initialize", {"protocolVersion": 1, "clientInfo": {"name": "example", "version": "1"}}
    )
    if not answer["clientCapabilities"]["terminal"]:
        raise HostError(-32601, "this host has no terminals")
    return answer


def tell(host: Host, session: str, call: str, **more: Any) -> None:
    """Send the person's view a new state of a tool call: its first message is `tool_call`."""
    kind = "tool_call" if "title" in more else "tool_call_update"
    update = {"sessionUpdate": kind, "toolCallId": call, **more}
    host.notify("session/update", {"sessionId": session, "update": update})


async def run(
    host: Host, session: str, call: str, command: str, seconds: float | None = None
) -> JSON:
    """Run one command as a tool call, for at most `seconds`: what `terminal/output` says of it."""
    terminal = await Terminal.create(host, session, command, outputByteLimit=50_000)
    try:
        content = [{"type": "terminal", "terminalId": terminal.id}]
        tell(host, session, call, title=command, status="in_progress", content=content)
        try:
            async with asyncio.timeout(seconds):
                await terminal.wait()
        except TimeoutError:
            await terminal.kill()
            await terminal.wait()
        result = await terminal.output()
        good = result["exitStatus"]["exitCode"] == 0
        tell(host, session, call, status="completed" if good else "failed")
        return result
    finally:
        await terminal.release()


async def main() -> int:
    """Do what the command line says: the exit status."""
    parser = argparse.ArgumentParser(description="Run a command in a terminal of acpterm.")
    parser.add_argument("command", help="a command line, as for sh -c")
    parser.add_argument(
        "--socket", help="connect to the daemon there; else acpterm stdio is spawned"
    )
    parser.add_argument("--timeout", type=float, help="seconds until the command is killed")
    parser.add_argument("--wire", action="store_true", help="show each message on stderr")
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
