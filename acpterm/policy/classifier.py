"""Finds all commands that a command executes, and classifies each as safe, unknown or dangerous.

A part is dangerous if it matches a pattern of the profile, or if it is known to do harm. It is safe
if its program is in the profile's list of safe programs, and none of its arguments makes it unsafe.
All other parts are unknown. A line that is not plain (`syntax`) is one more part, and at least
unknown.

A *suspected* command is text that may be a command, or an argument at which a command may begin.
Suspected commands serve to find danger: one becomes a part only if it is dangerous, if a rule
asks about it or denies it, or if its program is in the profile's `blocked_commands`.

If it is not certain that bash reads a text, the text is also judged as a POSIX shell reads it
(`syntax.readers`). If not even that is certain, each name of a dangerous program in the text is
suspected to begin a command, unless the text is plain.
"""

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from acpterm.config.profiles import Kind
from acpterm.policy.arguments import DIRECTORY_COMMANDS, leads_outside, unsafe_argument
from acpterm.policy.losses.arguments import enter
from acpterm.policy.losses.find import line_danger, losses_of
from acpterm.policy.losses.git import ADDING, ELSEWHERE, git_command, moves_branch
from acpterm.policy.losses.loss import LATE, Finding, Loss, Need
from acpterm.policy.own_settings import changes_settings
from acpterm.policy.parts import FoundPart, Lists, pattern_text, rule_words
from acpterm.policy.rules import Rule
from acpterm.policy.syntax.command import NO_CONSTANTS, Script, SimpleCommand
from acpterm.policy.syntax.parse import JUDGED_BYTES_MAX, parse, suspected, suspected_in, unquoted
from acpterm.policy.syntax.readers import Reader, joined_text, posix_text
from acpterm.policy.syntax.walk import COMMANDS_MAX
from acpterm.policy.verdict import Level
from acpterm.policy.words import UNKNOWN_TEXT, TooLongError, Word
from acpterm.policy.wrappers.programs import unwrap
from acpterm.policy.wrappers.unwrapped import Inner, is_standard

DEPTH_MAX: Final = 16
"""Maximum depth of wrappers, and of shell text in shell text, that is judged."""
WORDS_MAX: Final = 10_000
"""Maximum words of all commands and suspected commands together."""
TEXTS_MAX: Final = 4096
"""Maximum characters of all shell texts of a command, in addition to four times the length of its
line."""
SUSPICIOUS_NAMES: Final = (
    "rm", "dd", "chmod", "chown", "chgrp", "rmdir", "sudo", "sudoedit", "doas", "pkexec", "su",
    "runuser", "mkfs", "fdisk", "wipefs", "shred", "reboot", "shutdown", "halt", "poweroff", "eval",
)  # fmt: skip
"""Names of dangerous programs. A line that is too long to be judged must have none of them.
"""
SEARCHED_MAX: Final = JUDGED_BYTES_MAX
"""Maximum characters of a command that is searched for dangerous names and blocked patterns."""
NAMES_MAX: Final = 32
"""Maximum names of dangerous programs in a text that any shell may read."""

# Names that are searched in a text that any shell may read.
_TRIED_NAMES: Final = (
    *SUSPICIOUS_NAMES, "find", "git", "systemctl",
    *(f"mkfs.{kind}" for kind in (
        "bfs", "btrfs", "cramfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fat", "jfs", "minix",
        "msdos", "ntfs", "reiserfs", "vfat", "xfs",
    )),
)  # fmt: skip
_NAMED: Final = re.compile(
    rf"(?:(?<![\w.-])|(?<=:-))(?:{'|'.join(map(re.escape, _TRIED_NAMES))})(?![\w-])"
)
_DOWNLOADERS: Final = frozenset(("curl", "wget", "aria2c", "http", "fetch"))
_DOWNLOADS: Final = re.compile(r"\b(?:curl|wget|aria2c|fetch|https?|nc|ncat|lynx)\b")
_MAY_DOWNLOAD: Final = re.compile("curl|wget|aria2c|fetch|http|nc|lynx|clone")
_MOVES: Final = frozenset(("cd", "chdir", "pushd", "popd"))
_OUTPUT: Final = re.compile(r"-[a-zA-Z]*[oO]|--output(?:-document)?")
_SUBSTITUTED: Final = re.compile(r"(?:\$\(|`)\s*(?:curl|wget)\b")
_RUNNERS: Final = frozenset(
    ("sh", "bash", "dash", "zsh", "ksh", "source", ".", "sudo", "python", "python3", "node", "perl",
     "ruby", "chmod")
)  # fmt: skip
# Directories of which a shell knows that they exist.
_EXISTING: Final = re.compile(r"(?:\.\.?/*)*|/(?:tmp/?)?|~/?")
_MADE: Final = re.compile(r"\bmkdir ([^;&|\n]*+)")
_OTHERS_MAX: Final = 4
_SEPARATOR: Final = re.compile(r";|\n|\|\||(?<!&)&(?!&)")
# Maximum characters of a command that the reason for its level quotes.
_SHOWN_MAX: Final = 60
# Maximum characters of a text that are examined after the name of a dangerous program.
_PIECE_MAX: Final = 4096


class _Context(NamedTuple):
    """How a text or a command is executed."""

    reader: Reader
    """The shell that reads the text; for a command, the shell that executes the command."""
    depth: int = 0
    """The number of commands and texts in which it is nested."""
    is_exact: bool = True
    """Whether it is certainly executed, exactly as written."""
    is_suspected: bool = False
    """Whether it may be no text for a shell, or no command, at all."""
    constants: Mapping[str, str] = NO_CONSTANTS
    """The known values of variables."""


class _Place(NamedTuple):
    """Where a shell is, as seen from the directory of the line."""

    directory: str | None
    """None if it is not known."""
    others: tuple[tuple[str, str], ...] = ()
    """Directories in which it still is if a `cd` fails, each with the text that is skipped then."""


class Classifier:
    """Finds the parts of one command and their levels, by a profile's lists and the rules."""

    def __init__(
        self,
        lists: Lists,
        rules: tuple[Rule, ...],
        findings: Mapping[Loss, Finding],
        directory: str,
        *,
        is_elsewhere: bool,
    ) -> None:
        self.lists = lists
        self.directory = directory
        self.is_elsewhere = is_elsewhere
        self.has_left = False
        """Whether `cd` leads out of `directory`, the session's."""
        self.rules = rules
        self.found: list[FoundPart] = []
        self.texts: list[str] = []
        self.unquoted: list[str] = []
        """The texts without what their quotes protect."""
        self.findings = findings
        self.pending: dict[Loss, None] = {}
        self._places = [_Place("")]
        """The working directories of the subshells around a command."""
        self._before: str | None = None
        self._downloaded: set[str] = set()
        """The files that commands of the line have downloaded."""
        self._is_download = False
        """Whether the last command downloads something."""
        self._may_download = False
        self._has_cloned = False
        self._has_moved = False
        """Whether an earlier command may have moved a branch or HEAD."""
        self._has_added = False
        """Whether git has got what may be lost, by an earlier command."""
        self._count = 0
        self._words = 0
        self._size = 0
        self._seen: set[tuple[object, ...]] = set()

    def add(self, words: tuple[Word, ...], level: Level, reason: str) -> None:
        """Add a part that no rule can allow. If the part is the whole line, `words` is empty."""
        self.found.append(FoundPart(words, level, reason, False, False, False))

    def program(self, argv: tuple[str, ...]) -> None:
        """Find the parts of a program with its arguments. Raises `TooLongError`."""
        if sum(map(len, argv)) > JUDGED_BYTES_MAX or not argv[0]:
            raise TooLongError
        self._command(SimpleCommand(tuple(map(Word, argv))), _Context("bash"))

    def line(self, text: str, reader: Reader) -> None:
        """Find the parts of shell text. Raises `TooLongError` if the text exceeds a bound."""
        self._line(text, _Context(reader))

    def _line(self, text: str, context: _Context) -> None:
        is_suspected = context.is_suspected
        self._size += len(text)
        if self._size > TEXTS_MAX + 4 * len(self.texts[0] if self.texts else text):
            raise TooLongError
        script = parse(text, context.constants)
        if script.problem and not is_suspected:
            self.add((), Level.UNKNOWN, f"the line is not plain: it has {script.problem}")
        if danger := script.danger or line_danger(text):
            self.add((), Level.DANGEROUS, danger)
        if not script.commands and not script.problem and not is_suspected:
            self.add((), Level.UNKNOWN, "there is no command")
        self.texts.append(text)
        self._may_download = self._may_download or bool(_MAY_DOWNLOAD.search(text))
        if self.lists.blocked_patterns:
            # Quotes of other shells may end elsewhere.
            is_raw = script.problem or context.reader == "other"
            self.unquoted.append(text if is_raw else unquoted(text))
        posix = text if context.reader == "bash" and not is_suspected else posix_text(text)
        joined = joined_text(text)
        is_plain = posix == joined == text and not script.problem
        inside = context._replace(
            is_exact=context.is_exact and is_plain, constants=script.constants
        )
        depth = len(self._places)
        self._places.append(self._places[-1])
        for command in script.commands:
            self._command(command, inside)
        del self._places[depth:]
        perhaps = inside._replace(is_exact=False, is_suspected=True)
        self._places.append(_Place(None))
        others = _perhaps_commands(text, script, context.reader)
        for command in itertools.chain(suspected_in(script.suspected), others):
            self._command(command, perhaps)
        del self._places[depth:]
        if joined != text:
            self._read_differently(joined, "a word that is continued on the next line", inside)
        if posix != text:
            self._read_differently(posix, "syntax that shells read differently", inside)

    def _read_differently(self, text: str, why: str, context: _Context) -> None:
        if not context.is_suspected:
            self.add((), Level.UNKNOWN, f"the line has {why}")
        self._line(text, context)

    def _command(self, command: SimpleCommand, context: _Context) -> None:
        """Find the parts of one command, and those of the commands that it executes."""
        self._count += 1
        self._words += len(command.words)
        if self._words > WORDS_MAX or context.depth > DEPTH_MAX or self._count > 2 * COMMANDS_MAX:
            raise TooLongError
        words = command.words
        if command.is_syntax:
            self._syntax(command, context)
            return
        unwrapped = unwrap(command)
        level, reason = self._level(words, unwrapped.is_harmless, unwrapped.danger)
        is_listed = level is Level.DANGEROUS
        suggested = self._suggested(command, context)
        losses = self._losses(command, context, unwrapped.danger, suggested)
        if losses:
            level, reason = Level.DANGEROUS, losses[0][1]
        if not context.is_suspected or level is Level.DANGEROUS or self._is_ruled(words):
            is_literal = all(word.is_literal for word in words)
            exact = context.is_exact and not unwrapped.danger and is_literal
            kinds = tuple(kind for kind, _ in losses)
            wraps = bool(unwrapped.inner)
            part = FoundPart(
                words, level, reason, exact, context.is_suspected, wraps, kinds, is_listed
            )
            self.found.append(part._replace(losses=suggested))
        inner = [*unwrapped.inner, *(self._alias(command) if self.findings else ())]
        if command.name in _MOVES and not context.is_suspected:
            self._enter(command)
        for other in command.others:
            variant = unwrap(command._replace(words=other))
            other_level, other_reason = self._level(other, False, variant.danger)
            if other_level is Level.DANGEROUS or self._is_ruled(other):
                self.found.append(FoundPart(other, other_level, other_reason, False, True, False))
            inner += [one._replace(kind="suspected") for one in variant.inner]
        for one in inner:
            # A command that inherits a here-document as its stdin gets the document's text.
            text = command.text if one.input == "text" else ""
            self._inner(one, text, context)

    def _syntax(self, command: SimpleCommand, context: _Context) -> None:
        """Find the losses of a redirection; enter or leave the directory of a subshell."""
        operator = command.words[0].text
        if operator == "(":
            self._places.append(self._places[-1])
        elif operator == ")":
            if len(self._places) > 1:
                self._places.pop()
        elif self._is_download and operator.startswith(">"):
            self._downloaded.update(word.text for word in command.words[1:])
        suggested = () if operator in "()" else self._suggested(command, context)
        if losses := () if operator in "()" else self._losses(command, context, "", suggested):
            kinds = tuple(kind for kind, _ in losses)
            part = FoundPart(
                command.words, Level.DANGEROUS, losses[0][1], False, False, False, kinds, False
            )
            self.found.append(part._replace(losses=suggested))

    def _losses(
        self,
        command: SimpleCommand,
        context: _Context,
        danger: str,
        suggested: tuple[Loss, ...],
    ) -> list[tuple[Kind, str]]:
        """Return the losses of a command that hold, as far as that is known, with their reasons."""
        held: list[tuple[Kind, str]] = []
        if self._may_download and self._runs_download(command, danger):
            held.append((Kind.DOWNLOADS, f"{command.name}: it runs what comes from the net"))
        for loss in suggested:
            finding = self.findings.get(loss)
            if loss.need is Need.NOTHING:
                held.append((loss.kind, loss.text(())))
            elif loss.need is Need.ALIAS and finding != LATE:
                if loss not in self.findings and not context.is_suspected:
                    self.pending[loss] = None
            elif loss.directory is None or finding is None:
                if loss.is_plain:
                    held.append((loss.kind, loss.text(())))
                if loss not in self.findings and loss.directory is not None:
                    self.pending[loss] = None
            elif finding:
                held.append((loss.kind, loss.text(finding)))
        self._note_git(command)
        return held

    def _note_git(self, command: SimpleCommand) -> None:
        self._has_moved = self._has_moved or moves_branch(command.words)
        if (made := git_command(command.words)) in ADDING:
            self._has_added = True
        elif made == "push":
            self._has_added = False

    def _suggested(self, command: SimpleCommand, context: _Context) -> tuple[Loss, ...]:
        """Return the losses that the words of a command suggest, wherever it may run."""
        line = self.texts[-1] if self.texts else ""
        directory = self._places[-1].directory
        if command.name == "git" and not context.constants.keys().isdisjoint(ELSEWHERE):
            directory = None
        found = losses_of(command, directory, line)
        if found and directory is not None:
            for other in self._other_directories(command):
                more = losses_of(command, other, line)
                # Without a need, they are the same.
                found += (one for one in more if one.need is not Need.NOTHING)
        if self._has_added:
            found += [added for one in found if (added := one.after_adding())]
        return tuple(one.after_moves() if self._has_moved else one for one in found)

    def _runs_download(self, command: SimpleCommand, danger: str) -> bool:
        """Return whether a command executes what the line downloads."""
        name, words = command.name, command.words
        texts = [word.text for word in words]
        self._note_download(name, texts)
        if danger and _DOWNLOADS.search(self.texts[0]):
            return True
        if name in _RUNNERS and UNKNOWN_TEXT in texts and _SUBSTITUTED.search(self.texts[0]):
            return True
        if self._has_cloned and texts[0].startswith("./"):
            return True
        if not self._downloaded:
            return False
        ran = [words[0].text]
        if name in _RUNNERS:
            ran += [word.text for word in words[1:] if not word.text.startswith("-")][:1]
        return any(one.removeprefix("./") in self._downloaded for one in ran if one)

    def _note_download(self, name: str, texts: list[str]) -> None:
        self._is_download = name in _DOWNLOADERS
        if self._is_download:
            for before, text in itertools.pairwise(texts):
                if _OUTPUT.fullmatch(before):
                    self._downloaded.add(text)
                if "://" in text:
                    self._downloaded.add(text.rpartition("/")[2])
        elif name == "git" and "clone" in texts[:3]:
            self._has_cloned = self._has_cloned or any("://" in text for text in texts)

    def _alias(self, command: SimpleCommand) -> list[Inner]:
        """Return what an alias of git executes, if it is known."""
        if command.name != "git":
            return []
        for loss in losses_of(command, self._places[-1].directory):
            if loss.need is Need.ALIAS and (finding := self.findings.get(loss)):
                if finding == LATE:
                    break
                texts = [word.text for word in command.words]
                at = texts.index(loss.operands[0])
                rest = shlex.join(texts[at + 1 :])
                alias = finding[0]
                before = shlex.join(texts[1:at])
                text = alias[1:] if alias.startswith("!") else f"git {before} {alias}"
                return [Inner((), f"{text} {rest}", "executes")]
        return []

    def _enter(self, command: SimpleCommand) -> None:
        """Follow `cd`, `pushd` and `popd`."""
        if command.name == "popd":
            self._places[-1] = _Place(None)
            return
        self.has_left = self.has_left or leads_outside(command.words[1:], self.directory)
        operands = [word for word in command.words[1:] if not word.text.startswith("-")]
        target = operands[0] if operands else Word("~")
        before, others = self._places[-1]
        is_back = any(word.text == "-" for word in command.words[1:])
        after = self._before if is_back else enter(before, target.text)
        line = self.texts[-1] if self.texts else ""
        if not (is_back or _EXISTING.fullmatch(target.text) or _is_made(line, target.text)):
            moved = [(enter(one, target.text), skipped) for one, skipped in others]
            stays = (before, _skipped(line, target.text))
            others = tuple(
                (one, skipped)
                for one, skipped in dict.fromkeys((*others, *moved, stays))
                if one is not None
            )
        self._places[-1] = _Place(after, others[-_OTHERS_MAX:])
        self._before = before

    def _other_directories(self, command: SimpleCommand) -> list[str]:
        """Return where a command runs if a `cd` before it has failed."""
        return [
            one
            for one, skipped in self._places[-1].others
            if not all(word.text in skipped for word in command.words)
        ]

    def _inner(self, one: Inner, text: str, outer: _Context) -> None:
        """Find the parts of what a command with the context `outer` executes."""
        context = _Context(
            one.reader or outer.reader,
            outer.depth + 1,
            outer.is_exact and one.kind == "harmless",
            outer.is_suspected or one.kind == "suspected",
            {**outer.constants, **one.constants} if one.constants else outer.constants,
        )
        place = self._places[-1]
        if one.directory is not None:
            place = _Place(enter(place.directory, one.directory))
        elif one.kind == "suspected":
            place = _Place(None)
        key = (one.words, one.text, one.input, text, context.reader, place)
        if context.is_suspected:
            if key in self._seen:
                return
            self._seen.add(key)
        depth = len(self._places)
        self._places.append(place)
        if one.text is None:
            self._command(SimpleCommand(one.words, input=one.input, text=text), context)
        elif context.depth > DEPTH_MAX:
            raise TooLongError
        else:
            self._line(one.text, context)
        if one.words:
            # A `cd` that the shell itself executes, such as `builtin cd x`, stays.
            moved = self._places[depth]
            if one.directory is None and one.kind != "suspected":
                self._places[depth - 1] = moved
        del self._places[depth:]

    def _level(  # noqa: PLR0911  one for each reason
        self, words: tuple[Word, ...], is_harmless: bool, danger: str
    ) -> tuple[Level, str]:
        """Return the level of a command with these words, and the reason if it is not safe."""
        program = words[0]
        name = program.text.rpartition("/")[2]
        if danger:
            return Level.DANGEROUS, f"{name}: {danger}"
        if change := changes_settings(words):
            return Level.DANGEROUS, f"{name}: {change}"
        text = pattern_text(words)
        for pattern in self.lists.dangerous:
            if match := pattern.match(text):
                # The rule in words: `rm -r` for `rm -rf build`, `git reset` for `git reset a.py`.
                named = match[0].split()
                rule = " ".join(dict.fromkeys((named[0], named[-1]))) if named else text
                return (
                    Level.DANGEROUS,
                    f"{_shown(rule)} is in the list of dangerous commands",
                )
        if not program.is_literal:
            return Level.UNKNOWN, "the name of the program is computed"
        if is_harmless:
            return Level.SAFE, ""
        if name == "command" and len(words) > 1 and words[1].text in ("-v", "-V"):
            return Level.SAFE, ""
        if not self.lists.has_safe(text):
            return Level.UNKNOWN, f"{name} is not in the list of safe programs"
        if not is_standard(program.text):
            return Level.UNKNOWN, f"{program.text} is not in a directory of the system"
        problem = self._argument_problem(words, name)
        return (Level.UNKNOWN, f"{name}: {problem}") if problem else (Level.SAFE, "")

    def _argument_problem(self, words: tuple[Word, ...], name: str) -> str:
        if (self.has_left or self.is_elsewhere) and name in DIRECTORY_COMMANDS:
            return "it executes what another directory configures"
        return unsafe_argument(words, self.directory)

    def _is_ruled(self, words: tuple[Word, ...]) -> bool:
        """Return whether a rule asks about or denies a command, or its program is blocked."""
        texts = rule_words(words)
        return texts[0] in self.lists.blocked or any(
            rule.decision != "allow" and rule.matches(texts) for rule in self.rules
        )


def _is_made(line: str, directory: str) -> bool:
    """Return whether a line has a `mkdir` of a directory."""
    return any(directory in one for one in _MADE.findall(line))


def _skipped(line: str, target: str) -> str:
    """Return the text of a line that is not executed if its `cd target` fails."""
    rest = _SEPARATOR.split(line.partition(f"cd {target}" if f"cd {target}" in line else "cd ")[2])[
        0
    ]
    return rest if "&&" in rest else ""


def _perhaps_commands(text: str, script: Script, reader: Reader) -> Iterator[SimpleCommand]:
    """Yield what may be a command in a text that any shell may read; for finding danger only."""
    # An alias may stand for any part of a line.
    if reader != "other" and all(one.name != "alias" for one in script.commands):
        return
    for command in script.commands:
        # zsh executes rm for `=rm x`.
        first, *rest = command.words
        if first.text[:1] == "=":
            yield SimpleCommand((Word(first.text[1:], is_literal=False), *rest))
    if not script.problem and "\\" not in text:
        return
    for count, name in enumerate(_NAMED.finditer(text)):
        if count == NAMES_MAX:
            raise TooLongError
        # The two readings of the text up to the next separator.
        piece = text[name.start() : name.start() + _PIECE_MAX]
        yield from itertools.islice(suspected(piece), 2)


def _shown(text: str) -> str:
    text = text.replace(UNKNOWN_TEXT, "…")
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 1]}…"
