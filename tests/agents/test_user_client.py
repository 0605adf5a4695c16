"""Streams of the user's asynchronous client, at a daemon that does what the test says."""

from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing
from msgspec.json import decode

from acpterm.acp.user_streams import FollowRequest, FollowResponse
from acpterm.commands.client import open_user_client
from acpterm.commands.events import refresh
from acpterm.config import Settings
from acpterm.link.errors import LostError
from tests.support.fake_host import DEADLINE_S, fake_host
from tests.support.rpc import encode


@asynccontextmanager
async def connected(tmp_path, **options):
    """Yield a client, the daemon's end of its connection, and the daemon."""
    async with fake_host(tmp_path, "user.sock") as host, trio.open_nursery() as nursery:
        settings = Settings(socket=host.path.replace("user.sock", "agent.sock"))
        send, receive = trio.open_memory_channel(1)

        @nursery.start_soon
        async def accept():
            send.send_nowait(await host.connected())

        async with open_user_client(settings, start=False, **options) as client:
            yield client, await receive.receive(), host


def following(client):
    """Return a stream of `terminal/follow`, and its token."""
    request = FollowRequest("build", client.token())
    return client.stream("terminal/follow", request, FollowResponse), request.token


async def notify(worker, token, number):
    await worker.notify("_acpterm/terminal/followed", {"token": token, "number": number})


async def numbers(stream):
    with trio.fail_after(DEADLINE_S):
        return [decode(params)["number"] async for params in stream]


async def test_stream_has_its_own_notifications_and_ends_with_the_response(tmp_path):
    async with connected(tmp_path) as (client, worker, _):
        follow, token = following(client)
        with follow as stream:
            request = await worker.expect("_acpterm/terminal/follow")
            await notify(worker, token, 1)
            await notify(worker, f"{token}0", 2)
            await worker.notify("_acpterm/other", [token])
            await notify(worker, token, 3)
            await worker.respond(request, {"position": 7, "exitStatus": None})
            assert await numbers(stream) == [1, 3]
        assert stream.response == FollowResponse(7, None)


async def test_connection_is_not_read_while_a_stream_is_unread(tmp_path):
    async with connected(tmp_path) as (client, worker, _):
        follow, token = following(client)
        with follow:
            await worker.expect("_acpterm/terminal/follow")
            sent = 0
            with trio.move_on_after(0.5):
                while True:
                    params = {"token": token, "number": sent, "data": "x" * 65536}
                    await worker.notify("_acpterm/terminal/followed", params)
                    sent += 1
            assert sent < 1000


async def test_leaving_a_stream_cancels_its_request_and_frees_the_connection(tmp_path):
    async with connected(tmp_path) as (client, worker, _), trio.open_nursery() as nursery:
        follow, token = following(client)
        with follow:
            request = await worker.expect("_acpterm/terminal/follow")
            for number in range(20):
                await notify(worker, token, number)
        cancelled = await worker.expect("$/cancel_request")
        assert cancelled["params"] == {"requestId": request["id"]}
        nursery.start_soon(client.request_no_params, "status", FollowResponse)
        await worker.respond(
            await worker.expect("_acpterm/status"), {"position": 0, "exitStatus": None}
        )


async def test_lost_stream_yields_what_was_received_and_can_be_opened_again(tmp_path):
    async with connected(tmp_path) as (client, worker, host), trio.open_nursery() as nursery:
        follow, token = following(client)
        with follow as stream:
            await worker.expect("_acpterm/terminal/follow")
            await notify(worker, token, 1)
            await worker.lose()
            assert decode(await anext(stream))["number"] == 1
            with pytest.raises(LostError):
                await anext(stream)
            nursery.start_soon(client.reconnect, stream.endpoint)
            second = await host.connected()
            await trio.testing.wait_all_tasks_blocked()
        follow, token = following(client)
        with follow as stream:
            request = await second.expect("_acpterm/terminal/follow")
            await notify(second, token, 2)
            await second.respond(request, {"position": 7, "exitStatus": None})
            assert await numbers(stream) == [2]


@pytest.mark.parametrize("remote", [False, True])
async def test_context_of_this_process_is_not_sent_to_another_host_after_a_loss_either(
    tmp_path, remote
):
    async with connected(tmp_path, remote=remote) as (client, worker, host):
        async with trio.open_nursery() as nursery:
            await worker.lose()
            nursery.start_soon(client.reconnect, client._endpoint)
            second = await host.connected()
        for one in worker, second:
            assert ("context" in one.initialize["_meta"]["acpterm"]) is not remote


async def test_list_is_requested_after_the_events_that_change_it(tmp_path):
    async with connected(tmp_path) as (client, worker, _), trio.open_nursery() as nursery:
        nursery.start_soon(partial(refresh, client, trio.sleep_forever, everything=False))
        await worker.expect("_acpterm/events")
        await worker.expect("_acpterm/terminal/list")
        nursery.cancel_scope.cancel()


async def test_message_that_arrives_with_the_response_to_initialize_is_received_completely(
    tmp_path,
):
    async with connected(tmp_path) as (client, worker, host), trio.open_nursery() as nursery:
        follow, _ = following(client)
        with follow as stream:
            await worker.lose()
            with pytest.raises(LostError):
                await anext(stream)
            nursery.start_soon(client.reconnect, stream.endpoint)
        second = await host.accept()
        initialize = await second.expect("initialize")
        welcome = encode(id=initialize["id"], result={"protocolVersion": 1})
        await second.send(welcome + b'{"jsonrpc":"2.0",')
        await trio.testing.wait_all_tasks_blocked()
        await second.send(b'"method":"_acpterm/other","params":{}}\n')
        follow, token = following(client)
        with follow as stream:
            request = await second.expect("_acpterm/terminal/follow")
            await notify(second, token, 2)
            await second.respond(request, {"position": 7, "exitStatus": None})
            assert await numbers(stream) == [2]
