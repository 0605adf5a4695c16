"""Partial decoding of messages: any line can be parsed without an error."""

import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from acpterm.acp.raw_json import items, members, text
from acpterm.agents.envelope import is_true, parse_envelope
from acpterm.agents.proxy import capabilities
from tests.support.cases import each_case

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_parse_envelope_accepts_any_line(line):
    message = parse_envelope(line)
    assert message.is_request in (True, False)
    assert message.is_response in (True, False)
    assert not (message.is_request and message.is_response)
    raw = Raw(line)
    assert isinstance(members(raw), dict)
    assert isinstance(items(raw), list)
    assert text(raw) is None or isinstance(text(raw), str)
    capabilities.editor_capabilities(raw)
    capabilities.protocol_version(raw)
    announced = capabilities.with_terminals(raw, ours=True)["clientCapabilities"]
    assert announced["terminal"] is True


@each_case(
    ("line", "is_request", "is_response", "key"),
    [
        (b'{"id": 1, "method": "x"}', True, False, 1),
        (b'{"id": null, "method": "x"}', True, False, None),
        (b'{"id": 1.0, "method": "x"}', True, False, 1),
        (b'{"method": "x"}', False, False, None),
        (b'{"id": 1.5, "method": "x"}', True, False, 1.5),
        (b'{"id": 99999999999999999999, "method": "x"}', True, False, 99999999999999999999),
        (b'{"id": "a", "result": null}', False, True, "a"),
        (b'{"id": 1, "error": {"code": 1}}', False, True, 1),
        (b'[{"id": 1, "method": "x"}]', False, False, None),
        (b"{", False, False, None),
    ],
)
def test_envelope_distinguishes_requests_and_responses(line, is_request, is_response, key):
    message = parse_envelope(line)
    assert (message.is_request, message.is_response, message.key) == (is_request, is_response, key)


def test_is_true_accepts_only_true():
    assert is_true(Raw(b"true"))
    assert not any(map(is_true, [None, UNSET, Raw(b"1"), Raw(b'"true"'), Raw(b"false")]))
