"""Edits of TOML text: the data is right, and all else stays."""

import tomllib

import pytest

from acpterm.setup.json_edit import ParseError
from acpterm.setup.toml_edit import add, remove
from tests.support.cases import each_case

PATH = ("servers", "own")
ENTRY = {"command": "acpterm", "args": ["mcp"], "env": {"A": "b"}}


@each_case(
    "text",
    [
        "",
        "a = 1",
        "a = 1 # one\r\n\r\n[b]\r\nc = 2\r\n",
        '[servers.x]\ncommand = "x"\n\n[z]\na = 1\n',
        '[servers]\nx.command = "x"\n',
        'servers.x.command = "x"\n[z]\na = 1\n',
        'servers = {x = {command = "x"}} # inline\n[z]\na = 1\n',
        "[servers.x]\na = 1\n[other]\nb = 1\n[servers.y]\nc = 1\n",
        "[[lists]]\na = 1\n[[lists]]\na = 2\n",
        "\ufeffa = 1\n",
    ],
)
def test_table_is_added_and_removed_again(text):
    added = add(text, PATH, ENTRY)
    old = tomllib.loads(text.removeprefix("\ufeff"))
    new = tomllib.loads(added.removeprefix("\ufeff"))
    assert new == {**old, "servers": {**old.get("servers", {}), "own": ENTRY}}
    if "\r\n" in text:
        assert added.count("\n") == added.count("\r\n")
    if "inline" not in text:
        assert added.startswith(text)
    removed = remove(added, PATH, parents="servers" not in old)
    assert removed.strip() == text.strip()


def test_name_that_is_no_table_is_an_error():
    with pytest.raises(ParseError, match='"servers" is not a table'):
        add("servers = 1\n", PATH, ENTRY)


def test_error_has_the_line():
    with pytest.raises(ParseError) as caught:
        add("a = 1\nb = = 2\n", PATH, ENTRY)
    assert caught.value.line == 2
