"""Fixtures: a home directory without agents, and setup and undo of a target in it."""

import sys

import pytest

from acpterm.setup.agents import AGENTS
from acpterm.setup.plan import Journal, apply, plan_setup, plan_undo
from acpterm.setup.targets import server_target

VARIABLES = (
    *("ACPTERM_CONFIG", "ACPTERM_SOCKET", "ACPTERM_USER_SOCKET", "CLAUDE_CONFIG_DIR"),
    *("CODEX_HOME", "COPILOT_HOME", "VIRTUAL_ENV"),
    *("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"),
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home directory. `acpterm` is on the PATH, in the directory `bin` in it."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    program(home / "bin" / "acpterm")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(home / "bin"))
    monkeypatch.setattr(sys, "argv", [str(home / "bin" / "acpterm"), "setup"])
    return home


def program(path):
    """Create an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


class Setup:
    """Sets targets up, and undoes that, with one journal."""

    def __init__(self, directory):
        self.journal = Journal(str(directory))

    def write(self, target):
        plan = plan_setup(target, self.journal)
        if plan.is_needed:
            apply(plan, self.journal)
        return plan

    def undo(self, target):
        plan = plan_undo(target, self.journal)
        if plan.is_needed:
            apply(plan, self.journal)
        return plan


@pytest.fixture
def setup(tmp_path):
    return Setup(tmp_path / "state" / "setup")


def agent(name):
    [found] = [agent for agent in AGENTS if agent.name == name]
    return found


def server(name, tools=None):
    return server_target(agent(name), tools)
