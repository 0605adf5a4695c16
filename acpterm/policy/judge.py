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
judged*, which makes it unknown, and dangerous if it has the name of a dangerous program.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from os import path as os_path
from typing import Final, NamedTuple

from acpterm.config.profiles import Decision, Profile
from acpterm.policy.arguments.check import unsafe_argument
from acpterm.policy.levels import Level, Part, Verdict, strictest, worst
from acpterm.policy.rules import Rule
from acpterm.policy.syntax.command import Command
from acpterm.policy.syntax.parse import LINE_BYTES_MAX, parse
from acpterm.policy.syntax.walk import COMMANDS_MAX
from acpterm.policy.words import TooLongError, Word
from acpterm.policy.wrappers.programs import unwrap
from acpterm.policy.wrappers.unwrapped import Inner, is_standard

DEPTH_MAX: Final = 16
"""Maximum depth of wrappers, and of shell text in shell text, that is judged."""
WORDS_MAX: Final = 10_000
"""Maximum words of all commands and suspected commands together."""
TEXTS_MAX: Final = 4096
"""Maximum characters of all shell texts in a command, besides four times those of the line."""

# Characters of a command in the reason why it is dangerous.
_SHOWN_MAX: Final = 60
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
# Names that make a line dangerous which is too long to be judged, and candidates for `/bin/r?`.
_DANGEROUS_NAMES: Final = (
    "rm", "dd", "chmod", "chown", "chgrp", "rmdir", "sudo", "doas", "pkexec", "su", "mkfs", "fdisk",
    "shred", "reboot", "shutdown", "halt", "poweroff", "eval", "find", "git",
)  # fmt: skip
_DANGEROUS_NAME: Final = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(_DANGEROUS_NAMES[:-2])})(?![\w-])|-(?:delete|exec)\b"
    r"|git\s[^\n]{0,200}reset"
)
_BLANKS: Final = re.compile(r"\s")
# Programs whose second word selects what they do, so that two words are a useful prefix.
_HAS_SUBCOMMANDS: Final = frozenset(
    ("apt", "apt-get", "brew", "bun", "cargo", "composer", "conda", "deno", "docker", "dotnet",
     "gem", "gh", "git", "go", "gradle", "helm", "hg", "kubectl", "mix", "mvn", "npm", "pip",
     "pip3", "pnpm", "podman", "poetry", "rustup", "swift", "systemctl", "terraform", "uv", "yarn")
)  # fmt: skip
# Programs of which only the whole command is a useful prefix: their arguments decide everything.
_WHOLE: Final = re.compile(
    r"python[0-9.]*|node|perl|ruby|php|lua|deno|bash|sh|zsh|dash|ksh|fish|curl|wget|make|npx|bunx|uvx"
    r"|sed|awk|tee|mv|cp|ln|rsync|scp|install|kill|pkill|killall|xargs|find|tar|docker|podman|kubectl"
)


class _Found(NamedTuple):
    """A part, with what decides whether a rule that allows it counts."""

    words: tuple[Word, ...]
    level: Level
    reason: str
    is_exact: bool
    """Whether the words are known exactly, in a plain line."""
    is_suspected: bool
    is_wrapper: bool


class _Lists:
    """The lists of a profile, prepared for matching."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.safe = frozenset(profile.safe_commands)
        self.dangerous = [re.compile(pattern) for pattern in profile.dangerous_patterns]
        self.blocked = frozenset(profile.blocked_commands)
        self.blocked_patterns = [re.compile(pattern) for pattern in profile.blocked_patterns]


class Judge:
    """Judges commands by rules and profiles. Keeps nothing about the commands."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rules = tuple(rules)
        self._lists: dict[str, _Lists] = {}

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
            lists = self._lists[profile.name] = _Lists(profile)
        search = _Search(lists, self._rules)
        line = command if args is None else " ".join((command, *args))
        try:
            if args is None:
                search.line(command, is_exact=True)
                is_shell = not _is_one_word(command, search)
                if is_shell and command.startswith("/") and "\n" not in command:
                    # A path with spaces is executed as a program if it exists.
                    is_shell = not os_path.exists(command)
                    if not is_shell:
                        search.program((command,))
            else:
                is_shell = False
                search.program((command, *args))
        except (TooLongError, RecursionError):
            is_shell = args is None
            danger = _DANGEROUS_NAME.search(line)
            level = Level.DANGEROUS if danger else Level.UNKNOWN
            named = f", and has {danger[0]!r}" if danger else ""
            search.add((), level, f"the command is too long to be judged{named}")
        problem = _environment(env, path)
        if problem:
            search.add((), Level.UNKNOWN, problem)
        return _verdict(search, line, frozenset(allowed), is_shell=is_shell)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 1]}…"


def _is_one_word(command: str, search: "_Search") -> bool:
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


class _Search:
    """Finds the parts of one command, and their levels."""

    def __init__(self, lists: _Lists, rules: tuple[Rule, ...]) -> None:
        self.lists = lists
        self.rules = rules
        self.found: list[_Found] = []
        self.texts: list[str] = []
        self._count = 0
        self._words = 0
        self._size = 0
        self._seen: set[tuple[object, ...]] = set()

    def add(self, words: tuple[Word, ...], level: Level, reason: str) -> None:
        """Add a part, such as the line itself, that no rule can allow."""
        self.found.append(_Found(words, level, reason, False, False, False))

    def program(self, argv: tuple[str, ...]) -> None:
        """Find the parts of a program with its arguments."""
        if sum(map(len, argv)) > LINE_BYTES_MAX or not argv[0]:
            raise TooLongError
        self._command(Command(tuple(map(Word, argv))), 0, is_exact=True)

    def line(self, text: str, *, is_exact: bool) -> None:
        """Find the parts of shell text."""
        self._line(text, {}, 0, is_exact=is_exact, is_suspected=False)

    def _line(
        self,
        text: str,
        constants: "dict[str, str]",
        depth: int,
        *,
        is_exact: bool,
        is_suspected: bool,
    ) -> None:
        self._size += len(text)
        if self._size > TEXTS_MAX + 4 * len(self.texts[0] if self.texts else text):
            raise TooLongError
        script = parse(text, constants)
        if script.problem and not is_suspected:
            self.add((), Level.UNKNOWN, f"the line is not plain: it has {script.problem}")
        if script.danger:
            self.add((), Level.DANGEROUS, script.danger)
        if not script.commands and not script.problem and not is_suspected:
            self.add((), Level.UNKNOWN, "there is no command")
        self.texts.append(text)
        is_plain = is_exact and not script.problem
        known = dict(script.constants)
        for command in script.commands:
            self._command(
                command, depth, is_exact=is_plain, is_suspected=is_suspected, constants=known
            )
        for command in script.suspected:
            self._command(command, depth, is_exact=False, is_suspected=True, constants=known)

    def _command(
        self,
        command: Command,
        depth: int,
        *,
        is_exact: bool,
        is_suspected: bool = False,
        constants: "dict[str, str] | None" = None,
    ) -> None:
        """Find the parts of one command, and of the commands that it executes."""
        self._count += 1
        self._words += len(command.words)
        if self._words > WORDS_MAX or depth > DEPTH_MAX or self._count > 2 * COMMANDS_MAX:
            raise TooLongError
        words = command.words
        unwrapped = unwrap(command)
        level, reason = self._level(words, unwrapped.is_harmless, unwrapped.danger)
        inner = list(unwrapped.inner)
        for other in (*command.others, *_candidates(words)):
            danger = unwrap(command._replace(words=other))
            other_level, other_reason = self._level(other, False, danger.danger)
            if other_level is Level.DANGEROUS and level is not Level.DANGEROUS:
                level, reason, words = other_level, other_reason, other
            inner += [one._replace(kind="suspected") for one in danger.inner]
        if not is_suspected or level is Level.DANGEROUS or self._is_ruled(words):
            exact = is_exact and not unwrapped.danger and all(word.is_literal for word in words)
            self.found.append(
                _Found(words, level, reason, exact, is_suspected, bool(unwrapped.inner))
            )
        for one in inner:
            self._inner(one, depth + 1, is_exact, is_suspected, constants or {})

    def _inner(
        self, one: Inner, depth: int, is_exact: bool, is_suspected: bool, known: "dict[str, str]"
    ) -> None:
        suspected = is_suspected or one.kind == "suspected"
        key = (one.words, one.text, one.input, suspected)
        if suspected:
            if key in self._seen:
                return
            self._seen.add(key)
        is_exact = is_exact and one.kind == "harmless"
        constants = {**known, **one.constants} if one.constants else known
        if one.text is None:
            self._command(
                Command(one.words, input=one.input), depth,
                is_exact=is_exact, is_suspected=suspected, constants=constants,
            )  # fmt: skip
        elif depth > DEPTH_MAX:
            raise TooLongError
        else:
            self._line(one.text, constants, depth, is_exact=is_exact, is_suspected=suspected)

    def _level(  # noqa: PLR0911  one for each reason
        self, words: tuple[Word, ...], is_harmless: bool, danger: str
    ) -> tuple[Level, str]:
        """Return the level of a part, and why it is not safe."""
        program = words[0]
        name = program.text.rpartition("/")[2]
        if danger:
            return Level.DANGEROUS, f"{name}: {danger}"
        text = _text(words)
        for pattern in self.lists.dangerous:
            if pattern.match(text):
                return Level.DANGEROUS, f"{_shown(text)} is in the list of dangerous commands"
        if not program.is_literal:
            return Level.UNKNOWN, "the name of the program is computed"
        if is_harmless:
            return Level.SAFE, ""
        if name == "command" and len(words) > 1 and words[1].text in ("-v", "-V"):
            return Level.SAFE, ""
        if name not in self.lists.safe:
            return Level.UNKNOWN, f"{name} is not in the list of safe programs"
        if not is_standard(program.text):
            return Level.UNKNOWN, f"{program.text} is not in a directory of the system"
        problem = unsafe_argument(words)
        return (Level.UNKNOWN, f"{name}: {problem}") if problem else (Level.SAFE, "")

    def _is_ruled(self, words: tuple[Word, ...]) -> bool:
        """Return whether a list or a rule asks about a part, or denies it."""
        texts = _texts(words)
        return texts[0] in self.lists.blocked or any(
            rule.decision != "allow" and rule.matches(texts) for rule in self.rules
        )


def _candidates(words: tuple[Word, ...]) -> Iterator[tuple[Word, ...]]:
    """Yield the words with names of dangerous programs that match a pattern as the name."""
    if words[0].is_glob:
        # `*` alone is rather an operand that was taken for a program.
        pattern = words[0].text.rpartition("/")[2]
        if not re.search("[a-z/]", words[0].text):
            return
        for name in _DANGEROUS_NAMES:
            if fnmatchcase(name, pattern):
                yield (Word(name, is_literal=False), *words[1:])


def _text(words: tuple[Word, ...]) -> str:
    """Return the text of a part that patterns match: no word has a blank in it."""
    return " ".join(_BLANKS.sub("_", text) for text in _texts(words))


def _texts(words: tuple[Word, ...]) -> list[str]:
    """Return the words of a part, with the program's name instead of its path."""
    return [words[0].text.rpartition("/")[2], *[word.text for word in words[1:]]]


def _verdict(
    search: _Search, line: str, allowed: frozenset[tuple[str, ...]], *, is_shell: bool
) -> Verdict:
    decided = [_decide(part, search, allowed) for part in search.found]
    decision, rule, reason = "allow", None, ""  # type: tuple[Decision, str | None, str]
    blocked = _blocked(search, line)
    if blocked:
        decision, rule, reason = "deny", blocked, f"the command matches {blocked}"
    else:
        decision = strictest(one[0] for one in decided)
    level = Level.DANGEROUS if blocked else worst(part.level for part in search.found)
    if not blocked:
        for part, (one, which) in zip(search.found, decided, strict=True):
            # The reason is that of the worst part among those that decided.
            if one == decision and (not reason or part.level is level):
                reason, rule = part.reason or reason, which
                if part.level is level:
                    break
        if rule is not None:
            reason = _reason(rule, search.rules) or reason
    parts = tuple(
        Part(tuple(word.text for word in part.words), part.level, part.reason)
        for part in search.found
    )
    asking = [part for part, (one, _) in zip(search.found, decided, strict=True) if one == "ask"]
    prefix = None
    if decision == "ask" and len(asking) == 1 and rule is None:
        prefix = _prefix(asking[0])
    return Verdict(level, decision, rule, reason, parts, prefix, is_shell)


def _reason(rule: str, rules: tuple[Rule, ...]) -> str:
    found = next((one for one in rules if str(one) == rule), None)
    return found.reason if found is not None else ""


def _decide(
    part: _Found, search: _Search, allowed: frozenset[tuple[str, ...]]
) -> tuple[Decision, str | None]:
    """Return the decision on a part, and the rule that decided, if one did."""
    profile = search.lists.profile
    by_level: Decision = getattr(profile, part.level.value)
    if not part.words:
        return by_level, None
    texts = _texts(part.words)
    full = (part.words[0].text, *texts[1:])
    named = texts if is_standard(full[0]) else full
    found: dict[Decision, Rule] = {}
    for rule in search.rules:
        if rule.decision == "allow":
            if part.is_exact and (rule.matches(full) or rule.matches(named)):
                found.setdefault("allow", rule)
        elif rule.matches(texts) or rule.matches(full):
            found.setdefault(rule.decision, rule)
    if found:
        decision = strictest(found)
        return decision, str(found[decision])
    if part.is_exact and by_level == "ask":
        for prefix in allowed:
            is_whole = len(prefix) == len(full)
            if full[: len(prefix)] == prefix and (is_whole or part.level is not Level.DANGEROUS):
                return "allow", f"allowed in this session: {' '.join(prefix)}"
    return by_level, None


def _blocked(search: _Search, line: str) -> str:
    """Return the entry of the profile's lists that blocks the command; empty if none does."""
    lists = search.lists
    for part in search.found:
        if part.words:
            name = part.words[0].text.rpartition("/")[2]
            if name in lists.blocked:
                return f"blocked_commands: {name}"
    if lists.blocked_patterns:
        for text in (
            line,
            *search.texts,
            *(_text(part.words) for part in search.found if part.words),
        ):
            for pattern in lists.blocked_patterns:
                if pattern.search(text):
                    return f"blocked_patterns: {pattern.pattern}"
    return ""


def _prefix(part: _Found) -> tuple[str, ...] | None:
    """Return the prefix that stands for a part in "always allow"; None if no prefix can."""
    if not part.words or not part.is_exact or part.is_suspected:
        return None
    words = tuple(word.text for word in part.words)
    name = words[0].rpartition("/")[2]
    if part.is_wrapper or part.level is Level.DANGEROUS or _WHOLE.fullmatch(name):
        return words
    if (
        name in _HAS_SUBCOMMANDS
        and len(words) > 1
        and re.fullmatch(r"[a-z][a-z-]*", words[1])
        and words[1] not in ("run", "exec", "x", "dlx", "config")
    ):
        return words[:2]
    if name in _HAS_SUBCOMMANDS or name == "env":
        return words
    return words[:1]
