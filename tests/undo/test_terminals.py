"""Terminals with a way back are found by the beginning of their ids, and are bounded."""

import os

from acpterm.undo import terminals
from acpterm.undo.terminals import Known, find, note


def test_a_terminal_is_found_by_the_beginning_of_its_id(tmp_path):
    stores = str(tmp_path)
    assert find(stores, "28ad") == []
    known = Known("term_28ad01", 1.25, "/a \udcff\n")
    other = Known("term_28ff01", 2.5, "/b")
    for each in (known, other):
        note(stores, each)
    assert find(stores, "28ad") == find(stores, "term_28ad01") == [known]
    assert find(stores, "28") == [known, other]
    with open(tmp_path / "terminals", "a") as file:
        file.write('["term_28')
    assert find(stores, "28ad") == [known]
    assert os.stat(tmp_path / "terminals").st_mode & 0o777 == 0o600


def test_the_oldest_terminals_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(terminals, "_BYTES_MAX", 100)
    for number in range(20):
        note(str(tmp_path), Known(f"term_{number:02}", 1.0, "/a"))
    found = [known.id for known in find(str(tmp_path), "term_")]
    assert found[-1] == "term_19"
    assert len(found) < 8
