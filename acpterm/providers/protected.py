"""The files of a workspace that programs in a sandbox or container may not change.

These files make programs outside of the sandbox execute something: git hooks, git's configuration,
and the configuration of agents and editors. Providers mount them read-only over the workspace.

A mount protects a file, but not the directories above it: `mv .git x; cp -r x .git` would replace
a `.git` whose `hooks` are read-only. So `.git` is *pinned*: it is mounted over itself, read-write,
and a mount point cannot be renamed.

A program may replace a name by a symbolic link before the next terminal starts. The target of a
link is never mounted, because it could be a secret outside of the workspace. So links are skipped;
their target, if it is in the workspace, is protected only by its own name.
"""

import os
import stat
from typing import Final, NamedTuple

GIT_PATHS: Final = (".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir")
"""Paths in a repository that make git execute programs."""

CONFIGURATION_PATHS: Final = (
    ".claude",
    ".codex",
    ".cursor",
    ".devcontainer",
    ".envrc",
    ".gemini",
    ".husky",
    ".idea",
    ".mcp.json",
    ".vscode",
)
"""Paths in a workspace that make agents, editors and shells execute programs."""


class Protected(NamedTuple):
    """The existing paths of a workspace that must be protected; all are absolute."""

    pinned: tuple[str, ...]
    """Directories that must not be renamed, but whose other contents may change."""
    read_only: tuple[str, ...]
    """Files and directories that must not change, to be mounted after `pinned`."""


def protected(workspace: str) -> Protected:
    """Return the existing files and directories of `workspace` to protect, without symlinks."""
    pinned: tuple[str, ...] = ()
    names: tuple[str, ...] = CONFIGURATION_PATHS
    kind = _kind(os.path.join(workspace, ".git"))
    if kind == stat.S_IFDIR:
        pinned = (os.path.join(workspace, ".git"),)
        names = (*GIT_PATHS, *names)
    elif kind == stat.S_IFREG:
        # A worktree or submodule: the file names the repository, so another one could be named.
        names = (".git", *names)
    paths = (os.path.join(workspace, name) for name in names)
    return Protected(pinned, tuple(p for p in paths if _kind(p) in (stat.S_IFDIR, stat.S_IFREG)))


def _kind(path: str) -> int | None:
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return None
