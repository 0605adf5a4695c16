"""A window for tests in which the user's commands run: a terminal of the user's own.

A terminal of an agent's, whoever's daemon made it, is none: the user's socket refuses what runs
in one.
"""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from tests.support.depth import DEADLINE_S
from tests.support.person import Person, person_at


class Window:
    """Runs commands in terminals of the user's own."""

    def __init__(self, user: Person) -> None:
        self._user = user
        self._raw: set[str] = set()

    async def create(self, command: str, *, own: dict[str, Any] | None = None, **more: Any) -> str:
        """Run a command; `own` has its `format`, `text` or `raw`, and its size."""
        size = {name: value for name, value in (own or {}).items() if name != "format"}
        made = await self._user.request("terminal/create", {"command": command, **more, **size})
        terminal = str(made["terminalId"])
        if (own or {}).get("format") == "raw":
            self._raw.add(terminal)
        return terminal

    async def output(self, terminal: str) -> dict[str, Any]:
        if terminal not in self._raw:
            return {"output": (await self._user.about("output", terminal))["text"]}
        data = base64.b64decode(
            (await self._user.about("read", terminal, format="raw", maxBytes=1 << 20))["data"]
        )
        return {"output": data.decode(errors="replace")}

    async def until_output(self, terminal: str, text: str) -> str:
        """Poll until the output holds `text`: the output."""
        with trio.fail_after(DEADLINE_S):
            while text not in (found := (await self.output(terminal))["output"]):
                await trio.sleep(0.005)
        return str(found)

    async def type(self, terminal: str, data: str) -> Any:
        return await self._user.about("write", terminal, data=data)

    async def wait(self, terminal: str) -> Any:
        """Wait for the end of the command: its exit status."""
        return (await self._user.about("wait", terminal))["exitStatus"]

    async def release(self, terminal: str) -> Any:
        return await self._user.about("release", terminal)


@asynccontextmanager
async def window_at(path: str) -> AsyncIterator[Window]:
    """Have a window at the daemon whose agents' socket is at `path`."""
    async with person_at(path.replace("agent.sock", "user.sock")) as user:
        yield Window(user)
