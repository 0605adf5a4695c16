"""Who may do what: each verb, of an agent and of the user, on a terminal in each state."""

import pytest

from acpterm.jsonrpc import RpcError
from tests.support.agent import agent_of
from tests.support.hosts import host_here
from tests.support.user import user_of

UNKNOWN, REFUSED = -32002, -32602
ACP = ("output", "kill", "release")
# What else the params have, and what the error calls it if the user owns the terminal.
VERBS = {
    "get": ({}, None),
    "read": ({}, None),
    "screen": ({}, None),
    "output": ({}, None),
    "write": ({"data": "x"}, "typed into"),
    "resize": ({"cols": 80, "rows": 24}, "resized"),
    "signal": ({"signal": "SIGCONT"}, "signalled"),
    "promote": ({}, None),
    "kill": ({}, "killed"),
    "release": ({}, None),
}
STATES = ("agents", "taken over", "given", "released", "users")


async def _in_state(state, agent, user):
    if state == "users":
        return (await user.request("terminal/create", {"command": "read x"}))["terminalId"]
    terminal = await agent.create("read x")
    if state == "taken over":
        await user.terminal_request("promote", terminal)
    elif state == "given":
        await agent.request("_acpterm/terminal/promote", agent.of(terminal))
    elif state == "released":
        await agent.release(terminal)
    return terminal


def _agents(verb, state, reads_users):
    """Return the code of the agent's error; None if the verb succeeds."""
    if state == "users":
        return None if reads_users and verb in ("get", "read", "screen") else UNKNOWN
    if state == "released":
        return None if verb == "release" else UNKNOWN
    return REFUSED if VERBS[verb][1] and state != "agents" else None


@pytest.mark.parametrize("reads_users", [False, True])
@pytest.mark.parametrize("state", STATES)
async def test_agent_and_user_may_do_what_the_owner_of_the_terminal_lets_them(state, reads_users):
    async with (
        host_here(agents_read_user_terminals=reads_users) as host,
        agent_of(host) as agent,
        user_of(host) as user,
    ):
        for verb, (more, done) in VERBS.items():
            method = f"terminal/{verb}" if verb in ACP else f"_acpterm/terminal/{verb}"
            terminal = await _in_state(state, agent, user)
            if expected := _agents(verb, state, reads_users):
                with pytest.raises(RpcError) as caught:
                    await agent.request(method, agent.of(terminal, **more))
                assert caught.value.code == expected, verb
                if expected == REFUSED:
                    assert f"cannot be {done}: the user owns it" in caught.value.message
                if state != "released":
                    found = await user.terminal_request("get", terminal)
                    assert found["state"] == "running", verb
            else:
                await agent.request(method, agent.of(terminal, **more))
            terminal = await _in_state(state, agent, user)
            if state == "released":
                with pytest.raises(RpcError) as caught:
                    await user.terminal_request(verb, terminal, **more)
                assert caught.value.code == UNKNOWN, verb
            else:
                await user.terminal_request(verb, terminal, **more)
