"""Pictures drawn by chromium: each glyph is in its columns; bold and italic text is distinct."""

import shutil
import struct
import subprocess
import zlib
from pathlib import Path
from typing import NamedTuple

import pytest

from acpterm.commands.export import picture

pytestmark = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="chromium is not installed"
)

COLS = 40
BACKGROUND = (0x1C, 0x1C, 0x1C)
# Pixels of the picture per pixel of SVG: enough to distinguish cells.
SCALE = 4
# Where the first cell begins, in pixels of SVG.
LEFT, TOP = 12, 42
# A glyph has more pixels than this in each of its cells, and fewer in adjacent cells.
INK_MIN = 100
ROWS = {
    "spaces": "one    two        |   end",
    "wide": "漢字  漢|字  |",
    "emoji": "🎉  🎉|  🎉 |",
    "marks": "cafe\u0301  é  ─│|",
    "plain": "illum illum",
    "bold": "\x1b[0;1millum illum\x1b[m",
    "italic": "\x1b[0;3millum illum\x1b[m",
}


class Drawn(NamedTuple):
    """A picture's pixels: rows of red, green and blue."""

    width: int
    rows: list[bytes]

    def cells(self, row: int) -> list[int]:
        """Return how many pixels of each cell of a row of the screen have ink."""
        top = self.rows[round((TOP + row * picture.HEIGHT) * SCALE) :]
        lines = top[: picture.HEIGHT * SCALE]
        return [
            sum(_has_ink(line, x) for line in lines for x in self._columns(column))
            for column in range(COLS)
        ]

    def _columns(self, column: int) -> range:
        # A glyph may extend some pixels over the edge of its cell.
        first = (LEFT + column * picture.WIDTH + 0.6) * SCALE
        return range(round(first), round(first + (picture.WIDTH - 1.2) * SCALE))


def _has_ink(line: bytes, x: int) -> bool:
    return any(abs(line[3 * x + i] - BACKGROUND[i]) > 40 for i in range(3))


def inked_columns(cells: list[int]) -> str:
    """Return a line with # for each cell that has a glyph, and a blank for each other cell."""
    return "".join("#" if ink > INK_MIN else " " for ink in cells).rstrip()


def decode_png(data: bytes) -> Drawn:
    """Decode a PNG of 8-bit RGB or RGBA without interlacing, as chromium writes it."""
    at, packed = 8, b""
    width = channels = 0
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, _, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", content)
            assert (depth, interlaced) == (8, 0)
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += content
        at += size + 12
    raw = zlib.decompress(packed)
    stride = width * channels
    rows: list[bytes] = []
    before = bytes(stride)
    for start in range(0, len(raw), stride + 1):
        line = bytearray(raw[start + 1 : start + 1 + stride])
        _unfilter(raw[start], line, before, channels)
        before = bytes(line)
        rows.append(b"".join(before[x : x + 3] for x in range(0, stride, channels)))
    return Drawn(width, rows)


def _unfilter(kind: int, line: bytearray, above: bytes, channels: int) -> None:
    for x in range(len(line)):
        left = line[x - channels] if x >= channels else 0
        corner = above[x - channels] if x >= channels else 0
        line[x] = (line[x] + _predicted(kind, left, above[x], corner)) & 255


def _predicted(kind: int, left: int, above: int, corner: int) -> int:
    if kind == 4:
        guess = left + above - corner
        return min((left, above, corner), key=lambda value: abs(guess - value))
    return (0, left, above, (left + above) // 2)[kind]


def draw(directory: Path, rows: list[str]) -> Drawn:
    """Draw rows as SVG; return the pixels that chromium renders."""
    file, png = directory / "a.svg", directory / "a.png"
    file.write_text(picture.svg(rows, COLS, "t"))
    subprocess.run(
        [
            "chromium",
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(
                "--disable-dev-shm-usage",
                "--no-first-run",
                f"--user-data-dir={directory / 'chromium'}",
            ),
            f"--force-device-scale-factor={SCALE}",
            f"--window-size={round(COLS * picture.WIDTH) + 40},{len(rows) * picture.HEIGHT + 80}",
            f"--screenshot={png}",
            file.as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=60,
        env={"HOME": str(directory), "PATH": "/usr/bin:/bin"},
    )
    return decode_png(png.read_bytes())


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """Return how many pixels of each cell have ink, for each row of `ROWS` by its name."""
    drawn = draw(tmp_path_factory.mktemp("picture"), list(ROWS.values()))
    return {name: drawn.cells(row) for row, name in enumerate(ROWS)}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("row", "inked"),
    [
        ("spaces", "###    ###        #   ###"),
        ("wide", "####  #####  #"),
        ("emoji", "##  ###  ## #"),
        ("marks", "####  #  ###"),
    ],
)
@pytest.mark.long
def test_glyphs_are_in_their_columns(cells, row, inked):
    assert inked_columns(cells[row]) == inked


@pytest.mark.long
def test_bold_and_italic_text_differs_from_plain_text(cells):
    assert sum(cells["bold"]) > 1.2 * sum(cells["plain"])
    assert cells["italic"] != cells["plain"]
    assert inked_columns(cells["italic"]) == inked_columns(cells["plain"]) == "##### #####"
