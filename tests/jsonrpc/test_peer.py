"""The matching of requests and responses, in both directions."""

import contextlib
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


def test_request_is_received_and_its_response_ends_it():
    sender, receiver = Peer(), Peer()
    id_, data = sender.request("m", {"a": 1})
    assert sender._pending == {id_}
    assert receiver.receive_data(data) == [RequestReceived(id_, "m", Raw(b'{"a":1}'))]
    reply = receiver.respond(id_, {"b": 2})
    assert sender.receive_data(reply) == [ResponseReceived(id_, Raw(b'{"b":2}'))]
    assert sender._pending == set()
    assert sender.receive_data(reply) == [UnexpectedResponse(Response(id_, Raw(b'{"b":2}')))]


def test_request_is_received_and_its_error_response_ends_it():
    sender, receiver = Peer(), Peer()
    id_, data = sender.request("m")
    assert receiver.receive_data(data) == [RequestReceived(id_, "m", UNSET)]
    reply = receiver.respond_error(id_, RpcError(-32601, "no such method", [1]))
    error = ErrorObject(-32601, "no such method", Raw(b"[1]"))
    assert sender.receive_data(reply) == [ErrorReceived(id_, error)]
    assert sender.receive_data(reply) == [UnexpectedResponse(ErrorResponse(id_, error))]


def test_request_ids_are_never_reused():
    peer = Peer()
    ids = [peer.request("m")[0] for _ in range(3)]
    peer.receive_data(line(id=ids[2], result={}))
    assert peer.request("m")[0] not in ids
    assert len(set(ids)) == 3


def test_responses_match_out_of_order_and_unknown_ones_are_unexpected():
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


def test_request_can_be_answered_only_once():
    peer = Peer()
    peer.receive_data(line(id="x", method="m"))
    with pytest.raises(LocalProtocolError, match="'y'"):
        peer.respond("y", {})
    peer.respond("x", {})
    with pytest.raises(LocalProtocolError):
        peer.respond("x", {})
    with pytest.raises(LocalProtocolError):
        peer.respond_error("x", RpcError(1, "m"))
    assert peer.receive_data(line(id="x", method="again")) == [RequestReceived("x", "again", UNSET)]


def test_request_stays_in_progress_when_its_result_cannot_be_encoded():
    peer = Peer()
    peer.receive_data(line(id=1, method="m"))
    with pytest.raises(TypeError):
        peer.respond(1, object())
    peer.respond_error(1, RpcError(-32603, "sorry"))
    with pytest.raises(TypeError):
        peer.request("m", object())
    assert peer._pending == set()


def test_second_request_with_an_id_in_progress_is_refused():
    peer = Peer()
    assert len(peer.receive_data(line(id=1, method="m") + line(id="1", method="m"))) == 2
    [refused] = peer.receive_data(line(id=1, method="n"))
    assert isinstance(refused, InvalidReceived)
    reply = json.loads(refused.reply)
    assert (reply["id"], reply["error"]["code"]) == (1, -32600)
    assert "id 1 is still in progress" in reply["error"]["message"]
    peer.respond(1, {})
    peer.respond("1", {})


def test_requests_with_null_ids_are_not_tracked():
    peer = Peer()
    events = peer.receive_data(line(id=None, method="m") * 2)
    assert events == [RequestReceived(None, "m", UNSET)] * 2
    assert json.loads(peer.respond(None, {})) == {"jsonrpc": "2.0", "id": None, "result": {}}
    peer.respond_error(None, RpcError(1, "m"))


def cancel(**params) -> bytes:
    return line(method="$/cancel_request", params=params)


@pytest.mark.parametrize("id_", [0, 5, "5", ""])
def test_cancellation_is_received_while_the_request_is_in_progress(id_):
    peer = Peer()
    peer.receive_data(line(id=id_, method="m"))
    assert peer.receive_data(cancel(requestId=id_)) == [CancelReceived(id_)]
    peer.respond_error(id_, RpcError(-32800, "cancelled"))
    assert peer.receive_data(cancel(requestId=id_)) == []


def test_cancellation_of_unknown_or_invalid_ids_is_ignored():
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


def test_cancelled_request_stays_pending():
    sender, receiver = Peer(), Peer()
    id_, data = sender.request("m")
    receiver.receive_data(data)
    assert receiver.receive_data(sender.cancel(id_)) == [CancelReceived(id_)]
    assert sender._pending == {id_}


def test_notifications_are_received_with_and_without_params():
    peer = Peer()
    assert peer.receive_data(Peer().notify("n", [1]) + Peer().notify("n")) == [
        NotificationReceived("n", Raw(b"[1]")),
        NotificationReceived("n", UNSET),
    ]


def test_invalid_lines_are_refused_and_the_next_line_is_read():
    peer = Peer(max_line=100)
    data = b"what\n" + b"[]\n" + b"y" * 101 + b"\n" + line(method="n")
    parse, batch, size, good = peer.receive_data(data)
    assert json.loads(parse.reply)["error"]["code"] == parse.error.code == -32700
    assert json.loads(batch.reply)["error"]["code"] == -32600
    assert json.loads(size.reply)["id"] is None
    assert "101 bytes" in size.error.message
    assert "at most 100" in size.error.message
    assert good == NotificationReceived("n", UNSET)


def test_malformed_request_is_refused_with_its_id():
    [refused] = Peer().receive_data(line(id="q", method=3))
    assert json.loads(refused.reply)["id"] == "q"


@pytest.mark.parametrize("members", [{}, {"result": 1, "error": {}}, {"error": 3}])
def test_malformed_response_fails_its_request_and_is_not_answered(members):
    peer = Peer()
    id_, _ = peer.request("m")
    refused, failed = peer.receive_data(line(id=id_, **members))
    assert isinstance(refused, InvalidReceived)
    assert refused.reply is None
    assert isinstance(failed, ErrorReceived)
    assert (failed.id, failed.error.code) == (id_, -32600)
    assert peer._pending == set()
    [refused] = peer.receive_data(line(id=id_, **members))
    assert refused.reply is None


def test_close_returns_the_unfinished_line():
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


def new_peer() -> Peer:
    peer = Peer(max_line=250)
    peer.request("a")
    peer.request("b")
    return peer


def comparable(events) -> list:
    return [(e.reply, repr(e.error)) if isinstance(e, InvalidReceived) else e for e in events]


def in_progress(peer: Peer) -> list[int]:
    """Respond to the requests `PIECES`; return the ids of those that were still in progress."""
    found = []
    for id_ in (0, 1, 2):
        with contextlib.suppress(LocalProtocolError):
            peer.respond(id_, {})
            found.append(id_)
    return found


@pytest.mark.long
@given(
    st.lists(PIECES | st.binary(max_size=8)).map(b"".join), st.lists(st.integers(1, 40), min_size=1)
)
def test_events_do_not_depend_on_how_the_bytes_are_split(data, sizes):
    whole, split = new_peer(), new_peer()
    expected = comparable(whole.receive_data(data))
    got, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        got += split.receive_data(data[at : at + size])
        at, turn = at + size, turn + 1
    assert comparable(got) == expected
    assert split._pending == whole._pending
    assert in_progress(split) == in_progress(whole)
    assert split.close() == whole.close()


def test_deeply_nested_message_is_refused():
    peer = Peer()
    deep = (
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n"
    )
    refused, good = peer.receive_data(deep + line(method="n"))
    assert refused.error.code == -32700
    assert isinstance(good, NotificationReceived)
