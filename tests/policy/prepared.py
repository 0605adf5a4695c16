"""The directory in which the lines of `work_lines.txt` and `loss_lines.tsv` are judged.

    home/         keys, credentials, tokens, start-up files, aliases of git
    shop.git      the remote of all that follows
    work/shop     the session's directory, on `feature/login`: of its commits `one`, `two` and `three`
                  the first was pushed, and someone else has pushed another after it
    work/lib      a clone without changes, on the pushed `main`
    work/api      a clone on `topic`, which was rebased after it was pushed; `main` is newer
    work/wt, work/clean-wt, work/other

In `shop`, `a.py`, `README.md` and `src/auth.py` are changed, `b.py` is staged and `c.py` is both.
`important.txt`, `notes.md`, `scratch.py`, `todo.txt`, `src/draft.py` and what is in `data` beside
`fixtures.json` are untracked, `.env`, `dev.db`, `local_settings.py` and `certs` are ignored, as are
the products of builds. All other files are in the last commit.
"""

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
    home, remote, work = base / "home", base / "shop.git", base / "work"
    shop, lib, api = work / "shop", work / "lib", work / "api"
    for name in _HOME:
        _write(home / name)
    (home / ".gitconfig").write_text(_ALIASES)

    def git(directory: Path, *lines: str) -> None:
        script = "set -e\n" + "\n".join(f"git {line}" for line in lines)
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin",
            "HOME": str(home),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        subprocess.run(
            ["/bin/sh", "-c", script], cwd=directory, env=env, check=True, capture_output=True
        )

    git(base, f"init -q --bare -b main {remote}")
    _write(shop / "README.md")
    git(
        shop, "init -q -b main", f"remote add origin {remote}", "add -A", "commit -qm Start",
    )  # fmt: skip
    for name in _TRACKED:
        _write(shop / name)
    (shop / ".gitignore").write_text(_IGNORE)
    (shop / "package.json").write_text('{"name": "shop", "scripts": {"test": "jest"}}\n')
    git(shop, "add -A", "commit -qm First", "tag v1.0.0", "branch fix/typo")
    for branch, name in (
        ("feature/search", "src/search.py"),
        ("experiment", "src/experiment.py"),
        ("rc", "VERSION"),
    ):
        git(shop, f"switch -qc {branch} fix/typo")
        _write(shop / name)
        git(shop, "add -A", f"commit -qm {branch}")
    git(shop, "tag v1.1.0-rc1", "switch -qc feature/login fix/typo", "branch -D rc")
    (shop / "src/auth.py").write_text("one\n")
    git(shop, "commit -qam one")
    # A commit of someone else is on the pushed branch, and only there.
    _write(shop / "src/theirs.py")
    git(
        shop, "add -A", "commit -qm Theirs",
        "push -q -u origin main v1.0.0 feature/search feature/login", "reset -q --hard HEAD~1",
    )  # fmt: skip
    for name in ("two", "three"):
        (shop / "src/auth.py").write_text(f"{name}\n")
        git(shop, f"commit -qam {name}")
    git(shop, "worktree add -q -b wt ../wt", "worktree add -q --detach ../clean-wt", "switch -q main")
    _write(shop / "src/new_page.py")
    git(
        shop, "add -A", "commit -qm Page", "switch -q feature/login",
        "config alias.undo 'reset --hard HEAD~1'",
    )  # fmt: skip
    for text in ("older", "newer"):
        (shop / "src/auth.py").write_text(f"{text}\n")
        git(shop, f"stash push -qm {text}")
    for name in ("a.py", "c.py", "README.md", "src/auth.py", "b.py"):
        (shop / name).write_text(f"{name}, changed\n")
    git(shop, "add b.py c.py")
    (shop / "c.py").write_text("changed again\n")
    for name in (*_UNTRACKED, *_IGNORED):
        _write(shop / name)
    for name in _NODE_PROGRAMS:
        _write(shop / "node_modules/.bin" / name)
    _write(work / "wt/unsaved.py")
    _write(work / "other/report.txt")

    git(base, f"clone -q {remote} {lib}", f"clone -q {remote} {api}")
    git(lib, "branch done")
    git(api, "switch -qc topic")
    for name in ("four", "five"):
        _write(api / f"src/{name}.py")
        git(api, "add -A", f"commit -qm {name}")
    git(api, "push -qu origin topic")
    for name in ("newer", "newest"):
        (lib / "src/app.py").write_text(f"{name}\n")
        git(lib, f"commit -qam {name}", "push -q")
        # The first time, `topic` is moved: what is pushed of it are the same changes.
        git(api, "fetch -q", "branch -qf main origin/main", *(["rebase -q main"] * (name == "newer")))
    return Prepared(home, shop)


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{path.parent.name}/{path.name}\n")
