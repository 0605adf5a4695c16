"""The local program of a terminal that another host's daemon keeps: `providers.ssh.remote_keeper`.

It runs on the local terminal's PTY, in raw mode: it prints the output of the terminal there from an
exact position, and passes input and window size on. It connects to a local socket, which leads to
the user's socket there while the hosts are connected.

States: *connecting*, at first and after each loss; *connected*; *ended*, when the program there has
exited and all its output is printed. It has ended too when it was not connected for the time limit,
by SIGHUP then, as when a line hangs up.

Rules for losses, of which the program there notices nothing: output continues from the position
that was printed; if the other daemon has dropped some meanwhile, a line says so. Input that was not
acknowledged is sent again with the same token, so that it is not typed twice. Nothing is read from
the PTY while input cannot be sent. The terminal has a name of its own, so that a create whose
answer was lost is not repeated.

Unhappy order: the keeper here dies, and the PTY hangs up. Then the terminal there is released if it
can be reached; otherwise the other host ends it by itself.
"""

import base64
import os
import signal
import sys
from contextlib import suppress
from typing import Final

import msgspec
import trio

from acpterm.acp.agent_api import WriteResponse
from acpterm.acp.terminal import Empty, EnvVariable
from acpterm.acp.user_api import (
    ExitInfo,
    GetRequest,
    TerminalInfo,
    UserCreateRequest,
    UserResizeRequest,
    UserWriteRequest,
)
from acpterm.acp.user_streams import FollowedNotification, FollowRequest, FollowResponse
from acpterm.client.daemon import DaemonError
from acpterm.client.errors import LostError
from acpterm.client.user.attach.tty import Tty
from acpterm.client.user.client import UserClient, open_user_client
from acpterm.client.user.output.show import missing
from acpterm.config import Settings
from acpterm.jsonrpc import RESOURCE_NOT_FOUND, RpcError

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0
_RELEASE_TIMEOUT_S: Final = 2.0
# What ssh exits with if it cannot say how the program ended.
_UNKNOWN_CODE: Final = 255

_followed: Final = msgspec.json.Decoder(FollowedNotification)


class Bridge:
    """Runs `argv` in a terminal with the name `name`, by the daemon at the end of `socket`.

    `limit_s` is the time without a connection after which the terminal is given up.
    """

    def __init__(self, tty: Tty, socket: str, name: str, argv: list[str], limit_s: float) -> None:
        self._tty: Final = tty
        self._settings: Final = Settings(socket=socket, user_socket=socket, resume_timeout=0)
        self._name: Final = name
        self._argv: Final = argv
        self._limit_s: Final = limit_s
        self._client: UserClient | None = None
        self._terminal: str | None = None
        self._is_requested = False
        self._position = 0
        self._size = tty.size
        self._resized: Final = trio.lowlevel.ParkingLot()
        # The input that was not acknowledged, and its number.
        self._unsent = b""
        self._number = 0

    async def run(self) -> int | None:
        """Return the exit code when the program has exited; None if it was given up."""
        lost_at, pause = trio.current_time(), _PAUSE_S
        while trio.current_time() - lost_at < self._limit_s:
            code: int | None = None
            try:
                async with open_user_client(self._settings, start=False, remote=True) as client:
                    lost_at, pause = trio.current_time(), _PAUSE_S
                    try:
                        code = await self._serve(client)
                    finally:
                        lost_at = trio.current_time()
            except* (DaemonError, LostError):
                pass
            except* RpcError as failed:
                await self._write(f"acpterm: {_message(failed)}\r\n".encode())
                code = _UNKNOWN_CODE
            if code is not None:
                return code
            await trio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)
        return None

    async def _serve(self, client: UserClient) -> int:
        """Pass everything on until the program has exited; return its exit code.

        Raises `LostError` when the connection is lost.
        """
        terminal = self._terminal = self._terminal or await self._find(client)
        self._client = client
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_input, client, terminal)
                nursery.start_soon(self._pass_size, client, terminal)
                status = await self._print(client, terminal)
                nursery.cancel_scope.cancel()
        finally:
            self._client = None
        if status is None or status.exit_code is None or status.signal is not None:
            return _UNKNOWN_CODE
        return status.exit_code

    async def _find(self, client: UserClient) -> str:
        """Return the id of the terminal, which is created if that was not done yet."""
        if self._is_requested:
            try:
                request = GetRequest(self._name, own=True)
                return (await client.call("terminal/get", request, TerminalInfo)).terminal_id
            except RpcError as error:
                if error.code != RESOURCE_NOT_FOUND:
                    raise
        self._is_requested = True
        cols, rows = self._size = self._tty.size
        create = UserCreateRequest(
            command=self._argv[0],
            args=self._argv[1:],
            env=[EnvVariable("TERM", os.environ.get("TERM", "dumb"))],
            cwd="/",
            name=self._name,
            cols=cols,
            rows=rows,
            hold=True,
        )
        return (await client.call("terminal/create", create, TerminalInfo)).terminal_id

    async def _print(self, client: UserClient, terminal: str) -> ExitInfo | None:
        request = FollowRequest(
            terminal, client.token(), self._position, hold=True, holder=self._name
        )
        with client.stream("terminal/follow", request, FollowResponse) as stream:
            async for params in stream:
                part = _followed.decode(params)
                if part.lost:
                    await self._write(f"\r\n{missing(part.lost)}\r\n".encode())
                await self._write(base64.b64decode(part.data))
                self._position = part.position
        return stream.response.exit_status

    async def _write(self, data: bytes) -> None:
        """Print `data`; wait for SIGHUP if the PTY has hung up."""
        try:
            await self._tty.write(data)
        except OSError:
            # An error would end the connection before SIGHUP has released the terminal there.
            await trio.sleep_forever()

    async def _pass_input(self, client: UserClient, terminal: str) -> None:
        while True:
            if not self._unsent:
                self._unsent = await self._tty.read()
                self._number += 1
            if not self._unsent:
                return
            data = base64.b64encode(self._unsent).decode()
            token = f"{self._name}-{self._number}"
            request = UserWriteRequest(terminal, data, "base64", token)
            try:
                await client.call("terminal/write", request, WriteResponse)
            except (LostError, DaemonError):
                return
            except RpcError:
                pass  # the program has exited
            self._unsent = b""

    async def _pass_size(self, client: UserClient, terminal: str) -> None:
        while True:
            if (size := self._tty.size) != self._size:
                try:
                    await client.call("terminal/resize", UserResizeRequest(terminal, *size), Empty)
                except (LostError, DaemonError):
                    return
                except RpcError:
                    pass  # the program has exited
                self._size = size
            else:
                await self._resized.park()

    def resized(self) -> None:
        """Pass the size of the local terminal on."""
        self._resized.unpark_all()

    async def release(self) -> None:
        """Release the terminal, if it can be reached."""
        if self._client is not None and self._terminal is not None:
            with trio.move_on_after(_RELEASE_TIMEOUT_S), suppress(RpcError, DaemonError):
                await self._client.terminal_request("release", self._terminal, Empty)


def _message(group: BaseExceptionGroup[RpcError]) -> str:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.message if isinstance(error, RpcError) else str(error)


async def _main(words: list[str]) -> int | None:
    """Run a bridge until it has ended. `words`: socket, limit in seconds, name, and the argv."""
    tty = Tty()
    socket, limit, name, *argv = words
    bridge = Bridge(tty, socket, name, argv, float(limit))
    code: int | None = None

    async def watch_signals() -> None:
        async for number in signals:
            if number == signal.SIGWINCH:
                bridge.resized()
            else:
                await bridge.release()
                nursery.cancel_scope.cancel()

    with trio.open_signal_receiver(signal.SIGWINCH, signal.SIGHUP) as signals:
        tty.make_raw()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_signals)
            code = await bridge.run()
            nursery.cancel_scope.cancel()
    return code


if __name__ == "__main__":
    _code = trio.run(_main, sys.argv[1:])
    if _code is None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGHUP)
    sys.exit(_code)
