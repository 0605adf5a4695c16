"""Selects the profile of an agent's connection, by the settings `profile` and `profile_for`.

The selection depends on facts that the host determines itself: the program that uses the
connection, and the directory that it works in. What an agent sends about itself is not used.
"""

import fnmatch
import os
from collections.abc import Collection, Iterable
from typing import Final

from acpterm.config import Settings
from acpterm.config.profiles import Profile, ProfileFor, resolve
from acpterm.pty import linux

# Interpreters, whose first argument is the program.
_INTERPRETERS: Final = ("node", "nodejs", "bun", "deno", "python*", "ruby", "perl", "sh", "bash")


class Profiles:
    """The profiles of the settings."""

    def __init__(self, settings: Settings) -> None:
        self.by_name: Final = resolve(settings.profiles)
        self._default: Final = self.by_name[settings.profile]
        self._selectors: Final = settings.profile_for

    def select(self, programs: Collection[str], directory: str) -> Profile:
        """Return the profile of an agent.

        `programs` are the names of the agent's program, and `directory` is the absolute path of the
        directory that it works in.
        """
        for selector in self._selectors:
            if _applies(selector, programs, directory):
                return self.by_name[selector.profile]
        return self._default


def _applies(selector: ProfileFor, programs: Collection[str], directory: str) -> bool:
    if selector.agent is not None and not any(
        fnmatch.fnmatchcase(program, selector.agent) for program in programs
    ):
        return False
    if selector.directory is None:
        return True
    pattern = os.path.expanduser(selector.directory).rstrip("/") or "/"
    return fnmatch.fnmatchcase(directory, pattern)


def programs_of(pids: Iterable[int]) -> list[str]:
    """Return the names of the programs of processes: of the file, and of a script that it runs.

    The names have no directory. Nothing is returned for a process that cannot be read.
    """
    found: dict[str, None] = {}
    for pid in pids:
        found.update(dict.fromkeys(program_names(map(os.fsdecode, linux.arguments_of(pid)))))
    return list(found)


def program_names(words: Iterable[str]) -> list[str]:
    """Return the names of the program of an argv: of the file, and of a script that it runs."""
    found: list[str] = []
    for word in words:
        if found and word.startswith("-"):
            continue
        found.append(os.path.basename(word))
        if not any(fnmatch.fnmatchcase(found[-1], pattern) for pattern in _INTERPRETERS):
            break
    return [name for name in found if name]
