"""The entry point: finds the losses of one command."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Final

from acpterm.config.profiles import Kind
from acpterm.policy.losses.files import WRITERS, read_losses, written_losses
from acpterm.policy.losses.git import git_losses
from acpterm.policy.losses.loss import (
    CODE_CHARS_MAX,
    LINE_CHARS_MAX,
    TEXT_CHARS_MAX,
    WORD_CHARS_MAX,
    WORDS_MAX,
    Loss,
    Need,
)
from acpterm.policy.losses.table import (
    CODE,
    CODE_DOWNLOAD,
    CODE_SECRET,
    CODE_SQL,
    CODE_WRITE,
    DRY,
    FED,
    FORK_BOMB,
    INTERPRETERS,
    ROWS,
    RUN_VALUES,
    SECRET_READERS,
    SQL,
    STARTUP,
    TOOLS,
)
from acpterm.policy.syntax.command import SimpleCommand
from acpterm.policy.words import UNKNOWN_TEXT, Word

# The arguments with which a program runs a package.
_RUNS: Final[Mapping[str, re.Pattern[str]]] = {
    **dict.fromkeys(("npx", "bunx", "uvx"), re.compile("")),
    **dict.fromkeys(("pnpm", "yarn"), re.compile("dlx ")),
    "npm": re.compile("(?:exec|x) "),
    "bun": re.compile("x "),
    "pipx": re.compile("(?:run|x) "),
    "uv": re.compile("tool run "),
}


def _package(name: str, texts: list[str], directory: str | None) -> list[Loss]:
    """Return the loss of running a package that the project does not have."""
    runs = _RUNS[name].match(" ".join(texts[:3]))
    rest = texts[runs[0].count(" ") :] if runs else []
    if any(one in ("--no", "--no-install", "--offline") for one in rest):
        return []
    at = 0
    package = ""
    while at < len(rest) and rest[at].startswith("-"):
        # For uv, `-p` is a version of Python.
        if rest[at] in ("--package", "--from") or (rest[at] == "-p" and "uv" not in name):
            package = package or "".join(rest[at + 1 : at + 2])
        at += 2 if rest[at] in RUN_VALUES else 1
    package = package or "".join(rest[at : at + 1])
    plain = re.sub(r"(?<=.)@[^/]*$|\[.*|[=<>~!].*", "", package)
    if not package or UNKNOWN_TEXT in package or plain in TOOLS or package.startswith("."):
        return []
    return [Loss(Kind.DOWNLOADS, "runs {} from the net", Need.MISSING, (plain,), directory)]


def _row_checks() -> dict[str, list[tuple[re.Pattern[str], Kind, str]]]:
    found: dict[str, list[tuple[re.Pattern[str], Kind, str]]] = {}
    for programs, kind, reason, pattern in ROWS:
        for program in programs.split():
            found.setdefault(program, []).append((re.compile(pattern, re.DOTALL), kind, reason))
    return found


_CHECKED: Final = _row_checks()
# A command in text, as far as that is known without parsing.
_PIECE: Final = re.compile(
    r"(?:^|[;&|\n({!`'\"])(?:\s|(?:then|do|else|time|env|sudo|\w+=[^\s;&|]*+)\s)*+"
    r"(?P<command>(?:[\w./-]*+(?<=/))?(?P<name>[\w.-]++)[^;&|\n]{0,1024})"
)
_PIECES_MAX: Final = 512
_EXAMINED: Final = frozenset((*WRITERS, *SECRET_READERS, *_RUNS))


def losses_of(command: SimpleCommand, directory: str | None, line: str = "") -> list[Loss]:
    """Return what a command may lose, the surest first; empty for almost every command."""
    # `directory` is that of the command, seen from the directory of the line; None if not known.
    # `line` is the shell text that has the command.
    name = command.name
    if name == "git":
        return git_losses(command.words, directory, line)
    rows = _CHECKED.get(name)
    is_code = INTERPRETERS.fullmatch(name)
    if not (rows or is_code or name in _EXAMINED):
        return []
    whole = [word.text for word in command.words[1:WORDS_MAX]]
    # Most expressions take time quadratic in the length of what they are searched in.
    texts = [text[:WORD_CHARS_MAX] for text in whole]
    found: list[Loss] = []
    if rows:
        words = " ".join(" ".join(whole)[:TEXT_CHARS_MAX].split())
        given = f"{words} {command.text}" if command.input == "text" else words
        if command.input == "pipe" and (fed := FED.search(line)):
            given = f"{words} {fed[0]}"
        # What is in a literal of SQL is no statement.
        given = given[:TEXT_CHARS_MAX]
        bare = re.sub("'[^']*'", "''", given) if command.input != "pipe" else given
        if not DRY.search(words):
            found += (
                Loss(kind, reason)
                for pattern, kind, reason in rows
                if pattern.match(bare if pattern.pattern == SQL else given[:LINE_CHARS_MAX])
            )
    if is_code:
        found += _code(command, whole, directory)
    if name in _RUNS:
        found += _package(name, texts, directory)
    if name in WRITERS:
        found += written_losses(name, texts, directory, line)
    if name in SECRET_READERS:
        found += read_losses(name, texts, directory, line)
    return found


def _code(command: SimpleCommand, texts: list[str], directory: str | None) -> Iterator[Loss]:
    given = [
        text
        for at, text in enumerate(texts)
        if at and re.fullmatch(r"-\w*[ceEr]|--eval|--print|-p|eval", texts[at - 1])
    ]
    texts_of = [*given, command.text if command.input == "text" else ""]
    code = "\n".join(texts_of)[:CODE_CHARS_MAX]
    if CODE.search(code) and "tempfile" not in code:
        yield Loss(Kind.WORK, "deletes files by its code")
    if secret := CODE_SECRET.search(code):
        yield Loss(Kind.SECRETS, f"reads {secret[1]}, which has secrets")
    if CODE_SQL.search(code):
        yield Loss(Kind.DATA, "destroys data in a database")
    written = tuple(filter(None, itertools.chain.from_iterable(CODE_WRITE.findall(code))))
    if any(STARTUP.search(one) for one in written):
        yield Loss(Kind.STARTUP, "writes a start-up or key file by its code")
    if written and "read" not in code:
        # Code that reads files edits them.
        yield Loss(Kind.WORK, "overwrites {}", Need.OVERWRITTEN, written, directory, is_plain=False)
    if CODE_DOWNLOAD.search(code):
        yield Loss(Kind.DOWNLOADS, "runs what it downloads")


def text_losses(text: str) -> list[Loss] | None:
    """Return the losses of a text that is too long to be parsed; None if that is too long, too."""
    found: list[Loss] = []
    pieces = {
        match["command"]
        for match in _PIECE.finditer(text)
        if match["name"] == "git" or match["name"] in _CHECKED
    }
    if len(pieces) > _PIECES_MAX:
        return None
    for piece in sorted(pieces):
        words = tuple(Word(one.strip("'\"")) for one in piece.split()[:WORDS_MAX])
        found += losses_of(SimpleCommand(words), None)
    return [one for one in found if one.is_plain and one.need is not Need.MISSING]


def line_danger(text: str) -> str:
    """Return why a shell text is dangerous as a whole; empty if it is not."""
    bomb = "()" in text and FORK_BOMB.search(text)
    return "it starts copies of itself without end" if bomb else ""
