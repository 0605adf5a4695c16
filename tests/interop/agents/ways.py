"""The two ways of a person to an agent: an editor and `acpterm proxy`, or `acpterm prompt`.

`turn` begins a turn in either way, in a folder of its own and with nothing but what the test gives
it in its environment. At its end nothing may be left that has been started in it, however it was
started: all of it has a mark in its environment, and is looked for by that.
"""

import os
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import trio

from tests.interop.agents.client import Client, talking
from tests.interop.agents.kinds import Kind
from tests.interop.agents.model import model
from tests.interop.agents.wire import Wire
from tests.support.hosts import ACPTERM, poll

# Seconds: for an agent to start and have its turn; for everything to be gone.
TURN = 60
GONE = 15
_MARK = "INTEROP_RUN"
# What stands before the lines of a terminal in what `acpterm prompt` prints.
_BAR = "  │ "


class Place:
    """Where a turn is had: folders, environment, and the processes that have come of it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.home = folder / "home"
        self.work.mkdir(exist_ok=True)
        self.home.mkdir(exist_ok=True)
        self._mark = f"{_MARK}={secrets.token_hex(8)}"
        name, _, value = self._mark.partition("=")
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(folder),
            "LC_ALL": "C.UTF-8",
            "NO_PROXY": "*",
            "ACPTERM_IDLE_EXIT": "2",
            name: value,
            **environment,
        }

    def left(self) -> dict[int, str]:
        """Give the processes that have come of this: pids and command lines."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    environment = (entry / "environ").read_bytes().decode(errors="replace")
                    if self._mark in environment.split("\0"):
                        line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                        found[int(entry.name)] = line.decode(errors="replace").strip()
                except OSError:
                    continue
        return found

    def running(self, line: str) -> int:
        """Count the processes of a command line."""
        return list(self.left().values()).count(line)


class Turn(Protocol):
    """A turn that has begun."""

    place: Place

    async def end(self) -> str:
        """Wait for its end: `end_turn`, `cancelled` or `refusal`."""

    async def cancel(self) -> None:
        """Have it cancelled."""

    def wire(self) -> Wire:
        """Give what has been said so far."""

    def shown(self) -> str:
        """Give what the person has been shown so far of tool calls.

        By `acpterm prompt` these are the terminals, or all that it prints if the agent shows none.
        """


class _Proxied:
    """A turn by way of `acpterm proxy`."""

    def __init__(self, place: Place, client: Client, session: str, log: Path) -> None:
        self.place = place
        self.client = client
        self.session = session
        self._log = log
        self._reason: str | None = None
        self._over = trio.Event()

    async def run(self, text: str) -> None:
        self._reason = await self.client.prompt(self.session, text)
        self._over.set()

    async def end(self) -> str:
        with trio.fail_after(TURN):
            await self._over.wait()
        assert self._reason is not None
        return self._reason

    async def cancel(self) -> None:
        await self.client.cancel(self.session)

    def wire(self) -> Wire:
        return Wire(self._log, "proxy->agent", "agent->proxy")

    def shown(self) -> str:
        return self.client.shown()


class _Prompted:
    """A turn by way of `acpterm prompt`."""

    def __init__(
        self, place: Place, kind: Kind, process: trio.Process, log: Path, out: Path
    ) -> None:
        self.place = place
        self._kind = kind
        self._process = process
        self._log = log
        self._out = out

    async def end(self) -> str:
        with trio.fail_after(TURN):
            status = await self._process.wait()
        return {0: "end_turn", 1: "refusal", 130: "cancelled"}[status]

    async def cancel(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def wire(self) -> Wire:
        return Wire(self._log, "client->agent", "agent->client")

    def shown(self) -> str:
        out = self._out.read_text()
        if not self._kind.embeds:
            return out
        lines = out.splitlines()
        return "\n".join(line.removeprefix(_BAR) for line in lines if line.startswith(_BAR))


@asynccontextmanager
async def proxy(
    folder: Path, kind: Kind, *flags: str, shows: bool = False, gives_up: int | None = None
) -> AsyncIterator[tuple[Client, Place, Callable[[], Wire]]]:
    """Start `acpterm proxy` with an agent, and an editor at its other end."""
    with model() as url:
        place = _place(folder, kind, url, gives_up)
        log = folder / "proxy.log"
        arguments = ["proxy", *(flags or ["--embedded"]), "--log", str(log), "--", *kind.command()]
        command = [*ACPTERM, *arguments]
        async with running(place, command, stdout=subprocess.PIPE) as process:
            stream = trio.StapledStream(process.stdin, process.stdout)
            async with talking(stream, shows=shows) as client:
                wire = lambda: Wire(log, "proxy->agent", "agent->proxy")  # noqa: E731
                yield client, place, wire
            await process.stdin.aclose()
            with trio.fail_after(GONE):
                assert await process.wait() == 0
        wire().check(to_client="proxy->editor")


@asynccontextmanager
async def _by_proxy(folder: Path, kind: Kind, text: str, **how: Any) -> AsyncIterator[Turn]:
    async with proxy(folder, kind, *how.pop("flags", ()), **how) as (client, place, _):
        with trio.fail_after(TURN):
            session = await client.start(str(place.work))
        turn = _Proxied(place, client, session, folder / "proxy.log")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn.run, text)
            yield turn
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def _by_prompt(
    folder: Path, kind: Kind, text: str, flags: tuple[str, ...] = (), gives_up: int | None = None
) -> AsyncIterator[Turn]:
    with model() as url:
        place = _place(folder, kind, url, gives_up)
        log, out = folder / "prompt.log", folder / "prompt.out"
        arguments = ["prompt", "-", "--allow", "all", "--cwd", str(place.work), "--log", str(log)]
        arguments += [*(flags or ["--embedded"]), "--", *kind.command()]
        with out.open("wb") as stdout:
            command = [*ACPTERM, *arguments]
            async with running(place, command, stdout=stdout) as process:
                await process.stdin.send_all(text.encode())
                await process.stdin.aclose()
                turn = _Prompted(place, kind, process, log, out)
                yield turn
                await turn.end()
        turn.wire().check()


WAYS: dict[str, Callable[..., Any]] = {"proxy": _by_proxy, "prompt": _by_prompt}


def _place(folder: Path, kind: Kind, url: str, gives_up: int | None) -> Place:
    folder.mkdir(exist_ok=True)
    return Place(folder, kind.environment(folder, url, gives_up=gives_up))


@asynccontextmanager
async def running(place: Place, command: list[str], **more: Any) -> AsyncIterator[Any]:
    """Run a program; when the block has come to its end, nothing of it may be left."""
    with (place.folder / "stderr").open("wb") as stderr:
        process = await trio.lowlevel.open_process(
            command,
            stdin=subprocess.PIPE,
            stderr=stderr,
            cwd=place.work,
            env=place.environment,
            **more,
        )
    try:
        yield process
        try:
            await poll(lambda: not place.left(), GONE)
        except trio.TooSlowError:
            raise AssertionError(f"left running: {place.left()}") from None
    except BaseException:
        # What it said is in the report of the test that has failed.
        print((place.folder / "stderr").read_text(errors="replace")[-4000:])
        raise
    finally:
        for pid in place.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        with trio.CancelScope(shield=True):
            await process.wait()
