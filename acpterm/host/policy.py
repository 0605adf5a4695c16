"""The policy of one host: its profiles, its rules and its providers.

The rules are read again when their file has changed. While the file is invalid, no command of an
agent can be judged, so each is refused with an error that says what is wrong with the file.
"""

import os
from collections.abc import Sequence
from typing import Final, TypeAlias

from acpterm.config import Settings
from acpterm.host.profiles import Profiles
from acpterm.policy.judge import Judge
from acpterm.policy.rules import default_rules_file, load_rules
from acpterm.providers.provider import Provider
from acpterm.providers.registry import make

Stamp: TypeAlias = tuple[int, int, int]
"""What changes when a file changes: its modification time, its size and its inode."""


class HostPolicy:
    """The policy of one host.

    `hidden` are the paths of acpterm's own files that programs in a sandbox must not reach.
    """

    def __init__(self, settings: Settings, hidden: Sequence[str]) -> None:
        self.profiles: Final = Profiles(settings)
        self.hidden: Final = hidden
        self._settings: Final = settings
        self._rules_file: Final = settings.rules or default_rules_file()
        self._judge: Judge | None = None
        # What `_stamp` returned for the file that the rules of `_judge` are from.
        self._stamp: Stamp | None = None
        self._providers: dict[str, Provider] = {}

    def judge(self) -> Judge:
        """Return the judge of commands, by the rules as their file is now.

        Raises `RulesError` if the file is invalid.
        """
        stamp = _stamp(self._rules_file)
        if self._judge is None or stamp != self._stamp:
            # If this raises, the next call reads the file again.
            self._judge = None
            self._judge = Judge(load_rules(self._rules_file))
            self._stamp = stamp
        return self._judge

    def provider(self, name: str) -> Provider:
        """Return the provider with this name, a key of `providers.provider.RANKS`."""
        if name not in self._providers:
            self._providers[name] = make(name, image=self._settings.image or "")
        return self._providers[name]


def _stamp(path: str) -> Stamp | None:
    """Return the stamp of a file; None if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
