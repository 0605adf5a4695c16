"""Lone surrogates are replaced, and nothing else is changed."""

import json
import re

from hypothesis import example, given
from hypothesis import strategies as st

from acpterm.jsonrpc import replace_lone_surrogates
from tests.support.cases import each_case


@each_case(
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


@example("\ud83da\ude00\ud83d\ude00\\ud83d")
@given(st.text(st.characters(codec=None), max_size=20))
def test_repaired_line_decodes_to_the_text_with_lone_surrogates_replaced(text):
    line = json.dumps(text).encode()
    # A round trip through UTF-16 joins pairs of surrogates.
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    expected = re.sub("[\ud800-\udfff]", "\ufffd", joined)
    assert json.loads(replace_lone_surrogates(line)) == expected


@given(st.text(max_size=20))
def test_valid_line_is_not_changed(text):
    for line in (json.dumps(text).encode(), json.dumps(text, ensure_ascii=False).encode()):
        assert replace_lone_surrogates(line) == line
