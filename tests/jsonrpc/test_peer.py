"""Which answer belongs to which request, both ways."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from acpterm.jsonrpc import (
    CancelReceived,
    ErrorObject,
    ErrorReceived,
    ErrorResponse,
    InvalidReceived,
    LocalProtocolError,
    NotificationReceived,
    Peer,
    RequestReceived,
    Response,
    ResponseReceived,
    RpcError,
    UnexpectedResponse,
)


def line(**members) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


def test_a_request_and_its_answer():
    asker, answerer = Peer(), Peer()
    id_, data = asker.request("m", {"a": 1})
    assert asker.pending == {id_}
    assert answerer.receive_data(data) == [RequestReceived(id_, "m", Raw(b'{"a":1}'))]
    assert answerer.in_progress == 1
    reply = answerer.respond(id_, {"b": 2})
    assert answerer.in_progress == 0
    assert asker.receive_data(reply) == [ResponseReceived(id_, Raw(b'{"b":2}'))]
    assert asker.pending == frozenset()
    assert asker.receive_data(reply) == [UnexpectedResponse(Response(id_, Raw(b'{"b":2}')))]


def test_a_request_and_its_error():
    asker, answerer = Peer(), Peer()
    id_, data = asker.request("m")
    assert answerer.receive_data(data) == [RequestReceived(id_, "m", UNSET)]
    reply = answerer.respond_error(id_, RpcError(-32601, "no such method", [1]))
    error = ErrorObject(-32601, "no such method", Raw(b"[1]"))
    assert asker.receive_data(reply) == [ErrorReceived(id_, error)]
    assert asker.receive_data(reply) == [UnexpectedResponse(ErrorResponse(id_, error))]


def test_ids_are_never_used_twice():
    peer = Peer()
    ids = [peer.request("m")[0] for _ in range(3)]
    peer.receive_data(line(id=ids[2], result={}))
    assert peer.request("m")[0] not in ids
    assert len(set(ids)) == 3


def test_answers_out_of_order_and_never_asked():
    peer = Peer()
    a, b = peer.request("a")[0], peer.request("b")[0]
    events = peer.receive_data(
        line(id=b, result=1) + line(id=str(a), result=2) + line(id=a, result=3)
    )
    assert [type(event) for event in events] == [
        ResponseReceived,
        UnexpectedResponse,
        ResponseReceived,
    ]
    assert peer.receive_data(line(id=None, error={"code": 1, "message": "m"})) == [
        UnexpectedResponse(ErrorResponse(None, ErrorObject(1, "m")))
    ]


def test_an_answer_is_given_once():
    peer = Peer()
    peer.receive_data(line(id="x", method="m"))
    with pytest.raises(LocalProtocolError, match="'y'"):
        peer.respond("y", {})
    peer.respond("x", {})
    with pytest.raises(LocalProtocolError):
        peer.respond("x", {})
    with pytest.raises(LocalProtocolError):
        peer.respond_error("x", RpcError(1, "m"))
    peer.receive_data(line(id="x", method="again"))
    assert peer.in_progress == 1


def test_an_answer_that_cannot_be_encoded_leaves_the_request_in_progress():
    peer = Peer()
    peer.receive_data(line(id=1, method="m"))
    with pytest.raises(TypeError):
        peer.respond(1, object())
    assert peer.in_progress == 1
    peer.respond_error(1, RpcError(-32603, "sorry"))
    with pytest.raises(TypeError):
        peer.request("m", object())
    assert peer.pending == frozenset()


def test_an_id_in_progress_is_refused_and_the_first_request_stays():
    peer = Peer()
    assert len(peer.receive_data(line(id=1, method="m") + line(id="1", method="m"))) == 2
    [refused] = peer.receive_data(line(id=1, method="n"))
    assert isinstance(refused, InvalidReceived)
    reply = json.loads(refused.reply)
    assert (reply["id"], reply["error"]["code"]) == (1, -32600)
    assert "id 1 is still in progress" in reply["error"]["message"]
    assert peer.in_progress == 2
    peer.respond(1, {})


def test_null_ids_are_requests_but_not_tracked():
    peer = Peer()
    events = peer.receive_data(line(id=None, method="m") * 2)
    assert events == [RequestReceived(None, "m", UNSET)] * 2
    assert peer.in_progress == 0
    assert json.loads(peer.respond(None, {})) == {"jsonrpc": "2.0", "id": None, "result": {}}
    peer.respond_error(None, RpcError(1, "m"))


def cancel(**params) -> bytes:
    return line(method="$/cancel_request", params=params)


@pytest.mark.parametrize("id_", [0, 5, "5", ""])
def test_cancelling_what_is_in_progress(id_):
    peer = Peer()
    peer.receive_data(line(id=id_, method="m"))
    assert peer.receive_data(cancel(requestId=id_)) == [CancelReceived(id_)]
    assert peer.in_progress == 1
    peer.respond_error(id_, RpcError(-32800, "cancelled"))
    assert peer.receive_data(cancel(requestId=id_)) == []


def test_cancelling_anything_else_is_nothing():
    peer = Peer()
    peer.receive_data(line(id=5, method="m") + line(id=None, method="m"))
    for params in (
        {"requestId": "5"},
        {"requestId": None},
        {"requestId": [5]},
        {"requestId": True},
        {},
    ):
        assert peer.receive_data(cancel(**params)) == []
    assert peer.receive_data(line(method="$/cancel_request")) == []
    assert peer.receive_data(line(method="$/cancel_request", params=5)) == []
    assert peer.receive_data(cancel(requestId=5.0)) == [CancelReceived(5)]


def test_our_own_cancellation_leaves_the_request_pending():
    asker, answerer = Peer(), Peer()
    id_, data = asker.request("m")
    answerer.receive_data(data)
    assert answerer.receive_data(asker.cancel(id_)) == [CancelReceived(id_)]
    assert asker.pending == {id_}


def test_notifications():
    peer = Peer()
    assert peer.receive_data(Peer().notify("n", [1]) + Peer().notify("n")) == [
        NotificationReceived("n", Raw(b"[1]")),
        NotificationReceived("n", UNSET),
    ]


def test_bad_lines_are_refused_and_the_next_one_is_read():
    peer = Peer(max_line=100)
    data = b"what\n" + b"[]\n" + b"y" * 101 + b"\n" + line(method="n")
    parse, batch, size, good = peer.receive_data(data)
    assert json.loads(parse.reply)["error"]["code"] == parse.error.code == -32700
    assert json.loads(batch.reply)["error"]["code"] == -32600
    assert json.loads(size.reply)["id"] is None
    assert "101 bytes" in size.error.message
    assert "at most 100" in size.error.message
    assert good == NotificationReceived("n", UNSET)


def test_a_malformed_request_is_answered_with_its_id():
    [refused] = Peer().receive_data(line(id="q", method=3))
    assert json.loads(refused.reply)["id"] == "q"


@pytest.mark.parametrize("members", [{}, {"result": 1, "error": {}}, {"error": 3}])
def test_a_malformed_response_is_not_answered_but_ends_the_wait(members):
    peer = Peer()
    id_, _ = peer.request("m")
    refused, failed = peer.receive_data(line(id=id_, **members))
    assert isinstance(refused, InvalidReceived)
    assert refused.reply is None
    assert isinstance(failed, ErrorReceived)
    assert (failed.id, failed.error.code) == (id_, -32600)
    assert peer.pending == frozenset()
    [refused] = peer.receive_data(line(id=id_, **members))
    assert refused.reply is None


def test_the_unfinished_line_is_given_back():
    peer = Peer()
    assert peer.receive_data(b'{"jsonrpc"') == []
    assert peer.close() == b'{"jsonrpc"'


PIECES = st.sampled_from(
    [
        line(id=1, method="m"),
        line(id=2, method="m", params={"é": "🙂"}),
        line(id=None, method="m"),
        line(id=0, result=1),
        line(id=1, error={"code": 1, "message": "m"}),
        line(id=0),
        cancel(requestId=1),
        line(method="n")[:-1] + b"\r\n",
        b"\n",
        b"[]\n",
        b"z" * 300 + b"\n",
        b"\xff\n",
        b"half",
    ]
)


def fresh() -> Peer:
    peer = Peer(max_line=250)
    peer.request("a")
    peer.request("b")
    return peer


def said(events) -> list:
    return [(e.reply, repr(e.error)) if isinstance(e, InvalidReceived) else e for e in events]


@given(
    st.lists(PIECES | st.binary(max_size=8)).map(b"".join), st.lists(st.integers(1, 40), min_size=1)
)
def test_any_split_gives_the_same_events(data, sizes):
    whole, split = fresh(), fresh()
    expected = said(whole.receive_data(data))
    got, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        got += split.receive_data(data[at : at + size])
        at, turn = at + size, turn + 1
    assert said(got) == expected
    assert split.pending == whole.pending
    assert split.in_progress == whole.in_progress
    assert split.close() == whole.close()


def test_deep_nesting_is_an_error_not_a_crash():
    peer = Peer()
    deep = (
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n"
    )
    refused, good = peer.receive_data(deep + line(method="n"))
    assert refused.error.code == -32700
    assert isinstance(good, NotificationReceived)
