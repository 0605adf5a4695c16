"""The policy of one host: its profiles, its rules and its providers.

The rules are read again when their file has changed. While the file is invalid, no command of an
agent can be judged, so each is refused with an error that says what is wrong with the file.
"""

import os
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar, runtime_checkable

import structlog
import trio
from msgspec import UNSET

from acpterm.acp.agent_api import CheckedPart, CheckResponse
from acpterm.config import Settings
from acpterm.config.places import SlurmPlace, SlurmResources
from acpterm.config.profiles import Profile
from acpterm.host import loss_facts
from acpterm.host.launch.placement import Placement, check_resources, remote_program, unusable
from acpterm.host.loss_facts import Judging, LossFacts
from acpterm.host.profiles import Profiles
from acpterm.policy.judge import Judge
from acpterm.policy.losses.loss import LATE, Finding, Loss
from acpterm.policy.rules import default_rules_file, load_rules
from acpterm.policy.verdict import Verdict
from acpterm.providers.guarded_tasks import keep_running
from acpterm.providers.placeholders import Placeholders
from acpterm.providers.provider import ENGINES, Provider, ProviderError, RemoteProvider
from acpterm.providers.registry import make
from acpterm.pty.tracking.marks import Daemon
from acpterm.runtime.threads import run_blocking
from acpterm.terminal.remote import RemoteProgram

_log = structlog.get_logger("acpterm.policy")


@runtime_checkable
class HasLeftovers(Protocol):
    """A provider whose programs can outlive a killed daemon."""

    async def remove_leftovers(self, held: Collection[str]) -> int:
        """Remove what killed daemons have left, such as containers; return how many were removed.

        What belongs to the clean-up tokens `held`, those of terminals that still exist, is kept.
        """


@runtime_checkable
class EndsAll(Protocol):
    """A provider that can end all its programs together, faster than one after the other."""

    def end_all(self) -> None:
        """Start to end all programs of this daemon, which is about to end; do not wait."""


# How long a thread has to return what it has found by then, in seconds. Only one that hangs in a
# file system takes all of it. With less, a busy machine asks although the thread was in time.
_RETURN_S: Final = 1.0
# Of their own: threads that hang in a file system stay, and other work needs threads, too.
_threads: Final = trio.CapacityLimiter(16)

Stamp: TypeAlias = tuple[int, int, int]
"""What changes when a file changes: its modification time, its size and its inode."""


class HostPolicy:
    """The policy of one host.

    `hidden` are the paths of acpterm's own files that programs in a sandbox must not reach.
    `daemon` is the mark by which the host's containers and remote programs are recognised.
    """

    def __init__(self, settings: Settings, hidden: Sequence[str], daemon: Daemon) -> None:
        self.profiles: Final = Profiles(settings)
        self.hidden: Final = hidden
        self._settings: Final = settings
        self._rules_file: Final = settings.rules or default_rules_file()
        self._judge: Judge | None = None
        # What `_stamp` returned for the file of rules when `_judge` was made.
        self._stamp: Stamp | None = None
        self._daemon: Final = daemon
        self._placeholders: Final = Placeholders()
        self._providers: dict[str, Provider] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the providers of places, with their connections to other hosts, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            for name, place in self._settings.places.items():
                # Run these even if no terminal needs them: they find what earlier workers left.
                if isinstance(place, SlurmPlace) or place.keeper is not False:
                    self.provider(name)
            task_status.started()
            await trio.sleep_forever()

    def judge(self) -> Judge:
        """Return the judge, with the rules that are in their file now. Raises `RulesError`."""
        stamp = _stamp(self._rules_file)
        if self._judge is None or stamp != self._stamp:
            # If this raises, the next call reads the file again.
            self._judge = None
            self._judge = Judge(load_rules(self._rules_file))
            self._stamp = stamp
        return self._judge

    def placement(
        self,
        provider: str,
        workspace: str,
        *,
        network: bool,
        session: str | None = None,
        resources: SlurmResources | None = None,
    ) -> Placement:
        """Return the placement of a program in a provider; `session` is None for the user.

        Raises `RpcError`: -32603 if the provider cannot be used, -32602 if the request may not ask
        for `resources`.
        """
        try:
            found = self.provider(provider)
        except ProviderError as error:
            raise unusable(provider, error) from error
        if resources is not None:
            place = self._settings.places.get(provider)
            check_resources(provider, place, resources, is_agents=session is not None)
        return Placement(
            found,
            workspace,
            network=network,
            hidden=self.hidden,
            session=session,
            resources=resources,
        )

    def end_session(self, session: str) -> None:
        """Release what places hold for an agent's ended session, such as an allocation of Slurm."""
        for provider in self._providers.values():
            if isinstance(provider, RemoteProvider):
                provider.end_session(session)

    def end_all(self) -> None:
        for provider in self._providers.values():
            if isinstance(provider, EndsAll):
                provider.end_all()

    def provider(self, name: str) -> Provider:
        """Return a provider, made when it is first used. Raises `ProviderError`."""
        if name not in self._providers:
            provider = make(
                name,
                image=self._settings.image,
                daemon=self._daemon,
                placeholders=self._placeholders,
                places=self._settings.places,
            )
            self._providers[name] = provider
            if isinstance(provider, RemoteProvider) and self._nursery is not None:
                self._nursery.start_soon(keep_running, name, provider.run)
        return self._providers[name]

    def remote(self, provider: str, token: str | None) -> RemoteProgram | None:
        """Return the program of a restored terminal, if it runs in a place that still exists."""
        try:
            return remote_program(self.provider(provider), token)
        except ProviderError as error:
            _log.warning("the program of a terminal cannot be reached", error=str(error))
            return None

    async def clean_up(self, provider: str, token: str) -> bool:
        """Remove what is left of a terminal; return whether that succeeded. Errors are logged."""
        try:
            await self.provider(provider).clean_up(token)
        except ProviderError as error:
            _log.warning("something of a terminal may be left", error=str(error))
            return False
        except Exception as error:  # noqa: BLE001  a program may leave any files, in any number
            _log.warning("something of a terminal may be left", exc_info=error)
            return False
        return True

    async def remove_leftovers(self, held: Collection[str]) -> None:
        """Remove the containers that killed daemons have left, but not those of `held` tokens."""
        # With all engines: an agent may have requested one that no setting or profile selects.
        if self._settings.image is None:
            return
        for name in ENGINES:
            try:
                provider = self.provider(name)
            except ProviderError:
                continue  # it is not installed
            if isinstance(provider, HasLeftovers):
                await provider.remove_leftovers(held)


class _Judged(Protocol):
    @property
    def pending(self) -> tuple[Loss, ...]: ...


T = TypeVar("T", bound=_Judged)


async def settled(judged: T, again: Judging[T], facts: LossFacts) -> T:
    """Judge a command again until all facts about it are known, or late, after `FACTS_S`."""
    findings: dict[Loss, Finding] = {}
    with trio.move_on_after(loss_facts.FACTS_S + _RETURN_S):
        while judged.pending:
            find = partial(facts.find, judged.pending)
            findings.update(await run_blocking(find, abandon_on_cancel=True, limiter=_threads))
            judged = again(findings=findings)
    while judged.pending:
        findings.update(dict.fromkeys(judged.pending, LATE))
        judged = again(findings=findings)
    return judged


def checked(verdict: Verdict, profile: Profile) -> CheckResponse:
    """Describe the judgement on a command for `_acpterm/command/check`, of agents and the user."""
    return CheckResponse(
        level=verdict.level.value,
        decision=verdict.decision,
        parts=[
            CheckedPart(list(part.words), part.level.value, part.reason) for part in verdict.parts
        ],
        profile=profile.name,
        reason=verdict.reason or UNSET,
        rule=UNSET if verdict.rule is None else verdict.rule,
        kind=UNSET if verdict.kind is None else verdict.kind.value,
    )


def _stamp(path: str) -> Stamp | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
