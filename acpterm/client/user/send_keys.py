"""Types text and keys into a terminal, encoded for the modes that its program has set."""

import base64
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from acpterm.acp.agent_api import WriteResponse
from acpterm.acp.user_api import ScreenResponse, UserWriteRequest
from acpterm.client.user.blocking_client import BlockingClient, Slow
from acpterm.client.user.output.blocking_stdout import named, note
from acpterm.keys import depends_on_cursor_mode, key_bytes
from acpterm.runtime.blocking_io import read_some

# Maximum bytes per request. The daemon responds once all bytes are written to the terminal.
CHUNK_BYTES: Final = 32 * 1024
# Seconds without a response after which a note reports that the program does not read its input.
INPUT_TIMEOUT_S: Final = 2.0
# Begin and end of a bracketed paste. Pasted text cannot contain them: its ESC is removed.
_BEGIN: Final = b"\x1b[200~"
_END: Final = b"\x1b[201~"


class Text(NamedTuple):
    """Text to type, as bytes; if `data` is None, type what stdin contains, up to its end."""

    data: bytes | None


class Key(NamedTuple):
    """A key to press, by its name (`acpterm.keys`)."""

    name: str


Step: TypeAlias = Text | Key


def type_steps(
    client: BlockingClient, terminal: str, steps: Sequence[Step], *, paste: bool = False
) -> None:
    """Type the texts and keys `steps`, and wait until they are written to the terminal.

    If `paste` is true, texts are typed as a terminal emulator pastes them. Otherwise they are typed
    unchanged. Names of keys must be valid. Raises `RpcError` if there is no such terminal or its
    program has ended, `DaemonError` if the daemon ends, and `OSError` if a text must be read from
    stdin (see `Text`) and this fails.
    """
    pastes = paste and any(isinstance(step, Text) for step in steps)
    application = bracketed = False
    if pastes or any(isinstance(step, Key) and depends_on_cursor_mode(step.name) for step in steps):
        screen = client.terminal_request("screen", terminal, ScreenResponse)
        application, bracketed = screen.application_cursor, pastes and screen.bracketed_paste
    waiting = b""
    for step in steps:
        if isinstance(step, Key):
            waiting += key_bytes(step.name, application=application)
            continue
        if bracketed:
            waiting += _BEGIN
        for data in _pieces(step):
            waiting += _pasted(data) if paste else data
            while len(waiting) >= CHUNK_BYTES:
                _type(client, terminal, waiting[:CHUNK_BYTES])
                waiting = waiting[CHUNK_BYTES:]
        if bracketed:
            waiting += _END
    for at in range(0, len(waiting), CHUNK_BYTES):
        _type(client, terminal, waiting[at : at + CHUNK_BYTES])


def _pieces(text: Text) -> Iterator[bytes]:
    if text.data is not None:
        yield text.data
        return
    held = b""
    while True:
        with named("stdin"):
            data = read_some(0, CHUNK_BYTES)
        if not data:
            yield held
            return
        data = held + data
        # Never end a piece between CR and LF, since pasting replaces both by one CR.
        held = data[-1:] if data.endswith(b"\r") else b""
        yield data[: len(data) - len(held)]


def _pasted(data: bytes) -> bytes:
    """Return text as a terminal emulator pastes it: lines end with CR, and ESC is removed."""
    return data.replace(b"\r\n", b"\r").replace(b"\n", b"\r").replace(b"\x1b", b"")


def _type(client: BlockingClient, terminal: str, data: bytes) -> None:
    params = UserWriteRequest(terminal, base64.b64encode(data).decode(), encoding="base64")
    client.call("terminal/write", params, WriteResponse, Slow(INPUT_TIMEOUT_S, _report_slow))


def _report_slow(_: int) -> None:
    note("acpterm: the program does not read its input: waiting (Ctrl-C ends this)")
