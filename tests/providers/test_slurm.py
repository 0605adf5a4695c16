"""Programs on a real cluster: jobs, the queue, allocations, and what ends a program."""

import contextlib
import os
import signal
import subprocess

import pytest
import trio

from acpterm.config.places import SlurmResources
from acpterm.providers.provider import ProviderError
from acpterm.providers.slurm import commands as commands_module
from acpterm.providers.slurm import program as program_module
from acpterm.pty.tracking.marks import Daemon
from acpterm.terminal.status import EndedBy
from tests.support.containers import command, shell
from tests.support.depth import DEADLINE_S
from tests.support.places import release, run, slurm_provider, start
from tests.support.polling import poll
from tests.support.pools import running_pool

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

TIMEOUT_S = 60
# How often a command of Slurm is run in order to wait.
COMMAND_S = 0.1


@pytest.fixture
async def jobs(idle_cluster, runtime_directory):
    """Return a provider that makes a job for each program."""
    async with slurm_provider(idle_cluster.place(cpus=1)) as provider:
        yield provider


async def started(terminal):
    await poll(lambda: not terminal.is_queued, TIMEOUT_S)


async def test_program_is_a_job_with_the_resources_of_the_request(jobs, workspace):
    line = 'echo "$SLURM_CPUS_PER_TASK $SLURM_JOB_PARTITION $SLURM_JOB_ID.$SLURM_STEP_ID"'
    asked = SlurmResources(cpus=2, partition="urgent")
    status, text = await run(jobs, shell(workspace, line)._replace(resources=asked))
    cpus, partition, step = text.split()
    assert (status.code, cpus, partition) == (0, "2", "urgent")
    assert step.endswith(".0")
    assert status.host in ("n0", "n1", "n2")


async def test_program_waits_in_a_full_queue_and_then_runs(jobs, idle_cluster, workspace):
    full = idle_cluster.fill()
    async with running_pool() as pool:
        one = await start(jobs, pool, shell(workspace, "echo ran; exit 4"))
        await poll(lambda: "PENDING" in idle_cluster.jobs().values(), TIMEOUT_S, COMMAND_S)
        assert one.terminal.is_queued
        assert one.terminal.remote.host is None
        idle_cluster.cancel(full)
        with trio.fail_after(TIMEOUT_S):
            status = await one.terminal.wait_exited()
        assert (status.code, one.terminal.text.text()) == (4, "ran\n")
        await release(jobs, pool, one)


async def test_program_that_is_killed_in_the_queue_never_runs(jobs, idle_cluster, workspace):
    full = idle_cluster.fill()
    async with running_pool() as pool:
        one = await start(jobs, pool, shell(workspace, "echo ran >ran"))
        await poll(lambda: "PENDING" in idle_cluster.jobs().values(), TIMEOUT_S, COMMAND_S)
        one.terminal.kill(EndedBy.AGENT)
        with trio.fail_after(TIMEOUT_S):
            assert (await one.terminal.wait_exited()).ended_by == EndedBy.AGENT
        await release(jobs, pool, one)
    assert list(idle_cluster.jobs()) == [full]
    assert not (workspace / "ran").exists()


async def test_kill_ends_the_job_and_no_other(jobs, idle_cluster, workspace):
    other = idle_cluster.allocate("--cpus-per-task=1", "--ntasks=1")
    async with running_pool(grace=0.3) as pool:
        one = await start(jobs, pool, shell(workspace, "trap '' TERM; echo $$; sleep 1000"))
        two = await start(jobs, pool, shell(workspace, "echo $$; sleep 1000"))
        await poll(
            lambda: "\n" in one.terminal.text.text() and "\n" in two.terminal.text.text(), TIMEOUT_S
        )
        one.terminal.kill(EndedBy.USER)
        status = await one.terminal.wait_exited()
        assert (status.signal, status.ended_by) == ("SIGKILL", EndedBy.USER)
        await release(jobs, pool, one)
        await poll(lambda: len(idle_cluster.jobs()) == 2, TIMEOUT_S, COMMAND_S)
        assert two.terminal.exit is None
        await release(jobs, pool, two)
    await poll(lambda: list(idle_cluster.jobs()) == [other], TIMEOUT_S, COMMAND_S)


async def test_all_jobs_are_cancelled_by_one_command(jobs, idle_cluster, workspace, monkeypatch):
    commands = []
    run_command = commands_module.run

    async def recorded(place, argv, **options):
        commands.append(argv)
        return await run_command(place, argv, **options)

    for module in (commands_module, program_module):
        monkeypatch.setattr(module, "run", recorded)
    other = idle_cluster.allocate("--cpus-per-task=1", "--ntasks=1")
    async with running_pool(grace=0.3) as pool:
        line = shell(workspace, "echo $$; sleep 1000")
        found = [await start(jobs, pool, line) for _ in range(3)]
        for one in found:
            await poll(lambda: "\n" in one.terminal.text.text(), TIMEOUT_S)  # noqa: B023  awaited here
        jobs.end_all()
        with trio.fail_after(TIMEOUT_S):
            for one in found:
                one.terminal.kill(EndedBy.DISCONNECT)
            for one in found:
                assert (await one.terminal.wait_exited()).ended_by == EndedBy.DISCONNECT
        for one in found:
            await release(jobs, pool, one)
    await poll(lambda: list(idle_cluster.jobs()) == [other], TIMEOUT_S, COMMAND_S)
    assert [argv[0] for argv in commands] == ["scancel"]


async def test_kill_in_an_allocation_ends_the_step_and_nothing_else(slurm, cluster, workspace):
    async with running_pool(grace=0.3) as pool:
        line = "trap '' TERM; echo $SLURM_JOB_ID; read x; exit 4"
        one = await start(slurm, pool, shell(workspace, line))
        two = await start(slurm, pool, shell(workspace, line))
        await poll(
            lambda: "\n" in one.terminal.text.text() and "\n" in two.terminal.text.text(), TIMEOUT_S
        )
        one.terminal.kill(EndedBy.AGENT)
        status = await one.terminal.wait_exited()
        assert (status.signal, status.ended_by) == ("SIGKILL", EndedBy.AGENT)
        await release(slurm, pool, one)
        job = two.terminal.text.text().strip()
        assert cluster.jobs()[job] == "RUNNING"
        two.terminal.keyboard.type(b"\r")
        with trio.fail_after(TIMEOUT_S):
            assert (await two.terminal.wait_exited()).code == 4
        await release(slurm, pool, two)
        assert cluster.jobs()[job] == "RUNNING"


async def test_job_ends_with_its_client(jobs, idle_cluster, workspace):
    async with running_pool() as pool:
        one = await start(jobs, pool, shell(workspace, "echo ready; sleep 1000"))
        await poll(lambda: "ready" in one.terminal.text.text(), TIMEOUT_S)
        os.killpg(one.terminal.pid, signal.SIGKILL)
        with trio.fail_after(DEADLINE_S):
            assert (await one.terminal.wait_exited()).ended_by == EndedBy.LOST
        await release(jobs, pool, one)
    await poll(lambda: not idle_cluster.jobs(), TIMEOUT_S, COMMAND_S)


async def test_request_that_slurm_refuses_says_why_in_the_terminal(jobs, workspace):
    asked = SlurmResources(partition="nope")
    status, text = await run(jobs, shell(workspace, "true")._replace(resources=asked))
    assert (status.code, status.ended_by) == (255, EndedBy.NOT_STARTED)
    assert "invalid partition specified: nope" in text


async def expire(cluster, job, node):
    del node
    cluster.run("scontrol", "update", f"JobId={job}", "EndTime=now")


async def preempt(cluster, job, node):
    del job
    await trio.to_thread.run_sync(
        cluster.run,
        *("srun", "--partition=urgent", f"--nodelist={node}", "--exclusive", "--cpus-per-task=4"),
        "true",
    )


async def take_down(cluster, job, node):
    del job
    cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")


async def cancel(cluster, job, node):
    del node
    cluster.cancel(job)


@pytest.mark.parametrize(
    ("what", "ended_by"),
    [
        pytest.param(expire, EndedBy.TIME_LIMIT, marks=pytest.mark.exhaustive),
        (preempt, EndedBy.PREEMPTED),
        (take_down, EndedBy.NODE_FAILURE),
        (cancel, EndedBy.CANCELLED),
    ],
)
@pytest.mark.parametrize(
    ("is_shared", "line"),
    [
        (False, "sleep 1000"),
        (True, "sleep 1000"),
        # The program ends by itself when Slurm asks it to.
        (False, "trap 'exit 0' TERM; while :; do sleep 0.1; done"),
    ],
    ids=["own", "shared", "tidy"],
)
async def test_what_ended_the_job_is_told(
    what, ended_by, is_shared, line, idle_cluster, runtime_directory, workspace
):
    resources = {"cpus": 4, "session": is_shared}
    async with (
        slurm_provider(idle_cluster.place(**resources)) as provider,
        running_pool() as pool,
    ):
        line = f"echo $SLURM_JOB_ID; {line}"
        one = await start(provider, pool, shell(workspace, line)._replace(session="s"))
        await poll(lambda: "\n" in one.terminal.text.text(), TIMEOUT_S)
        node = one.terminal.remote.host
        try:
            await what(idle_cluster, one.terminal.text.text().split()[0], node)
            with trio.fail_after(TIMEOUT_S):
                status = await one.terminal.wait_exited()
        finally:
            # It may have returned by itself already.
            with contextlib.suppress(subprocess.CalledProcessError):
                idle_cluster.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        assert (status.ended_by, status.host) == (ended_by, node)
        await release(provider, pool, one)


async def test_program_runs_on_without_the_daemon_of_its_node(jobs, idle_cluster, workspace):
    async with running_pool() as pool:
        one = await start(jobs, pool, shell(workspace, "echo ready; read x; echo $x; exit 3"))
        await poll(lambda: "ready" in one.terminal.text.text(), TIMEOUT_S)
        node = one.terminal.remote.host
        idle_cluster.end(node, signal.SIGKILL)
        try:
            one.terminal.keyboard.type(b"typed\r")
            with trio.fail_after(TIMEOUT_S):
                assert (await one.terminal.wait_exited()).code == 3
            assert one.terminal.text.text().endswith("typed\n")
        finally:
            idle_cluster.start_node(node)
        await release(jobs, pool, one)


@pytest.mark.exhaustive
async def test_node_that_dies_is_told_from_an_exit(jobs, idle_cluster, workspace):
    async with running_pool() as pool:
        one = await start(jobs, pool, shell(workspace, "echo ready; sleep 1000"))
        await poll(lambda: "ready" in one.terminal.text.text(), TIMEOUT_S)
        node = one.terminal.remote.host
        idle_cluster.end_node(node)
        try:
            with trio.fail_after(TIMEOUT_S):
                status = await one.terminal.wait_exited()
            assert status.ended_by == EndedBy.NODE_FAILURE
        finally:
            idle_cluster.start_node(node)
        await release(jobs, pool, one)


@pytest.mark.exhaustive
async def test_controller_may_be_restarted_under_load(
    idle_cluster, jobs, runtime_directory, workspace
):
    job = idle_cluster.allocate("--cpus-per-task=4", "--ntasks=1")
    line = "echo ready; read x; seq 2000; exit 6"
    async with (
        slurm_provider(idle_cluster.place(job=int(job))) as provider,
        running_pool() as pool,
    ):
        found = [await start(provider, pool, shell(workspace, line)) for _ in range(6)]
        for one in found:
            await poll(lambda one=one: "ready" in one.terminal.text.text(), TIMEOUT_S)
        idle_cluster.end("slurmctld")
        new = await start(jobs, pool, shell(workspace, "exit 7"))
        for one in found:
            one.terminal.keyboard.type(b"\r")
        idle_cluster.start_controller()
        # Slurm postpones a step that is requested now.
        step = await start(provider, pool, shell(workspace, "exit 8"))
        expected = "ready\n\n" + "".join(f"{number}\n" for number in range(1, 2001))
        for one in found:
            with trio.fail_after(TIMEOUT_S):
                assert (await one.terminal.wait_exited()).code == 6
            assert one.terminal.text.text() == expected
            await release(provider, pool, one)
        with trio.fail_after(2 * TIMEOUT_S):
            assert (await new.terminal.wait_exited()).code == 7
        await release(jobs, pool, new)
        assert step.terminal.is_queued or step.terminal.exit is not None
        with trio.fail_after(TIMEOUT_S):
            assert (await step.terminal.wait_exited()).code == 8
        await release(provider, pool, step)
    assert job in idle_cluster.jobs()


def in_session(session, workspace, line="echo $SLURM_JOB_ID"):
    return shell(workspace, line)._replace(session=session)


async def test_session_has_one_allocation_that_is_released_with_it(
    idle_cluster, runtime_directory, workspace
):
    place = idle_cluster.place(session=True, cpus=1)
    async with slurm_provider(place) as provider:
        first = [(await run(provider, in_session("a", workspace)))[1] for _ in range(3)]
        _, second = await run(provider, in_session("b", workspace))
        assert len(set(first)) == 1
        assert second not in first
        assert set(idle_cluster.jobs()) == {first[0].strip(), second.strip()}
        provider.end_session("a")
        await poll(lambda: list(idle_cluster.jobs()) == [second.strip()], TIMEOUT_S, COMMAND_S)
    await poll(lambda: not idle_cluster.jobs(), TIMEOUT_S, COMMAND_S)


async def test_session_that_ends_at_once_leaves_no_allocation(
    idle_cluster, runtime_directory, workspace
):
    async with slurm_provider(idle_cluster.place(session=True, cpus=1)) as provider:
        for number in range(5):
            prepared = await provider.prepare(in_session(f"{number}", workspace))
            (salloc,) = provider._allocations._requests.values()
            provider.end_session(f"{number}")
            await provider.clean_up(prepared.token)
            with trio.fail_after(TIMEOUT_S):
                await salloc.wait()
            await poll(lambda: not os.listdir(provider._allocations.path("")), TIMEOUT_S)
            assert not idle_cluster.jobs()


async def test_session_that_ends_in_the_queue_leaves_no_allocation(
    idle_cluster, runtime_directory, workspace
):
    full = idle_cluster.fill()
    async with slurm_provider(idle_cluster.place(session=True, cpus=1)) as provider:
        prepared = await provider.prepare(in_session("a", workspace))
        await poll(lambda: "PENDING" in idle_cluster.jobs().values(), TIMEOUT_S, COMMAND_S)
        provider.end_session("a")
        await provider.clean_up(prepared.token)
        await poll(lambda: not os.listdir(provider._allocations.path("")), TIMEOUT_S)
        assert list(idle_cluster.jobs()) == [full]


async def test_kill_of_the_only_queued_terminal_releases_the_pending_allocation(
    idle_cluster, runtime_directory, workspace
):
    full = idle_cluster.fill()
    place = idle_cluster.place(session=True, cpus=1)
    async with slurm_provider(place) as provider, running_pool() as pool:
        one = await start(provider, pool, in_session("a", workspace, "echo ran >ran"))
        await poll(lambda: "PENDING" in idle_cluster.jobs().values(), TIMEOUT_S, COMMAND_S)
        one.terminal.kill(EndedBy.AGENT)
        await poll(lambda: list(idle_cluster.jobs()) == [full], TIMEOUT_S, COMMAND_S)
        idle_cluster.cancel(full)
        status, _ = await run(provider, in_session("a", workspace))
        assert status.code == 0
        await release(provider, pool, one)
    assert not (workspace / "ran").exists()


async def test_allocation_stays_while_a_terminal_of_its_session_does(
    idle_cluster, runtime_directory, workspace
):
    place = idle_cluster.place(session=True, cpus=1)
    async with slurm_provider(place) as provider, running_pool() as pool:
        one = await start(provider, pool, in_session("a", workspace, "echo ready; sleep 1000"))
        await poll(lambda: "ready" in one.terminal.text.text(), TIMEOUT_S)
        await provider._allocations.end_session("a")
        assert len(idle_cluster.jobs()) == 1
        assert one.terminal.exit is None
        await release(provider, pool, one)
        await poll(lambda: not idle_cluster.jobs(), TIMEOUT_S, COMMAND_S)


async def test_allocation_that_has_gone_is_replaced(idle_cluster, runtime_directory, workspace):
    place = idle_cluster.place(session=True, cpus=1)
    async with slurm_provider(place) as provider:
        _, first = await run(provider, in_session("a", workspace))
        idle_cluster.cancel(first.strip())
        await poll(lambda: not idle_cluster.jobs(), TIMEOUT_S, COMMAND_S)
        # The first one after that may be refused.
        await run(provider, in_session("a", workspace))
        status, second = await run(provider, in_session("a", workspace))
        assert status.code == 0
        assert second.strip() not in ("", first.strip())


async def test_allocation_of_the_settings_is_never_cancelled(slurm, cluster, workspace):
    _, text = await run(slurm, shell(workspace, "echo $SLURM_JOB_ID"))
    slurm.end_session("s")
    await run(slurm, shell(workspace, "true"))
    assert text.strip() in cluster.jobs()


async def test_jobs_of_a_killed_daemon_are_cancelled_by_the_next_one(
    idle_cluster, runtime_directory
):
    gone = Daemon.of(os.getpid(), "/run/test.sock")._replace(ticks=1)
    async with slurm_provider(idle_cluster.place(session=True), gone) as provider:
        # A daemon that is killed leaves the file and the allocation.
        allocations = provider._allocations
        job = idle_cluster.allocate("--ntasks=1")
        left = allocations.path("session-left")
        await trio.Path(left).write_text(f"salloc: Granted job allocation {job}\n")
        allocations.release_all = trio.lowlevel.checkpoint
    assert job in idle_cluster.jobs()
    async with slurm_provider(
        idle_cluster.place(session=True), Daemon.of(os.getpid(), "/run/test.sock")
    ):
        await poll(lambda: not idle_cluster.jobs(), TIMEOUT_S, COMMAND_S)


async def test_cluster_is_checked(idle_cluster, runtime_directory):
    async with slurm_provider(idle_cluster.place()) as provider:
        assert "3 nodes up" in await provider.check()
    async with slurm_provider(idle_cluster.place(partition="nope")) as provider:
        with pytest.raises(ProviderError, match="no partition nope"):
            await provider.check()


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"options": ["--no-such-option"]}, "unrecognized option '--no-such-option'"),
        ({"time": "forever"}, "Invalid --time specification"),
        ({"memory": "8GB"}, "Requested node configuration is not available"),
        ({"cpus": 100}, "Requested node configuration is not available"),
        ({"gpus": "1"}, "Invalid generic resource"),
        ({"job": 3000}, "job = 3000: there is no such job"),
    ],
)
async def test_settings_that_the_cluster_refuses_are_told(
    more, problem, idle_cluster, runtime_directory
):
    async with slurm_provider(idle_cluster.place(**more)) as provider:
        with pytest.raises(ProviderError, match=problem):
            await provider.check()


async def test_settings_are_checked_against_a_full_cluster(idle_cluster, runtime_directory):
    job = idle_cluster.fill()
    place = idle_cluster.place(cpus=4, time="10", memory="500M")
    async with slurm_provider(place) as provider:
        assert "3 nodes up" in await provider.check()
    async with slurm_provider(idle_cluster.place(job=int(job))) as provider:
        assert "3 nodes up" in await provider.check()
        idle_cluster.cancel(job)
        with pytest.raises(ProviderError, match=f"job = {job}: there is no such job"):
            await provider.check()


@pytest.mark.exhaustive
async def test_cluster_that_does_not_answer_is_told(idle_cluster, runtime_directory):
    idle_cluster.end("slurmctld")
    try:
        async with slurm_provider(idle_cluster.place()) as provider:
            with pytest.raises(ProviderError, match=r"does not answer|did not end"):
                await provider.check()
    finally:
        idle_cluster.start_controller()


async def test_variables_of_the_request_do_not_change_srun_or_those_of_the_job(
    jobs, idle_cluster, workspace
):
    requested = {
        "SRUN_PARTITION": "nope",
        "SLURM_CPUS_PER_TASK": "77",
        "SLURM_CONF": "/nope",
        "SLURMD_NODENAME": "nope",
        "LD_PRELOAD": "/x",
    }
    line = 'echo "$SRUN_PARTITION $SLURM_CPUS_PER_TASK $SLURM_CONF $SLURMD_NODENAME"'
    program = command(workspace, "/bin/sh", "-c", line, env={**os.environ, **requested})
    status, text = await run(jobs, program)
    assert status.code == 0
    partition, cpus, config, node = text.splitlines()[-1].split()
    assert (partition, cpus, config) == ("nope", "1", str(idle_cluster.config))
    assert node == status.host
