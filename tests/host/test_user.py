"""The user's methods under races, and with clients that do not read."""

import base64
import os

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from acpterm.acp.user_streams import AttachRequest
from acpterm.host.events import QUEUE_MAX, UPDATE_BYTES_MAX, EventBus
from acpterm.host.input_monitor import InputMonitor
from acpterm.host.user.attach import attach
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import RpcError
from acpterm.keeper.ring import STALLED
from acpterm.runtime.send_queue import CLOSE_TIMEOUT_S
from acpterm.terminal.terminal import Terminal
from tests.support.hosts import agent_of, host_here, poll
from tests.support.person import person_of


async def test_painted_window_ends_when_the_program_ends():
    async with host_here() as host, person_of(host) as person:
        for pause in ("", "sleep 0.02", "sleep 0.05"):
            made = await person.request(
                "terminal/create", {"command": f"seq 30000; {pause}", "cols": 100, "rows": 30}
            )
            terminal = made["terminalId"]
            window = {"cols": 60, "rows": 20, "readOnly": True}
            id_, _ = await person.open("terminal/attach", terminalId=terminal, **window)
            assert (await person.answer(id_))["reason"] == "exited"


async def test_name_is_given_once_when_requests_race():
    async with host_here() as host, person_of(host) as person:
        order = {"command": "sleep 60", "name": "web"}
        asked = [await person.start("terminal/create", order) for _ in range(3)]
        assert (await person.answer(asked[0]))["name"] == "web"
        for id_ in asked[1:]:
            with pytest.raises(RpcError, match="'web' runs"):
                await person.answer(id_)


async def test_agents_terminal_cannot_be_held():
    async with host_here() as host, agent_of(host) as agent, person_of(host) as person:
        terminal = await agent.create("seq 1000000")
        id_, _ = await person.open("terminal/follow", terminalId=terminal, hold=True)
        with pytest.raises(RpcError, match="is an agent's"):
            await person.answer(id_)
        assert (await agent.wait(terminal))["exitCode"] == 0


async def test_held_program_blocks_until_its_reader_disconnects():
    async with host_here() as host:
        async with person_of(host) as person:
            made = await person.request("terminal/create", {"command": "seq 1000000", "hold": True})
            entry = host.state.registry.find(made["terminalId"])
            ring = entry.terminal.ring
            # The keeper writes no further than there is room for all that was not read.
            await poll(lambda: ring._header[STALLED] == 1 and not ring.unread)
            end = ring.end
            assert entry.terminal.exit is None
            await person.request("status")
            assert (ring.start, ring.end) == (0, end)
        await entry.terminal.wait_exited()


async def test_removing_a_terminal_does_not_evict_retained_ones():
    async with host_here(keep_released=2) as host, person_of(host) as person:
        for name in ("a", "b"):
            await person.request("terminal/create", {"command": "true", "name": name})
            await person.about("wait", name)
        await person.request("terminal/create", {"command": "sleep 60", "name": "c"})
        await person.about("release", "c")
        assert [one["name"] for one in await person.list()] == ["a", "b"]


async def test_event_queue_is_bounded_when_the_client_does_not_read():
    async with host_here() as host, agent_of(host) as agent, person_of(host) as person:
        await person.open("events")
        await poll(lambda: host.state.events.has_subscribers)
        person.pause()
        update = {
            "sessionUpdate": "tool_call",
            "toolCallId": "c",
            "title": "x" * 4 * UPDATE_BYTES_MAX,
        }
        for _ in range(50):
            await agent.notify("session/update", {"sessionId": "s", "update": update})
        update["title"] = "short"
        for _ in range(2 * QUEUE_MAX):
            await agent.notify("session/update", {"sessionId": "s", "update": update})
        await agent.request("initialize", {"protocolVersion": 1})
        (listener,) = host.state.events._subscriptions
        assert len(listener._queue) <= QUEUE_MAX
        assert all(
            one.update is None or len(bytes(one.update)) <= UPDATE_BYTES_MAX
            for one in listener._queue
        )


async def test_pending_requests_do_not_delay_the_shutdown():
    async with host_here() as host, person_of(host) as person:
        await person.request("terminal/create", {"command": "sleep 60", "name": "web"})
        waiting = await person.start("terminal/wait", {"terminalId": "web"})
        reading = await person.start("terminal/read", {"terminalId": "web", "waitMs": 60_000})
        await wait_all_tasks_blocked(0.05)
        before = trio.current_time()
        await host.close()
        assert trio.current_time() - before < CLOSE_TIMEOUT_S
        # Requests that the timeout cancels have no response.
        for id_ in (waiting, reading):
            with pytest.raises(RpcError, match="connection is closing"):
                await person.answer(id_)


async def test_request_is_cancelled_at_once_after_the_connection_closed():
    async with host_here() as host:
        person = UserConnection(host.context, host.state, lambda: ())
        person.close()
        closing = pytest.raises(RpcError, match="connection is closing")
        with trio.fail_after(10), closing, person.cancel_on_close():
            await trio.sleep_forever()


async def test_no_window_is_opened_after_the_connection_closed(monkeypatch):
    async with host_here() as host, person_of(host) as other:
        made = await other.request("terminal/create", {"command": "sleep 60"})
        entry = host.state.registry.find(made["terminalId"])
        person = UserConnection(host.context, host.state, lambda: ())
        person.close()
        opened = []
        monkeypatch.setattr(host.state.windows, "open", lambda *one: opened.append(one))
        params = AttachRequest(entry.id, token="t", cols=33, rows=10)
        with pytest.raises(RpcError, match="connection is closing"):
            await attach(person, entry, params)
        assert opened == []


async def test_read_only_window_survives_a_size_that_cannot_be_shown():
    async with host_here() as host, agent_of(host) as agent, person_of(host) as person:
        terminal = await agent.create("while read line; do echo seen $line; done", cols=40, rows=10)
        id_, token = await person.open(
            "terminal/attach", terminalId=terminal, cols=40, rows=10, readOnly=True
        )
        await person.until(lambda: person.by_token[token])
        for size in ((10_000, 10_000), (30, 10)):
            params = {**agent.of(terminal), "cols": size[0], "rows": size[1]}
            await agent.request("_acpterm/terminal/resize", params)
            await wait_all_tasks_blocked(0.1)
        await agent.type(terminal, "it\n")

        def shown():
            parts = [told["params"]["data"] for told in person.by_token[token]]
            return b"".join(map(base64.b64decode, parts))

        await person.until(lambda: b"seen it" in shown())
        assert not person.answered(id_)


async def test_tool_calls_of_an_agent_do_not_make_the_list_long():
    async with host_here() as host, agent_of(host) as agent, person_of(host) as person:
        await agent.create("true", args=["x" * 100_000])
        await agent.create("true", args=["y"] * 30_000)
        await agent.create("echo " + "z" * 50_000)
        for info in await person.list():
            assert len(info["command"]) == 4096
            assert info["command"].endswith("…")
        with pytest.raises(RpcError, match="4096 at most"):
            await agent.request("terminal/create", {"sessionId": "s" * 5000, "command": "true"})


async def test_directory_whose_name_is_not_utf_8_is_reported_with_replacements(tmp_path):
    folder = os.fsencode(tmp_path) + b"/odd\xff"
    os.mkdir(folder)
    async with host_here() as host, person_of(host) as person:
        host.context = host.context._replace(cwd=os.fsdecode(folder))
        async with person_of(host) as other:
            made = await other.request("terminal/create", {"command": "true"})
            assert made["cwd"] == f"{tmp_path}/odd\ufffd"
            assert [info["cwd"] for info in await person.list()] == [made["cwd"]]


async def test_input_monitor_publishes_each_change_once(monkeypatch):
    async with host_here() as host, person_of(host) as person:
        made = await person.request("terminal/create", {"command": "sleep 60"})
        entry = host.state.registry.find(made["terminalId"])
        answers, published = iter([True, True, False, True]), []
        bus = EventBus()
        bus.publish_terminal = lambda event, *_: published.append(event)
        monitor = InputMonitor(host.state.registry, bus)
        monkeypatch.setattr(Terminal, "waits_for_input", lambda _: next(answers))
        entry.terminal.timeline.last = None
        for _ in range(4):
            monitor.check(entry)
        assert (published, entry.waiting) == (["waiting", "resumed", "waiting"], True)


async def test_program_is_not_held_after_its_reader_disconnected():
    async with host_here() as host, person_of(host) as other:
        flood = "head -c 3000000 /dev/zero | tr '\\0' x"
        made = await other.request("terminal/create", {"command": flood})
        entry = host.state.registry.find(made["terminalId"])
        person = UserConnection(host.context, host.state, lambda: ())
        person.close()
        person.hold_output(entry.terminal, 0)
        assert (await other.about("wait", made["terminalId"]))["exitStatus"]["exitCode"] == 0


async def test_waiting_event_comes_after_the_created_event(monkeypatch):
    monkeypatch.setattr(Terminal, "waits_for_input", lambda _: True)
    async with host_here() as host, person_of(host) as person:
        _, token = await person.open("events")
        await poll(lambda: host.state.events.has_subscribers)
        await person.request("terminal/create", {"command": "sleep 60"})

        def told():
            return [one["params"]["event"] for one in person.by_token[token]]

        await person.until(lambda: "waiting" in told())
        assert told() == ["created", "waiting"]


FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"


@pytest.mark.parametrize(
    "name", ["build 2", "e\u0301t\u00e9", "\u65e5\u672c", FAMILY, ENGLAND, PERSIAN, "1\ufe0f\u20e3"]
)
async def test_name_may_be_any_printable_characters(name):
    async with host_here() as host, person_of(host) as person:
        info = await person.request("terminal/create", {"command": "true", "name": name})
        assert info["name"] == name
        assert (await person.about("get", name))["terminalId"] == info["terminalId"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a\tb",
        "a\u200db",
        "\u200d",
        "\u65e5\u200d",
        "\u0301a",
        "\u202eabc",
        "a\u200b",
        "@x",
        "-x",
    ],
)
async def test_name_with_invisible_characters_is_refused(name):
    async with host_here() as host, person_of(host) as person:
        with pytest.raises(RpcError) as caught:
            await person.request("terminal/create", {"command": "true", "name": name})
    assert "a name is not empty, is printable" in caught.value.message
