"""Start `acpterm` as a process quickly: forked from a process that has imported it (`ready`).

Thorough tests (`depth`) start a new Python instead, and so does `start` for options that `Started`
does not support and for other locales.
"""

import atexit
import inspect
import marshal
import os
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from acpterm.keeper import client
from tests.support.depth import THOROUGH
from tests.support.ready import ANSWER

ACPTERM = [sys.executable, "-m", "acpterm"]
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
_KNOWN = {"cwd", "env", "stdin", "stdout", "stderr", "start_new_session", "pass_fds"}
NEW_PYTHON = THOROUGH or sys.platform != "linux"


def start(words: list[str], **popen: Any) -> "subprocess.Popen[bytes]":
    """Start `acpterm` with arguments; `popen` is as for `subprocess.Popen`."""
    key = _locale(popen.get("env") or os.environ)
    if NEW_PYTHON or popen.keys() - _KNOWN or key not in _LOCALES:
        return subprocess.Popen([*ACPTERM, *words], **popen)
    return Started(words, **popen)


def _locale(env: Any) -> tuple[tuple[str, str], ...]:
    """Return the variables that Python reads only when it starts."""
    locale = next((env[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if env.get(name)), "")
    names = sorted(name for name in env if name == "TZ" or name.startswith(("PYTHON", "LD_")))
    return ("", locale), *((name, env[name]) for name in names)


_LOCALES = {_locale(os.environ), _locale({**os.environ, "LC_ALL": "C.UTF-8"})}


class _Ready:
    """A process that has imported acpterm, for one locale."""

    def __init__(self, env: dict[str, str]) -> None:
        ours, theirs = socket.socketpair()
        self._channel = ours
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    str(Path(__file__).with_name("ready.py")),
                    str(theirs.fileno()),
                    marshal.dumps(sorted(env)).hex(),
                ],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def close(self) -> None:
        self._channel.close()
        self._process.wait()

    def child(self, request: dict[str, Any], fds: list[int]) -> int:
        """Request a child; return its pid."""
        data = marshal.dumps(request)
        with self._lock:
            head = len(data).to_bytes(4, "little")
            socket.send_fds(self._channel, [head], fds)
            self._channel.sendall(data)
            answer = self._channel.recv(ANSWER.size, socket.MSG_WAITALL)
        pid, error = ANSWER.unpack(answer)
        if error:
            raise OSError(error, os.strerror(error))
        return int(pid)


_ready: dict[tuple[tuple[str, str], ...], _Ready] = {}
_lock = threading.Lock()


class Started(subprocess.Popen[bytes]):
    """A process of `acpterm` that was forked by a ready process."""

    def __init__(
        self,
        words: list[str],
        *,
        keeper: bool = False,
        start_new_session: bool = False,
        **popen: Any,
    ) -> None:
        self._keeper = keeper
        self._session = start_new_session
        super().__init__([*ACPTERM, *words], **popen)

    def _execute_child(self, *arguments: Any) -> None:
        """Start the child as `Popen` does, but from a ready process."""
        # The stubs have neither this method nor the one below.
        takes = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
        given = takes.bind(self, *arguments).arguments
        env = dict(os.environ if given["env"] is None else given["env"])
        key = _locale(env)
        with _lock:
            if key not in _ready:
                _ready[key] = _Ready(env)
        request = {
            "words": [os.fsdecode(word) for word in given["args"][len(ACPTERM) :]],
            "env": env,
            "cwd": os.fspath(given["cwd"] or os.getcwd()),
            "umask": _umask(),
            "session": self._session,
            "keeper": self._keeper,
            "keep": list(given["pass_fds"]),
            "limits": [(limit, resource.getrlimit(limit)) for limit in _LIMITS],
        }
        ends = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        fds = [standard if end == -1 else end for standard, end in enumerate(ends)]
        fds += given["pass_fds"]
        self.pid = _ready[key].child(request, fds)
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))  # type: ignore[attr-defined]  # as above


_start_embedded = client._start_embedded
_KEEPER_COMMAND = client.keeper_command()


def start_embedded_keeper() -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """Start a keeper as `acpterm.keeper.client` does, but from a ready process."""
    if client.keeper_command() != _KEEPER_COMMAND or os.getuid() != os.geteuid():
        return _start_embedded()
    ours, theirs = client.worker_pair()
    with theirs:
        number = theirs.fileno()
        try:
            process = Started(
                ["embedded", str(number), str(os.getpid())],
                keeper=True,
                pass_fds=(number,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
    return process, ours


def _umask() -> int:
    status = Path("/proc/thread-self/status").read_text()
    return int(status.split("Umask:")[1].split()[0], 8)
