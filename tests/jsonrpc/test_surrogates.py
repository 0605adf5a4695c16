"""Lone surrogates are replaced, and nothing else is changed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpterm.jsonrpc import replace_lone_surrogates


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (rb'"a\ud83d"', rb'"a\ufffd"'),
        (rb'"\ude00b"', rb'"\ufffdb"'),
        (rb'"\uD83D\uDE00"', rb'"\uD83D\uDE00"'),
        (rb'"\ude00\ud83d"', rb'"\ufffd\ufffd"'),
        (rb'"\ud83d\ud83d\ude00"', rb'"\ufffd\ud83d\ude00"'),
        # An escaped backslash starts no escape.
        (rb'"\\ud83d"', rb'"\\ud83d"'),
        (rb'"\\\ud83d"', rb'"\\\ufffd"'),
        (rb'"\ud7ff\ue000"', rb'"\ud7ff\ue000"'),
        (b"{broken", b"{broken"),
    ],
)
def test_lone_surrogate_becomes_a_replacement_character(line, expected):
    assert replace_lone_surrogates(line) == expected


@given(st.text(st.characters(codec=None), max_size=20))
def test_repaired_line_decodes_to_the_text_with_lone_surrogates_replaced(text):
    line = json.dumps(text).encode()
    found = json.loads(replace_lone_surrogates(line))
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert found == json.loads(json.dumps(found).encode().decode())
    assert found.encode() is not None
    assert found.replace("\ufffd", "") == whole.replace("\ufffd", "")


@given(st.text(max_size=20))
def test_valid_line_is_not_changed(text):
    for line in (json.dumps(text).encode(), json.dumps(text, ensure_ascii=False).encode()):
        assert replace_lone_surrogates(line) == line
