"""Check of the arguments of git: which of its commands are safe, and with which options."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from acpterm.policy.arguments.options import is_outside, matching_option

_SAFE: Final = frozenset(
    ("add", "am", "annotate", "apply", "archive", "blame", "branch", "bundle", "cat-file",
     "check-attr", "check-ignore", "check-mailmap", "check-ref-format", "checkout", "cherry",
     "cherry-pick", "clone", "commit", "commit-tree", "count-objects", "describe", "diff",
     "diff-files", "diff-index", "diff-tree", "fetch", "for-each-ref", "format-patch", "fsck",
     "gc", "grep", "hash-object", "help", "init", "log", "ls-files", "ls-remote", "ls-tree",
     "maintenance", "merge", "merge-base", "merge-file", "merge-tree", "mv", "name-rev", "notes",
     "pack-objects", "patch-id", "pull", "push", "range-diff", "read-tree", "rebase",
     "reflog", "remote", "repack", "restore", "rev-list", "rev-parse", "revert", "rm", "shortlog",
     "show", "show-branch", "show-ref", "sparse-checkout", "stash", "status", "submodule",
     "switch", "symbolic-ref", "tag", "var", "verify-commit", "verify-tag", "version",
     "whatchanged", "worktree", "write-tree")
)  # fmt: skip
# Options that, with at least one command of git, execute a program, or write a file or a
# configuration. They are unsafe with each command.
_UNSAFE: Final = (
    "--config", "--config-env", "--exec", "--exec-path", "--ext-diff", "--extcmd",
    "--open-files-in-pager", "--output", "--output-directory", "--receive-pack", "--textconv",
    "--upload-pack",
)  # fmt: skip
_OPTIONS: Final[Mapping[str, tuple[str, tuple[str, ...], str]]] = {
    # For each command: the letters of unsafe short options, the unsafe long options, and the
    # letters of safe short options that take a value.
    "am": ("", ("--directory",), "C"),
    "apply": ("", ("--directory", "--unsafe-paths"), "pC"),
    "archive": ("o", ("--remote",), ""),
    "branch": ("DfMC", ("--force", "--edit-description"), "u"),
    "checkout": ("f", ("--force",), "bB"),
    "clone": ("cu", ("--separate-git-dir", "--template"), "bjo"),
    "commit": ("", (), "mFCctSuU"),
    "commit-tree": ("", (), "mFpS"),
    "fetch": ("f", ("--force",), "jo"),
    "format-patch": ("o", (), "v"),
    "gc": ("", ("--prune",), ""),
    "grep": ("O", (), "efmABC"),
    "init": ("", ("--separate-git-dir", "--template"), "b"),
    "ls-remote": ("", (), "o"),
    "mv": ("f", ("--force",), ""),
    "pull": ("f", ("--force",), "josX"),
    "push": ("fd", ("--force", "--force-with-lease", "--delete", "--mirror", "--prune"), "o"),
    "read-tree": ("", ("--reset",), ""),
    "rebase": ("xi", ("--interactive",), "sXC"),
    "restore": ("W", ("--worktree",), "s"),
    "rm": ("f", ("--force",), ""),
    "submodule": ("f", ("--force",), ""),
    "switch": ("fC", ("--force", "--discard-changes", "--force-create"), "c"),
    "tag": ("df", ("--delete", "--force"), "mFu"),
    "worktree": ("f", ("--force",), "bB"),
}
# Operands that are rather paths than branches: `./src`, `src/`, `a.py`, `*.c`, `:/`.
_PATH: Final = re.compile(r"^\.{0,2}/|/$|\.[A-Za-z]\w*$|[*?\[:]")
_ACTIONS: Final[Mapping[str, re.Pattern[str]]] = {
    # For each command whose first operand is an action: the unsafe actions.
    "bundle": re.compile("create"),
    "maintenance": re.compile("start|stop|register|unregister"),
    "reflog": re.compile("expire|delete"),
    "remote": re.compile("add|set-url|rename|rm|remove|set-head|set-branches"),
    "stash": re.compile("drop|clear"),
    "submodule": re.compile("foreach|set-url|add|deinit"),
    "worktree": re.compile("remove"),
}
_TRANSPORTS: Final = frozenset(
    ("clone", "fetch", "ls-remote", "pull", "push", "remote", "submodule")
)


def git(arguments: Sequence[str]) -> str:
    """Return why git may execute, lose, configure, or write outside of the working directory."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        argument = arguments[at]
        at += 1
        if argument == "-C":
            at += 1
        elif argument not in (
            "--no-pager", "-P", "--version", "-v", "--help", "-h", "--no-optional-locks",
            "--no-replace-objects", "--literal-pathspecs", "--glob-pathspecs",
            "--noglob-pathspecs", "--icase-pathspecs", "--bare",
        ):  # fmt: skip
            return f"the option {argument} may change what git executes"
    if at >= len(arguments):
        return ""
    command, rest = arguments[at], arguments[at + 1 :]
    if command == "config":
        return "" if _is_git_query(rest) else "it may change what git executes"
    if command not in _SAFE:
        return f"git {command} is not in the list of safe commands of git"
    letters, names, values = _OPTIONS.get(command, ("", (), ""))
    # The second search skips no values, since it is not known which options of all commands take
    # one. So `git log -S --output=x` is unsafe, although `--output=x` is the value of `-S`.
    found = matching_option(rest, letters, names, values) or matching_option(rest, "", _UNSAFE)
    if found:
        return f"git {command} {found} may execute a program, lose data or write elsewhere"
    return _git_operands(command, rest)


def _git_operands(command: str, rest: Sequence[str]) -> str:  # noqa: PLR0911  one for each case
    operands = [one for one in rest if not one.startswith("-")]
    actions = _ACTIONS.get(command)
    if actions and operands and actions.fullmatch(operands[0]):
        return f"git {command} {operands[0]} may execute a program, lose data or write elsewhere"
    if command in _TRANSPORTS and any("::" in one for one in rest):
        return "a transport (::) may execute a program"
    if command == "push" and any(one.startswith(("+", ":")) for one in operands):
        return "it overwrites or deletes a branch"
    if command == "checkout" and ("--" in rest or "." in operands or _has_paths(rest, operands)):
        return "it discards changes"
    if command == "restore" and not ("--staged" in rest or "-S" in rest):
        return "it discards changes"
    if command in ("clone", "init") and any(
        is_outside(one) and "://" not in one for one in operands
    ):
        return "it writes outside of the directory"
    return ""


def _has_paths(rest: Sequence[str], operands: Sequence[str]) -> bool:
    # A single operand may be a branch or a path.
    creates = any(one.startswith(("-b", "-B", "-t", "--track", "--orphan")) for one in rest)
    return len(operands) > (0 if any(map(_PATH.search, operands)) else 1) and not creates


def _is_git_query(rest: Sequence[str]) -> bool:
    """Return whether `git config` with the arguments `rest` only reads the configuration."""
    if rest and rest[0] in ("--list", "-l"):
        return len(rest) == 1
    return (
        len(rest) in (2, 3)
        and rest[0] in ("--get", "--get-all", "--get-regexp")
        and not any(one.startswith("-") for one in rest[1:])
    )
