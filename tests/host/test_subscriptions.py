"""A subscriber gets all of a session, in order, however late it subscribes or reads."""

import base64
import gc
import json

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from acpterm.acp.raw_json import members
from acpterm.acp.terminal_updates import from_v2
from acpterm.host.agent.creates import Creates
from acpterm.host.entry import AgentInfo
from acpterm.host.sessions.session import Session
from acpterm.host.state.writer import StateWriter
from acpterm.host.user.connection import UserConnection
from acpterm.host.user.subscribe.encoders import V1MetaEncoder, V2Encoder
from acpterm.host.user.subscribe.subscriber import (
    CHUNK_BYTES,
    Subscriber,
    TerminalCursor,
    Tombstone,
)
from acpterm.jsonrpc import RpcError, encode_notification
from tests.support.agent import agent_at, agent_of
from tests.support.client_models import CLIENT_MODELS
from tests.support.daemon import daemon
from tests.support.depth import examples
from tests.support.hosts import host_here
from tests.support.polling import poll
from tests.support.processes import environment
from tests.support.stores import MemoryStore
from tests.support.user import user_at, user_of

FORMS = ["meta", "v2"]


def tool_call(
    call="call-1", update="tool_call_update", session="session-1", terminals=None, **more
):
    """Return the params of a `session/update` of a tool call."""
    body = {"sessionUpdate": update, "toolCallId": call, **more}
    if terminals is not None:
        body["content"] = [{"type": "terminal", "terminalId": name} for name in terminals]
    return {"sessionId": session, "update": body}


async def send_updates(agent, *updates):
    for update in updates:
        await agent.notify("session/update", update)
    # The host responds once it has processed the updates.
    await agent.request("initialize", {"protocolVersion": 1})


async def follow(user, form="meta", session="session-1", **more):
    """Subscribe; return the id of the request, and the token."""
    return await user.open("session/subscribe", sessionId=session, format=form, **more)


def displayed(user, token, form="meta", foreign=()):
    """Return the model of a client after all notifications that `user` has received so far.

    `token` is that of the subscription. Each notification is processed only once.
    """
    models = user.__dict__.setdefault("models", {})
    if token not in models:
        models[token] = [CLIENT_MODELS[form](*foreign), 0]
    model, processed = models[token]
    models[token][1] = len(user.by_token[token])
    return model.process_all(user.by_token[token][processed:])


def status_of(user, token, form="meta", call="call-1"):
    return displayed(user, token, form).calls.get(call, {}).get("status")


def printed(host, terminal) -> bytes:
    return host.terminals.registry.get(terminal).terminal.ring.read(0).data


# Live


@pytest.mark.costly
@pytest.mark.parametrize("form", FORMS)
async def test_call_and_its_terminal_are_sent_as_they_come(host, agent, user, form):
    terminal = await agent.create("printf 'é one\\n'; read line; echo $line; exit 3")
    await send_updates(agent, tool_call(update="tool_call", title="Run", status="pending"))
    _, token = await follow(user, form)
    await user.until(lambda: user.by_token[token])
    await send_updates(agent, tool_call(terminals=[terminal], status="in_progress"))
    await user.until(lambda: b"one" in _output(user, token, form, terminal))
    await agent.type(terminal, "two\n")
    await agent.wait(terminal)
    await send_updates(agent, tool_call(status="completed"))
    await user.until(lambda: status_of(user, token, form) == "completed")
    model = displayed(user, token, form)
    assert model.terminals[terminal].output == printed(host, terminal)
    assert model.terminals[terminal].exit == (3, None)
    assert model.calls["call-1"]["title"] == "Run"
    # The end comes after all output, and what says that it is completed after that.
    assert model.log[-1] == ("call", "call-1", "completed")
    assert model.log[-2] == ("exit", terminal)
    if form == "v2":
        assert "read line" in model.terminals[terminal].command


def _output(user, token, form, terminal, foreign=()):
    seen = displayed(user, token, form, foreign).terminals.get(terminal)
    return seen.output if seen else b""


@pytest.mark.costly
@pytest.mark.parametrize("form", FORMS)
async def test_each_update_of_a_call_is_sent_to_a_reading_client(agent, user, form):
    await send_updates(agent, tool_call(update="tool_call", title="Run"))
    _, token = await follow(user, form)
    await user.until(lambda: user.by_token[token])
    # At once: nothing is merged.
    await send_updates(agent, *(tool_call(title=f"title {n}") for n in range(50)))
    await user.until(lambda: len(user.by_token[token]) == 51)
    titles = [m["params"]["update"]["title"] for m in user.by_token[token]]
    assert titles == ["Run", *(f"title {n}" for n in range(50))]


async def test_terminal_in_several_calls_is_sent_once_and_shown_by_each_call(agent, user):
    terminal = await agent.create("printf once")
    _, token = await subscribed(agent, user)
    await send_updates(
        agent, tool_call("a", terminals=[terminal]), tool_call("b", terminals=[terminal])
    )
    await agent.wait(terminal)
    await send_updates(
        agent, tool_call("b", status="completed"), tool_call("a", status="completed")
    )
    await user.until(lambda: displayed(user, token).calls.get("a", {}).get("status"))
    model = displayed(user, token)
    assert model.terminals[terminal].output == b"once"
    for call in "ab":
        assert model.calls[call]["content"] == [{"type": "terminal", "terminalId": terminal}]


def _exit(user, token, terminal, form="meta"):
    seen = displayed(user, token, form).terminals.get(terminal)
    return seen and seen.exit


async def subscribed(agent, user, form="meta"):
    """Create a session, and subscribe to it; return the id of the request, and the token."""
    await send_updates(agent, tool_call("first", update="tool_call", title="First"))
    id_, token = await follow(user, form)
    await user.until(lambda: user.by_token[token])
    return id_, token


@pytest.mark.costly
@pytest.mark.parametrize("form", FORMS)
async def test_terminal_of_another_session_is_not_sent(host, agent, form):
    async with agent_of(host, "session-2") as other, user_of(host) as user:
        other_terminal = await other.create("echo secret")
        also = await agent.create("echo secret", sessionId="session-3")
        await other.wait(other_terminal)
        _, token = await subscribed(agent, user, form)
        await send_updates(
            agent, tool_call(terminals=[other_terminal, also]), tool_call(status="completed")
        )
        foreign = [other_terminal, also]
        await user.until(
            lambda: displayed(user, token, form, foreign).calls.get("call-1", {}).get("status")
        )
        assert not displayed(user, token, form, foreign).terminals
        assert "secret" not in json.dumps(user.messages)


@pytest.mark.costly
@pytest.mark.parametrize("form", FORMS)
async def test_divided_character_is_sent_whole(form):
    code = r"printf 'a\303'; read line; printf '\251b\360\237'; read line; printf '\230\200\377'"
    async with host_here() as host, agent_of(host) as agent, user_of(host) as user:
        terminal = await agent.create(f"stty -echo; {code}")
        _, token = await subscribed(agent, user, form)
        await send_updates(agent, tool_call(terminals=[terminal]))
        await user.until(lambda: b"a" in _output(user, token, form, terminal))
        for so_far in (b"b", b""):
            await agent.type(terminal, "\n")
            await user.until(lambda: so_far in _output(user, token, form, terminal))  # noqa: B023
        await agent.wait(terminal)
        await send_updates(agent, tool_call(status="completed"))
        await user.until(lambda: displayed(user, token, form).terminals[terminal].exit)
        output = _output(user, token, form, terminal).replace(b"\r\n", b"")
        bad = "\ufffd".encode() if form == "meta" else b"\xff"
        assert output == "aéb😀".encode() + bad


# Late


SCRIPT = [
    ("create", "t1", "for n in $(seq 200); do echo $n é; done; read line; echo last"),
    tool_call("a", update="tool_call", title="A", status="pending", rawInput={"x": 1}),
    ("tell", "a", {"status": "in_progress"}, ["t1"]),
    ("until", "t1", "200 é"),
    tool_call("b", title="B", locations=[{"path": "/x", "line": 3}], _meta={"k": 1, "m": {"n": 2}}),
    ("create", "t2", "printf two; sleep 60"),
    ("tell", "b", {"kind": "execute", "_meta": {"k": 2}}, ["t2", "t1"]),
    ("until", "t2", "two"),
    ("type", "t1", "x\n"),
    ("wait", "t1"),
    ("tell", "a", {"status": "completed", "rawOutput": [1]}, None),
    ("release", "t1"),
    tool_call("c", terminals=["own"], title="C", _meta={"terminal_info": {"terminal_id": "own"}}),
    tool_call("c", _meta={"terminal_output": {"terminal_id": "own", "data": "shown é"}, "k": 1}),
    ("kill", "t2"),
    ("wait", "t2"),
    tool_call("c", _meta={"terminal_exit": {"terminal_id": "own", "exit_code": 4, "signal": None}}),
    ("tell", "b", {"status": "failed", "title": "B, changed"}, None),
    tool_call("c", status="completed"),
    ("release", "t2"),
]


async def act(agent, names, step):
    match step:
        case ("create", name, command):
            names[name] = await agent.create(command)
        case ("tell", call, fields, shows):
            terminals = None if shows is None else [names[name] for name in shows]
            await send_updates(agent, tool_call(call, terminals=terminals, **fields))
        case ("until", name, text):
            await agent.until_output(names[name], text)
        case ("type", name, data):
            await agent.type(names[name], data)
        case ("wait" | "kill" | "release" as what, name):
            await getattr(agent, what)(names[name])
        case _:
            await send_updates(agent, step)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.long
async def test_late_subscriber_gets_the_same_state(host, user, form):
    followed = []
    async with agent_of(host) as agent:
        names = {}
        for number, step in enumerate(SCRIPT):
            await act(agent, names, step)
            followed.append(await follow(user, form))
            if number % 3 == 0:
                await trio.sleep(0.03)
        last = await follow(user, form)
    for id_, _ in [*followed, last]:
        assert await user.result(id_) == {}
    models = [displayed(user, token, form) for _, token in [*followed, last]]
    for model in models:
        assert model.state == models[0].state
        for name in ("t1", "t2"):
            assert model.terminals[names[name]].output == printed(host, names[name])
        assert model.terminals["own"].output == "shown é".encode()
        assert model.terminals["own"].exit == (4, None)
        assert list(model.calls) == ["a", "b", "c"]
        status = [model.calls[call]["status"] for call in "abc"]
        assert status == ["completed", "failed", "completed"]
    assert models[0].calls["b"]["_meta"] == {"k": 2, "m": {"n": 2}}


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
async def test_completion_is_sent_to_a_late_subscriber_after_the_output(host, agent, user, form):
    terminal = await agent.create("seq 100000")
    await send_updates(agent, tool_call(update="tool_call", title="Run", terminals=[terminal]))
    await agent.wait(terminal)
    await send_updates(agent, tool_call(status="completed"))
    await agent.release(terminal)
    id_, token = await follow(user, form)
    await user.until(lambda: status_of(user, token, form))
    model = displayed(user, token, form)
    assert model.log[-2:] == [("exit", terminal), ("call", "call-1", "completed")]
    assert model.terminals[terminal].output == printed(host, terminal)
    await user.cancel(id_)
    with pytest.raises(RpcError) as caught:
        await user.result(id_)
    assert caught.value.code == -32800


# Property: any agent, any readers. Terminals are the agent's own: so no process is needed.


class Reader:
    """The part of a `UserConnection` that a subscriber uses; it reads when allowed to."""

    class registry:  # noqa: N801
        @staticmethod
        def get(_):
            return None

    def __init__(self, form):
        self.model = CLIENT_MODELS[form]("x", "y", "z")
        self.open = trio.Event()
        self.open.set()
        # What is sent arrives in this very object.
        self.sender = self

    def stop(self):
        if self.open.is_set():
            self.open = trio.Event()

    def go(self):
        self.open.set()

    async def drain(self):
        await trio.lowlevel.checkpoint()
        while not self.open.is_set():
            await self.open.wait()

    def notify(self, method, params):
        message = json.loads(encode_notification(method, params))
        self.model.process(message)


CALLS = st.sampled_from(["a", "b"])
NAMES = st.sampled_from(["x", "y", "z"])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "title": st.sampled_from(["one", "two"]),
        "status": st.sampled_from(["pending", "in_progress", "completed", "failed"]),
        "kind": st.sampled_from(["read", "execute"]),
        "rawInput": st.sampled_from([1, [2], {"a": None}]),
        "terminals": st.lists(NAMES, max_size=3),
        "_meta": st.fixed_dictionaries(
            {},
            optional={
                "terminal_info": NAMES.map(lambda n: {"terminal_id": n, "cwd": "/p"}),
                "terminal_output": st.tuples(NAMES, st.text("aé😀\n", min_size=1, max_size=5)).map(
                    lambda of: {"terminal_id": of[0], "data": of[1]}
                ),
                "terminal_exit": st.tuples(NAMES, st.integers(0, 3)).map(
                    lambda of: {"terminal_id": of[0], "exit_code": of[1], "signal": None}
                ),
                "other": st.integers(0, 3),
            },
        ),
    },
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), CALLS, FIELDS),
        st.tuples(st.just("join")),
        st.tuples(st.just("stop"), st.integers(0, 5)),
        st.tuples(st.just("go"), st.integers(0, 5)),
        st.tuples(st.just("turns"), st.integers(1, 8)),
        st.tuples(st.just("replace"), NAMES, st.text("ab", max_size=3)),
    ),
    max_size=30,
)


# A call is sent as it is by now, with another terminal than in the queued update.
SHOWN_BEHIND = [
    ("tell", "a", {"terminals": ["x"]}),
    ("turns", 8),
    ("tell", "a", {"terminals": ["z"], "_meta": {"terminal_info": {"terminal_id": "z"}}}),
    ("tell", "a", {"terminals": ["y"], "_meta": {"terminal_info": {"terminal_id": "y"}}}),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("room", [0, 256 * 1024], ids=["merged", "as it came"])
@settings(max_examples=examples(50), deadline=None)
@given(steps=STEPS)
@example(steps=SHOWN_BEHIND)
@pytest.mark.long
def test_all_subscribers_end_with_the_same_state(form, room, steps):
    trio.run(same_for_all, form, room, steps, clock=trio.testing.MockClock(autojump_threshold=0))


def say(session, step):
    """Apply a step as an agent's update does."""
    match step:
        case ("tell", call, fields):
            shows = fields.get("terminals")
            others = {name: value for name, value in fields.items() if name != "terminals"}
            update = tool_call(call, terminals=shows, **others)["update"]
            session.record_update(call, members(Raw(json.dumps(update).encode())), shows)
        case ("replace", name, text):
            data = base64.b64encode(text.encode()).decode()
            update = {"terminalId": name, "output": {"data": data}}
            session.record_terminal_updates(
                from_v2("terminal_update", members(Raw(json.dumps(update).encode())))
            )


async def same_for_all(form, room, steps):
    session = Session("s", AgentInfo("c1"), 0, StateWriter(MemoryStore()), Creates().confirm)
    readers = []

    async def join(nursery):
        reader = Reader(form)
        readers.append(reader)
        encoder = V1MetaEncoder() if form == "meta" else V2Encoder(None)
        subscriber = Subscriber(reader, session, encoder, "t", backlog_bytes_max=room)
        nursery.start_soon(subscriber.run)
        await trio.lowlevel.checkpoint()

    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            await join(nursery)
            for step in [*steps, ("join",)]:
                match step:
                    case ("tell" | "replace", *_):
                        say(session, step)
                    case ("join",):
                        await join(nursery)
                    case ("stop" | "go" as what, number):
                        getattr(readers[number % len(readers)], what)()
                    case ("turns", number):
                        for _ in range(number):
                            await trio.lowlevel.checkpoint()
            for reader in readers:
                reader.go()
            session.closed.set()
    check(session, readers)


async def test_output_of_a_terminal_that_was_forgotten_and_described_again_is_sent(autojump_clock):
    def describe(name):
        info, output = {"terminal_id": name, "cwd": "/p"}, {"terminal_id": name, "data": "old"}
        meta = {"terminal_info": info, "terminal_output": output}
        say(session, ("tell", f"call {name}", {"terminals": [name], "_meta": meta}))

    names = [f"t{number}" for number in range(20)]
    session = Session("s", AgentInfo("c1"), 0, StateWriter(MemoryStore()), Creates().confirm)
    reader = Reader("meta")
    subscriber = Subscriber(reader, session, V1MetaEncoder(), "t")
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(subscriber.run)
            await trio.testing.wait_all_tasks_blocked()
            describe(names[0])
            await trio.sleep(1)
            assert reader.model.terminals[names[0]].output == b"old"
            reader.stop()
            session.agent_terminals.forget()
            for name in names[1:]:
                describe(name)
                session.agent_terminals.forget()
            assert isinstance(subscriber._cursors[names[0]].source, Tombstone)
            output = {"terminal_output": {"terminal_id": names[0], "data": "new"}}
            say(session, ("tell", f"call {names[0]}", {"_meta": output}))
            reader.go()
            await trio.sleep(1)
            assert reader.model.terminals[names[0]].output.endswith(b"new")
            session.closed.set()


def check(session, readers):
    for reader in readers:
        assert final(reader) == final(readers[0])
    for name, terminal in readers[0].model.terminals.items():
        assert terminal.output == session.agent_terminals.get(name).ring.read(0).data


def final(reader):
    """Return what a client displays at the end: the tool calls, and the terminals in them by id.

    For each terminal, this is its output after the last lost bytes, and its exit.
    """
    calls, terminals = reader.model.state
    embedded = {
        item["terminalId"]
        for call in calls.values()
        for item in call.get("content", ())
        if item["type"] == "terminal"
    }
    return calls, {name: seen[:2] for name, seen in terminals.items() if name in embedded}


# Slow


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
async def test_client_that_does_not_read_costs_nothing_and_gets_what_is_left(form, monkeypatch):
    looks = []
    step = TerminalCursor.step
    monkeypatch.setattr(
        TerminalCursor, "step", lambda self, form: looks.append(1) or step(self, form)
    )
    async with host_here() as host, agent_of(host) as agent, user_of(host) as user:
        terminal = await agent.create("yes | head -c 6000000; read line; echo done")
        _, token = await subscribed(agent, user, form)
        user.pause()
        await send_updates(agent, tool_call(terminals=[terminal], status="in_progress"))
        (connection,) = [c for c in host._connections if isinstance(c._context, UserConnection)]
        seen = host.terminals.registry.get(terminal).terminal
        most = 0
        for number in range(2000):
            # Some of it is long.
            await agent.notify("session/update", tool_call(title=f"title {number} {'x' * 500}"))
            most = max(most, connection._queue._size)
        with trio.fail_after(60):
            before = len(looks)
            while seen.ring.end < 9_000_000:
                most = max(most, connection._queue._size)
                await trio.sleep(0.01)
        # No subscriber has read the terminal, so its program was not slowed.
        assert len(looks) - before <= 2
        assert most < 64 * 1024 + 6 * CHUNK_BYTES
        assert _held_bytes() < 2 * 256 * 1024
        user.resume()
        await agent.type(terminal, "x\n")
        await agent.wait(terminal)
        await send_updates(agent, tool_call(status="completed"))
        with trio.fail_after(30):
            while displayed(user, token, form).calls.get("call-1", {}).get("status") != "completed":
                await trio.sleep(0.05)
        model = displayed(user, token, form)
        data = printed(host, terminal)
        output = model.terminals[terminal].output
        # The output sent may begin a little before what is retained now.
        assert data.endswith(output) or output.endswith(data)
        assert output.endswith(b"done\r\n")
        assert model.calls["call-1"]["title"].startswith("title 1999 ")
        assert model.terminals[terminal].exit == (0, None)
        if form == "meta":
            assert model.terminals[terminal].missing > 0


def _held_bytes() -> int:
    """Return the bytes of updates that subscribers hold."""
    from acpterm.host.user.subscribe.subscriber import UpdateBacklog

    return sum(one._size for one in gc.get_objects() if isinstance(one, UpdateBacklog))


@pytest.mark.long
async def test_few_terminals_are_held_for_a_client_that_does_not_read():
    async with (
        host_here(keep_released=1) as host,
        agent_of(host) as agent,
        user_of(host) as user,
    ):
        _, token = await subscribed(agent, user)
        user.pause()
        # Fills what is on its way to it.
        flood = await agent.create("yes | head -c 3000000")
        await send_updates(agent, tool_call("flood", terminals=[flood]))
        await agent.wait(flood)
        terminals = []
        for number in range(30):
            terminal = await agent.create(f"head -c 100000 /dev/zero | tr '\\0' x; echo {number}")
            terminals.append(terminal)
            await send_updates(agent, tool_call(f"call {number}", terminals=[terminal]))
            await agent.wait(terminal)
            ended = host.terminals.registry.get(terminal).terminal
            await agent.release(terminal)
            await ended.wait_closed()
        from acpterm.host.user.subscribe.subscriber import LocalSource

        gc.collect()
        held = [one for one in gc.get_objects() if isinstance(one, LocalSource)]
        assert len(held) <= 2 + 16 + 1
        user.resume()
        await send_updates(
            agent, *(tool_call(f"call {number}", status="completed") for number in range(30))
        )
        await user.until(lambda: displayed(user, token).calls.get("call 29", {}).get("status"))
        model = displayed(user, token)
        for number, terminal in enumerate(terminals):
            seen = model.terminals[terminal]
            assert seen.exit == (0, None)
            assert seen.missing == 100_000 + len(f"{number}\r\n") or seen.output.endswith(
                b"x%d\r\n" % number
            )
        assert model.terminals[terminals[-1]].output.endswith(b"x29\r\n")


# Ends


@pytest.mark.costly
@pytest.mark.parametrize("form", FORMS)
async def test_subscription_ends_when_the_agent_has_gone_and_all_is_sent(host, user, form):
    async with agent_of(host) as agent:
        terminal = await agent.create("trap 'echo bye; exit 5' TERM; echo up; cat")
        id_, token = await subscribed(agent, user, form)
        await send_updates(agent, tool_call(terminals=[terminal]))
        await user.until(lambda: b"up" in _output(user, token, form, terminal))
    assert not user.has_response(id_)
    assert await user.result(id_) == {}
    seen = displayed(user, token, form).terminals[terminal]
    assert seen.output.endswith(b"bye\r\n")
    assert seen.exit == (5, None)


@pytest.mark.parametrize("command", ["yes", "echo calm; sleep 60"])
@pytest.mark.long
async def test_promoted_terminal_is_still_sent_and_outlives_the_session(host, user, command):
    async with agent_of(host) as agent:
        terminal = await agent.create(command)
        id_, token = await subscribed(agent, user)
        await send_updates(agent, tool_call(terminals=[terminal]))
        await user.until(lambda: _output(user, token, "meta", terminal))
        await user.terminal_request("promote", terminal)
        await agent.release(terminal)
        before = len(user.by_token[token])
        await send_updates(agent, tool_call("another", terminals=[terminal]))
        await user.until(lambda: len(user.by_token[token]) > before)
    assert await user.result(id_) == {}
    assert displayed(user, token).terminals[terminal].exit is None
    await user.terminal_request("kill", terminal)


@pytest.mark.costly
@pytest.mark.parametrize("form", FORMS)
async def test_removed_terminal_is_sent_to_its_end(host, agent, user, form):
    terminal = await agent.create("echo up; sleep 60")
    _, token = await subscribed(agent, user, form)
    await send_updates(agent, tool_call(terminals=[terminal]))
    await user.until(lambda: b"up" in _output(user, token, form, terminal))
    await user.terminal_request("release", terminal)
    assert host.terminals.registry.get(terminal) is None
    await user.until(lambda: _exit(user, token, terminal, form))
    await send_updates(agent, tool_call("late", terminals=[terminal], title="still sent"))
    await user.until(lambda: "late" in displayed(user, token, form).calls)


@pytest.mark.long
async def test_output_of_background_processes_is_sent_after_the_exit(host, agent, user):
    command = "(trap '' HUP; sleep 0.5; echo after) & sleep 0.1; echo before"
    terminal = await agent.create(command)
    _, token = await subscribed(agent, user)
    await send_updates(agent, tool_call(terminals=[terminal]))
    await user.until(lambda: _exit(user, token, terminal))
    with trio.move_on_after(2):
        await user.until(lambda: b"after" in _output(user, token, "meta", terminal))
    # It may have been hung up: then nothing came.
    await user.until(lambda: _output(user, token, "meta", terminal) == printed(host, terminal))


async def test_disconnected_client_leaves_nothing(host, agent):
    terminal = await agent.create("yes")
    await send_updates(agent, tool_call(terminals=[terminal]))
    async with user_of(host) as user:
        _, token = await follow(user)
        await user.until(lambda: user.by_token[token])
    (caller,) = host.resumption.connections
    await poll(lambda: not caller.sessions["session-1"]._observers)


async def test_token_can_be_used_again_after_a_cancel(agent, user):
    await send_updates(agent, tool_call(update="tool_call", title="Run"))
    for _ in range(2):
        id_, _ = await follow(user, token="same")
        before = len(user.by_token["same"])
        await user.until(lambda: len(user.by_token["same"]) > before - 1)  # noqa: B023
        twice, _ = await follow(user, token="same")
        with pytest.raises(RpcError, match="'same' is in use"):
            await user.result(twice)
        await user.cancel(id_)
        with pytest.raises(RpcError, match="cancelled"):
            await user.result(id_)


# Which session


async def test_session_is_found_or_the_error_says_what_there_is(host, user):
    with pytest.raises(RpcError, match="there is none yet") as caught:
        await user.result((await follow(user))[0])
    assert caught.value.code == -32002
    async with agent_of(host) as one, agent_of(host) as two:
        for agent in (one, two):
            await send_updates(agent, tool_call(update="tool_call", title="Run"))
        with pytest.raises(RpcError, match=r"one of c\d, c\d") as caught:
            await user.result((await follow(user))[0])
        assert caught.value.code == -32602
        with pytest.raises(RpcError, match=r"no session 'other'.*'session-1' of c") as caught:
            await user.result((await follow(user, session="other"))[0])
        assert caught.value.code == -32002
        with pytest.raises(RpcError, match="of connection 'c9'"):
            await user.result((await follow(user, connection="c9"))[0])
        (name, _) = {caller.agent.connection_id for caller in host.resumption.connections}
        _, token = await follow(user, connection=name)
        await user.until(lambda: user.by_token[token])


async def test_subscription_works_over_a_daemons_socket(tmp_path):
    users = str(tmp_path / "user.sock")
    async with (
        daemon(tmp_path, env=environment(ACPTERM_USER_SOCKET=users)) as (_, path),
        agent_at(path) as agent,
        user_at(users) as user,
    ):
        terminal = await agent.create("echo hello")
        await send_updates(agent, tool_call(terminals=[terminal]))
        _, token = await follow(user, "v2")
        await user.until(lambda: _output(user, token, "v2", terminal) == b"hello\r\n")
