"""Judges commands in this process, without a daemon, by the user's settings and rules.

The user is not asked, and nothing is written to the audit log.

`Client.check` uses this module if the client is connected as the user, because the daemon judges
only agents' commands. `acpterm.api.service` uses this module to determine the level of a command.
"""

import os
from collections.abc import Sequence
from functools import partial
from typing import Final

from acpterm.api.errors import AcptermError
from acpterm.api.results import CommandCheck, CommandPart
from acpterm.config import Settings
from acpterm.config.profiles import Profile
from acpterm.host.loss_facts import LossFacts, judged_now
from acpterm.host.profiles import Profiles
from acpterm.policy.judge import Judge
from acpterm.policy.rules import RulesError, default_rules_file, load_rules
from acpterm.policy.verdict import Verdict
from acpterm.runtime.command_line import find_shell


class LocalJudge:
    """Judges commands by the profile `profile`, or by the one for the command's directory."""

    def __init__(self, settings: Settings, profile: str | None) -> None:
        self._settings = settings
        self._profiles = Profiles(settings)
        if profile is not None and profile not in self._profiles.by_name:
            known = ", ".join(sorted(self._profiles.by_name))
            raise AcptermError(f"there is no profile {profile!r}; there are {known}")
        self._profile: Final = profile

    def profile(self, directory: str) -> Profile:
        """Return the profile for commands in `directory`."""
        return self._profiles.choose(self._profile, directory)

    def check(
        self, command: str, args: Sequence[str] | None, cwd: str, *, reads_facts: bool = True
    ) -> CommandCheck:
        """Judge a command in the directory `cwd`, like `Client.check`."""
        # Without `reads_facts`, nothing is read in `cwd`: a loss counts if the words say enough.
        try:
            rules = load_rules(self._settings.rules or default_rules_file())
        except RulesError as error:
            raise AcptermError(str(error)) from error
        profile = self.profile(cwd)
        path, shell = os.environ.get("PATH"), find_shell(self._settings.shell)
        judge = partial(
            Judge(rules).judge,
            command,
            args,
            profile=profile,
            path=path,
            shell=shell,
            directory=cwd,
        )
        verdict = judged_now(judge, LossFacts(cwd)) if reads_facts else judge()
        return _command_check(verdict, profile.name)


def _command_check(verdict: Verdict, profile: str) -> CommandCheck:
    return CommandCheck(
        verdict.level.value,
        verdict.decision,
        verdict.reason or None,
        verdict.rule,
        [CommandPart(list(part.words), part.level.value, part.reason) for part in verdict.parts],
        profile,
    )
