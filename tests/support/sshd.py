"""An sshd on loopback with keys and settings of the test's own."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from acpterm.config.places import SshPlace
from tests.support.daemon import BlockingDaemon

ACPTERM = str(Path(sys.executable).with_name("acpterm"))
"""The path of acpterm on this machine, which is also the other host."""
SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")

_SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {directory}/host_key
PidFile none
AuthorizedKeysFile {directory}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
PrintMotd no
PrintLastLog no
SetEnv HOME={directory}/home XDG_RUNTIME_DIR={directory}/run
"""

_CLIENT = """\
Host box
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {directory}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {directory}/known_hosts
  StrictHostKeyChecking yes
"""


class Sshd:
    """A running sshd; `directory` has its keys and settings, and the client's."""

    def __init__(self, directory: Path, *more: str) -> None:
        self.directory = directory
        (directory / "home").mkdir(exist_ok=True)
        (directory / "run").mkdir(exist_ok=True, mode=0o700)
        for name in ("host_key", "user_key"):
            new_key(directory / name)
        shutil.copy(directory / "user_key.pub", directory / "authorized_keys")
        self.port = _free_port()
        values = {"port": self.port, "directory": directory, "user": _user()}
        self._settings = directory / "sshd_config"
        self._settings.write_text(_SERVER.format(**values) + "".join(f"{line}\n" for line in more))
        self.config = directory / "config"
        self.config.write_text(_CLIENT.format(**values))
        self.know("host_key")
        self._process: subprocess.Popen[bytes] | None = None

    def know(self, key: str) -> None:
        """Make `key` the host key that the client expects."""
        words = (self.directory / f"{key}.pub").read_text().split()[:2]
        hosts = self.directory / "known_hosts"
        hosts.write_text(f"[127.0.0.1]:{self.port} {' '.join(words)}\n")

    def place(self, **more: object) -> SshPlace:
        """Return this server as a place of the settings; `more` are further fields."""
        values: dict[str, object] = {"host": "box", "config": str(self.config), **more}
        return SshPlace(**values)  # type: ignore[arg-type]

    def start(self) -> None:
        """Start the server, and wait until it listens."""
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)
        assert SSHD is not None
        with (self.directory / "log").open("ab") as log:
            argv = [SSHD, "-D", "-e", "-f", str(self._settings)]
            self._process = subprocess.Popen(argv, stderr=log, start_new_session=True)
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._process.poll() is None, (self.directory / "log").read_text()

    def connections(self) -> list[psutil.Process]:
        """Return the processes that serve connections, without the listener."""
        if self._process is None:
            return []
        found = []
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if process.name() == "sshd":
                    found.append(process)
        return found

    def cut(self) -> None:
        """Kill the processes that serve connections."""
        for process in self.connections():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def go_away(self) -> None:
        """End the listener, and kill the processes that serve connections."""
        connections = self.connections()
        self.stop()
        for process in connections:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def stop(self) -> None:
        """End the listener; its connections stay."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()
            self._process = None

    def argv(self, *options: str) -> list[str]:
        """Return the argv of an `ssh` to this server, without a command."""
        return ["ssh", "-F", str(self.config), "-o", "BatchMode=yes", *options, "box"]

    def client(self, *options: str) -> int:
        """Run `ssh` with options; return its exit status."""
        argv = self.argv(*options)
        return subprocess.run(argv, check=False, stderr=subprocess.DEVNULL).returncode


def new_key(path: Path) -> None:
    """Make a new pair of keys."""
    path.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


def login_shell(argv: list[str]) -> str:
    """Return the server's setting that makes `argv` the login shell."""
    return f'ForceCommand exec {shlex.join(argv)} -c "$SSH_ORIGINAL_COMMAND"'


@contextmanager
def running(directory: Path, *more: str) -> Iterator[Sshd]:
    """Run a server during the block; `more` are lines of its settings. Ends its connections."""
    server = Sshd(directory, *more)
    server.start()
    try:
        yield server
    finally:
        server.go_away()


@contextmanager
def remote_daemon(server: Sshd) -> Iterator[BlockingDaemon]:
    """Run a daemon during the block, at the default socket of users of the server."""
    running_daemon = BlockingDaemon(server.directory / "run" / "acpterm")
    try:
        yield running_daemon
    finally:
        running_daemon.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name
