"""The Python API when the daemon goes away, requests are cancelled, and connections are lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import pytest

import acpterm
from acpterm.link import endpoint
from tests.api.fake import INFO, SECRET, FakeDaemon, Worker, fake_daemon
from tests.api.test_client import ROLES, connect
from tests.support.backends import on_both_backends
from tests.support.depth import DEADLINE_S

CREATE = {"agent": "terminal/create", "user": "_acpterm/terminal/create"}
WAIT = {"agent": "terminal/wait_for_exit", "user": "_acpterm/terminal/wait"}
RELEASE = {"agent": "terminal/release", "user": "_acpterm/terminal/release"}
GET = "_acpterm/terminal/get"
METHODS = {
    "create": lambda client, _: client.create("cat"),
    "terminals": lambda client, _: client.terminals(),
    "info": lambda _, terminal: terminal.info(),
    "read": lambda _, terminal: terminal.read(wait=60),
    "read_raw": lambda _, terminal: terminal.read_raw(wait=60),
    "output": lambda _, terminal: terminal.output(),
    "write": lambda _, terminal: terminal.write("x"),
    "keys": lambda _, terminal: terminal.keys("Up"),
    "wait": lambda _, terminal: terminal.wait(),
    "wait_for": lambda _, terminal: terminal.wait_for("x"),
    "screen": lambda _, terminal: terminal.screen(),
    "resize": lambda _, terminal: terminal.resize(80, 24),
    "signal": lambda _, terminal: terminal.signal("SIGINT"),
    "kill": lambda _, terminal: terminal.kill(),
    "release": lambda _, terminal: terminal.release(),
    "promote": lambda _, terminal: terminal.promote(),
}


@pytest.fixture(autouse=True)
def quick_goodbye(monkeypatch):
    """Do not wait long for the daemon of these tests to close its end of the connection."""
    monkeypatch.setattr(endpoint, "_GOODBYE_TIMEOUT_S", 0.02)


@asynccontextmanager
async def connected(tmp_path, role) -> AsyncIterator[tuple[acpterm.Client, Worker, FakeDaemon]]:
    """Yield a client, the daemon's end of its connection, and the daemon."""
    async with fake_daemon(tmp_path, role) as daemon, anyio.create_task_group() as tasks:
        accepted: list[Worker] = []

        async def accept():
            accepted.append(await daemon.accept())
            await accepted[0].welcome()

        tasks.start_soon(accept)
        async with connect(daemon.settings, role) as client:
            yield client, accepted[0], daemon


@pytest.mark.costly
@ROLES
@pytest.mark.parametrize("method", METHODS)
@on_both_backends
async def test_cancelled_method_is_cancelled_at_the_daemon(tmp_path, role, method):
    async with connected(tmp_path, role) as (client, worker, _):
        call = METHODS[method](client, client.terminal("term_1"))
        async with anyio.create_task_group() as tasks:

            async def run():
                await call

            tasks.start_soon(run)
            request = await worker.receive()
            tasks.cancel_scope.cancel()
        cancel = await worker.expect("$/cancel_request")
        assert cancel["params"] == {"requestId": request["id"]}
        await worker.fail(request, "cancelled, as was asked", -32800)
        async with anyio.create_task_group() as tasks:

            async def use():
                assert (await client.terminal("term_1").info()).command == "cat"

            tasks.start_soon(use)
            await worker.respond(await worker.expect(GET), INFO)


@ROLES
@on_both_backends
async def test_terminal_of_a_cancelled_create_is_released(tmp_path, role):
    async with connected(tmp_path, role) as (client, worker, _):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.create, "cat")
            request = await worker.expect(CREATE[role])
            tasks.cancel_scope.cancel()
        await worker.expect("$/cancel_request")
        await worker.respond(request, INFO)
        released = await worker.expect(RELEASE[role])
        assert released["params"]["terminalId"] == "term_1"


@ROLES
@on_both_backends
async def test_every_waiter_is_told_that_the_daemon_is_gone(tmp_path, role):
    async with connected(tmp_path, role) as (client, worker, daemon):
        errors = []

        async def wait(number):
            terminal = client.terminal(f"term_{number}")
            with pytest.raises(acpterm.ClosedError, match="is gone") as caught:
                await terminal.wait()
            errors.append(caught.value)

        async def listen():
            async with client.events() as events:
                with pytest.raises(acpterm.ClosedError, match="is gone"):
                    await anext(events)

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(wait, number)
            for _ in range(3):
                await worker.expect(WAIT[role])
            tasks.start_soon(listen)
            await worker.expect("_acpterm/events")
            await daemon.stop()
            await worker.lose()
        assert len({id(error) for error in errors}) == 3
        with pytest.raises(acpterm.ClosedError, match="is gone"):
            await client.terminals()


@ROLES
@on_both_backends
async def test_requests_that_wait_for_the_daemon_to_read_all_finish(tmp_path, role):
    async with connected(tmp_path, role) as (client, worker, _):
        terminal = client.terminal("term_1")
        finished = []
        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:

                async def write(number):
                    await terminal.write("x" * 100_000)
                    finished.append(number)

                for number in range(50):
                    tasks.start_soon(write, number)
                await anyio.wait_all_tasks_blocked()  # the socket and the queue are full
                for _ in range(50):
                    await worker.respond(await worker.receive(), {"written": 100_000})
        assert sorted(finished) == list(range(50))


async def respond(worker):
    while True:
        await worker.respond(await worker.receive(), {"written": 100_000})


@ROLES
@on_both_backends
async def test_requests_that_wait_for_the_daemon_to_read_finish_after_a_reconnection(
    tmp_path, role
):
    async with connected(tmp_path, role) as (client, worker, daemon):
        terminal = client.terminal("term_1")
        finished = []
        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:

                async def write(number):
                    with suppress(acpterm.RequestError):  # of the requests that were lost
                        await terminal.write("x" * 100_000)
                    finished.append(number)

                for number in range(50):
                    tasks.start_soon(write, number)
                await anyio.wait_all_tasks_blocked()
                await worker.lose()
                again = await daemon.accept()
                await again.welcome(resumed=True)
                tasks.start_soon(respond, again)
                while len(finished) < 50:
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
        assert sorted(finished) == list(range(50))


@ROLES
@on_both_backends
async def test_pending_requests_fail_when_the_block_is_left(tmp_path, role):
    async with anyio.create_task_group() as tasks:
        failed = anyio.Event()

        async def wait(terminal):
            with pytest.raises(acpterm.ClosedError, match="was closed"):
                await terminal.wait()
            failed.set()

        async with connected(tmp_path, role) as (client, worker, _):
            tasks.start_soon(wait, client.terminal("term_1"))
            await worker.expect(WAIT[role])
            tasks.start_soon(worker.lose)
        with anyio.fail_after(DEADLINE_S):
            await failed.wait()
        with pytest.raises(acpterm.ClosedError):
            await client.terminals()


@ROLES
@on_both_backends
async def test_requests_that_only_read_are_repeated_on_the_next_connection(tmp_path, role):
    async with connected(tmp_path, role) as (client, worker, daemon):
        infos, errors, events = [], [], []

        async def info():
            infos.append(await client.terminal("term_1").info())

        async def write():
            with pytest.raises(acpterm.RequestError, match="unknown whether") as caught:
                await client.terminal("term_1").write("x")
            errors.append(caught.value)

        async def listen():
            async with client.events() as stream:
                events.append(await anext(stream))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(info)
            pending = await worker.expect(GET)
            tasks.start_soon(write)
            await worker.expect("_acpterm/terminal/write")
            tasks.start_soon(listen)
            listening = await worker.expect("_acpterm/events")
            # A part of a response is no response.
            await worker.send(b'{"jsonrpc":"2.0","id":')
            await worker.lose()
            second = await daemon.accept()
            presented = await second.welcome(resumed=True)
            assert presented.get("resume") == (SECRET if role == "agent" else None)
            assert await second.expect(GET) == pending
            assert await second.expect("_acpterm/events") == listening
            await second.respond(pending, INFO)
        assert [found.command for found in infos] == ["cat"]
        assert len(errors) == 1
        assert [event.event for event in events] == ["reconnected"]


@on_both_backends
async def test_agent_is_closed_if_another_daemon_has_none_of_its_terminals(tmp_path):
    async with (
        connected(tmp_path, "agent") as (client, worker, daemon),
        anyio.create_task_group() as tasks,
    ):

        async def wait():
            with pytest.raises(acpterm.ClosedError, match="none of its terminals"):
                await client.terminal("term_1").wait()

        tasks.start_soon(wait)
        await worker.expect("terminal/wait_for_exit")
        await worker.lose()
        await (await daemon.accept()).welcome(resumed=False)


@ROLES
@on_both_backends
async def test_invalid_message_closes_the_connection(tmp_path, role):
    async with connected(tmp_path, role) as (client, worker, _), anyio.create_task_group() as tasks:

        async def wait():
            with pytest.raises(acpterm.ClosedError, match="invalid message"):
                await client.terminal("term_1").wait()

        tasks.start_soon(wait)
        await worker.expect(WAIT[role])
        await worker.send(b"nonsense\n")


@ROLES
@on_both_backends
async def test_result_of_another_version_is_an_error_that_says_so(tmp_path, role):
    async with connected(tmp_path, role) as (client, worker, _), anyio.create_task_group() as tasks:

        async def info():
            with pytest.raises(acpterm.DaemonError, match="another version"):
                await client.terminal("term_1").info()

        tasks.start_soon(info)
        await worker.respond(await worker.expect(GET), {"surprise": True})


@on_both_backends
async def test_daemon_that_does_not_read_makes_requests_wait(tmp_path):
    async with connected(tmp_path, "user") as (client, worker, _):
        terminal = client.terminal("term_1")
        begun = 0

        async def write():
            nonlocal begun
            begun += 1
            await terminal.write("x" * 100_000)

        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(write)
            while begun < 50:
                await anyio.lowlevel.checkpoint()
            first = await worker.expect("_acpterm/terminal/write")
            # None of those that wait is sent once they are cancelled.
            tasks.cancel_scope.cancel()
        # A request of which a part was sent is completed, maybe after others were cancelled.
        sent, cancelled = {first["id"]}, set()
        while cancelled != sent:
            message = await worker.receive()
            if message["method"] == "_acpterm/terminal/write":
                sent.add(message["id"])
            else:
                assert message["method"] == "$/cancel_request"
                cancelled.add(message["params"]["requestId"])
        assert len(sent) < 20


@on_both_backends
async def test_events_that_are_not_read_are_dropped_and_counted(tmp_path):
    async with connected(tmp_path, "user") as (client, worker, _), client.events() as events:
        request = await worker.expect("_acpterm/events")
        params = {"token": request["params"]["token"], "event": "created", "at": 0}
        for number in range(1500):
            await worker.notify("_acpterm/event", {**params, "at": number})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.terminals)
            await worker.respond(await worker.expect("_acpterm/terminal/list"), {"terminals": []})
        first = await anext(events)
        assert (first.at, first.lost) == (500, 500)
        assert (await anext(events)).lost == 0


def test_cancelled_task_of_asyncio_cancels_its_request(tmp_path):
    async def test():
        async with connected(tmp_path, "agent") as (client, worker, _):
            task = asyncio.create_task(client.terminal("term_1").wait())
            request = await worker.expect("terminal/wait_for_exit")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            cancel = await worker.expect("$/cancel_request")
            assert cancel["params"] == {"requestId": request["id"]}
            again = asyncio.create_task(client.terminal("term_1").info())
            await worker.respond(await worker.expect(GET), INFO)
            assert (await again).command == "cat"

    asyncio.run(test())
