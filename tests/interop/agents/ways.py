"""The two ways to use an agent: an editor with `acpterm proxy`, or `acpterm prompt`.

Each starts a turn in its own directory and with an environment that has only the variables of the
test. At the end of the turn none of its processes may be left, however it was started: a marker in
the environment identifies the processes.
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
from tests.interop.agents.kinds import Agent, Kind
from tests.interop.agents.model import model
from tests.interop.agents.wire import Wire
from tests.support.polling import poll
from tests.support.starting import ACPTERM

# Time for an agent to start and finish its turn, and for all processes to be gone.
TURN_TIMEOUT_S = 60
EXIT_TIMEOUT_S = 30
_MARK = "INTEROP_RUN"
# The prefix of the lines of a terminal in the output of `acpterm prompt`.
_BAR = "  │ "


class Place:
    """The directories, the environment and the processes of a turn."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory = directory
        self.work = directory / "work"
        self.home = directory / "home"
        self.work.mkdir(exist_ok=True)
        self.home.mkdir(exist_ok=True)
        self._mark = f"{_MARK}={secrets.token_hex(8)}"
        name, _, value = self._mark.partition("=")
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(directory),
            "LC_ALL": "C.UTF-8",
            "NO_PROXY": "*",
            "ACPTERM_IDLE_EXIT": "2",
            name: value,
            **environment,
        }

    def left(self) -> dict[int, str]:
        """Return the remaining processes: command lines by pid."""
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
        """Return the number of processes with a command line."""
        return list(self.left().values()).count(line)


class Turn(Protocol):
    """A running turn."""

    place: Place

    async def end(self) -> str:
        """Wait for the end; return `end_turn`, `cancelled` or `refusal`."""

    async def cancel(self) -> None:
        """Cancel the turn."""

    def wire(self) -> Wire:
        """Return the messages so far."""

    def shown(self) -> str:
        """Return what the user was shown of tool calls so far.

        For `acpterm prompt`: the output of terminals, or all output if the agent embeds none.
        """


class _Proxied:
    """A turn through `acpterm proxy`."""

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
        with trio.fail_after(TURN_TIMEOUT_S):
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
    """A turn of `acpterm prompt`."""

    def __init__(
        self, place: Place, kind: Kind, process: trio.Process, log: Path, out: Path
    ) -> None:
        self.place = place
        self._kind = kind
        self._process = process
        self._log = log
        self._out = out

    async def end(self) -> str:
        with trio.fail_after(TURN_TIMEOUT_S):
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
    directory: Path,
    kind: Agent,
    *flags: str,
    shows: bool = False,
    command_timeout_s: int | None = None,
) -> AsyncIterator[tuple[Client, Place, Callable[[], Wire]]]:
    """Start `acpterm proxy` with an agent, and an editor in front of it.

    Yield the editor, the place, and a function that returns the messages so far. With `shows`, the
    editor displays terminals of agents.
    """
    with model() as url:
        place = _place(directory, kind, url, command_timeout_s)
        log = directory / "proxy.log"
        arguments = ["proxy", *(flags or ["--embedded"]), "--log", str(log), "--", *kind.command()]
        command = [*ACPTERM, *arguments]
        async with running(place, command, stdout=subprocess.PIPE) as process:
            stream = trio.StapledStream(process.stdin, process.stdout)
            async with talking(stream, shows=shows) as client:
                wire = lambda: Wire(log, "proxy->agent", "agent->proxy")  # noqa: E731
                yield client, place, wire
            await process.stdin.aclose()
            with trio.fail_after(EXIT_TIMEOUT_S):
                assert await process.wait() == 0
        wire().check(to_client="proxy->editor")


@asynccontextmanager
async def _by_proxy(directory: Path, kind: Kind, text: str, **options: Any) -> AsyncIterator[Turn]:
    async with proxy(directory, kind, *options.pop("flags", ()), **options) as (client, place, _):
        with trio.fail_after(TURN_TIMEOUT_S):
            session = await client.start(str(place.work))
        turn = _Proxied(place, client, session, directory / "proxy.log")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn.run, text)
            yield turn
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def _by_prompt(
    directory: Path,
    kind: Kind,
    text: str,
    flags: tuple[str, ...] = (),
    command_timeout_s: int | None = None,
) -> AsyncIterator[Turn]:
    with model() as url:
        place = _place(directory, kind, url, command_timeout_s)
        log, out = directory / "prompt.log", directory / "prompt.out"
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


def _place(directory: Path, kind: Agent, url: str, command_timeout_s: int | None) -> Place:
    directory.mkdir(exist_ok=True)
    return Place(directory, kind.environment(directory, url, command_timeout_s=command_timeout_s))


@asynccontextmanager
async def running(place: Place, command: list[str], **more: Any) -> AsyncIterator[Any]:
    """Run a program while the block lasts; fail if any of its processes is left then."""
    with (place.directory / "stderr").open("wb") as stderr:
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
            await poll(lambda: not place.left(), EXIT_TIMEOUT_S)
        except trio.TooSlowError:
            raise AssertionError(f"left running: {place.left()}") from None
    except BaseException:
        # Its stderr goes into the report of the failed test.
        print((place.directory / "stderr").read_text(errors="replace")[-4000:])
        raise
    finally:
        for pid in place.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        with trio.CancelScope(shield=True):
            await process.wait()
