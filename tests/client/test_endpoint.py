"""Our end of a stream: what becomes of who waits for an answer."""

import pytest
import trio
from trio.testing import memory_stream_pair

from acpterm.acp import Empty
from acpterm.client.endpoint import Endpoint
from acpterm.jsonrpc import RpcError


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b'{"jsonrpc":"2.0","id":0,"result":"%b"}' % (b"x" * 2000), "has 2036 bytes"),
        (b"no JSON at all", "is not JSON"),
    ],
)
async def test_who_waits_is_told_when_the_other_side_says_what_is_no_message(said, why):
    ours, theirs = memory_stream_pair()
    endpoint = Endpoint(ours, "the daemon", 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(endpoint.run)
        with trio.fail_after(5):
            nursery.start_soon(theirs.send_all, said + b"\n")
            with pytest.raises(RpcError, match="the daemon said what is no message") as caught:
                await endpoint.request("status", Empty())
            assert why in str(caught.value)
            # And so is whoever asks later; the stream is closed.
            with pytest.raises(RpcError, match="no message"):
                await endpoint.request("status", Empty())
            while await theirs.receive_some():
                pass


async def test_one_that_is_told_of_rubbish_goes_on():
    ours, theirs = memory_stream_pair()
    endpoint = Endpoint(ours, "the agent", 1000)
    heard = []
    endpoint.on_invalid = heard.append
    async with trio.open_nursery() as nursery:
        nursery.start_soon(endpoint.run)
        with trio.fail_after(5):

            @nursery.start_soon
            async def answer():
                assert b'"id":0' in await theirs.receive_some()
                await theirs.send_all(b'no JSON\n{"jsonrpc":"2.0","id":0,"result":{}}\n')

            assert bytes(await endpoint.request("status", Empty())) == b"{}"
        assert len(heard) == 1
        nursery.cancel_scope.cancel()
