"""Errors of writing to stdout, which the message names."""

import os

import pytest

from tests.support.commands import running


@pytest.mark.costly
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
async def test_error_names_stdout_when_the_disk_is_full(tmp_path, path, shared, words):
    name = shared.create("echo hi; exec sleep 1000")
    words = [word.format(name) for word in words]
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        async with running(tmp_path, path, *words, stdout=full) as command:
            assert await command.wait() == 1
    finally:
        os.close(full)
    assert command.err == "acpterm: stdout: No space left on device\n"
