"""The second half of `make demo`: an editor without terminals, and the proxy for its agent.

Then the same agent runs under `acpterm prompt`. The editor is this program; the agent is
`acp_agent.py`, which needs terminals. Every step is checked, as in `demo.py`. Takes some 3 seconds.
`--svg FILE` writes a picture instead.
"""

import argparse
import asyncio
import contextlib
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo import COLOURS, WIDTH, Printer, picture, still_running
from rich.console import Group
from rich.live import Live
from rich.markdown import Markdown
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel

JSON = dict[str, Any]
AGENT = [sys.executable, str(Path(__file__).with_name("acp_agent.py"))]
ACPTERM = [sys.executable, "-m", "acpterm"]
BUILD = "for i in 1 2 3 4 5; do printf '\\rcompiling %d of 5' $i; sleep 0.3; done; echo; exit 2"
# The command never exits, and one of its processes leaves the session.
SERVER = "echo $$ > pids; $(command -v setsid) sleep 300 & echo $! >> pids; sleep 300"


class Editor:
    """An editor that displays text and has no terminals."""

    def __init__(self, process: asyncio.subprocess.Process, changed: Callable[[], None]) -> None:
        self._process = process
        self._changed = changed
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[JSON]] = {}
        self.calls: dict[str, JSON] = {}
        self.updates = 0
        self.reading = asyncio.create_task(self._read())

    async def ask(self, method: str, **params: Any) -> JSON:
        """Send a request to the agent; return the result."""
        id_ = next(self._ids)
        waiting = self._waiting[id_] = asyncio.get_running_loop().create_future()
        self.send({"id": id_, "method": method, "params": params})
        return await waiting

    def send(self, message: JSON) -> None:
        """Send a message to the agent."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process.stdout
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            if "method" not in message:
                self._waiting.pop(message["id"]).set_result(message.get("result", message))
            elif message["method"] == "session/request_permission":
                outcome = {"outcome": "selected", "optionId": "yes"}
                self.send({"id": message["id"], "result": {"outcome": outcome}})
            elif message["method"] == "session/update":
                self._update(message["params"]["update"])

    def _update(self, update: JSON) -> None:
        if call := update.get("toolCallId"):
            self.calls.setdefault(call, {}).update(update)
            self.updates += "content" in update
            self._changed()

    def text(self, call: JSON) -> str:
        """Return the Markdown texts in a tool call's content."""
        items = call.get("content", [])
        return "\n".join(i["content"]["text"] for i in items if i["type"] == "content")


class Demo:
    """The state of the demo: console and the results of the checks."""

    def __init__(self, console: Printer, directory: Path) -> None:
        self.console = console
        self.directory = directory
        self.checks = 0
        self.failures: list[str] = []

    def step(self, title: str, why: str) -> None:
        """Print the title of a step, and why it is interesting."""
        self.console.print(f"\n[bold cyan]{title}[/]\n   [dim]{why}[/]")

    def check(self, what: str, good: bool, found: object) -> None:
        """Print the result of the check `what`, and count it.

        If it is not `good`, record the check as failed, with the value that was `found`.
        """
        self.checks += 1
        mark = "[green]✓[/]" if good else "[bold red]✗[/]"
        self.console.print(f"   {mark} {escape(what)}")
        if not good:
            self.failures.append(f"{what}; found {found!r}")


def _card(editor: Editor) -> Padding:
    panels = []
    for call in editor.calls.values():
        state = call.get("status", "pending")
        title = call["title"] if len(call["title"]) < 50 else call["title"][:49] + "…"
        panels.append(
            Panel(
                Markdown(editor.text(call), code_theme="ansi_dark"),
                title=f"[bold]{escape(title)}[/] · [{COLOURS.get(state, 'dim')}]{state}[/]",
                title_align="left",
                width=WIDTH - 12,
            )
        )
    return Padding(Group(*panels), (0, 0, 0, 3))


async def perform(demo: Demo) -> None:
    """Run all steps, with `acpterm proxy --embedded`."""
    demo.step(
        "An editor without terminals, and an agent that needs them",
        "The editor starts: acpterm proxy --embedded -- python acp_agent.py",
    )
    process = await asyncio.create_subprocess_exec(
        *ACPTERM,
        *("proxy", "--embedded", "--", *AGENT),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=64 * 1024 * 1024,
        env=os.environ | {"ACPTERM_LOG_LEVEL": "error"},
    )
    live = Live(console=demo.console, refresh_per_second=20)
    editor = Editor(process, lambda: live.update(_card(editor)))
    files = {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": False}
    # An editor without a name is sent only the final text of a call.
    name = {"name": "demo", "version": "1"}
    await editor.ask("initialize", protocolVersion=1, clientCapabilities=files, clientInfo=name)
    opened = await editor.ask("session/new", cwd=str(demo.directory), mcpServers=[])
    session = opened["sessionId"]
    with live if demo.console.is_terminal else contextlib.nullcontext():
        ended = await editor.ask("session/prompt", sessionId=session, prompt=_text(BUILD))
    if not demo.console.is_terminal:
        demo.console.print(_card(editor))
    (call,) = editor.calls.values()
    text = editor.text(call)
    demo.check("the agent's turn succeeded", ended == {"stopReason": "end_turn"}, ended)
    demo.check("the editor displayed the output live", editor.updates >= 3, editor.updates)
    lines = text.splitlines()[-3:]
    expected = ["compiling 5 of 5", "[exit status 2]", "```"]
    demo.check("at the end it is complete, with the exit status", lines == expected, text)
    demo.step(
        "The user closes the editor while the agent's server runs",
        "The agent itself leaves its programs running.",
    )
    turn = asyncio.create_task(
        editor.ask("session/prompt", sessionId=session, prompt=_text(SERVER))
    )
    begun = time.monotonic()
    while len(still_running(demo.directory)) < 2 and time.monotonic() - begun < 5:  # noqa: ASYNC110
        await asyncio.sleep(0.02)  # other processes' children cannot be waited for
    demo.check(
        "two processes run", len(still_running(demo.directory)) == 2, still_running(demo.directory)
    )
    assert process.stdin
    process.stdin.close()
    await process.wait()
    turn.cancel()
    await editor.reading
    demo.check(
        "none of them is left", not still_running(demo.directory), still_running(demo.directory)
    )
    await prompt(demo)


async def prompt(demo: Demo) -> None:
    """Run the same agent from the shell."""
    demo.step(
        "The same agent from a script: acpterm prompt",
        "acpterm prompt 'seq 3; exit 4' --allow all -- python acp_agent.py",
    )
    done = await asyncio.to_thread(
        subprocess.run,
        [*ACPTERM, "prompt", "seq 3; exit 4", "--allow", "all", "--embedded", "--", *AGENT],
        capture_output=True,
        text=True,
        cwd=demo.directory,
        timeout=60,
    )
    for line in done.stdout.splitlines():
        demo.console.print(f"   {line}", markup=False)
    demo.check("it exits with status 0", done.returncode == 0, done)
    demo.check("it has printed the program's output", "  │ 3\n" in done.stdout, done.stdout)


def _text(text: str) -> list[JSON]:
    return [{"type": "text", "text": text}]


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(description="Show what acpterm proxy does.")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="write a picture instead")
    options = parser.parse_args()
    file = io.StringIO() if options.svg else None
    width = None if sys.stdout.isatty() and not options.svg else WIDTH
    console = Printer(record=bool(options.svg), file=file, width=width, highlight=False)
    with tempfile.TemporaryDirectory(prefix="acpterm-demo-") as directory:
        demo = Demo(console, Path(directory))
        try:
            asyncio.run(perform(demo))
        except (EOFError, OSError, subprocess.SubprocessError) as error:
            demo.failures.append(f"the demo failed: {type(error).__name__}: {error}")
        except KeyboardInterrupt:
            return 130
        finally:
            for pid in still_running(demo.directory):
                os.kill(pid, signal.SIGKILL)
    if demo.failures:
        console.print("\n[bold red]Failed checks:[/]")
        for line in demo.failures:
            console.print(f"   {line}", markup=False)
    else:
        console.print(f"\n[bold green]All {demo.checks} checks of the proxy passed.[/]")
    if options.svg:
        options.svg.write_text(picture(console))
    return 1 if demo.failures else 0


if __name__ == "__main__":
    sys.exit(main())
