"""The entry point of `wrappers`: finds what a command executes, by the name of its program.

Of a program that executes a command after its options, such as `nohup` or `sudo`, the options are
listed. An option that is not listed may take a value; then it is not certain where the command
begins, and each argument is *suspected* to be its beginning (see `wrappers.unwrapped`).

Text for a shell, such as the argument of `sh -c`, is judged like a command line that an agent
requests. In code for another language, each string that may be a shell command is *suspected*.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from acpterm.policy.losses.arguments import value_of
from acpterm.policy.syntax.command import SimpleCommand
from acpterm.policy.syntax.readers import reader_of
from acpterm.policy.words import PIPE_PATH, UNKNOWN_TEXT, Word
from acpterm.policy.wrappers import suspects
from acpterm.policy.wrappers.suspects import suspicious
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
# Interpreters whose calls that execute commands are known (`_CALL`).
_CALLING: Final = re.compile(r"python[0-9.]*|pypy[0-9.]*|node|nodejs|deno|bun")
_PIECE: Final = r"[^()\"'`\\]++|\\.|\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|`[^`]*+`"
_NESTED: Final = rf"\((?:{_PIECE}|\((?:{_PIECE})*+\))*+\)"
_CALL: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:system|[pP]open|run|call|(?:get(?:status)?)?output|subprocess_shell"
    rf"|(?:exec|spawn)\w{{0,16}})\s*+\((?:{_PIECE}|{_NESTED})*+\)?|\$`[^`]*+`",
    re.DOTALL,
)


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
    if command.input == "text":
        # Files are often written by such code, so that most of its strings are text.
        is_calling = _CALLING.fullmatch(command.name) is not None
        return _code(_CALL.findall(command.text) if is_calling else [command.text])
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
        return _code(word.text for word in rest)
    operand = next(
        (word for word in rest if not word.text.startswith("-") or word.text == "-"), None
    )
    if operand is None or operand.text in ("-", "/dev/stdin"):
        return _stdin(command, is_shell=False)
    return _script(operand)


def awk(command: SimpleCommand) -> Unwrapped:
    """Return the strings in an awk script that may be commands."""
    return _code(word.text for word in command.words[1:])


def _code(texts: Iterable[str]) -> Unwrapped:
    strings = itertools.chain.from_iterable(map(_strings, texts))
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


class _Options(NamedTuple):
    """The options of a wrapper, which precede the command that it executes."""

    flags: frozenset[str]
    """The options without a value."""
    values: frozenset[str]
    """The options with a value: the rest of the same argument, or else the next argument."""
    operands: int
    """The number of arguments between the options and the command."""
    kind: Kind
    """How the wrapper executes the command."""


def _options(
    flags: str = "", values: str = "", operands: int = 0, kind: Kind = "executes"
) -> _Options:
    return _Options(frozenset(flags.split()), frozenset(values.split()), operands, kind)


_PREFIXES: Final[Mapping[str, _Options]] = {
    "nohup": _options(kind="harmless"),
    "nice": _options("", "-n --adjustment", kind="harmless"),
    "timeout": _options(
        "-v --verbose --foreground --preserve-status -f -p",
        "-s --signal -k --kill-after",
        1,
        "harmless",
    ),
    "time": _options("-p", kind="harmless"),
    "command": _options("-p", kind="harmless"),
    "builtin": _options(),
    # Reserved words: the parser takes them for programs if the line has an error.
    **dict.fromkeys(
        ("{", "!", "then", "do", "else", "elif", "if", "while", "until", "shell"), _options()
    ),
    "exec": _options("-c -l", "-a"),
    "busybox": _options(),
    "toybox": _options(),
    "setsid": _options("-c --ctty -f --fork -w --wait"),
    "ionice": _options("-t", "-c --class -n --classdata -p"),
    "xvfb-run": _options(
        "-a --auto-servernum -l --listen-tcp",
        "-n --server-num -e --error-file -f --auth-file -p --xauth-protocol -s --server-args -w "
        "--wait",
    ),
    "chrt": _options("-a -b -f -i -o -r -R -v", "-T -P -D", 1),
    "taskset": _options("-a -c", "", 1),
    "stdbuf": _options("", "-i -o -e --input --output --error"),
    "sudo": _options(
        "-A -b -E -e -H -i -K -k -l -n -P -S -s -v -V --login --shell --preserve-env --set-home",
        "-u --user -g --group -h --host -p --prompt -C -c -r -t -T -U -D --chdir -R --chroot",
    ),
    "doas": _options("-L -n -s", "-a -C -u"),
    "caffeinate": _options("-d -i -m -s -u", "-t -w"),
    "fakeroot": _options("", "-l -s -i -b"),
}
_ENV: Final = _options("-i --ignore-environment -0 --null -v --debug -", "-u --unset -C --chdir")
# The option of env whose value is split into arguments: `-S`, or `--split-string` and its
# abbreviations.
_ENV_SPLIT: Final = re.compile(r"-[iv0]*S|--split-string=?|--s[a-z-]*=?")
_XARGS: Final = _options(
    "-0 --null -o --open-tty -p --interactive -r --no-run-if-empty -t --verbose -x --exit -i -l -e",
    "-I -J -L -n -P -R -S -s -a -d -E --replace --max-lines --max-args --max-procs --max-chars "
    "--arg-file --delimiter --eof",
)


def prefix(command: SimpleCommand) -> Unwrapped | None:
    """Return the command that follows a program's options; None if the program is not listed."""
    options = _PREFIXES.get(command.name)
    return None if options is None else _after_options(command, options)


def _after_options(command: SimpleCommand, options: _Options) -> Unwrapped:
    at, is_exact = _skip(command.words, options)
    rest = command.words[at:]
    if not rest:
        return NOTHING if is_exact else suspicious(command)
    if not is_exact:
        found = suspicious(command)
        first = Inner(rest, None, "executes", command.input)
        return found._replace(inner=(first, *found.inner))
    inner = Inner(rest, None, _kind(command, options.kind), command.input)
    if command.name == "sudo":
        inner = inner._replace(directory=_entered(command.words[1:at], "D"))
    return Unwrapped((inner,))


def _entered(options: tuple[Word, ...], letter: str) -> str | None:
    return value_of([word.text for word in options], letter, "--chdir")


def _kind(command: SimpleCommand, kind: Kind) -> Kind:
    # A program such as `./nice` has the name of a wrapper, but may do other things.
    program = command.words[0]
    return kind if program.is_literal and is_standard(program.text) else "executes"


def _skip(words: tuple[Word, ...], options: _Options) -> tuple[int, bool]:
    """Return where the inner command begins in `words`, and whether that is certain."""
    at, is_exact = 1, True
    while at < len(words):
        text = words[at].text
        is_exact = is_exact and words[at].is_literal
        if text == "--":
            at += 1
            break
        if not text.startswith("-") or text == "-":
            break
        name, has_value, _ = text.partition("=")
        at += 1
        if text in options.values:
            # A pattern may become several arguments, of which the second is the command.
            is_exact = is_exact and all(value.is_literal for value in words[at : at + 1])
            at += 1
        elif (
            text not in options.flags
            and not (has_value and name in options.values | options.flags)
            and not (text[:2] in options.values and text[1] != "-")
            and not all(f"-{one}" in options.flags for one in text[1:])
            # `nice -5`, and options of the same form.
            and not (options.operands == 0 and text[1:].isdigit())
        ):
            is_exact = False
    first = min(at + options.operands, len(words))
    return first, is_exact and all(operand.is_literal for operand in words[at:first])


def command_builtin(command: SimpleCommand) -> Unwrapped:
    """Return the command that the builtin `command` executes; nothing for `command -v`."""
    words = command.words
    if len(words) > 1 and words[1].text in ("-v", "-V", "-pv", "-pV"):
        return NOTHING
    return _after_options(command, _PREFIXES["command"])


def coproc(command: SimpleCommand) -> Unwrapped:
    """Return both commands that `coproc` may execute: its first word may be a name."""
    words = command.words
    return Unwrapped(
        tuple(
            Inner(words[at:], None, "executes", command.input) for at in (1, 2) if at < len(words)
        )
    )


def env(command: SimpleCommand) -> Unwrapped:
    """Return the command that `env` executes, with the variables that `env` sets."""
    words = command.words
    for at, word in enumerate(words[1:], 1):
        if option := _ENV_SPLIT.match(word.text):
            values = [word.text[option.end() :], *(following.text for following in words[at + 1 :])]
            return Unwrapped((Inner((), " ".join(values), "executes", command.input),))
        if not word.text.startswith("-"):
            break
    at, is_exact = _skip(words, _ENV)
    if at < len(words) and words[at].text == "-":
        at += 1
    start = at
    constants = {}
    while at < len(words) and "=" in words[at].text:
        variable, _, value = words[at].text.partition("=")
        constants[variable] = value
        at += 1
    if at >= len(words):
        return NOTHING
    is_bare = is_exact and at == start == 1
    kind = _kind(command, "harmless") if is_bare else "executes"
    directory = _entered(words[1:start], "C")
    inner = Inner(words[at:], None, kind, command.input, constants, directory=directory)
    return Unwrapped((inner,) if is_exact else (inner, *suspicious(command).inner))


def xargs(command: SimpleCommand) -> Unwrapped:
    """Return the command that `xargs` executes, with `UNKNOWN_TEXT` for the arguments it adds."""
    words = command.words
    at, is_exact = _skip(words, _XARGS)
    if at >= len(words):
        return NOTHING
    place = "{}"
    for number, word in enumerate(words[1:at], 1):
        if word.text == "-I" and number + 1 < len(words):
            place = words[number + 1].text
        elif word.text[:2] in ("-I", "-i") and len(word.text) > 2:
            place = word.text[2:]
        elif word.text.startswith("--replace="):
            place = word.text.removeprefix("--replace=")
    executed = (*_with_unknown(words[at:], place), Word(UNKNOWN_TEXT, is_literal=False))
    inner = Inner(executed, None, "executes")
    # No stdin: that of xargs has the arguments, and the command does not inherit it.
    return Unwrapped((inner,) if is_exact else (inner, *suspicious(SimpleCommand(words)).inner))


def find(command: SimpleCommand) -> Unwrapped:
    """Return the commands of `find -exec` and similar actions."""
    words = command.words
    found: list[Inner] = []
    at = 1
    while at < len(words) and len(found) < SUSPECTED_MAX:
        if words[at].text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = at + 1
            while end < len(words) and words[end].text not in (";", "+"):
                end += 1
            if executed := _with_unknown(words[at + 1 : end], "{}"):
                found.append(Inner(executed, None, "executes", command.input))
            at = end
        at += 1
    return Unwrapped(tuple(found))


def _with_unknown(words: tuple[Word, ...], place: str) -> tuple[Word, ...]:
    return tuple(
        Word(word.text.replace(place, UNKNOWN_TEXT), is_literal=False)
        if place and place in word.text
        else word
        for word in words
    )


_SPECIAL: Final[Mapping[str, Callable[[SimpleCommand], Unwrapped]]] = {
    "command": command_builtin,
    "coproc": coproc,
    "env": env,
    "find": find,
    "xargs": xargs,
    "eval": eval_builtin,
    "source": source,
    ".": source,
    "trap": trap,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), awk),
    "alias": suspects.alias,
    "crontab": suspects.crontab,
    "git": suspects.git,
}


def unwrap(command: SimpleCommand) -> Unwrapped:
    """Return what a command executes; `NOTHING` if its program is not a wrapper."""
    name = command.name
    special = _SPECIAL.get(name)
    if special is not None:
        return special(command)
    for find in (shell, prefix, interpreter, suspects.suspect):
        found = find(command)
        if found is not None:
            return found
    return NOTHING
