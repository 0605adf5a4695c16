"""Feed an emulator random controls and sizes: a program for a process of its own.

    python -m tests.terminal.vt.fuzzing FIRST_SEED COUNT PROGRESS_FILE

Each seed determines the steps of one terminal. The program writes the number of each step to the
file before it executes that step, so that the test knows at which step the native library crashed:
`steps_of` returns the same steps again for the seed.
"""

import mmap
import random
import re
import sys
from pathlib import Path

from acpterm.terminal.vt import native
from acpterm.terminal.vt.emulator import Emulator
from acpterm.terminal.vt.frames import Frames
from acpterm.terminal.vt.paint import snapshot
from acpterm.terminal.vt.queries import QueryFilter
from acpterm.terminal.vt.rows import rows
from tests.terminal.vt.streams import ALL, MARKER, QUERIES

STEPS_MAX = 60
SIZES = (1, 2, 3, 5, 9, 20, 40, 80, 100, 120, 121, 215, 300)
_FINALS = bytes(range(0x40, 0x7F))
# Boundary values of the integers in which numbers are stored.
_NUMBERS = (0, 1, 2, 3, 5, 9, 79, 80, 81, 119, 120, 255, 256, 999, 1000, 32767, 32768, 65535, 65536)

# Letters, marks, wide characters, emoji, flags, joiners, variation selectors, jamo, tags.
_CODES = (
    *((0x20, 0x7E), (0xA0, 0x17F), (0x300, 0x36F), (0x4E00, 0x4EFF), (0x1F300, 0x1F6FF)),
    *((0x1F1E6, 0x1F1FF), (0x200B, 0x200F), (0xFE00, 0xFE0F), (0x1100, 0x11FF), (0xE0020, 0xE007F)),
)

Step = tuple[int, int] | bytes


def steps_of(seed: int) -> tuple[tuple[int, int], list[Step]]:
    """Return the size and the steps of one terminal: output and size changes."""
    chance = random.Random(seed)
    size = chance.choice(SIZES), chance.choice(SIZES[:9])
    steps: list[Step] = []
    for _ in range(chance.randrange(1, STEPS_MAX)):
        if chance.random() < 0.2:
            steps.append((chance.choice(SIZES), chance.choice(SIZES[:9])))
        else:
            steps.append(b"".join(piece(chance) for _ in range(chance.randrange(1, 40))))
    return size, steps


def piece(chance: random.Random) -> bytes:
    """Return a piece of output, which real programs may or may not print."""
    kind = chance.randrange(12)
    if kind < 4:
        return chance.choice(ALL)
    if kind < 6:
        return csi(chance)
    if kind == 6:
        return chance.choice(QUERIES)
    if kind == 7:
        return chance.randbytes(chance.randrange(1, 30))
    if kind == 8:
        return string(chance)
    if kind == 9:
        return chance.choice(ALL) * chance.randrange(1, 300)
    if kind == 10:
        return "".join(chr(code(chance)) for _ in range(chance.randrange(1, 200))).encode(
            errors="replace"
        )
    return bytes(chance.choices(range(0x20, 0x7F), k=chance.randrange(1, 300)))


def csi(chance: random.Random) -> bytes:
    numbers = [str(chance.choice(_NUMBERS)) for _ in range(chance.randrange(4))]
    private = chance.choice(("", "", "", "?", ">", "=", "<"))
    between = chance.choice(("", "", "", "", "$", "*", " ", '"', "!", "'"))
    return f"\x1b[{private}{';'.join(numbers)}{between}".encode() + bytes([chance.choice(_FINALS)])


def string(chance: random.Random) -> bytes:
    kind = chance.choice((b"]", b"P", b"_", b"^", b"X"))
    number = chance.choice((b"", b"0;", b"2;", b"4;1;", b"8;;", b"10;", b"52;c;", b"66;s=3:w=2;"))
    content = MARKER * chance.randrange(3) + chance.randbytes(chance.randrange(40))
    end = chance.choice((b"\a", b"\x1b\\", b"\x18", b""))
    return b"\x1b" + kind + number + content + end


def code(chance: random.Random) -> int:
    low, high = chance.choice(_CODES)
    return chance.randint(low, high)


def run(seed: int, note) -> None:
    """Run the steps of one terminal, and between them all operations of a consumer.

    Before each step, call `note(seed, number)` with the number of the step.
    """
    (cols, lines), steps = steps_of(seed)
    sent_replies: list[bytes] = []
    emulator = Emulator(cols, lines, sent_replies.append)
    frames, queries = Frames(17, 7), QueryFilter()
    for number, step in enumerate(steps):
        note(seed, number)
        if isinstance(step, tuple):
            emulator.resize(*step)
        else:
            emulator.feed(step)
            queries.feed(step)
        if number % 3 == seed % 3:
            screen = emulator.screen()
            x, y = screen.cursor
            assert 0 <= x < screen.cols, (x, screen.cols)
            assert 0 <= y < screen.rows, (y, screen.rows)
            assert len(rows(screen)) == screen.rows
            screen.text()
            frames.frame(screen)
            if seed % 4 == 0:
                other = Emulator(screen.cols, screen.rows)
                other.feed(snapshot(screen) + queries.feed(screen.held))
                assert other.screen().cols == screen.cols
    for reply in sent_replies:
        assert native.is_allowed(reply), reply
        assert not re.search(MARKER, reply, re.IGNORECASE), reply


def main(first: int, count: int, path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 64) as memory:

        def note(seed: int, step: int) -> None:
            memory[:32] = b"%15d %15d\n" % (seed, step)

        for seed in range(first, first + count):
            run(seed, note)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
