"""Finds out whether the losses that the policy suspects (`policy.losses`) would happen.

Everything here is read in a thread, within `FACTS_S` for a whole line: what is not known by then is
`LATE`, and what cannot be found out is None. Nothing is written. git sees a repository only through
a private view (`git_view`), so it executes nothing, and gets no option from the agent. A pipe is
never opened; git may open one that stands where it expects a file, and is then killed.
"""

import errno
import fnmatch
import itertools
import math
import os
import re
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from acpterm.host.git_view import Repository, find_repository, read_file, user_settings, view_of
from acpterm.policy.losses.loss import LATE, Finding, Loss, Need
from acpterm.policy.verdict import Verdict

FACTS_S: Final = 0.3
"""Maximum time in which the facts of a line are found out, in seconds."""
TEMPORARY: Final = ("/tmp", "/var/tmp", "/dev/shm", os.path.realpath(tempfile.gettempdir()))  # noqa: S108
"""Directories of files that are no loss, unless the session works there."""
MANY: Final = 3
"""Of fewer files with changes, editing in place is no loss: agents edit their own changes."""
_PATHS_MAX: Final = 256

Findings: TypeAlias = Mapping[Loss, Finding]
Where: TypeAlias = Literal["here", "isolated", "elsewhere"]
"""Where a command runs: with the files of this machine; in a sandbox or container, where it cannot
change other files of the user than the session's; or on another host, of which nothing is known."""
T_co = TypeVar("T_co", covariant=True)

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
# What git says if it cannot do what it was asked to, here: there is nothing to lose.
_REFUSALS: Final = re.compile(
    r"unknown revision|bad revision|ambiguous argument|outside repository|outside the repository"
    r"|Needed a single revision|must be run in a work tree|bad object|did not match any file"
    r"|no upstream|no such branch|does not point to a branch|log for .* is empty"
)


class _NotKnownError(Exception):
    """A fact cannot be found out."""


class _LateError(Exception):
    """There is no time left to find a fact out."""


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
        self._repositories: Final[dict[str, Repository | None]] = {}
        self._views: Final[dict[str, dict[str, str]]] = {}
        self._open = ExitStack()

    def find(self, losses: Iterable[Loss]) -> Findings:
        """Return a finding for each of the losses; may block longer than for `FACTS_S`."""
        if self._deadline == math.inf:
            self._deadline = time.monotonic() + FACTS_S
        with ExitStack() as self._open:
            found = {loss: self._finding(loss) for loss in losses}
        self._views.clear()
        return found

    def _finding(self, loss: Loss) -> Finding:
        if self._where == "elsewhere" or loss.directory is None:
            return None
        directory = os.path.join(self._directory, self._expanded(loss.directory))
        try:
            return _FACTS[loss.need](self, directory, loss.operands)
        except _LateError:
            return LATE
        except (_NotKnownError, OSError, ValueError, RecursionError):
            return None

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise _LateError
        return left

    def _expanded(self, path: str) -> str:
        return self._home + path[1:] if path == "~" or path.startswith("~/") else path

    def _nearest(self, directory: str) -> str:
        """Return `directory`, or, if an earlier command may make it, its parent that exists."""
        self._left()
        if os.path.isdir(directory):
            return directory
        directory = os.path.normpath(directory)
        while not os.path.isdir(directory):
            directory = os.path.dirname(directory)
        return directory

    def _seen_from(self, nearest: str, directory: str, paths: Iterable[str]) -> list[str]:
        """Return paths of git in `directory`, which may not exist yet, as `nearest` sees them."""
        if nearest == directory:
            return list(paths)
        full = (one if one[:1] == ":" else os.path.join(directory, one) for one in paths)
        return [one if one[:1] == ":" else os.path.relpath(one, nearest) for one in full]

    def _repository(self, directory: str) -> Repository | None:
        nearest = self._nearest(directory)
        if nearest not in self._repositories:
            self._repositories[nearest] = find_repository(nearest, self._home)
        return self._repositories[nearest]

    def _git(self, directory: str, *arguments: str, literal: bool = False) -> list[str] | None:
        """Return what git prints, split at NUL or line ends; None if git refuses the request."""
        repository = self._repository(directory)
        if repository is None:
            return None
        left = self._left()
        key = repository.git
        if key not in self._views:
            self._views[key] = self._open.enter_context(view_of(repository))
        # Not a program of the agent's directory.
        path = [one for one in os.get_exec_path() if one.startswith("/")]
        env = {"PATH": ":".join(path), "HOME": self._home, "LC_ALL": "C", **self._views[key]}
        if literal:
            env["GIT_LITERAL_PATHSPECS"] = "1"
        with subprocess.Popen(
            ["git", "--no-optional-locks", "--no-pager", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._nearest(directory),
            env=env,
        ) as process:
            try:
                output, error = process.communicate(timeout=left)
            except subprocess.TimeoutExpired:
                process.kill()
                raise _LateError from None
        if process.returncode == 0:
            return [one for one in re.split("[\0\n]", os.fsdecode(output)) if one]
        if error and not _REFUSALS.search(os.fsdecode(error)):
            raise _NotKnownError
        return None

    # ---- git

    def _status(
        self, directory: str, paths: Sequence[str], *options: str, literal: bool = False
    ) -> list[tuple[str, str]] | None:
        """Return the state (`XY`) and path of what differs; None without a repository."""
        paths = self._seen_from(self._nearest(directory), directory, paths)
        arguments = (
            "status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all", *options,
            "--", *paths,
        )  # fmt: skip
        lines = self._git(directory, *arguments, literal=literal)
        return None if lines is None else [(line[:2], line[3:]) for line in lines]

    def changed(self, directory: str, paths: tuple[str, ...]) -> Finding:
        found = self._status(directory, paths, "--untracked-files=no") or ()
        return tuple(path for state, path in found if state[1] != " ")

    def reset(self, directory: str, operands: tuple[str, ...]) -> Finding:
        commit = operands[0] if operands else ""
        found = self._status(directory, operands[1:], "--untracked-files=no") or ()
        changed = tuple(path for _, path in found)
        return (*changed, *self._lost_commits(directory, commit)) if commit else changed

    def _lost_commits(self, directory: str, commit: str) -> list[str]:
        found = self._git(
            directory, "rev-list", "--abbrev-commit", "--max-count=100", "HEAD", "--not",
            f"--exclude={self._branch(directory)}", "--branches", "--remotes", "--tags",
            "--end-of-options", _commit(commit), "--",
        )  # fmt: skip
        return [f"commit {one}" for one in found or ()]

    def _branch(self, directory: str) -> str:
        """Return the current branch; empty if there is none."""
        repository = self._repository(directory)
        head = (repository and read_file(os.path.join(repository.git, "HEAD"))) or ""
        return head.strip().removeprefix("ref: refs/heads/") if head.startswith("ref: ") else ""

    def cleaned(self, directory: str, arguments: tuple[str, ...]) -> Finding:
        options, paths = _clean_arguments(arguments)
        nearest = self._nearest(directory)
        if nearest != directory:
            paths = self._seen_from(nearest, directory, paths or ["."])
        found = self._git(directory, "clean", "-n", *options, "--", *paths) or ()
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

    def moved(self, directory: str, operands: tuple[str, ...]) -> Finding:
        name, target = operands
        try:
            left = self._git(
                directory, "rev-list", "--max-count=1", f"refs/heads/{name}", "--not",
                "--end-of-options", _commit(target), "--",
            )  # fmt: skip
        except _NotKnownError:
            left = None
        # Where it is only moved ahead, nothing is lost.
        return () if left == [] else self.branches(directory, (name,))

    def _is_only_on(self, directory: str, name: str) -> bool:
        if name.startswith("@{"):
            full = self._git(directory, "rev-parse", "--symbolic-full-name", name, "--")
            name = (full or [""])[0].removeprefix("refs/heads/")
        found = self._git(
            directory, "rev-list", "--max-count=1", f"refs/heads/{name}", "--not",
            f"--exclude={name}", "--branches", "--remotes", "--tags", "--",
        )  # fmt: skip
        return found is not None and (bool(found) or name in self._default_branches(directory))

    def _default_branches(self, directory: str) -> frozenset[str]:
        repository = self._repository(directory)
        start = "refs/remotes/origin/"
        found = repository and read_file(os.path.join(repository.common, start, "HEAD"))
        if not found or not found.startswith(f"ref: {start}"):
            return _DEFAULT_BRANCHES
        return frozenset((found.removeprefix(f"ref: {start}").strip(),))

    def default(self, directory: str, names: tuple[str, ...]) -> Finding:
        if not names or names == ("HEAD",):
            names = tuple(filter(None, (self._branch(directory),)))
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
        if "*" in names:
            return tuple(self._git(directory, "tag") or ())
        return tuple(
            one for one in names
            if self._git(directory, "rev-parse", "-q", "--verify", f"refs/tags/{one}")
        )  # fmt: skip

    def pushed(self, directory: str, operands: tuple[str, ...]) -> Finding:
        start = ["--max-count=1", "HEAD"]
        if operands:
            start = [
                "--max-count=1000",
                "HEAD",
                *(f"^{_commit(one)}" for one in operands[1:] if one),
            ]
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
        repository = self._repository(directory)
        settings = user_settings(self._home) if repository is None else repository.settings
        found = settings.get(f"alias.{names[0].lower()}")
        return (found,) if found else ()

    # ---- Files

    def _existing(self, directory: str, operands: Sequence[str]) -> list[str]:
        """Return the paths of the operands that exist and whose loss would be the user's."""
        found: list[str] = []
        for operand in operands:
            path = os.path.join(directory, self._expanded(operand))
            if self._nearest(directory) != directory:
                path = os.path.normpath(path)
            paths: Iterable[str] = [path]
            if any(one in operand for one in "*?[") and not os.path.lexists(path):
                paths = itertools.islice(self._matching(path), _PATHS_MAX)
            for one in paths:
                self._left()
                if self._is_users(one) and one not in found:
                    found.append(one)
        return found[:_PATHS_MAX]

    def _matching(self, pattern: str) -> Iterator[str]:
        """Yield the paths that match, as a shell finds them."""
        found: Iterable[str] = ("/",)
        for part in filter(None, pattern.split("/")):
            found = self._matching_in(found, part)
        return filter(os.path.lexists, found)

    def _matching_in(self, directories: Iterable[str], part: str) -> Iterator[str]:
        if not any(one in part for one in "*?["):
            yield from (os.path.join(one, part) for one in directories)
            return
        matches = re.compile(fnmatch.translate(part)).match
        for directory in directories:
            self._left()
            try:
                entries = os.scandir(directory)
            except OSError:
                continue
            with entries:
                for entry in entries:
                    self._left()
                    if matches(entry.name) and (entry.name[0] != "." or part[0] == "."):
                        yield entry.path

    def _is_users(self, path: str) -> bool:
        real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if _is_below(real, self._root):
            return True
        return self._where == "here" and not any(_is_below(real, one) for one in TEMPORARY)

    def _is_derived(self, path: str) -> bool:
        # Of a path elsewhere, the directories above are not the project's: `/tmp`, `~/build`.
        places = [one for one in (self._root, self._directory) if _is_below(path, one)]
        if places:
            path = os.path.relpath(path, places[0])
        parts = path.split("/")[-1 if os.path.isabs(path) else 0 :]
        return _DERIVED.fullmatch(parts[-1]) is not None or any(
            one in _DERIVED_DIRECTORIES for one in parts
        )

    def _lost(self, directory: str, paths: list[str]) -> list[str]:
        """Return those of `paths` that git cannot restore and no build makes again."""
        paths = [one for one in paths if not self._is_derived(one)]
        if not paths:
            return []
        repository = self._repository(directory)
        top = None if repository is None else repository.top
        if top is None:
            return paths
        real = {
            one: os.path.join(os.path.realpath(os.path.dirname(one)), os.path.basename(one))
            for one in map(os.path.normpath, paths)
        }
        inside = {one for one in real.values() if _is_tracked_in(top, one)}
        if not inside:
            return paths
        options = ("--untracked-files=all", "--ignored=traditional")
        try:
            states = self._status(directory, sorted(inside), *options, literal=True)
        except FileNotFoundError:
            # There is no git on the PATH that could restore them.
            states = None
        if states is None:
            return paths
        changed = _Places(
            os.path.join(top, path.rstrip("/")) for state, path in states if state != "!!"
        )
        self._left()
        ignored = _Places(
            os.path.join(top, path.rstrip("/")) for state, path in states if state == "!!"
        )
        self._left()
        return [
            one for one, path in real.items()
            if path not in inside
            or changed.has_near(path)
            or (_KEPT.fullmatch(os.path.basename(path)) and ignored.has_near(path))
        ]  # fmt: skip

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
                if re.search(
                    rf"[\"']{re.escape(package)}\b",
                    read_file(os.path.join(current, file), follow=True) or "",
                ):
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
    Need.MOVED: LossFacts.moved,
    Need.OVERWRITTEN: LossFacts.overwritten,
    Need.PUSHED: LossFacts.pushed,
    Need.RESET: LossFacts.reset,
    Need.STASH: LossFacts.stash,
    Need.TAG: LossFacts.tags,
    Need.UNSAVED: LossFacts.unsaved,
}


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _is_tracked_in(top: str, path: str) -> bool:
    """Return whether the repository of `top` may have a path: it has none of another, or `.git`."""
    if not _is_below(path, top) or ".git" in path.split("/"):
        return False
    while path != top:
        if os.path.lexists(os.path.join(path, ".git")):
            return False
        path = os.path.dirname(path)
    return True


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


class _Places:
    """Paths, of which it is asked whether one is above or below another."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths: Final = set(paths)
        self._above: Final[set[str]] = set()
        for path in self._paths:
            while (path := os.path.dirname(path)) not in self._above:
                self._above.add(path)

    def has_near(self, path: str) -> bool:
        """Return whether one of the paths is `path`, or above or below it."""
        if path in self._above:
            return True
        while path not in self._paths:
            above = os.path.dirname(path)
            if above == path:
                return False
            path = above
        return True


def _commit(text: str) -> str:
    """Return the name of a commit, which git cannot read as an option."""
    if text.startswith("-"):
        raise _NotKnownError
    return text


def _clean_arguments(arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return options for `git clean -n`, made again from those that are known, and the paths."""
    options: list[str] = []
    paths: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            paths += words
        elif word == "--exclude":
            options.append(f"--exclude={next(words, '')}")
        elif word.startswith("--exclude="):
            options.append(word)
        elif word in ("--force", "--quiet"):
            pass
        elif match := re.fullmatch(r"-([dxXfq]*)(e?)(.*)", word, re.DOTALL):
            letters, is_excluding, value = match.groups()
            options += [f"-{one}" for one in letters if one in "dxX"]
            if is_excluding:
                options.append(f"--exclude={value or next(words, '')}")
            elif value or not letters:
                raise _NotKnownError
        elif word.startswith("-"):
            raise _NotKnownError
        else:
            paths.append(word)
    return options, paths


class Judging(Protocol[T_co]):
    """Judges one command by what has been found out about it."""

    def __call__(self, *, findings: Findings) -> T_co: ...


def judged_now(judge: Judging[Verdict], facts: LossFacts) -> Verdict:
    """Judge a command until all facts about it are known; blocks for up to `FACTS_S`."""
    findings: dict[Loss, Finding] = {}
    verdict = judge(findings=findings)
    while verdict.pending:
        # What an alias hides is found in the next round.
        findings.update(facts.find(verdict.pending))
        verdict = judge(findings=findings)
    return verdict
