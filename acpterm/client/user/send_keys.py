"""Text and keys, typed into a terminal in their order, each as its program expects it."""

import base64
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import trio

from acpterm.acp import WriteResponse
from acpterm.acp.user_api import ScreenResponse, UserWriteRequest
from acpterm.client.user.client import UserClient
from acpterm.client.user.output.named import named
from acpterm.client.user.output.stdout import note
from acpterm.keys import depends_on_cursor_mode, key_bytes
from acpterm.runtime import stdio

# Bytes in one request, which is answered when the terminal has taken them.
CHUNK_BYTES: Final = 32 * 1024
# Seconds until it is said that the program does not read.
INPUT_TIMEOUT_S: Final = 2.0
# What is typed around what is pasted, and cannot be in it.
_BEGIN: Final = b"\x1b[200~"
_END: Final = b"\x1b[201~"


class Text(NamedTuple):
    """Text, as bytes; None is all of stdin."""

    data: bytes | None


class Key(NamedTuple):
    """A key, by its name."""

    name: str


Step: TypeAlias = Text | Key


async def type_steps(
    client: UserClient, terminal: str, steps: Sequence[Step], *, paste: bool = False
) -> None:
    """Type it all, and wait until the terminal has taken it. Raises `RpcError`, `OSError`.

    Text is typed as it is; `paste`d, as a window pastes it. The keys' names are known to be right.
    """
    pastes = paste and any(isinstance(step, Text) for step in steps)
    application = bracketed = False
    if pastes or any(isinstance(step, Key) and depends_on_cursor_mode(step.name) for step in steps):
        screen = await client.terminal_request("screen", terminal, ScreenResponse)
        application, bracketed = screen.application_cursor, pastes and screen.bracketed_paste
    waiting = b""
    for step in steps:
        if isinstance(step, Key):
            waiting += key_bytes(step.name, application=application)
            continue
        if bracketed:
            waiting += _BEGIN
        async for data in _pieces(step):
            waiting += _pasted(data) if paste else data
            while len(waiting) >= CHUNK_BYTES:
                await _type(client, terminal, waiting[:CHUNK_BYTES])
                waiting = waiting[CHUNK_BYTES:]
        if bracketed:
            waiting += _END
    for at in range(0, len(waiting), CHUNK_BYTES):
        await _type(client, terminal, waiting[at : at + CHUNK_BYTES])


async def _pieces(text: Text) -> AsyncIterator[bytes]:
    if text.data is not None:
        yield text.data
        return
    while True:
        with named("stdin"):
            data = await trio.to_thread.run_sync(stdio.read_some, 0, CHUNK_BYTES)
        if not data:
            return
        yield data


def _pasted(data: bytes) -> bytes:
    """Give text as a window pastes it: lines end with Enter, and no sequence is in it."""
    return data.replace(b"\r\n", b"\r").replace(b"\n", b"\r").replace(b"\x1b", b"")


async def _type(client: UserClient, terminal: str, data: bytes) -> None:
    params = UserWriteRequest(terminal, base64.b64encode(data).decode(), encoding="base64")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_complain)
        await client.call("terminal/write", params, WriteResponse)
        nursery.cancel_scope.cancel()


async def _complain() -> None:
    await trio.sleep(INPUT_TIMEOUT_S)
    await note("acpterm: the program does not read its input: waiting (Ctrl-C ends this)")
