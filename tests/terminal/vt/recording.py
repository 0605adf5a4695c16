"""Record the sessions of programs that `test_vt_sessions` plays: `python -m …recording [NAME…]`.

Each program runs on a PTY; it receives the emulator's replies, scripted keys and size changes. Its
output is written as an asciicast (version 2), with the size changes at their positions.
"""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from acpterm.terminal.vt.emulator import Emulator

SESSIONS = Path(__file__).parent / "sessions"
COLS, ROWS = 80, 24
TEXT = "".join(
    f"{n:3} def f(x): return 'a string {n}'  # wörds 日本語 and more\n" for n in range(200)
)
WIDE = (
    # Full-width characters, some of them at the edge of the window.
    "漢字かな한글 \uff46\uff55\uff4c\uff4c\uff5c\nabcdefghi漢字 at the edge of the window: "
    + "漢字" * 15
    + "x\ne\u0301 o\u0308 n\u0303 ~ \u0915\u094d\u0937 ~ ก็ ~ ע\u05b4 | combining\n"
    "│─┌┐└┘├┤ ▀▄█ ░▒▓ → ⇒ ∀∂ | single\n"
)
EMOJI = (
    "😀 🎉 🚀 |\n👍🏽 👩🏿 |\n👩\u200d💻 👨\u200d👩\u200d👧\u200d👦 |\n🇩🇪 🇯🇵 |\n"
    "❤\ufe0f ☎\ufe0f |\n1\ufe0f\u20e3 #\ufe0f\u20e3 |\n"
)
COLOURS = "".join(
    f"\\033[38;5;{n}m{n:4}\\033[48;2;{n};{255 - n};128m \\033[4:3m~\\033[0m"
    + ("\\n" if n % 12 == 11 else "")
    for n in range(120)
)
Size = tuple[int, int]
# Command, and the steps to take each time it is silent: keys, or a new size.
PROGRAMS: dict[str, tuple[list[str], list[str | Size]]] = {
    "vim": (
        [
            "vim",
            "-u",
            "NONE",
            "-i",
            "NONE",
            "-N",
            "-n",
            "-c",
            "syntax on",
            "-c",
            "set hls ls=2 nu",
            "text.py",
        ],
        ["", "/string\r", "20G", ":split\r", "\x06", "ddp", ":set list\r"],
    ),
    "vim-resize": (
        [
            "vim",
            "-u",
            "NONE",
            "-i",
            "NONE",
            "-N",
            "-n",
            "-c",
            "syntax on",
            "-c",
            "set ls=2",
            "text.py",
        ],
        ["", "30G", (60, 30), ":vsplit\r", (100, 20), "ihello 日本\x1b"],
    ),
    "less": (["less", "-N", "text.py"], ["", "/return\r", "f", "10j", "3k", "G", "b"]),
    "less-resize": (["less", "text.py"], ["", "f", (50, 12), "f", (90, 30), "b"]),
    "nano": (["nano", "-I", "text.py"], ["", "abc", "\x16", "\x19", "\x17def\r"]),
    "htop": (["sh", "-c", "exec htop -d 10 -p $$"], ["", "\x1b[B\x1b[B", "t", "", (100, 20), ""]),
    "mc": (["mc", "-d", "-u", "-x"], ["", "\x1b[B\x1b[B", "\t", "\x1bOR", ""]),
    "tig": (["tig", "--all"], ["", "\x1b[B", "\r", "\x1b[B\x1b[B"]),
    "bash": (
        ["bash", "--norc", "--noprofile"],
        [
            "PS1='\\[\\e[32m\\]\\w\\[\\e[m\\]\\$ '\r",
            "ls --color=always -l /usr | head\r",
            "echo 'a long line that goes on and on until the window ends, then on the next'\r",
            "for i in 1 2 3; do echo $i; done\r",
            "cat wide.txt\r",
            "echo hel\x1b[D\x1b[Dxx\x01# \r",
        ],
    ),
    "bash-resize": (
        ["bash", "--norc", "--noprofile"],
        [
            "PS1='$ '\r",
            "echo " + "0123456789" * 7 + " wrapped by less\r",
            (40, 20),
            "seq 5\r",
            (100, 24),
            "echo done\r",
        ],
    ),
    "fish": (
        ["fish", "--no-config"],
        ["", "echo hello\r", "ls /usr\r", "echo he", "\t", "\x03", "set x 1; and echo $x\r"],
    ),
    "tmux": (
        ["tmux", "-L", "recorded", "-f", "/dev/null", "new", "sh"],
        ["", "echo one\r", "\x02%", "echo two\r", '\x02"', "ls /usr\r", "\x02o"],
    ),
    "bat": (
        [
            "batcat",
            "--color=always",
            "--paging=never",
            "--theme=Dracula",
            "--line-range=:40",
            "text.py",
        ],
        [""],
    ),
    "rg": (["rg", "--color=always", "-n", "string 1[0-9] ", "text.py"], [""]),
    "python": ([sys.executable, "-q"], ["for i in range(3): print(i)\r\r", "1/0\r", "'日本'*3\r"]),
    "wide": (["cat", "wide.txt"], [""]),
    "emoji": (["cat", "emoji.txt"], [""]),
    "colours": (["printf", COLOURS], [""]),
    "progress": (
        [
            "sh",
            "-c",
            "for n in 1 2 3 4 5; do printf '\\r\\033[K[%-5s] %d%%' $n ${n}0; done; echo; echo up",
        ],
        [""],
    ),
}


def record(name: str, directory: Path) -> None:
    command, steps = PROGRAMS[name]
    (directory / "text.py").write_text(TEXT)
    (directory / "wide.txt").write_text(WIDE)
    (directory / "emoji.txt").write_text(EMOJI)
    if name == "tig":
        make_repository(directory)
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (ROWS, COLS))
    env = {
        "PATH": os.environ["PATH"],
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
        "HOME": str(directory),
        "COLORTERM": "truecolor",
    }
    program = subprocess.Popen(
        ["setsid", "-c", *command], stdin=slave, stdout=slave, stderr=slave, cwd=directory, env=env
    )
    os.close(slave)
    emulator = Emulator(COLS, ROWS, lambda reply: os.write(master, reply))
    events: list[list[object]] = []
    written = bytearray()

    def flush() -> None:
        if written:
            text = bytes(written).decode("utf-8", "surrogateescape")
            events.append([len(events), "o", text])
            written.clear()

    with contextlib.suppress(OSError):
        for step in steps:
            if isinstance(step, tuple):
                flush()
                termios.tcsetwinsize(master, step[::-1])
                emulator.resize(*step)
                events.append([len(events), "r", f"{step[0]}x{step[1]}"])
            else:
                os.write(master, step.encode())
            wait, until = 1.5, time.monotonic() + 3
            while select.select([master], [], [], wait)[0] and time.monotonic() < until:
                data = os.read(master, 65536)
                written += data
                emulator.feed(data)
                wait = 0.3
    flush()
    if name == "tmux":
        subprocess.run(["tmux", "-L", "recorded", "kill-server"], check=False, capture_output=True)
    program.send_signal(signal.SIGKILL)
    program.wait()
    os.close(master)
    header = {"version": 2, "width": COLS, "height": ROWS, "title": name}
    lines = [json.dumps(header), *(json.dumps(event) for event in events)]
    whole = "\n".join(lines) + "\n"
    whole = re.sub(re.escape(str(directory)), "/tmp/recorded", whole)
    (SESSIONS / f"{name}.cast").write_text(whole)


def make_repository(directory: Path) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
        "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
    }
    subprocess.run(["git", "init", "-q"], check=True, capture_output=True, cwd=directory, env=env)
    for number in range(3):
        (directory / "file").write_text(f"{number}\n" * 5)
        subprocess.run(["git", "add", "."], check=True, capture_output=True, cwd=directory, env=env)
        identity = ["-c", "user.name=A User", "-c", "user.email=user@example.org"]
        subprocess.run(
            ["git", *identity, "commit", "-qm", f"Commit {number} with wörds"],
            check=True,
            capture_output=True,
            cwd=directory,
            env=env,
        )


if __name__ == "__main__":
    for name in sys.argv[1:] or PROGRAMS:
        with tempfile.TemporaryDirectory() as directory:
            record(name, Path(directory))
