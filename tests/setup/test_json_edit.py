"""Edits of JSON text: the data is right, all else stays, and removal is the inverse."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpterm.setup.json_edit import ParseError, add, parse, remove
from tests.support.cases import each_case

ENTRY = {"command": "acpterm", "args": ["mcp"]}
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=4)
STYLES = st.sampled_from(
    [
        {"indent": 2},
        {"indent": 4},
        {"indent": "\t"},
        {"indent": None},
        {"indent": None, "separators": (",", ":")},
    ]
)


@pytest.mark.long
@given(settings=OBJECTS, servers=st.none() | OBJECTS, style=STYLES, crlf=st.booleans())
def test_member_is_added_and_removed_again(settings, servers, style, crlf):
    settings = {**settings} if servers is None else {**settings, "servers": servers}
    if servers is None:
        settings.pop("servers", None)
    elif "own" in servers:
        servers.pop("own")
    text = json.dumps(settings, ensure_ascii=False, **style)
    text = text.replace("\n", "\r\n") if crlf else text
    added = add(text, ("servers", "own"), ENTRY, comments=False)
    assert json.loads(added) == {**settings, "servers": {**(servers or {}), "own": ENTRY}}
    if len(settings) > 1:
        assert ("\n" in added) == ("\n" in text)
    if crlf and "\n" in text:
        assert added.count("\n") == added.count("\r\n")
    removed = remove(added, ("servers", "own"), parents=servers is None, comments=False)
    assert removed == text


@each_case(
    "text",
    [
        '{\n  "a": 1 // one\n}\n',
        '{\n  "a": 1, // one, and a comma\n}\n',
        '{\n  "a": 1 /* one */ /* two */ // three\n  // four\n}',
        '// first\n{\n  // before\n  "servers": {\n    "x": {} // x\n    /* after\n  */ }\n}\n',
        '\ufeff{\n\t"a": "// no comment, /* either */",\n}',
        '{ "a": 1, /* b */ "servers": { "x": 1 } }',
        '{"servers": {"x": 1,}}',
        '{\n  "servers": { // none\n  }\n}',
    ],
)
def test_comments_stay(text):
    added = add(text, ("servers", "own"), ENTRY, comments=True)
    new = parse(added, comments=True)
    old = parse(text, comments=True)
    assert new == {**old, "servers": {**old.get("servers", {}), "own": ENTRY}}
    created = "servers" not in old
    assert remove(added, ("servers", "own"), parents=created, comments=True) == text


def test_last_of_several_members_of_a_name_is_used():
    text = '{"servers": {"a": 1}, "servers": {"b": 2}}'
    added = add(text, ("servers", "own"), 1, comments=False)
    assert added == '{"servers": {"a": 1}, "servers": {"b": 2, "own": 1}}'


def test_comment_before_the_entry_stays_when_it_is_removed():
    text = '{\n  // mine\n  "own": 1,\n  "b": 2\n}'
    assert remove(text, ("own",), parents=0, comments=True) == '{\n  // mine\n  "b": 2\n}'


def test_first_of_several_on_one_line_is_removed():
    assert remove('{"own": 1, "b": 2}', ("own",), parents=0, comments=False) == '{"b": 2}'


def test_deep_nesting_is_an_error():
    with pytest.raises(ParseError, match="nested too deeply"):
        parse("[" * 100_000, comments=True)


@each_case(
    ("text", "data"),
    [
        ("", {}),
        ("// only\n/* comments */", {}),
        (
            '{"a//b": "/* c */", /* d */ "e": [1, {"f": ",}",},],}',
            {"a//b": "/* c */", "e": [1, {"f": ",}"}]},
        ),
    ],
)
def test_comments_and_last_commas_are_read(text, data):
    assert parse(text, comments=True) == data
