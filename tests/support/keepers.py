"""A keeper whose responses a test can delay."""

from typing import Any

import trio

from acpterm.keeper.client import KeeperClient
from acpterm.keeper.reports import TerminalEvents


class SlowKeeper:
    """A keeper whose response to a spawn is delayed until `may_respond` is set."""

    def __init__(self, keeper: KeeperClient) -> None:
        self.keeper = keeper
        self.requested = trio.Event()
        self.may_respond = trio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.keeper, name)

    async def spawn(self, *arguments: Any, **more: Any) -> TerminalEvents:
        self.requested.set()
        with trio.CancelScope(shield=True):
            await self.may_respond.wait()
        return await self.keeper.spawn(*arguments, **more)
