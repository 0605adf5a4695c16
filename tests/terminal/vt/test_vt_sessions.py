"""The screens of recorded programs, compared with those of tmux for the same bytes."""

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

# Prints each event of a file, and says so in the title; a character typed asks for the next one.
PLAYER = r"""
import json, os, sys, tty
tty.setraw(0)
for number, data in enumerate(json.load(open(sys.argv[1]))):
    os.write(1, data.encode("utf-8", "surrogateescape"))
    os.write(1, b"\x1b\\\x1b]2;played-%d\x1b\\" % number)
    os.read(0, 1)
"""

# In a narrower window tmux scrolls by as many rows as the lines have become more, though there is
# room for them.
DIFFERENT = {("bash-resize", 1)}


@pytest.fixture(scope="module")
def tmux(tmp_path_factory):
    with tmux_server(tmp_path_factory.mktemp("tmux")) as server:
        yield server


def session(name):
    """Return the output between size changes, and the sizes."""
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


def encoded(text):
    return text.encode("utf-8", "surrogateescape")


def played(tmux, parts, folder):
    """Return a pane that has played the first of them; a key plays the next."""
    (folder / "player.py").write_text(PLAYER)
    queries = QueryFilter()
    shown = [queries.feed(encoded(part)).decode("utf-8", "surrogateescape") for part in parts]
    (folder / "parts.json").write_text(json.dumps(shown))
    command = [sys.executable, str(folder / "player.py"), str(folder / "parts.json")]
    return tmux.pane(command, size=(COLS, ROWS))


def looks(rows):
    """Return the visible part of cells: tmux does not capture erased ones at the end of a row."""
    found = []
    for row in rows:
        seen = [(cell.data, Style(*cell.style[:4])) for cell in row]
        while seen and seen[-1][0] == " ":
            seen.pop()
        found.append(seen)
    return found


@pytest.mark.parametrize("name", sorted(path.stem for path in SESSIONS.glob("*.cast")))
def test_session_is_shown_as_tmux_shows_it(name, tmux, tmp_path):
    parts, sizes = session(name)
    pane = played(tmux, parts, tmp_path)
    emulator = Emulator(COLS, ROWS)
    for number, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        if number:
            emulator.resize(*size)
            pane.resize(*size)
            pane.until(lambda size=size: pane.of("pane_width", "pane_height") == [*map(str, size)])
            pane.type("x")
        emulator.feed(encoded(part))
        pane.until(lambda number=number: pane.of("pane_title") == [f"played-{number}"])
        screen = emulator.screen()
        theirs = looks(cells(pane.screen(colours=True), *size))
        ours = looks([screen.cells(y) for y in range(screen.rows)])
        if (name, number) in DIFFERENT:
            continue
        if name == "emoji":
            # tmux has no room for all of a family.
            del ours[2], theirs[2]
        assert ours == theirs
        assert screen.cursor == pane.cursor


@pytest.mark.parametrize("name", ["vim-resize", "htop", "mc", "tmux", "wide"])
def test_snapshot_of_a_session_is_shown_as_tmux_shows_it(name, tmux, tmp_path):
    parts, sizes = session(name)
    emulator = Emulator(*sizes[-1])
    emulator.feed(encoded(parts[-1]))
    screen = emulator.screen()
    pane = played(tmux, [snapshot(screen).decode()], tmp_path)
    pane.resize(*sizes[-1])
    pane = tmux.pane(
        [sys.executable, str(tmp_path / "player.py"), str(tmp_path / "parts.json")], size=sizes[-1]
    )
    pane.until(lambda: pane.of("pane_title") == ["played-0"])
    ours = looks([screen.cells(y) for y in range(screen.rows)])
    assert looks(cells(pane.screen(colours=True), *sizes[-1])) == ours
    assert screen.cursor == (min(pane.cursor[0], screen.cols - 1), pane.cursor[1])
