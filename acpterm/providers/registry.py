"""Creates providers by name. A provider's module is imported only when the provider is created."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Final

from acpterm.config.places import Place, SlurmPlace
from acpterm.config.providers import PROVIDERS
from acpterm.providers.placeholders import Placeholders
from acpterm.providers.provider import NAMES, Provider, ProviderError
from acpterm.pty.tracking.marks import Daemon

NO_PLACES: Final[Mapping[str, Place]] = MappingProxyType({})


def make(
    name: str,
    *,
    image: str | None = None,
    daemon: Daemon | None = None,
    placeholders: Placeholders | None = None,
    places: Mapping[str, Place] = NO_PLACES,
) -> Provider:
    """Return a new provider, such as `landlock` or `ssh:build1`. Raises `ProviderError`."""
    # `daemon` is this daemon's identity in labels and directories; a mere `check` needs none.
    if (place := places.get(name)) is not None:
        return _make_place(name, place, daemon)
    if (kind := PROVIDERS.get(name)) is None:
        known = ", ".join((*NAMES, *places))
        raise ProviderError(f"there is no provider {name!r}; there are {known}")
    given = {"name": name, "image": image, "daemon": daemon, "placeholders": placeholders}
    module, _, factory = kind.factory.partition(":")
    make_it = getattr(import_module(f"acpterm.providers.{module}"), factory)
    provider: Provider = make_it(*(given[need] for need in kind.needs))
    return provider


def _make_place(name: str, place: Place, daemon: Daemon | None) -> Provider:
    if isinstance(place, SlurmPlace):
        from acpterm.providers.slurm.provider import SlurmProvider  # noqa: PLC0415  only if it is used

        return SlurmProvider(name, place, daemon)
    from acpterm.providers.ssh.provider import SshProvider  # noqa: PLC0415  only if it is used

    return SshProvider(name, place, daemon)
