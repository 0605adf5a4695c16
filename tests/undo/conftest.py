import os
import stat
import subprocess

import pytest

from acpterm.undo.restore import apply, plan
from acpterm.undo.store import Store
from tests.support.depth import DEADLINE_S

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_EDITOR": "true",
}


class Project:
    """A directory with a store of its own."""

    def __init__(self, root, stores):
        self.root = str(root)
        self.stores = str(stores)
        self.store = Store(self.stores, self.root)

    def run(self, line, **more):
        environment = ENVIRONMENT | {"HOME": os.path.dirname(self.root)} | more
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self.root,
            env=environment,
            capture_output=True,
            check=False,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def keep(self, why="test"):
        with self.store.locked():
            return self.store.keep(why)

    def undo(self, target):
        with self.store.locked():
            kept = self.store.keep("before an undo")
            found = plan(self.store, kept, target)
            return found, apply(self.store, found)

    def restored(self, target):
        """Undo without failures; return the state."""
        _, failures = self.undo(target)
        assert not failures
        return self.state()

    def state(self):
        """Return the type, mode and content of each path, without objects, and what git says."""
        found = {}
        for directory, directories, names in os.walk(self.root):
            if ".git" in directory and "objects" in directories:
                directories.remove("objects")
            for name in [*directories, *names, "."]:
                path = os.path.join(directory, name)
                status = os.lstat(path)
                content = None
                if stat.S_ISLNK(status.st_mode):
                    content = os.readlink(path)
                elif stat.S_ISREG(status.st_mode):
                    with open(path, "rb") as file:
                        content = file.read()
                found[os.path.relpath(path, self.root)] = status.st_mode, content
        if os.path.isdir(os.path.join(self.root, ".git")):
            found |= self.said()
        return found

    def said(self):
        """Return what git says about the repository."""
        return {
            words.split()[0]: self.run(f"git {words}", GIT_OPTIONAL_LOCKS="0")
            for words in (
                "status --porcelain=v2 --branch --ignored",
                "stash list",
                "for-each-ref",
                "log --all --format=%H",
                "fsck --no-dangling --no-progress",
            )
        }


@pytest.fixture
def empty(tmp_path):
    (tmp_path / "work").mkdir()
    return Project(tmp_path / "work", tmp_path / "state" / "undo")


@pytest.fixture
def project(empty):
    """A repository with branches, stashes, staged, unstaged, untracked and ignored files."""
    empty.run("""
        git init -q -b main .
        printf '*.log\\nbuild/\\n' > .gitignore
        printf '* text=auto\\n*.dat filter=evil\\n' > .gitattributes
        mkdir -p src/deep empty build
        for name in a b c d e; do echo "$name 1" > src/$name.py; done
        printf 'one\\r\\ntwo\\r\\n' > crlf.txt
        echo data > x.dat
        echo '#!/bin/sh' > run.sh; chmod 755 run.sh
        ln -s src/a.py link
        git add -A; git commit -qm first
        echo 'a 2' > src/a.py; git commit -qam second
        git checkout -qb topic; echo t > topic.txt; git add -A; git commit -qm topic
        git checkout -q main
        git branch old
        echo stashed > src/b.py; git stash -q
        echo again > src/c.py; git stash -q
        git tag v1
        echo 'd staged' > src/d.py; git add src/d.py; echo 'd unstaged' > src/d.py
        echo 'e unstaged' > src/e.py
        echo new > 'new file'; git add 'new file'
        echo secret > .env; chmod 600 .env
        echo untracked > "$(printf 'a\\nb "q" \\\\ \\303\\251')"
        echo log > x.log; echo out > build/out; chmod 700 build
        printf '\\0\\377' > src/deep/bytes
    """)
    return empty
