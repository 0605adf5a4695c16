"""The real agents: how each is started, asked to run something, and what it says of how that went.

An agent has an environment of its own, which `make interop` makes, and a home of its own in the
test's folder. `ACPTERM_INTEROP_KIMI` and `ACPTERM_INTEROP_FAST_AGENT` name other programs.
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
        raise FileNotFoundError(f"{name} is not at {path}: say make interop, which installs it")
    return path


class Kind(Protocol):
    """An agent. `limit`: bytes of output that it wants of a command."""

    name: str
    limit: int
    embeds: bool
    """Whether its tool calls show its terminals."""

    def command(self) -> list[str]:
        """Give how it is started."""

    def environment(self, home: Path, model: str, *, gives_up: int | None = None) -> dict[str, str]:
        """Write its configuration; give the variables that it needs.

        `model` is a model's URL. `gives_up`: the seconds after which it gives up a command.
        """

    def prompt(self, line: str, *, gives_up: int | None = None) -> str:
        """Give the prompt that has it run a line."""

    def prompt_all(self, lines: Sequence[str]) -> str:
        """Give the prompt that has it run several lines at the same time."""

    def says_exit(self, code: int) -> str:
        """Give what it tells its model of a program's exit."""

    def says_signal(self, name: str) -> str:
        """Give what it tells its model of a program's death."""

    def says_timeout(self, seconds: int) -> str:
        """Give what it tells its model of a program that took too long."""

    truncated: str
    """What it tells its model of output that is cut."""


class Kimi:
    """kimi-cli: gives a whole shell line as `command`, and shows the terminal in its tool call."""

    name = "kimi"
    limit = 50_000
    embeds = True
    truncated = "Output was truncated by the client output limit."

    def command(self) -> list[str]:
        return [_program("kimi-cli", "ACPTERM_INTEROP_KIMI", ".venv-kimi/bin/kimi"), "acp"]

    def environment(self, home: Path, model: str, *, gives_up: int | None = None) -> dict[str, str]:
        del gives_up  # it is the model that says so
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

    def prompt(self, line: str, *, gives_up: int | None = None) -> str:
        more = {} if gives_up is None else {"timeout": gives_up}
        return tool("Shell", command=line, **more)

    def prompt_all(self, lines: Sequence[str]) -> str:
        return "\n".join(tool("Shell", command=line) for line in lines)

    def says_exit(self, code: int) -> str:
        return "executed successfully." if code == 0 else f"Command failed with exit code: {code}."

    def says_signal(self, name: str) -> str:
        return f"Command terminated by signal: {name}."

    def says_timeout(self, seconds: int) -> str:
        return f"Command killed by timeout ({seconds}s)"


class FastAgent:
    """fast-agent: gives a program and its arguments; tells its tool call the output as text.

    Its model `passthrough` calls one tool that the prompt names, and says the tool's result.
    Several at once need a real model, for which `prompt_all` is written.
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

    def environment(self, home: Path, model: str, *, gives_up: int | None = None) -> dict[str, str]:
        folder = home / "fast-agent"
        folder.mkdir(parents=True, exist_ok=True)
        config: dict[str, Any] = {"generic": {"api_key": "none", "base_url": model}}
        if gives_up is not None:
            config["shell_execution"] = {"timeout_seconds": gives_up}
        # JSON is YAML.
        (folder / "fast-agent.yaml").write_text(json.dumps(config))
        return {"FAST_AGENT_HOME": str(folder)}

    def prompt(self, line: str, *, gives_up: int | None = None) -> str:
        del gives_up  # it is the configuration that says so
        return f"***CALL_TOOL execute {json.dumps({'command': line})}"

    def prompt_all(self, lines: Sequence[str]) -> str:
        return "\n".join(tool("execute", command=line) for line in lines)

    def says_exit(self, code: int) -> str:
        return f"[Exit code: {code}]"

    def says_signal(self, name: str) -> str:
        return f"[Terminated by signal: {name}]"

    def says_timeout(self, seconds: int) -> str:
        return f"Command timed out after {seconds}s"


KINDS: dict[str, Kind] = {kind.name: kind for kind in (Kimi(), FastAgent())}
# The same with a model that can call several tools at once.
KINDS_AT_ONCE: dict[str, Kind] = {**KINDS, "fast-agent": FastAgent("generic.scripted")}
