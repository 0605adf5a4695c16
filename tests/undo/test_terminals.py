"""Terminals with a way back are found by the beginning of their ids, and are bounded."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from acpterm.undo import terminals
from acpterm.undo.terminals import Known, find, note


@pytest.fixture
def store(empty):
    empty.keep()
    return empty.store


def test_a_terminal_is_found_by_the_beginning_of_its_id(store, empty):
    assert find(empty.stores, "28ad") == []
    note(store, "term_28ad01", 1.25)
    note(store, "term_28ff01", 0.5)
    known, other = Known("term_28ad01", 1.25, store.root), Known("term_28ff01", 0.5, store.root)
    assert find(empty.stores, "28ad") == find(empty.stores, "term_28ad01") == [known]
    assert find(empty.stores, "28") == [other, known]
    for name in ("", "term_", "term", "../", "ad01"):
        assert find(empty.stores, name) == []


def test_a_terminal_of_a_directory_with_any_name_is_found(empty, tmp_path):
    root = tmp_path / "\udcff\n é"
    root.mkdir()
    project = type(empty)(root, empty.stores)
    project.keep()
    note(project.store, "term_28ad01", 1.25)
    assert find(empty.stores, "28ad") == [Known("term_28ad01", 1.25, str(root))]


def test_what_is_no_note_is_passed_over(store, empty):
    note(store, "term_28ad01", 1.25)
    directory = os.path.join(store.directory, "terminals")
    for name, text in (("term_28ad02", "x"), ("term_28ad03", "")):
        with open(os.path.join(directory, name), "w") as file:
            file.write(text)
    os.symlink("\udcffé", os.path.join(directory, "term_28ad04"))
    assert [one.id for one in find(empty.stores, "28ad")] == ["term_28ad01"]


def test_terminals_that_are_noted_at_once_are_all_known(store, empty):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: note(store, f"term_{one:04}", one), range(200)))
    assert [one.time for one in find(empty.stores, "0")] == list(range(200))


def test_the_oldest_terminals_are_forgotten(store, empty, monkeypatch):
    monkeypatch.setattr(terminals, "_MAX", 10)
    for number in range(30):
        note(store, f"term_a{number:02}", number)
    found = [known.time for known in find(empty.stores, "a")]
    assert found[-1] == 29
    assert found == sorted(found)
    assert len(found) <= 10


def test_nothing_is_noted_of_a_directory_that_is_not_kept(empty):
    note(empty.store, "term_28ad01", 1.25)
    assert not os.path.exists(empty.store.directory)
