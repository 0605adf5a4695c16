"""Command lines of agents do in acpterm what they do in bash in a person's terminal.

Each line of `lines.toml` runs in acpterm and in a plain terminal, in the same directory with the
same files and environment. Text, exit status, files and remaining processes must be the same.
A line is a string, or a table:

- `run`: the line, or a list of words: a program with arguments;
- `type`: pairs of text to wait for and keys to type then;
- `later`: text that is printed after the exit;
- `leaves`: the processes that remain, as `ps` shows them;
- `env`: variables of the agent; `cwd`: a directory in the project's parent, instead of `work`;
- `fill`: bytes that replace `@FILL@` in the line;
- `mask`: a pattern of what differs between two runs;
- `differs`: why acpterm differs. Then it must differ.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import trio

from acpterm.config import Settings
from acpterm.host.host import Host
from acpterm.host.open_host import open_host
from acpterm.jsonrpc import RpcError
from acpterm.pty.signals import decode_status
from acpterm.runtime.exec_context import current
from tests.support.agent import Agent, agent_of
from tests.support.depth import DEADLINE_S
from tests.support.plain_terminal import PlainTerminal, plain_terminal
from tests.support.polling import poll

TABLE: dict[str, list[Any]] = {
    name: section["lines"]
    for name, section in tomllib.loads(Path(__file__).with_name("lines.toml").read_text()).items()
}
QUICK = {"background", "directories"}
BASH = "/bin/bash"
AT_ONCE = 3
MARK = "LINE_OF_THE_TABLE"
CONTENT_MAX = 4000

# The same dates make the same commits.
_DATE = "2026-03-01T12:00:00+0000"
CONTEXT = {
    "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "USER": "agent",
    "LOGNAME": "agent",
    "SHELL": "/bin/bash",
    "npm_config_update_notifier": "false",
    "npm_config_logs_max": "0",
    "GIT_AUTHOR_DATE": _DATE,
    "GIT_COMMITTER_DATE": _DATE,
}


Status = tuple[int | None, str | None]


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of the table."""

    run: str | list[str]
    type: list[list[str]] = []
    later: str = ""
    leaves: list[str] = []
    env: dict[str, str] = {}
    cwd: str = "work"
    fill: int = 0
    mask: str = ""
    differs: str = ""

    @property
    def text(self) -> str:
        assert isinstance(self.run, str)
        return self.run.replace("@FILL@", "0123456789abcde\n" * (self.fill // 16))

    def variables(self, base: Path, port: int) -> dict[str, str]:
        return {"HOME": str(base / "home"), "PORT": str(port), MARK: str(base), **self.env}


class Found(NamedTuple):
    """What a line did."""

    text: str
    status: Status
    processes: list[str]
    files: dict[str, str]


class Like(NamedTuple):
    """What a plain terminal must have as acpterm's terminals have it."""

    env: dict[str, str]
    size: tuple[int, int]


def lines_of(section: str) -> list[Line]:
    return [
        Line(run=one) if isinstance(one, str) else msgspec.convert(one, Line)
        for one in TABLE[section]
    ]


# Files


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a home and a project, which each line gets as a copy."""
    base = tmp_path_factory.mktemp("template")
    script = Path(__file__).with_name("project.sh")
    env = {**CONTEXT, "HOME": str(base / "home")}
    subprocess.run(["sh", str(script)], env=env, check=True, cwd=base)
    for path in (base, *base.rglob("*")):
        os.utime(path, (1_770_000_000, 1_770_000_000), follow_symlinks=False)
    return base


def fresh(template: Path, base: Path, line: Line) -> None:
    """Make the directory of a line anew, with the repository if the line needs it."""
    if base.exists():
        base.rename(f"{base}.before")
    ignore = None if "git" in str(line.run) else shutil.ignore_patterns(".git")
    shutil.copytree(template, base, symlinks=True, ignore=ignore)
    if line.fill:
        Path(f"{base}.text").write_text(line.text)


def files_in(base: Path) -> dict[str, str]:
    found = {}
    for path in base.rglob("*"):
        name = str(path)[len(str(base)) + 1 :]
        mode = path.lstat().st_mode
        if path.is_symlink():
            content = f"-> {os.readlink(path)}"
        elif path.is_file() and not (".git/" in name and path.name == "index"):
            data = path.read_bytes()
            content = data.decode(errors="replace")
            if len(data) > CONTENT_MAX:
                content = hashlib.sha256(data).hexdigest()
        else:
            content = ""
        found[name] = f"{mode:o} {content}"
    return found


# Processes


def remaining(bases: list[Path]) -> dict[Path, dict[int, str]]:
    """Return the processes of each line by their pids, described as far as acpterm matters."""
    found: dict[Path, dict[int, str]] = {base: {} for base in bases}
    known = {f"{MARK}={base}".encode(): base for base in bases}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            base = next((known[one] for one in variables if one in known), None)
            if base is None:
                where = Path(os.readlink(entry / "cwd"))
                base = next((one for one in bases if where.is_relative_to(one)), None)
            if base is None:
                continue
            words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            found_ignored = re.search(r"SigIgn:\s*(\w*)", (entry / "status").read_text())
        except OSError:
            continue
        # Signals 32 and 33 are the C library's own.
        ignored = int(found_ignored[1], 16) & ~(0b11 << 31) if found_ignored else 0
        pid, state, group, session, tty = int(entry.name), stat[0], stat[2], stat[3], stat[4]
        leaders = (b"session_leader.py", b"acpterm-session")
        if state in "ZX" or any(one in b" ".join(words) for one in leaders):
            continue
        facts = [
            *(["stopped"] if state == "T" else []),
            *(["leads session"] if session == entry.name else []),
            *(["leads group"] if group == entry.name else []),
            *(["no terminal"] if tty == "0" else []),
            *([f"ignores {ignored:x}"] if ignored else []),
        ]
        line = b" ".join(words).decode(errors="replace")
        found[base][pid] = f"{line}  ({', '.join(facts)})"
    return found


async def settled(lines: dict[Path, Line], *, differs: bool) -> dict[Path, list[str]]:
    """Return the processes of each line once they are those that the table names.

    `differs`: whether those of a line that `differs` may be others.
    """

    def named(line: Line, processes: Mapping[int, str]) -> bool:
        found = sorted(one.rpartition("  (")[0] for one in processes.values())
        return [masked(one, line) for one in found] == sorted(line.leaves)

    found: dict[Path, dict[int, str]] = {}

    def all_named() -> bool:
        found.update(remaining(list(lines)))
        wanted = {base: line for base, line in lines.items() if not (differs and line.differs)}
        return all(named(line, found[base]) for base, line in wanted.items())

    with trio.move_on_after(DEADLINE_S):
        await poll(all_named, interval_s=0.05)
    return {base: sorted(one.values()) for base, one in found.items()}


async def end(bases: list[Path]) -> None:
    """Kill what the lines have left."""

    def gone() -> bool:
        pids = [pid for one in remaining(bases).values() for pid in one]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return not pids

    await poll(gone, interval_s=0.02)


# The two terminals


class InAcpterm:
    """A line in acpterm."""

    def __init__(self, agent: Agent, terminal: str) -> None:
        self._agent = agent
        self._terminal = terminal

    async def text(self) -> str:
        return str((await self._agent.output(self._terminal))["output"])

    async def type(self, data: str) -> None:
        await self._agent.type(self._terminal, data)

    async def wait(self) -> Status:
        status = await self._agent.wait(self._terminal)
        return (None, status["signal"]) if status.get("signal") else (status["exitCode"], None)

    async def leave(self) -> None:
        """Release the terminal, as agents do after each command."""
        await self._agent.release(self._terminal)


class Refused:
    """A line that acpterm did not run."""

    def __init__(self, error: str) -> None:
        self._error = error

    async def text(self) -> str:
        return self._error

    async def type(self, data: str) -> None:
        """Nobody reads it."""

    async def wait(self) -> Status:
        return None, "refused"

    async def leave(self) -> None:
        """Nothing was started."""


class InPlain:
    """A line in a plain terminal."""

    def __init__(self, terminal: PlainTerminal) -> None:
        self._terminal = terminal

    async def text(self) -> str:
        return self._terminal.text()

    async def type(self, data: str) -> None:
        self._terminal.type(data)

    async def wait(self) -> Status:
        return decode_status(await self._terminal.wait())

    async def leave(self) -> None:
        """The person stays."""


Terminal = InAcpterm | Refused | InPlain


@asynccontextmanager
async def in_acpterm(
    host: Host, line: Line, base: Path, variables: Mapping[str, str]
) -> AsyncIterator[Terminal]:
    env = [{"name": name, "value": value} for name, value in variables.items()]
    where: dict[str, Any] = {"cwd": f"{base}/{line.cwd}", "env": env}
    if isinstance(line.run, str):
        command = line.text
    else:
        command, *where["args"] = line.run
    async with agent_of(host) as agent:
        try:
            terminal = await agent.create(command, **where)
        except RpcError as error:
            yield Refused(str(error))
        else:
            yield InAcpterm(agent, terminal)


@asynccontextmanager
async def in_plain(
    like: Like, line: Line, base: Path, variables: Mapping[str, str]
) -> AsyncIterator[Terminal]:
    if not isinstance(line.run, str):
        command = line.run
    elif line.fill:
        # The text is too long for an argument.
        command = [BASH, "-c", f'eval "$(<"{base}.text")"']
    else:
        command = [BASH, "-c", *(["--"] if line.run.startswith("-") else []), line.run]
    cwd = f"{base}/{line.cwd}"
    env = {**like.env, "PWD": cwd, **variables}
    async with plain_terminal(command, env, cwd, like.size) as terminal:
        yield InPlain(terminal)


async def play(line: Line, terminal: Terminal) -> tuple[str, Status]:
    """Type what the table says, until the line has ended; return its text and exit status."""

    async def until(text: str, start: int = 0) -> int:
        while (found := (await terminal.text()).find(text, start)) < 0:
            await trio.sleep(0.01)
        return found + len(text)

    at = 0
    status: Status = (None, f"not ended after {DEADLINE_S} s")
    with trio.move_on_after(DEADLINE_S):
        for prompt, keys in line.type:
            at = await until(prompt, at)
            await terminal.type(keys)
        status = await terminal.wait()
        if line.later:
            await until(line.later)
    return await terminal.text(), status


# The comparison


@contextmanager
def reserved_ports(bases: Iterable[Path]) -> Iterator[dict[Path, int]]:
    """Reserve a port for each line: a server can bind it too, but the system gives it to nobody."""
    with ExitStack() as stack:
        ports = {}
        for base in bases:
            probe = stack.enter_context(socket.socket())
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", 0))
            ports[base] = int(probe.getsockname()[1])
        yield ports


def masked(text: str, line: Line) -> str:
    return re.sub(line.mask, "#", text) if line.mask else text


async def run_all(
    lines: dict[Path, Line],
    ports: dict[Path, int],
    template: Path,
    open_terminal: Any,
    *,
    differs: bool = False,
) -> dict[Path, Found]:
    """Run each line in its own directory; return what each did."""
    at_once = trio.Semaphore(AT_ONCE)
    looked = trio.Event()
    played: dict[Path, tuple[str, Status]] = {}

    async def run(line: Line, base: Path) -> None:
        await at_once.acquire()
        fresh(template, base, line)
        async with open_terminal(line, base, line.variables(base, ports[base])) as terminal:
            played[base] = await play(line, terminal)
            await terminal.leave()
            at_once.release()
            await looked.wait()

    async with trio.open_nursery() as nursery:
        for base, line in lines.items():
            nursery.start_soon(run, line, base)
        await poll(lambda: len(played) == len(lines), 600)
        processes = await settled(lines, differs=differs)
        files = {base: files_in(base) for base in lines}
        await end(list(lines))
        looked.set()
    return {
        base: Found(
            masked(played[base][0], line),
            played[base][1],
            [masked(one, line) for one in processes[base]],
            {name: masked(content, line) for name, content in files[base].items()},
        )
        for base, line in lines.items()
    }


async def like_in(agent: Agent, base: Path) -> Like:
    """Return what acpterm's terminals have."""
    code = "import json, os; print(json.dumps([dict(os.environ), os.get_terminal_size()]))"
    env, size = json.loads((await agent.run(sys.executable, args=["-c", code], cwd=str(base)))[0])
    unmarked = {name: value for name, value in env.items() if not name.startswith("ACPTERM_")}
    return Like(unmarked, (size[0], size[1]))


def differences(line: Line, ours: Found, plain: Found) -> list[str]:
    """Say in what acpterm differs, and what the table says wrongly of the line."""
    pairs: dict[str, tuple[Any, Any]] = {
        "text": (ours.text, plain.text),
        "status": (ours.status, plain.status),
        "processes": (ours.processes, plain.processes),
        **{
            name: (ours.files.get(name), plain.files.get(name))
            for name in sorted(ours.files.keys() | plain.files.keys())
        },
    }
    found = [_shown(name, *both) for name, both in pairs.items() if both[0] != both[1]]
    if line.differs:
        found = [] if found else ["does not differ, although the table says so"]
    left = sorted(one.rpartition("  (")[0] for one in plain.processes)
    if left != sorted(line.leaves):
        found.append(f"leaves {left!r} in the plain terminal, and {line.leaves!r} in the table")
    if "not ended" in str(plain.status):
        found.append("does not end in the plain terminal")
    return found


def _shown(name: str, here: Any, there: Any) -> str:
    same = 0
    if isinstance(here, str) and isinstance(there, str):
        pairs = enumerate(zip(here, there, strict=False))
        same = max(0, next((at for at, (a, b) in pairs if a != b), 0) - 60)
        here, there = here[same : same + 400], there[same : same + 400]
    return f"{name} from {same}:\n      acpterm {here!r}\n      plain   {there!r}"


async def compare(section: str, template: Path, directory: Path) -> list[str]:
    """Run the lines of a section in both terminals; return a paragraph for each that differs."""
    lines = {directory / str(number): line for number, line in enumerate(lines_of(section))}
    context = current()._replace(env=CONTEXT, cwd=str(directory))
    with reserved_ports(lines) as ports:
        async with open_host(Settings(profile="open"), context) as host:
            async with agent_of(host) as agent:
                like = await like_in(agent, directory)
            ours = await run_all(lines, ports, template, partial(in_acpterm, host), differs=True)
        plain = await run_all(lines, ports, template, partial(in_plain, like))
    return [
        "\n    ".join([f"{line.run!r}", *found])
        for base, line in lines.items()
        if (found := differences(line, ours[base], plain[base]))
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "section",
    [pytest.param(one, marks=[] if one in QUICK else pytest.mark.long) for one in TABLE],
)
def test_line_does_what_it_does_in_a_persons_terminal(section, template, tmp_path):
    found = trio.run(compare, section, template, tmp_path)
    # Some thousand files.
    shutil.rmtree(tmp_path)
    if found:
        report = "\n".join(found)
        pytest.fail(f"{len(found)} of {len(TABLE[section])} lines differ:\n{report}", pytrace=False)
