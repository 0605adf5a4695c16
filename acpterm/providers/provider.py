"""The interface of a provider: it turns a command into what the keeper runs.

Each provider has an isolation, which the user sees. An agent may request a provider that is
stricter than that of its profile, or a place that its profile lists, never another one. Not every
two providers can be compared.

A place is another host or a cluster. Its provider's name has a colon, such as `ssh:build1`, and the
keeper runs a client there: its `RemoteProgram` ends the program itself, and finds out how it ended.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from acpterm.config.places import SlurmResources
from acpterm.config.profiles import ISOLATIONS
from acpterm.terminal.remote import RemoteProgram

Isolation: TypeAlias = Literal["none", "sandbox", "container"]

NAMES: Final = ISOLATIONS
"""The names of the providers of this machine, roughly by increasing strictness."""

ENGINES: Final = ("podman", "docker")
"""The names of the providers of containers."""

_STRICTER: Final[Mapping[str, frozenset[str]]] = {
    "local": frozenset(NAMES[1:]),
    "landlock": frozenset(("bubblewrap", *ENGINES)),
    "bubblewrap": frozenset(ENGINES),
    # The daemon of docker runs as root, and podman runs as the user: each stops what the other does
    # not.
    "podman": frozenset(),
    "docker": frozenset(),
}


def stricter_than(name: str, *, network: bool) -> frozenset[str]:
    """Return the names of the providers that are stricter than the one with this name.

    `network` says whether programs may use the network. With it, abstract Unix sockets can be
    reached in `bubblewrap`, and not in `landlock`.
    """
    found = _STRICTER.get(name, frozenset())
    return found - {"bubblewrap"} if network and name == "landlock" else found


def is_place(name: str) -> bool:
    """Return whether the provider with this name runs programs on another host."""
    return ":" in name


class ProviderError(Exception):
    """A provider cannot be used here; the message has the cause and what to do about it."""


class Command(NamedTuple):
    """A command for a provider, with the terminal's requirements."""

    argv: Sequence[str]
    """The program and its arguments."""
    fallback_argv: Sequence[str] | None
    """The argv to execute if the program of `argv` does not exist; or None."""
    env: Mapping[str, str]
    """The complete environment."""
    cwd: str
    """The working directory, an absolute path in or below `workspace` or anywhere else."""
    workspace: str
    """The session's directory, an absolute path: the program may write there."""
    shell: str
    """The path of the POSIX shell of the settings."""
    network: bool = False
    """Whether the program may use the network."""
    hidden: Sequence[str] = ()
    """Absolute paths that the program must not reach: acpterm's sockets and state."""
    requested: Mapping[str, str] = MappingProxyType({})
    """The part of `env` that the request and the settings added; a container gets little else."""
    session: str | None = None
    """What identifies the agent's session; None for a command of the user."""
    resources: SlurmResources | None = None
    """What the request asks of a cluster."""
    umask: int | None = None
    """The umask, for a provider whose client does not pass it on; None for that of a login."""


class Prepared(NamedTuple):
    """What the keeper runs for a command."""

    argv: Sequence[str]
    fallback_argv: Sequence[str] | None
    env: Mapping[str, str]
    cwd: str
    token: str | None = None
    """What `Provider.clean_up` needs, at most 256 characters; None if nothing has to be cleaned up.

    If there is a token, `clean_up` must be called even if the program was not started.
    """
    host: str | None = None
    """The name of the host that the program runs on; None for this one."""


class Provider(Protocol):
    """Where programs run. Its methods do not block the event loop."""

    @property
    def name(self) -> str:
        """The name, one of `NAMES` or that of a place."""

    @property
    def isolation(self) -> Isolation:
        """The isolation that the user sees."""

    async def prepare(self, command: Command) -> Prepared:
        """Return what the keeper runs for a command. Raises `ProviderError`: nothing may run then.

        The result of checks of the system may be cached; a command costs at most a millisecond.
        """

    async def clean_up(self, token: str) -> None:
        """Remove what is left of a terminal whose processes have ended. Idempotent.

        `token` is that of `Prepared`; it may be from an earlier worker. Raises `ProviderError` if
        something of importance is left: the token is kept then, and the next worker tries again.
        """

    async def check(self) -> str:
        """Run one command, and return a line that describes what holds here.

        Raises `ProviderError`.
        """


@runtime_checkable
class RemoteProvider(Provider, Protocol):
    """A provider of a place, whose terminals have a `RemoteProgram`."""

    def program(self, token: str) -> RemoteProgram:
        """Return the program of a terminal; `token` is that of `Prepared`.

        It may be from an earlier worker.
        """

    async def run(self) -> None:
        """Run the connections until cancelled; then close them. Does not raise."""

    def end_session(self, session: str) -> None:
        """Give back what was only for an agent's session (`Command.session`). Idempotent."""
