"""The kinds of shells (bash, zsh, fish): how each kind is started and given a command."""

import os
import re
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias

from acpterm.shell import bash, fish, posix, zsh

KindName: TypeAlias = Literal["bash", "zsh", "fish"]


# Makes the shell execute `stty sane`. The rc file binds the keys to that command line: its
# characters do not pass through the terminal, which may treat one as a signal, as the `s` after
# `stty intr s`.
REPAIR_KEYS: Final = b"\x1b[31417~"

# The prompt before the line stays: the end of output may precede it. If zsh has wrapped the line,
# only the line's end is in the text.
_TYPED_LINE: Final = re.compile(
    r"(?<! ) *(?:\{ )?__acpterm_begin \d.*$"
    r"|^(?:(?!__acpterm_begin).)*&& :; \} >/dev/null 2>&1(?:\n|\Z)",
    re.MULTILINE,
)


class ShellSetup(NamedTuple):
    """How a shell is started."""

    command: str  # a name to search for in PATH
    args: list[str]
    env: dict[str, str]  # to add to the shell's environment
    # By their names in the private directory. They contain the nonce: the driver deletes them once
    # they are read.
    files: dict[str, str]

    def with_env_as_arguments(self) -> "ShellSetup":
        """Start the shell by env(1), for a sandbox that may remove variables."""
        if not self.env:
            return self
        variables = [f"{name}={value}" for name, value in self.env.items()]
        return ShellSetup("env", [*variables, self.command, *self.args], {}, self.files)


class Kind(NamedTuple):
    """A kind of shell, with everything that differs between the kinds."""

    name: KindName
    clear_line: bytes  # empties the line at the prompt, which an attached user may have begun
    # the contents, from number, text and the shell's `$-`
    command_file: Callable[[int, str, str], str]
    typed_line: Callable[[int, str], str]  # sources the command's file, from number and quoted path

    def setup(
        self, directory: str, nonce: str, env: Mapping[str, str], *, user_rc: bool = True
    ) -> ShellSetup:
        """Return how to start the shell, after the user's own rc files with `user_rc`."""
        # `env` is what the shell gets: our rc files for zsh restore its ZDOTDIR.

        def fill(*texts: str) -> str:
            filled = "\n".join(texts).replace("@nonce@", nonce)
            return filled.replace("@dir@", shlex.quote(directory)).lstrip()

        rc = os.path.join(directory, "rc")
        match self.name:
            case "bash":
                files = {"rc": fill(bash.USER_RC if user_rc else "", bash.RC)}
                return ShellSetup("bash", ["--rcfile", rc, "-i"], {}, files)
            case "zsh":
                user_env = zsh.USER_ENV_RC if user_rc else ""
                files = {
                    ".zshenv": fill(zsh.ENV_RC.replace("@user@", user_env)),
                    ".zshrc": fill(zsh.RESTORE_ZDOTDIR, zsh.USER_RC if user_rc else "", zsh.RC),
                }
                variables = {"ZDOTDIR": directory, zsh.USER_ZDOTDIR: env.get("ZDOTDIR", "")}
                return ShellSetup("zsh", ["-i"], variables, files)
            case "fish":
                no_config = [] if user_rc else ["--no-config"]
                source = f"source {shlex.quote(rc)}"
                args = [*no_config, "-i", "--init-command", source]
                return ShellSetup("fish", args, {}, {"rc": fill(fish.RC)})

    def keys(self, n: int, path: str) -> bytes:
        """Return the keys to type at the prompt to run command `n`, whose file is `path`."""
        return self.clear_line + self.typed_line(n, shlex.quote(path)).encode() + b"\r"


_bash_file = partial(posix.command_file, end=bash.END)
_zsh_file = partial(posix.command_file, end=zsh.END)
KINDS: Final[dict[str, Kind]] = {
    "bash": Kind("bash", bash.CLEAR_LINE, _bash_file, posix.typed_line),
    "zsh": Kind("zsh", zsh.CLEAR_LINE, _zsh_file, posix.typed_line),
    "fish": Kind("fish", fish.CLEAR_LINE, fish.command_file, fish.typed_line),
}


def kind_of(name: str | None, env: Mapping[str, str]) -> Kind:
    """Return a kind of shell, by default that of SHELL in `env`, else bash. Raises `ValueError`."""
    if name is None:
        return KINDS.get(os.path.basename(env.get("SHELL", "")), KINDS["bash"])
    if name not in KINDS:
        raise ValueError(f"unknown shell {name!r}: it must be one of {', '.join(KINDS)}")
    return KINDS[name]


def without_typed_lines(text: str) -> str:
    """Return the text of a shell's terminal without the lines that hand it commands."""
    return _TYPED_LINE.sub("", text)
