"""What a terminal has printed, printed here: as text, or the bytes themselves."""

from acpterm.acp.person import TerminalInfo
from acpterm.client.person.front import Front
from acpterm.client.person.reading.following import following
from acpterm.client.person.reading.lines import Lines, last_lines, window
from acpterm.client.person.reading.stdout import note, put, while_read
from acpterm.client.person.reading.text_follower import UNKNOWN, following_text


async def print_text(
    front: Front, terminal: str, *, stay: bool, since: int | None, tail: int | None
) -> None:
    """Print the text, and if it is to `stay`, what comes, until the program has ended.

    `since`: a position in the stream, None for all that is kept. `tail`: only so many lines of what
    there is at the beginning. What is missing is said on stderr. Raises `RpcError`, in a group.
    """
    info = await front.about("get", terminal, TerminalInfo)
    lines = Lines(window())
    line = ""
    follower = following_text(front, info.terminal_id, since=since, stay=stay)
    async with while_read(), follower as text:
        async for over, now, lost in text:
            shown, gone = over, lost
            if tail is not None:
                kept = last_lines(over + now, tail)
                shown = kept[: max(0, len(kept) - len(now))]
                if kept != over + now:
                    gone = 0
                if not tail:
                    lines.begin(now)
                tail = None
            if gone:
                await put(lines.finish(line).encode())
                await note(missing(gone))
            line = now
            await put(lines.show(shown, now).encode())
        await put(lines.finish(line).encode())


async def print_raw(
    front: Front, terminal: str, *, stay: bool, since: int | None, tail: int | None
) -> None:
    """Print the bytes as they came, likewise."""
    info = await front.about("get", terminal, TerminalInfo)
    held: list[bytes] = []
    async with while_read():
        async with following(front, info.terminal_id, since=since or 0, stay=stay) as parts:
            async for data, position, lost in parts:
                if lost and (tail is None or position > info.position):
                    await note(missing(lost))
                if tail is None:
                    await put(data)
                    continue
                held.append(data)
                if position >= info.position:
                    await put(_last(b"".join(held), tail))
                    tail, held = None, []
        if tail is not None:
            await put(_last(b"".join(held), tail))


def _last(data: bytes, number: int) -> bytes:
    # Each byte is a character of Latin-1.
    return last_lines(data.decode("latin-1"), number).encode("latin-1")


def missing(lost: int) -> str:
    """Say that something is missing here."""
    return "[the beginning is missing]" if lost == UNKNOWN else f"[{lost} bytes are missing here]"
