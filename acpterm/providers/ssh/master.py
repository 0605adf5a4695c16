"""A master connection to a host, by OpenSSH's client (ControlMaster in ssh_config(5)).

`ssh` reads the user's configuration, checks the host's key and proves who the user is, exactly as
it does for the user. It is not asked to check less, and it may not ask questions, since nothing
could show them to the user. If the configuration has a `ControlPath`, and a master of the user's
listens there, that one is used: a password can be entered where the user sees the question.

A master of ours is a process in the background that no terminal owns. It outlives this worker, and
the next worker finds its socket. It ends by a request of ours, or when it has had no session for
`_PERSIST_S`.
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
# Without a setting of the user's: a host that does not answer is lost after 45 s.
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


class Master:
    """A master connection; `path` is that of its control socket.

    `is_ours` is false for a connection of the user's own, which is never ended.
    """

    def __init__(self, place: SshPlace, host: str, path: str, *, is_ours: bool = True) -> None:
        self._place: Final = place
        self._host: Final = host
        self.path: Final = path
        self.is_ours: Final = is_ours
        self.sessions = 0
        """How many sessions it has, apart from the control channel."""

    def argv(self, *options: str, command: str) -> list[str]:
        """Return the argv that runs `command`, which is for the login shell, in a new session.

        No configuration is read, since the connection exists. Should it be gone, ssh must not make
        another one: the command of the proxy ends at once.
        """
        fixed = ("-F", "none", "-S", self.path, "-e", "none")
        log = ("-o", "LogLevel=ERROR", "-o", "ProxyCommand=false")
        return ["ssh", *fixed, *log, *options, "--", self._host, command]

    def is_alive(self) -> bool:
        """Return whether the master accepts sessions. Takes some 50 µs."""
        try:
            one = socket.socket(socket.AF_UNIX)
        except OSError:
            # That says nothing about the master: ssh will find out.
            return True
        with one:
            one.setblocking(False)
            try:
                one.connect(self.path)
            except BlockingIOError:
                # It listens, and has many connections to accept.
                return True
            except OSError:
                return False
        return True

    async def start(self, more: Sequence[str]) -> None:
        """Connect; `more` are options for ssh. Raises `ProviderError`."""
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
        """End the connection and all its sessions. Does not raise."""
        if not self.is_ours:
            return
        await self._request("exit")
        _remove(self.path)

    async def forward(self, path: str, there: str) -> None:
        """Listen at the local `path`, for connections to the socket `there` on the other host.

        Raises `ProviderError`.
        """
        problem = await self._request("forward", "-L", f"{path}:{there}")
        if problem is not None:
            raise ProviderError(f"no forward to {there} on {self._host}: {problem}")

    async def cancel_forward(self, path: str, there: str) -> None:
        """Undo `forward`; do nothing if there is no such forward. Does not raise."""
        await self._request("cancel", "-L", f"{path}:{there}")

    async def _request(self, command: str, *options: str) -> str | None:
        """Send a request to the master; return why it has failed, or None."""
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


async def users_master(place: SshPlace, host: str) -> tuple[Master | None, list[str]]:
    """Return the master that the user keeps open, if any, and options for one of our own.

    Raises `ProviderError` if there is no ssh, or if it cannot read its configuration.
    """
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
        master = Master(place, host, path, is_ours=False)
        if master.is_alive():
            return master, more
    return None, more


def config_options(place: SshPlace) -> list[str]:
    """Return the option that names the configuration file of the settings, if they have one."""
    return [] if place.config is None else ["-F", place.config]


def environment() -> dict[str, str]:
    """Return the environment of our own ssh processes that connect; they belong to no terminal."""
    return {**os.environ, STARTED_DETACHED: "ssh"}


def client_of_master_environment() -> dict[str, str]:
    """Return the environment of our own ssh processes that use a connection which exists.

    ssh expands variables in some arguments, so it gets no more than it needs.
    """
    return {**client_environment({}), STARTED_DETACHED: "ssh"}


async def _run_ssh(arguments: Sequence[str], env: Mapping[str, str]) -> CompletedProcess[bytes]:
    """Run ssh, and return what it printed. Raises `ProviderError` if it cannot be started."""
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
        # The frame of a warning.
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
