"""Runs `acpterm proxy` as a process, with an editor."""

import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from tests.support.commands import command_environment
from tests.support.editor import AGENT, Editor
from tests.support.polling import poll
from tests.support.starting import start


@asynccontextmanager
async def editor_of(
    tmp_path: Path, path: str, *agent: str, options: Sequence[str] = (), **variables: str
) -> AsyncIterator[Editor]:
    """Run `acpterm proxy` as a process that uses the daemon at `path`, and connect an editor.

    `agent` is the agent's command; by default that of the scripted agent.
    """
    env = command_environment(path, ACPTERM_KILL_GRACE="0.2", **variables)
    with (tmp_path / "proxy-stderr").open("wb") as err:
        process = start(
            ["proxy", *options, "--", *(agent or AGENT)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    stream = trio.StapledStream(
        trio.lowlevel.FdStream(os.dup(process.stdin.fileno())),
        trio.lowlevel.FdStream(os.dup(process.stdout.fileno())),
    )
    process.stdin.close()
    process.stdout.close()
    editor = Editor(stream)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(editor.listen)
        try:
            yield editor
        finally:
            with trio.CancelScope(shield=True):
                await stream.aclose()
                with trio.move_on_after(10):
                    await poll(process.poll)
                process.kill()
                await trio.to_thread.run_sync(process.wait)
            nursery.cancel_scope.cancel()
