"""The lines of `policy/loss_lines.tsv` that touch files are run, and undone byte for byte.

Each runs in the prepared directory, made larger, which alone can be written, without network and
capabilities. The next line runs in what the undo has restored.
"""

import hashlib
import os
import shutil
import stat
import subprocess

import pytest

from tests.policy.prepared import prepare
from tests.policy.test_lines import LOSSES
from tests.undo.conftest import Project

LINES = [line for kind, line in LOSSES if kind in ("work", "history", "data")]
# What is not kept by design: what a tool restores, and what belongs to other worktrees.
NOT_KEPT = ("node_modules", "__pycache__", ".git/worktrees")
# Of each hundred files, how many are committed, and what is done to some of these.
_COMMITTED = 70
_STAGED, _UNSTAGED = 2, 4
_RUN_S = 10
_PROGRAMS = {"sudo": 'exec "$@"', **dict.fromkeys(("npx", "npm", "pnpm", "yarn"), "exit 1")}


def enlarge(project, files):
    """Add files to the prepared repository: committed, staged, unstaged, untracked and ignored."""
    paths = [
        f"{'src' if number % 100 < _COMMITTED else 'data' if number % 2 else 'build'}"
        f"/part{number // 100}/file{number % 100}.txt"
        for number in range(files)
    ]
    root = project.root

    def write(below, text):
        for number, path in enumerate(paths):
            if number % 100 < below:
                whole = os.path.join(root, path)
                os.makedirs(os.path.dirname(whole), exist_ok=True)
                with open(whole, "w", encoding="ascii") as file:
                    file.write(f"{path}, {text}\n" * (10 + number % 50))

    write(100, "first")
    project.run("git add src/part* && git commit -qm Parts -- src/part* && git repack -dq")
    write(_STAGED, "staged")
    project.run("git add src/part*")
    write(_UNSTAGED, "unstaged")


class Tree:
    """Reads type, mode and content of each path below a directory, and again what has changed."""

    def __init__(self, root):
        self._root = root
        self._read = {}

    def read(self):
        earlier, self._read = self._read, {}
        places = [""]
        while places:
            place = places.pop()
            with os.scandir(os.path.join(self._root, place)) as entries:
                for entry in entries:
                    path = os.path.join(place, entry.name)
                    if path.endswith(NOT_KEPT) or path.endswith(".git/objects"):
                        continue
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        places.append(path)
                    # A change of a file changes its ctime, which no program can set.
                    key = status.st_mode, status.st_ino, status.st_size, status.st_ctime_ns
                    known = earlier.get(path)
                    content = known[1] if known and known[0] == key else _content(entry)
                    self._read[path] = key, content
        mode = os.lstat(self._root).st_mode
        return {".": (mode, None)} | {
            path: (key[0], content) for path, (key, content) in self._read.items()
        }


def _content(entry):
    if entry.is_symlink():
        return os.readlink(entry.path)
    if not entry.is_file():
        return None
    with open(entry.path, "rb") as file:
        return hashlib.sha256(file.read()).digest()


class Sandbox:
    def __init__(self, base, files):
        self.prepared = prepare(base)
        self.project = Project(self.prepared.shop, base / "undo")
        enlarge(self.project, files)
        self._tree = Tree(self.project.root)
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
        # Each of its processes has the pipe: those of a line that is killed end a little later.
        read_end, write_end = os.pipe()
        with open(read_end, "rb") as ended:
            try:
                subprocess.run(
                    [*argv, "bash", "-c", line],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[write_end],
                    check=False,
                    timeout=_RUN_S,
                )
            except subprocess.TimeoutExpired:
                is_killed = True
            else:
                is_killed = False
            finally:
                os.close(write_end)
            ended.read()
        if is_killed:
            (self.prepared.shop / ".git" / "index.lock").unlink(missing_ok=True)

    def state(self):
        return self._tree.read()

    def said(self):
        """Return what git says, which needs all objects."""
        found = self.project.said()
        lines = found.pop("status").decode().splitlines()
        status = [one for one in lines if not any(name in one for name in NOT_KEPT)]
        return found | {"status": status}


def undone(sandbox, lines):
    """Run lines; return how many changed something, and which were not undone."""
    before, said, changed, left = sandbox.state(), sandbox.said(), 0, []
    target = sandbox.project.keep().snapshot
    for line in lines:
        sandbox.run(line)
        # A change of objects alone is one that only the snapshot has.
        if sandbox.state() == before and sandbox.project.keep().snapshot == target:
            continue
        changed += 1
        _, failures = sandbox.project.undo(target)
        after, says = sandbox.state(), sandbox.said()
        if failures or after != before or says != said:
            paths = before.keys() | after.keys()
            wrong = [path for path in paths if before.get(path) != after.get(path)]
            wrong += [words for words in said if said[words] != says[words]]
            left.append((line, failures, wrong))
            before, said = after, says
        target = sandbox.project.keep().snapshot
    return changed, left


def can_sandbox():
    argv = ["bwrap", "--ro-bind", "/", "/", "--unshare-all", "true"]
    return shutil.which("bwrap") and not subprocess.run(argv, check=False).returncode


@pytest.mark.parametrize(
    ("lines", "files", "least"),
    [
        pytest.param(LINES[::16], 100, 15, id="some", marks=pytest.mark.long),
        pytest.param(
            LINES,
            20_000,
            400,
            id="all",
            marks=[pytest.mark.long, pytest.mark.exhaustive, pytest.mark.timeout(3600)],
        ),
    ],
)
def test_each_loss_of_files_is_undone_byte_for_byte(tmp_path, lines, files, least):
    if not can_sandbox():
        pytest.skip("bwrap cannot run here")
    changed, left = undone(Sandbox(tmp_path, files), lines)
    print(f"{len(lines)} run, {changed} changed something, {changed - len(left)} undone")
    assert not left
    assert changed >= least
