"""Programs that execute some of their arguments, but whose options are not known here: ssh, docker.

It is not known which arguments are executed. So two kinds of text are *suspected* to be commands:
each argument together with all arguments after it; and each argument with a space, as shell text.
A suspected command counts only if it is dangerous, or if a rule asks about it or denies it.
"""

import itertools
import re
from typing import Final

from acpterm.policy.losses.arguments import value_of
from acpterm.policy.syntax.command import SimpleCommand
from acpterm.policy.wrappers.unwrapped import NOTHING, SUSPECTED_MAX, Inner, Unwrapped

# Programs that execute some of their arguments: as a command, or as text for a shell.
_SUSPICIOUS: Final = frozenset(
    ("arch-chroot", "at", "batch", "bwrap", "capsh", "cgexec", "chpst", "chroot", "compgen",
     "cpulimit", "crun", "dbus-run-session", "direnv", "distrobox", "docker", "docker-compose",
     "dumb-init", "entr", "expect", "fd", "fdfind", "firejail", "flatpak-spawn", "flock", "gdb",
     "gosu", "hash", "incus", "kubectl", "linux32", "linux64", "ltrace", "lxc", "lxc-attach",
     "machinectl", "mapfile", "mosh", "nerdctl", "nix", "nix-shell", "nsenter", "numactl", "oc",
     "parallel", "perf", "pkexec", "podman", "prlimit", "proot", "proxychains", "proxychains4",
     "readarray", "run-parts", "runc", "runcon", "runuser", "s6-setuidgid", "schroot", "screen",
     "script", "setarch", "setpriv", "socat", "softlimit", "ssh", "start-stop-daemon", "strace",
     "su", "su-exec", "systemd-run", "tini", "tmux", "toolbox", "tsp", "unbuffer", "unshare",
     "valgrind", "watch", "watchexec", "wsl", "xterm", "fly", "flyctl",
     "heroku")
)  # fmt: skip
# Programs that execute a command on this machine, after options and words of their own.
_LOCAL: Final = frozenset(
    ("asdf", "aws-vault", "conda", "cross-env", "doppler", "dotenv", "dotenvx", "mamba",
     "micromamba", "mise", "op", "pdm", "pixi", "rye")
)  # fmt: skip
# Words of zsh and fish before a command.
_SHELL_WORDS: Final = frozenset(
    ("-", "and", "emulate", "nocorrect", "noglob", "not", "or", "repeat", "sched", "zargs")
)
# Programs that execute some arguments as shell text, but none as a program with arguments.
_TEXT_ARGUMENTS: Final = frozenset(
    ("emacs", "ex", "gmake", "make", "nvim", "rsync", "sed", "split", "tar", "vi", "view", "vim",
     "xdotool")
)  # fmt: skip
# Programs that execute a command after a subcommand, an option or a package.
_RUNNERS: Final = frozenset(
    ("bun", "bundle", "bunx", "hatch", "npm", "npx", "pipenv", "pipx", "pnpm", "poetry", "uv",
     "uvx", "yarn")
)  # fmt: skip
# The shell text of sed's command `e`, up to the end of the line. Before the command may be an
# address with flags (`/x/Ie`), other commands, or an option (`-ne'e ls'`).
_SED_COMMAND: Final = re.compile(r"(?:^(?:-\w*)?|[\n;{}\d$!/,|%#:IM])[ \t]*e\\?\s+(?=([^\n]+))")
_RUNNER_WORDS: Final = re.compile(r"exec|x|run|dlx|explore")
_GIT_WORDS: Final = re.compile(
    r"-x|foreach|bisect|filter-branch|-c.*|--(?:exec|config|upload-pack|receive-pack|\w+-filter).*"
)
_EXECUTES_STDIN: Final = frozenset(("at", "batch", "parallel", "ssh", "su"))


def suspect(command: SimpleCommand) -> Unwrapped | None:
    """Return what a program may execute; None if the program is not in the lists of this module."""
    name = command.name
    if name in _SUSPICIOUS or name in _SHELL_WORDS:
        return suspicious(command)
    if name in _LOCAL or (
        name in ("hatch", "pipenv", "poetry", "uv")
        and any(_RUNNER_WORDS.fullmatch(word.text) for word in command.words[1:4])
    ):
        texts = [word.text for word in command.words[1:]]
        directory = value_of(texts, "", "--directory", "--cwd") or "."
        # Up to the first operand after the command `run`; what follows an option may be its value.
        plain = [
            at
            for at, (a, b) in enumerate(itertools.pairwise(["", *texts]), 1)
            if "-" not in (a[:1], b[:1])
        ]
        size = 0 if name in _LOCAL else len(command.words) - max((*plain[1:2], 0))
        return Unwrapped(
            tuple(
                one._replace(directory=directory)
                for one in suspicious(command).inner
                if one.text is not None or len(one.words) >= size * (len(plain) > 1)
            )
        )
    if name in _TEXT_ARGUMENTS:
        return Unwrapped(tuple(_texts(command)))
    if name in _RUNNERS:
        return _runner(command)
    return None


def suspicious(command: SimpleCommand) -> Unwrapped:
    """Return the suspected commands among the arguments, and what is executed from stdin."""
    words = command.words
    found = [
        Inner(words[at:], None, "suspected", command.input)
        for at in range(1, min(len(words), SUSPECTED_MAX))
        if words[at].text[:1] not in ("-", "")
    ]
    found += _texts(command)
    danger = ""
    if command.name in _EXECUTES_STDIN and command.input:
        if command.input == "text":
            found.append(Inner((), command.text, "executes", reader="other"))
        elif not _has_own_command(command):
            danger = "it executes the output of a command"
    return Unwrapped(tuple(found), danger)


def _texts(command: SimpleCommand) -> list[Inner]:
    found = []
    for word in command.words[1:SUSPECTED_MAX]:
        value = word.text
        if value.startswith("-") or "=" in value:
            value = value.rpartition("=")[2]
        value = value.lstrip("!:")  # vi
        if " " in value or value != word.text:
            found.append(Inner((), value, "suspected"))
        if command.name == "sed":
            matches = itertools.islice(_SED_COMMAND.finditer(word.text), SUSPECTED_MAX)
            found += (Inner((), match[1], "suspected") for match in matches)
    return found


def _has_own_command(command: SimpleCommand) -> bool:
    """Return whether this is ssh or parallel with a command of its own: stdin is its input."""
    operands = sum(word.text[:1] != "-" for word in command.words[1:])
    # The first operand of ssh is the host.
    return (command.name == "parallel" and operands > 0) or (command.name == "ssh" and operands > 1)


def _runner(command: SimpleCommand) -> Unwrapped:
    words = command.words
    is_runner = command.name in ("npx", "bunx", "uvx") or any(
        _RUNNER_WORDS.fullmatch(word.text) for word in words[1:4]
    )
    if not is_runner and command.name not in ("pnpm", "yarn"):
        return NOTHING
    # Only the first two operands can begin the command: later ones are its arguments.
    operands = [at for at, word in enumerate(words) if at and word.text[:1] not in ("-", "")][:2]
    if command.name in ("npx", "bunx", "uvx") and operands[:1] == [1]:
        operands = [1]
    if not is_runner:
        # What is no command of their own is a program of the project.
        operands = [at for at in operands[:1] if words[at].text not in ("rm", "unlink", "install")]
    if command.name in ("npm", "pnpm") and operands and words[operands[0]].text == "run":
        operands = []  # The name of a script follows, not a command.
    found = [Inner(words[at:], None, "suspected", command.input) for at in operands]
    found += [
        Inner((), word.text, "suspected", command.input)
        for before, word in itertools.pairwise(words)
        if before.text in ("-c", "--call")
    ]
    found += [
        Inner((), word.text.partition("=")[2], "suspected")
        for word in words
        if word.text.startswith("--c") and "=" in word.text
    ]
    return Unwrapped(tuple(found))


def git(command: SimpleCommand) -> Unwrapped:
    """Return all arguments as suspected if one may make git execute commands, such as `bisect`."""
    if any(_GIT_WORDS.fullmatch(word.text) for word in command.words[1:]):
        found = suspicious(command)
        aliases = [word.text.partition("=")[2] for word in command.words if "alias." in word.text]
        more = (Inner((), f"git {one}", "suspected") for one in aliases[:SUSPECTED_MAX] if one)
        return found._replace(inner=(*found.inner, *more))
    return NOTHING


def alias(command: SimpleCommand) -> Unwrapped:
    """Return the values of aliases as suspected commands, since later commands may execute them."""
    values = [word.text.partition("=")[2] for word in command.words[1:SUSPECTED_MAX]]
    return Unwrapped(tuple(Inner((), value, "suspected") for value in values if value))


def crontab(command: SimpleCommand) -> Unwrapped:
    """Return a danger if `crontab` installs jobs from a pipe or an unknown stdin."""
    if command.input in ("pipe", "computed"):
        return Unwrapped(danger="it installs the output of a command")
    return NOTHING
