"""`make demo`: acpterm's daemon, an example agent, and the agent's terminals live in colour.

The daemon is `python -m acpterm serve`, the agent uses `agent.py` beside this file, and between the
two there is nothing but a Unix socket. Every step is checked: the exit status is 0 only if all of
it came out as it should, else 1, and the last lines say what did not. Takes some 7 seconds.

`--svg FILE` writes a picture of it instead.
"""

import argparse
import asyncio
import contextlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from agent import JSON, Host, HostError, Terminal, initialize, tell
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

WIDTH = 92
SESSION = "demo"
COLOURS = {"in_progress": "yellow", "completed": "green", "failed": "red"}

LOOK = """\
test -t 1 && echo 'My output is a terminal.'
for c in 1 2 3 4 5 6; do printf '\\033[4%dm   \\033[0m' $c; done; echo
echo "My window's rows and columns: $(stty size)" """
TESTS = """\
i=0; while [ $i -le 24 ]; do
  printf '\\r\\033[36mtesting\\033[0m [\\033[32m%-24s\\033[0m] %d of 24' "$bar" $i
  i=$((i+1)); bar="$bar="; sleep 0.07
done; printf '\\n\\033[1;32m24 passed\\033[0m\\n'"""
LINT = """printf 'app.py:7: \\033[1;31merror\\033[0m: no such name: lenght\\n'; exit 3"""
ASK = """printf 'Delete build/? [y/N] '; read answer; echo "You said: $answer" """
# Three processes: one leaves the session, one ignores SIGTERM and SIGHUP, one is the shell.
SERVER = """\
$(command -v setsid) sleep 300 & echo $! > "$PIDS"
(trap '' TERM HUP; while :; do sleep 0.2; done) & echo $! >> "$PIDS"
echo $$ >> "$PIDS"
echo 'Serving on port 8000, for ever …'
sleep 300"""


class Demo:
    """What the steps share: where to print, the agent's connection, and what was checked."""

    def __init__(self, console: Console, folder: Path) -> None:
        self.console = console
        self.folder = folder
        self.host: Host
        self.checks = 0
        self.failures: list[str] = []
        self.ended: list[tuple[str, str, str, str]] = []
        self._numbers = itertools.count(1)
        self._asked: dict[int, Text] = {}
        self._shown: set[str] = set()

    def step(self, title: str, why: str) -> None:
        """Begin a step."""
        self.console.print(f"\n[bold cyan]{next(self._numbers)}  {title}[/]\n   [dim]{why}[/]")

    def check(self, what: str, good: bool, found: object) -> None:
        """Note whether something is as it should be, and say so."""
        self.checks += 1
        mark = "[green]✓[/]" if good else "[bold red]✗[/]"
        self.console.print(f"   {mark} {escape(what)}")
        if not good:
            self.failures.append(f"{what}; found {found!r}")

    def wire(self, way: str, message: JSON) -> None:
        """Show a request with its answer, or a notification, in one line: each kind once."""
        if way == "←":
            line = self._asked.pop(message["id"])
            line.append(" ← ", style="blue")
            line.append(_short("error" in message, message.get("result", message.get("error"))))
        else:
            line = Text("   ")
            line.append("→ ", style="magenta")
            line.append(f"{message['method']} ", style="bold")
            params = {k: v for k, v in message["params"].items() if k != "terminalId"}
            line.append(_short(False, params).replace("{}", ""), style="dim")
            if "id" in message:
                self._asked[message["id"]] = line
                return
        known = re.sub(r'"(toolCallId|command)": ".*?"', "", line.plain)
        if known not in self._shown and "_acpterm/terminal/read" not in known:
            self._shown.add(known)
            line.truncate(self.console.width, overflow="ellipsis")
            self.console.print(line, no_wrap=True)

    async def create(self, call: str, title: str, command: str, **more: object) -> Terminal:
        """Start a command, and say which tool call shows it."""
        terminal = await Terminal.create(self.host, SESSION, command, **more)
        content = [{"type": "terminal", "terminalId": terminal.id}]
        tell(self.host, SESSION, call, title=title, status="in_progress", content=content)
        return terminal

    async def show(
        self, terminal: Terminal, title: str, question: bytes = b"", answer: str = ""
    ) -> None:
        """Show live what a terminal prints, until it has exited; answer its question, if any."""
        data, position, status = b"", 0, None
        live = Live(console=self.console, refresh_per_second=20)
        with live if self.console.is_terminal else contextlib.nullcontext():
            while True:
                live.update(_card(title, data, status))
                more, position, status = await terminal.read(position)
                data += more
                if status and not more:
                    break
                if answer and question in data:
                    live.update(_card(title, data, status))
                    await asyncio.sleep(0.5)
                    await terminal.write(answer)
                    answer = ""
            live.update(_card(title, data, status))
        if not self.console.is_terminal:
            self.console.print(_card(title, data, status))

    async def finish(self, call: str, title: str, terminal: Terminal) -> JSON:
        """End a tool call: what `terminal/output` says, after the terminal's release."""
        result = await terminal.output()
        state, end = _state(result["exitStatus"])
        tell(self.host, SESSION, call, status=state)
        await terminal.release()
        self.ended.append((title, state, end, result["output"].rstrip("\n").rpartition("\n")[2]))
        return result


def _short(error: bool, body: Any) -> str:
    """Write a message's body without what repeats itself and what a first look can do without."""
    if error:
        return f"error {body['code']}: {re.sub(r'term_[0-9a-f]+', 'term_…', body['message'])}"
    text = json.dumps(_plain(body.get("update", body)), ensure_ascii=False)
    return re.sub(r"term_[0-9a-f]+", "term_…", text)


def _plain(body: JSON) -> JSON:
    hidden = ("_meta", "sessionId", "clientInfo", "env", "fs", "sessionUpdate", "title")
    body = {k: _plain(v) if isinstance(v, dict) else v for k, v in body.items() if k not in hidden}
    if len(body.get("command", "")) > 40:
        body["command"] = body["command"][:40] + "…"
    if "output" in body:
        body["output"] = "…"
    return body


def _state(status: JSON | None) -> tuple[str, str]:
    """Give the state of a tool call, and how its program ended."""
    if status is None:
        return "in_progress", ""
    if status["signal"]:
        return "failed", f"ended by {status['signal']}"
    return "completed" if status["exitCode"] == 0 else "failed", f"exit code {status['exitCode']}"


def _card(title: str, data: bytes, status: JSON | None) -> Padding:
    """Draw what a client would show of a tool call with a terminal in it."""
    text = data.decode(errors="replace").replace("\r\n", "\n").rstrip("\n")
    # `from_ansi` keeps the colours; of a line, what was written after its last carriage return.
    lines = Group(*map(Text.from_ansi, text.split("\n")))
    state, end = _state(status)
    colour = COLOURS[state]
    panel = Panel(
        lines,
        title=f"[bold]{title}[/] · [{colour}]{state}[/]",
        subtitle=f"[{colour}]{end}[/]" if end else None,
        title_align="left",
        subtitle_align="right",
        border_style=colour,
        width=WIDTH - 20,
    )
    return Padding(panel, (0, 0, 0, 3))


async def hello(demo: Demo) -> None:
    """Connect, and ask what there is."""
    demo.step(
        "The agent connects to the daemon's socket and asks what there is",
        "[magenta]→[/] is what the agent says, [blue]←[/] what acpterm answers, "
        "in JSON. Each kind is shown once.",
    )
    answer = await initialize(demo.host)
    demo.check("acpterm has terminals", answer["clientCapabilities"]["terminal"], answer)


async def real_terminal(demo: Demo) -> None:
    """Run a program that looks at its terminal."""
    demo.step(
        "The agent runs a program. It gets a real terminal, not a pipe",
        "So programs behave as they do for a person: colours, prompts, progress bars.",
    )
    size = {"acpterm": {"cols": 90, "rows": 24}}
    terminal = await demo.create("look", "Look around", LOOK, _meta=size)
    await demo.show(terminal, "Look around")
    result = await demo.finish("look", "Look around", terminal)
    text = result["output"]
    demo.check(
        "the program says that it has a terminal", "My output is a terminal.\n" in text, text
    )
    demo.check("its window has the size that was asked for", "columns: 24 90\n" in text, text)
    demo.check("it ends with exit code 0", result["exitStatus"]["exitCode"] == 0, result)


async def progress(demo: Demo) -> None:
    """Run a program with a progress bar: live for the person, one line for the agent."""
    demo.step(
        "A progress bar moves; the agent will read one clean line of it",
        "The box follows the program's raw output. What the agent reads at the end is plain text.",
    )
    terminal = await demo.create("tests", "Run the tests", TESTS)
    early = await terminal.output()
    demo.check("asked while it runs, no exit status yet", "exitStatus" not in early, early)
    await demo.show(terminal, "Run the tests")
    result = await demo.finish("tests", "Run the tests", terminal)
    text = f"testing [{'=' * 24}] 24 of 24\n24 passed\n"
    demo.check("the text has two lines and no escape codes", result["output"] == text, result)


async def failure(demo: Demo) -> None:
    """Run a program that fails."""
    demo.step("A program fails", "Its exit code is told as it is.")
    terminal = await demo.create("lint", "Check the names", LINT)
    await demo.show(terminal, "Check the names")
    status = await terminal.wait()
    demo.check("exit code 3", (status["exitCode"], status["signal"]) == (3, None), status)
    await demo.finish("lint", "Check the names", terminal)


async def question(demo: Demo) -> None:
    """Run a program that asks, and answer it."""
    demo.step("A program asks, and waits for an answer", "The agent types one.")
    terminal = await demo.create("clean", "Clean up", ASK)
    await demo.show(terminal, "Clean up", b"[y/N] ", "n\n")
    result = await demo.finish("clean", "Clean up", terminal)
    demo.check("the program has read it", "You said: n\n" in result["output"], result)


async def time_out(demo: Demo) -> None:
    """Run a program that never ends, and kill it with all that it started."""
    demo.step(
        "A program never ends. The agent gives it a second, then has it killed",
        "It has started two more: one has left its session, one ignores SIGTERM.",
    )
    env = [{"name": "PIDS", "value": str(demo.folder / "pids")}]
    terminal = await demo.create("serve", "Start the server", SERVER, env=env)
    loop = asyncio.get_running_loop()
    showing = asyncio.create_task(demo.show(terminal, "Start the server"))
    waiting = asyncio.create_task(terminal.wait())
    try:
        done, _ = await asyncio.wait([waiting], timeout=1)
        running = still_running(demo.folder)
        good = not done and len(running) == 3
        demo.check("after a second its three processes run", good, running)
        asked = loop.time()
        await terminal.kill()
        took = loop.time() - asked
        demo.check("kill is answered within half a second", took < 0.5, took)
        status = await waiting
        await showing
    finally:  # for Ctrl-C
        showing.cancel()
        waiting.cancel()
    demo.check("the program has ended by SIGTERM", status["signal"] == "SIGTERM", status)
    # Who ignores SIGTERM has two seconds of grace; then comes SIGKILL.
    while (running := still_running(demo.folder)) and loop.time() - asked < 6:  # noqa: ASYNC110
        await asyncio.sleep(0.05)  # nothing tells of the end of another's children
    demo.check("two seconds later none of the three is left", not running, running)
    await demo.finish("serve", "Start the server", terminal)
    try:
        found: object = await terminal.output()
    except HostError as error:
        found = str(error)
    demo.check("once released, it is no longer the agent's", "been released" in str(found), found)


async def summary(demo: Demo) -> None:
    """Show the tool calls as a client goes on showing them."""
    demo.step(
        "All terminals are released; what they showed stays on show",
        "A tool call keeps its terminal's output for the person.",
    )
    for title, state, end, last in demo.ended:
        line = f"   {title:16}  [{COLOURS[state]}]{state:9}[/]  {end:16}  [dim]{escape(last)}[/]"
        demo.console.print(line, no_wrap=True, overflow="ellipsis")
    states = [state for _, state, _, _ in demo.ended]
    right = ["completed", "completed", "failed", "completed", "failed"]
    demo.check("three tool calls have completed, two have failed", states == right, states)


Step = Callable[[Demo], Coroutine[Any, Any, None]]
STEPS: tuple[Step, ...] = (hello, real_terminal, progress, failure, question, time_out, summary)


def still_running(folder: Path) -> list[int]:
    """Give those of the processes noted in `folder` that run; a zombie does not."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for pid in map(int, (folder / "pids").read_text().split()):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                os.kill(pid, 0)
                on_linux = os.path.exists("/proc/self/stat")
                stat = Path(f"/proc/{pid}/stat").read_text() if on_linux else ") R"
                if stat.rpartition(") ")[2][0] not in "ZX":
                    found.append(pid)
    return found


@contextlib.asynccontextmanager
async def daemon(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path]]:
    """Run a daemon with its default settings and a socket in `folder`; end it with the block."""
    path, log = folder / "agent.sock", folder / "log"
    (folder / "config.toml").touch()
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACPTERM_")}
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "acpterm", "serve"),
            *("--socket", path, "--config", folder / "config.toml"),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=stderr,
            env=env,
        )
    try:
        async with asyncio.timeout(10):
            while not path.exists():
                if process.returncode is not None:
                    raise OSError(f"the daemon did not start: {log.read_text()}")
                await asyncio.sleep(0.01)
        yield process, path
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(8):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def perform(demo: Demo) -> None:
    """Do it all, with a daemon of its own."""
    demo.console.print(
        "[bold]acpterm[/] gives AI agents real terminals.\n"
        "An agent that wants to run a program does not start it itself. It asks a terminal host,\n"
        "by the Agent Client Protocol (ACP); here that is the daemon `acpterm serve`."
    )
    async with daemon(demo.folder) as (process, path):
        demo.host = await Host.connect(str(path), watch=demo.wire)
        try:
            for step in STEPS:
                await step(demo)
        finally:
            await demo.host.close()
    demo.check("the daemon ends when it is asked to", process.returncode == 0, process.returncode)
    demo.check("and removes its socket", not path.exists(), path)


class Printer(Console):
    """A console that goes on in silence when nobody reads any more, as in `make demo | head`."""

    def on_broken_pipe(self) -> None:
        """Print to nowhere from now on."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def picture(console: Console) -> str:
    """Draw what was printed, with fonts of the reader's own machine."""
    from rich._export_format import CONSOLE_SVG_FORMAT  # noqa: PLC0415  for the picture only

    form = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    form = re.sub(r"<!--.*?-->\s*", "", form)
    form = form.replace("<svg ", '<svg xml:space="preserve" ', 1)
    form = form.replace("Fira Code, monospace", "Fira Code, DejaVu Sans Mono, Menlo, monospace")
    return console.export_svg(title="make demo", code_format=form, unique_id="demo")


def main() -> int:
    """Run the demo: its exit status."""
    parser = argparse.ArgumentParser(description="Show what acpterm does.")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="write a picture instead")
    options = parser.parse_args()
    if options.svg:
        console = Printer(record=True, file=io.StringIO(), width=WIDTH, highlight=False)
    elif sys.stdout.isatty():
        console = Printer(highlight=False)
    else:
        console = Printer(highlight=False, width=WIDTH)
    folder = Path(tempfile.mkdtemp(prefix="acpterm-demo-"))
    demo = Demo(console, folder)
    try:
        asyncio.run(perform(demo))
    except (HostError, EOFError, OSError) as error:
        demo.failures.append(f"the demo broke off: {type(error).__name__}: {error}")
    except KeyboardInterrupt:
        return 130
    finally:
        for pid in still_running(folder):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder)
    if demo.failures:
        console.print("\n[bold red]Not as it should be:[/]")
        for line in demo.failures:
            console.print(f"   {line}", markup=False)
    else:
        console.print(f"\n[bold green]All {demo.checks} checks passed.[/]")
    if options.svg:
        options.svg.write_text(picture(console))
    return 1 if demo.failures else 0


if __name__ == "__main__":
    sys.exit(main())
