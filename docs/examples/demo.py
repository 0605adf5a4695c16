"""`make demo`: acpterm's daemon, an example agent, and the agent's terminals live in colour.

The daemon is `python -m acpterm serve`. The agent uses `agent.py` in this directory, and connects
to the daemon's Unix socket. Every step is checked: the exit status is 0 if all checks pass,
otherwise 1, and the last lines name the failed checks. Takes some 7 seconds.

`--svg FILE` writes a picture instead.

Longer than 300 lines because each step of the demo is a function, next to the code that prints it.
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

from agent import JSON, Host, HostError, Terminal, initialize, report
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
    """The state of the demo: console, the agent's connection, and the results of the checks."""

    def __init__(self, console: Console, directory: Path) -> None:
        self.console = console
        self.directory = directory
        self.host: Host
        self.checks = 0
        self.failures: list[str] = []
        self.ended: list[tuple[str, str, str, str]] = []
        self._numbers = itertools.count(1)
        self._requests: dict[int, Text] = {}
        self._printed: set[str] = set()

    def step(self, title: str, why: str) -> None:
        """Print the title of a step, and why it is interesting."""
        self.console.print(f"\n[bold cyan]{next(self._numbers)}  {title}[/]\n   [dim]{why}[/]")

    def check(self, what: str, good: bool, found: object) -> None:
        """Print the result of the check `what`, and count it.

        If it is not `good`, record the check as failed, with the value that was `found`.
        """
        self.checks += 1
        mark = "[green]✓[/]" if good else "[bold red]✗[/]"
        self.console.print(f"   {mark} {escape(what)}")
        if not good:
            self.failures.append(f"{what}; found {found!r}")

    def wire(self, way: str, message: JSON) -> None:
        """Print a message in one line; print a request together with its response.

        `way` is "→" or "←". Reads, and lines that differ from an earlier one only in an id or a
        command, are left out.
        """
        if way == "←":
            line = self._requests.pop(message["id"])
            line.append(" ← ", style="blue")
            line.append(_short("error" in message, message.get("result", message.get("error"))))
        else:
            line = Text("   ")
            line.append("→ ", style="magenta")
            line.append(f"{message['method']} ", style="bold")
            params = {k: v for k, v in message["params"].items() if k != "terminalId"}
            line.append(_short(False, params).replace("{}", ""), style="dim")
            if "id" in message:
                self._requests[message["id"]] = line
                return
        known = re.sub(r'"(toolCallId|command)": ".*?"', "", line.plain)
        if known not in self._printed and "_acpterm/terminal/read" not in known:
            self._printed.add(known)
            line.truncate(self.console.width, overflow="ellipsis")
            self.console.print(line, no_wrap=True)

    async def create(self, call: str, title: str, command: str, **more: object) -> Terminal:
        """Start a command, and embed its terminal in a tool call."""
        terminal = await Terminal.create(self.host, SESSION, command, **more)
        content = [{"type": "terminal", "terminalId": terminal.id}]
        report(self.host, SESSION, call, title=title, status="in_progress", content=content)
        return terminal

    async def show(
        self, terminal: Terminal, title: str, question: bytes = b"", answer: str = ""
    ) -> None:
        """Display a terminal's output live until it exits; type `answer` after `question`."""
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
        """End a tool call, release its terminal, and return the result of `terminal/output`."""
        result = await terminal.output()
        state, end = _state(result["exitStatus"])
        report(self.host, SESSION, call, status=state)
        await terminal.release()
        self.ended.append((title, state, end, result["output"].rstrip("\n").rpartition("\n")[2]))
        return result


def _short(error: bool, body: Any) -> str:
    """Return the body of a message as JSON, shortened: without ids and repeated members."""
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
    """Return the status of a tool call, and text about the exit of its program.

    `status` is the exit status of the program; None while it runs.
    """
    if status is None:
        return "in_progress", ""
    if status["signal"]:
        return "failed", f"ended by {status['signal']}"
    return "completed" if status["exitCode"] == 0 else "failed", f"exit code {status['exitCode']}"


def _card(title: str, data: bytes, status: JSON | None) -> Padding:
    """Return a panel that looks like a client's display of a tool call with a terminal."""
    text = data.decode(errors="replace").replace("\r\n", "\n").rstrip("\n")
    # `from_ansi` keeps the colours, and of each line the text after its last carriage return.
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
    """Send `initialize`."""
    demo.step(
        "The agent connects to the daemon's socket and initializes",
        "[magenta]→[/] marks requests of the agent, [blue]←[/] responses of acpterm, "
        "in JSON. Each kind is shown once.",
    )
    answer = await initialize(demo.host)
    demo.check("acpterm has terminals", answer["clientCapabilities"]["terminal"], answer)


async def real_terminal(demo: Demo) -> None:
    """Run a program that inspects its terminal."""
    demo.step(
        "The agent runs a program in a real terminal, not a pipe",
        "Programs behave as they do for a user: colours, prompts, progress bars.",
    )
    size = {"acpterm": {"cols": 90, "rows": 24}}
    terminal = await demo.create("look", "Look around", LOOK, _meta=size)
    await demo.show(terminal, "Look around")
    result = await demo.finish("look", "Look around", terminal)
    text = result["output"]
    demo.check("the program has a terminal", "My output is a terminal.\n" in text, text)
    demo.check("its window has the requested size", "columns: 24 90\n" in text, text)
    demo.check("it exits with code 0", result["exitStatus"]["exitCode"] == 0, result)


async def progress(demo: Demo) -> None:
    """Run a program with a progress bar: the user sees it move, the agent reads one line."""
    demo.step(
        "A progress bar moves; the agent reads one line",
        "The box displays the program's raw output. The agent reads plain text at the end.",
    )
    terminal = await demo.create("tests", "Run the tests", TESTS)
    early = await terminal.output()
    demo.check("while it runs there is no exit status", "exitStatus" not in early, early)
    await demo.show(terminal, "Run the tests")
    result = await demo.finish("tests", "Run the tests", terminal)
    text = f"testing [{'=' * 24}] 24 of 24\n24 passed\n"
    demo.check("the text has two lines and no escape sequences", result["output"] == text, result)


async def failure(demo: Demo) -> None:
    """Run a program that fails."""
    demo.step("A program fails", "The agent gets its exit code.")
    terminal = await demo.create("lint", "Check the names", LINT)
    await demo.show(terminal, "Check the names")
    status = await terminal.wait()
    demo.check("exit code 3", (status["exitCode"], status["signal"]) == (3, None), status)
    await demo.finish("lint", "Check the names", terminal)


async def question(demo: Demo) -> None:
    """Run a program that asks a question, and answer it."""
    demo.step("A program asks a question", "The agent types the answer.")
    terminal = await demo.create("clean", "Clean up", ASK)
    await demo.show(terminal, "Clean up", b"[y/N] ", "n\n")
    result = await demo.finish("clean", "Clean up", terminal)
    demo.check("the program has read the answer", "You said: n\n" in result["output"], result)


async def time_out(demo: Demo) -> None:
    """Run a program that never exits, and kill its process tree."""
    demo.step(
        "A program never exits. The agent kills it after a second",
        "It has started two more processes: one left the session, one ignores SIGTERM.",
    )
    env = [{"name": "PIDS", "value": str(demo.directory / "pids")}]
    terminal = await demo.create("serve", "Start the server", SERVER, env=env)
    loop = asyncio.get_running_loop()
    showing = asyncio.create_task(demo.show(terminal, "Start the server"))
    waiting = asyncio.create_task(terminal.wait())
    try:
        done, _ = await asyncio.wait([waiting], timeout=1)
        running = still_running(demo.directory)
        begun = loop.time()  # a busy machine takes longer
        while not done and len(running) != 3 and loop.time() - begun < 20:
            done, _ = await asyncio.wait([waiting], timeout=0.05)
            running = still_running(demo.directory)
        good = not done and len(running) == 3
        demo.check("after a second its three processes run", good, running)
        started = loop.time()
        await terminal.kill()
        took = loop.time() - started
        demo.check("kill is answered within half a second", took < 0.5, took)
        status = await waiting
        await showing
    finally:  # for Ctrl-C
        showing.cancel()
        waiting.cancel()
    demo.check("the program was ended by SIGTERM", status["signal"] == "SIGTERM", status)
    # SIGKILL follows after a grace period of two seconds.
    while (running := still_running(demo.directory)) and loop.time() - started < 6:  # noqa: ASYNC110
        await asyncio.sleep(0.05)  # other processes' children cannot be waited for
    demo.check("two seconds later none of the three processes is left", not running, running)
    await demo.finish("serve", "Start the server", terminal)
    try:
        found: object = await terminal.output()
    except HostError as error:
        found = str(error)
    demo.check("after the release its id is invalid", "been released" in str(found), found)


async def summary(demo: Demo) -> None:
    """Print the tool calls as a client displays them after the terminals were released."""
    demo.step(
        "All terminals are released; their output stays visible",
        "A tool call retains its terminal's output for the user.",
    )
    for title, state, end, last in demo.ended:
        line = f"   {title:16}  [{COLOURS[state]}]{state:9}[/]  {end:16}  [dim]{escape(last)}[/]"
        demo.console.print(line, no_wrap=True, overflow="ellipsis")
    states = [state for _, state, _, _ in demo.ended]
    expected = ["completed", "completed", "failed", "completed", "failed"]
    demo.check("three tool calls have completed, two have failed", states == expected, states)


Step = Callable[[Demo], Coroutine[Any, Any, None]]
STEPS: tuple[Step, ...] = (hello, real_terminal, progress, failure, question, time_out, summary)


def still_running(directory: Path) -> list[int]:
    """Return the pids in the file `pids` whose processes still run; zombies do not count."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for pid in map(int, (directory / "pids").read_text().split()):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                os.kill(pid, 0)
                on_linux = os.path.exists("/proc/self/stat")
                stat = Path(f"/proc/{pid}/stat").read_text() if on_linux else ") R"
                if stat.rpartition(") ")[2][0] not in "ZX":
                    found.append(pid)
    return found


@contextlib.asynccontextmanager
async def daemon(directory: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, Path]]:
    """Run a daemon with default settings and a socket in `directory` during the block."""
    path, log = directory / "agent.sock", directory / "log"
    (directory / "config.toml").touch()
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACPTERM_")}
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "acpterm", "serve"),
            *("--socket", path, "--config", directory / "config.toml"),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=stderr,
            env=env,
        )
    try:
        async with asyncio.timeout(60):
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
    """Run all steps with a separate daemon."""
    demo.console.print(
        "[bold]acpterm[/] gives AI agents real terminals.\n"
        "An agent does not start programs itself. It sends requests of the Agent Client Protocol\n"
        "(ACP) to a terminal host; here that is the daemon `acpterm serve`."
    )
    async with daemon(demo.directory) as (process, path):
        demo.host = await Host.connect(str(path), watch=demo.wire)
        try:
            for step in STEPS:
                await step(demo)
        finally:
            await demo.host.close()
    demo.check("the daemon exits after SIGTERM", process.returncode == 0, process.returncode)
    demo.check("its socket is removed", not path.exists(), path)


class Printer(Console):
    """A console that ignores a closed stdout, as in `make demo | head`."""

    def on_broken_pipe(self) -> None:
        """Discard further output."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def picture(console: Console) -> str:
    """Return the printed text as SVG, with local fonts."""
    from rich._export_format import CONSOLE_SVG_FORMAT  # noqa: PLC0415  for the picture only

    template = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    template = re.sub(r"<!--.*?-->\s*", "", template)
    template = template.replace("<svg ", '<svg xml:space="preserve" ', 1)
    template = template.replace(
        "Fira Code, monospace", "Fira Code, DejaVu Sans Mono, Menlo, monospace"
    )
    return console.export_svg(title="make demo", code_format=template, unique_id="demo")


def main() -> int:
    """Run the demo; return the exit status."""
    parser = argparse.ArgumentParser(description="Show what acpterm does.")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="write a picture instead")
    options = parser.parse_args()
    if options.svg:
        console = Printer(record=True, file=io.StringIO(), width=WIDTH, highlight=False)
    elif sys.stdout.isatty():
        console = Printer(highlight=False)
    else:
        console = Printer(highlight=False, width=WIDTH)
    directory = Path(tempfile.mkdtemp(prefix="acpterm-demo-"))
    demo = Demo(console, directory)
    try:
        asyncio.run(perform(demo))
    except (HostError, EOFError, OSError) as error:
        demo.failures.append(f"the demo failed: {type(error).__name__}: {error}")
    except KeyboardInterrupt:
        return 130
    finally:
        for pid in still_running(directory):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(directory)
    if demo.failures:
        console.print("\n[bold red]Failed checks:[/]")
        for line in demo.failures:
            console.print(f"   {line}", markup=False)
    else:
        console.print(f"\n[bold green]All {demo.checks} checks passed.[/]")
    if options.svg:
        options.svg.write_text(picture(console))
    return 1 if demo.failures else 0


if __name__ == "__main__":
    sys.exit(main())
