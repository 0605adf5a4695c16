"""The provider `local`: programs run on this machine as the user, without isolation."""

from typing import Final

from acpterm.providers.provider import Command, Prepared


class LocalProvider:
    """Runs commands unchanged. Implements `provider.Provider`."""

    name: Final = "local"

    async def prepare(self, command: Command) -> Prepared:
        """Return the command unchanged, and no token: the caller need not call `clean_up`."""
        return Prepared(command.argv, command.fallback_argv, command.env, command.cwd)

    async def clean_up(self, token: str) -> None:
        """Do nothing: the provider creates nothing that must be removed."""

    async def check(self) -> str:
        """Return a line that says that programs are not isolated."""
        return "programs run as you do, without isolation"
