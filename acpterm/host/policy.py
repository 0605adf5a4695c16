"""The policy of one host: its profiles, its rules, its providers and its audit log.

The rules are read again when their file has changed. If the changed file is invalid, the previous
rules stay in force, and the error is logged. At the start of the host an invalid file is an error.
"""

import os
from collections.abc import Sequence
from typing import Final

import structlog

from acpterm.config import ConfigError, Settings
from acpterm.host.profiles import Profiles
from acpterm.policy.judge import Judge
from acpterm.policy.rules import RulesError, default_rules_file, load_rules
from acpterm.providers.provider import Provider
from acpterm.providers.registry import make_provider

_log = structlog.get_logger("acpterm.policy")


class HostPolicy:
    """The policy of one host.

    `hidden` are the paths of acpterm's own files that programs in a sandbox must not reach. Raises
    `ConfigError` if the file of rules is invalid.
    """

    def __init__(self, settings: Settings, hidden: Sequence[str]) -> None:
        self.profiles: Final = Profiles(settings)
        self.hidden: Final = hidden
        self._settings: Final = settings
        self._rules_file: Final = settings.rules or default_rules_file()
        self._rules_stamp = _stamp(self._rules_file)
        self._providers: dict[str, Provider] = {}
        try:
            self._judge = Judge(load_rules(self._rules_file))
        except RulesError as error:
            raise ConfigError(str(error)) from error

    @property
    def judge(self) -> Judge:
        """The judge of commands, by the rules as their file is now."""
        stamp = _stamp(self._rules_file)
        if stamp != self._rules_stamp:
            self._rules_stamp = stamp
            try:
                self._judge = Judge(load_rules(self._rules_file))
            except RulesError as error:
                _log.error("the previous rules stay in force", error=str(error))
        return self._judge

    def provider(self, name: str) -> Provider:
        """Return the provider with this name, a key of `providers.provider.RANKS`."""
        if name not in self._providers:
            self._providers[name] = make_provider(name, image=self._settings.image)
        return self._providers[name]


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Return what changes when a file changes; None if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
