"""The entry point of the checks of arguments: selects the check by the name of the program."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from acpterm.policy.arguments import files, javascript, scripts
from acpterm.policy.arguments.git import git
from acpterm.policy.words import UNKNOWN_TEXT, Word

Check: TypeAlias = Callable[[Sequence[str]], str]
"""A function that returns why the arguments of a program are not safe; empty if they are safe."""

# Programs that write to files among their operands, to which a pattern could add more files.
_NO_GLOBS: Final = frozenset(("tee", "uniq"))
_CHECKS: Final[Mapping[str, Check]] = {
    "awk": scripts.awk,
    "bun": javascript.bun,
    "bunx": javascript.npx,
    "diff": files.diff,
    "fd": files.fd,
    "fdfind": files.fd,
    "find": files.find,
    "gawk": scripts.awk,
    "git": git,
    "hostname": files.hostname,
    "ipconfig": files.ipconfig,
    "mawk": scripts.awk,
    "nawk": scripts.awk,
    "node": javascript.node,
    "nodejs": javascript.node,
    "npm": javascript.npm,
    "npx": javascript.npx,
    "rg": files.rg,
    "sed": scripts.sed,
    "sort": files.sort,
    "tee": files.tee,
    "tree": files.tree,
    "tsc": javascript.tsc,
    "uniq": files.uniq,
    "vitest": javascript.vitest,
    "yarn": javascript.yarn,
}


def unsafe_argument(words: Sequence[Word]) -> str:
    """Return why the arguments of a program are not safe; empty if they are safe."""
    name = words[0].text.rpartition("/")[2]
    check = _CHECKS.get(name)
    if check is None:
        return ""
    for word in words[1:]:
        if UNKNOWN_TEXT in word.text:
            return "an argument is computed"
        if word.may_become_option:
            return f"{word.text} may expand to an option: write ./{word.text}"
    if name in _NO_GLOBS and any(word.is_glob for word in words[1:]):
        return "a pattern may expand to several files"
    return check([word.text for word in words[1:]])
