"""The workspace of a sandboxed terminal: its writable directory, and the protected names in it.

Some files configure programs that the user runs outside the sandbox: git's hooks and configuration,
editors, agents, direnv. A sandboxed program that could write them would execute commands outside.
So these *protected* names are read-only in the workspace:

- A protected name that exists is read-only. It must not be a symbolic link, because the link
  itself could be replaced: `Workspace.of` refuses such a workspace.
- A directory that contains a protected name, such as `.git`, is *pinned*: it is a mount point of
  its own, so that it cannot be renamed and replaced by another directory.
- A protected name that does not exist gets a placeholder (`placeholders`), which is read-only too.
  The names in `PROTECTED_IF_EXISTING`, and `config.worktree` in a repository, get no placeholder:
  while they do not exist, programs can create them.

`.git` may be a file that names the directory of the repository, as in a worktree of git. The file
is read-only. The directory is protected as a repository if it is in the workspace. Otherwise it is
outside the workspace, and read-only as a whole: `git commit` fails in such a workspace.

Only the names at the top of the workspace are protected, and the repositories of its submodules. A
program can create a repository with hooks, or a `.envrc`, in any other directory of the workspace.
"""

import os
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple

from acpterm.providers.provider import ProviderError
from acpterm.providers.secret_paths import is_below, user_homes

PROTECTED: Final = (
    *(".git", ".envrc", ".mcp.json", ".claude", ".codex", ".gemini", ".cursor", ".vscode"),
    *(".idea", ".husky", ".devcontainer", ".devcontainer.json"),
)
"""The protected names at the top of a workspace: the files that common tools act on by default."""
PROTECTED_IF_EXISTING: Final = (
    *(".zed", ".fleet", ".windsurf", ".kiro", ".opencode", ".continue", ".roo", ".agents"),
    *(".amazonq", ".qwen", ".exrc", ".nvim.lua", ".nvimrc", ".dir-locals.el", ".mise.toml"),
    *("mise.toml", ".gitmodules", ".direnv", ".pre-commit-config.yaml", ".lefthook.yml"),
)
"""More protected names, which get no placeholder if they do not exist: each one costs time."""

PROTECTED_IN_GIT: Final = ("hooks", "config", "config.worktree", "commondir")
"""The protected names in the directory of a repository."""
# No placeholders are needed: git reads this file only with a setting in `config`, which is
# protected. An empty directory with this name would make git fail.
_NO_PLACEHOLDER: Final = ("config.worktree",)
COMMON_DIR: Final = "commondir"
"""The name of a file in a repository's directory: it names the directory with hooks and config."""

PLACEHOLDER_MTIME_S: Final = 1
"""The modification time that identifies a placeholder, in seconds since 1970."""

# Directories of the system, or of all programs: a workspace must not contain one of them.
_NEVER_IN_WORKSPACE: Final = (
    *("/usr", "/etc", "/home", "/root", "/var", "/run", "/dev"),
    "/tmp",  # noqa: S108  the directory itself
)
_NEVER_WORKSPACES: Final = ("/proc", "/sys", "/dev", "/usr", "/etc", "/boot", "/bin", "/lib")
# Limits of the search for submodules: programs can create any directories in `.git/modules`.
_SUBMODULES_MAX: Final = 64
_MODULES_DEPTH_MAX: Final = 32
_MODULES_DIRECTORIES_MAX: Final = 2000
_GITFILE_MAX_BYTES: Final = 4096


class Workspace(NamedTuple):
    """A workspace, with the real paths that a sandbox mounts, in their order."""

    path: str
    pinned: tuple[str, ...]
    """Directories that must be mount points, and writable."""
    protected: tuple[str, ...]
    """Existing files and directories that must be read-only."""
    missing: tuple[str, ...]
    """Paths that do not exist, and must not be created."""

    @classmethod
    def of(cls, path: str) -> "Workspace":
        """Return the workspace at `path`. Raises `ProviderError` if it cannot be protected."""
        real = os.path.realpath(path)
        _check(path, real)
        pinned: list[str] = []
        protected: list[str] = []
        missing: list[str] = []
        for name in (*PROTECTED, *PROTECTED_IF_EXISTING):
            found = os.path.join(real, name)
            mode = _mode(found)
            if mode is None:
                if name in PROTECTED:
                    missing.append(found)
            elif name == ".git" and stat.S_ISDIR(mode) and not is_placeholder(found):
                _add_repository(found, real, pinned, protected, missing)
            else:
                protected.append(found)
                repository = repository_of(found, real) if name == ".git" else None
                if repository is not None:
                    _add_repository(repository, real, pinned, protected, missing)
        return cls(real, tuple(dict.fromkeys(pinned)), tuple(protected), tuple(missing))


def is_placeholder(path: str) -> bool:
    """Return whether `path` is a placeholder, which has a certain modification time."""
    try:
        return os.lstat(path).st_mtime_ns == PLACEHOLDER_MTIME_S * 1_000_000_000
    except OSError:
        return False


def _check(path: str, real: str) -> None:
    if not os.path.isdir(real):
        raise ProviderError(f"{path}: the workspace of a sandbox must be a directory that exists")
    # Not the `HOME` of the command: a request could name another directory.
    for never in (*_NEVER_IN_WORKSPACE, *user_homes()):
        if is_below(os.path.realpath(never), real):
            raise ProviderError(
                f"{path}: a sandbox cannot protect anything if its programs may write to {never}: "
                "use the directory of a project as the session's directory"
            )
    for never in _NEVER_WORKSPACES:
        if is_below(real, never):
            raise ProviderError(
                f"{path}: a sandbox does not write below {never}: use the directory of a project "
                "as the session's directory"
            )


def _mode(path: str) -> int | None:
    """Return the mode of a protected path; None if missing. Raises for a symbolic link."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        raise ProviderError(
            f"{path} is a symbolic link, which a sandbox cannot protect from being replaced: "
            "replace it by what it links to, or use another provider"
        )
    return mode


def _add_repository(
    directory: str, workspace: str, pinned: list[str], protected: list[str], missing: list[str]
) -> None:
    """Add paths of a repository, and of its submodules, to the three lists of `Workspace`."""
    # If not all submodules can be found, all of `modules` is protected: git cannot change any of
    # them.
    found, is_complete = submodules_of(directory)
    for repository in (directory, *found) if is_complete else (directory,):
        pinned += _parents(repository, workspace)
        for name in PROTECTED_IN_GIT:
            path = os.path.join(repository, name)
            if _mode(path) is not None:
                protected.append(path)
            elif name not in _NO_PLACEHOLDER:
                missing.append(path)
    if not is_complete:
        protected.append(os.path.join(directory, "modules"))


def submodules_of(repository: str) -> tuple[list[str], bool]:
    """Return the directories of the submodules' repositories, and whether all were found."""
    found: list[str] = []
    count = 0
    pending = [(os.path.join(repository, "modules"), 0)]
    while pending:
        directory, depth = pending.pop()
        _mode(directory)  # raises for a symbolic link
        count += 1
        if depth > _MODULES_DEPTH_MAX or count > _MODULES_DIRECTORIES_MAX:
            return found, False
        try:
            with os.scandir(directory) as entries:
                # A link to a directory counts as one, so that it is refused in its turn.
                is_directory = {one.name: one.is_dir() for one in entries}
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return found, False
        if is_directory.get("config") is False:
            if len(found) == _SUBMODULES_MAX:
                return found, False
            found.append(directory)
            # Only this directory of a repository can have further repositories in it.
            names = ["modules"]
        else:
            names = [name for name, is_one in is_directory.items() if is_one]
        pending += [(os.path.join(directory, name), depth + 1) for name in names]
    return found, True


def _parents(directory: str, workspace: str) -> Iterator[str]:
    """Yield each directory on the path from `workspace` (excluded) to `directory` (included)."""
    path = workspace
    for name in os.path.relpath(directory, workspace).split(os.sep):
        path = os.path.join(path, name)
        yield path


def repository_of(gitfile: str, workspace: str) -> str | None:
    """Return the directory that the file `.git` at `gitfile` names, if below `workspace`."""
    try:
        text = os.fsdecode(read_start(gitfile, _GITFILE_MAX_BYTES))
    except OSError:
        return None
    name = text.partition("\n")[0].removeprefix("gitdir:").strip()
    directory = os.path.realpath(os.path.join(workspace, name))
    if directory == workspace or not is_below(directory, workspace):
        return None
    return directory if os.path.isdir(directory) else None


def read_start(path: str, size: int) -> bytes:
    """Return at most `size` first bytes of a file that a program may have made. Does not wait."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read(size)
