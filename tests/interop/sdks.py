"""Start the agents of the official SDKs; skip the tests of an agent that cannot be started.

The TypeScript SDK is installed beside its driver, at the versions of its lock file, whenever the
lock file has changed. Without Node, or if the SDK cannot be downloaded, its tests are skipped.
"""

import fcntl
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

HERE = Path(__file__).parent
TYPESCRIPT = HERE / "typescript"


def python() -> list[str]:
    """Return the command of the Python SDK's agent."""
    return [sys.executable, str(HERE / "python" / "drive.py")]


def typescript() -> list[str]:
    """Return the command of the TypeScript SDK's agent, and install the SDK if necessary."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("the TypeScript SDK needs node and npm on the PATH")
    try:
        # Several test workers may install the SDK at the same time.
        with (TYPESCRIPT / "package.json").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _install(npm)
    except OSError as error:
        pytest.skip(f"the TypeScript SDK cannot be installed: {error}")
    return [node, str(TYPESCRIPT / "drive.mjs")]


def _install(npm: str) -> None:
    required = (TYPESCRIPT / "package-lock.json").read_bytes()
    installed = TYPESCRIPT / "node_modules" / ".installed"
    if installed.exists() and installed.read_bytes() == required:
        return
    done = subprocess.run(
        [npm, "ci", "--loglevel=error"],
        cwd=TYPESCRIPT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise OSError(f"npm ci ended with {done.returncode}: {done.stderr.strip()}")
    installed.write_bytes(required)


async def report_of(command: list[str], plan: Any, timeout_s: float, **options: Any) -> Any:
    """Run a driver with a plan, and return the report that it prints."""
    with trio.fail_after(timeout_s):
        done = await trio.run_process(
            [*command, json.dumps(plan)],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            **options,
        )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


SDKS: dict[str, Callable[[], list[str]]] = {"python": python, "typescript": typescript}
