"""Kimi Code runs background tasks in acpterm's terminals, over several turns.

Its tool `Bash` runs `/bin/bash -c` in a terminal that the tool call embeds, and polls the output.
With `run_in_background` the turn ends while the command runs; the tools `TaskOutput` and `TaskStop`
use it in later turns. It reports neither a signal nor truncated output to its model, so the tests
of `agents/` do not fit it.
"""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.interop.agents.client import Client
from tests.interop.agents.model import in_turn, tool
from tests.interop.agents.ways import Place, Wire, proxy
from tests.support.polling import poll

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

PROGRAMS = Path(__file__).parent / "node_modules" / ".bin"


class KimiCode:
    def command(self) -> list[str]:
        program = PROGRAMS / "kimi"
        if not program.exists():
            raise FileNotFoundError(f"Kimi Code is not at {program}: run make interop")
        return [str(program), "acp"]

    def environment(
        self, home: Path, model: str, *, command_timeout_s: int | None = None
    ) -> dict[str, str]:
        del command_timeout_s  # a parameter of the tool call
        return {
            # It needs Node 22.19: its packages include that for Linux on x86-64.
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "KIMI_CODE_HOME": str(home / "kimi-code"),
            "KIMI_CODE_NO_AUTO_UPDATE": "1",
            "KIMI_DISABLE_TELEMETRY": "1",
            "KIMI_MODEL_NAME": "scripted",
            "KIMI_MODEL_API_KEY": "none",
            "KIMI_MODEL_PROVIDER_TYPE": "openai",
            "KIMI_MODEL_BASE_URL": model,
        }


class Chat:
    """A session with Kimi Code behind the proxy."""

    def __init__(self, client: Client, place: Place, session: str, log: Path) -> None:
        self.client = client
        self.place = place
        self.session = session
        self._log = log

    async def turn(self, *calls: str) -> str:
        """Run a turn in which the model makes tool calls; return their results."""
        self.client.message_text.pop(self.session, None)
        assert await self.client.prompt(self.session, in_turn(*calls)) == "end_turn"
        return self.client.message_text[self.session].removeprefix("RESULT\n")

    async def start_task(self, line: str, marker: str) -> str:
        """Start a background task in a turn, and wait until it has printed; return its id."""
        call = tool("Bash", command=line, run_in_background=True, description="a task")
        result = await self.turn(call)
        assert "status: running" in result
        await poll(lambda: any(marker in text for text in self.outputs()) or None, 20)
        found = re.search(r"task_id: (\S+)", result)
        assert found
        return found[1]

    def wire(self) -> Wire:
        return Wire(self._log, "proxy->agent", "agent->proxy")

    def outputs(self) -> list[str]:
        exchanges = self.wire().exchanges()
        return [m["result"]["output"] for name, _, m in exchanges if name == "terminal/output"]


@pytest.fixture(params=["embedded", "daemon"])
def chat(request, tmp_path):
    """Return a context manager with a session whose terminals are the proxy's or a daemon's."""
    socket = str(tmp_path / "run" / "agent.sock")
    flags = ["--embedded"] if request.param == "embedded" else ["--socket", socket]

    @asynccontextmanager
    async def chat() -> AsyncIterator[Chat]:
        async with proxy(tmp_path, KimiCode(), *flags) as (client, place, _):
            with trio.fail_after(90):
                session = await client.start(str(place.work))
                yield Chat(client, place, session, tmp_path / "proxy.log")

    return chat


async def test_background_task_is_read_and_stopped_in_a_later_turn(chat):
    async with chat() as one:
        task = await one.start_task("echo begun; exec sleep 7541", "begun")
        read = await one.turn(tool("TaskOutput", task_id=task))
        assert "status: running" in read
        assert "[output]\nbegun" in read
        assert "begun" in one.client.shown()
        assert one.place.running("sleep 7541") == 1
        stopped = await one.turn(tool("TaskStop", task_id=task), tool("TaskOutput", task_id=task))
        assert "status: killed" in stopped
        assert one.place.running("sleep 7541") == 0
        terminal = one.wire().terminal()
        assert terminal.status == (None, "SIGTERM")
        assert terminal.killed == terminal.released == {}


async def test_background_task_outlives_a_cancelled_turn_and_ends_with_the_session(chat):
    async with chat() as one:
        task = await one.start_task("echo begun; exec sleep 7542", "begun")
        async with trio.open_nursery() as nursery:
            cancelled = []

            async def run() -> None:
                call = tool("Bash", command="sleep 7543")
                cancelled.append(await one.client.prompt(one.session, call))

            nursery.start_soon(run)
            await poll(lambda: one.place.running("sleep 7543") or None, 20)
            await one.client.cancel(one.session)
        assert cancelled == ["cancelled"]
        await poll(lambda: not one.place.running("sleep 7543"))
        assert "status: running" in await one.turn(tool("TaskOutput", task_id=task))
        assert one.place.running("sleep 7542") == 1
        await one.client.request("session/close", {"sessionId": one.session})
        await poll(lambda: not one.place.running("sleep 7542"))


async def test_server_left_in_the_background_serves_later_calls_and_ends_with_the_session(chat):
    serve = "nohup python3 -u -m http.server 0 --bind 127.0.0.1 >log 2>&1 & echo started"
    wait = "for n in $(seq 200); do grep -qs port log && break; sleep 0.05; done"
    get = r"curl -sS http://127.0.0.1:$(grep -oP 'port \K\d+' log)/page"
    async with chat() as one:
        (one.place.work / "page").write_text("served")
        calls = tool("Bash", command=serve), tool("Bash", command=f"{wait}; {get}")
        assert re.search("(?s)started.*served", await one.turn(*calls))
        assert "served" in await one.turn(tool("Bash", command=get))
        await one.client.request("session/close", {"sessionId": one.session})
        await poll(lambda: "http.server" not in str(one.place.left()))
