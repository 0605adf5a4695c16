"""The entry point: finds the losses of one command."""

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
from acpterm.policy.losses.table import checks_of, listed_paths, listed_words
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
_RUN_VALUES: Final = frozenset(
    ("-p", "--package", "--from", "--with", "--python", "-c", "--call", "--with-requirements")
)
_DRY: Final = re.compile(r"(?:^| )--?(?:dry-?run(?!=(?:none|false))|help\b)")
_FED: Final = re.compile(r"\b(?:echo|printf)\b[^|]*|<<.*", re.DOTALL)
_INTERPRETERS: Final = re.compile(
    r"python[0-9.]*|pypy[0-9.]*|perl|ruby|node|nodejs|deno|bun|php|lua"
)
_FORK_BOMB: Final = re.compile(
    r"(?<![\w:.])([\w:.]{1,32})\s{0,4}\(\)\s{0,4}\{[^}]{0,200}?\1\s{0,4}\|\s{0,4}\1\s{0,4}&"
)
# The paths that `open(path, "w")` and the like write.
_PATH: Final = r"\s{0,9}['\"]([^'\"]{1,200})['\"]"
_WRITTEN: Final = re.compile(
    rf"open\s{{0,9}}\((?:os\.path\.expanduser\s{{0,9}}\()?{_PATH}\)?\s{{0,9}},\s{{0,9}}(?:mode=)?['\"][wa]"
    rf"|(?:write(?:\w{{0,16}}Sync|File)|createWriteStream|file_put_contents|File\.write)\s{{0,9}}\(?{_PATH}"
    rf"|Path\s{{0,9}}\({_PATH}\)\.(?:write_|open\(['\"]w)"
    r"|open\s{0,9}\(?(?:my| ){0,9}\$?\w{1,40}\s{0,9},\s{0,9}['\"]>(?:['\"],)?[\s'\"]{0,9}"
    r"([^'\"]{1,200})"
    r"|(?:os\.(?:rename|replace)|shutil\.(?:copy\w*|move)|copyFileSync|renameSync)"
    rf"\s{{0,9}}\([^,]{{1,200}},{_PATH}"
)
# A command in text, as far as that is known without parsing.
_PIECE: Final = re.compile(
    r"(?:^|[;&|\n({!`'\"])(?:\s|(?:then|do|else|time|env|sudo|\w+=[^\s;&|]*+)\s)*+"
    r"(?P<command>(?:[\w./-]*+(?<=/))?(?P<name>[\w.-]++)[^;&|\n]{0,1024})"
)
_PIECES_MAX: Final = 512
_REDIRECTION: Final = re.compile(r">>? ?([~/$][^\s;&|<>]{1,200})")


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
        at += 2 if rest[at] in _RUN_VALUES else 1
    package = package or "".join(rest[at : at + 1])
    plain = re.sub(r"(?<=.)@[^/]*$|\[.*|[=<>~!].*", "", package)
    is_known = package[:1] in ("", ".") or UNKNOWN_TEXT in package or plain in listed_words("tools")
    if is_known:
        return []
    return [Loss(Kind.DOWNLOADS, "runs {} from the net", Need.MISSING, (plain,), directory)]


def losses_of(command: SimpleCommand, directory: str | None, line: str = "") -> list[Loss]:
    """Return what a command may lose, the surest first; empty for almost every command."""
    # `directory` is that of the command, seen from the directory of the line; None if not known.
    # `line` is the shell text that has the command.
    # GNU's programs are `gcp` and the like on some machines.
    name = command.name[command.name in listed_words("prefixed") :]
    if name[-1:].isdigit():
        name = re.sub(r"^(python|pip|php|ruby|perl)[\d.]{1,9}$", r"\1", name)
    if name == "git":
        return git_losses(command.words, directory, line)
    whole = [word.text for word in command.words[1:WORDS_MAX]]
    # Most expressions take time quadratic in the length of what they are searched in.
    texts = [text[:WORD_CHARS_MAX] for text in whole]
    found = _by_table(name, command, whole, line)
    if _INTERPRETERS.fullmatch(name):
        found += _code(command, whole, directory)
    if name in _RUNS:
        found += _package(name, texts, directory)
    if name in WRITERS:
        found += written_losses(name, texts, directory, line)
    if name in listed_words("readers"):
        found += read_losses(name, texts, directory, line)
    return found


def _by_table(name: str, command: SimpleCommand, whole: list[str], line: str) -> list[Loss]:
    if not _is_checked(name):
        return []
    arguments = " ".join(" ".join(whole)[:TEXT_CHARS_MAX].split())
    if _DRY.search(arguments.partition(" -- ")[0]):
        return []
    given = f"{arguments} {command.text}" if command.input == "text" else arguments
    if command.input == "pipe" and (fed := _FED.search(line)):
        given = f"{arguments} {fed[0]}"
    found = _matching(name, given[:LINE_CHARS_MAX])
    if name in listed_words("sql"):
        # What is in a literal of SQL is no statement.
        text = given[:TEXT_CHARS_MAX]
        if sum(map(len, whole)) + len(given) - len(arguments) > TEXT_CHARS_MAX:
            found.append(Loss(Kind.DATA, "runs SQL that is too long to be searched"))
        found += _matching(
            "<sql>", text if command.input == "pipe" else re.sub("'[^']*'", "''", text)
        )
    return found


def _matching(name: str, text: str) -> list[Loss]:
    return [
        Loss(kind, reason.format(*match.groups()))
        for pattern, kind, reason in checks_of(name)
        if (match := pattern.match(text))
    ]


def _code(command: SimpleCommand, texts: list[str], directory: str | None) -> Iterator[Loss]:
    given = [
        text
        for at, text in enumerate(texts)
        if at and re.fullmatch(r"-\w*[ceEr]|--eval|--print|-p|eval", texts[at - 1])
    ]
    texts_of = [*given, command.text if command.input == "text" else ""]
    code = "\n".join(texts_of)[:CODE_CHARS_MAX]
    if not code:
        return
    yield from _matching("<code>", code)
    written = tuple(one for found in _WRITTEN.findall(code) for one in found if one)
    if any(map(listed_paths("startup").search, written)):
        yield Loss(Kind.STARTUP, "writes a start-up or key file by its code")
    if written and "read" not in code:
        # Code that reads files edits them.
        yield Loss(Kind.WORK, "overwrites {}", Need.OVERWRITTEN, written, directory, is_plain=False)


def _is_checked(name: str) -> bool:
    return bool(checks_of(name)) or name in listed_words("sql")


def text_losses(text: str) -> list[Loss] | None:
    """Return the losses of a text that is too long to be parsed; None if that is too long, too."""
    found: list[Loss] = []
    pieces = {
        (match["command"], match[0][0] == "|" or "<<" in match["command"])
        for match in _PIECE.finditer(text)
        if _is_checked(match["name"]) or match["name"] in listed_words("readers") | WRITERS
    }
    pieces |= {(f"> {one}", False) for one in _REDIRECTION.findall(text)}
    if len(pieces) > _PIECES_MAX:
        return None
    for piece, is_fed in sorted(pieces):
        given = tuple(Word(one.strip("'\"")) for one in piece.split()[:WORDS_MAX])
        fed = SimpleCommand(given, input="text", text=text) if is_fed else SimpleCommand(given)
        is_sql = fed.name in listed_words("sql")
        found += losses_of(fed if is_sql else SimpleCommand(given), None)
    return [one for one in found if one.is_plain and one.need is not Need.MISSING]


def line_danger(text: str) -> str:
    """Return why a shell text is dangerous as a whole; empty if it is not."""
    bomb = "()" in text and _FORK_BOMB.search(text)
    return "it starts copies of itself without end" if bomb else ""
