"""The directory in which the lines of `work_lines.txt` and `loss_lines.tsv` are judged.

    home/         keys, credentials, tokens, start-up files, aliases of git
    shop.git      the remote of all that follows
    work/shop     the session's directory, on `feature/login`: `one` was pushed, `two` and `three`
                  were not, and the pushed branch has a commit of someone else
    work/lib      a clone without changes, on the pushed `main`
    work/api      a clone on `topic`, which was rebased after it was pushed; `main` is newer
    work/team     a clone on `release`, which was pushed; `main` is newer
    work/wt, work/clean-wt, work/other

In `shop`, `a.py`, `README.md` and `src/auth.py` are changed, `b.py` is staged and `c.py` is both.
`important.txt`, `notes.md`, `scratch.py`, `todo.txt`, `src/draft.py` and what is in `data` beside
`fixtures.json` are untracked, `.env`, `dev.db`, `local_settings.py` and `certs` are ignored, as are
the products of builds. All other files are in the last commit.
"""

import os
import subprocess
from pathlib import Path
from typing import NamedTuple

_TRACKED = (
    "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "Dockerfile", "docker-compose.yml",
    "package.json", "package-lock.json", "tsconfig.json", "pyproject.toml", "requirements.txt",
    "Cargo.toml", "go.mod", "main.go", "pom.xml", "Gemfile", "composer.json", "config.yaml",
    "main.tf", ".env.example", "a.py", "b.py", "c.py", "src/__init__.py", "src/app.py",
    "src/auth.py", "src/config.py", "src/models.py", "src/utils.py", "src/index.ts", "src/App.tsx",
    "src/server.js", "src/main.rs", "src/x.c", "internal/store/store.go", "tests/test_app.py",
    "tests/test_auth.py", "docs/index.md", "docs/api.md", "docs/old.md", "scripts/deploy.sh",
    "scripts/setup.sh", "scripts/seed.py", "k8s/deployment.yaml", "data/fixtures.json",
)  # fmt: skip
_UNTRACKED = (
    "important.txt", "notes.md", "scratch.py", "todo.txt", "src/draft.py", "data/local.csv",
    "data/local.json", "data/report.txt",
)  # fmt: skip
_IGNORED = (
    ".env", ".env.local", ".env.production", "dev.db", "local_settings.py", "certs/server.key",
    "server.log", "build/log.txt", "build/output.o", "build/app.py", "dist/bundle.js",
    "dist/index.js", "target/app.jar", "coverage/index.html", ".coverage", "bin/main",
    ".venv/bin/python", "src/__pycache__/app.cpython-312.pyc", "node_modules/react/package.json",
)  # fmt: skip
_IGNORE = (
    ".env\n.env.*\n!.env.example\n*.db\nlocal_settings.py\ncerts/\n*.log\n*.o\nbuild/\ndist/\n"
    "target/\ncoverage/\n.coverage\nbin/\n.venv/\n__pycache__/\nnode_modules/\n"
)
_NODE_PROGRAMS = (
    "tsc", "eslint", "prettier", "jest", "vitest", "vite", "playwright", "prisma", "next", "mocha",
    "ts-node", "tsx", "webpack", "rollup", "esbuild", "tailwindcss", "nodemon", "drizzle-kit",
    "storybook", "cypress", "lint-staged", "husky", "turbo", "nx", "knex", "sequelize-cli",
    "typeorm", "lerna", "changeset", "semantic-release", "vsce", "gh-pages", "serverless", "cdk",
    "rimraf",
)  # fmt: skip
_HOME = (
    ".ssh/id_ed25519", ".ssh/id_ed25519.pub", ".ssh/id_rsa", ".ssh/authorized_keys",
    ".ssh/known_hosts", ".ssh/config", ".aws/credentials", ".aws/config", ".bashrc", ".zshrc",
    ".profile", ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".docker/config.json",
    ".kube/config", ".config/gh/hosts.yml", ".bash_history", "important.txt", "Documents/a.txt",
)  # fmt: skip
_ALIASES = """\
[user]
    name = Test
    email = test@example.com
[alias]
    st = status
    lg = log --oneline --graph
    co = checkout
    wipe = !git reset --hard && git clean -fd
    nuke = clean -fdx
    discard = checkout -- .
    fp = push --force
"""


class Prepared(NamedTuple):
    """The places that lines of the tables mean by `~` and by relative paths."""

    home: Path
    shop: Path


def prepare(base: Path) -> Prepared:
    """Make the directory in `base`, which exists."""
    prepared = Prepared(base / "home", base / "work/shop")
    _write(prepared.home, *_HOME)
    (prepared.home / ".gitconfig").write_text(_ALIASES)
    _make_shop(prepared, base / "shop.git")
    _change_shop(prepared.shop)
    _make_clones(prepared, base / "shop.git")
    _write(base / "work", "wt/unsaved.py", "other/report.txt")
    return prepared


def _make_shop(prepared: Prepared, remote: Path) -> None:
    shop = prepared.shop
    _write(shop, "README.md")

    def git(*lines: str) -> None:
        _git(prepared, shop, *lines)

    git(
        f"init -q --bare -b main {remote}", "init -q -b main", f"remote add origin {remote}",
        "add -A", "commit -qm Start",
    )  # fmt: skip
    _write(shop, *_TRACKED)
    (shop / ".gitignore").write_text(_IGNORE)
    (shop / "package.json").write_text('{"name": "shop", "scripts": {"test": "jest"}}\n')
    git("add -A", "commit -qm First", "tag v1.0.0", "branch fix/typo")
    for branch, name in (
        ("feature/search", "src/search.py"),
        ("experiment", "src/experiment.py"),
        ("rc", "VERSION"),
    ):
        git(f"switch -qc {branch} fix/typo")
        _write(shop, name)
        git("add -A", f"commit -qm {branch}")
    git("tag v1.1.0-rc1", "switch -qc feature/login fix/typo", "branch -D rc")
    (shop / "src/auth.py").write_text("one\n")
    git("commit -qam one")
    _write(shop, "src/theirs.py")
    git(
        "add -A", "commit -qm Theirs", "push -qu origin main v1.0.0 feature/search feature/login",
        "reset -q --hard HEAD~1",
    )  # fmt: skip
    for name in ("two", "three"):
        (shop / "src/auth.py").write_text(f"{name}\n")
        git(f"commit -qam {name}")
    git("worktree add -q -b wt ../wt", "worktree add -q --detach ../clean-wt", "switch -q main")
    _write(shop, "src/new_page.py")
    git("add -A", "commit -qm Page", "switch -q feature/login")
    git("config alias.undo 'reset --hard HEAD~1'")
    for text in ("older", "newer"):
        (shop / "src/auth.py").write_text(f"{text}\n")
        git(f"stash push -qm {text}")
    for name in ("b.py", "c.py"):
        (shop / name).write_text(f"{name}, changed\n")
    git("add b.py c.py")


def _change_shop(shop: Path) -> None:
    for name in ("a.py", "README.md", "src/auth.py"):
        (shop / name).write_text(f"{name}, changed\n")
    (shop / "c.py").write_text("c.py, changed again\n")
    _write(shop, *_UNTRACKED, *_IGNORED)
    _write(shop / "node_modules/.bin", *_NODE_PROGRAMS)


def _make_clones(prepared: Prepared, remote: Path) -> None:
    work = prepared.shop.parent
    lib, api, team = work / "lib", work / "api", work / "team"
    for clone in (lib, api, team):
        _git(prepared, work, f"clone -q {remote} {clone}")
    _git(prepared, lib, "branch done")
    for clone, branch in ((api, "topic"), (team, "release")):
        _git(prepared, clone, f"switch -qc {branch}")
        for name in (f"{branch}1.py", f"{branch}2.py"):
            _write(clone, name)
            _git(prepared, clone, "add -A", f"commit -qm {name}")
        _git(prepared, clone, f"push -qu origin {branch}")
    for name in ("newer", "newest"):
        (lib / "src/app.py").write_text(f"{name}\n")
        _git(prepared, lib, f"commit -qam {name}", "push -q")
        _git(prepared, api, "fetch -q", "branch -qf main origin/main")
        if name == "newer":
            _git(prepared, api, "rebase -q main")
    _git(prepared, team, "fetch -q", "branch -qf main origin/main")


def _git(prepared: Prepared, directory: Path, *lines: str) -> None:
    script = "\n".join(("set -e", *(f"git {line}" for line in lines)))
    env = {"PATH": os.environ["PATH"], "HOME": str(prepared.home), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["sh", "-c", script], cwd=directory, env=env, check=True, capture_output=True)


def _write(directory: Path, *names: str) -> None:
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{path.parent.name}/{path.name}\n")
