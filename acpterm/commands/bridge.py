"""The bridge: the local program of a terminal whose real program runs on another host.

Terminals of an SSH place with the setting `keeper` use it (`providers.ssh.remote_keeper`). The
daemon of the other host keeps a *remote terminal* with the real program. The bridge is the program
of the *local terminal* that the agent or the user sees. It runs on the local terminal's PTY in raw
mode. It prints the remote terminal's output to this PTY, and passes input and window size on to the
remote terminal. It connects to a local socket, which SSH forwards to the user's socket of the other
host while the hosts are connected.

States: *connecting*, at first and after each loss of the connection; *connected*; *ended*, when the
remote program has exited and all its output is printed. The bridge also ends when it was not
connected for `limit_s` seconds. It then ends itself by SIGHUP, the signal that a program gets when
its terminal hangs up.

Rules for a lost connection, which the remote program does not notice:

- Output continues from the position that was printed. If the other daemon has dropped output since
  then, a line says so.
- Input that was not acknowledged is sent again with the same token, so that it is typed only once.
  Nothing is read from the PTY while input cannot be sent.
- The remote terminal has a unique name. If the response to the create request was lost, the bridge
  finds the terminal by this name, and does not create another one.

If the local keeper dies, the PTY hangs up and the bridge gets SIGHUP. A connected bridge then
releases the remote terminal; otherwise the other host ends that terminal by itself.
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
from acpterm.commands.attach.tty import Tty
from acpterm.commands.client import UserClient, open_user_client
from acpterm.commands.output.show import missing
from acpterm.config import Settings
from acpterm.jsonrpc import RESOURCE_NOT_FOUND, RpcError
from acpterm.link.daemon import DaemonError
from acpterm.link.errors import LostError

# Seconds between two attempts to connect: the first pause, which doubles after each attempt, and
# the longest pause.
_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0
_RELEASE_TIMEOUT_S: Final = 2.0
# The exit code of ssh if it does not know how the program ended.
_UNKNOWN_CODE: Final = 255

_followed: Final = msgspec.json.Decoder(FollowedNotification)


class Bridge:
    """A bridge between the local terminal `tty` and a remote terminal with the name `name`.

    `socket` leads to the other host's daemon, which runs `argv` in the remote terminal.
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
        # The input that the other daemon has not acknowledged, and the number of that input. The
        # number is part of the input's token.
        self._unsent = b""
        self._number = 0

    async def run(self) -> int | None:
        """Run the remote program; return its exit code, or 255 as ssh does if that is unknown.

        Return None after `limit_s` seconds without a connection.
        """
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
        """Pass output, input and window size on until the program has exited; return its code."""
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
        try:
            await self._tty.write(data)
        except OSError:
            # The PTY has hung up, and SIGHUP cancels this task. An error would close the connection
            # before the remote terminal is released.
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
        """Pass the changed size of the local terminal on to the remote terminal."""
        self._resized.unpark_all()

    async def release(self) -> None:
        """Release the remote terminal, if the bridge is connected."""
        if self._client is not None and self._terminal is not None:
            with trio.move_on_after(_RELEASE_TIMEOUT_S), suppress(RpcError, DaemonError):
                await self._client.terminal_request("release", self._terminal, Empty)


def _message(group: BaseExceptionGroup[RpcError]) -> str:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.message if isinstance(error, RpcError) else str(error)


async def _main(words: list[str]) -> int | None:
    """Run a bridge; return the exit code, or None if it has to end by SIGHUP."""
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
