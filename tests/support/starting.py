"""Starts `acpterm` as a process, quickly: forked by a process that has imported it (`ready`).

After `start_afresh`, each process is a new Python, as it is for users. A process is always a new
Python if it has an option that `Started` does not know, or another locale than the tests.
"""

import atexit
import contextlib
import ctypes
import inspect
import marshal
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acpterm.keeper import startup
from acpterm.pty.tracking import marks
from tests.support.ready import ANSWER

ACPTERM = [sys.executable, "-m", "acpterm"]
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})
_KNOWN = {"cwd", "env", "stdin", "stdout", "stderr", "start_new_session", "pass_fds"}
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_libc = ctypes.CDLL(None)


class _Mode:
    """How processes are started: as a new Python (`is_afresh`), or forked by a ready process."""

    is_afresh = sys.platform != "linux"


def start_afresh(*, wanted: bool) -> None:
    """From now on, start each process as a new Python if `wanted`, else fork a ready process."""
    _Mode.is_afresh = wanted or sys.platform != "linux"


def start(words: list[str], **how: Any) -> "subprocess.Popen[bytes]":
    """Start `acpterm` with the arguments `words`; `how` is as for `subprocess.Popen`."""
    key = _locale(how.get("env") or os.environ)
    if _Mode.is_afresh or how.keys() - _KNOWN or key not in _LOCALES:
        return subprocess.Popen([*ACPTERM, *words], **how)
    return Started(words, **how)


def _locale(env: Any) -> tuple[tuple[str, str], ...]:
    """Return the variables of `env` that take effect only when Python starts, and the locale."""
    found = next((env[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if env.get(name)), "")
    names = sorted(name for name in env if name == "TZ" or name.startswith(("PYTHON", "LD_")))
    return ("", found), *((name, env[name]) for name in names)


_LOCALES = {_locale(os.environ), _locale({**os.environ, "LC_ALL": "C.UTF-8"})}


class _Ready:
    """A process that runs `ready` for one locale, either for keepers or for all else."""

    def __init__(self, env: dict[str, str], *, keeper: bool) -> None:
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
                    "keeper" if keeper else "",
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

    def child(self, asked: dict[str, Any], fds: list[int]) -> int:
        """Request a child for the request `asked` with the descriptors `fds`; return its pid."""
        request = marshal.dumps(asked)
        with self._lock, _subreaper():
            head = len(request).to_bytes(4, "little")
            socket.send_fds(self._channel, [head], fds)
            self._channel.sendall(request)
            answer = self._channel.recv(ANSWER.size, socket.MSG_WAITALL)
        pid, error = ANSWER.unpack(answer)
        if error:
            raise OSError(error, os.strerror(error))
        return int(pid)


def stop_adopting() -> None:
    """Stop adopting orphans, which an earlier test may have begun: init adopts and reaps them."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@contextlib.contextmanager
def _subreaper() -> Iterator[None]:
    """Make this process a subreaper during the block: it adopts its descendants' orphans."""
    was_set = ctypes.c_int()
    _libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(was_set), 0, 0, 0)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, was_set.value, 0, 0, 0)


_ready: dict[tuple[bool, tuple[tuple[str, str], ...]], _Ready] = {}
_lock = threading.Lock()


class Started(subprocess.Popen[bytes]):
    """A process of `acpterm` that was forked by a `ready` process."""

    def __init__(
        self,
        words: list[str],
        *,
        keeper: bool = False,
        start_new_session: bool = False,
        **how: Any,
    ) -> None:
        self._keeper = keeper
        self._session = start_new_session
        super().__init__([*ACPTERM, *words], **how)

    def _execute_child(self, *arguments: Any) -> None:
        """Replace the method of `Popen` that starts the child: let a `ready` process fork it."""
        # Neither this method nor the overridden one below is in the type stubs.
        takes = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
        given = takes.bind(self, *arguments).arguments
        env = dict(os.environ if given["env"] is None else given["env"])
        key = self._keeper, _locale(env)
        with _lock:
            if key not in _ready:
                # Marks of a terminal would be found in /proc for all later children, too.
                unmarked = {n: v for n, v in env.items() if n not in (marks.TERMINAL, marks.DAEMON)}
                _ready[key] = _Ready(unmarked, keeper=self._keeper)
        asked = {
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
        self.pid = _ready[key].child(asked, fds)
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))  # type: ignore[attr-defined]  # as above


_start_embedded = startup._start_embedded
_KEEPER_COMMAND = startup.keeper_command()


def start_embedded_keeper() -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """Start a keeper as `acpterm.keeper.startup` does, but forked by a `ready` process."""
    if (
        _Mode.is_afresh
        or startup.keeper_command() != _KEEPER_COMMAND
        or os.getuid() != os.geteuid()
    ):
        return _start_embedded()
    ours, theirs = startup.worker_pair()
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
