"""Commands behind other commands: what `env`, `xargs`, `sh -c`, `sudo`, `ssh` or `eval` execute.

For programs that execute a command exactly as it follows, the command is found by their options.
For the many others, whose options are not known here, every rest of the arguments and every
argument that has a space is *suspected*: it counts only if it is dangerous, or if a rule asks about
it or denies it.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from acpterm.policy.syntax import Input
from acpterm.policy.words import PIPE_PATH, UNKNOWN_TEXT, Word

Kind = Literal["harmless", "executes", "suspected"]
"""How a wrapper executes a command: exactly as it is written, otherwise, or perhaps."""

_DIRECTORIES: Final = frozenset(("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"))
SUSPECTED_MAX: Final = 32
"""Maximum rests of the arguments of a wrapper that are suspected."""


class Inner(NamedTuple):
    """A command that another command executes: words, or text for a shell."""

    words: tuple[Word, ...]
    text: str | None
    kind: Kind
    input: Input = ""
    constants: Mapping[str, str] = MappingProxyType({})


class Unwrapped(NamedTuple):
    """What a command executes."""

    inner: tuple[Inner, ...] = ()
    danger: str = ""
    """Why the command executes something that cannot be known; empty if it does not."""

    @property
    def is_harmless(self) -> bool:
        """Return whether the command does nothing but execute one command as it is written."""
        return len(self.inner) == 1 and self.inner[0].kind == "harmless" and not self.danger


class _Options(NamedTuple):
    """The options of a wrapper before the command that it executes."""

    flags: frozenset[str]
    values: frozenset[str]
    operands: int
    kind: Kind


def _options(
    flags: str = "", values: str = "", operands: int = 0, kind: Kind = "executes"
) -> _Options:
    return _Options(frozenset(flags.split()), frozenset(values.split()), operands, kind)


_NONE: Final = Unwrapped()
_PREFIXES: Final = {
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
    # Reserved words that are taken for programs where a line has an error.
    **dict.fromkeys(
        ("{", "!", "then", "do", "else", "elif", "if", "while", "until", "shell"), _options()
    ),
    "exec": _options("-c -l", "-a"),
    "busybox": _options(),
    "toybox": _options(),
    "setsid": _options("-c --ctty -f --fork -w --wait"),
    "ionice": _options("-t", "-c --class -n --classdata -p"),
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
_SHELLS: Final = frozenset(
    ("sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "mksh", "yash", "rbash", "csh", "tcsh")
)
_PLAIN_SHELLS: Final = frozenset(("sh", "bash", "dash"))
_SHELL_FLAGS: Final = re.compile(r"-[celux]+")
_INTERPRETER: Final = re.compile(
    r"python[0-9.]*|pypy[0-9.]*|perl[0-9.]*|ruby[0-9.]*|node|nodejs|php[0-9.]*|lua[0-9.]*|deno|bun"
    r"|osascript|Rscript|tclsh|pwsh"
)
# Options with which an interpreter does not execute its stdin.
_CODE: Final = re.compile(r"-[a-zA-Z0-9]*[ceEmrpVvh]|--(?:eval|print|version|help|run)")
# Programs that execute some of their arguments: as a command, or as text for a shell.
_SUSPICIOUS: Final = frozenset(
    ("arch-chroot", "at", "batch", "bwrap", "capsh", "cgexec", "chpst", "chroot", "cpulimit",
     "crun", "dbus-run-session", "direnv", "distrobox", "docker", "docker-compose", "dumb-init",
     "entr", "expect", "fd", "fdfind", "firejail", "flatpak-spawn", "flock", "gdb", "gosu",
     "incus", "kubectl", "linux32", "linux64", "ltrace", "lxc", "lxc-attach", "machinectl", "mosh",
     "nerdctl", "nix", "nix-shell", "nsenter", "numactl", "oc", "parallel", "perf", "pkexec",
     "podman", "prlimit", "proot", "proxychains", "proxychains4", "run-parts", "runc", "runcon",
     "runuser", "s6-setuidgid", "schroot", "screen", "script", "setarch", "setpriv", "softlimit",
     "socat", "ssh", "start-stop-daemon", "strace", "su", "su-exec", "systemd-run", "tini", "tmux",
     "toolbox", "tsp", "unbuffer", "unshare", "valgrind", "watch", "watchexec", "wsl", "xterm")
)  # fmt: skip
# Programs of which some arguments are text for a shell.
_TEXT_ARGUMENTS: Final = frozenset(
    ("emacs", "ex", "nvim", "rsync", "sed", "tar", "vi", "view", "vim", "xdotool")
)
# Programs that execute a command after a subcommand, an option or a package.
_RUNNERS: Final = frozenset(
    ("bun", "bundle", "bunx", "hatch", "npm", "npx", "pipenv", "pipx", "pnpm", "poetry", "uv",
     "uvx", "yarn")
)  # fmt: skip
_RUNNER_WORDS: Final = re.compile(r"exec|x|run|dlx|explore")
_GIT_COMMANDS: Final = re.compile(
    r"-x|foreach|bisect|filter-branch|-c.*|--(?:exec|config|upload-pack|receive-pack|\w+-filter).*"
)
_EXECUTES_STDIN: Final = frozenset(
    ("at", "batch", "crontab", "parallel", "ssh", "su", "source", ".")
)
_QUOTED: Final = re.compile(r"\"((?:[^\"\\]|\\.)+)\"|'((?:[^'\\]|\\.)+)'|`([^`]+)`|\{([^{}]+)\}")

_LIST: Final = re.compile(r"[\[(]([^\[\]()]*)[\])]")


def is_standard(program: str) -> bool:
    """Return whether a program is given by its name only, or in a directory of the system."""
    directory, slash, _ = program.rpartition("/")
    return not slash or directory in _DIRECTORIES


def unwrap(  # noqa: PLR0911  one for each kind of wrapper
    words: Sequence[Word], given: Input, text: str
) -> Unwrapped:
    """Return what the command `words` executes; `given` and `text` describe its stdin."""
    name = words[0].text.rpartition("/")[2]
    if name in _SHELLS:
        return _shell(name, words, given, text)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(words, given, text)
    options = _PREFIXES.get(name)
    if options is not None:
        return _prefix(words, options, given)
    if _INTERPRETER.fullmatch(name) and (
        name != "bun" or len(words) == 1 or _CODE.match(words[1].text)
    ):
        return _interpreter(words, given)
    if name in _SUSPICIOUS:
        return _suspicious(words, given, text)
    if name in _TEXT_ARGUMENTS:
        return _suspicious(words, given, text, rests=0)
    if name in _RUNNERS:
        return _runner(name, words, given)
    return _NONE


def _prefix(words: Sequence[Word], options: _Options, given: Input) -> Unwrapped:
    at, is_exact = _skip(words, options)
    if at >= len(words):
        return _NONE if is_exact else _suspicious(words, given, "")
    if not is_exact:
        found = _suspicious(words, given, "")
        return found._replace(
            inner=(Inner(tuple(words[at:]), None, "executes", given), *found.inner)
        )
    is_known = words[0].is_literal and is_standard(words[0].text)
    kind: Kind = options.kind if is_known else "executes"
    return Unwrapped((Inner(tuple(words[at:]), None, kind, given),))


def _skip(words: Sequence[Word], options: _Options) -> tuple[int, bool]:
    """Return the index of the command, and whether all options before it are known."""
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
            at += 1
        elif (
            text not in options.flags
            and not (has_value and name in options.values | options.flags)
            and not (text[:2] in options.values and text[1] != "-")
            and not all(f"-{one}" in options.flags for one in text[1:])
            and not (options.operands == 0 and text[1:].isdigit())
        ):
            is_exact = False
    return min(at + options.operands, len(words)), is_exact


def _shell(name: str, words: Sequence[Word], given: Input, text: str) -> Unwrapped:
    at, has_text, reads_stdin = 1, False, False
    is_harmless = words[0].is_literal and is_standard(words[0].text) and name in _PLAIN_SHELLS
    while at < len(words) and words[at].text[:1] in ("-", "+") and words[at].text != "-":
        option = words[at].text
        at += 1
        if option == "--":
            break
        is_harmless = is_harmless and bool(_SHELL_FLAGS.fullmatch(option))
        if not option.startswith("--"):
            has_text = has_text or (option[0] == "-" and "c" in option)
            reads_stdin = reads_stdin or (option[0] == "-" and "s" in option)
            at += option[-1:] in ("o", "O")
        elif option in ("--rcfile", "--init-file"):
            at += 1
    if has_text:
        if at >= len(words):
            return _NONE
        script, rest = words[at], words[at + 1 :]
        if UNKNOWN_TEXT in script.text:
            return Unwrapped(danger="it executes computed text")
        values = {"0": rest[0].text} if rest else {}
        values |= {str(number): word.text for number, word in enumerate(rest[1:10], 1)}
        values["@"] = values["*"] = " ".join(word.text for word in rest[1:])
        kind: Kind = "harmless" if is_harmless and script.is_literal and not rest else "executes"
        return Unwrapped((Inner((), script.text, kind, given, values),))
    if at < len(words) and not reads_stdin and words[at].text not in ("-", "/dev/stdin"):
        return _script(words[at])
    return _stdin(given, text, is_shell=True)


def _script(word: Word) -> Unwrapped:
    if word.text == UNKNOWN_TEXT or word.text.startswith(PIPE_PATH):
        return Unwrapped(danger="it executes the output of a command, or a computed file")
    return _NONE


def _stdin(given: Input, text: str, *, is_shell: bool) -> Unwrapped:
    if given == "text" and is_shell:
        return Unwrapped((Inner((), text, "executes"),))
    if given in ("pipe", "computed"):
        return Unwrapped(danger="it executes the output of a command")
    return _NONE


def _interpreter(words: Sequence[Word], given: Input) -> Unwrapped:
    rest = words[1:]
    codes = [word for word in rest if _CODE.match(word.text)]
    if codes:
        texts = [quoted for word in rest for quoted in _strings(word.text)]
        return Unwrapped(tuple(Inner((), text, "suspected") for text in texts[:SUSPECTED_MAX]))
    operand = next(
        (word for word in rest if not word.text.startswith("-") or word.text == "-"), None
    )
    if operand is None or operand.text in ("-", "/dev/stdin"):
        return _stdin(given, "", is_shell=False)
    return _script(operand)


def _strings(code: str) -> Iterator[str]:
    """Yield the strings in code of another language that may be commands."""
    for match in _QUOTED.finditer(code):
        text = match[1] or match[2] or match[3] or match[4]
        if " " in text or match[4] is None:
            yield text
            if '"' in text or "'" in text:
                yield from (inner[1] or inner[2] or "" for inner in _QUOTED.finditer(text))
    # A list of words: ["rm", "-r", "x"].
    for match in _LIST.finditer(code):
        yield re.sub("[\"',]+", " ", match[1])


def _runner(name: str, words: Sequence[Word], given: Input) -> Unwrapped:
    if name not in ("npx", "bunx", "uvx") and not any(
        _RUNNER_WORDS.fullmatch(word.text) for word in words[1:4]
    ):
        return _NONE
    # Only the first two words can be the command: a later one is an argument of it.
    operands = [at for at, word in enumerate(words) if at and word.text[:1] not in ("-", "")][:2]
    found = [Inner(tuple(words[at:]), None, "suspected", given) for at in operands]
    for before, word in itertools.pairwise(words):
        if before.text in ("-c", "--call"):
            found.append(Inner((), word.text, "suspected", given))
    found += [
        Inner((), word.text.partition("=")[2], "suspected")
        for word in words
        if word.text.startswith("--c") and "=" in word.text
    ]
    return Unwrapped(tuple(found))


def _git(words: Sequence[Word], given: Input, text: str) -> Unwrapped:
    if any(_GIT_COMMANDS.fullmatch(word.text) for word in words[1:]):
        return _suspicious(words, given, text)
    return _NONE


def _suspicious(
    words: Sequence[Word], given: Input, text: str, rests: int = SUSPECTED_MAX
) -> Unwrapped:
    name = words[0].text.rpartition("/")[2]
    found = [
        Inner(tuple(words[at:]), None, "suspected", given)
        for at in range(1, min(len(words), rests))
        if words[at].text[:1] not in ("-", "")
    ]
    for word in words[1:SUSPECTED_MAX]:
        value = word.text
        if value.startswith("-") or "=" in value:
            value = value.rpartition("=")[2]
        value = value.lstrip("!:")
        if " " in value or value != word.text:
            found.append(Inner((), value, "suspected"))
    danger = ""
    if name in _EXECUTES_STDIN and given:
        if given == "text":
            found.append(Inner((), text, "executes"))
        elif name == "parallel" and any(word.text[:1] != "-" for word in words[1:]):
            pass
        elif name != "ssh" or len([word for word in words[1:] if word.text[:1] != "-"]) < 2:
            danger = "it executes the output of a command"
    return Unwrapped(tuple(found), danger)


def _env(words: Sequence[Word], given: Input, text: str) -> Unwrapped:
    del text
    options = _options("-i --ignore-environment -0 --null -v --debug -", "-u --unset -C --chdir")
    for at, word in enumerate(words[1:], 1):
        option = re.match(r"-[iv0]*S|--split-string=?|--s[a-z-]*=?", word.text)
        if option:
            line = " ".join(
                [word.text[option.end() :], *(following.text for following in words[at + 1 :])]
            )
            return Unwrapped((Inner((), line, "executes", given),))
        if not word.text.startswith("-"):
            break
    at, is_exact = _skip(words, options)
    if at < len(words) and words[at].text == "-":
        at += 1
    start = at
    constants = {}
    while at < len(words) and "=" in words[at].text:
        variable, _, value = words[at].text.partition("=")
        constants[variable] = value
        at += 1
    if at >= len(words):
        return _NONE
    is_known = words[0].is_literal and is_standard(words[0].text)
    kind: Kind = "harmless" if is_exact and is_known and at == start == 1 else "executes"
    inner = Inner(tuple(words[at:]), None, kind, given, constants)
    return Unwrapped((inner,) if is_exact else (inner, *_suspicious(words, given, "").inner))


def _xargs(words: Sequence[Word], given: Input, text: str) -> Unwrapped:
    del given, text
    options = _options(
        "-0 --null -o --open-tty -p --interactive -r --no-run-if-empty -t --verbose -x --exit "
        "-i -l -e",
        "-I -J -L -n -P -R -S -s -a -d -E --replace --max-lines --max-args --max-procs --max-chars "
        "--arg-file --delimiter --eof",
    )
    at, is_exact = _skip(words, options)
    if at >= len(words):
        return _NONE
    replaced = "{}"
    for number, word in enumerate(words[1:at], 1):
        if word.text == "-I" and number + 1 < len(words):
            replaced = words[number + 1].text
        elif word.text[:2] in ("-I", "-i") and len(word.text) > 2:
            replaced = word.text[2:]
        elif word.text.startswith("--replace="):
            replaced = word.text[10:]
    command = tuple(
        Word(word.text.replace(replaced, UNKNOWN_TEXT), is_literal=False)
        if replaced and replaced in word.text
        else word
        for word in words[at:]
    )
    found = [Inner((*command, Word(UNKNOWN_TEXT, is_literal=False)), None, "executes")]
    if not is_exact:
        found += _suspicious(words, "", "").inner
    return Unwrapped(tuple(found))


def _find(words: Sequence[Word], given: Input, text: str) -> Unwrapped:
    del text
    found = []
    at = 1
    while at < len(words):
        if words[at].text in ("-exec", "-execdir", "-ok", "-okdir"):
            end = at + 1
            while end < len(words) and words[end].text not in (";", "+"):
                end += 1
            command = tuple(
                Word(word.text.replace("{}", UNKNOWN_TEXT), is_literal=False)
                if "{}" in word.text
                else word
                for word in words[at + 1 : end]
            )
            if command:
                found.append(Inner(command, None, "executes", given))
            at = end
        at += 1
    return Unwrapped(tuple(found[:SUSPECTED_MAX]))


def _eval(words: Sequence[Word], given: Input, text: str) -> Unwrapped:
    del text
    line = " ".join(word.text for word in words[1:])
    if UNKNOWN_TEXT in line:
        return Unwrapped(danger="it executes computed text")
    return Unwrapped((Inner((), line, "executes", given),)) if line else _NONE


def _source(words: Sequence[Word], given: Input, text: str) -> Unwrapped:
    operands = [word for word in words[1:] if word.text != "--"]
    if not operands:
        return _NONE
    if operands[0].text in ("/dev/stdin", "/proc/self/fd/0", "/dev/fd/0"):
        return _stdin(given or "computed", text, is_shell=True)
    return _script(operands[0])


def _trap(words: Sequence[Word], given: Input, text: str) -> Unwrapped:
    del given, text
    operands = [word.text for word in words[1:] if word.text != "--"]
    if not operands or operands[0] in ("-", "", "-l", "-p"):
        return _NONE
    if UNKNOWN_TEXT in operands[0]:
        return Unwrapped(danger="it executes computed text")
    return Unwrapped((Inner((), operands[0], "executes"),))


def _alias(words: Sequence[Word], given: Input, text: str) -> Unwrapped:
    del given, text
    values = [word.text.partition("=")[2] for word in words[1:SUSPECTED_MAX]]
    return Unwrapped(tuple(Inner((), value, "suspected") for value in values if value))


def _coproc(words: Sequence[Word], given: Input, text: str) -> Unwrapped:
    del text
    return Unwrapped(
        tuple(Inner(tuple(words[at:]), None, "executes", given) for at in (1, 2) if at < len(words))
    )


def _command(words: Sequence[Word], given: Input, text: str) -> Unwrapped:
    del text
    if len(words) > 1 and words[1].text in ("-v", "-V", "-pv", "-pV"):
        return _NONE
    return _prefix(words, _PREFIXES["command"], given)


def _awk(words: Sequence[Word], given: Input, text: str) -> Unwrapped:
    del given, text
    texts = [quoted for word in words[1:] for quoted in _strings(word.text)]
    return Unwrapped(tuple(Inner((), quoted, "suspected") for quoted in texts[:SUSPECTED_MAX]))


def _crontab(words: Sequence[Word], given: Input, text: str) -> Unwrapped:
    del words, text
    if given in ("pipe", "computed"):
        return Unwrapped(danger="it installs the output of a command")
    return _NONE


_SPECIAL: Final[Mapping[str, Callable[[Sequence[Word], Input, str], Unwrapped]]] = {
    "env": _env,
    "xargs": _xargs,
    "find": _find,
    "git": _git,
    "eval": _eval,
    "source": _source,
    ".": _source,
    "trap": _trap,
    "alias": _alias,
    "coproc": _coproc,
    "command": _command,
    "crontab": _crontab,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
}
