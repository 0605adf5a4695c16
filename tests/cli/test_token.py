"""`acpterm token`: the bearer tokens of agents."""

import json
import stat
from typing import Any

import pytest
import trio

from tests.support.commands import run
from tests.support.depth import DEADLINE_S
from tests.support.user import user_at
from tests.support.web import Browser, RefusedError, web_daemon

pytestmark = pytest.mark.long


async def test_token_is_shown_once_and_opens_what_is_the_agents_until_it_is_removed(tmp_path):
    async with web_daemon(tmp_path) as web:
        path = web.daemon.path
        status, token, _ = await run(path, "token", "add", "claude")
        token = token.strip()
        assert status == 0
        again = await run(path, "token", "add", "claude")
        assert again[0] == 1
        assert "claude has a token already" in again[2]
        listed = json.loads((await run(path, "token", "list", "--json"))[1])
        assert [one["name"] for one in listed] == ["agent", "claude"]
        file = web.token_file.with_name("access.json")
        assert token not in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

        agent = Browser(web.origin, token=token)
        async with agent.websocket("/acp") as websocket:
            assert await run(path, "token", "remove", "claude") == (0, "", "")
            assert await websocket.wait_closed() == 1008
        with pytest.raises(RefusedError) as refused:
            async with agent.websocket("/acp"):
                pass
        assert refused.value.status == 401
        gone = await run(path, "token", "remove", "claude")
        assert gone[0] == 1
        assert "has no token" in gone[2]
        assert (await run(path, "token", "add", "a b"))[0] == 1
        async with user_at(web.daemon.user_path) as user:
            entries = await recorded(user, "claude", 2)
        assert [one["event"] for one in entries] == ["untoken", "token"]
        assert {one["by"] for one in entries} == {"user"}
        assert token not in json.dumps(entries)


async def recorded(user: Any, agent: str, count: int) -> list[Any]:
    """Return the entries of the audit log about an agent, once there are so many.

    The log is that of all tests of this process, and always has the gaps that others have made.
    """
    entries: list[Any] = []
    with trio.move_on_after(DEADLINE_S):
        while len(entries) != count:
            await trio.sleep(0.02)
            read = await user.request("audit/read", {"agent": agent, "limit": 100})
            entries = [one for one in read["entries"] if one["event"] != "gap"]
    return entries


async def test_token_outlives_the_worker(tmp_path):
    async with web_daemon(tmp_path) as web:
        await web.daemon.kill_worker()
        with trio.fail_after(30):
            while True:
                try:
                    async with web.agent().websocket("/acp"):
                        return
                except OSError:
                    await trio.sleep(0.05)
