"""The kinds of shells (bash, zsh, fish): how each kind is started and given a command."""

import os
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from acpterm.shell import bash, fish, posix, zsh

KindName: TypeAlias = Literal["bash", "zsh", "fish"]


REPAIR_KEYS: Final = b"\x1b[31417~"
"""Keys that make the shell execute ``stty sane``.

The rc file binds these keys to that command line. So the line's characters do not pass through the
terminal, which may treat one of them as a signal, as the ``s`` after ``stty intr s``."""

# The prompt before the line stays: the end of output may precede it. If zsh has wrapped the line,
# only the line's end is in the text.
_TYPED_LINE: Final = re.compile(
    r"(?<! ) *(?:\{ )?__acpterm_begin \d.*$"
    r"|^(?:(?!__acpterm_begin).)*&& :; \} >/dev/null 2>&1(?:\n|\Z)",
    re.MULTILINE,
)


class Setup(NamedTuple):
    """How a shell is started: its program, arguments, variables, and the files that it reads."""

    command: str
    """The program: a name to search for in PATH."""
    args: list[str]
    env: dict[str, str]
    """Variables to add to the shell's environment."""
    files: dict[str, str]
    """Contents of files, by their names in the private directory. They contain the nonce, so the
    driver deletes them once the shell has read them."""

    def with_env_as_arguments(self) -> "Setup":
        """Return a setup with an empty `env`, which starts the shell by env(1).

        env(1) sets the variables of this setup's `env`. If there are no variables, return this
        setup. Use the result in a sandbox, which may remove variables from the environment.
        """
        if not self.env:
            return self
        variables = [f"{name}={value}" for name, value in self.env.items()]
        return Setup("env", [*variables, self.command, *self.args], {}, self.files)


class Kind(NamedTuple):
    """A kind of shell, with everything that differs between the kinds."""

    name: KindName
    clear_line: bytes
    """Keys that empty the line at the prompt, which a user of an attached window may have begun."""
    command_file: Callable[[int, str, str], str]
    """Returns the contents of a command's file. Arguments: number, text, the shell's ``$-``."""
    typed_line: Callable[[int, str], str]
    """Returns the line that sources a command's file. Arguments: number, the file's quoted path."""

    def setup(
        self, directory: str, nonce: str, env: Mapping[str, str], *, user_rc: bool = True
    ) -> Setup:
        """Return how to start the shell.

        `directory` is the private directory for the files that the shell reads. `nonce` is the text
        that authenticates the shell's marks and reports. `env` is the environment that the shell
        will be started with; the value of ZDOTDIR in `env` is restored by our rc files for zsh. If
        `user_rc` is true, the shell reads the user's own rc files before ours.
        """

        def fill(*texts: str) -> str:
            filled = "\n".join(texts).replace("@nonce@", nonce)
            return filled.replace("@dir@", shlex.quote(directory)).lstrip()

        rc = os.path.join(directory, "rc")
        match self.name:
            case "bash":
                files = {"rc": fill(bash.USER_RC if user_rc else "", bash.RC)}
                return Setup("bash", ["--rcfile", rc, "-i"], {}, files)
            case "zsh":
                user_env = zsh.USER_ENV_RC if user_rc else ""
                files = {
                    ".zshenv": fill(zsh.ENV_RC.replace("@user@", user_env)),
                    ".zshrc": fill(zsh.RESTORE_ZDOTDIR, zsh.USER_RC if user_rc else "", zsh.RC),
                }
                variables = {"ZDOTDIR": directory, zsh.USER_ZDOTDIR: env.get("ZDOTDIR", "")}
                return Setup("zsh", ["-i"], variables, files)
            case "fish":
                no_config = [] if user_rc else ["--no-config"]
                source = f"source {shlex.quote(rc)}"
                args = [*no_config, "-i", "--init-command", source]
                return Setup("fish", args, {}, {"rc": fill(fish.RC)})

    def keys(self, n: int, path: str) -> bytes:
        """Return the keys to type at the prompt to run command `n`, whose file is `path`."""
        return self.clear_line + self.typed_line(n, shlex.quote(path)).encode() + b"\r"


KINDS: Final[dict[str, Kind]] = {
    "bash": Kind("bash", bash.CLEAR_LINE, bash.command_file, posix.typed_line),
    "zsh": Kind("zsh", zsh.CLEAR_LINE, zsh.command_file, posix.typed_line),
    "fish": Kind("fish", fish.CLEAR_LINE, fish.command_file, fish.typed_line),
}


def kind_of(name: str | None, env: Mapping[str, str]) -> Kind:
    """Return the kind of shell `name`; raise `ValueError` if there is no such kind.

    If `name` is None, return the kind that the variable SHELL in `env` names; bash if the variable
    is unset or names another shell.
    """
    if name is None:
        return KINDS.get(os.path.basename(env.get("SHELL", "")), KINDS["bash"])
    if name not in KINDS:
        raise ValueError(f"unknown shell {name!r}: it must be one of {', '.join(KINDS)}")
    return KINDS[name]


def without_typed_lines(text: str) -> str:
    """Return the text of a shell's terminal without the lines that hand commands to the shell."""
    return _TYPED_LINE.sub("", text)
