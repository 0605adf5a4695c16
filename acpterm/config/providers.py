"""The providers of this machine. A line of `PROVIDERS` registers one.

The settings, the API and the commands need the names without the providers' modules, which are
imported only when a provider is used.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Final, Literal, NamedTuple, TypeAlias

Isolation: TypeAlias = Literal["none", "sandbox", "container"]


class ProviderKind(NamedTuple):
    """A provider of this machine; an agent may request one of a higher `rank`."""

    factory: str
    """Module below `acpterm.providers`, and the class or function in it that makes the provider."""
    isolation: Isolation
    rank: int
    rank_with_network: int
    """The rank if programs may use the network."""
    needs: tuple[str, ...] = ()
    """The arguments of the factory: some of those of `registry.make`."""


_CONTAINER: Final = ("name", "image", "daemon", "placeholders")
PROVIDERS: Final[Mapping[str, ProviderKind]] = {
    "local": ProviderKind("local:LocalProvider", "none", 0, 0),
    "landlock": ProviderKind("landlock:LandlockProvider", "sandbox", 1, 1),
    # With network it is not stricter than landlock, since only landlock then denies access to
    # abstract Unix sockets.
    "bubblewrap": ProviderKind("bubblewrap:BubblewrapProvider", "sandbox", 2, 1, ("placeholders",)),
    # Neither is stricter: docker's daemon runs as root, and podman runs as the user, so each of
    # them prevents attacks that the other one does not.
    "podman": ProviderKind("container:make_container", "container", 3, 3, _CONTAINER),
    "docker": ProviderKind("container:make_container", "container", 3, 3, _CONTAINER),
}


def isolation_of(name: str) -> Isolation:
    """Return how a provider isolates programs. A place, such as `ssh:build1`, does not."""
    return PROVIDERS[name].isolation if name in PROVIDERS else "none"


def stricter_than(name: str, *, network: bool) -> list[str]:
    """Return the names of the providers that are stricter; none is stricter than a place."""
    rank = attrgetter("rank_with_network" if network else "rank")
    if name not in PROVIDERS:
        return []
    return [other for other, kind in PROVIDERS.items() if rank(kind) > rank(PROVIDERS[name])]
