"""The real agents: commands to start them, prompts that run commands, and reports of results.

Each agent has a virtual environment, which `make interop` creates, and a home in the test's
directory. `ACPTERM_INTEROP_KIMI` and `ACPTERM_INTEROP_FAST_AGENT` name other programs to use.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.interop.agents.model import tool

ROOT = Path(__file__).parents[3]


def _program(name: str, variable: str, default: str) -> str:
    path = os.environ.get(variable) or str(ROOT / default)
    if not os.access(path, os.X_OK):
        raise FileNotFoundError(f"{name} is not at {path}: run make interop to install it")
    return path


class Agent(Protocol):
    def command(self) -> list[str]:
        """Return the command that starts it."""

    def environment(
        self, home: Path, model: str, *, command_timeout_s: int | None = None
    ) -> dict[str, str]:
        """Write its configuration; return the environment variables that it needs.

        `model` is the URL of a model; `command_timeout_s` the timeout of commands in seconds.
        """


class Kind(Agent, Protocol):
    """An agent that is tested like others. `limit`: the `outputByteLimit` that it requests."""

    name: str
    limit: int
    embeds: bool
    """Whether its tool calls embed its terminals."""

    def prompt(self, line: str, *, command_timeout_s: int | None = None) -> str:
        """Return a prompt that makes it run a command line."""

    def prompt_all(self, lines: Sequence[str]) -> str:
        """Return a prompt that makes it run several command lines concurrently."""

    def exit_report(self, code: int) -> str:
        """Return the text that it reports to its model about an exit status."""

    def signal_report(self, name: str) -> str:
        """Return the text that it reports to its model about an exit by signal."""

    def timeout_report(self, seconds: int) -> str:
        """Return the text that it reports to its model about a timeout."""

    truncated: str
    """The text that it reports to its model about truncated output."""


class Kimi:
    """kimi-cli: sends a shell line as `command`, and embeds the terminal in its tool call."""

    name = "kimi"
    limit = 50_000
    embeds = True
    truncated = "Output was truncated by the client output limit."

    def command(self) -> list[str]:
        return [_program("kimi-cli", "ACPTERM_INTEROP_KIMI", ".venv-kimi/bin/kimi"), "acp"]

    def environment(
        self, home: Path, model: str, *, command_timeout_s: int | None = None
    ) -> dict[str, str]:
        del command_timeout_s  # a parameter of the tool call
        share = home / "kimi"
        share.mkdir(parents=True, exist_ok=True)
        (share / "config.toml").write_text(f"""
            default_model = "scripted"
            [providers.here]
            type = "openai_legacy"
            base_url = "{model}"
            api_key = "none"
            [models.scripted]
            provider = "here"
            model = "scripted"
            max_context_size = 1000000
        """)
        return {"KIMI_SHARE_DIR": str(share), "KIMI_CLI_NO_AUTO_UPDATE": "1"}

    def prompt(self, line: str, *, command_timeout_s: int | None = None) -> str:
        more = {} if command_timeout_s is None else {"timeout": command_timeout_s}
        return tool("Shell", command=line, **more)

    def prompt_all(self, lines: Sequence[str]) -> str:
        return "\n".join(tool("Shell", command=line) for line in lines)

    def exit_report(self, code: int) -> str:
        return "executed successfully." if code == 0 else f"Command failed with exit code: {code}."

    def signal_report(self, name: str) -> str:
        return f"Command terminated by signal: {name}."

    def timeout_report(self, seconds: int) -> str:
        return f"Command killed by timeout ({seconds}s)"


class FastAgent:
    """fast-agent: sends a program and its arguments; its tool call has the output as text.

    Its built-in model `passthrough` makes the one tool call that the prompt names, and answers with
    the result. That model cannot make several calls: `prompt_all` needs the scripted model of this
    directory.
    """

    name = "fast-agent"
    limit = 16_000
    embeds = False
    truncated = "[Output truncated by ACP terminal outputByteLimit: 16000 bytes"

    def __init__(self, model: str = "passthrough") -> None:
        self._model = model

    def command(self) -> list[str]:
        variable, default = "ACPTERM_INTEROP_FAST_AGENT", ".venv-fast-agent/bin/fast-agent"
        program = _program("fast-agent", variable, default)
        return [program, "acp", "--shell", "--model", self._model]

    def environment(
        self, home: Path, model: str, *, command_timeout_s: int | None = None
    ) -> dict[str, str]:
        directory = home / "fast-agent"
        directory.mkdir(parents=True, exist_ok=True)
        config: dict[str, Any] = {"generic": {"api_key": "none", "base_url": model}}
        if command_timeout_s is not None:
            config["shell_execution"] = {"timeout_seconds": command_timeout_s}
        # JSON is a subset of YAML.
        (directory / "fast-agent.yaml").write_text(json.dumps(config))
        return {"FAST_AGENT_HOME": str(directory)}

    def prompt(self, line: str, *, command_timeout_s: int | None = None) -> str:
        del command_timeout_s  # set in the configuration
        return f"***CALL_TOOL execute {json.dumps({'command': line})}"

    def prompt_all(self, lines: Sequence[str]) -> str:
        return "\n".join(tool("execute", command=line) for line in lines)

    def exit_report(self, code: int) -> str:
        return f"[Exit code: {code}]"

    def signal_report(self, name: str) -> str:
        return f"[Terminated by signal: {name}]"

    def timeout_report(self, seconds: int) -> str:
        return f"Command timed out after {seconds}s"


KINDS: dict[str, Kind] = {kind.name: kind for kind in (Kimi(), FastAgent())}
# The same agents with a model that can make several tool calls at once.
KINDS_AT_ONCE: dict[str, Kind] = {**KINDS, "fast-agent": FastAgent("generic.scripted")}
