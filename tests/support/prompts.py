"""`acpterm prompt`, as a process or in this one, with the scripted agent.

Each run writes a wire log, and the messages that it sent are validated against ACP's schema.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog
import trio

from acpterm.agents.prompt import run as prompt_run
from acpterm.link.errors import root_error
from tests.acp.validate import validate_sent
from tests.support.agent import Agent
from tests.support.commands import process_of, run_group
from tests.support.depth import DEADLINE_S
from tests.support.editor import AGENT, SCRIPTED
from tests.support.hosts import agent_here
from tests.support.polling import poll
from tests.support.processes import environment
from tests.support.starting import ACPTERM
from tests.support.starting import start as start_acpterm

TO_AGENT = "client->agent"


class Log:
    """A wire log file, which may still grow."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[dict[str, Any]]:
        """Return the complete lines of the log, decoded."""
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1:] == "\n"]

    def sent(self) -> list[dict[str, Any]]:
        """Return the messages that the client sent, in order, after validating each."""
        methods: dict[Any, str] = {}
        messages = []
        for entry in self.entries():
            message = entry.get("msg", {})
            if entry["dir"] == TO_AGENT:
                validate_sent(message, methods)
                messages.append(message)
            elif isinstance(message, dict) and "method" in message and "id" in message:
                methods[message["id"]] = message["method"]
        return messages

    def methods(self) -> list[str]:
        """Return the methods of the client's requests and notifications, in order."""
        return [message["method"] for message in self.sent() if "method" in message]

    def params(self, method: str) -> dict[str, Any]:
        """Return the params of the client's first request or notification of a method."""
        params = next(m["params"] for m in self.sent() if m.get("method") == method)
        assert isinstance(params, dict)
        return params

    def answers(self, method: str) -> list[Any]:
        """Return the client's responses (result or error) to the agent's requests of a method."""
        ids = [
            entry["msg"]["id"]
            for entry in self.entries()
            if entry["dir"] != TO_AGENT
            and isinstance(entry.get("msg"), dict)
            and entry["msg"].get("method") == method
        ]
        answers = {
            m["id"]: m.get("result", m.get("error")) for m in self.sent() if "method" not in m
        }
        return [answers[id_] for id_ in ids if id_ in answers]


class Output:
    """The output of `acpterm prompt`, in files, and its log."""

    def __init__(self, directory: Path, log: Log) -> None:
        self.log = log
        self._directory = directory

    @property
    def out(self) -> str:
        return (self._directory / "stdout").read_bytes().decode()

    @property
    def err(self) -> str:
        return (self._directory / "stderr").read_bytes().decode()

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events that the command has printed, if it runs with --json."""
        return [
            json.loads(line) for line in self.out.splitlines(keepends=True) if line[-1:] == "\n"
        ]

    def of(self, event: str) -> list[dict[str, Any]]:
        """Return the printed events of the kind `event`, without the member `event`."""
        return [
            {name: value for name, value in one.items() if name != "event"}
            for one in self.events
            if one["event"] == event
        ]


class Run(Output):
    """A run of `acpterm prompt` as a process, and its output so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path, log: Log) -> None:
        super().__init__(directory, log)
        self.process = process

    async def until_printed(self, text: str, timeout_s: float = DEADLINE_S) -> None:
        """Wait until the command has printed `text`."""
        await poll(lambda: text in self.out, timeout_s)

    async def pid(self) -> int:
        """Wait until the command prints a line that is a number, a pid; return the number."""
        return int(await poll(lambda: next(filter(str.isdigit, self.out.split()), None)))

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    async def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait until the command exits; return its exit status."""
        return int(await poll(self.process.poll, timeout_s))


def command_line(
    text: str | None, options: Sequence[str] = (), agent: Sequence[str] = ()
) -> list[str]:
    """Return the words of an `acpterm prompt` command.

    `agent` is either options of the scripted agent, or the command of another agent.
    """
    prompt = [] if text is None else [text]
    whole = list(agent) if agent and os.sep in agent[0] else [*AGENT, *agent]
    return [*ACPTERM, "prompt", *prompt, "--embedded", *options, "--", *whole]


def prompt_environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """Return an environment without settings and preferences for colours."""
    env = environment(XDG_CONFIG_HOME=str(tmp_path / "none"), ACPTERM_KILL_GRACE="0.2")
    return {name: env[name] for name in env if name not in ("NO_COLOR", "TERM")} | more


@asynccontextmanager
async def prompting(
    tmp_path: Path,
    *steps: dict[str, Any],
    options: Sequence[str] = (),
    agent: Sequence[str] = (),
    text: str | None = "",
    **more: Any,
) -> AsyncIterator[Run]:
    """Run `acpterm prompt` with `steps` (see `scripted`) in `tmp_path`, without a terminal.

    `text` is a prompt instead of steps; if it is None, no prompt is passed. At the end of the block
    the command is terminated, and the messages that it sent are validated.
    """
    directory = tmp_path.parent / f"{tmp_path.name}-{os.urandom(4).hex()}"
    directory.mkdir()
    log = Log(directory / "log")
    prompt = json.dumps(steps) if text == "" else text
    options = ["--log", str(log.path), *options]
    with (directory / "stdout").open("wb") as out, (directory / "stderr").open("wb") as err:
        process = start_acpterm(
            command_line(prompt, options, agent)[len(ACPTERM) :],
            **{
                "cwd": tmp_path,
                "env": prompt_environment(tmp_path),
                "stdin": subprocess.DEVNULL,
                "stdout": out,
                "stderr": err,
                "start_new_session": True,
                **more,
            },
        )
    run = Run(process, directory, log)
    try:
        yield run
    finally:
        # If it were killed, an agent that ignores the end of its stdin would remain.
        process.terminate()
        with trio.CancelScope(shield=True):
            with trio.move_on_after(12):
                await poll(process.poll, 60)
            process.kill()
            await trio.to_thread.run_sync(process.wait)
    assert "Traceback" not in run.err
    log.sent()


async def prompted(
    tmp_path: Path,
    *steps: dict[str, Any],
    options: Sequence[str] = (),
    agent: Sequence[str] = (),
    text: str | None = "",
    stdin: bytes = b"",
    env: dict[str, str] | None = None,
) -> tuple[int, Output]:
    """Run `acpterm prompt` like `prompting`, but in this process, to its end.

    Return the exit status and the output.
    """
    directory = tmp_path.parent / f"{tmp_path.name}-{os.urandom(4).hex()}"
    directory.mkdir()
    log = Log(directory / "log")
    prompt = json.dumps(steps) if text == "" else text
    words = command_line(prompt, ["--log", str(log.path), *options], agent)[len(ACPTERM) :]
    runs: list[tuple[Any, ...]] = []

    def run(*arguments: Any, expected: Any) -> int:
        runs.append((*arguments, expected))
        return 0

    before, configuration = structlog.configure, structlog.get_config()
    with (
        ExitStack() as stack,
        # Loggers that are kept would log like the command from now on.
        patch.object(
            structlog,
            "configure",
            lambda **how: before(**{**how, "cache_logger_on_first_use": False}),
        ),
        patch.object(prompt_run, "raise_open_files"),
        patch("acpterm.cli.prompt.run", run),
        process_of(words, env or prompt_environment(tmp_path), stdin, tmp_path) as output,
    ):
        stack.callback(before, **configuration)
        status = run_group(words)
        for work, settings, chosen, expected in runs:
            try:
                status = await work(settings, chosen)
            except* expected as errors:
                status = 1
                print(f"acpterm: {root_error(errors)}", file=sys.stderr)
        for name, text in zip(("stdout", "stderr"), output(), strict=True):
            (directory / name).write_text(text)
    log.sent()
    ended = Output(directory, log)
    assert "Traceback" not in ended.err
    return status, ended


class TerminalUser:
    """A user at the terminal that a command runs in."""

    def __init__(self, host: Agent, terminal: str, log: Log) -> None:
        self._host = host
        self._terminal = terminal
        self.log = log

    async def sees(self, text: str, count: int = 1) -> str:
        """Wait until the terminal shows `text` at least `count` times; return all that it shows."""
        return await self._host.until_output(self._terminal, text, count=count)

    async def types(self, keys: str) -> None:
        await self._host.type(self._terminal, keys)

    async def end(self) -> tuple[str, int]:
        """Wait until the command exits; return what the terminal shows and the exit status."""
        status = await self._host.wait(self._terminal)
        return (await self._host.output(self._terminal))["output"], status["exitCode"]


@asynccontextmanager
async def at_a_terminal(
    tmp_path: Path,
    *steps: dict[str, Any],
    options: Sequence[str] = (),
    agent: Sequence[str] = (),
    raw: bool = False,
    env: dict[str, str] | None = None,
) -> AsyncIterator[TerminalUser]:
    """Run `acpterm prompt` with `steps` in a terminal, whose format is raw if `raw` is true."""
    log = Log(tmp_path.parent / f"{tmp_path.name}-{os.urandom(4).hex()}")
    words = command_line(json.dumps(steps), ["--log", str(log.path), *options], agent)
    variables = {"XDG_CONFIG_HOME": str(tmp_path / "none"), "NO_COLOR": "", **(env or {})}
    # The terminal stands for one of the user: its command is not judged.
    async with agent_here(profile="open") as host:
        terminal = await host.create(
            words[0],
            args=words[1:],
            cwd=str(tmp_path),
            env=[{"name": name, "value": value} for name, value in variables.items()],
            own={"format": "raw"} if raw else {},
        )
        yield TerminalUser(host, terminal, log)
        await host.release(terminal)
    log.sent()


def agent_with(tmp_path: Path, code: str) -> list[str]:
    """Create a scripted agent that the Python code `code` patches; return the agent's command.

    The code can use the agent's module under the name `scripted`.
    """
    script = tmp_path.parent / f"{tmp_path.name}-{os.urandom(4).hex()}.py"
    begin = f"import sys\nsys.path.insert(0, {str(SCRIPTED.parent)!r})\nimport scripted\n"
    script.write_text(f"{begin}{code}\nscripted.main()\n")
    return [sys.executable, "-S", "-E", str(script)]


# Steps of the scripted agent.


def ask(method: str, name: str = "last", **params: Any) -> dict[str, Any]:
    """Return a step that sends a request and a message with its result."""
    return {"do": "ask", "method": method, "params": params, "as": name, "report": True}


def start(method: str, name: str, **params: Any) -> dict[str, Any]:
    return {"do": "start", "method": method, "params": params, "as": name}


def sleep(seconds: float = 60) -> dict[str, Any]:
    return {"do": "sleep", "seconds": seconds}


def spawn(*argv: str) -> dict[str, Any]:
    return {"do": "spawn", "argv": list(argv)}


OPTIONS = [
    {"optionId": "yes", "name": "Yes, once", "kind": "allow_once"},
    {"optionId": "always", "name": "Yes, always", "kind": "allow_always"},
    {"optionId": "no", "name": "No, never mind", "kind": "reject_once"},
]


def permission(title: str = "delete it all", kind: str = "delete", **more: Any) -> dict[str, Any]:
    call = {"toolCallId": "c", "title": title, "kind": kind}
    return ask("session/request_permission", toolCall=call, **{"options": OPTIONS, **more})


SELECTED = {
    name: {"outcome": {"outcome": "selected", "optionId": name}} for name in ("yes", "always", "no")
}
CANCELLED = {"outcome": {"outcome": "cancelled"}}
