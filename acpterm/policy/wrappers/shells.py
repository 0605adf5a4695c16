"""Programs that execute text: shells, interpreters of other languages, and builtins of a shell.

Text for a shell, such as the argument of `sh -c`, is judged like a command line that an agent
requests. In code for another language, each string that may be a shell command is *suspected*: it
counts only if it is dangerous, or if a rule asks about it or denies it.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final

from acpterm.policy.syntax.command import SimpleCommand
from acpterm.policy.syntax.readers import reader_of
from acpterm.policy.words import PIPE_PATH, UNKNOWN_TEXT, Word
from acpterm.policy.wrappers.unwrapped import (
    NOTHING,
    SUSPECTED_MAX,
    Inner,
    Kind,
    Unwrapped,
    is_standard,
)

_SHELLS: Final = frozenset(
    ("sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "mksh", "yash", "rbash", "csh", "tcsh")
)
# Shells that read a plain line without differences (`readers`) as it is judged.
_PLAIN_SHELLS: Final = frozenset(("sh", "bash", "dash"))
_PLAIN_FLAGS: Final = re.compile(r"-[celux]+")
_INTERPRETER: Final = re.compile(
    r"python[0-9.]*|pypy[0-9.]*|perl[0-9.]*|ruby[0-9.]*|node|nodejs|php[0-9.]*|lua[0-9.]*|deno|bun"
    r"|osascript|Rscript|tclsh|pwsh"
)
# Options with which an interpreter does not execute its stdin, but an argument or nothing.
_CODE: Final = re.compile(r"-[a-zA-Z0-9]*[ceEmrpVvh]|--(?:eval|print|version|help|run)")
# Strings in code. The first alternative skips escaped characters outside of strings: a search that
# starts at each escaped quote would take quadratic time.
_QUOTED: Final = re.compile(
    r"\\.|\"((?:[^\"\\]|\\.)++)\"|'((?:[^'\\]|\\.)++)'|`([^`]++)`|\{([^{}]++)\}", re.DOTALL
)
_LIST: Final = re.compile(r"[\[(]([^\[\]()]*+)[\])]")


def shell(command: SimpleCommand) -> Unwrapped | None:
    """Return what a shell executes: the text after `-c` or on stdin; None for any other program."""
    name, words = command.name, command.words
    if name not in _SHELLS:
        return None
    at, has_text, reads_stdin = 1, False, False
    is_harmless = words[0].is_literal and is_standard(words[0].text) and name in _PLAIN_SHELLS
    while at < len(words) and words[at].text[:1] in ("-", "+") and words[at].text != "-":
        option = words[at].text
        at += 1
        if option == "--":
            break
        is_harmless = is_harmless and bool(_PLAIN_FLAGS.fullmatch(option))
        if not option.startswith("--"):
            has_text = has_text or (option[0] == "-" and "c" in option)
            reads_stdin = reads_stdin or (option[0] == "-" and "s" in option)
            at += option[-1:] in ("o", "O")
        elif option in ("--rcfile", "--init-file"):
            at += 1
    if has_text:
        return _text(command, at, is_harmless=is_harmless)
    if at < len(words) and not reads_stdin and words[at].text not in ("-", "/dev/stdin"):
        return _script(words[at])
    return _stdin(command, is_shell=True)


def _text(command: SimpleCommand, at: int, *, is_harmless: bool) -> Unwrapped:
    if at >= len(command.words):
        return NOTHING
    text, rest = command.words[at], command.words[at + 1 :]
    if UNKNOWN_TEXT in text.text:
        return Unwrapped(danger="it executes computed text")
    values = {"0": rest[0].text} if rest else {}
    values |= {str(number): word.text for number, word in enumerate(rest[1:10], 1)}
    values["@"] = values["*"] = " ".join(word.text for word in rest[1:])
    kind: Kind = "harmless" if is_harmless and text.is_literal and not rest else "executes"
    reader = reader_of(command.name)
    return Unwrapped((Inner((), text.text, kind, command.input, values, reader),))


def _script(word: Word) -> Unwrapped:
    # The contents of a file are not judged.
    if word.text == UNKNOWN_TEXT or word.text.startswith(PIPE_PATH):
        return Unwrapped(danger="it executes the output of a command, or a computed file")
    return NOTHING


def _stdin(command: SimpleCommand, *, is_shell: bool) -> Unwrapped:
    if command.input == "text" and is_shell:
        reader = reader_of(command.name) if command.name in _SHELLS else None
        return Unwrapped((Inner((), command.text, "executes", reader=reader),))
    if command.input in ("pipe", "computed"):
        return Unwrapped(danger="it executes the output of a command")
    return NOTHING


def interpreter(command: SimpleCommand) -> Unwrapped | None:
    """Return the strings in an interpreter's code as suspected commands; None for others."""
    rest = command.words[1:]
    # bun is also a package manager: its first operand may be a command instead of a script.
    if not _INTERPRETER.fullmatch(command.name) or (
        command.name == "bun" and rest and not _CODE.match(rest[0].text)
    ):
        return None
    if any(_CODE.match(word.text) for word in rest):
        return _code(rest)
    operand = next(
        (word for word in rest if not word.text.startswith("-") or word.text == "-"), None
    )
    if operand is None or operand.text in ("-", "/dev/stdin"):
        return _stdin(command, is_shell=False)
    return _script(operand)


def awk(command: SimpleCommand) -> Unwrapped:
    """Return the strings in an awk script that may be commands."""
    return _code(command.words[1:])


def _code(words: Sequence[Word]) -> Unwrapped:
    strings = itertools.chain.from_iterable(_strings(word.text) for word in words)
    return Unwrapped(
        tuple(Inner((), one, "suspected") for one in itertools.islice(strings, SUSPECTED_MAX))
    )


def _strings(code: str) -> Iterator[str]:
    """Yield those strings in `code` that may be commands. `code` is not shell text."""
    for match in _QUOTED.finditer(code):
        text = match[1] or match[2] or match[3] or match[4]
        if text and (" " in text or match[4] is None):
            yield text
            if '"' in text or "'" in text:
                yield from (inner[1] or inner[2] or "" for inner in _QUOTED.finditer(text))
    # A list of words: ["rm", "-r", "x"].
    for match in _LIST.finditer(code):
        yield re.sub("[\"',]+", " ", match[1])


def eval_builtin(command: SimpleCommand) -> Unwrapped:
    """Return what `eval` executes: its arguments, joined to a shell line."""
    line = " ".join(word.text for word in command.words[1:])
    if UNKNOWN_TEXT in line:
        return Unwrapped(danger="it executes computed text")
    return Unwrapped((Inner((), line, "executes", command.input),)) if line else NOTHING


def source(command: SimpleCommand) -> Unwrapped:
    """Return what the shell's builtin `source` executes: the text on stdin, or a script."""
    operands = [word for word in command.words[1:] if word.text != "--"]
    if not operands:
        return NOTHING
    if operands[0].text in ("/dev/stdin", "/proc/self/fd/0", "/dev/fd/0"):
        return _stdin(command._replace(input=command.input or "computed"), is_shell=True)
    return _script(operands[0])


def trap(command: SimpleCommand) -> Unwrapped:
    """Return the first operand of `trap`: a shell line that the shell executes on a signal."""
    operands = [word.text for word in command.words[1:] if word.text != "--"]
    if not operands or operands[0] in ("-", "", "-l", "-p"):
        return NOTHING
    if UNKNOWN_TEXT in operands[0]:
        return Unwrapped(danger="it executes computed text")
    return Unwrapped((Inner((), operands[0], "executes"),))
