"""The losses of git's commands."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from acpterm.config.profiles import Kind
from acpterm.policy.losses.arguments import enter, has_option, operands_of, value_of
from acpterm.policy.losses.files import shown
from acpterm.policy.losses.loss import NAMES_SHOWN, THROWS, WORDS_MAX, Loss, Need
from acpterm.policy.losses.table import GIT_COMMANDS, GIT_CONFIG
from acpterm.policy.words import UNKNOWN_TEXT

_REWRITES: Final = "rewrites commits that were pushed: {}"
_Git: TypeAlias = Callable[[list[str], str | None], Iterator[Loss]]


def git_losses(texts: list[str], directory: str | None) -> Iterator[Loss]:
    at = 0
    while at < len(texts) and texts[at].startswith("-"):
        option = texts[at]
        at += 1
        if option in (
            "-C",
            "-c",
            "--git-dir",
            "--work-tree",
            "--namespace",
            "--exec-path",
            "--config-env",
        ):
            if option == "-C" and texts[at : at + 1]:
                directory = enter(directory, texts[at])
            at += 1
        if option.startswith(("--git-dir", "--work-tree")):
            directory = None
    if at >= len(texts):
        return
    command, rest = texts[at], texts[at + 1 :]
    if command == "clean" and any("requireforce=false" in one.lower() for one in texts[:at]):
        rest = ["-f", *rest]
    found = _GIT.get(command)
    if found is not None:
        yield from found(rest, directory)
    elif command not in GIT_COMMANDS and re.fullmatch(r"[\w-]+", command):
        yield Loss(
            Kind.WORK, "runs an alias of git", Need.ALIAS, (command,), directory, is_plain=False
        )


def _paths(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the paths; the whole directory if some are not known."""
    return (".",) if any(UNKNOWN_TEXT in one for one in texts) else tuple(texts[:WORDS_MAX])


def _git_checkout(rest: list[str], directory: str | None) -> Iterator[Loss]:
    operands = operands_of(rest[: rest.index("--")] if "--" in rest else rest, "bB")
    created = value_of(rest, "B")
    if created:
        yield Loss(
            Kind.HISTORY, "drops commits of {}", Need.BRANCH, (created,), directory, is_plain=False
        )
    if has_option(rest, "p", "--patch"):
        return
    if has_option(rest, "f", "--force"):
        yield Loss(Kind.WORK, THROWS, Need.RESET, (), directory)
    elif "--" in rest:
        if paths := rest[rest.index("--") + 1 :]:
            need = Need.RESET if operands else Need.CHANGED
            yield Loss(
                Kind.WORK,
                THROWS,
                need,
                ("", *_paths(paths)) if operands else _paths(paths),
                directory,
            )
    elif any(one.startswith("--pathspec-from-file") for one in rest):
        yield Loss(Kind.WORK, THROWS, Need.CHANGED, (), directory)
    elif operands and not has_option(rest, "bBt", "--orphan", "--track", "--detach"):
        is_path = operands[0] in (".", ":/", "*") or operands[0].startswith(("./", "../", ":"))
        if len(operands) > 1 and not is_path:
            # The first may be a branch.
            yield Loss(
                Kind.WORK,
                THROWS,
                Need.RESET,
                ("", *_paths(operands[1:])),
                directory,
                is_plain=False,
            )
        yield Loss(Kind.WORK, THROWS, Need.CHANGED, _paths(operands), directory, is_plain=is_path)


def _git_restore(rest: list[str], directory: str | None) -> Iterator[Loss]:
    is_staged, is_worktree = has_option(rest, "S", "--staged"), has_option(rest, "W", "--worktree")
    if has_option(rest, "p", "--patch") or (is_staged and not is_worktree):
        return
    paths = _paths(operands_of(rest, "s"))
    if is_staged or has_option(rest, "s", "--source"):
        yield Loss(Kind.WORK, THROWS, Need.RESET, ("", *paths), directory)
    elif paths or any(one.startswith("--pathspec-from-file") for one in rest):
        yield Loss(Kind.WORK, THROWS, Need.CHANGED, paths, directory)


def _git_reset(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if has_option(rest, "", "--hard", "--merge", "--keep"):
        commit = next((one for one in operands_of(rest) if UNKNOWN_TEXT not in one), "")
        yield Loss(Kind.WORK, THROWS, Need.RESET, (commit,) if commit else (), directory)


def _git_clean(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if has_option(rest, "f", "--force") and not has_option(
        rest, "ni", "--dry-run", "--interactive"
    ):
        # With -q, `git clean -n` prints nothing.
        words = [
            re.sub("[fq]", "", one) if re.fullmatch(r"-[a-zA-Z]+", one) else one for one in rest
        ]
        kept = tuple(
            one
            for one in words
            if one not in ("-", "--force", "--quiet") and UNKNOWN_TEXT not in one
        )
        yield Loss(Kind.WORK, "deletes {}", Need.CLEANED, kept, directory)


def _git_stash(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if rest[:1] in (["drop"], ["clear"]):
        operands = tuple(operands_of(rest[1:])[:1]) if rest[0] == "drop" else ("--all",)
        if any(UNKNOWN_TEXT in one for one in operands):
            operands = ("--all",)
        yield Loss(Kind.WORK, "throws away {}", Need.STASH, operands, directory)


def _git_switch(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if has_option(rest, "f", "--force", "--discard-changes"):
        yield Loss(Kind.WORK, THROWS, Need.RESET, (), directory)
    if created := value_of(rest, "C", "--force-create"):
        yield Loss(
            Kind.HISTORY, "drops commits of {}", Need.BRANCH, (created,), directory, is_plain=False
        )


def _git_branch(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if has_option(rest, "r", "--remotes"):
        return
    operands = tuple("*" if UNKNOWN_TEXT in one else one for one in operands_of(rest, "u"))
    is_forced = has_option(rest, "f", "--force")
    if has_option(rest, "D") or (is_forced and has_option(rest, "d", "--delete")):
        yield Loss(Kind.HISTORY, "deletes commits of {}", Need.BRANCH, operands, directory)
    elif is_forced or has_option(rest, "MC"):
        changed = operands[-1:] if has_option(rest, "mMcC") else operands[:1]
        yield Loss(
            Kind.HISTORY, "drops commits of {}", Need.BRANCH, changed, directory, is_plain=False
        )


def _git_tag(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if has_option(rest, "df", "--delete", "--force"):
        operands = operands_of(rest, "mFu")
        names = tuple(operands if has_option(rest, "d", "--delete") else operands[:1])
        yield Loss(Kind.HISTORY, "deletes {}", Need.TAG, names, directory)


def _git_push(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if has_option(rest, "n", "--dry-run"):
        return
    operands = operands_of(rest, "o")
    if has_option(rest, "d", "--delete", "--mirror", "--prune") or any(
        one.startswith(":") and one != ":" for one in operands[1:]
    ):
        names = [one.lstrip(":") for one in operands[1:]]
        yield Loss(
            Kind.REMOTE,
            f"deletes {shown(', '.join(names[:NAMES_SHOWN])) or 'branches'} from the remote",
        )
    elif has_option(rest, "f", "--force") or any(one.startswith("+") for one in operands):
        yield Loss(Kind.HISTORY, "overwrites commits of the remote")
    elif has_option(rest, "", "--force-with-lease", "--force-if-includes"):
        branches = tuple(one.rpartition(":")[2] for one in operands[1:] if UNKNOWN_TEXT not in one)
        yield Loss(
            Kind.HISTORY,
            "overwrites on the remote {}",
            Need.DEFAULT,
            branches,
            directory,
            is_plain=False,
        )


def _git_commit(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if has_option(rest, "", "--amend") and not has_option(rest, "", "--dry-run"):
        yield Loss(Kind.HISTORY, _REWRITES, Need.PUSHED, (), directory, is_plain=False)


def _git_rebase(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if not has_option(
        rest, "", "--abort", "--continue", "--skip", "--quit", "--edit-todo", "--show-current-patch"
    ):
        operands = operands_of(rest, "sXxC")
        upstream = next((one for one in operands if UNKNOWN_TEXT not in one), "@{upstream}")
        if has_option(rest, "", "--root"):
            upstream = ""
        yield Loss(
            Kind.HISTORY, _REWRITES, Need.PUSHED, ("rebase", upstream), directory, is_plain=False
        )


def _git_always(kind: Kind, reason: str, *words: str, options: str = "") -> _Git:
    """Return a check: a loss if the first operand is one of `words`, or an option is given."""

    def check(rest: list[str], directory: str | None) -> Iterator[Loss]:
        del directory
        if (
            (not words and not options)
            or (rest[:1] and rest[0] in words)
            or any(re.fullmatch(options, one) for one in rest if options)
        ):
            yield Loss(kind, reason)

    return check


def _git_changed(letters: str, *names: str) -> _Git:
    def check(rest: list[str], directory: str | None) -> Iterator[Loss]:
        if has_option(rest, letters, *names) and not has_option(rest, "", "--dry-run", "--cached"):
            yield Loss(Kind.WORK, THROWS, Need.RESET, ("", *_paths(operands_of(rest))), directory)

    return check


def _git_config(rest: list[str], directory: str | None) -> Iterator[Loss]:
    del directory
    is_query = has_option(
        rest,
        "l",
        "--get",
        "--get-all",
        "--get-regexp",
        "--list",
        "--get-urlmatch",
        "--show-origin",
        "--unset",
        "--unset-all",
    )
    operands = operands_of(rest, "f")
    if operands[:1] == ["set"]:
        operands = operands[1:]
    # What an alias of git's own commands hides is found when it is used.
    is_alias = operands[:1] != [] and operands[0].startswith("alias.")
    if is_query or len(operands) < 2 or (is_alias and not operands[1].startswith("!")):
        return
    if GIT_CONFIG.fullmatch(operands[0]):
        yield Loss(Kind.STARTUP, f"changes what git executes: {shown(operands[0])}")


def _git_read_tree(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if has_option(rest, "", "--reset") and not has_option(rest, "n", "--dry-run"):
        yield Loss(Kind.WORK, THROWS, Need.RESET, (), directory)


def _git_apply(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if has_option(rest, "R", "--reverse") and not has_option(
        rest, "", "--check", "--stat", "--cached"
    ):
        yield Loss(Kind.WORK, THROWS, Need.CHANGED, (), directory, is_plain=False)


def _git_pull(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if has_option(rest, "r", "--rebase") and "--rebase=false" not in rest:
        operands = [one for one in operands_of(rest, "sXjo") if UNKNOWN_TEXT not in one]
        if len(operands) > 1:
            upstream = "/".join(operands[:2])
            yield Loss(
                Kind.HISTORY,
                _REWRITES,
                Need.PUSHED,
                ("rebase", upstream),
                directory,
                is_plain=False,
            )


def _git_update_ref(rest: list[str], directory: str | None) -> Iterator[Loss]:
    operands = operands_of(rest, "m")
    if has_option(rest, "d", "--delete", "--stdin"):
        yield Loss(Kind.HISTORY, "deletes a reference")
    elif operands and operands[0].startswith("refs/heads/"):
        name = operands[0].removeprefix("refs/heads/")
        yield Loss(
            Kind.HISTORY, "drops commits of {}", Need.BRANCH, (name,), directory, is_plain=False
        )


def _git_worktree(rest: list[str], directory: str | None) -> Iterator[Loss]:
    if rest[:1] == ["remove"] and has_option(rest, "f", "--force"):
        yield Loss(
            Kind.WORK,
            "throws away the changes of a worktree",
            Need.DELETED,
            tuple(operands_of(rest[1:])),
            directory,
        )


_GIT: Final[Mapping[str, _Git]] = {
    "apply": _git_apply,
    "branch": _git_branch,
    "checkout": _git_checkout,
    "checkout-index": _git_changed("f", "--force"),
    "clean": _git_clean,
    "commit": _git_commit,
    "config": _git_config,
    "credential": _git_always(Kind.SECRETS, "shows a password", "fill"),
    "filter-branch": _git_always(Kind.HISTORY, "rewrites history"),
    "filter-repo": _git_always(Kind.HISTORY, "rewrites history"),
    "gc": _git_always(
        Kind.HISTORY, "deletes lost commits", options=r"--prune(?:=(?:now|all|0.*))?"
    ),
    "prune": _git_always(Kind.HISTORY, "deletes lost commits", options=r"(?!-n|--dry).*"),
    "push": _git_push,
    "pull": _git_pull,
    "read-tree": _git_read_tree,
    "rebase": _git_rebase,
    "reflog": _git_always(
        Kind.HISTORY, "deletes the record of earlier commits", "expire", "delete"
    ),
    "reset": _git_reset,
    "restore": _git_restore,
    "rm": _git_changed("f", "--force"),
    "stash": _git_stash,
    "submodule": _git_always(
        Kind.WORK, "throws away the changes of a submodule", options=r"deinit"
    ),
    "switch": _git_switch,
    "tag": _git_tag,
    "replace": _git_always(Kind.HISTORY, "replaces commits", options=r"(?!-l|--list).+"),
    "symbolic-ref": _git_always(Kind.HISTORY, "deletes a reference", options="-d|--delete"),
    "update-ref": _git_update_ref,
    "worktree": _git_worktree,
}
