"""The screens of recorded programs compared with the screens of tmux for the same output."""

import json
import sys

import pytest

from acpterm.terminal.vt.emulator import Emulator
from acpterm.terminal.vt.paint import snapshot
from acpterm.terminal.vt.queries import QueryFilter
from acpterm.terminal.vt.style import Style
from tests.support.tmux import cells, needs_tmux, tmux_server
from tests.terminal.vt.recording import COLS, ROWS, SESSIONS

pytestmark = needs_tmux

# Prints each event of a file, then sets the title; a typed character requests the next event.
PLAYER = r"""
import json, os, sys, tty
tty.setraw(0)
for number, data in enumerate(json.load(open(sys.argv[1]))):
    os.write(1, data.encode("utf-8", "surrogateescape"))
    os.write(1, b"\x1b\\\x1b]2;played-%d\x1b\\" % number)
    os.read(0, 1)
"""

# In a narrower window tmux scrolls by the number of rows that wrapping adds, even if the rows fit.
DIFFERENT = {("bash-resize", 1)}


@pytest.fixture(scope="module")
def tmux(tmp_path_factory):
    with tmux_server(tmp_path_factory.mktemp("tmux")) as server:
        yield server


def session(name):
    """Return the parts of a recorded session's output, and the size of the screen for each.

    A part ends where the size changes.
    """
    lines = (SESSIONS / f"{name}.cast").read_text().splitlines()[1:]
    parts, sizes = [""], [(COLS, ROWS)]
    for _, kind, data in map(json.loads, lines):
        if kind == "o":
            parts[-1] += data
        else:
            cols, rows = map(int, data.split("x"))
            parts.append("")
            sizes.append((cols, rows))
    return parts, sizes


def encode(text):
    return text.encode("utf-8", "surrogateescape")


def start_player(tmux, parts, directory):
    """Return a pane whose program prints the first of `parts`, and the next one after each key."""
    (directory / "player.py").write_text(PLAYER)
    queries = QueryFilter()
    filtered = [queries.feed(encode(part)).decode("utf-8", "surrogateescape") for part in parts]
    (directory / "parts.json").write_text(json.dumps(filtered))
    command = [sys.executable, str(directory / "player.py"), str(directory / "parts.json")]
    return tmux.pane(command, size=(COLS, ROWS))


def visible_cells(rows):
    """Return text and style of cells, without trailing blanks, which tmux does not capture."""
    found = []
    for row in rows:
        styled = [(cell.data, Style(*cell.style[:4])) for cell in row]
        while styled and styled[-1][0] == " ":
            styled.pop()
        found.append(styled)
    return found


@pytest.mark.parametrize("name", sorted(path.stem for path in SESSIONS.glob("*.cast")))
def test_session_has_the_same_screen_as_in_tmux(name, tmux, tmp_path):
    parts, sizes = session(name)
    pane = start_player(tmux, parts, tmp_path)
    emulator = Emulator(COLS, ROWS)
    for number, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        if number:
            emulator.resize(*size)
            pane.resize(*size)
            pane.until(lambda size=size: pane.of("pane_width", "pane_height") == [*map(str, size)])
            pane.type("x")
        emulator.feed(encode(part))
        pane.until(lambda number=number: pane.of("pane_title") == [f"played-{number}"])
        screen = emulator.screen()
        tmux_cells = visible_cells(cells(pane.screen(colours=True), *size))
        own_cells = visible_cells([screen.cells(y) for y in range(screen.rows)])
        if (name, number) in DIFFERENT:
            # When a version of tmux shows the same, remove the exception.
            assert own_cells != tmux_cells
            continue
        if name == "emoji":
            # tmux does not store all code points of a family emoji.
            del own_cells[2], tmux_cells[2]
        assert own_cells == tmux_cells
        assert screen.cursor == pane.cursor


@pytest.mark.long
@pytest.mark.costly
@pytest.mark.parametrize("name", ["vim-resize", "htop", "mc", "tmux", "wide"])
def test_snapshot_of_a_session_has_the_same_screen_as_in_tmux(name, tmux, tmp_path):
    parts, sizes = session(name)
    emulator = Emulator(*sizes[-1])
    emulator.feed(encode(parts[-1]))
    screen = emulator.screen()
    pane = start_player(tmux, [snapshot(screen).decode()], tmp_path)
    pane.resize(*sizes[-1])
    pane = tmux.pane(
        [sys.executable, str(tmp_path / "player.py"), str(tmp_path / "parts.json")], size=sizes[-1]
    )
    pane.until(lambda: pane.of("pane_title") == ["played-0"])
    own_cells = visible_cells([screen.cells(y) for y in range(screen.rows)])
    assert visible_cells(cells(pane.screen(colours=True), *sizes[-1])) == own_cells
    assert screen.cursor == (min(pane.cursor[0], screen.cols - 1), pane.cursor[1])
