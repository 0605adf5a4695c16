"""Make the moving picture of the README: `python docs/moving_picture.py docs/acpterm.svg`.

In a daemon of its own, an agent starts two programs. A user types commands into a shell, which is
a terminal of acpterm too. `acpterm export` writes the shell's recording, an asciicast, and each
row of each of its screens becomes a text of an animated SVG.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import trio

import acpterm
from acpterm.commands.export.picture import HEIGHT, svg
from acpterm.terminal.vt.emulator import Emulator
from acpterm.terminal.vt.rows import rows

COLS, ROWS = 88, 21
# In seconds: the time of a typed key, the longest pause that is shown, and the pause at the end.
KEY_S, PAUSE_MAX_S, END_S = 0.06, 2.2, 4.0
PROMPT = re.compile(r"~/shop\s*\$ $")
PROGRAMS = {
    "server": "echo '  ready on http://localhost:5173'; exec sleep 1000",
    "deploy": r"""
printf 'build   \033[32mok\033[m\ntests   \033[32m41 passed\033[m\n'
printf 'Deploy 3 files to \033[1mproduction\033[m? [y/N] '; read -r answer
for file in app.js index.html style.css; do
  sleep 0.4
  printf '  %-12s\033[32muploaded\033[m\n' $file
done
""",
}
ROW = re.compile(r' y="([\d.]+)"')


async def agent() -> None:
    """Be the agent: run the programs until stdin closes."""
    async with acpterm.connect(agent="my-agent", session="shop") as client:
        await client.create("./server", name="server")
        deploy = await client.create("./deploy", name="deploy")
        await deploy.wait_for(until_input=True, timeout=30)
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


class Shell:
    """The user's shell."""

    def __init__(self, terminal: acpterm.Terminal) -> None:
        self._terminal = terminal
        self._position = 0

    async def type(self, text: str, then: str | re.Pattern[str] = PROMPT) -> None:
        """Type as a user does, and wait until the output ends with `then`."""
        for key in text:
            await self._terminal.write(key)
            await trio.sleep(KEY_S)
        await trio.sleep(0.3)
        self._position = (await self._terminal.info()).position
        await self._terminal.write("\r")
        await self.until(then)

    async def until(self, shown: str | re.Pattern[str]) -> None:
        """Wait until the output since the last key ends with `shown`."""
        found = await self._terminal.wait_for(shown, since=self._position, timeout=30)
        self._position = found.position
        await trio.sleep(1.5)


async def record(directory: Path) -> None:
    """Run the agent and the user's commands."""
    helper = await trio.lowlevel.open_process(
        [sys.executable, __file__, "agent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=directory / "shop",
    )
    assert helper.stdin is not None
    assert helper.stdout is not None
    await helper.stdout.receive_some()
    async with acpterm.connect(cwd=directory / "shop") as client:
        env = {"PS1": r"\[\e[1;34m\]\w\[\e[m\] $ "}
        terminal = await client.create(
            "bash", ["--norc", "--noprofile"], name="shell", cols=COLS, rows=ROWS, env=env
        )
        shell = Shell(terminal)
        await shell.until(PROMPT)
        await shell.type("acpterm ls    # what do my agents run?")
        await shell.type("acpterm attach deploy    # answer the question", "N] ")
        await shell.type("y")
        await shell.type("acpterm promote server    # take over: it outlives the agent")
        await helper.stdin.aclose()
        await helper.wait()
        await shell.type("acpterm ls --all")
        await shell.type("acpterm kill server")
        exported = directory / "shell.cast"
        await run("export", "shell", "-o", str(exported))
        await terminal.release()


async def run(*words: str) -> None:
    """Run a command of acpterm."""
    await trio.run_process([sys.executable, "-m", "acpterm", *words], capture_stdout=True)


def frames(cast: str) -> list[tuple[float, list[str]]]:
    """Return the screens of a recording, each with the time in seconds when it is shown."""
    _, *events = map(json.loads, cast.splitlines())
    is_relative = json.loads(cast.partition("\n")[0])["version"] == 3
    emulator = Emulator(COLS, ROWS)
    shown, before, found = 0.0, 0.0, []
    for time, kind, data in events:
        pause = time if is_relative else time - before
        before = time
        shown += min(pause, PAUSE_MAX_S)
        if kind == "o":
            emulator.feed(data.encode())
            screen = emulator.screen()
            found.append((round(shown, 2), rows(screen)))
    return found


def animated(screens: list[tuple[float, list[str]]]) -> str:
    """Return the animated SVG: each content of a row is visible while it is on the screen."""
    end = screens[-1][0] + END_S
    head = ""
    intervals: dict[str, list[tuple[float, float]]] = {}
    for (start, lines), after in zip(screens, [*(at for at, _ in screens[1:]), end], strict=True):
        head, _, body = svg(lines, COLS, "~/shop").partition('<g transform="translate(12 42)">\n')
        elements, _, _ = body.partition("</g>\n</svg>")
        by_row: dict[int, str] = {}
        for element in elements.splitlines():
            y = int(float(ROW.search(element)[1])) // HEIGHT
            by_row[y] = by_row.get(y, "") + element
        for row in by_row.values():
            times = intervals.setdefault(row, [])
            if times and times[-1][1] == start:
                times[-1] = (times[-1][0], after)
            else:
                times.append((start, after))
    parts = [head, '<g transform="translate(12 42)">\n']
    for row, times in intervals.items():
        values, key_times = (["hidden"], ["0"]) if times[0][0] > 0 else ([], [])
        for start, after in times:
            values += ["visible", "hidden"]
            key_times += [f"{start / end:.5g}", f"{after / end:.5g}"]
        if times[-1][1] == end:
            del values[-1], key_times[-1]
        # Without animation, the last screen is visible.
        parts.append(
            f'<g visibility="{values[-1]}"><animate attributeName="visibility" '
            f'values="{";".join(values)}" keyTimes="{";".join(key_times)}" dur="{end:g}s" '
            f'calcMode="discrete" repeatCount="indefinite"/>{row}</g>\n'
        )
    return "".join([*parts, "</g>\n</svg>\n"])


def main(picture: str) -> None:
    """Write the moving picture to the file `picture`."""
    with tempfile.TemporaryDirectory(prefix="acpterm-picture-") as path:
        directory = Path(path)
        shop = directory / "shop"
        shop.mkdir()
        for name, script in PROGRAMS.items():
            (shop / name).write_text(f"#!/bin/sh\n{script}")
            (shop / name).chmod(0o755)
        for name in [name for name in os.environ if name.startswith(("ACPTERM_", "XDG_"))]:
            del os.environ[name]
        os.environ |= {
            "HOME": path,
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "ACPTERM_SOCKET": f"{path}/agent.sock",
        }
        try:
            trio.run(record, directory)
            Path(picture).write_text(animated(frames((directory / "shell.cast").read_text())))
        finally:
            trio.run(run, "shutdown")


if __name__ == "__main__":
    if sys.argv[1:] == ["agent"]:
        trio.run(agent)
    else:
        main(sys.argv[1])
