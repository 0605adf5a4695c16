"""A Slurm cluster on loopback: munged, slurmctld and several slurmd, with files of the test's own.

All daemons run in the foreground, as children of the tests, and are ended by pid.
"""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from acpterm.config.places import SlurmPlace
from tests.support.polling import poll_blocking

_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc")
MISSING = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]

_SETTINGS = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
SlurmdTimeout=6
InactiveLimit=0
KillWait=2
PropagateResourceLimits=NONE
SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF State=UP
"""
CPUS = 4
# A slurmd that cannot report the end of a job retries for minutes before it ends.
_END_TIMEOUT_S = 10


class Slurm:
    """A cluster of `count` nodes, named `n0` and so on, each with `cpus` CPUs.

    `directory` has its files.
    """

    def __init__(self, directory: Path, count: int, cpus: int = CPUS) -> None:
        self.directory = directory
        self.nodes = [f"n{number}" for number in range(count)]
        self.config = directory / "slurm.conf"
        ports = free_ports(count + 1)
        lines = [
            f"NodeName={name} NodeHostname={_host()} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} "
            "RealMemory=1000"
            for name, port in zip(self.nodes, ports[1:], strict=True)
        ]
        self.config.write_text(
            _SETTINGS.format(
                host=_host(),
                controller=ports[0],
                user=pwd.getpwuid(os.geteuid()).pw_name,
                directory=directory,
                nodes="\n".join(lines),
            )
        )
        (directory / "state").mkdir()
        (directory / "munge").mkdir(mode=0o700)
        key = directory / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        self._env = {**os.environ, "SLURM_CONF": str(self.config), "PATH": _PATH}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all daemons, and wait until all nodes can be used."""
        munge = self.directory / "munge"
        files = ("key", "socket", "pid", "log", "seed")
        names = (f"--{'log' if name == 'log' else name}-file={munge / name}" for name in files)
        options = [name.replace("--socket-file", "--socket") for name in names]
        self._start("munged", "--foreground", "--force", "--num-threads=2", *options)
        poll_blocking((munge / "socket").exists)
        self.start_controller()
        for name in self.nodes:
            self.start_node(name)
        poll_blocking(lambda: set(self.states()) == {"idle"} or None, 60, 0.1)

    def start_controller(self) -> None:
        self._start("slurmctld", "-D")

    def start_node(self, name: str) -> None:
        (self.directory / f"spool-{name}").mkdir(exist_ok=True)
        self._start("slurmd", "-D", "-N", name, label=name)

    def _start(self, program: str, *options: str, label: str | None = None) -> None:
        path = shutil.which(program, path=_PATH)
        assert path is not None
        with (self.directory / "daemons.log").open("ab") as log:
            self._daemons[label or program] = subprocess.Popen(
                [path, *options], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._env
            )

    def end(self, label: str, number: int = signal.SIGTERM) -> None:
        """End a daemon: `slurmctld`, or the slurmd of a node by the node's name."""
        daemon = self._daemons.pop(label)
        daemon.send_signal(number)
        _wait_or_kill(daemon)

    def end_node(self, name: str) -> None:
        """Kill a node: its slurmd, the supervisors of its steps, and the steps' programs."""
        self.end(name, signal.SIGKILL)
        for step in self.steps(f"slurmd-{name}.log"):
            # Kill the supervisor of a step first: it must not report how the programs ended.
            for process in [step, *step.children(recursive=True)]:
                process.kill()

    def steps(self, log: str = "slurmd-") -> list[psutil.Process]:
        """Return the processes that supervise steps, which outlive slurmd."""
        found = []
        for process in psutil.process_iter():
            try:
                is_step = process.name().startswith("slurmstepd")
                if is_step and any(
                    file.startswith(f"{self.directory}/{log}") for file in _files(process.pid)
                ):
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def stop(self) -> None:
        """Cancel all jobs, and end all daemons."""
        try:
            if "slurmctld" in self._daemons:
                self.cancel_all()
        finally:
            # In this order: a daemon needs some of the later ones while it ends.
            for labels in (self.nodes, ["slurmctld"], ["munged"]):
                found = [self._daemons.pop(label) for label in labels if label in self._daemons]
                for daemon in found:
                    daemon.terminate()
                for daemon in found:
                    _wait_or_kill(daemon)
            for step in self.steps():
                step.kill()

    def run(self, *words: str) -> str:
        """Run a command of Slurm; return what it printed."""
        done = subprocess.run(
            words, check=True, env=self._env, capture_output=True, text=True, timeout=60
        )
        return done.stdout.strip()

    def states(self) -> list[str]:
        """Return the states of the nodes."""
        try:
            return self.run("sinfo", "--noheader", "--Node", "--format=%T", "-pmain").split()
        except subprocess.CalledProcessError:
            return []

    def jobs(self) -> dict[str, str]:
        """Return the states of the jobs that have not ended, by their ids."""
        lines = self.run("squeue", "--noheader", "--format=%i %T").splitlines()
        return {job: state for job, state in map(str.split, lines) if state != "COMPLETING"}

    def allocate(self, *options: str) -> str:
        """Make an allocation; return the id of its job."""
        self.run("salloc", "--no-shell", "--quiet", "--job-name=tests", *options)
        return self.run("squeue", "--noheader", "--name=tests", "--format=%i").split()[-1]

    def fill(self) -> str:
        """Allocate all nodes; return the id of the job."""
        return self.allocate(f"--nodes={len(self.nodes)}", "--exclusive")

    def cancel(self, job: str) -> None:
        self.run("scancel", job)

    def cancel_all(self) -> None:
        """Cancel all jobs, and wait until all nodes can be used."""
        for job in self.jobs():
            self.cancel(job)
        poll_blocking(lambda: set(self.states()) == {"idle"} or None, 60, 0.1)

    def place(self, **more: object) -> SlurmPlace:
        """Return this cluster as a place of the settings; `more` are further fields."""
        return SlurmPlace(config=str(self.config), **more)  # type: ignore[arg-type]


@contextmanager
def running(directory: Path, count: int = 3, cpus: int = CPUS) -> Iterator[Slurm]:
    """Run a cluster during the block."""
    slurm = Slurm(directory, count, cpus)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _wait_or_kill(daemon: subprocess.Popen[bytes]) -> None:
    """Wait until a daemon that was signalled has ended; kill it if that takes long."""
    try:
        daemon.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _host() -> str:
    return socket.gethostname().partition(".")[0]


def _files(pid: int) -> list[str]:
    with os.scandir(f"/proc/{pid}/fd") as entries:
        return [os.readlink(entry.path) for entry in entries]
