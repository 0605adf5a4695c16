"""A session on each driver: `Endpoint` on trio and asyncio, `BlockingEndpoint` on a socket."""

import socket
import threading
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest
from anyio.abc import UNIXSocketStream

from acpterm.acp.terminal import Empty
from acpterm.config import Settings
from acpterm.jsonrpc import RpcError
from acpterm.link.blocking import BlockingEndpoint
from acpterm.link.daemon_stream import Connected
from acpterm.link.endpoint import Endpoint
from acpterm.link.errors import LostError
from tests.support.backends import BACKENDS, on_both_backends
from tests.support.depth import DEADLINE_S

WELCOME = b'{"jsonrpc":"2.0","id":0,"result":{}}\n'
ANSWER = b'{"jsonrpc":"2.0","id":0,"result":{"n":1}}\n'
REFUSAL = b'{"jsonrpc":"2.0","id":0,"error":{"code":7,"message":"no","data":["why"]}}\n'


@asynccontextmanager
async def connected(**options):
    """Yield an endpoint that runs, and the peer's end of its stream."""
    ours, theirs = map(UNIXSocketStream.from_socket, socket.socketpair())
    async with await theirs as peer, anyio.create_task_group() as tasks:
        endpoint = Endpoint(Connected(await ours), "the peer", **options)
        tasks.start_soon(endpoint.run)
        with anyio.fail_after(DEADLINE_S):
            yield endpoint, peer
        tasks.cancel_scope.cancel()


def ask_blocking(response):
    """Send a request by the blocking driver to a peer that answers `response`."""
    ours, theirs = socket.socketpair()
    with theirs:

        def serve():
            theirs.recv(65536)
            theirs.sendall(WELCOME)
            theirs.recv(65536)
            theirs.sendall(response)
            theirs.shutdown(socket.SHUT_WR)

        peer = threading.Thread(target=serve)
        peer.start()
        endpoint = BlockingEndpoint(Settings(), ours, DEADLINE_S, lambda _: None)
        answers = []
        try:
            endpoint.session.call("status", Empty(), answers.append)
            while not answers:
                endpoint.receive()
        except RpcError as error:
            answers.append(error)
        finally:
            endpoint.close()
            peer.join()
    return answers[0]


async def ask_async(response):
    """Send a request by the async driver to a peer that answers `response`; return the outcome."""
    async with connected() as (endpoint, peer):
        return await answered(endpoint, peer, response)


async def answered(endpoint, peer, response):
    answers = []
    endpoint.call("status", Empty(), answers.append)
    await peer.receive()
    await peer.send(response)
    await peer.send_eof()
    while not answers:
        await anyio.sleep(0.001)
    return answers[0]


def ask(driver, response):
    """Send a request to a peer that answers `response`; return the result."""
    if driver == "blocking":
        outcome = ask_blocking(response)
    else:
        outcome = anyio.run(ask_async, response, backend=driver)
    if isinstance(outcome, RpcError):
        raise outcome
    return outcome


@pytest.fixture(params=[*BACKENDS, "blocking"])
def driver(request):
    return request.param


def test_request_returns_the_result(driver):
    assert msgspec.json.decode(ask(driver, ANSWER)) == {"n": 1}


def test_refused_request_raises_the_error(driver):
    with pytest.raises(RpcError, match="no") as caught:
        ask(driver, REFUSAL)
    assert caught.value.code == 7
    assert msgspec.json.decode(caught.value.data) == ["why"]


def test_pending_request_fails_when_the_stream_ends(driver):
    with pytest.raises(LostError, match="is gone"):
        ask(driver, b'{"jsonrpc":"2.0","id":')


def test_pending_request_fails_after_an_invalid_message(driver):
    with pytest.raises(RpcError, match=r"sent an invalid message: .*is not JSON") as caught:
        ask(driver, b"no JSON at all\n")
    assert not isinstance(caught.value, LostError)


@on_both_backends
async def test_later_requests_fail_and_the_stream_is_closed_after_a_line_that_is_too_long():
    async with connected(max_line=1000) as (endpoint, peer):
        await peer.send(b'{"jsonrpc":"2.0","id":0,"result":"%b"}\n' % (b"x" * 2000))
        for _ in range(2):
            with pytest.raises(RpcError, match=r"invalid message: .*has 2036 bytes"):
                await endpoint.request("status", Empty())
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await read_all(peer)


async def read_all(peer):
    while True:
        await peer.receive()


@on_both_backends
async def test_endpoint_with_on_invalid_continues_after_an_invalid_message():
    errors = []
    async with connected(on_invalid=errors.append) as (endpoint, peer):
        assert bytes(await answered(endpoint, peer, b"no JSON\n" + ANSWER)) == b'{"n":1}'
    assert len(errors) == 1


@on_both_backends
async def test_late_result_of_a_cancelled_request_is_passed_on_but_not_on_a_closed_endpoint():
    late = []
    async with connected() as (endpoint, peer):
        for _ in range(2):
            with anyio.move_on_after(0.01):
                await endpoint.request("create", Empty(), late.append)
        await peer.send(ANSWER)
        while not late:
            await anyio.sleep(0.001)
        endpoint.close(LostError("gone"))
    assert [bytes(result) for result in late] == [b'{"n":1}']


@on_both_backends
async def test_messages_of_a_peer_that_does_not_read_responses_are_not_read():
    requests = []

    def on_request(request):
        requests.append(request)
        endpoint.respond(request.id, "x" * 100_000)

    async with connected(on_request=on_request) as (endpoint, peer):
        line = b'{"jsonrpc":"2.0","id":%d,"method":"m","params":["%b"]}\n'
        number = 0
        while not endpoint.is_full:
            await peer.send(line % (number, b"y" * 1000))
            number += 1
        handled = len(requests)
        with anyio.move_on_after(0.2):
            while True:
                await peer.send(line % (number, b"y" * 1000))
                number += 1
        assert len(requests) < handled + 100  # the rest of what was received at once
