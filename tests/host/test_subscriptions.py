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
from acpterm.host.agent.session import Session, SessionState
from acpterm.host.entry import AgentInfo
from acpterm.host.state.writer import StateWriter
from acpterm.host.user.connection import UserConnection
from acpterm.host.user.subscribe.encoders import V1MetaEncoder, V2Encoder
from acpterm.host.user.subscribe.subscriber import Subscriber
from acpterm.host.user.subscribe.terminal_cursor import CHUNK_BYTES, TerminalCursor
from acpterm.jsonrpc import RpcError, encode_notification
from tests.support.depth import examples
from tests.support.front_ends import FRONT_ENDS
from tests.support.hosts import agent_at, agent_of, daemon, environment, host_here, poll
from tests.support.person import person_at, person_of
from tests.support.stores import MemoryStore

FORMS = ["meta", "v2"]


def said(call="call-1", says="tool_call_update", session="session-1", terminals=None, **more):
    """Return the params of a `session/update` of a tool call."""
    body = {"sessionUpdate": says, "toolCallId": call, **more}
    if terminals is not None:
        body["content"] = [{"type": "terminal", "terminalId": name} for name in terminals]
    return {"sessionId": session, "update": body}


async def tell(agent, *updates):
    for update in updates:
        await agent.notify("session/update", update)
    # Whatever is asked after is answered after.
    await agent.request("initialize", {"protocolVersion": 1})


async def follow(person, form="meta", session="session-1", **more):
    """Subscribe; return the id of the request, and the token."""
    return await person.open("session/subscribe", sessionId=session, format=form, **more)


def shown(person, token, form="meta", foreign=()):
    """Return what a client shows by now: a model that processes each message once."""
    fronts = person.__dict__.setdefault("fronts", {})
    if token not in fronts:
        fronts[token] = [FRONT_ENDS[form](*foreign), 0]
    front, taken = fronts[token]
    fronts[token][1] = len(person.by_token[token])
    return front.take_all(person.by_token[token][taken:])


def status_of(person, token, form="meta", call="call-1"):
    return shown(person, token, form).calls.get(call, {}).get("status")


def printed(host, terminal) -> bytes:
    return host.state.registry.get(terminal).terminal.ring.read(0).data


# Live


@pytest.mark.parametrize("form", FORMS)
async def test_call_and_its_terminal_are_sent_as_they_come(form):
    async with host_here() as host, agent_of(host) as agent, person_of(host) as person:
        terminal = await agent.create("printf 'é one\\n'; read line; echo $line; exit 3")
        await tell(agent, said(says="tool_call", title="Run", status="pending"))
        _, token = await follow(person, form)
        await person.until(lambda: person.by_token[token])
        await tell(agent, said(terminals=[terminal], status="in_progress"))
        await person.until(lambda: b"one" in _output(person, token, form, terminal))
        await agent.type(terminal, "two\n")
        await agent.wait(terminal)
        await tell(agent, said(status="completed"))
        await person.until(lambda: status_of(person, token, form) == "completed")
        front = shown(person, token, form)
        assert front.terminals[terminal].output == printed(host, terminal)
        assert front.terminals[terminal].exit == (3, None)
        assert front.calls["call-1"]["title"] == "Run"
        # The end comes after all output, and what says that it is completed after that.
        assert front.log[-1] == ("call", "call-1", "completed")
        assert front.log[-2] == ("exit", terminal)
        if form == "v2":
            assert "read line" in front.terminals[terminal].command


def _output(person, token, form, terminal, foreign=()):
    found = shown(person, token, form, foreign).terminals.get(terminal)
    return found.output if found else b""


@pytest.mark.parametrize("form", FORMS)
async def test_each_update_of_a_call_is_sent_to_a_reading_client(form):
    async with host_here() as host, agent_of(host) as agent, person_of(host) as person:
        await tell(agent, said(says="tool_call", title="Run"))
        _, token = await follow(person, form)
        await person.until(lambda: person.by_token[token])
        # At once: nothing is merged.
        await tell(agent, *(said(title=f"title {n}") for n in range(50)))
        await person.until(lambda: len(person.by_token[token]) == 51)
        titles = [m["params"]["update"]["title"] for m in person.by_token[token]]
        assert titles == ["Run", *(f"title {n}" for n in range(50))]


async def test_terminal_in_several_calls_is_sent_once_and_shown_by_each_call():
    async with host_here() as host, agent_of(host) as agent, person_of(host) as person:
        terminal = await agent.create("printf once")
        _, token = await started(agent, person)
        await tell(agent, said("a", terminals=[terminal]), said("b", terminals=[terminal]))
        await agent.wait(terminal)
        await tell(agent, said("b", status="completed"), said("a", status="completed"))
        await person.until(lambda: shown(person, token).calls.get("a", {}).get("status"))
        front = shown(person, token)
        assert front.terminals[terminal].output == b"once"
        for call in "ab":
            assert front.calls[call]["content"] == [{"type": "terminal", "terminalId": terminal}]


def _exit(person, token, terminal, form="meta"):
    found = shown(person, token, form).terminals.get(terminal)
    return found and found.exit


async def started(agent, person, form="meta"):
    """Create a session, and subscribe to it."""
    await tell(agent, said("first", says="tool_call", title="First"))
    id_, token = await follow(person, form)
    await person.until(lambda: person.by_token[token])
    return id_, token


@pytest.mark.parametrize("form", FORMS)
async def test_terminal_of_another_session_is_not_sent(form):
    async with (
        host_here() as host,
        agent_of(host) as agent,
        agent_of(host, "session-2") as other,
        person_of(host) as person,
    ):
        theirs = await other.create("echo secret")
        also = await agent.create("echo secret", sessionId="session-3")
        await other.wait(theirs)
        _, token = await started(agent, person, form)
        await tell(agent, said(terminals=[theirs, also]), said(status="completed"))
        foreign = [theirs, also]
        await person.until(
            lambda: shown(person, token, form, foreign).calls.get("call-1", {}).get("status")
        )
        assert not shown(person, token, form, foreign).terminals
        assert b"secret" not in b"".join(person.lines)


@pytest.mark.parametrize("form", FORMS)
async def test_divided_character_is_sent_whole(form):
    code = r"printf 'a\303'; read line; printf '\251b\360\237'; read line; printf '\230\200\377'"
    async with host_here() as host, agent_of(host) as agent, person_of(host) as person:
        terminal = await agent.create(f"stty -echo; {code}")
        _, token = await started(agent, person, form)
        await tell(agent, said(terminals=[terminal]))
        await person.until(lambda: b"a" in _output(person, token, form, terminal))
        for so_far in (b"b", b""):
            await agent.type(terminal, "\n")
            await person.until(lambda: so_far in _output(person, token, form, terminal))  # noqa: B023
        await agent.wait(terminal)
        await tell(agent, said(status="completed"))
        await person.until(lambda: shown(person, token, form).terminals[terminal].exit)
        output = _output(person, token, form, terminal).replace(b"\r\n", b"")
        bad = "\ufffd".encode() if form == "meta" else b"\xff"
        assert output == "aéb😀".encode() + bad


# Late


SCRIPT = [
    ("create", "t1", "for n in $(seq 200); do echo $n é; done; read line; echo last"),
    said("a", says="tool_call", title="A", status="pending", rawInput={"x": 1}),
    ("tell", "a", {"status": "in_progress"}, ["t1"]),
    ("until", "t1", "200 é"),
    said("b", title="B", locations=[{"path": "/x", "line": 3}], _meta={"k": 1, "m": {"n": 2}}),
    ("create", "t2", "printf two; sleep 60"),
    ("tell", "b", {"kind": "execute", "_meta": {"k": 2}}, ["t2", "t1"]),
    ("until", "t2", "two"),
    ("type", "t1", "x\n"),
    ("wait", "t1"),
    ("tell", "a", {"status": "completed", "rawOutput": [1]}, None),
    ("release", "t1"),
    said("c", terminals=["own"], title="C", _meta={"terminal_info": {"terminal_id": "own"}}),
    said("c", _meta={"terminal_output": {"terminal_id": "own", "data": "shown é"}, "k": 1}),
    ("kill", "t2"),
    ("wait", "t2"),
    said("c", _meta={"terminal_exit": {"terminal_id": "own", "exit_code": 4, "signal": None}}),
    ("tell", "b", {"status": "failed", "title": "B, changed"}, None),
    said("c", status="completed"),
    ("release", "t2"),
]


async def act(agent, names, step):
    match step:
        case ("create", name, command):
            names[name] = await agent.create(command)
        case ("tell", call, fields, shows):
            terminals = None if shows is None else [names[name] for name in shows]
            await tell(agent, said(call, terminals=terminals, **fields))
        case ("until", name, text):
            await agent.until_output(names[name], text)
        case ("type", name, data):
            await agent.type(names[name], data)
        case ("wait" | "kill" | "release" as what, name):
            await getattr(agent, what)(names[name])
        case _:
            await tell(agent, step)


@pytest.mark.parametrize("form", FORMS)
async def test_late_subscriber_gets_the_same_state(form):
    async with host_here() as host, person_of(host) as person:
        followed = []
        async with agent_of(host) as agent:
            names = {}
            for number, step in enumerate(SCRIPT):
                await act(agent, names, step)
                followed.append(await follow(person, form))
                if number % 3 == 0:
                    await trio.sleep(0.03)
            last = await follow(person, form)
        for id_, _ in [*followed, last]:
            assert await person.answer(id_) == {}
        fronts = [shown(person, token, form) for _, token in [*followed, last]]
        for front in fronts:
            assert front.state == fronts[0].state
            for name in ("t1", "t2"):
                assert front.terminals[names[name]].output == printed(host, names[name])
            assert front.terminals["own"].output == "shown é".encode()
            assert front.terminals["own"].exit == (4, None)
            assert list(front.calls) == ["a", "b", "c"]
            status = [front.calls[call]["status"] for call in "abc"]
            assert status == ["completed", "failed", "completed"]
        assert fronts[0].calls["b"]["_meta"] == {"k": 2, "m": {"n": 2}}


@pytest.mark.parametrize("form", FORMS)
async def test_completion_is_sent_to_a_late_subscriber_after_the_output(form):
    async with host_here() as host, agent_of(host) as agent, person_of(host) as person:
        terminal = await agent.create("seq 100000")
        await tell(agent, said(says="tool_call", title="Run", terminals=[terminal]))
        await agent.wait(terminal)
        await tell(agent, said(status="completed"))
        await agent.release(terminal)
        id_, token = await follow(person, form)
        await person.until(lambda: status_of(person, token, form))
        front = shown(person, token, form)
        assert front.log[-2:] == [("exit", terminal), ("call", "call-1", "completed")]
        assert front.terminals[terminal].output == printed(host, terminal)
        await person.cancel(id_)
        with pytest.raises(RpcError) as caught:
            await person.answer(id_)
        assert caught.value.code == -32800


# Property: any agent, any readers. Terminals are the agent's own: so no process is needed.


class Reader:
    """The part of a `UserConnection` that a subscriber uses; it reads when allowed to."""

    class host:  # noqa: N801
        class registry:  # noqa: N801
            @staticmethod
            def get(_):
                return None

    def __init__(self, form):
        self.front = FRONT_ENDS[form]("x", "y", "z")
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
        self.front.take(message)


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
def test_all_subscribers_end_with_the_same_state(form, room, steps):
    trio.run(same_for_all, form, room, steps, clock=trio.testing.MockClock(autojump_threshold=0))


def say(session, step):
    """Apply a step as an agent's update does."""
    match step:
        case ("tell", call, fields):
            shows = fields.get("terminals")
            others = {name: value for name, value in fields.items() if name != "terminals"}
            update = said(call, terminals=shows, **others)["update"]
            session.record_update(call, members(Raw(json.dumps(update).encode())), shows)
        case ("replace", name, text):
            data = base64.b64encode(text.encode()).decode()
            update = {"terminalId": name, "output": {"data": data}}
            session.record_terminal_updates(
                from_v2("terminal_update", members(Raw(json.dumps(update).encode())))
            )


async def same_for_all(form, room, steps):
    session = Session(
        "s", AgentInfo("c1"), SessionState(StateWriter(MemoryStore()), "c1", 0), Creates()
    )
    readers = []

    async def join(nursery):
        reader = Reader(form)
        readers.append(reader)
        made = V1MetaEncoder() if form == "meta" else V2Encoder(None)
        subscriber = Subscriber(reader, session, made, "t", backlog_bytes_max=room)
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


def check(session, readers):
    for reader in readers:
        assert final(reader) == final(readers[0])
    for name, terminal in readers[0].front.terminals.items():
        assert terminal.output == session.agent_terminals.get(name).ring.read(0).data


def final(reader):
    """Return what a client shows in the end of the output that is still retained."""
    calls, terminals = reader.front.state
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
    async with host_here() as host, agent_of(host) as agent, person_of(host) as person:
        terminal = await agent.create("yes | head -c 6000000; read line; echo done")
        _, token = await started(agent, person, form)
        person.pause()
        await tell(agent, said(terminals=[terminal], status="in_progress"))
        (connection,) = [c for c in host._connections if isinstance(c._context, UserConnection)]
        seen = host.state.registry.get(terminal).terminal
        most = 0
        for number in range(2000):
            # Some of it is long.
            await agent.notify("session/update", said(title=f"title {number} {'x' * 500}"))
            most = max(most, connection._queue._size)
        with trio.fail_after(60):
            before = len(looks)
            while seen.ring.end < 9_000_000:
                most = max(most, connection._queue._size)
                await trio.sleep(0.01)
        # Nobody has looked at the terminal for it, so that was not slowed.
        assert len(looks) - before <= 2
        assert most < 64 * 1024 + 6 * CHUNK_BYTES
        assert _held_untold() < 2 * 256 * 1024
        person.resume()
        await agent.type(terminal, "x\n")
        await agent.wait(terminal)
        await tell(agent, said(status="completed"))
        with trio.fail_after(30):
            while shown(person, token, form).calls.get("call-1", {}).get("status") != "completed":
                await trio.sleep(0.05)
        front = shown(person, token, form)
        data = printed(host, terminal)
        output = front.terminals[terminal].output
        # The output sent may begin a little before what is retained now.
        assert data.endswith(output) or output.endswith(data)
        assert output.endswith(b"done\r\n")
        assert front.calls["call-1"]["title"].startswith("title 1999 ")
        assert front.terminals[terminal].exit == (0, None)
        if form == "meta":
            assert front.terminals[terminal].missing > 0


def _held_untold() -> int:
    """Return the bytes of updates that subscribers hold."""
    from acpterm.host.user.subscribe.backlog import UpdateBacklog

    return sum(found._size for found in gc.get_objects() if isinstance(found, UpdateBacklog))


async def test_few_terminals_are_held_for_a_client_that_does_not_read():
    async with (
        host_here(keep_released=1) as host,
        agent_of(host) as agent,
        person_of(host) as person,
    ):
        _, token = await started(agent, person)
        person.pause()
        # Fills what is on its way to it.
        flood = await agent.create("yes | head -c 3000000")
        await tell(agent, said("flood", terminals=[flood]))
        await agent.wait(flood)
        terminals = []
        for number in range(30):
            terminal = await agent.create(f"head -c 100000 /dev/zero | tr '\\0' x; echo {number}")
            terminals.append(terminal)
            await tell(agent, said(f"call {number}", terminals=[terminal]))
            await agent.wait(terminal)
            ended = host.state.registry.get(terminal).terminal
            await agent.release(terminal)
            await ended.wait_closed()
        from acpterm.host.user.subscribe.sources import LocalSource

        gc.collect()
        held = [found for found in gc.get_objects() if isinstance(found, LocalSource)]
        assert len(held) <= 2 + 16 + 1
        person.resume()
        await tell(agent, *(said(f"call {number}", status="completed") for number in range(30)))
        await person.until(lambda: shown(person, token).calls.get("call 29", {}).get("status"), 20)
        front = shown(person, token)
        for number, terminal in enumerate(terminals):
            found = front.terminals[terminal]
            assert found.exit == (0, None)
            assert found.missing == 100_000 + len(f"{number}\r\n") or found.output.endswith(
                b"x%d\r\n" % number
            )
        assert front.terminals[terminals[-1]].output.endswith(b"x29\r\n")


# Ends


@pytest.mark.parametrize("form", FORMS)
async def test_subscription_ends_when_the_agent_has_gone_and_all_is_sent(form):
    async with host_here() as host, person_of(host) as person:
        async with agent_of(host) as agent:
            terminal = await agent.create("trap 'sleep 0.2; echo bye; exit 5' TERM; echo up; cat")
            id_, token = await started(agent, person, form)
            await tell(agent, said(terminals=[terminal]))
            await person.until(lambda: b"up" in _output(person, token, form, terminal))
        assert not person.answered(id_)
        assert await person.answer(id_) == {}
        found = shown(person, token, form).terminals[terminal]
        assert found.output.endswith(b"bye\r\n")
        assert found.exit == (5, None)


@pytest.mark.parametrize("command", ["yes", "echo calm; sleep 60"])
async def test_promoted_terminal_is_still_sent_and_outlives_the_session(command):
    async with host_here() as host, person_of(host) as person:
        async with agent_of(host) as agent:
            terminal = await agent.create(command)
            id_, token = await started(agent, person)
            await tell(agent, said(terminals=[terminal]))
            await person.until(lambda: _output(person, token, "meta", terminal))
            await person.about("promote", terminal)
            await agent.release(terminal)
            before = len(person.by_token[token])
            await tell(agent, said("another", terminals=[terminal]))
            await person.until(lambda: len(person.by_token[token]) > before)
        assert await person.answer(id_) == {}
        assert shown(person, token).terminals[terminal].exit is None
        await person.about("kill", terminal)


@pytest.mark.parametrize("form", FORMS)
async def test_removed_terminal_is_sent_to_its_end(form):
    async with host_here() as host, agent_of(host) as agent, person_of(host) as person:
        terminal = await agent.create("echo up; sleep 60")
        _, token = await started(agent, person, form)
        await tell(agent, said(terminals=[terminal]))
        await person.until(lambda: b"up" in _output(person, token, form, terminal))
        await person.about("release", terminal)
        assert host.state.registry.get(terminal) is None
        await person.until(lambda: _exit(person, token, terminal, form))
        await tell(agent, said("late", terminals=[terminal], title="still told"))
        await person.until(lambda: "late" in shown(person, token, form).calls)


async def test_output_of_background_processes_is_sent_after_the_exit():
    async with host_here() as host, agent_of(host) as agent, person_of(host) as person:
        command = "(trap '' HUP; sleep 0.5; echo after) & sleep 0.1; echo before"
        terminal = await agent.create(command)
        _, token = await started(agent, person)
        await tell(agent, said(terminals=[terminal]))
        await person.until(lambda: _exit(person, token, terminal))
        with trio.move_on_after(2):
            await person.until(lambda: b"after" in _output(person, token, "meta", terminal))
        # It may have been hung up: then nothing came.
        assert _output(person, token, "meta", terminal) == printed(host, terminal)


async def test_disconnected_client_leaves_nothing():
    async with host_here() as host, agent_of(host) as agent:
        terminal = await agent.create("yes")
        await tell(agent, said(terminals=[terminal]))
        async with person_of(host) as person:
            _, token = await follow(person)
            await person.until(lambda: person.by_token[token])
        (caller,) = host._resumption.connections
        await poll(lambda: not caller.sessions["session-1"]._observers)


async def test_token_can_be_used_again_after_a_cancel():
    async with host_here() as host, agent_of(host) as agent, person_of(host) as person:
        await tell(agent, said(says="tool_call", title="Run"))
        for _ in range(2):
            id_, _ = await follow(person, token="same")
            before = len(person.by_token["same"])
            await person.until(lambda: len(person.by_token["same"]) > before - 1)  # noqa: B023
            twice, _ = await follow(person, token="same")
            with pytest.raises(RpcError, match="'same' is in use"):
                await person.answer(twice)
            await person.cancel(id_)
            with pytest.raises(RpcError, match="cancelled"):
                await person.answer(id_)


# Which session


async def test_session_is_found_or_the_error_says_what_there_is():
    async with host_here() as host, person_of(host) as person:
        with pytest.raises(RpcError, match="there is none yet") as caught:
            await person.answer((await follow(person))[0])
        assert caught.value.code == -32002
        async with agent_of(host) as one, agent_of(host) as two:
            for agent in (one, two):
                await tell(agent, said(says="tool_call", title="Run"))
            with pytest.raises(RpcError, match=r"one of c\d, c\d") as caught:
                await person.answer((await follow(person))[0])
            assert caught.value.code == -32602
            with pytest.raises(RpcError, match=r"no session 'other'.*'session-1' of c") as caught:
                await person.answer((await follow(person, session="other"))[0])
            assert caught.value.code == -32002
            with pytest.raises(RpcError, match="of connection 'c9'"):
                await person.answer((await follow(person, connection="c9"))[0])
            (name, _) = {caller.agent.connection_id for caller in host._resumption.connections}
            _, token = await follow(person, connection=name)
            await person.until(lambda: person.by_token[token])


async def test_subscription_works_over_a_daemons_socket(tmp_path):
    users = str(tmp_path / "user.sock")
    async with (
        daemon(tmp_path, env=environment(ACPTERM_USER_SOCKET=users)) as (_, path),
        agent_at(path) as agent,
        person_at(users) as person,
    ):
        terminal = await agent.create("echo hello")
        await tell(agent, said(terminals=[terminal]))
        _, token = await follow(person, "v2")
        await person.until(lambda: _output(person, token, "v2", terminal) == b"hello\r\n")
