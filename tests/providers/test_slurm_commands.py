"""How many of Slurm's commands run at once, with stubs of them."""

import pytest
import trio

from acpterm.config.places import SlurmPlace
from acpterm.providers.slurm.allocations import Allocations
from acpterm.providers.slurm.commands import Room
from acpterm.providers.slurm.program import SlurmProgram

# Records how many of it run, and its arguments.
STUB = """\
#!/bin/sh
mkdir "$RUNNING/$$"
ls "$RUNNING" | wc -l >>"$LOGGED.count"
echo "$*" >>"$LOGGED.argv"
sleep 0.1
rmdir "$RUNNING/$$"
echo "acpterm 0 ended"
"""
STARTED = "srun: launching StepId=3.{number} on host n1, 1 tasks: 0\n"


@pytest.fixture
def logged(tmp_path, monkeypatch):
    """Put stubs on the PATH; return a function that returns the lines of one of their logs."""
    (tmp_path / "running").mkdir()
    text = STUB.replace("$RUNNING", f"{tmp_path}/running").replace("$LOGGED", f"{tmp_path}/log")
    for name in ("srun", "scancel"):
        stub = tmp_path / name
        stub.write_text(text)
        stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return lambda name: (tmp_path / f"log.{name}").read_text().splitlines()


async def test_end_of_many_programs_runs_few_commands_at_once(logged, tmp_path):
    room = Room(3)
    ended = []

    async def end(program):
        ended.append(await program.end(0.0))

    async with trio.open_nursery() as nursery:
        for number in range(12):
            log = tmp_path / f"step{number}"
            log.write_text(STARTED.format(number=number))
            program = SlurmProgram(SlurmPlace(), f"{number}", str(log), room, shares_job=True)
            nursery.start_soon(end, program)
    assert ended == [True] * 12
    assert max(map(int, logged("count"))) <= 3


async def test_release_of_all_allocations_is_one_command(logged, tmp_path):
    directory = tmp_path / "place"
    directory.mkdir()
    for number in range(5):
        text = f"salloc: Granted job allocation {number}\n"
        (directory / f"session-{number}").write_text(text)
    (directory / "session-7").write_text("")
    await Allocations(SlurmPlace(), str(directory)).release_all()
    granted, pending = logged("argv")
    assert sorted(granted.split()) == ["0", "1", "2", "3", "4"]
    assert pending.startswith("--name=acpterm-")
    assert not list(directory.iterdir())


async def test_cancellation_of_a_job_does_not_wait_for_steps(logged, tmp_path):
    room = Room(1)
    (log := tmp_path / "step").write_text("srun: job 5 queued and waiting for resources\n")
    async with room.of("srun"):
        with trio.fail_after(5):
            assert await SlurmProgram(SlurmPlace(), "a", str(log), room).end(0.0)
    assert logged("argv") == ["5"]
