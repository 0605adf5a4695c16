"""Keepers that behave as tests need them to."""

import trio


class SlowKeeper:
    """A keeper whose answer to a spawn is held back until `may_answer` is set."""

    def __init__(self, keeper):
        self.keeper = keeper
        self.asked = trio.Event()
        self.may_answer = trio.Event()

    def __getattr__(self, name):
        return getattr(self.keeper, name)

    async def spawn(self, *arguments, **more):
        self.asked.set()
        with trio.CancelScope(shield=True):
            await self.may_answer.wait()
        return await self.keeper.spawn(*arguments, **more)
