"""Chooses the prefix of a command that the user's answer "always" applies to, if one may."""

import os.path
import re
from collections.abc import Sequence
from typing import Final

from acpterm.policy.own_settings import changes_settings
from acpterm.policy.parts import FoundPart
from acpterm.policy.verdict import Level
from acpterm.policy.words import Word

# Programs whose first argument selects what they do, so that two words are a useful prefix.
_HAS_SUBCOMMANDS: Final = frozenset(
    ("apt", "apt-get", "brew", "bun", "cargo", "composer", "conda", "deno", "docker", "dotnet",
     "gem", "gh", "git", "go", "gradle", "helm", "hg", "kubectl", "mix", "mvn", "npm", "pip",
     "pip3", "pnpm", "podman", "poetry", "rustup", "swift", "systemctl", "terraform", "uv", "yarn")
)  # fmt: skip
# Programs whose arguments decide everything, so that only the whole command is a useful prefix.
_WHOLE: Final = re.compile(
    r"python[0-9.]*|node|perl|ruby|php|lua|deno|bash|sh|zsh|dash|ksh|fish|curl|wget|make|npx|bunx|uvx"
    r"|sed|awk|tee|mv|cp|ln|rsync|scp|install|kill|pkill|killall|xargs|find|tar|docker|podman|kubectl"
)
# Programs that end or overwrite a system whatever their arguments are.
_RUINOUS: Final = re.compile(r"mkfs(\.\w+)?|fdisk|wipefs|shred")
_CHANGES_TREE: Final = frozenset(("rm", "chmod", "chown", "chgrp", "find"))
# `/`, a directory of the system, a home directory, or a directory above the current one.
_WHOLE_TREE: Final = re.compile(r"/|/[^/]+|/home/[^/]+|\.\.(/\.\.)*")
_DEVICE: Final = re.compile(r"of=/dev/(?!null$|zero$|stdout$|stderr$)")


def is_never_allowed(words: Sequence[str]) -> bool:
    """Return whether the user is asked about a dangerous command each time, whatever rules say."""
    name = words[0].rpartition("/")[2]
    rest = words[1:]
    if name == "dd":
        return any(map(_DEVICE.match, rest))
    if name in _CHANGES_TREE:
        return any(_WHOLE_TREE.fullmatch(_path(text)) for text in rest)
    return _RUINOUS.fullmatch(name) is not None or bool(
        changes_settings([Word(word) for word in words])
    )


def _path(text: str) -> str:
    """Return a path in its shortest form: `/tmp/x/../..//*` is `/`."""
    # normpath keeps two leading slashes.
    return re.sub("^//", "/", os.path.normpath(re.sub(r"(^|/)\*$", r"\1.", text)))


def always_prefix(part: FoundPart) -> tuple[str, ...] | None:
    """Return the words that "always allow" stores: program, program and subcommand, or all."""
    if not part.words or not part.is_exact or part.is_suspected:
        return None
    words = tuple(word.text for word in part.words)
    if part.level is Level.DANGEROUS and is_never_allowed(words):
        return None
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
