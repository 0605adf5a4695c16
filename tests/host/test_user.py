"""The user's methods under races, and with clients that do not read."""

import base64
import json
import os

import pytest
import trio
from msgspec import UNSET, Raw
from trio.testing import wait_all_tasks_blocked

from acpterm.acp.user_streams import AttachRequest, EventsRequest, FollowRequest
from acpterm.host.audit_trail import AuditTrail
from acpterm.host.events import QUEUE_BYTES_MAX, QUEUE_MAX, UPDATE_BYTES_MAX, EventBus, new_event
from acpterm.host.input_monitor import InputMonitor, input_wait
from acpterm.host.server import connection
from acpterm.host.terminal_info import terminal_info
from acpterm.host.user.attach import attach
from acpterm.host.user.daemon_methods import events
from acpterm.host.user.terminal_methods import follow_output
from acpterm.host.verbs import current_screen
from acpterm.jsonrpc import RpcError
from acpterm.keeper.ring_file import STALLED
from acpterm.terminal.terminal import Terminal
from tests.support.cases import each_case
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.polling import poll, poll_blocking
from tests.support.user import user_of


async def test_painted_window_ends_when_the_program_ends(user):
    for pause in ("", "sleep 0.02", "sleep 0.05"):
        created = await user.request(
            "terminal/create", {"command": f"seq 30000; {pause}", "cols": 100, "rows": 30}
        )
        terminal = created["terminalId"]
        window = {"cols": 60, "rows": 20, "readOnly": True}
        id_, _ = await user.open("terminal/attach", terminalId=terminal, **window)
        assert (await user.result(id_))["reason"] == "exited"


async def test_name_is_given_once_when_requests_race(user):
    order = {"command": "sleep 60", "name": "web"}
    requests = [await user.start("terminal/create", order) for _ in range(3)]
    assert (await user.result(requests[0]))["name"] == "web"
    for id_ in requests[1:]:
        with pytest.raises(RpcError, match="'web' runs"):
            await user.result(id_)


@pytest.mark.long
async def test_agents_terminal_cannot_be_held(agent, user):
    terminal = await agent.create("seq 1000000")
    id_, _ = await user.open("terminal/follow", terminalId=terminal, hold=True)
    with pytest.raises(RpcError, match="is an agent's"):
        await user.result(id_)
    assert (await agent.wait(terminal))["exitCode"] == 0


@pytest.mark.long
async def test_held_program_blocks_until_its_reader_disconnects(host):
    async with user_of(host) as user:
        created = await user.request("terminal/create", {"command": "seq 1000000", "hold": True})
        entry = host.terminals.registry.find(created["terminalId"])
        ring = entry.terminal.ring
        # The keeper writes no further than there is room for all that was not read.
        await poll(lambda: ring._header[STALLED] == 1 and not ring.unread)
        end = ring.end
        assert entry.terminal.exit is None
        await user.request("status")
        assert (ring.start, ring.end) == (0, end)
    await entry.terminal.wait_exited()


@pytest.mark.long
async def test_later_reader_with_the_same_holder_replaces_one_that_does_not_read(host):
    async with user_of(host) as stuck, user_of(host) as user:
        command = {"command": "seq 1000000", "hold": True}
        terminal = (await stuck.request("terminal/create", command))["terminalId"]
        reading = {"terminalId": terminal, "hold": True, "holder": "reader"}
        await stuck.open("terminal/follow", **reading)
        stuck.pause()
        ring = host.terminals.registry.find(terminal).terminal.ring
        await poll(lambda: ring._header[STALLED] == 1)
        id_, _ = await user.open("terminal/follow", **reading, since=0)
        assert (await user.result(id_))["exitStatus"]["exitCode"] == 0


async def test_repeated_write_with_the_same_token_is_not_typed_again(host, user):
    async with user_of(host) as again:
        line = "stty -echo; echo ready; read a; read b; echo $a; echo $b"
        created = await user.request("terminal/create", {"command": line})
        terminal = created["terminalId"]
        await poll(lambda: "ready" in host.terminals.registry.find(terminal).terminal.text.text())
        for client, text, token in (
            (user, "one\r", "1"),
            (again, "one\r", "1"),
            (again, "two\r", "2"),
            (user, "two\r", "2"),
        ):
            params = {"terminalId": terminal, "data": text, "token": token}
            assert (await client.request("terminal/write", params))["written"] == 4
        await user.terminal_request("wait", terminal)
        output = (await user.terminal_request("output", terminal))["text"]
        assert output == "ready\none\ntwo\n"


async def test_removing_a_terminal_does_not_evict_retained_ones():
    async with host_here(keep_released=2) as host, user_of(host) as user:
        for name in ("a", "b"):
            await user.request("terminal/create", {"command": "true", "name": name})
            await user.terminal_request("wait", name)
        await user.request("terminal/create", {"command": "sleep 60", "name": "c"})
        await user.terminal_request("release", "c")
        assert [one["name"] for one in await user.list()] == ["a", "b"]


@pytest.mark.long
async def test_event_queue_is_bounded_when_the_client_does_not_read(host, agent, user):
    await user.open("events")
    await poll(lambda: host.terminals.events.has_subscribers)
    user.pause()
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
    (listener,) = host.terminals.events._subscriptions
    assert len(listener._queue) <= QUEUE_MAX
    assert all(
        one.update is UNSET or len(bytes(one.update)) <= UPDATE_BYTES_MAX
        for one, _ in listener._queue
    )


async def test_event_queue_is_bounded_in_bytes():
    with EventBus(AuditTrail(None)).subscribe() as listener:
        update = Raw(json.dumps("x" * (UPDATE_BYTES_MAX - 2)).encode())
        for number in range(QUEUE_MAX):
            listener.put(new_event("tool_call", session=str(number), update=update))
        queued = len(listener._queue)
        assert queued < QUEUE_BYTES_MAX / UPDATE_BYTES_MAX
        event = await listener.next()
        assert (event.session_id, event.lost) == (str(event.lost), QUEUE_MAX - queued)
        for _ in range(queued - 1):
            event = await listener.next()
        assert (event.session_id, event.lost) == (str(QUEUE_MAX - 1), 0)
        # The queue has room again.
        for _ in range(queued):
            listener.put(event)
        assert len(listener._queue) == queued


async def test_name_of_a_terminal_is_taken_while_it_is_restarted():
    async with host_here(kill_grace=1) as host, user_of(host) as user:
        # Its child ignores SIGTERM, so the terminal closes some time after the program has exited.
        command = "(trap '' TERM; while :; do sleep 0.1; done) & echo ready; sleep 60"
        params = {"command": command, "name": "web"}
        created = await user.request("terminal/create", params)
        entry = host.terminals.registry.find(created["terminalId"])
        await poll(lambda: entry.terminal.ring.end or None)
        restart = await user.start("terminal/restart", {"terminalId": "web"})
        await poll(lambda: entry.terminal.exit)
        with pytest.raises(RpcError, match="a terminal of the name 'web' runs"):
            await user.request("terminal/create", params)
        assert (await user.result(restart))["name"] == "web"


async def test_restart_is_refused_when_another_terminal_has_the_name(user):
    params = {"command": "true", "name": "web"}
    old = (await user.request("terminal/create", params))["terminalId"]
    await user.terminal_request("wait", old)
    await user.request("terminal/create", {"command": "sleep 60", "name": "web"})
    with pytest.raises(RpcError, match="a terminal of the name 'web' runs"):
        await user.terminal_request("restart", old)
    assert len(await user.list()) == 2


async def test_read_beyond_the_pending_maximum_leaves_no_coroutine(monkeypatch):
    monkeypatch.setattr(connection, "PENDING_MAX", 1)
    async with host_here() as host, user_of(host) as user:
        await user.request("terminal/create", {"command": "sleep 60", "name": "web"})
        params = {"terminalId": "web", "waitMs": 60_000}
        await user.start("terminal/read", params)
        with pytest.raises(RpcError, match="1 requests are pending"):
            await user.request("terminal/read", params)
        # A coroutine that was not awaited causes a warning, which is an error.


async def test_pending_requests_do_not_delay_the_shutdown(host, user):
    await user.request("terminal/create", {"command": "sleep 60", "name": "web"})
    waiting = await user.start("terminal/wait", {"terminalId": "web"})
    reading = await user.start("terminal/read", {"terminalId": "web", "waitMs": 60_000})
    await wait_all_tasks_blocked(0.05)
    await host.close()
    # Requests that the timeout cancels have no response.
    for id_ in (waiting, reading):
        with pytest.raises(RpcError, match="connection is closing"):
            await user.result(id_)


async def test_request_is_cancelled_at_once_after_the_connection_closed(host):
    user = host.new_user(host.context)
    user.close()
    closing = pytest.raises(RpcError, match="connection is closing")
    with trio.fail_after(DEADLINE_S), closing, user.cancel_on_close():
        await trio.sleep_forever()


async def test_events_are_subscribed_to_before_the_requests_task_runs(host):
    user = host.new_user(host.context)
    pending = events(user, EventsRequest("t"))
    assert host.terminals.events.has_subscribers
    with trio.move_on_after(0):
        await pending
    assert not host.terminals.events.has_subscribers


async def test_refused_request_for_events_leaves_no_subscription(host):
    user = host.new_user(host.context)
    with user.ongoing_request("t"), pytest.raises(RpcError, match="token 't' is in use"):
        await events(user, EventsRequest("t"))
    assert not host.terminals.events.has_subscribers


async def test_no_window_is_opened_after_the_connection_closed(host, monkeypatch):
    async with user_of(host) as other:
        created = await other.request("terminal/create", {"command": "sleep 60"})
        entry = host.terminals.registry.find(created["terminalId"])
        user = host.new_user(host.context)
        user.close()
        opened = []
        monkeypatch.setattr(host.terminals.windows, "open", lambda *one: opened.append(one))
        params = AttachRequest(entry.id, token="t", cols=33, rows=10)
        with pytest.raises(RpcError, match="connection is closing"):
            await attach(user, entry, params)
        assert opened == []


def sent(user, token):
    """Return the bytes that a window was sent."""
    return b"".join(base64.b64decode(one["params"]["data"]) for one in user.by_token[token])


async def test_read_only_window_survives_a_size_that_cannot_be_shown(agent, user):
    size = {"cols": 40, "rows": 10}
    terminal = await agent.create("while read line; do echo seen $line; done", own=size)
    id_, token = await user.open("terminal/attach", terminalId=terminal, readOnly=True, **size)
    await user.until(lambda: user.by_token[token])
    for cols, rows in ((10_000, 10_000), (30, 10)):
        params = {**agent.of(terminal), "cols": cols, "rows": rows}
        await agent.request("_acpterm/terminal/resize", params)
        with trio.fail_after(DEADLINE_S):
            await wait_all_tasks_blocked(0.1)
    await agent.type(terminal, "it\n")
    await user.until(lambda: b"seen it" in sent(user, token))
    assert not user.has_response(id_)


async def test_window_is_sent_frames_if_the_size_changes_before_the_snapshot(
    host, user, monkeypatch
):
    terminal = await user.create("echo main; sleep 60", cols=80, rows=24)
    await user.until_output(terminal, "main")
    entry = host.terminals.registry.find(terminal)

    async def resized_meanwhile(sender, terminal):
        if terminal.cols == 80:
            host.terminals.windows.resize(entry, 60, 10)
        return await current_screen(sender, terminal)

    monkeypatch.setattr("acpterm.host.user.attach.current_screen", resized_meanwhile)
    size = {"cols": 80, "rows": 24}
    _, token = await user.open("terminal/attach", terminalId=terminal, readOnly=True, **size)
    await user.until(lambda: user.by_token[token])
    update = user.by_token[token][0]["params"]
    assert (update["alternate"], update.get("position")) == (True, None)


@pytest.mark.parametrize("begins", ["before", "within"])
async def test_window_with_frames_is_left_no_text_of_a_killed_full_screen_program(begins):
    """Neither if the ring has lost the switch to the alternate screen, nor if the window has it."""
    async with host_here(raw_bytes=64 * 1024) as host, user_of(host) as user:
        count = 30_000 if begins == "before" else 1000
        program = (
            f"stty -echo; echo main; read x; printf '\\e[?1049hfull'; read x; seq {count}; cat"
        )
        terminal = await user.create(f'bash -c "{program}"', cols=80, rows=24)
        size = {"cols": 60 if begins == "before" else 80, "rows": 24}
        id_, token = await user.open(
            "terminal/attach", terminalId=terminal, readOnly=True, scrollback=True, **size
        )
        await user.until(lambda: b"main" in sent(user, token))
        await user.terminal_request("write", terminal, data="\r")
        await user.until(lambda: b"full" in sent(user, token))
        await user.request("terminal/window", {"token": token, "cols": 60, "rows": 24})
        await user.terminal_request("write", terminal, data="\r")
        await user.until(lambda: str(count).encode() in sent(user, token))
        await user.terminal_request("kill", terminal)
        assert (await user.result(id_))["reason"] == "exited"
        assert f"{count - 2}\r\n{count - 1}\r\n".encode() not in sent(user, token)


async def test_follow_without_stay_sends_output_that_is_not_consumed_yet(tmp_path):
    os.mkfifo(tmp_path / "go")
    async with host_here() as host, user_of(host) as other:
        command = f"read x <{tmp_path}/go; echo last"
        created = await other.request("terminal/create", {"command": command})
        entry = host.terminals.registry.find(created["terminalId"])
        user = host.new_user(host.context)
        # While this blocks, the keeper reads the output, but its consumer cannot run.
        (tmp_path / "go").write_text("\n")
        poll_blocking(lambda: entry.terminal.ring.unread == len(b"last\r\n"))
        params = FollowRequest(entry.id, token="t", stay=False)
        assert (await follow_output(user, entry, params)).position == len(b"last\r\n")


async def test_tool_calls_of_an_agent_do_not_make_the_list_long(agent, user):
    await agent.create("true", args=["x" * 100_000])
    await agent.create("true", args=["y"] * 30_000)
    await agent.create("echo " + "z" * 50_000)
    for info in await user.list():
        assert len(info["command"]) == 4096
        assert info["command"].endswith("…")
    with pytest.raises(RpcError, match="4096 at most"):
        await agent.request("terminal/create", {"sessionId": "s" * 5000, "command": "true"})


async def test_directory_whose_name_is_not_utf_8_is_reported_with_replacements(tmp_path):
    directory = os.fsencode(tmp_path) + b"/odd\xff"
    os.mkdir(directory)
    async with host_here() as host, user_of(host) as user:
        host.context = host.context._replace(cwd=os.fsdecode(directory))
        async with user_of(host) as other:
            created = await other.request("terminal/create", {"command": "true"})
            assert created["cwd"] == f"{tmp_path}/odd\ufffd"
            assert [info["cwd"] for info in await user.list()] == [created["cwd"]]


async def test_input_monitor_publishes_each_change_once(host, user, monkeypatch):
    created = await user.request("terminal/create", {"command": "sleep 60"})
    entry = host.terminals.registry.find(created["terminalId"])
    answers, published = iter([1, 1, 0, 1]), []
    bus = EventBus(AuditTrail(None))
    bus.publish_terminal = lambda event, *_: published.append(event)
    monitor = InputMonitor(host.terminals.registry, bus)
    monkeypatch.setattr(Terminal, "waiting_process", lambda _: next(answers))
    entry.terminal.timeline.last = None
    for _ in range(4):
        monitor.check(entry)
    assert published == ["waiting", "resumed", "waiting"]
    assert entry.waiting.is_waiting is True


async def test_second_prompt_that_follows_at_once_is_an_event(host, user):
    script = "read -p 'one? ' x; read -p 'two? ' x; exec bash --norc -i"
    created = await user.request("terminal/create", {"command": script})
    entry, published = host.terminals.registry.find(created["terminalId"]), []
    bus = EventBus(AuditTrail(None))
    bus.publish_terminal = lambda event, *_: published.append(event)
    monitor = InputMonitor(host.terminals.registry, bus)

    async def settled(program):
        await poll(lambda: input_wait(entry).program == program)
        monitor.check(entry)

    await settled("bash waits for input")
    monitor.check(entry)
    assert published == ["waiting"]
    await user.terminal_request("write", created["terminalId"], data="a\r")
    await poll(lambda: b"two?" in bytes(entry.terminal.ring.read(0, 1000).data))
    await settled("bash waits for input")
    monitor.check(entry)
    assert published == ["waiting", "resumed", "waiting"]
    await user.terminal_request("write", created["terminalId"], data="b\r")
    await settled("bash is at its prompt")
    assert published == ["waiting", "resumed", "waiting", "resumed"]
    assert terminal_info(entry, waiting=input_wait(entry)).waiting_for_input is False
    # The same process asks by `read`.
    await user.terminal_request("write", created["terminalId"], data="read -p 'three? ' x\r")
    await settled("bash waits for input")
    assert terminal_info(entry, waiting=input_wait(entry)).waiting_for_input is True


async def test_program_is_not_held_after_its_reader_disconnected(host):
    async with user_of(host) as other:
        flood = "head -c 3000000 /dev/zero | tr '\\0' x"
        created = await other.request("terminal/create", {"command": flood})
        entry = host.terminals.registry.find(created["terminalId"])
        user = host.new_user(host.context)
        user.close()
        user.hold_output(entry.terminal, 0)
        assert (await other.terminal_request("wait", created["terminalId"]))["exitStatus"][
            "exitCode"
        ] == 0


async def test_waiting_event_comes_after_the_created_event(monkeypatch):
    monkeypatch.setattr(Terminal, "waiting_process", lambda _: os.getpid())
    async with host_here() as host, user_of(host) as user:
        _, token = await user.open("events")
        await poll(lambda: host.terminals.events.has_subscribers)
        await user.request("terminal/create", {"command": "sleep 60"})

        def event_names():
            return [one["params"]["event"] for one in user.by_token[token]]

        await user.until(lambda: "waiting" in event_names())
        assert event_names() == ["created", "waiting"]


FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
ENGLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"


@each_case(
    "name", ["build 2", "e\u0301t\u00e9", "\u65e5\u672c", FAMILY, ENGLAND, PERSIAN, "1\ufe0f\u20e3"]
)
async def test_name_may_be_any_printable_characters(user, name):
    info = await user.request("terminal/create", {"command": "true", "name": name})
    assert info["name"] == name
    assert (await user.terminal_request("get", name))["terminalId"] == info["terminalId"]


@each_case(
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
async def test_name_with_invisible_characters_is_refused(user, name):
    with pytest.raises(RpcError) as caught:
        await user.request("terminal/create", {"command": "true", "name": name})
    assert "a name is not empty, is printable" in caught.value.message
