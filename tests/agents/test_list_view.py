"""The list of `acpterm ls --watch` by keys, without a terminal; and how a list fits its window."""

import re

import pytest
from wcwidth import wcswidth

from acpterm.cli import _tables
from acpterm.commands.format import NOTHING, Row
from acpterm.commands.list_view import Item, ListAction, ListView
from tests.support.cases import each_case


def row(number, **more):
    words = {
        "id": f"{number:08x}", "name": NOTHING, "state": "running", "owner": "user",
        "agent": NOTHING, "session": NOTHING, "where": NOTHING, "size": "80x24", "age": "1s",
        "output": "1s", "command": f"command {number}",
    }  # fmt: skip
    return Row(**{**words, **more})


def items(count):
    return [Item(f"term_{number}", row(number)) for number in range(count)]


def view_of(count, height=5):
    view = ListView()
    view.update(items(count))
    view.part(height)
    return view


@each_case(
    ("keys", "selected", "first"),
    [
        (b"", 0, 0),
        (b"j", 1, 0),
        (b"\x1b[B\x1bOB", 2, 0),
        (b"jjjjj", 5, 1),
        (b"\x1b[6~", 5, 1),
        (b"G", 19, 15),
        (b"\x1b[F", 19, 15),
        (b"Gk", 18, 14),
        (b"Ggkk", 0, 0),
        (b"\x1b[5~\x1b[A", 0, 0),
        (b"xyz\t\x1b[C", 0, 0),
    ],
)
def test_selected_line_stays_visible_when_keys_move_the_selection(keys, selected, first):
    view = view_of(20)
    for key in [keys] if keys else []:
        assert view.feed(key) is None
    part = view.part(5)
    assert view.selected == f"term_{selected}"
    assert (part.first, part.first + part.selected, part.total) == (first, selected, 20)


def test_selected_terminal_stays_selected_while_the_list_changes():
    view = view_of(10)
    view.feed(b"jjj")
    view.update([Item("new", row(99)), *items(10)])
    assert view.selected == "term_3"
    view.update(items(3))
    assert view.selected == "term_2"
    view.update([])
    assert view.selected is None
    assert view.feed(b"\r") is None
    assert view.part(5).selected is None


def test_first_row_stays_selected_until_a_key_selects_another():
    view = view_of(10)
    view.update([Item("new", row(99)), *items(10)])
    assert (view.selected, view.part(5).first) == ("new", 0)
    view.feed(b"j")
    view.update([Item("newer", row(100)), Item("new", row(99)), *items(10)])
    assert view.selected == "term_0"
    view.feed(b"g")
    view.update(items(10))
    assert view.selected == "term_0"


def test_enter_opens_and_q_quits_outside_the_filter():
    assert view_of(3).feed(b"j\rq") is ListAction.OPEN
    assert view_of(3).feed(b"q") is ListAction.QUIT
    view = view_of(3)
    assert view.feed(b"/q\r") is None
    assert (view.filter, view.is_typing_filter) == ("q", False)


def test_filter_matches_any_column_in_either_case():
    view = view_of(20)
    assert view.feed(b"/COMMAND 1") is None
    assert [item.id for item in view.items] == ["term_1", *(f"term_{n}" for n in range(10, 20))]
    view.feed(b"5")
    assert view.selected == "term_15"
    view.feed(b"\x7f\x7f\x7f")
    assert view.filter == "COMMAND"
    view.feed("\xe9".encode()[:1])
    view.feed("\xe9".encode()[1:])
    assert (view.filter, view.selected) == ("COMMAND\xe9", None)
    view.feed(b"\x1b")
    assert (view.filter, view.is_typing_filter, len(view.items)) == ("", False, 20)


WIDE = [
    row(1, name="n" * 30, agent="a" * 30, session="s" * 40, command="c" * 300),
    row(2, state="exited 1, released 3m ago"),
]


@pytest.mark.parametrize("columns", range(8, 500, 7))
def test_list_fits_the_window_with_complete_ids(columns, monkeypatch):
    monkeypatch.setattr(_tables, "window_size", lambda: (columns, 24))
    monkeypatch.setattr(_tables.os, "isatty", lambda _: True)
    monkeypatch.setenv("NO_COLOR", "1")
    lines = _tables.text_of(WIDE).splitlines()
    assert len(lines) == 3
    assert all(wcswidth(line) <= columns for line in lines)
    assert [line[:8] for line in lines[1:]] == ["00000001", "00000002"]


@each_case("columns", range(30, 200, 7))
def test_selected_line_is_no_wider_than_the_window(columns):
    lines = _tables.table(WIDE, columns, _tables.Styles.ATTRIBUTES, selected=1)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert all(wcswidth(line) <= columns for line in plain)
    assert "\x1b[7m" in lines[2]


def test_list_uses_the_whole_width():
    sizes = _tables._sizes(WIDE, 160)
    assert _tables._total(sizes) == 160
    assert sizes["command"] > 24
    assert sizes["state"] == len("exited 1, released 3m ago")
    assert _tables._sizes(WIDE, 1000)["name"] == 30
    assert list(_tables._sizes(WIDE, 60)) == ["id", "name", "state", "command"]
    assert _tables._sizes(WIDE, 40) == {"id": 8, "name": 8, "state": 10, "command": 8}
    assert list(_tables._sizes(WIDE, 36)) == ["id", "name", "state"]
    assert list(_tables._sizes(WIDE, 20)) == ["id", "name"]
    assert list(_tables._sizes(WIDE, 12)) == ["id"]
    # A column in which no terminal has anything gives way first.
    assert list(_tables._sizes([row(1)], 40)) == ["id", "state", "owner", "age", "command"]
