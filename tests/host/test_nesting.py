"""Windows inside terminals: no terminal is attached to itself."""

import pytest

from acpterm.jsonrpc import RpcError
from tests.support.user import user_of

SIZE = {"cols": 60, "rows": 20}


async def create(user, name):
    created = await user.request("terminal/create", {"command": "sleep 60", "name": name, **SIZE})
    return created["terminalId"]


async def move_into(user, terminal):
    """Initialize a client as if it ran in a terminal: with the terminal's environment."""
    context = {"env": {"ACPTERM_TERMINAL_ID": terminal}}
    hello = {"protocolVersion": 1, "_meta": {"acpterm": {"context": context}}}
    await user.request("initialize", hello)


@pytest.mark.parametrize("read_only", [False, True])
async def test_terminal_is_not_attached_to_itself(user, read_only):
    await move_into(user, await create(user, "web"))
    id_, _ = await user.open("terminal/attach", terminalId="web", readOnly=read_only, **SIZE)
    with pytest.raises(RpcError, match=r"'web' is the one you are in.*attached to itself"):
        await user.result(id_)
    assert (await user.terminal_request("get", "web"))["attached"] == 0


async def test_terminal_is_not_attached_to_one_that_shows_it(host, user):
    async with user_of(host) as other:
        first = await create(user, "first")
        for name in "second", "third":
            await create(user, name)
        await move_into(user, first)
        id_, token = await user.open("terminal/attach", terminalId="second", **SIZE)
        await user.until(lambda: user.by_token[token])
        assert not user.has_response(id_)
        # The second terminal is attached in the first one.
        second = (await other.terminal_request("get", "second"))["terminalId"]
        await move_into(other, second)
        refused, _ = await other.open("terminal/attach", terminalId="first", **SIZE)
        with pytest.raises(RpcError, match="'first' shows the one you are in"):
            await other.result(refused)
        _, token = await other.open("terminal/attach", terminalId="third", **SIZE)
        await other.until(lambda: other.by_token[token])
        # Without that window there is no loop any more.
        await user.cancel(id_)
        with pytest.raises(RpcError):
            await user.result(id_)
        _, token = await other.open("terminal/attach", terminalId="first", **SIZE)
        await other.until(lambda: other.by_token[token])
