"""Requests on a connection: their order, size and number, and invalid messages."""

import json
import tracemalloc
from contextlib import suppress

import pytest
import trio

from acpterm.host.server import connection
from acpterm.host.server.connection import PENDING_MAX
from acpterm.jsonrpc import RpcError
from tests.support.agent import Agent, agent_of
from tests.support.cases import each_case
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_here, host_here
from tests.support.keepers import SlowKeeper
from tests.support.polling import poll


async def refusal(agent: Agent, line: bytes) -> dict:
    """Send a line that is not a request; return the error response, which has a null id."""
    before = len(agent.messages)
    await agent.send(line + b"\n")
    await poll(lambda: len(agent.messages) > before)
    return agent.messages[before]


async def is_served(agent: Agent) -> bool:
    """Check that a valid request gets its response."""
    with trio.fail_after(DEADLINE_S):
        return (await agent.run("echo served"))[0] == "served\n"


# Versions


async def test_version_below_the_first_is_refused_and_a_later_one_gets_ours(agent):
    id_ = await agent.start("initialize", {"protocolVersion": 0})
    error = (await agent.until(lambda: agent.responses.get(id_)))["error"]
    assert error["code"] == -32022
    assert error["data"] == {"requested": 0, "supported": [1]}
    assert (await agent.request("initialize", {"protocolVersion": 3}))["protocolVersion"] == 1


# Concurrent requests


async def test_other_requests_are_answered_while_a_wait_is_pending(agent):
    terminal = await agent.create("read line; echo got $line")
    wait = await agent.start("terminal/wait_for_exit", agent.of(terminal))
    assert (await agent.run("echo other"))[0] == "other\n"
    assert "exitStatus" not in await agent.output(terminal)
    await agent.request("initialize", {"protocolVersion": 1})
    assert not agent.has_response(wait)
    await agent.type(terminal, "it\n")
    assert (await agent.result(wait))["exitCode"] == 0


@pytest.mark.long
async def test_200_requests_in_one_write_are_answered(agent):
    terminal = await agent.create("sleep 60")
    sent = []
    for number in range(40):
        sent += [
            agent.prepare(
                "terminal/create",
                {"sessionId": agent.session, "command": "echo", "args": [str(number)]},
            ),
            agent.prepare("terminal/output", agent.of(terminal)),
            agent.prepare("terminal/wait_for_exit", agent.of(terminal)),
            agent.prepare("_acpterm/terminal/read", agent.of(terminal, waitMs=60_000)),
            agent.prepare("terminal/output", agent.of("term_that_never_was")),
        ]
    assert len(sent) == 200
    await agent.send(b"".join(line for _, line in sent))
    for number in range(40):
        created, output, wait, read, missing = (id_ for id_, _ in sent[5 * number :][:5])
        terminal_id = (await agent.result(created))["terminalId"]
        assert (await agent.wait(terminal_id))["exitCode"] == 0
        assert (await agent.output(terminal_id))["output"] == f"{number}\n"
        assert (await agent.result(output))["output"] == ""
        with pytest.raises(RpcError, match="term_that_never_was"):
            await agent.result(missing)
        assert not agent.has_response(wait)
        assert not agent.has_response(read)
    await agent.kill(terminal)
    for index, (id_, _) in enumerate(sent):
        if index % 5 == 2:
            assert (await agent.result(id_))["signal"] == "SIGTERM"
        elif index % 5 == 3:
            assert (await agent.result(id_))["exitStatus"]["signal"] == "SIGTERM"
    assert len([m for m in agent.messages if m["id"] in {id_ for id_, _ in sent}]) == 200


@pytest.mark.long
async def test_requests_beyond_the_pending_maximum_are_refused(agent):
    terminal = await agent.create("read line")
    sent = [
        agent.prepare("terminal/wait_for_exit", agent.of(terminal)) for _ in range(PENDING_MAX + 3)
    ]
    await agent.send(b"".join(line for _, line in sent))
    for id_, _ in sent[PENDING_MAX:]:
        with pytest.raises(RpcError, match=f"{PENDING_MAX} requests are pending") as caught:
            await agent.result(id_)
        assert caught.value.code == -32603
    # Requests that need not wait are still answered; others are again once these are.
    await agent.output(terminal)
    await agent.send(
        b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"session-1"}}\n'
    )
    for id_, _ in sent[:PENDING_MAX]:
        assert (await agent.result(id_))["signal"] == "SIGTERM"
    assert await is_served(agent)


async def test_large_creates_are_refused_before_the_pending_maximum(monkeypatch):
    monkeypatch.setattr(connection, "PENDING_MAX", 100)
    env = [{"name": f"V{number}", "value": "x" * 100_000} for number in range(10)]
    params = {"sessionId": "session-1", "command": "true", "env": env}
    async with host_here() as host, agent_of(host) as agent:
        host.terminals.pool._keeper = slow = SlowKeeper(host.terminals.pool._keeper)
        created = [await agent.start("terminal/create", params) for _ in range(2)]
        with pytest.raises(RpcError, match="100 requests are pending"):
            await agent.request("terminal/create", params)
        slow.may_respond.set()
        for id_ in created:
            await agent.result(id_)
        await agent.request("terminal/create", params)


@pytest.mark.long
async def test_pending_request_does_not_retain_its_params(agent):
    terminal = await agent.create("read line")
    tracemalloc.start()
    try:
        for _ in range(20):
            params = agent.of(terminal, unknown="x" * 1_000_000)
            await agent.start("terminal/wait_for_exit", params)
        await agent.output(terminal)
        retained, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert retained < 10_000_000


@pytest.mark.long
async def test_kill_and_release_respond_at_the_pending_maximum(agent):
    terminals = [await agent.create("trap '' TERM; read line") for _ in range(2)]
    sent = [
        agent.prepare("terminal/wait_for_exit", agent.of(terminals[0])) for _ in range(PENDING_MAX)
    ]
    await agent.send(b"".join(line for _, line in sent))
    # It must be refused before anything is typed.
    with pytest.raises(RpcError, match=f"{PENDING_MAX} requests are pending"):
        await agent.type(terminals[1], "x\n")
    assert "x" not in (await agent.output(terminals[1]))["output"]
    assert await agent.kill(terminals[0]) == {}
    assert await agent.release(terminals[1]) == {}
    for id_, _ in sent:
        assert (await agent.result(id_))["signal"]
    with pytest.raises(RpcError, match="has been released"):
        await agent.output(terminals[1])


async def test_duplicate_id_is_refused_and_the_first_request_answered(agent):
    terminal = await agent.create("read line")
    id_, line = agent.prepare("terminal/wait_for_exit", agent.of(terminal))
    await agent.send(line)
    error = (await refusal(agent, line.rstrip()))["error"]
    assert error["code"] == -32600
    assert f"id {id_} is still in progress" in error["message"]
    agent.expect_response(id_, "terminal/wait_for_exit")
    await agent.type(terminal, "\n")
    assert (await agent.result(id_))["exitCode"] == 0


@each_case("id_", [0, -1, 2**63 - 1, "", "a", "\u2028é", None])
async def test_ids_are_returned_unchanged(agent, id_):
    agent.methods[id_] = "initialize"
    params = {"protocolVersion": 1}
    request = {"jsonrpc": "2.0", "id": id_, "method": "initialize", "params": params}
    assert (await refusal(agent, json.dumps(request).encode()))["id"] == id_


# Split messages


async def test_line_in_two_reads_is_one_request(agent):
    id_, line = agent.prepare("initialize", {"protocolVersion": 1})
    await agent.send(line[:20])
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert not agent.has_response(id_)
    await agent.send(line[20:])
    assert (await agent.result(id_))["protocolVersion"] == 1


async def test_request_received_byte_by_byte_is_one_request(agent):
    params = {"sessionId": "é→🙂", "command": "echo é→🙂"}
    id_, line = agent.prepare("terminal/create", params)
    line = json.dumps(json.loads(line), ensure_ascii=False).encode() + b"\r\n"
    for index in range(len(line)):
        await agent.send(line[index : index + 1])
        await trio.lowlevel.checkpoint()
    agent.session = "é→🙂"
    terminal = (await agent.result(id_))["terminalId"]
    await agent.wait(terminal)
    assert (await agent.output(terminal))["output"] == "é→🙂\n"


async def test_partial_line_after_two_requests_becomes_a_third(agent):
    first, one = agent.prepare("initialize", {"protocolVersion": 1})
    second, two = agent.prepare("terminal/output", agent.of("none"))
    third, three = agent.prepare("initialize", {"protocolVersion": 1})
    await agent.send(one + b"\n \r\n" + two + three[:9])
    await agent.result(first)
    with pytest.raises(RpcError):
        await agent.result(second)
    await agent.send(three[9:])
    await agent.result(third)
    assert len(agent.messages) == 3, "empty lines are not answered"


# Invalid messages


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (b"hello", -32700, "not JSON: hello"),
        (b'{"jsonrpc":"2.0","id":1,"method":"ini', -32700, "not JSON"),
        (b'{"jsonrpc":"2.0","id":NaN,"method":"x"}', -32700, "NaN"),
        (b'{"jsonrpc":"2.0","method":"\xff"}', -32700, "0xff, is not UTF-8"),
        (b'{"jsonrpc":"2.0","method":"\\ud83d","id":null}', -32700, "surrogate"),
        (b'{"jsonrpc":"2.0","method":"x","id":"\\ud83d"}', -32700, "surrogate"),
        (b"[" * 100_000, -32700, "nested too deeply"),
        (b"[]", -32600, "a batch is not a message"),
        (b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]', -32600, "each message on a line"),
        (b"3", -32600, "must be a JSON object, not 3"),
        (b"null", -32600, "must be a JSON object, not null"),
        (b"{}", -32600, "jsonrpc is missing"),
        (b'{"jsonrpc":"1.0","method":"x","id":null}', -32600, 'it must be "2.0"'),
        (b'{"jsonrpc":"2.0","method":7,"id":null}', -32600, "method is 7"),
        (b'{"jsonrpc":"2.0","method":"x","id":1.5}', -32600, "id is 1.5"),
        (b'{"jsonrpc":"2.0","method":"x","id":true}', -32600, "id is true"),
        (b'{"jsonrpc":"2.0","method":"x","id":{}}', -32600, "id is {}"),
        (b'{"jsonrpc":"2.0","params":{},"id":null}', -32600, "method is missing"),
    ],
    ids=lambda value: str(value[:30]) if isinstance(value, bytes) else "",
)
async def test_invalid_message_is_refused_and_the_next_one_answered(agent, line, code, says):
    answer = await refusal(agent, line)
    assert answer["id"] is None
    assert answer["error"]["code"] == code
    assert says in answer["error"]["message"]
    assert len(answer["error"]["message"]) < 400
    assert await is_served(agent)


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}',
        b'{"jsonrpc":"2.0","id":1,"error":7}',
        b'{"jsonrpc":"2.0","id":1}',
        b"",
        b" \t\r",
    ],
)
async def test_unexpected_responses_and_empty_lines_are_ignored(agent, line):
    await agent.send(line + b"\n")
    await agent.request("initialize", {"protocolVersion": 1})
    assert len(agent.messages) == 1
    assert await is_served(agent)


@pytest.mark.long
async def test_message_of_10_mb_is_answered(agent):
    ten = "x" * 10_000_000
    result = await agent.request("initialize", {"protocolVersion": 1, "unknown": ten})
    assert result["protocolVersion"] == 1
    with pytest.raises(RpcError, match="MAX_ARG_STRLEN"):
        await agent.run("echo", args=[ten])
    assert await is_served(agent)


async def test_oversized_message_is_refused_and_the_next_one_answered():
    async with agent_here(max_message_bytes=4096) as agent:
        id_, line = agent.prepare("initialize", {"protocolVersion": 1, "x": ""})
        padding = 4096 - len(line.rstrip())
        exact = line.replace(b'"x": ""', b'"x": "%s"' % (b"y" * padding))
        assert len(exact.rstrip()) == 4096
        await agent.send(exact)
        await agent.result(id_)

        answer = await refusal(agent, exact.rstrip().replace(b"yyy", b"yyyy", 1))
        assert answer["id"] is None
        assert answer["error"]["code"] == -32600
        assert "4097 bytes" in answer["error"]["message"]
        assert "at most 4096" in answer["error"]["message"]
        assert await is_served(agent)

        answer = await refusal(agent, b"z" * 3_000_000)
        assert "3000000 bytes" in answer["error"]["message"]
        assert await is_served(agent)


# Methods and notifications


@each_case(
    "method",
    ["craft/drainMidTurnQueue", "_unknown/thing", "_acpterm/unknown", "fs/read_text_file", ""],
)
async def test_error_for_an_unknown_method_lists_the_known_ones(agent, method):
    with pytest.raises(RpcError) as caught:
        await agent.request(method, {"x": 1})
    assert caught.value.code == -32601
    assert repr(method) in caught.value.message
    assert "terminal/create" in caught.value.message
    assert await is_served(agent)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("_unknown/thing", {"x": 1}),
        ("craft/unknown", [1]),
        ("terminal/create", {"sessionId": "session-1", "command": "echo"}),
        ("session/update", {"sessionId": "session-1"}),
        ("session/update", {"sessionId": "session-1", "update": {"sessionUpdate": "new_kind"}}),
        ("session/update", {"sessionId": "session-1", "update": {"sessionUpdate": "tool_call"}}),
        ("session/cancel", {"sessionId": 7}),
        ("$/unknown", None),
        ("$/cancel_request", None),
        ("$/cancel_request", {"requestId": 99}),
        ("$/cancel_request", {"requestId": {}}),
    ],
)
async def test_unknown_and_invalid_notifications_are_ignored(agent, method, params):
    await agent.notify(method, params)
    await agent.request("initialize", {"protocolVersion": 1})
    assert len(agent.messages) == 1
    assert await is_served(agent)


# Cancellation


async def test_cancelled_wait_is_answered_and_the_terminal_runs_on(agent):
    terminal = await agent.create("read line; echo got $line")
    other = await agent.start("terminal/wait_for_exit", agent.of(terminal))
    wait = await agent.start("terminal/wait_for_exit", agent.of(terminal))
    await agent.output(terminal)
    await agent.notify("$/cancel_request", {"requestId": wait})
    with pytest.raises(RpcError) as caught:
        await agent.result(wait)
    assert caught.value.code == -32800
    assert not agent.has_response(other)
    # A second cancellation, or that of an answered request, is ignored.
    await agent.notify("$/cancel_request", {"requestId": wait})
    await agent.type(terminal, "it\n")
    assert (await agent.result(other))["exitCode"] == 0
    assert "got it" in (await agent.output(terminal))["output"]
    assert len([m for m in agent.messages if m["id"] == wait]) == 1


async def test_request_cancelled_in_the_same_write_is_answered_as_cancelled(agent):
    terminal = await agent.create("read line")
    for _ in range(40):
        id_, line = agent.prepare("terminal/wait_for_exit", agent.of(terminal))
        cancel = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id_}}
        await agent.send(line + json.dumps(cancel).encode() + b"\n")
        with trio.fail_after(DEADLINE_S), pytest.raises(RpcError) as caught:
            await agent.result(id_)
        assert caught.value.code == -32800


async def test_cancelled_read_is_answered(agent):
    terminal = await agent.create("read line")
    read = await agent.start("_acpterm/terminal/read", agent.of(terminal, waitMs=60_000))
    await agent.output(terminal)
    await agent.notify("$/cancel_request", {"requestId": read})
    with pytest.raises(RpcError) as caught:
        await agent.result(read)
    assert caught.value.code == -32800
    assert "exitStatus" not in await agent.output(terminal)


async def test_cancelled_creates_leave_no_unknown_program(agent):
    sent = []
    for _ in range(20):
        params = {"sessionId": agent.session, "command": "sleep 60"}
        id_, line = agent.prepare("terminal/create", params)
        cancel = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": id_}}
        await agent.send(line + json.dumps(cancel).encode() + b"\n")
        sent.append(id_)
    for id_ in sent:
        with suppress(RpcError):
            await agent.release((await agent.result(id_))["terminalId"])
        error = agent.responses[id_].get("error", {"code": -32800})
        assert error["code"] == -32800
    assert await is_served(agent)


# Leniency and strictness


async def test_unknown_members_are_ignored(agent):
    env = [{"name": "A", "value": "b", "unknown": 1}]
    assert (await agent.run("echo $A", env=env, unknown={"x": [1]}))[0] == "b\n"
    assert (await agent.run("echo x", _meta={"other": 1}))[0] == "x\n"
    assert (await agent.run("echo x", _meta="bad"))[0] == "x\n"


@each_case(
    ("params", "says"),
    [
        ({"sessionId": "s"}, "params.command is missing"),
        ({"sessionId": "s", "command": None}, "params.command is null"),
        ({"sessionId": "s", "command": 7}, "params.command is 7: it must be a string"),
        ({"command": "echo"}, "params.sessionId is missing"),
        ({"sessionId": 7, "command": "echo"}, "params.sessionId is 7"),
        ([], "params is []"),
        (None, "params is missing"),
        ("x", 'params is "x"'),
    ],
)
async def test_invalid_params_are_refused_where_the_schema_is_strict(agent, params, says):
    with pytest.raises(RpcError) as caught:
        await agent.request("terminal/create", params)
    assert caught.value.code == -32602
    assert says in caught.value.message
    assert await is_served(agent)


@each_case(
    ("method", "more"),
    [
        ("_acpterm/terminal/read", {"waitMs": 10**400}),
        ("_acpterm/terminal/read", {"since": 10**400}),
        ("_acpterm/terminal/read", {"maxBytes": 10**400}),
        ("terminal/create", {"command": "true", "_meta": {"acpterm": {"timeoutMs": 10**400}}}),
        ("terminal/create", {"command": "true", "outputByteLimit": 10**400}),
    ],
)
async def test_number_of_any_size_causes_no_internal_error(agent, method, more):
    terminal = await agent.create("true")
    await agent.wait(terminal)
    id_ = await agent.start(method, agent.of(terminal, **more))
    with suppress(RpcError):
        await agent.result(id_)
    error = agent.responses[id_].get("error", {"code": -32602})
    assert error["code"] == -32602, error
    assert await is_served(agent)


LONG = "x" * 100_000


@each_case(
    ("method", "params"),
    [
        ("terminal/output", {"sessionId": "session-1", "terminalId": LONG}),
        ("terminal/output", {"sessionId": LONG, "terminalId": "term_1"}),
        ("terminal/create", {"sessionId": "session-1", "command": "true", "cwd": LONG}),
        ("terminal/create", {"sessionId": "session-1", "command": LONG + "\0"}),
        ("terminal/create", {"sessionId": "session-1", "command": " " * 100_000}),
        (LONG, {}),
    ],
)
async def test_error_quotes_an_excerpt_of_a_long_value(agent, method, params):
    with pytest.raises(RpcError) as caught:
        await agent.request(method, params)
    assert len(caught.value.message) < 2000
    assert "…" in caught.value.message


@each_case("env", [{"": "x"}, {"A=B": "x"}, {"A": "x\0"}, {"A\0": "x"}])
async def test_oversized_environment_is_refused(agent, env):
    with pytest.raises(RpcError, match="holds a NUL character") as caught:
        await agent.request(
            "initialize",
            {"protocolVersion": 1, "_meta": {"acpterm": {"context": {"env": env}}}},
        )
    assert caught.value.code == -32602
    assert (await agent.run("echo as before"))[0] == "as before\n"
