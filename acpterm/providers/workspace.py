"""The workspace of a sandboxed terminal: the directory that it may write to, and what in it not.

Some files configure programs that the user runs outside the sandbox: git's hooks and configuration,
editors, agents, direnv. A sandboxed program that could write them would execute commands outside.
So these *protected* names are read-only in the workspace:

- A protected name that exists is read-only. It must not be a symbolic link, because the link
  itself could be replaced: `Workspace.of` refuses such a workspace.
- A directory that contains a protected name, such as `.git`, is *pinned*: it is a mount point of
  its own, so that it cannot be renamed and replaced by another directory.
- A protected name that does not exist gets a placeholder (`placeholders`), which is read-only too,
  unless it is one of `PROTECTED_IF_EXISTING`.

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
"""More such names, which get no placeholder, since each placeholder costs time."""

PROTECTED_IN_GIT: Final = ("hooks", "config", "config.worktree", "commondir")
"""The protected names in the directory of a repository."""
# git fails if these exist and are no files, or does not read them without a setting in `config`.
_NO_PLACEHOLDER: Final = ("config.worktree",)
COMMON_DIR: Final = "commondir"
"""A file in the directory of a repository that moves hooks and configuration elsewhere."""

PLACEHOLDER_MTIME_S: Final = 1
"""The modification time of a placeholder."""

# Directories whose contents belong to the system or to all programs: no workspace contains them.
_NEVER_IN_WORKSPACE: Final = (
    *("/usr", "/etc", "/home", "/root", "/var", "/run", "/dev"),
    "/tmp",  # noqa: S108  the directory itself
)
_NEVER_WORKSPACES: Final = ("/proc", "/sys", "/dev", "/usr", "/etc", "/boot", "/bin", "/lib")
# Programs can create directories in `.git/modules`: more than these are not searched.
_SUBMODULES_MAX: Final = 64
_MODULES_DEPTH_MAX: Final = 32
_MODULES_DIRECTORIES_MAX: Final = 2000
_GITFILE_MAX_BYTES: Final = 4096


class Workspace(NamedTuple):
    """A workspace, as a sandbox needs it. All paths are real paths, in an order for mounting."""

    path: str
    pinned: tuple[str, ...]
    """Directories that must be mount points, and writable."""
    protected: tuple[str, ...]
    """Existing files and directories that must be read-only."""
    missing: tuple[str, ...]
    """Paths that do not exist, and must not be created."""

    @classmethod
    def of(cls, path: str) -> "Workspace":
        """Return the workspace at `path`. Raises `ProviderError` if it cannot be one."""
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
    """Return whether there is a placeholder (`placeholders`) at `path`."""
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
    """Return the mode of a protected path; None if it does not exist. Raises `ProviderError`."""
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
    """Add the paths of the repository at `directory`, and of its submodules, to the lists."""
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
    """Return the directories of a repository's submodules, and whether all were found.

    Not all are found if there are too many, if they are too deep, or if a directory cannot be read.
    Raises `ProviderError` if a directory for submodules is a symbolic link.
    """
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
                is_directory = {one.name: one.is_dir(follow_symlinks=False) for one in entries}
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return found, False
        if is_directory.get("config") is False:
            if len(found) == _SUBMODULES_MAX:
                return found, False
            found.append(directory)
            # The other directories of a repository have no repositories in them.
            names = ["modules"]
        else:
            names = [name for name, is_one in is_directory.items() if is_one]
        pending += [(os.path.join(directory, name), depth + 1) for name in names]
    return found, True


def _parents(directory: str, workspace: str) -> Iterator[str]:
    """Yield the directories between `workspace` and `directory`, and `directory`, in that order."""
    path = workspace
    for name in os.path.relpath(directory, workspace).split(os.sep):
        path = os.path.join(path, name)
        yield path


def repository_of(gitfile: str, workspace: str) -> str | None:
    """Return the directory that the file `.git` names, if it is below the workspace."""
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
    """Return the first `size` bytes of a file that a program may have created. Raises `OSError`.

    Does not wait for a writer of a FIFO.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read(size)
