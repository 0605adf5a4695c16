"""One terminal of the Python API: reading, typing, waiting, and ending it.

A `Terminal` never changes: it refers to a terminal by the id. So several tasks may use it, and
several objects may stand for the same terminal. Methods raise `RequestError` if the daemon refuses
the request, and `ClosedError` if the connection has ended. They can be cancelled at any time: the
request is then cancelled, and the terminal is not changed, except that a part of the data of
`write` may have been typed.
"""

import base64
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
from msgspec import UnsetType

from acpterm.acp.agent_api import ReadResponse
from acpterm.acp.user_api import TerminalInfo
from acpterm.api import waiting
from acpterm.api.results import Exit, Output, RawOutput, RetainedOutput, Screen, Waited
from acpterm.api.roles import Read, Role, exit_of_status, stopped_of
from acpterm.keys import depends_on_cursor_mode, key_bytes
from acpterm.runtime.sanitize import strip_controls

if TYPE_CHECKING:
    from acpterm.api.client import Client


class Terminal:
    """A terminal of the daemon, from `Client.create` or `Client.terminal`.

    `name` is the name at the creation; None if there was none. `command` is the command line. If
    the directory of an agent's session is gone, `cwd_gone` is its path, and the program runs in its
    parent `cwd`. All four are None in an object from `Client.terminal`.
    """

    def __init__(
        self,
        client: "Client",
        role: Role,
        id_: str,
        name: str | None = None,
        command: str | None = None,
        *,
        cwd: str | None = None,
        cwd_gone: str | None = None,
    ) -> None:
        self.client: Final = client
        self.id: Final = id_
        self.name: Final = name
        self.cwd: Final = cwd
        self.cwd_gone: Final = cwd_gone
        self.command: Final = command
        self._role = role

    def __repr__(self) -> str:
        return f"<Terminal {self.name or self.id}: {self.command}>"

    async def info(self, *, background: bool = False) -> TerminalInfo:
        """Return the state of the terminal: size, directory, pid, exit status and more.

        With `background`, the state of a running program also says what runs beside it, such as the
        jobs of a shell at its prompt.
        """
        return await self._role.info(self.id, background=background)

    async def read(
        self,
        since: int | None = None,
        *,
        max_bytes: int | None = None,
        wait: float = 0,
        until_input: bool = False,
    ) -> Output:
        """Return the output after the position `since` as text.

        By default, the output begins at the oldest retained byte.

        If there is no output after `since`, wait up to `wait` seconds for output or the exit of the
        program. With `until_input`, the wait also ends when the program waits for input, or is
        stopped. The text ends before an incomplete character or escape sequence. At most
        `max_bytes` of raw output are read, by default 1 MiB.

        To follow a terminal, read again from `position` until `exit` is set and `text` is empty.
        """
        found = await self._role.read(self.id, Read(since, max_bytes, wait, "text", until_input))
        return Output(found.data, **_state(found))

    async def read_raw(
        self,
        since: int | None = None,
        *,
        max_bytes: int | None = None,
        wait: float = 0,
        until_input: bool = False,
    ) -> RawOutput:
        """Return the output after the position `since`, as bytes.

        The parameters have the same meaning as those of `read`.
        """
        found = await self._role.read(self.id, Read(since, max_bytes, wait, "raw", until_input))
        return RawOutput(base64.b64decode(found.data), **_state(found))

    async def output(self) -> RetainedOutput:
        """Return all retained output as text; lines that were overwritten are left out.

        So only the last state of a progress bar is returned.
        """
        return await self._role.output(self.id)

    async def write(self, data: str | bytes) -> None:
        r"""Type `data`: ``"\r"`` or ``"\n"`` is Enter, ``"\x03"`` is Ctrl-C.

        Return when the terminal has accepted all data: if its input queue is full, this waits until
        the program reads. Raises `ValueError` if the client is an agent, and `data` is bytes that
        are not UTF-8.
        """
        await self._role.write(self.id, data)

    async def keys(self, *names: str) -> None:
        """Press keys, such as ``"Up"``, ``"C-c"``, ``"M-x"``, ``"F5"`` or ``"Enter"``.

        Raises `ValueError` for an unknown name, before any key is pressed.
        """
        await self.write(await self.encode_keys(*names))

    async def encode_keys(self, *names: str) -> bytes:
        """Return the bytes that `keys` would now type for these names.

        The bytes of some keys depend on the mode that the program has set for cursor keys. Raises
        `ValueError` for an unknown name.
        """
        plain = b"".join(map(key_bytes, names))
        if not any(map(depends_on_cursor_mode, names)):
            return plain
        application = (await self._role.screen(self.id)).application_cursor
        return b"".join(key_bytes(name, application=application) for name in names)

    async def wait(self, timeout: float | None = None) -> Exit | None:
        """Wait until the program has exited, at most `timeout` seconds.

        Return how the program ended; None if it has not exited in this time.
        """
        with anyio.move_on_after(timeout):
            return await self._role.wait(self.id)
        return None

    async def wait_for(
        self,
        pattern: str | waiting.Searches | None = None,
        *,
        since: int | None = None,
        idle: float | None = None,
        until_input: bool | Literal["prompt"] = False,
        input_since: int = -1,
        timeout: float | None = None,
    ) -> Waited:
        """Wait until the program has exited, or one of the given conditions is met.

        The conditions: `pattern`, a regular expression, matches the output after the position
        `since` (by default, all retained output); there was no output for `idle` seconds; with
        `until_input`, the program waits for input; `timeout` seconds have passed.

        With ``until_input="prompt"``, a program that waits for input ends the wait only if the
        output ends with an incomplete line, and nothing has followed for 2 seconds: so a server
        that reads its stdin does not. A program that waited already when the output ended at the
        position `input_since` does not end the wait either.

        `reason` of the result says which condition was met, and `text` is the output after `since`.
        `pattern` is a string, in which ``^`` and ``$`` match at each line, or an object with the
        method `search` of a compiled regular expression.
        """
        return await waiting.wait_for(
            self,
            pattern,
            since=since,
            idle=idle,
            until_input=until_input,
            input_since=input_since,
            timeout=timeout,
        )

    async def screen(self) -> Screen:
        """Return the screen as the program has drawn it, with the cursor."""
        found = await self._role.screen(self.id)
        return Screen(
            [strip_controls(row).rstrip() for row in found.rows],
            found.rows,
            found.cols,
            found.lines,
            found.cursor,
            found.cursor_visible,
            found.alternate,
            found.application_cursor,
            found.bracketed_paste,
            found.title,
            found.position,
        )

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size in cells that the terminal has while no window is attached."""
        await self._role.resize(self.id, cols, rows)

    async def signal(self, name: str) -> None:
        """Send a signal, such as ``"SIGINT"``, to the foreground process group."""
        await self._role.signal(self.id, name)

    async def kill(self) -> None:
        """End the program and all its descendants; the output can still be read."""
        await self._role.act("kill", self.id)

    async def release(self) -> None:
        """End the program, and forget the terminal and its output."""
        await self._role.act("release", self.id)

    async def promote(self) -> TerminalInfo:
        """Make the user the owner of an agent's terminal; return the terminal's new state.

        The agent can then only read the output and release the id of the terminal. The terminal
        stays when the agent's connection ends.
        """
        return await self._role.promote(self.id)


def _state(found: ReadResponse) -> dict[str, Any]:
    waits = found.waiting_for_input
    return {
        "position": found.position,
        "lost": found.lost,
        "exit": exit_of_status(found.exit_status),
        "waiting_for_input": None if isinstance(waits, UnsetType) else waits,
        "stopped": stopped_of(found.stopped),
        "waiting_program": found.waiting_program or None,
    }
