"""The losses of git's commands."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from acpterm.config.profiles import Kind
from acpterm.policy.losses.arguments import enter, has_option, is_spared, operands_of, value_of
from acpterm.policy.losses.files import shown
from acpterm.policy.losses.loss import (
    LINE_CHARS_MAX,
    NAMES_SHOWN,
    THROWS,
    WORD_CHARS_MAX,
    WORDS_MAX,
    Loss,
    Need,
)
from acpterm.policy.losses.table import checks_of, listed_paths, listed_words
from acpterm.policy.words import UNKNOWN_TEXT, Word

_Git: TypeAlias = Callable[[list[str]], Iterator[Loss]]
_VALUES: Final = frozenset(
    ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source")
)


_KEEPERS: Final = frozenset(
    ("add", "blame", "cat-file", "commit", "fetch", "push", "show", "stash", "tag")
)
ADDING: Final = frozenset(("add", "stage", "commit", "update-index"))
"""The commands of git that give it changes which may be lost with what they are added to."""
ELSEWHERE: Final = frozenset(("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE"))
"""Variables with which git works with another repository."""
_OUTPUT: Final = "--output"
# What stashes changes before the last command of the line that drops them.
_STASHED: Final = re.compile(
    r"\bgit\b[^;&|\n]*\bstash[ \t]*(?P<untracked>(?:(?:push|save|-\S+)\b[^;&|\n]*)?)(?:[;&|\n])"
    r"(?!.*\bstash[ \t]+(?:apply|pop)).*\bstash[ \t]+(?:drop|clear)",
    re.DOTALL,
)
_WITH_UNTRACKED: Final = re.compile(r"(?:^|\s)-(?:\w*[ua]|-inc|-all)")


def git_losses(words: tuple[Word, ...], directory: str | None, line: str = "") -> list[Loss]:
    """Return the losses of git with its arguments, which runs in `directory`."""
    if (
        len(words) > 1
        and words[1].text in listed_words("git")
        and not any(word.text.startswith((_OUTPUT, "-o")) for word in words)
    ):
        return []
    texts = [word.text[:WORD_CHARS_MAX] for word in words[1:WORDS_MAX]]
    at, directory = _skip_options(texts, directory)
    if at >= len(texts):
        return []
    command, rest = texts[at], texts[at + 1 :]
    if command == "clean" and any("requireforce=false" in one.lower() for one in texts[:at]):
        rest = ["-f", *rest]
    if output := value_of(rest, "o" if command == "archive" else "", _OUTPUT):
        operands = (output,)
        return [Loss(Kind.WORK, "overwrites {}", Need.OVERWRITTEN, operands, directory, False)]
    if find := _GIT.get(command):
        found = [
            one._replace(directory=enter(directory, one.directory) if one.directory else directory)
            for one in find(rest)
        ]
        return [*_just_stashed(command, rest, directory, line), *found]
    text = " ".join(texts[at:])
    listed = [
        Loss(kind, reason) for pattern, kind, reason in checks_of("git") if pattern.match(text)
    ]
    if listed:
        return listed
    is_alias = command not in listed_words("git") and re.fullmatch(r"[\w-]+", command)
    loss = Loss(Kind.WORK, "runs an alias of git", Need.ALIAS, (command,), directory, False)
    return [loss] if is_alias else []


def _just_stashed(
    command: str, rest: list[str], directory: str | None, line: str
) -> Iterator[Loss]:
    """Yield the loss of dropping what an earlier command of the line stashes."""
    is_dropped = command == "stash" and rest[:1] in (["drop"], ["clear"])
    if is_dropped and (made := _STASHED.search(line[:LINE_CHARS_MAX])):
        need = Need.UNSAVED if _WITH_UNTRACKED.search(made["untracked"]) else Need.RESET
        yield Loss(Kind.WORK, THROWS, need, (), directory, is_plain=False)


def git_command(words: tuple[Word, ...]) -> str:
    """Return the command of git that is given; empty for other programs."""
    texts = [word.text for word in words[1:WORDS_MAX]]
    is_git = words[0].text.rpartition("/")[2] == "git"
    return "".join(texts[(at := _skip_options(texts, "")[0]) : at + 1]) if is_git else ""


def moves_branch(words: tuple[Word, ...]) -> bool:
    """Return whether a command may move a branch or HEAD, other than forward."""
    first, second = (*(word.text for word in words[:2]), "")[:2]
    is_git = first.rpartition("/")[2] in ("git", "gh", "glab")
    is_kept = second in _KEEPERS and not any(word.text in ("--amend", "branch") for word in words)
    return is_git and second not in listed_words("git") and not is_kept


def _skip_options(texts: list[str], directory: str | None) -> tuple[int, str | None]:
    """Return where the command of git is in `texts`, and the directory in which it runs."""
    at = 0
    while at < len(texts) and texts[at].startswith("-"):
        option = texts[at]
        at += 1
        if option in _VALUES:
            if option == "-C" and texts[at : at + 1]:
                directory = enter(directory, texts[at])
            at += 1
        if option.startswith(("--git-dir", "--work-tree")):
            directory = None
    return at, directory


def _thrown(
    need: Need, paths: list[str], commit: str | None = None, *, is_plain: bool = True
) -> Loss:
    """Return the loss of changes below `paths`; of all, if some are not known."""
    known = (".",) if any(UNKNOWN_TEXT in one for one in paths) else tuple(paths[:WORDS_MAX])
    operands = known if commit is None else (commit, *known)
    return Loss(Kind.WORK, THROWS, need, operands, is_plain=is_plain)


def _moved(name: str, *target: str) -> Loss:
    """Return the loss of moving a branch to a commit, or to HEAD."""
    reason = "moves {}, whose commits may be lost"
    commit = next((one for one in target if one != name), "HEAD")
    # A merge base or the like may be anywhere.
    operands = (name,) if ".." in commit else (name, "@{-1}" if commit == "-" else commit)
    need = Need.MOVED if len(operands) > 1 else Need.BRANCH
    return Loss(Kind.HISTORY, reason, need, operands, is_plain=False)


def _rewritten(*upstream: str) -> Loss:
    """Return the loss of rewriting the commits after `upstream`, or the last one."""
    operands = ("rebase", *upstream) if upstream else ()
    reason = "rewrites commits that were pushed: {}"
    return Loss(Kind.HISTORY, reason, Need.PUSHED, operands, is_plain=False)


def _checkout(rest: list[str]) -> Iterator[Loss]:
    operands = operands_of(rest[: rest.index("--")] if "--" in rest else rest, "bB")
    is_forced = has_option(rest, "f", "--force")
    if is_forced:
        yield _thrown(Need.RESET, [])
    if created := value_of(rest, "B"):
        yield _moved(created, *operands)
    if is_forced or is_spared(rest, "p", "--patch", values="bB"):
        return
    if has_option(rest, "", "--pathspec-from-file"):
        yield _thrown(Need.RESET, [], "")
    elif "--" in rest:
        if paths := rest[rest.index("--") + 1 :]:
            yield _thrown(Need.RESET, paths, "") if operands else _thrown(Need.CHANGED, paths)
    elif operands and not is_spared(rest, "bBt", "--orphan", "--track", "--detach"):
        is_path = operands[0] in (".", ":/", "*") or operands[0].startswith(("./", "../", ":"))
        if len(operands) > 1 and not is_path:
            # The first may be a branch.
            yield _thrown(Need.RESET, operands[1:], "", is_plain=False)
        yield _thrown(Need.CHANGED, operands, is_plain=is_path)


def _restore(rest: list[str]) -> Iterator[Loss]:
    is_staged = is_spared(rest, "S", "--staged", values="s")
    if is_spared(rest, "p", "--patch", values="s") or (
        is_staged and not has_option(rest, "W", "--worktree")
    ):
        return
    is_listed = has_option(rest, "", "--pathspec-from-file")
    paths = [] if is_listed else operands_of(rest, "s")
    if is_staged or has_option(rest, "s", "--source"):
        yield _thrown(Need.RESET, paths, "")
    elif paths or is_listed:
        yield _thrown(Need.CHANGED, paths)


def _reset(rest: list[str]) -> Iterator[Loss]:
    commit = next((one for one in operands_of(rest) if UNKNOWN_TEXT not in one), "")
    if has_option(rest, "", "--keep"):
        # Changes are kept.
        yield _thrown(Need.RESET, [":(exclude,top)*"], commit, is_plain=False)
    elif has_option(rest, "", "--hard", "--merge"):
        yield _thrown(Need.RESET, [], commit or None)
    elif re.match(r"(?:HEAD)?[~^@]|HEAD$", commit) or (
        commit and has_option(rest, "", "--soft", "--mixed")
    ):
        yield _rewritten(commit)


def _clean(rest: list[str]) -> Iterator[Loss]:
    is_shown = is_spared(rest, "ni", "--dry-run", "--interactive", values="e")
    if is_shown or not has_option(rest, "f", "--force"):
        return
    # With -q, `git clean -n` prints nothing.
    words = (re.sub("[fq]", "", one) if re.fullmatch(r"-[a-zA-Z]+", one) else one for one in rest)
    dropped = ("-", "--force", "--quiet")
    kept = tuple(one for one in words if one not in dropped and UNKNOWN_TEXT not in one)
    yield Loss(Kind.WORK, "deletes {}", Need.CLEANED, kept)


def _stash(rest: list[str]) -> Iterator[Loss]:
    if rest[:1] in (["drop"], ["clear"]):
        operands = tuple(operands_of(rest[1:])[:1]) if rest[0] == "drop" else ("--all",)
        if any(UNKNOWN_TEXT in one for one in operands):
            operands = ("--all",)
        yield Loss(Kind.WORK, "throws away {}", Need.STASH, operands)


def _switch(rest: list[str]) -> Iterator[Loss]:
    if has_option(rest, "f", "--force", "--discard-changes"):
        yield _thrown(Need.RESET, [])
    if created := value_of(rest, "C", "--force-create"):
        yield _moved(created, *operands_of(rest, "C"))


def _branch(rest: list[str]) -> Iterator[Loss]:
    if is_spared(rest, "r", "--remotes", values="u"):
        return
    operands = tuple("*" if UNKNOWN_TEXT in one else one for one in operands_of(rest, "u"))
    is_forced = has_option(rest, "f", "--force")
    if has_option(rest, "D") or (is_forced and has_option(rest, "d", "--delete")):
        yield Loss(Kind.HISTORY, "deletes commits of {}", Need.BRANCH, operands)
    elif operands and (is_forced or has_option(rest, "MC")):
        is_renamed = has_option(rest, "mMcC", "--move", "--copy")
        yield _moved(*(operands[::-1] if is_renamed else operands))


def _tag(rest: list[str]) -> Iterator[Loss]:
    if has_option(rest, "df", "--delete", "--force"):
        operands = ["*" if UNKNOWN_TEXT in one else one for one in operands_of(rest, "mFu")]
        names = tuple(operands if has_option(rest, "d", "--delete") else operands[:1])
        yield Loss(Kind.HISTORY, "deletes {}", Need.TAG, names)


def _show(rest: list[str]) -> Iterator[Loss]:
    for path in operands_of(rest):
        if listed_paths("secret").search(path):
            yield Loss(Kind.SECRETS, f"reads {shown(path)}, which has secrets")
            return


def _fetch(rest: list[str]) -> Iterator[Loss]:
    """Yield the loss of moving local branches to what is fetched, wherever that is."""
    is_forced = has_option(rest, "f", "--force")
    for one in () if is_spared(rest, "", "--dry-run") else operands_of(rest, "jo"):
        source, colon, name = one.rpartition(":")
        name = name.removeprefix("refs/heads/")
        if colon and (is_forced or source.startswith("+")) and not name.startswith("refs/r"):
            yield _moved("*" if "*" in name or UNKNOWN_TEXT in name else name, "..")


def _push(rest: list[str]) -> Iterator[Loss]:
    if is_spared(rest, "n", "--dry-run", values="o"):
        return
    remote_and, *names = operands_of(rest, "o") or [""]
    if has_option(rest, "d", "--delete", "--mirror", "--prune") or any(
        one.startswith(":") and one != ":" for one in names
    ):
        deleted = ", ".join(one.lstrip(":") for one in names[:NAMES_SHOWN])
        yield Loss(Kind.REMOTE, f"deletes {shown(deleted) or 'branches'} from the remote")
    elif has_option(rest, "f", "--force") or any(
        one.startswith("+") for one in (remote_and, *names)
    ):
        yield Loss(Kind.HISTORY, "overwrites commits of the remote")
    elif has_option(rest, "", "--force-with-lease", "--force-if-includes"):
        branches = tuple(one.rpartition(":")[2] for one in names if UNKNOWN_TEXT not in one)
        reason = "overwrites on the remote {}"
        yield Loss(Kind.HISTORY, reason, Need.DEFAULT, branches, is_plain=False)


def _commit(rest: list[str]) -> Iterator[Loss]:
    if has_option(rest, "", "--amend") and not is_spared(rest, "", "--dry-run", values="mFCct"):
        yield _rewritten()


def _aborted(rest: list[str]) -> Iterator[Loss]:
    """Yield the loss of ending a merge and the like: conflicts that were resolved."""
    if has_option(rest, "", "--abort", "--skip"):
        yield _thrown(Need.RESET, [], is_plain=False)


def _add(rest: list[str]) -> Iterator[Loss]:
    if has_option(rest, "f", "--force") and not is_spared(rest, "n", "--dry-run"):
        for path in operands_of(rest):
            if listed_paths("secret").search(posixpath.normpath(path)):
                yield Loss(Kind.SECRETS, f"adds {shown(path)}, which has secrets")
                return


def _rebase(rest: list[str]) -> Iterator[Loss]:
    yield from _aborted(rest)
    if not is_spared(
        rest, "", "--abort", "--continue", "--skip", "--quit", "--edit-todo", "--show-current-patch"
    ):
        operands = operands_of(rest, "sXxC")
        upstream = next((one for one in operands if UNKNOWN_TEXT not in one), "@{upstream}")
        yield _rewritten("" if has_option(rest, "", "--root") else upstream)


def _pull(rest: list[str]) -> Iterator[Loss]:
    yield from _fetch(rest)
    if has_option(rest, "r", "--rebase") and "--rebase=false" not in rest:
        operands = [one for one in operands_of(rest, "sXjo") if UNKNOWN_TEXT not in one]
        if len(operands) > 1:
            yield _rewritten("/".join(operands[:2]))


def _forced(rest: list[str]) -> Iterator[Loss]:
    """Yield the loss of `git rm -f` and `git checkout-index -f`."""
    if has_option(rest, "f", "--force") and not is_spared(rest, "", "--dry-run", "--cached"):
        yield _thrown(Need.RESET, operands_of(rest), "")


def _config(rest: list[str]) -> Iterator[Loss]:
    is_query = is_spared(
        rest, "l", "--get", "--get-all", "--get-regexp", "--list", "--get-urlmatch",
        "--show-origin", "--unset", "--unset-all",
    )  # fmt: skip
    operands = operands_of(rest, "f")
    if operands[:1] == ["set"]:
        operands = operands[1:]
    # What an alias of git's own commands hides is found when it is used.
    is_alias = operands[:1] != [] and operands[0].startswith("alias.")
    if is_query or len(operands) < 2 or (is_alias and not operands[1].startswith("!")):
        return
    if listed_paths("config").search(operands[0]):
        yield Loss(Kind.STARTUP, f"changes what git executes: {shown(operands[0])}")


def _read_tree(rest: list[str]) -> Iterator[Loss]:
    if has_option(rest, "", "--reset") and not is_spared(rest, "n", "--dry-run"):
        yield _thrown(Need.RESET, [])


def _apply(rest: list[str]) -> Iterator[Loss]:
    if has_option(rest, "R", "--reverse") and not is_spared(
        rest, "", "--check", "--stat", "--cached"
    ):
        yield _thrown(Need.CHANGED, [], is_plain=False)


def _update_ref(rest: list[str]) -> Iterator[Loss]:
    operands = operands_of(rest, "m")
    if has_option(rest, "d", "--delete", "--stdin"):
        yield Loss(Kind.HISTORY, "deletes a reference")
    elif operands and operands[0].startswith("refs/heads/"):
        yield _moved(operands[0].removeprefix("refs/heads/"), *operands[1:])


def _worktree(rest: list[str]) -> Iterator[Loss]:
    if rest[:1] == ["remove"] and has_option(rest, "f", "--force"):
        path = "".join(operands_of(rest[1:])[:1])
        reason = "throws away changes of a worktree: {}"
        yield Loss(Kind.WORK, reason, Need.UNSAVED, (), path)


_GIT: Final[Mapping[str, _Git]] = {
    "add": _add, "am": _aborted, "apply": _apply, "blame": _show, "branch": _branch,
    "cat-file": _show, "checkout": _checkout,
    "checkout-index": _forced, "cherry-pick": _aborted, "clean": _clean, "commit": _commit,
    "config": _config, "fetch": _fetch,
    "merge": _aborted, "push": _push, "pull": _pull, "read-tree": _read_tree,
    "rebase": _rebase, "reset": _reset, "restore": _restore, "revert": _aborted, "rm": _forced,
    "show": _show, "stash": _stash, "switch": _switch, "tag": _tag, "update-ref": _update_ref,
    "worktree": _worktree,
}  # fmt: skip
