"""Keepers that behave as tests need them to."""

from typing import Any

import trio

from acpterm.keeper.client import KeeperClient, TerminalEvents


class SlowKeeper:
    """A keeper whose answer to a spawn is held back until `may_answer` is set."""

    def __init__(self, keeper: KeeperClient) -> None:
        self.keeper = keeper
        self.asked = trio.Event()
        self.may_answer = trio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.keeper, name)

    async def spawn(self, *arguments: Any, **more: Any) -> TerminalEvents:
        self.asked.set()
        with trio.CancelScope(shield=True):
            await self.may_answer.wait()
        return await self.keeper.spawn(*arguments, **more)
