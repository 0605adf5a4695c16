"""The judgement on a command: its level, and the decision of rules and profile.

A command is judged in three steps:

1. All commands that it executes are found: in the shell line, and behind wrappers. Each is a part.
2. Each part gets a level. A program of the profile's list is safe unless its arguments are not; a
   pattern of the profile makes a part dangerous; all others are unknown. A line that is not plain
   is a part itself, and at least unknown.
3. Each part gets a decision: that of the strictest rule that matches it, or else that of the
   profile on its level. The strictest decision of all parts is that of the command.

A rule that allows counts only if the words of the part are known exactly, in a plain line; rules
that ask or deny count wherever they match. Profile lists that block always deny.

Judging is pure computation with bounds: a command that exceeds one of them is *too long to be
judged*, which makes it unknown, and dangerous if it has the name of a dangerous program, or is even
too long to be searched for one.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from acpterm.config.profiles import Profile
from acpterm.policy.decision import decide
from acpterm.policy.levels import Level, Verdict
from acpterm.policy.parts import Lists
from acpterm.policy.rules import Rule
from acpterm.policy.search import DANGEROUS_NAMES, SEARCHED_MAX, Search
from acpterm.policy.words import TooLongError

# Variables that can make a program execute something else.
_VARIABLES: Final = re.compile(
    r"PATH|LD_.*|DYLD_.*|BASH_.*|ENV|CDPATH|GIT_.*|.*PAGER|.*EDITOR|VISUAL|.*BROWSER|LESS.*|MANOPT"
    r"|NODE_.*|NPM_.*|npm_.*|YARN_.*|BUN_.*|PYTHON.*|PERL5?.*|RUBY.*|GEM_.*|BUNDLE_.*|JAVA_.*|_JAVA.*"
    r"|JDK_.*|CLASSPATH|MAVEN_.*|GRADLE_.*|CARGO_.*|RUSTC.*|RUSTFLAGS|GO.*|MAKE.*|CC|CXX|LD|AR"
    r"|IFS|PS[0-4]|PROMPT_COMMAND|SHELLOPTS|SHELL|GLOBIGNORE|AWK.*|GAWK.*|GREP_.*|TAR_OPTIONS"
    r"|HOME|XDG_CONFIG_.*|ZDOTDIR|SSH_.*|GCONV_PATH|GLIBC_.*|MALLOC_.*|LOCPATH|TERMINFO.*|TERMCAP"
    r"|EMACS.*|VIMINIT|EXINIT|LUA_.*|PHP.*|R_.*|TMPDIR|POSIXLY_CORRECT|http_proxy|https_proxy"
    r"|HTTPS?_PROXY|ALL_PROXY|FPATH|.*_?EXEC.*|TREE_.*|DOTNET_.*|COR_.*|CORECLR_.*"
)
# Finds such a name in a line, but of find and git only their dangerous arguments.
_DANGEROUS_NAME: Final = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(DANGEROUS_NAMES[:-2])})(?![\w-])|-(?:delete|exec)\b"
    r"|git\s[^\n]{0,200}reset"
)


class Judge:
    """Judges commands by rules and profiles. Keeps nothing about the commands."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rules = tuple(rules)
        self._lists: dict[str, Lists] = {}

    def judge(
        self,
        command: str,
        args: Sequence[str] | None,
        *,
        profile: Profile,
        env: Iterable[str] = (),
        path: str | None = None,
        allowed: Collection[tuple[str, ...]] = (),
    ) -> Verdict:
        """Return the judgement on a command.

        Without `args`, `command` is shell text; otherwise it is a program. `env` are the names of
        the variables that the request sets. `path` is the value of PATH in which programs are
        looked up: relative directories in it make no command safe. `allowed` are prefixes that
        count like rules that allow; for a dangerous part, only if they are the whole part.
        """
        lists = self._lists.get(profile.name)
        if lists is None or lists.profile is not profile:
            lists = self._lists[profile.name] = Lists(profile)
        search = Search(lists, self._rules)
        line = command if args is None else " ".join((command, *args))
        try:
            if args is None:
                search.line(command)
                is_shell = not _is_one_word(command, search)
            else:
                is_shell = False
                search.program((command, *args))
        except (TooLongError, RecursionError):
            is_shell = args is None
            search.add((), *_too_long(line))
        problem = _environment(env, path)
        if not problem:
            return decide(search, line, frozenset(allowed), is_shell=is_shell)
        # With such a variable a command may do other things than the one that was allowed.
        search.add((), Level.UNKNOWN, problem)
        verdict = decide(search, line, frozenset(), is_shell=is_shell)
        return verdict._replace(prefix=None)


def _too_long(line: str) -> tuple[Level, str]:
    """Return the level of a command that is too long to be judged, and the reason."""
    if len(line) > SEARCHED_MAX:
        return Level.DANGEROUS, "the command is too long to be judged"
    danger = _DANGEROUS_NAME.search(line)
    if danger is None:
        return Level.UNKNOWN, "the command is too long to be judged"
    return Level.DANGEROUS, f"the command is too long to be judged, and has {danger[0]!r}"


def _is_one_word(command: str, search: Search) -> bool:
    return (
        len(search.found) == 1
        and [word.text for word in search.found[0].words] == [command]
        and search.found[0].is_exact
    )


def _environment(env: Iterable[str], path: str | None) -> str:
    """Return why no command is safe with the variables `env` and this PATH; empty if it may be."""
    for name in env:
        if _VARIABLES.fullmatch(name):
            return f"the variable {name} is set, which can change what is executed"
    if path is not None and not all(one.startswith("/") for one in path.split(":")):
        return "PATH has a directory that is not absolute"
    return ""
