"""`acpterm run --provider`: where the program runs, how it is shown, and `restart`."""

import json
import shutil

import pytest

from tests.support.commands import command_environment, run, run_process, run_with
from tests.support.sandboxes import place as new_place

needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="requires bwrap: apt-get install bubblewrap"
)


@pytest.fixture
def place():
    with new_place(repository=False) as found:
        yield found


async def inspected(path, name):
    return json.loads((await run(path, "inspect", name, "--json")).out)["terminal"]


@needs_bubblewrap
@pytest.mark.long
async def test_program_runs_in_the_sandbox_and_writes_in_its_directory(path, place):
    line = f"echo x > inside; echo x > {place.outside}/new"
    words = ["--provider", "bubblewrap", "--cwd", str(place.workspace), "--", "sh", "-c", line]
    done = await run_process(path, "run", *words)
    assert done.status != 0
    assert (place.workspace / "inside").exists()
    assert not (place.outside / "new").exists()


@needs_bubblewrap
@pytest.mark.long
async def test_sandbox_is_shown_and_kept_by_restart(path, place):
    line = f"echo x >> {place.outside}/new; echo x >> inside; sleep 60"
    words = ["--provider", "bubblewrap", "--cwd", str(place.workspace), "--name", "boxed"]
    done = await run(path, "run", "-d", *words, "--", "sh", "-c", line)
    assert done.status == 0, done.err
    before = await inspected(path, "boxed")
    assert (before["provider"], before["isolation"]) == ("bubblewrap", "sandbox")
    header, row = (await run(path, "ls")).out.splitlines()
    assert row[header.index("WHERE") :].split()[0] == "bubblewrap"
    assert "provider        bubblewrap, a sandbox\n" in (await run(path, "inspect", "boxed")).out
    done = await run(path, "restart", "boxed")
    assert done.status == 0, done.err
    after = await inspected(path, "boxed")
    assert after["terminalId"] != before["terminalId"]
    assert (after["provider"], after["isolation"]) == ("bubblewrap", "sandbox")
    # The next worker knows it, too.
    assert (await run(path, "restart")).status == 0
    assert (await inspected(path, "boxed"))["provider"] == "bubblewrap"
    assert (await run(path, "restart", "boxed")).status == 0
    assert (await inspected(path, "boxed"))["provider"] == "bubblewrap"
    assert not (place.outside / "new").exists()


@needs_bubblewrap
@pytest.mark.long
async def test_stdin_is_passed_on_into_the_sandbox(path, place):
    """stdin comes through a named pipe of acpterm, which the program in the sandbox cannot see.

    A shell opens the pipe outside of the sandbox.
    """
    words = ["run", "--provider", "bubblewrap", "--cwd", str(place.workspace), "--", "cat"]
    done = await run_with(words, stdin=b"some text", env=command_environment(path))
    assert (done.status, done.out) == (0, "some text")


async def test_stdin_is_not_passed_on_to_a_container(path):
    done = await run(path, "run", "--provider", "podman", "--", "true")
    assert done.status == 1
    assert "'podman' cannot pass stdin on to the program" in done.err
    assert "acpterm run -n" in done.err


async def test_unknown_provider_is_an_error(path):
    done = await run(path, "run", "-d", "--provider", "nowhere", "--", "true")
    assert done.status == 1
    assert "nowhere" in done.err
    assert "bubblewrap, podman, docker" in done.err
    assert (await run(path, "ls", "--json")).out == "[]\n"


async def test_local_program_has_no_provider_in_the_list(path):
    await run(path, "run", "-d", "--name", "plain", "--", "sleep", "60")
    header, row = (await run(path, "ls")).out.splitlines()
    assert row[header.index("WHERE") :].split()[0] == "-"
    found = await inspected(path, "plain")
    assert (found["provider"], found["isolation"]) == ("local", "none")
