"""How many of Slurm's commands run at once, with stubs of them."""

import errno
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
import trio

from acpterm.config.places import SlurmPlace
from acpterm.providers.provider import ProviderError
from acpterm.providers.slurm import program as program_module
from acpterm.providers.slurm import progress as progress_module
from acpterm.providers.slurm import provider as provider_module
from acpterm.providers.slurm.allocations import Allocations
from acpterm.providers.slurm.commands import CommandLimits, Done, cancel
from acpterm.providers.slurm.program import SlurmProgram
from tests.support.containers import shell
from tests.support.depth import DEADLINE_S
from tests.support.places import slurm_provider
from tests.support.polling import poll

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
FAILING = """\
#!/bin/sh
echo "$*" >>"$LOGGED.argv"
echo "$ERROR" >&2
exit 1
"""
STARTED = "srun: launching StepId=3.{number} on host n1, 1 tasks: 0\n"
UNREACHABLE = "scancel: error: Kill job error on job id 5: Unable to contact slurm controller"
FORGOTTEN = "scancel: error: Kill job error on job step id 5.0: Invalid job id specified"


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
    limits = CommandLimits(3)
    ended = []

    async def end(program):
        ended.append(await program.end(0.0))

    async with trio.open_nursery() as nursery:
        for number in range(12):
            log = tmp_path / f"step{number}"
            log.write_text(STARTED.format(number=number))
            program = SlurmProgram(SlurmPlace(), f"{number}", str(log), limits, shares_job=True)
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
    limits = CommandLimits(1)
    (log := tmp_path / "step").write_text("srun: job 5 queued and waiting for resources\n")
    async with limits.of("srun"):
        with trio.fail_after(DEADLINE_S):
            assert await SlurmProgram(SlurmPlace(), "a", str(log), limits).end(0.0)
    assert logged("argv") == ["5"]


@pytest.fixture
def failing(logged, tmp_path):
    """Return a function that makes scancel fail with a message."""

    def fail(error):
        text = FAILING.replace("$LOGGED", f"{tmp_path}/log").replace("$ERROR", error)
        (tmp_path / "scancel").write_text(text)

    return fail


@pytest.fixture
async def provider(logged, runtime_directory):
    """Return a provider whose commands are stubs."""
    async with slurm_provider(SlurmPlace()) as found:
        yield found


def record_job(provider, token, text="srun: job 5 queued and waiting for resources\n"):
    """Write `text` as the messages of srun for the program of `token`.

    Return the path of the file with the messages, and the provider's object for the program.
    """
    program = provider.program(token)
    (path := Path(program.log)).write_text(text)
    return path, program


async def test_record_of_a_job_is_kept_until_the_job_is_cancelled(provider, failing):
    path, _ = record_job(provider, "a")
    failing(UNREACHABLE)
    with pytest.raises(ProviderError, match="5: the job cannot be cancelled"):
        await provider.clean_up("a")
    assert path.exists()
    failing(FORGOTTEN)
    await provider.clean_up("a")
    assert not path.exists()


def test_problem_of_a_command_is_in_one_line():
    text = "sinfo: error: Munge encode failed\nslurm_load_partitions: Protocol error"
    assert Done(1, text).problem == text.replace("\n", "; ")


async def test_command_that_ignores_sigterm_is_killed_without_a_warning(logged, tmp_path):
    text = f"#!/bin/sh\ntrap '' TERM\ntouch {tmp_path}/began\nwhile :; do sleep 0.1; done\n"
    (tmp_path / "scancel").write_text(text)
    with trio.fail_after(DEADLINE_S), pytest.raises(ProviderError, match="did not end within"):
        await cancel(SlurmPlace(), ["5"], timeout_s=5)
    assert (tmp_path / "began").exists()


@pytest.mark.parametrize("is_directory", [False, True])
async def test_nothing_is_started_without_the_configuration(
    logged, runtime_directory, tmp_path, is_directory
):
    config = tmp_path if is_directory else tmp_path / "missing.conf"
    async with slurm_provider(SlurmPlace(config=str(config))) as provider:
        for ask in (provider.check, partial(provider.prepare, shell(tmp_path, "true"))):
            with pytest.raises(ProviderError, match=f"{config}: cannot be read: "):
                await ask()
    assert not (tmp_path / "log.argv").exists()


async def test_clean_up_that_takes_too_long_fails(provider, logged, tmp_path, monkeypatch):
    monkeypatch.setattr(provider_module, "_CLEAN_UP_TIMEOUT_S", 0.1)
    path, _ = record_job(provider, "a")
    (tmp_path / "scancel").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(ProviderError, match="did not end"):
        await provider.clean_up("a")
    assert path.exists()


async def test_shared_step_that_was_never_launched_has_nothing_to_cancel(provider, failing):
    failing(UNREACHABLE)
    path, _ = record_job(provider, "a session-1", "srun: jobid 5: nodes(1):`n1'\n")
    await provider.clean_up("a session-1")
    assert not path.exists()


@pytest.mark.parametrize(("code", "is_cancelled"), [(137, True), (1, False)])
async def test_job_whose_client_was_killed_is_cancelled(
    provider, logged, tmp_path, code, is_cancelled
):
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho JobId=5 JobState=CANCELLED\n")
    (tmp_path / "scontrol").chmod(0o755)
    path, program = record_job(provider, "a", STARTED.format(number=0))
    await program.exit(code, None)
    await provider.clean_up("a")
    assert (tmp_path / "log.argv").exists() == is_cancelled
    assert not path.exists()


async def test_programs_cancel_their_jobs_themselves_if_one_command_could_not(
    provider, failing, logged
):
    failing(UNREACHABLE)
    _, program = record_job(provider, "a")
    provider.end_all()
    assert await program.end(0.0)
    await poll(lambda: program._cancelling is None)
    assert not await program.end(0.0)
    assert logged("argv") == ["5", "5"]


async def test_record_of_a_job_is_kept_while_one_command_cancels_all_jobs(
    provider, failing, tmp_path, monkeypatch
):
    monkeypatch.setattr(provider_module, "_CLEAN_UP_TIMEOUT_S", 0.1)
    path, program = record_job(provider, "a")
    (tmp_path / "scancel").write_text("#!/bin/sh\nexec sleep 60\n")
    provider.end_all()
    assert await program.end(0.0)
    with pytest.raises(ProviderError, match="did not end"):
        await provider.clean_up("a")
    assert path.exists()


GRANTED = "srun: jobid {job}: nodes(1):`n1', cpu counts: 4(x1)\n"


@pytest.fixture
def wake_now(monkeypatch):
    """Wake queued steps as soon as their job has its resources, instead of after some seconds."""
    monkeypatch.setattr(program_module, "_WAKE_AFTER_S", (0.0,))
    monkeypatch.setattr(program_module, "_START_POLL_S", 0.01)


async def follow_queued(directory, limits, jobs, nursery):
    """Follow a step in each of `jobs`; all jobs have resources, but no step has started.

    Return a list, to which the number of each step is added once it has started.
    """
    changed = []
    for number, job in enumerate(jobs):
        (log := directory / f"step{number}").write_text(GRANTED.format(job=job))
        program = SlurmProgram(SlurmPlace(), f"{number}", str(log), limits, shares_job=True)
        nursery.start_soon(program.follow, partial(changed.append, number))
    return changed


async def test_queued_steps_of_a_job_are_woken_by_one_step(logged, tmp_path, wake_now):
    async with trio.open_nursery() as nursery:
        changed = await follow_queued(tmp_path, CommandLimits(), ["3"] * 12, nursery)
        await poll((tmp_path / "log.argv").exists)
        for number in range(12):
            with (tmp_path / f"step{number}").open("a") as log:
                log.write(STARTED.format(number=number))
        await poll(lambda: len(changed) == 12)
        nursery.cancel_scope.cancel()
    assert len(logged("argv")) == 1


async def test_wakes_of_several_jobs_run_one_at_a_time_beside_other_steps(
    logged, tmp_path, wake_now
):
    limits = CommandLimits(1)
    async with limits.of("srun"), trio.open_nursery() as nursery:
        await follow_queued(tmp_path, limits, ["3", "4", "5", "5"], nursery)
        await poll(lambda: (tmp_path / "log.argv").exists() and len(logged("argv")) == 3)
        nursery.cancel_scope.cancel()
    assert {line.split("--jobid=")[1][0] for line in logged("argv")} == {"3", "4", "5"}
    assert set(logged("count")) == {"1"}


@pytest.fixture
def no_processes(monkeypatch):
    """Let no command be started, as if all were installed and no file descriptor were free."""

    async def fail(*_args, **_options):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(trio, "run_process", fail)
    monkeypatch.setattr(trio.lowlevel, "open_process", fail)


async def test_program_survives_that_no_command_can_be_started(
    logged, tmp_path, no_processes, wake_now
):
    (log := tmp_path / "step").write_text(GRANTED.format(job=3))
    program = SlurmProgram(SlurmPlace(), "a", str(log), CommandLimits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(program.follow, list)
        await poll(lambda: program._limits.was_woken("3"))
        nursery.cancel_scope.cancel()
    with log.open("a") as file:
        file.write(STARTED.format(number=0))
    assert not await program.end(0.0)
    assert not await program.signal(15)
    assert (await program.exit(1, None)).code == 255


async def test_provider_raises_its_own_error_if_no_command_can_be_started(provider, no_processes):
    path, _ = record_job(provider, "a")
    with pytest.raises(ProviderError, match="cannot be cancelled"):
        await provider.clean_up("a")
    assert path.exists()
    with pytest.raises(ProviderError, match="Too many open files"):
        await provider.check()


async def test_check_blames_no_settings_when_the_state_of_the_job_cannot_be_read(
    logged, tmp_path, runtime_directory
):
    error = "slurm_load_jobs error: Unable to contact slurm controller"
    for name, script in (("sinfo", "echo n1 up idle"), ("squeue", f"echo '{error}'; exit 1")):
        stub = tmp_path / name
        stub.write_text(f"#!/bin/sh\n{script}\n")
        stub.chmod(0o755)
    async with slurm_provider(SlurmPlace(job=5)) as provider:
        with pytest.raises(ProviderError, match=f"^job = 5: {error}$"):
            await provider.check()


async def test_directory_that_cannot_be_read_does_not_end_the_provider(
    logged, runtime_directory, monkeypatch
):
    def fail(path):
        raise OSError(errno.EMFILE, "Too many open files", path)

    monkeypatch.setattr(os, "listdir", fail)
    async with slurm_provider(SlurmPlace(session=True)) as provider:
        assert provider._nursery is not None


async def test_progress_is_not_forgotten_if_its_file_cannot_be_read(provider, logged, monkeypatch):
    path, program = record_job(provider, "a", STARTED.format(number=0))
    assert program.host == "n1"
    with path.open("a") as file:
        file.write("srun: more\n")

    def fail(path):
        raise OSError(errno.EMFILE, "Too many open files", path)

    with monkeypatch.context() as patch:
        patch.setattr(progress_module, "open", lambda path, _mode: fail(path), raising=False)
        assert not program.is_queued
        assert await program.end(0.0)
    assert "--jobid=3" in logged("argv")[0]
