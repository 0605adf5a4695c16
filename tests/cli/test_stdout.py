"""A stdout that takes nothing: it is named in what is said of that."""

import os

import pytest

from tests.support.commands import running
from tests.support.daemon import blocking_daemon


@pytest.fixture(scope="module")
def terminal(tmp_path_factory):
    """A terminal that has printed something and runs, and its daemon's socket."""
    with blocking_daemon(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon.create("echo hi; exec sleep 1000"), daemon.socket


@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["ls", "--watch"],
        ["screen", "{}"],
        ["screen", "{}", "--svg", "-"],
        ["logs", "--follow", "{}"],
        ["export", "{}"],
        ["replay", "{}"],
        ["wait", "{}", "--for", "hi"],
        ["run", "--", "echo", "hi"],
        ["run", "-d", "--", "true"],
    ],
    ids=" ".join,
)
async def test_a_full_disk_is_said_to_be_stdouts(tmp_path, terminal, words):
    name, path = terminal
    words = [word.format(name) for word in words]
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        async with running(tmp_path, path, *words, stdout=full) as command:
            assert await command.wait() == 1
    finally:
        os.close(full)
    assert command.err == "acpterm: stdout: No space left on device\n"
