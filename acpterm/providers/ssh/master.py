"""One master connection to a host, by OpenSSH's client (ControlMaster in ssh_config(5)).

`ssh` reads the user's configuration, checks the host's key and authenticates the user, exactly as
when the user runs it. No check is disabled. `ssh` may not ask questions, since the user could not
see them. If the configuration has a `ControlPath`, and the user has a master that listens there,
acpterm uses this master: so the user can enter a password when starting it.

A master that acpterm starts is a background process that belongs to no terminal. It outlives this
worker, and the next worker finds its socket. It ends when `stop` requests it, or when it has had no
session for `_PERSIST_S` seconds.
"""

import contextlib
import math
import os
import re
import shutil
import socket
from collections.abc import Mapping, Sequence
from subprocess import DEVNULL, CompletedProcess
from typing import Final

import trio

from acpterm.config.places import SshPlace
from acpterm.providers.place_client import client_environment
from acpterm.providers.provider import ProviderError
from acpterm.pty.tracking.marks import STARTED_DETACHED

_PERSIST_S: Final = 60
# If the user has not set ServerAliveInterval: ssh sends a message after this time of silence, and
# closes the connection when three are not answered, after 45 s.
_ALIVE_S: Final = 15
_TEXT_MAX: Final = 400
_EXIT_TIMEOUT_S: Final = 2.0
_NO_QUESTION: Final = (
    "ssh must be able to log in without a question: add the key to the agent of the daemon's "
    "SSH_AUTH_SOCK, or keep a connection of your own open (ControlPath in ssh_config)"
)
_ADVICE: Final = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host has another key than before: find out why, then correct known_hosts",
    ),
    ("Host key verification failed", "connect once with ssh yourself, and check the host's key"),
    ("Permission denied", _NO_QUESTION),
    ("Could not resolve", "correct host in the settings, or HostName in your ssh configuration"),
)


class ControlMaster:
    """A master connection to `host` with the control socket `path`."""

    # If not `is_ours`, the user has started it, and acpterm never ends it.

    def __init__(self, place: SshPlace, host: str, path: str, *, is_ours: bool = True) -> None:
        self._place: Final = place
        self._host: Final = host
        self.path: Final = path
        self.is_ours: Final = is_ours
        self.sessions = 0
        """The number of sessions in the connection, without that of the control channel."""

    def argv(self, *options: str, command: str) -> list[str]:
        """Return the argv of ssh that runs `command` in a new session of the connection."""
        # If the connection is lost, ssh must fail instead of connecting by itself:
        # ProxyCommand=false.
        fixed = ("-F", "none", "-S", self.path, "-e", "none")
        log = ("-o", "LogLevel=ERROR", "-o", "ProxyCommand=false")
        return ["ssh", *fixed, *log, *options, "--", self._host, command]

    def is_alive(self) -> bool:
        """Return whether the master listens on its socket; True if that cannot be found out."""
        # Also for some time after its connection was lost silently. Takes about 50 µs.
        try:
            one = socket.socket(socket.AF_UNIX)
        except OSError:
            # Perhaps no descriptor is free here. The master may be alive: ssh will find out.
            return True
        with one:
            one.setblocking(False)
            try:
                one.connect(self.path)
            except BlockingIOError:
                # The master listens, but its queue of connections is full.
                return True
            except OSError:
                return False
        return True

    async def start(self, more: Sequence[str]) -> None:
        """Start the master with more `-o` options. Raises `ProviderError`, as on a timeout."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        log = f"{self.path}.log"
        seconds = math.ceil(self._place.connect_timeout)
        options = ["BatchMode=yes", f"ControlPersist={_PERSIST_S}", f"ConnectTimeout={seconds}"]
        options += ["ClearAllForwardings=yes", "RemoteCommand=none", "RequestTTY=no", *more]
        argv = ["ssh", *config_options(self._place), "-M", "-S", self.path, "-N", "-f", "-E", log]
        argv += [word for option in options for word in ("-o", option)]
        try:
            with trio.fail_after(self._place.connect_timeout + 1):
                done = await trio.run_process(
                    [*argv, "--", self._host],
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=DEVNULL,
                    env=environment(),
                    start_new_session=True,
                    check=False,
                )
        except OSError as error:
            text = f"ssh cannot be started: {error}"
        except trio.TooSlowError:
            text = f"it did not answer within {self._place.connect_timeout:g} s"
        else:
            if done.returncode == 0:
                _remove(log)
                return
            text = _read(log) or f"ssh exited with {done.returncode}"
            if "timed out" in text:
                text = f"it did not answer within {seconds} s: {text}"
        _remove(log)
        raise ProviderError(f"no connection to {self._host}: {_with_advice(text)}")

    async def stop(self) -> None:
        """End the connection and its sessions, if it is ours. Does not raise."""
        if not self.is_ours:
            return
        await self._request("exit")
        _remove(self.path)

    async def forward(self, path: str, there: str) -> None:
        """Forward clients of the local socket `path` to `there`. Raises `ProviderError`."""
        problem = await self._request("forward", "-L", f"{path}:{there}")
        if problem is not None:
            raise ProviderError(f"no forward to {there} on {self._host}: {problem}")

    async def cancel_forward(self, path: str, there: str) -> None:
        """Undo `forward` with the same arguments. Idempotent; does not raise."""
        await self._request("cancel", "-L", f"{path}:{there}")

    async def _request(self, command: str, *options: str) -> str | None:
        """Send a request (`ssh -O command`) to the master; return None, or why it failed."""
        fixed = ("-F", "none", "-S", self.path, "-O", command)
        with trio.move_on_after(_EXIT_TIMEOUT_S):
            argv = [*fixed, *options, "--", self._host]
            try:
                done = await _run_ssh(argv, client_of_master_environment())
            except ProviderError as error:
                return str(error)
            text = os.fsdecode(done.stderr).strip()[-_TEXT_MAX:]
            return None if done.returncode == 0 else text or f"ssh exited with {done.returncode}"
        return "no answer"


async def users_master(place: SshPlace, host: str) -> tuple[ControlMaster | None, list[str]]:
    """Return the user's own master, if one listens, and options to start another one."""
    if shutil.which("ssh") is None:
        raise ProviderError("there is no ssh on the PATH: install openssh-client")
    try:
        with trio.fail_after(place.connect_timeout):
            argv = [*config_options(place), "-G", "--", host]
            done = await _run_ssh(argv, environment())
    except trio.TooSlowError:
        raise ProviderError("ssh -G did not end: see Match exec in the ssh configuration") from None
    if done.returncode != 0:
        text = os.fsdecode(done.stderr).strip()
        raise ProviderError(f"no connection to {host}: {text[-_TEXT_MAX:]}")
    pairs = (line.partition(" ") for line in os.fsdecode(done.stdout).splitlines())
    found = {name: value for name, _, value in pairs}
    more = (
        [] if found.get("serveraliveinterval", "0") != "0" else [f"ServerAliveInterval={_ALIVE_S}"]
    )
    path = found.get("controlpath", "none")
    if path != "none":
        master = ControlMaster(place, host, path, is_ours=False)
        if master.is_alive():
            return master, more
    return None, more


def config_options(place: SshPlace) -> list[str]:
    """Return the option of ssh that selects the configuration file of the settings."""
    return [] if place.config is None else ["-F", place.config]


def environment() -> dict[str, str]:
    """Return the environment of an ssh process that connects, marked as no orphan of a terminal."""
    return {**os.environ, STARTED_DETACHED: "ssh"}


def client_of_master_environment() -> dict[str, str]:
    """Return the environment of an ssh process that uses a master, marked likewise."""
    # No other variables: ssh replaces `${NAME}` in arguments, and the other host chooses one of
    # them.
    return {**client_environment({}), STARTED_DETACHED: "ssh"}


async def _run_ssh(arguments: Sequence[str], env: Mapping[str, str]) -> CompletedProcess[bytes]:
    try:
        return await trio.run_process(
            ["ssh", *arguments],
            stdin=DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            env=env,
            check=False,
        )
    except OSError as error:
        raise ProviderError(f"ssh cannot be started: {error}") from error


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path, errors="replace") as file:
        lines = (line.strip() for line in file)
        # Leave out the lines of `@` around a warning.
        return " ".join(line for line in lines if not re.fullmatch(r"[@\s]*", line))
    return ""


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _with_advice(text: str) -> str:
    advice = next((advice for words, advice in _ADVICE if words in text), None)
    if len(text) > _TEXT_MAX:
        text = f"{text[: _TEXT_MAX // 2]} … {text[-_TEXT_MAX // 2 :]}"
    return text if advice is None else f"{text.rstrip('.')}: {advice}"
