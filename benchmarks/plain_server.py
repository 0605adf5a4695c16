"""A plain terminal server, as a baseline: one asyncio process, no keeper, no emulator.

The server has the five terminal methods of ACP over a Unix socket. It reads PTYs by
`loop.add_reader`, 64 KiB at a time, decodes the output incrementally, and retains the last MiB of
text. It converts CR LF to LF, since ONLCR of the PTY is on, and leaves escape sequences in the
text. Terminals end with the server. Where it is faster than acpterm, the difference is the cost of
acpterm's features.

    python -m benchmarks.plain_server SOCKET
"""

import asyncio
import codecs
import contextlib
import fcntl
import itertools
import json
import os
import pty
import signal
import struct
import sys
import termios
from collections import deque
from typing import Any

TEXT_LIMIT_CHARS = 1 << 20
READ_BYTES = 64 * 1024
LINE_LIMIT_BYTES = 64 << 20


class Text:
    """The last `TEXT_LIMIT_CHARS` characters of decoded output."""

    def __init__(self) -> None:
        self.truncated = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._chunks: deque[str] = deque()
        self._length = 0
        self._pending = ""

    def append(self, data: bytes, *, final: bool = False) -> None:
        chunk = self._pending + self._decoder.decode(data, final)
        # The LF of a CR LF may be in the next chunk.
        self._pending = "\r" if chunk.endswith("\r") and not final else ""
        chunk = chunk.removesuffix(self._pending).replace("\r\n", "\n")
        self._chunks.append(chunk)
        self._length += len(chunk)
        while self._length - len(self._chunks[0]) >= TEXT_LIMIT_CHARS:
            self._length -= len(self._chunks.popleft())
            self.truncated = True

    def read(self) -> str:
        text = "".join(self._chunks)
        if len(text) > TEXT_LIMIT_CHARS:
            text, self.truncated = text[-TEXT_LIMIT_CHARS:], True
        self._chunks, self._length = deque([text]), len(text)
        return text


class Terminal:
    """One program on one PTY."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self.text = Text()
        self.exit_status: dict[str, Any] | None = None
        self.process = process
        self._master = master
        self._closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(master, self._read)
        self._ended = asyncio.create_task(self._end())

    def _read(self) -> None:
        try:
            data = os.read(self._master, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # EIO: the program's side is closed
            data = b""
        if data:
            self.text.append(data)
        else:
            self._close()

    def _close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._loop.remove_reader(self._master)
            os.close(self._master)
            self.text.append(b"", final=True)

    async def _end(self) -> None:
        code = await self.process.wait()
        with contextlib.suppress(TimeoutError):
            # A background child may hold the PTY open.
            await asyncio.wait_for(self._closed.wait(), 0.2)
        name = signal.Signals(-code).name if code < 0 else None
        self.exit_status = {"exitCode": None if code < 0 else code, "signal": name}

    async def wait(self) -> dict[str, Any]:
        await asyncio.shield(self._ended)
        assert self.exit_status is not None
        return self.exit_status

    def kill(self) -> None:
        if self.exit_status is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def release(self) -> None:
        self.kill()
        await self.wait()
        self._close()


async def start(params: dict[str, Any]) -> Terminal:
    """Start a program on a new PTY of 120x40."""
    arguments = params.get("args")
    argv = ["/bin/sh", "-c", params["command"]]
    if arguments is not None:
        argv = [params["command"], *arguments]
    master, slave = pty.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        os.set_blocking(master, False)
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=params.get("cwd"),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    return Terminal(process, master)


class Connection:
    """The connection of one client; the client's terminals end with the connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._terminals: dict[str, Terminal] = {}
        self._names = map("term_{}".format, itertools.count(1))

    async def serve(self) -> None:
        tasks = set()
        try:
            while line := await self._reader.readline():
                task = asyncio.create_task(self._answer(json.loads(line)))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        finally:
            for terminal in list(self._terminals.values()):
                await terminal.release()
            for task in tasks:
                task.cancel()
            self._writer.close()

    async def _answer(self, request: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request.get("id")}
        try:
            answer["result"] = await self._call(request["method"], request.get("params") or {})
        except (KeyError, OSError) as error:
            answer["error"] = {"code": -32602, "message": repr(error)}
        self._writer.write(json.dumps(answer).encode() + b"\n")
        await self._writer.drain()

    async def _call(self, method: str, params: dict[str, Any]) -> Any:
        if method == "initialize":
            return {"protocolVersion": 1, "clientCapabilities": {"terminal": True}}
        if method == "terminal/create":
            name = next(self._names)
            self._terminals[name] = await start(params)
            return {"terminalId": name}
        terminal = self._terminals[params["terminalId"]]
        match method:
            case "terminal/output":
                text = terminal.text.read()
                result = {"output": text, "truncated": terminal.text.truncated}
                if terminal.exit_status is not None:
                    result["exitStatus"] = terminal.exit_status
                return result
            case "terminal/wait_for_exit":
                return await terminal.wait()
            case "terminal/kill":
                terminal.kill()
            case "terminal/release":
                await self._terminals.pop(params["terminalId"]).release()
            case _:
                raise KeyError(method)
        return {}


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        await Connection(reader, writer).serve()


async def main(path: str) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = await asyncio.start_unix_server(_serve, path, limit=LINE_LIMIT_BYTES, backlog=1024)
    async with server:
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
