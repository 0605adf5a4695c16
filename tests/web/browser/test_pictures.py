"""Pictures of the page, in build/screenshots; `make pictures` copies some for the README."""

import os
from pathlib import Path

import pytest

from tests.support.asking import asking_variables
from tests.support.blocking_agent import blocking_agent
from tests.support.daemon import blocking_daemon

DIRECTORY = Path(__file__).parents[3] / "build" / "screenshots"
DESKTOP = {"width": 960, "height": 560}
PHONE = {"width": 360, "height": 640}
# What the programs of the pictures print: nothing is built.
PROGRAMS = {
    "cargo": r"""
printf '   \033[32;1mCompiling\033[0m %s\n' 'bytes v1.11.0' 'parser v0.4.2'
printf '\033[33;1mwarning\033[0m: unused variable: `size`\n'
printf '  \033[34;1m-->\033[0m src/main.rs:12:9\n'
printf '   \033[32;1mCompiling\033[0m %s\n' 'server v0.2.0'
printf '    \033[32;1m%s\033[0m %s\n' Finished 'in 4.21s' ' Running' server
exec sleep 1000""",
    "ssh": "printf 'Password: '; read password",
    "pytest": "echo '12 passed in 0.84s'",
    "ruff": "echo 'Found 2 errors.'; exit 1",
    "npm": "exec sleep 1000",
}
pytestmark = pytest.mark.exhaustive
SIZE = {"_meta": {"acpterm": {"cols": 80, "rows": 24}}}


@pytest.fixture
def daemon(tmp_path):
    """Run a daemon that asks about dangerous commands only."""
    variables = asking_variables(
        tmp_path,
        unknown="allow",
        dangerous="ask",
        dangerous_patterns=["git push"],
        dangerous_timeout=600,
    )
    variables |= {"XDG_STATE_HOME": str(tmp_path / "state")}
    with blocking_daemon(tmp_path / "project", **variables) as running:
        yield running


@pytest.fixture
def scene(daemon, tmp_path):
    """Fill the list with terminals of two agents and of the user."""
    for name, script in PROGRAMS.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    env = [{"name": "PATH", "value": f"{tmp_path}:{os.environ['PATH']}"}]
    place = {"cwd": "/usr/src", "env": env, **SIZE}
    with (
        blocking_agent(daemon.socket, "fix-login") as coder,
        blocking_agent(daemon.socket, "new-docs") as writer,
    ):
        build = coder.create("cargo", "run", **place)
        coder.create("ssh", "build.example.org", **place)
        tests = coder.create("pytest", "-q", **place)
        coder.terminal("wait_for_exit", tests)
        coder.tool_call("call-1", "Run the tests", tests)
        failed = writer.create("ruff", "check", **place)
        writer.terminal("wait_for_exit", failed)
        writer.create("npm", "run", "dev", **place)
        daemon.request("terminal/create", command="cat", name="notes", cwd="/usr/src")
        yield coder, build


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_desktop(visit, scene, scheme):
    _, build = scene
    page = visit(viewport=DESKTOP, color_scheme=scheme)
    page.row("waits for input").first.wait_for()
    _take(page, f"list-{scheme}")
    page.show_terminal(build)
    page.until_drawn("Running")
    _take(page, f"terminal-{scheme}")


def test_phone(visit, scene):
    _, build = scene
    page = visit(viewport=PHONE, color_scheme="dark")
    page.row("waits for input").first.wait_for()
    _take(page, "phone-list")
    page.show_terminal(build)
    page.until_drawn("Running")
    _take(page, "phone-terminal")


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_approval(visit, scene, device):
    coder, _ = scene
    page = visit("#/approvals", viewport=DESKTOP if device == "desktop" else PHONE)
    question = {"command": "git", "args": ["push", "--force"], "cwd": "/usr/src"}
    coder.start("terminal/create", sessionId=coder.session, **question)
    page.button("Allow once").wait_for()
    _take(page, f"approval-{device}")


def _take(page, name):
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    # Not while the page moves to another state.
    page.page.wait_for_timeout(300)
    page.page.screenshot(path=DIRECTORY / f"{name}.png", animations="disabled")
