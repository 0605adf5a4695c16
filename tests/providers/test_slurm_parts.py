"""What srun's messages say, and what a node does with the text of a program."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial

import pytest
from msgspec.structs import replace

from acpterm.config.places import SlurmPlace, SlurmResources
from acpterm.host.launch.placement import check_resources
from acpterm.jsonrpc import RpcError
from acpterm.providers.slurm.commands import environment, job_options, step_options
from acpterm.providers.slurm.progress import parse, read
from acpterm.providers.slurm.step import node_argv, node_environment, wrapper_argv
from tests.support.containers import command

STARTED = """\
srun: defined options
srun: pty                 : set
srun: end of defined options
srun: jobid 3: nodes(1):`n1', cpu counts: 1(x1)
srun: launching StepId=3.0 on host n1, 1 tasks: 0
srun: launch/slurm: _task_start: Node n1, 1 tasks started
"""
NASTY = bytes(range(1, 256)).decode("utf-8", "surrogateescape")
PRINT = (
    "import os, sys; os.write(1, b'\\0'.join(map(os.fsencode, "
    "[*sys.argv[1:], os.environ['ODD'], os.environ['WITH.DOT'], os.getcwd()])).hex().encode())"
)


def test_messages_of_a_queued_job_have_its_id_and_no_node():
    found = parse("srun: job 15 queued and waiting for resources\n")
    assert (found.job, found.step, found.node, found.status) == ("15", None, None, None)
    assert found.is_own


def test_messages_of_a_step_have_its_node_and_the_status_of_its_task():
    assert parse(STARTED)[:4] == ("3", "3.0", "n1", None)
    ended = (
        "srun: launch/slurm: _task_finish: Received task exit notification for 1 task of "
        "StepId=3.0 (status=0x0300).\nsrun: error: n1: task 0: Exited with exit code 3\n"
    )
    found = parse(STARTED + ended)
    assert found.status == 0x300


def test_messages_of_older_versions_are_understood():
    assert parse("srun: launching 7.12 on host node-a.b, 1 tasks: 0\n")[:3] == (
        "7",
        "7.12",
        "node-a.b",
    )


def test_messages_of_a_step_in_a_shared_job_are_distinguished():
    found = parse(f"srun: jobid               : 11\n{STARTED.replace('3', '11')}")
    assert (found.job, found.is_own) == ("11", False)


def test_messages_say_that_the_node_failed_or_the_request_was_refused():
    found = parse(f"{STARTED}srun: error: Node failure on n1\n")
    assert found.has_lost_node
    refused = parse("srun: error: invalid partition specified: nope\nsrun: error: more\n")
    assert (refused.error, refused.step) == ("invalid partition specified: nope", None)


def test_messages_say_that_a_job_has_its_resources():
    queued = parse("srun: job 15 queued and waiting for resources\n")
    granted = parse("srun: jobid 15: nodes(1):`n0', cpu counts: 4(x1)\n")
    assert (queued.is_granted, granted.is_granted, granted.step) == (False, True, None)


def test_messages_say_that_the_step_may_have_been_ended_by_slurm():
    assert not parse(STARTED).is_stopped
    for line in ("Complete StepId=3.0+0 received", "Job step aborted: Waiting up to 4 seconds"):
        assert parse(f"{STARTED}srun: {line}\n").is_stopped


def test_end_of_many_messages_is_read(tmp_path):
    (file := tmp_path / "step").write_text(
        "srun: jobid 3: nodes(1):`n1'\nsrun: launching StepId=3.0 on host n1, 1 tasks: 0\n"
        + "srun: debug: more\n" * 10_000
        + "srun: launch/slurm: _task_finish: Received task exit notification for 1 task of "
        "StepId=3.0 (status=0x0300).\n"
    )
    found = read(str(file))
    assert (found.step, found.node, found.status) == ("3.0", "n1", 0x300)


def test_part_of_a_line_is_not_taken_for_a_line(tmp_path):
    line = "srun: debug: of srun: error: none\n"
    for size in range(len(line)):
        (file := tmp_path / "step").write_text("x" * size + "\n" + line * 10_000)
        assert read(str(file)).error is None


def test_messages_of_salloc_have_the_job():
    assert parse("salloc: Pending job allocation 5\n").job == "5"
    assert parse("salloc: Granted job allocation 6\n").job == "6"


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "busybox"])
def test_text_of_a_program_survives_every_shell(shell, tmp_path):
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"requires {shell}")
    directory = tmp_path / "sp ace'\n$x"
    directory.mkdir()
    words = ["", "a b", "'", "\\0101", "$HOME", "*", "-x", NASTY, "\n", "x" * 120_000]
    env = {**os.environ, "ODD": NASTY, "WITH.DOT": "d", "IFS": "x", "PPID": "7", "_n": "1"}
    text = node_environment(
        command(directory, sys.executable, "-c", PRINT, *words, env=env), str(directory), "id"
    )
    applet = ["sh"] if shell == "busybox" else []
    argv = [path, *applet, *node_argv(len(text))[1:]]
    done = subprocess.run(
        argv, env={"PATH": "/usr/bin:/bin", **text}, capture_output=True, check=True
    )
    expected = [*words, NASTY, "d", str(directory)]
    assert bytes.fromhex(done.stdout.decode()).split(b"\0") == [os.fsencode(w) for w in expected]


def in_directory(directory, **more):
    """Run a program with this working directory as a node does; return what it printed."""
    text = node_environment(command(directory, "pwd"), str(directory), os.urandom(16).hex())
    env = {"PATH": "/usr/bin:/bin", **text}
    argv = node_argv(len(text))
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, **more)


def test_reason_is_told_if_the_directory_cannot_be_entered(tmp_path):
    (tmp_path / "file: x").touch()
    for name, reason in [
        ("missing: x", "No such file or directory"),
        ("file: x", "Not a directory"),
        ("file: x/more", "Not a directory"),
    ]:
        done = in_directory(tmp_path / name)
        said = f"acpterm: {tmp_path}/{name}: cannot be the working directory: {reason}\n"
        assert (done.returncode, done.stderr) == (126, said)


@pytest.mark.parametrize("name", ["closed", "closed/more"])
def test_permission_is_the_reason_if_it_is_lacking(name):
    if os.geteuid() != 0:
        pytest.skip("requires root")
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        os.mkdir(f"{directory}/closed", 0)
        done = in_directory(f"{directory}/{name}", user="nobody", cwd="/")
    assert done.returncode == 126
    assert done.stderr.endswith("cannot be the working directory: Permission denied\n")


def test_mark_of_a_program_is_not_in_the_environment_of_srun(tmp_path):
    """Processes with the mark are killed with the program; srun must not be one of them."""
    text = node_environment(command(tmp_path, "env"), str(tmp_path), "0a1b")
    assert not any("ACPTERM_JOB=0a1b" in piece for piece in text.values())
    env = {"PATH": "/usr/bin:/bin", **text}
    done = subprocess.run(node_argv(len(text)), env=env, capture_output=True, text=True, check=True)
    assert "ACPTERM_JOB=0a1b" in done.stdout.splitlines()
    assert f"PWD={tmp_path}" in done.stdout.splitlines()


def test_nothing_of_a_request_is_in_the_environment_of_srun_itself():
    env = environment(SlurmPlace(config="/etc/s"), {"LD_PRELOAD": "x", "SLURM_JOB_ID": "1"})
    assert set(env) <= {"PATH", "HOME", "USER", "TERM", "LC_ALL", "SLURM_CONF"}
    assert env["SLURM_CONF"] == "/etc/s"


def test_request_takes_precedence_over_the_place():
    place = SlurmPlace(partition="gpu", cpus=2, memory="4G", gpus="1", options=["--qos=q"])
    assert job_options(place, SlurmResources(cpus=8, time="10")) == [
        "--partition=gpu",
        "--time=10",
        "--cpus-per-task=8",
        "--mem=4G",
        "--gres=gpu:1",
        "--qos=q",
    ]
    assert step_options(place, SlurmResources(memory="1G")) == [
        "--cpus-per-task=2",
        "--mem=1G",
        "--gres=gpu:1",
    ]


@pytest.mark.parametrize("value", ["-x", "a b", "", "x\n--exclusive", "$(id)"])
def test_resource_that_is_no_single_option_is_refused(value):
    with pytest.raises(ValueError, match="Slurm has no such partition"):
        SlurmResources(partition=value).check()


@pytest.mark.parametrize("value", ["1,craynetwork:4", "a100", "a100:2:3", "a/b:1", "-1", "4(S:0)"])
def test_gpus_that_would_request_anything_else_are_refused(value):
    with pytest.raises(ValueError, match="Slurm has no such gpus"):
        SlurmResources(gpus=value).check()


@pytest.mark.parametrize("value", ["1", "a100:2", "nvidia_a100-sxm4.80gb:8"])
def test_gpus_are_a_number_with_or_without_a_type(value):
    SlurmResources(gpus=value).check()


@pytest.mark.parametrize(
    ("place", "is_agents", "is_refused"),
    [
        (SlurmPlace(), True, False),
        (SlurmPlace(session=True), True, True),
        # The user's own terminals have jobs of their own.
        (SlurmPlace(session=True), False, False),
        (SlurmPlace(job=5), True, True),
        (SlurmPlace(job=5), False, True),
    ],
)
@pytest.mark.parametrize("name", ["partition", "account"])
def test_resource_that_a_step_cannot_have_is_refused(name, place, is_agents, is_refused):
    place = replace(place, requests=["partition", "account", "cpus"])
    check = partial(check_resources, "slurm:box", place, is_agents=is_agents)
    with (
        pytest.raises(RpcError, match=f"'{name}' of 'slurm:box' is that of its allocation")
        if is_refused
        else contextlib.nullcontext()
    ):
        check(SlurmResources(**{name: "x"}))
    check(SlurmResources(cpus=2))


def wrapped(tmp_path, granted, *argv, path="/usr/bin:/bin"):
    words = wrapper_argv(str(tmp_path / "log"), granted, list(argv))
    return subprocess.run(
        words, env={"PATH": path}, capture_output=True, text=True, check=False, timeout=20
    )


def test_refusal_is_shown_in_the_terminal(tmp_path):
    done = wrapped(tmp_path, "", "sh", "-c", "echo 'srun: error: no such account' >&2; exit 1")
    assert (done.returncode, done.stderr) == (1, "srun: error: no such account\n")


USAGE = [
    "unrecognized option '--nope'",
    "option '--mem' requires an argument",
    "invalid option -- 'y'",
]


@pytest.mark.parametrize("problem", USAGE)
def test_option_that_srun_does_not_know_is_shown_in_the_terminal(problem, tmp_path):
    text = f'srun: {problem}\nTry "srun --help" for more information'
    done = wrapped(tmp_path, "", "sh", "-c", 'echo "$1" >&2; exit 255', "sh", text)
    assert (done.returncode, done.stderr) == (255, f"srun: {problem}\n")
    assert parse((tmp_path / "log").read_text()).error == problem


@pytest.mark.parametrize("problem", USAGE)
def test_step_is_refused_if_salloc_does_not_know_an_option(problem, tmp_path):
    (file := tmp_path / "granted").write_text(f"salloc: {problem}\n")
    done = wrapped(tmp_path, str(file), "echo", "ran")
    assert (done.returncode, done.stdout) == (255, "")
    assert done.stderr == f"salloc: {problem}\n"


def test_messages_about_a_program_that_ran_are_not_shown(tmp_path):
    text = "srun: launching StepId=3.0 on host n1, 1 tasks: 0\nsrun: error: n1: task 0: Killed"
    done = wrapped(tmp_path, "", "sh", "-c", 'echo "$1" >&2; exit 137', "sh", text)
    assert (done.returncode, done.stderr) == (137, "")


def test_step_waits_for_its_allocation_and_gets_its_id(tmp_path):
    file = tmp_path / "granted"
    file.write_text("salloc: Pending job allocation 12\nsalloc: Granted job allocation 12\n")
    done = wrapped(tmp_path, str(file), "echo", "a b", "--jobid=JOB", "JOB", "")
    assert done.stdout == "a b --jobid=12 JOB \n"


def test_step_that_waits_for_its_allocation_starts_few_processes(tmp_path):
    (file := tmp_path / "granted").touch()
    log = tmp_path / "slept"
    (stub := tmp_path / "sleep").write_text(
        f"#!/bin/sh\necho $1 >>{log}\n[ $(wc -l <{log}) -lt 100 ] || rm -f {file}\n"
    )
    stub.chmod(0o755)
    wrapped(tmp_path, str(file), "true", path=f"{tmp_path}:/usr/bin:/bin")
    slept = log.read_text().split()
    assert (slept[0], slept[-1]) == ("0.1", "1")


def test_step_starts_in_an_allocation_that_is_granted_after_an_error(tmp_path):
    file = tmp_path / "granted"
    file.write_text(
        "salloc: error: Slurm controller not responding, sleeping and retrying.\n"
        "salloc: Granted job allocation 12\n"
    )
    done = wrapped(tmp_path, str(file), "echo", "--jobid=JOB")
    assert (done.returncode, done.stdout) == (0, "--jobid=12\n")


def test_step_is_refused_with_its_allocation(tmp_path):
    file = tmp_path / "granted"
    file.write_text("salloc: error: Job submit/allocate failed: Invalid account\n")
    done = wrapped(tmp_path, str(file), "echo", "ran")
    assert (done.returncode, done.stdout) == (255, "")
    assert "Invalid account" in done.stderr
    assert parse((tmp_path / "log").read_text()).error == (
        "Job submit/allocate failed: Invalid account"
    )
