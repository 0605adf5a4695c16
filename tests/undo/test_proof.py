"""The lines of `policy/loss_lines.tsv` that touch files are run, and undone byte for byte.

Each runs in the prepared directory, which alone can be written, without network and capabilities.
The next line runs in what the undo has restored.
"""

import shutil
import subprocess

import pytest

from tests.policy.prepared import prepare
from tests.policy.test_lines import LOSSES
from tests.undo.conftest import Project

LINES = [line for kind, line in LOSSES if kind in ("work", "history", "data")]
# What is not kept by design: what a tool restores, and what belongs to other worktrees.
NOT_KEPT = ("node_modules", "__pycache__", ".git/worktrees")
_RUN_S = 10
_PROGRAMS = {"sudo": 'exec "$@"', **dict.fromkeys(("npx", "npm", "pnpm", "yarn"), "exit 1")}


class Sandbox:
    def __init__(self, base):
        self.prepared = prepare(base)
        self.project = Project(self.prepared.shop, base / "undo")
        self.bin = base / "bin"
        self.bin.mkdir()
        for name, text in _PROGRAMS.items():
            (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.bin / name).chmod(0o755)

    def run(self, line):
        """Run a line as an agent would; whatever it does elsewhere fails."""
        shop, base = str(self.prepared.shop), str(self.prepared.home.parent)
        argv = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        argv += ["--tmpfs", "/tmp", "--tmpfs", "/run", "--ro-bind", base, base]
        argv += ["--bind", shop, shop, "--chdir", shop, "--unshare-all", "--die-with-parent"]
        argv += ["--new-session", "--cap-drop", "ALL", "--clearenv"]
        argv += ["--setenv", "HOME", str(self.prepared.home), "--setenv", "GIT_EDITOR", "true"]
        argv += ["--setenv", "PATH", f"{self.bin}:/usr/local/bin:/usr/bin:/bin"]
        try:
            subprocess.run(
                [*argv, "bash", "-c", line],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=_RUN_S,
            )
        except subprocess.TimeoutExpired:
            # As the message about it tells the user to.
            (self.prepared.shop / ".git" / "index.lock").unlink(missing_ok=True)

    def state(self):
        found = self.project.state()
        for words in [words for words in found if words.startswith("status ")]:
            lines = found[words].decode().splitlines()
            found[words] = [one for one in lines if not any(name in one for name in NOT_KEPT)]
        return {
            path: one for path, one in found.items() if not any(name in path for name in NOT_KEPT)
        }


def undone(sandbox, lines):
    """Run lines; return how many ran and changed something, and which were not undone."""
    before, changed, left = sandbox.state(), 0, []
    for line in lines:
        target = sandbox.project.keep().snapshot
        sandbox.run(line)
        now = sandbox.project.keep().snapshot
        if now == target:
            continue
        changed += 1
        _, failures = sandbox.project.undo(target)
        after = sandbox.state()
        if failures or after != before:
            wrong = [path for path in before.keys() | after if before.get(path) != after.get(path)]
            left.append((line, failures, wrong))
            before = after
    return len(lines), changed, left


def can_sandbox():
    argv = ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"]
    return shutil.which("bwrap") and not subprocess.run(argv, check=False).returncode


@pytest.mark.parametrize(
    ("lines", "least"),
    [
        pytest.param(LINES[::16], 15, id="some", marks=pytest.mark.long),
        pytest.param(
            LINES, 300, id="all", marks=[pytest.mark.exhaustive, pytest.mark.timeout(1800)]
        ),
    ],
)
def test_each_loss_of_files_is_undone_byte_for_byte(tmp_path, lines, least):
    if not can_sandbox():
        pytest.skip("bwrap cannot run here")
    run, changed, left = undone(Sandbox(tmp_path), lines)
    print(f"{run} run, {changed} changed something, {changed - len(left)} undone")
    assert not left
    assert changed >= least
