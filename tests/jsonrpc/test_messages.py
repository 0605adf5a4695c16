"""A line decodes to a message, or raises an error that describes its defect."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from acpterm.jsonrpc import (
    ErrorObject,
    ErrorResponse,
    InvalidMessage,
    Notification,
    Request,
    Response,
    RpcError,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
    excerpt,
)
from tests.support.cases import each_case


@each_case(
    ("line", "message"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"m"}', Request(1, "m")),
        (b'{"jsonrpc":"2.0","id":"a","method":"m","params":{}}', Request("a", "m", Raw(b"{}"))),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', Request(None, "m")),
        (b'{"jsonrpc":"2.0","id":-1.0,"method":"m"}', Request(-1, "m")),
        (b'{"jsonrpc":"2.0","method":"m","params":[1 ,2]}', Notification("m", Raw(b"[1 ,2]"))),
        (b'{"jsonrpc":"2.0","method":"m","params":null}', Notification("m", Raw(b"null"))),
        (b'{"jsonrpc":"2.0","method":"m","more":1}', Notification("m")),
        (b'{"jsonrpc":"2.0","id":3,"result":null}', Response(3, Raw(b"null"))),
        (
            b'{"result":{"a":"\xc3\xa9"},"id":3,"jsonrpc":"2.0"}',
            Response(3, Raw(b'{"a":"\xc3\xa9"}')),
        ),
        (
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"x","data":[1]}}',
            ErrorResponse(None, ErrorObject(-1, "x", Raw(b"[1]"))),
        ),
        (b' \t{"jsonrpc":"2.0","method":"m"} ', Notification("m")),
        (b'{"jsonrpc":"2.0","id":9223372036854775807,"method":"m"}', Request(2**63 - 1, "m")),
        (b'{"jsonrpc":"2.0","id":-9223372036854775808,"method":"m"}', Request(-(2**63), "m")),
    ],
)
def test_valid_line_decodes_to_its_message(line, message):
    assert decode(line) == message


def test_absent_params_differ_from_null_params():
    assert decode(b'{"jsonrpc":"2.0","id":1,"method":"m"}').params is UNSET
    assert bytes(decode(b'{"jsonrpc":"2.0","id":1,"method":"m","params":null}').params) == b"null"


BAD = [
    # line, code, id, meant as a response, words of the message
    (b"nonsense", -32700, None, False, ["not JSON", "nonsense"]),
    (b'{"jsonrpc":"2.0","id":1,"method":"m"', -32700, None, False, ["not JSON"]),
    (b'{"jsonrpc":"1.0","id":1,"method":"m", oops', -32700, None, False, ["not JSON"]),
    (b"[1,", -32700, None, False, ["not JSON"]),
    (b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"\xff"}}', -32700, 7, False, ["UTF-8"]),
    (b'{"jsonrpc":"2.0","id":7,"result":"\xff"}', -32700, 7, True, ["UTF-8", "byte 35", "0xff"]),
    (
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":["\\ud83d"]}',
        -32700,
        7,
        False,
        ["half a surrogate pair"],
    ),
    (b'{"jsonrpc":"2.0","id":true,"method":"m","params":[NaN]}', -32700, None, False, ["NaN"]),
    (b"\xef\xbb\xbf{}", -32700, None, False, ["not JSON"]),
    (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", -32700, None, False, ["nested too deep"]),
    (b"[" * 100_000 + b"]" * 100_000, -32700, None, False, ["nested too deep"]),
    (b"[" * 100_000, -32700, None, False, ["nested too deep"]),
    (
        b'[{"jsonrpc":"2.0","id":1,"method":"m"}]',
        -32600,
        None,
        False,
        ["a batch is not a message"],
    ),
    (b" []", -32600, None, False, ["a batch"]),
    (b"3", -32600, None, False, ["object, not 3"]),
    (b'"x"', -32600, None, False, ['object, not "x"']),
    (b'{"id":1,"method":"m"}', -32600, 1, False, ["jsonrpc is missing", '"2.0"']),
    (b'{"jsonrpc":"1.0","id":"a","method":"m"}', -32600, "a", False, ['jsonrpc is "1.0"']),
    (b'{"jsonrpc":2.0,"id":"a","method":"m"}', -32600, "a", False, ["jsonrpc is 2.0"]),
    (b'{"jsonrpc":"2.0","id":4,"method":5}', -32600, 4, False, ["method is 5", "string"]),
    (b'{"jsonrpc":"2.0","id":4,"method":null}', -32600, 4, False, ["method is null"]),
    (b'{"jsonrpc":"2.0","id":true,"method":"m"}', -32600, None, False, ["id is true", "integer"]),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', -32600, None, False, ["id is 1.5"]),
    (b'{"jsonrpc":"2.0","id":1e999,"method":"m"}', -32600, None, False, ["id is 1e999"]),
    (b'{"jsonrpc":"2.0","id":{},"method":"m"}', -32600, None, False, ["id is {}"]),
    (b'{"jsonrpc":"2.0","id":9223372036854775808,"method":"m"}', -32600, None, False, ["64 bits"]),
    (b'{"jsonrpc":"2.0","id":4,"method":"m","result":1}', -32600, 4, False, ["method and result"]),
    (b'{"jsonrpc":"2.0","params":{},"id":4}', -32600, 4, False, ["method is missing"]),
    (b"{}", -32600, None, False, ["jsonrpc is missing"]),
    (b'{"level":"info","id":4}', -32600, None, True, ["jsonrpc is missing"]),
    (b'{"jsonrpc":"2.0"}', -32600, None, False, ["method is missing"]),
    (b'{"jsonrpc":"2.0","id":4}', -32600, 4, True, ["method is missing"]),
    (b'{"jsonrpc":"2.0","id":4,"result":1,"error":null}', -32600, 4, True, ["error and result"]),
    (b'{"jsonrpc":"2.0","result":1}', -32600, None, True, ["id is missing"]),
    (b'{"jsonrpc":"2.0","id":4,"error":"no"}', -32600, 4, True, ['error is "no"']),
    (b'{"jsonrpc":"2.0","id":4,"error":{"code":1}}', -32600, 4, True, ["integer code"]),
    (b'{"jsonrpc":"2.0","id":[],"result":1}', -32600, None, True, ["id is []"]),
    (b'{"jsonrpc":"3","id":4,"result":1}', -32600, 4, True, ['jsonrpc is "3"']),
]


@each_case(("line", "code", "id_", "is_response", "words"), BAD)
def test_invalid_line_raises_an_error_that_describes_it(line, code, id_, is_response, words):
    with pytest.raises(InvalidMessage) as caught:
        decode(line)
    error = caught.value
    assert (error.code, error.id, error.is_response) == (code, id_, is_response)
    assert type(error.id) is type(id_)
    for word in words:
        assert word in error.message
    assert len(error.message) < 300
    assert "\n" not in error.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
MALFORMED = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "id": JSON,
        "method": st.text(max_size=3) | JSON,
        "params": JSON,
        "result": JSON,
        "error": st.just({"code": 1, "message": "m"}) | JSON,
    },
)


def check_decodes_or_raises(line: bytes) -> None:
    refusal = None
    try:
        message = decode(line)
    except InvalidMessage as error:
        refusal = error
    else:
        assert isinstance(message, Request | Notification | Response | ErrorResponse)
    if refusal is not None:
        reply = json.loads(encode_error(refusal.id, refusal))
        assert reply["error"]["code"] in {-32700, -32600}
        if refusal.id is not None:
            assert refusal.id == json.loads(line.decode("utf-8", "replace"))["id"]


@given(st.binary(max_size=100))
def test_random_bytes_decode_or_raise_invalid_message(line):
    check_decodes_or_raises(line)


@given(MALFORMED | JSON)
def test_malformed_messages_decode_or_raise_invalid_message(value):
    line = json.dumps(value).encode()
    check_decodes_or_raises(line)


IDS = st.none() | st.text(max_size=5) | st.integers(-(2**63), 2**63 - 1)


@given(IDS, st.text(max_size=5), JSON.filter(lambda v: "NaN" not in str(v)))
def test_encoded_messages_decode_to_the_same_values(id_, method, value):
    raw = Raw(msgspec.json.encode(value))
    assert decode(encode_request(id_, method, value)) == Request(id_, method, raw)
    assert decode(encode_notification(method, value)) == Notification(method, raw)
    assert decode(encode_response(id_, value)) == Response(id_, raw)
    error = encode_error(id_, RpcError(-1, method, value))
    assert decode(error) == ErrorResponse(id_, ErrorObject(-1, method, raw))


def test_encoded_message_is_one_line():
    laid_out = Raw(b'{\n  "a": 1\n}\n')
    for line in (encode_response(1, laid_out), encode_request(1, "m\n", laid_out)):
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        decode(line)


def test_absent_members_are_not_encoded():
    assert json.loads(encode_request(1, "m")) == {"jsonrpc": "2.0", "id": 1, "method": "m"}
    assert json.loads(encode_notification("m")) == {"jsonrpc": "2.0", "method": "m"}
    reply = {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "m"}}
    assert json.loads(encode_error(None, RpcError(1, "m"))) == reply
    assert json.loads(encode_error(1, RpcError(1, "m", None)))["error"]["data"] is None


def test_error_message_with_surrogates_is_encoded():
    assert decode(encode_error(1, RpcError(1, "no \udcff"))).error.message == r"no \udcff"


def test_excerpt_is_short_and_on_one_line():
    assert excerpt(b'{"a":\n 1}') == '{"a": 1}'
    assert excerpt("x" * 80) == "x" * 80
    assert excerpt(b"x" * 10_000_000) == "x" * 79 + "…"
    assert excerpt("é€🙂".encode() * 100) == "é€🙂" * 26 + "é…"
    assert excerpt(b"\x00\x1b[31m\xff") == "��[31m�"
    assert excerpt(b" " * 1000 + b"1") == ""
