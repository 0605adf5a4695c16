"""The provider `local`: programs run as the user, without isolation."""

from typing import Final

from acpterm.providers.provider import Command, Isolation, Prepared


class LocalProvider:
    """Runs a command as it is. Implements `provider.Provider`."""

    name: Final = "local"
    isolation: Final[Isolation] = "none"

    async def prepare(self, command: Command) -> Prepared:
        """Return the command unchanged."""
        return Prepared(command.argv, command.fallback_argv, command.env, command.cwd)

    async def clean_up(self, token: str) -> None:
        """Do nothing: a local terminal leaves nothing behind."""

    async def check(self) -> str:
        """Return a line that describes what holds here."""
        return "programs run as you do, without isolation"
