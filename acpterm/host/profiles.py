"""Selects the profile of an agent's connection, by the settings `profile` and `profile_for`.

If the user has chosen a profile for the connection, it replaces the selected one
(`AgentConnection.profile`). Profiles that the client requests apply in addition
(`AgentConnection.profiles`).

The selection depends on facts that the host determines itself: the program that uses the
connection, and the directory that it works in. What an agent sends about itself is not used.

An agent that runs programs as the user can still choose under which name it runs, or where. So the
selection is no protection against such an agent: `profile_for` should select stricter profiles than
the setting `profile`, not looser ones.

Tables of `profile_for` whose `directory` does not match are skipped. If the first remaining table
names an agent, but the program that uses the connection is not known, it is unknown whether this
table applies. In this case no profile is selected, and no command is run.
"""

import fnmatch
import os
from collections.abc import Collection, Iterable
from typing import Final

from acpterm.config import Settings
from acpterm.config.profiles import Profile, ProfileFor, resolve
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError, quote
from acpterm.pty import linux

# Interpreters, whose first argument is the program.
_INTERPRETERS: Final = ("node", "nodejs", "bun", "deno", "python*", "ruby", "perl", "sh", "bash")
_RELAY: Final = "acpterm"


class Profiles:
    def __init__(self, settings: Settings) -> None:
        self.by_name: Final = resolve(settings.profiles)
        self._default: Final = self.by_name[settings.profile]
        self._selectors: Final = [(one, _patterns(one)) for one in settings.profile_for]

    def check_known(self, name: str) -> None:
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name))
            raise RpcError(INVALID_PARAMS, f"there is no profile {quote(name)}; there are {known}")

    def choose(self, name: str | None, directory: str) -> Profile:
        """Return the profile `name`; None: that of any agent which works in `directory`."""
        # Raises `RpcError` (-32602) if there is no such profile.
        if name is None:
            return self.select(None, directory)
        self.check_known(name)
        return self.by_name[name]

    def select(self, programs: Collection[str] | None, directory: str) -> Profile:
        """Return the profile of the first matching table, or the default."""
        # Raises `RpcError` (-32603) if a table names an agent and the agent's program is not known.
        for selector, patterns in self._selectors:
            if not _is_in(directory, patterns):
                continue
            if selector.agent is not None and programs is None:
                continue
            if selector.agent is not None and not _are_known(programs or ()):
                raise RpcError(
                    INTERNAL_ERROR,
                    "no command is run: the agent's program cannot be determined, and the setting "
                    f"profile_for selects a profile by agent = {quote(selector.agent)}; the user "
                    "can start the agent with --profile, or change the setting",
                )
            if selector.agent is None or _is_any(programs or (), [selector.agent]):
                return self.by_name[selector.profile]
        return self._default


def _patterns(selector: ProfileFor) -> list[str] | None:
    """Return patterns of the directories of a table of `profile_for`; None if it applies in all."""
    # Also with symbolic links resolved, as the kernel reports the directory of a process.
    if selector.directory is None:
        return None
    pattern = os.path.expanduser(selector.directory).rstrip("/") or "/"
    return [pattern, os.path.realpath(pattern)]


def _is_in(directory: str, patterns: list[str] | None) -> bool:
    """Return whether a directory, or any above it, matches one of `patterns`; None matches."""
    if patterns is None:
        return True
    parents = [directory]
    while (parent := os.path.dirname(parents[-1])) != parents[-1]:
        parents.append(parent)
    return _is_any(parents, patterns)


def _are_known(programs: Collection[str]) -> bool:
    # acpterm and its interpreter alone relay the messages of an agent that is not known.
    if _RELAY in programs:
        return not all(name == _RELAY or _is_any([name], _INTERPRETERS) for name in programs)
    return bool(programs)


def _is_any(names: Iterable[str], patterns: Collection[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)


def programs_of(pids: Iterable[int]) -> list[str]:
    """Return the names of the programs that the processes `pids` run, each once."""
    # A process whose arguments cannot be read has no name.
    found: dict[str, None] = {}
    for pid in pids:
        if path := linux.executable_of(pid):
            # Not the first word of the argv, which the process could choose.
            words = [path, *linux.arguments_of(pid)[1:]]
            found.update(dict.fromkeys(program_names(map(os.fsdecode, words))))
    return list(found)


def program_names(words: Iterable[str]) -> list[str]:
    """Return the executable's name and, if that is an interpreter, also the script's."""
    found: list[str] = []
    for word in words:
        if found and word.startswith("-"):
            continue
        found.append(os.path.basename(word))
        if not _is_any(found[-1:], _INTERPRETERS):
            break
    return [name for name in found if name]
