"""Our end of a JSON-RPC stream: pending requests when the peer sends invalid lines."""

import pytest
import trio
from trio.testing import memory_stream_pair

from acpterm.acp.terminal import Empty
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon_stream import Connected
from acpterm.link.endpoint import Endpoint
from acpterm.link.trio_stream import TrioStream
from tests.support.depth import DEADLINE_S


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"jsonrpc":"2.0","id":0,"result":"%b"}' % (b"x" * 2000), "has 2036 bytes"),
        (b"no JSON at all", "is not JSON"),
    ],
)
async def test_pending_and_later_requests_fail_after_an_invalid_message(line, why):
    ours, theirs = memory_stream_pair()
    endpoint = Endpoint(Connected(TrioStream(ours)), "the daemon", 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(endpoint.run)
        with trio.fail_after(DEADLINE_S):
            nursery.start_soon(theirs.send_all, line + b"\n")
            with pytest.raises(RpcError, match="the daemon sent an invalid message") as caught:
                await endpoint.request("status", Empty())
            assert why in str(caught.value)
            # Later requests fail as well, and the stream is closed.
            with pytest.raises(RpcError, match="invalid message"):
                await endpoint.request("status", Empty())
            while await theirs.receive_some():
                pass


async def test_endpoint_with_on_invalid_continues_after_an_invalid_message():
    ours, theirs = memory_stream_pair()
    errors = []
    endpoint = Endpoint(Connected(TrioStream(ours)), "the agent", 1000, on_invalid=errors.append)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(endpoint.run)
        with trio.fail_after(DEADLINE_S):

            @nursery.start_soon
            async def answer():
                assert b'"id":0' in await theirs.receive_some()
                await theirs.send_all(b'no JSON\n{"jsonrpc":"2.0","id":0,"result":{}}\n')

            assert bytes(await endpoint.request("status", Empty())) == b"{}"
        assert len(errors) == 1
        nursery.cancel_scope.cancel()
