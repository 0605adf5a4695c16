"""Finds out whether the losses that the policy suspects (`policy.losses`) would happen.

Everything here is read in a thread, within `FACTS_S` for a whole line, and may find nothing out: a
fact that is not known in time is None. Nothing is written and nothing of a repository is executed:
git takes no lock, and runs no hook, file-system monitor or filter. A pipe is never opened; git may
open one that stands where it expects a file, and is then killed.
"""

import errno
import glob
import itertools
import math
import os
import re
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Literal, TypeAlias

from acpterm.policy.losses.loss import Finding, Loss, Need
from acpterm.policy.verdict import Verdict

FACTS_S: Final = 0.3
"""Maximum time in which the facts of a line are found out, in seconds."""
TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm", os.path.realpath(tempfile.gettempdir()))  # noqa: S108
"""Directories of files that are no loss, unless the session works there."""
MANY: Final = 3
"""Of fewer files with changes, editing in place is no loss: agents edit their own changes."""
_PATHS_MAX: Final = 256
_FILE_BYTES_MAX: Final = 1024 * 1024

Findings: TypeAlias = Mapping[Loss, Finding]
Where: TypeAlias = Literal["here", "isolated", "elsewhere"]
"""Where a command runs: with the files of this machine; in a sandbox or container, where it cannot
change other files of the user than the session's; or on another host, of which nothing is known."""

_DEFAULT_BRANCHES: Final = frozenset(("main", "master", "trunk"))
# Files that can be made again.
_DERIVED: Final = re.compile(
    r".*(?:\.(?:log|pyc|pyo|o|obj|a|so|class|tmp|temp|swp|swo|pid|lock|cache|out|gcda|gcno|d|map"
    r"|tsbuildinfo)|~)"
    r"|\.coverage|\.DS_Store|nohup\.out|a\.out|core(?:\.\d+)?|npm-debug\.log.*|coverage\.\w+"
)
_DERIVED_DIRECTORIES: Final = frozenset(
    (".cache", ".eggs", ".gradle", ".mypy_cache", ".next", ".nuxt", ".parcel-cache",
     ".pytest_cache", ".ruff_cache", ".tox", ".turbo", ".venv", "__pycache__", "build", "coverage",
     "dist", "htmlcov", "node_modules", "out", "target", "tmp", "venv")
)  # fmt: skip
# Ignored files that are not made again by a build.
_KEPT: Final = re.compile(
    r"\.env(?:\..*)?|.*\.(?:env|db|sqlite3?|key|pem|p12|kdbx|local|secret|sql|dump|bak|local\.\w+)"
)
_QUIET_GIT: Final = {
    "core.fsmonitor": "false", "core.hooksPath": "/dev/null", "core.quotePath": "false",
    "core.pager": "cat", "log.showSignature": "false", "status.submoduleSummary": "false",
    "core.untrackedCache": "keep", "diff.external": "", "submodule.recurse": "false",
}  # fmt: skip


def _configured(values: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which git has these settings."""
    env = {"GIT_CONFIG_COUNT": str(len(values))}
    for number, (name, value) in enumerate(values.items()):
        env[f"GIT_CONFIG_KEY_{number}"] = name
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    return env


_ENVIRONMENT: Final = {
    "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1",
    "GIT_ADVICE": "0", **_configured(_QUIET_GIT),
}  # fmt: skip


class _NotKnownError(Exception):
    """A fact cannot be found out."""


class LossFacts:
    """Finds the facts about one line, in `FACTS_S` from the first question on."""

    def __init__(
        self, directory: str, *, root: str | None = None, where: Where = "here", home: str = ""
    ) -> None:
        # `root` is the directory of the session, by default that of the line.
        self._directory: Final = directory
        self._root: Final = os.path.realpath(root or directory)
        self._where: Final = where
        self._home: Final = home or os.path.expanduser("~")
        # Set when the first fact is asked for.
        self._deadline = math.inf
        self._read_settings: Final[dict[str, list[str]]] = {}

    def find(self, losses: Iterable[Loss]) -> Findings:
        """Return a finding for each of the losses; blocks for up to `FACTS_S`."""
        if self._deadline == math.inf:
            self._deadline = time.monotonic() + FACTS_S
        return {loss: self._finding(loss) for loss in losses}

    def _finding(self, loss: Loss) -> Finding:
        if self._where == "elsewhere" or loss.directory is None:
            return None
        directory = os.path.join(self._directory, self._expanded(loss.directory))
        try:
            if not os.path.isdir(directory):
                # An earlier command of the line may make it; then it has nothing to lose.
                return ()
            return _FACTS[loss.need](self, directory, loss.operands)
        except (_NotKnownError, OSError, ValueError):
            return None

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise _NotKnownError
        return left

    def _expanded(self, path: str) -> str:
        return self._home + path[1:] if path == "~" or path.startswith("~/") else path

    def _git(
        self, directory: str, *arguments: str, env: Mapping[str, str] | None = None
    ) -> list[str] | None:
        """Return what git prints, split at NUL or line ends; None if git refuses the request."""
        status, output, error = self._run(directory, arguments, env or {})
        if status:
            if any(
                one in error for one in ("dubious ownership", "unable to", "cannot ", "bad config")
            ):
                raise _NotKnownError
            return None
        return [one for one in re.split("[\0\n]", output) if one]

    def _settings(self, directory: str) -> list[str]:
        """Return the names of git's settings of filters, and of another place of the files."""
        found = self._read_settings.get(directory)
        if found is None:
            arguments = ("--name-only", "--get-regexp", r"^(filter\.|core\.worktree$)")
            found = self._git(directory, "config", "--null", *arguments) or []
            self._read_settings[directory] = found
        return found

    def _run(
        self, directory: str, arguments: Sequence[str], env: Mapping[str, str]
    ) -> tuple[int, str, str]:
        left = self._left()
        own = {"PATH": os.environ.get("PATH", os.defpath), "HOME": self._home, **_ENVIRONMENT}
        try:
            process = subprocess.Popen(
                ["git", "--no-optional-locks", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=directory,
                env={**own, **env},
            )
        except FileNotFoundError as error:
            if os.path.isdir(directory):
                raise _NotKnownError from error
            raise
        with process:
            try:
                output, errors = process.communicate(timeout=left)
            except subprocess.TimeoutExpired:
                process.kill()
                raise _NotKnownError from None
        return process.returncode, os.fsdecode(output), os.fsdecode(errors)

    # ---- git

    def _status(
        self, directory: str, paths: Sequence[str], *options: str, literal: bool = False
    ) -> list[tuple[str, str]] | None:
        """Return the state (`XY`) and path of what differs; None without a repository."""
        arguments = (
            "status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all", *options,
            "--", *paths,
        )  # fmt: skip
        # git may run the filters of the repository only here.
        values = {
            name: "false" if name.endswith(".required") else ""
            for name in self._settings(directory)
            if name.startswith("filter.")
        }
        env = _configured({**_QUIET_GIT, **values})
        if literal:
            env["GIT_LITERAL_PATHSPECS"] = "1"
        lines = self._git(directory, *arguments, env=env)
        return None if lines is None else [(line[:2], line[3:]) for line in lines]

    def changed(self, directory: str, paths: tuple[str, ...]) -> Finding:
        found = self._status(directory, paths, "--untracked-files=no") or ()
        return tuple(path for state, path in found if state[1] != " ")

    def reset(self, directory: str, operands: tuple[str, ...]) -> Finding:
        commit = operands[0] if operands else ""
        options = ("--branch", "--no-ahead-behind") if commit else ()
        found = self._status(directory, operands[1:], "--untracked-files=no", *options) or ()
        changed = [path for state, path in found if state != "##"]
        if commit and found:
            # `main`, `main...origin/main`, `HEAD (no branch)`
            branch = re.split(r" |\.\.\.", found[0][1])[0]
            lost = self._git(
                directory, "rev-list", "--abbrev-commit", "--max-count=100", "HEAD", "--not",
                f"--exclude={branch}", "--branches", "--remotes", "--tags", commit, "--",
            )  # fmt: skip
            changed += [f"commit {one}" for one in lost or ()]
        return tuple(changed)

    def cleaned(self, directory: str, arguments: tuple[str, ...]) -> Finding:
        found = self._git(directory, "clean", "-n", *arguments) or ()
        start = "Would remove "
        return tuple(
            path for line in found
            if line.startswith(start) and not self._is_derived(path := line[len(start) :])
        )  # fmt: skip

    def stash(self, directory: str, operands: tuple[str, ...]) -> Finding:
        found = self._git(directory, "log", "-g", "--format=%gd: %gs", "refs/stash", "--") or ()
        if operands == ("--all",):
            return tuple(found)
        number = re.sub(r"\D", "", operands[0]) if operands else "0"
        return tuple(one for one in found if one.startswith(f"stash@{{{number}}}"))

    def branches(self, directory: str, names: tuple[str, ...]) -> Finding:
        if "*" in names:
            form = "--format=%(refname:short)"
            names = tuple(self._git(directory, "for-each-ref", form, "refs/heads") or ())
        return tuple(one for one in names if self._is_only_on(directory, one))

    def _is_only_on(self, directory: str, name: str) -> bool:
        found = self._git(
            directory, "rev-list", "--max-count=1", f"refs/heads/{name}", "--not",
            f"--exclude={name}", "--branches", "--remotes", "--tags", "--",
        )  # fmt: skip
        return found is not None and (bool(found) or name in self._default_branches(directory))

    def _default_branches(self, directory: str) -> frozenset[str]:
        found = self._git(directory, "symbolic-ref", "-q", "refs/remotes/origin/HEAD")
        if not found:
            return _DEFAULT_BRANCHES
        return frozenset((found[0].removeprefix("refs/remotes/origin/"),))

    def default(self, directory: str, names: tuple[str, ...]) -> Finding:
        if not names or names == ("HEAD",):
            current = self._git(directory, "symbolic-ref", "-q", "--short", "HEAD")
            names = tuple(current or ())
        default = self._default_branches(directory)
        found: list[str] = []
        for name in (one.removeprefix("refs/heads/") for one in names):
            # Commits of the remote's branch that are not here, not even with another parent.
            lost = self._git(
                directory, "rev-list", "--abbrev-commit", "--cherry-pick", "--right-only",
                "--max-count=100", f"HEAD...refs/remotes/origin/{name}", "--",
            )  # fmt: skip
            found += lost or ([name] if name in default else [])
        return tuple(found)

    def tags(self, directory: str, names: tuple[str, ...]) -> Finding:
        return tuple(
            one for one in names
            if self._git(directory, "rev-parse", "-q", "--verify", f"refs/tags/{one}")
        )  # fmt: skip

    def pushed(self, directory: str, operands: tuple[str, ...]) -> Finding:
        start = ["--max-count=1", "HEAD"]
        if operands:
            start = ["--max-count=1000", "HEAD", *(f"^{one}" for one in operands[1:] if one)]
        rev_list = partial(self._git, directory, "rev-list", "--abbrev-commit", *start)
        rewritten = rev_list("--")
        if rewritten is None and operands:
            # The upstream is not known: it may be any commit.
            return self.pushed(directory, ())
        if not rewritten:
            return ()
        only_here = rev_list("--not", "--remotes", "--")
        return tuple(one for one in rewritten if one not in (only_here or ()))

    def alias(self, directory: str, names: tuple[str, ...]) -> Finding:
        found = self._git(directory, "config", "--null", "--get", f"alias.{names[0]}")
        return tuple(found[:1]) if found else ()

    # ---- Files

    def _existing(self, directory: str, operands: Sequence[str]) -> list[str]:
        """Return the paths of the operands that exist and whose loss would be the user's."""
        found: list[str] = []
        for operand in operands:
            path = os.path.join(directory, self._expanded(operand))
            paths: Iterable[str] = [path]
            if any(one in operand for one in "*?[") and not os.path.lexists(path):
                paths = itertools.islice(glob.iglob(path, recursive=True), _PATHS_MAX)
            for one in paths:
                self._left()
                if self._is_users(one) and one not in found:
                    found.append(one)
        return found[:_PATHS_MAX]

    def _is_users(self, path: str) -> bool:
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if _is_below(real, self._root):
            return True
        return self._where == "here" and not any(_is_below(real, one) for one in TEMPORARY)

    def _is_derived(self, path: str) -> bool:
        parts = (
            os.path.relpath(path, self._root).split(os.sep)
            if os.path.isabs(path)
            else path.split("/")
        )
        return _DERIVED.fullmatch(parts[-1]) is not None or any(
            one in _DERIVED_DIRECTORIES for one in parts
        )

    def _top(self, directory: str) -> str | None:
        """Return the directory of the repository's files; None without a repository."""
        current = os.path.realpath(directory)
        while not os.path.lexists(os.path.join(current, ".git")):
            above = os.path.dirname(current)
            if above == current:
                return None
            current = above
        if "core.worktree" in self._settings(directory):
            found = self._git(directory, "rev-parse", "--show-toplevel")
            return found[0] if found else None
        return current

    def _lost(self, directory: str, paths: list[str]) -> list[str]:
        """Return those of `paths` that git cannot restore and no build makes again."""
        paths = [one for one in paths if not self._is_derived(one)]
        if not paths or any(".git" in one.split(os.sep) for one in paths):
            return paths
        top = self._top(directory)
        if not top:
            return paths
        real = {
            one: os.path.join(os.path.realpath(os.path.dirname(one)), os.path.basename(one))
            for one in map(os.path.normpath, paths)
        }
        inside = [one for one in real.values() if _is_below(one, top)]
        if not inside:
            return paths
        options = ("--untracked-files=all", "--ignored=traditional")
        states = self._status(directory, inside, *options, literal=True)
        if states is None:
            return paths
        different = {os.path.join(top, path.rstrip("/")): state for state, path in states}
        return [
            one for one, path in real.items()
            if path not in inside or self._has_changes(path, different)
        ]  # fmt: skip

    def _has_changes(self, path: str, different: Mapping[str, str]) -> bool:
        for other, state in different.items():
            is_same = _is_below(other, path) or _is_below(path, other)
            if is_same and (state != "!!" or _KEPT.fullmatch(os.path.basename(path))):
                return True
        return False

    def _names(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the paths as the user knows them: below the line's directory, relative to it."""
        return tuple(
            os.path.relpath(one, self._directory) if _is_below(one, self._directory) else one
            for one in paths
        )

    def deleted(self, directory: str, operands: tuple[str, ...]) -> Finding:
        paths = [one for one in self._existing(directory, operands) if os.path.lexists(one)]
        return self._names(self._lost(directory, list(filter(_has_content, paths))))

    def overwritten(self, directory: str, operands: tuple[str, ...]) -> Finding:
        paths = [one for one in self._existing(directory, operands) if _is_filled_file(one)]
        return self._names(self._lost(directory, paths))

    def many(self, directory: str, operands: tuple[str, ...]) -> Finding:
        if operands[:1] == ("",):
            # Patterns of git, since the names come from another command.
            found = self._status(directory, operands[1:], "--untracked-files=no") or ()
            names = tuple(path for _, path in found)
        else:
            paths = [one for one in self._existing(directory, operands) if _is_filled_file(one)]
            names = self._names(self._lost(directory, paths))
        return names if len(names) >= MANY else ()

    def unsaved(self, directory: str, operands: tuple[str, ...]) -> Finding:
        del operands
        found = self._status(directory, (".",), "--untracked-files=all") or ()
        return tuple(path for _, path in found if not self._is_derived(path))

    def missing(self, directory: str, operands: tuple[str, ...]) -> Finding:
        package = operands[0]
        name = package.rpartition("/")[2]
        current = os.path.realpath(directory)
        while True:
            places = (
                f"node_modules/.bin/{name}", f"node_modules/{package}/package.json",
                f".venv/bin/{name}", f"venv/bin/{name}",
            )  # fmt: skip
            if any(os.path.lexists(os.path.join(current, one)) for one in places):
                return ()
            for file in ("package.json", "pyproject.toml"):
                if re.search(rf"[\"']{re.escape(package)}\b", _text(os.path.join(current, file))):
                    return ()
            above = os.path.dirname(current)
            if above == current or not _is_below(above, self._root):
                return operands
            current = above


_FACTS: Final[Mapping[Need, Callable[[LossFacts, str, tuple[str, ...]], Finding]]] = {
    Need.ALIAS: LossFacts.alias,
    Need.BRANCH: LossFacts.branches,
    Need.CHANGED: LossFacts.changed,
    Need.CLEANED: LossFacts.cleaned,
    Need.DEFAULT: LossFacts.default,
    Need.DELETED: LossFacts.deleted,
    Need.MANY: LossFacts.many,
    Need.MISSING: LossFacts.missing,
    Need.OVERWRITTEN: LossFacts.overwritten,
    Need.PUSHED: LossFacts.pushed,
    Need.RESET: LossFacts.reset,
    Need.STASH: LossFacts.stash,
    Need.TAG: LossFacts.tags,
    Need.UNSAVED: LossFacts.unsaved,
}


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _is_filled_file(path: str) -> bool:
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise _NotKnownError from error
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size > 0


def _has_content(path: str) -> bool:
    """Return whether this is a link, a file with content, or a directory with an entry."""
    status = os.lstat(path)
    if stat.S_ISDIR(status.st_mode):
        with os.scandir(path) as entries:
            return next(entries, None) is not None
    return stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_size > 0)


def _text(path: str) -> str:
    """Return the text of a regular file; empty for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return file.read(_FILE_BYTES_MAX).decode(errors="replace")


def judged_now(judge: Callable[[Findings], Verdict], facts: LossFacts) -> Verdict:
    """Judge a command until all facts about it are known; blocks for up to `FACTS_S`."""
    findings: dict[Loss, Finding] = {}
    verdict = judge(findings)
    while verdict.pending:
        # What an alias hides is found in the next round.
        findings.update(facts.find(verdict.pending))
        verdict = judge(findings)
    return verdict
