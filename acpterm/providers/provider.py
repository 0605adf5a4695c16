"""The interface of providers, which turn a command into what the keeper runs.

An agent may request a provider that is stricter than the one of its profile
(`config.providers.stricter_than`), or a place that its profile lists, but no other provider.

A place is another host or a cluster. The name of its provider has a colon, such as `ssh:build1`.
The program runs there; on this machine the keeper runs a client of that place, such as ssh. The
terminal's `RemoteProgram` (`terminal.remote`) ends the program there, and finds out how it ended.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, runtime_checkable

from acpterm.config.places import SlurmResources
from acpterm.config.providers import PROVIDERS, isolation_of
from acpterm.terminal.remote import RemoteProgram

NAMES: Final = tuple(PROVIDERS)
"""The names of the providers of this machine, roughly by increasing strictness."""

ENGINES: Final = tuple(name for name in NAMES if isolation_of(name) == "container")
"""The names of the providers of containers."""


def is_place(name: str) -> bool:
    """Return whether the provider `name` is that of a place: another host or a cluster."""
    return ":" in name


class ProviderError(Exception):
    """A provider cannot run a command; the message says why, and what the user can do about it."""


class Command(NamedTuple):
    """The command of a terminal, for `Provider.prepare`: what to run, and what it may access."""

    argv: Sequence[str]
    """The program and its arguments."""
    fallback_argv: Sequence[str] | None
    """The argv to execute if the program of `argv` does not exist; None for no fallback."""
    env: Mapping[str, str]
    """The complete environment."""
    cwd: str
    """The working directory, an absolute path; it need not be below `workspace`."""
    workspace: str
    """The session's directory, an absolute path: an isolated program may write there."""
    shell: str
    """The path of the shell that runs shell text on this machine."""
    network: bool = False
    """Whether the program may use the network."""
    hidden: Sequence[str] = ()
    """Absolute paths that the program must not reach: acpterm's sockets and state."""
    requested: Mapping[str, str] = MappingProxyType({})
    """The part of `env` that acpterm, the settings and the request set: it holds on any host."""
    session: str | None = None
    """A text that identifies the agent's session; None for a command of the user."""
    resources: SlurmResources | None = None
    """The resources of a cluster that the request asks for; None for those of the place."""
    umask: int | None = None
    """The umask of a program on another host, combined with that of a login there.

    A permission is removed if either umask removes it. None: the login's umask alone.
    """


class Prepared(NamedTuple):
    """A prepared command: what the keeper runs on this machine for a `Command`."""

    argv: Sequence[str]
    fallback_argv: Sequence[str] | None
    """The argv to execute if the program of `argv` does not exist; None for no fallback."""
    env: Mapping[str, str]
    """The complete environment."""
    cwd: str
    token: str | None = None
    """The argument of `Provider.clean_up`, at most 256 characters; None if it need not be called.

    If there is a token, `clean_up` must be called even if the program was not started.
    """
    host: str | None = None
    """The name of the host on which the program runs; None for this one, or if not known yet."""


class Provider(Protocol):
    """Runs programs in one way: on this machine or in a place, isolated or not.

    Its methods do not block the event loop.
    """

    @property
    def name(self) -> str:
        """The name, one of `NAMES` or that of a place."""

    async def prepare(self, command: Command) -> Prepared:
        """Return what the keeper runs for a command.

        Raises `ProviderError` if the provider cannot run the command; then the caller must not run
        the command without this provider. Results of checks of the system may be cached, so that
        most calls take at most a millisecond, except for places.
        """

    async def clean_up(self, token: str) -> None:
        """Remove files, containers and jobs of a terminal whose processes have ended. Idempotent.

        `token` is `Prepared.token`; an earlier worker may have got it. Raises `ProviderError` if
        something important, such as a job, could not be removed: then the caller keeps the token,
        and the next worker tries again.
        """

    async def check(self) -> str:
        """Run a command, as a test; return a line for the user that describes the provider.

        The line says, for example, how programs are isolated. Raises `ProviderError` if the
        provider does not work here.
        """


@runtime_checkable
class RemoteProvider(Provider, Protocol):
    """A provider of a place, whose terminals have a `RemoteProgram`."""

    def program(self, token: str) -> RemoteProgram:
        """Return the remote program of a token, which may be from an earlier worker."""

    async def run(self) -> None:
        """Run the provider's background tasks, such as connections, until cancelled.

        When cancelled, closes connections and releases allocations. Does not raise errors.
        """

    def end_session(self, session: str) -> None:
        """Release what only the ended session (`Command.session`) has used. Idempotent."""
