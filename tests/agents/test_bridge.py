"""The bridge to a terminal that another daemon keeps; here that daemon is on this machine."""

import errno

import trio

from acpterm.commands.bridge import Bridge
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S


class ClosedTty:
    """A terminal whose other end was closed."""

    size = (80, 24)

    def __init__(self):
        self.failed = trio.Event()

    async def read(self):
        await trio.sleep_forever()

    async def write(self, _):
        await trio.lowlevel.checkpoint()
        self.failed.set()
        raise OSError(errno.EIO, "Input/output error")


async def test_terminal_is_released_although_the_output_cannot_be_printed(tmp_path):
    tty = ClosedTty()
    argv = ["/bin/sh", "-c", "echo ready; sleep 1000"]
    async with daemon(tmp_path) as there, there.user() as user:
        bridge = Bridge(tty, there.user_path, "kept-1", argv, 60.0)
        with trio.fail_after(DEADLINE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(bridge.run)
                await tty.failed.wait()
                (kept,) = (await user.request("terminal/list"))["terminals"]
                assert kept["name"] == "kept-1"
                # As SIGHUP has it done.
                await bridge.release()
                nursery.cancel_scope.cancel()
        assert (await user.request("terminal/list"))["terminals"] == []
