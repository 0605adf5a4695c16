"""A process that has imported all of acpterm, and forks children that run `acpterm`.

`starting` runs this file as a script. Imports take most of the time of a command, and are done once
here. Each child is created with `clone3(CLONE_PARENT)`, so its parent is the requesting process,
which waits for it. The child does the same as `python -m acpterm`, with two exceptions that save
most of the rest: it does not free memory at its exit, which would copy every page that it shares
with this process, and a keeper runs in the process that was forked for it, without an exec.

Protocol, over a stream socket: the length of a request in four bytes, together with the descriptors
for stdin, stdout, stderr and `keep`; the request, encoded by marshal. The response: a pid and an
errno, one of them 0.
"""

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import locale
import marshal
import os
import pkgutil
import random
import resource
import runpy
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

ANSWER = struct.Struct("<ii")
_CLONE_CHILD_CLEARTID = 0x20_0000
_CLONE_CHILD_SETTID = 0x100_0000
_CLONE_PARENT = 0x8000
_SYS_CLONE3 = 435
_CLONE_ARGS = struct.Struct("=8Q")
# The C library stores the id of a thread within this many bytes of the start of its descriptor.
_THREAD_BYTES = 0x800
# More descriptors than are ever open here, and a number that no descriptor is requested to have.
_DESCRIPTORS = 0x1000
_UNUSED = 0x200
# The maximum number of descriptors in a request.
_FDS_MAX = 16

_libc = ctypes.PyDLL(None, use_errno=True)


def _import_all() -> None:
    import acpterm

    for module in pkgutil.walk_packages(acpterm.__path__, "acpterm."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    from acpterm.terminal.vt import emulator

    emulator.preload()


def _thread_id() -> int:
    """Return the address where the C library stores this thread's id, which differs in a child."""
    _libc.pthread_self.restype = ctypes.c_void_p
    begin = _libc.pthread_self()
    words = (ctypes.c_int * (_THREAD_BYTES // 4)).from_address(begin)
    (index,) = [n for n, value in enumerate(words) if value == threading.get_native_id()]
    return int(begin) + index * 4


def _clone(thread_id: int) -> int:
    """Fork a sibling; return its pid, or 0 in the child."""
    flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    arguments = _CLONE_ARGS.pack(flags, 0, thread_id, 0, 0, 0, 0, 0)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(_libc.syscall(_SYS_CLONE3, arguments, len(arguments)))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        number = ctypes.get_errno()
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        if pid < 0:
            raise OSError(number, os.strerror(number))
    return pid


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += channel.recv(size - len(data))
    return data


def _serve(channel: socket.socket, thread_id: int) -> tuple[dict[str, Any], list[int]]:
    """Create children; return in each of them, with its request and descriptors."""
    while True:
        head, fds, _, _ = socket.recv_fds(channel, 4, _FDS_MAX)
        if not head:
            sys.exit(0)
        request = marshal.loads(_exactly(channel, int.from_bytes(head, "little")))
        pid, error = 0, 0
        try:
            pid = _clone(thread_id)
        except OSError as failed:
            error = failed.errno or -1
        if not pid and not error:
            # The request may use its number.
            channel.detach()
            return request, fds
        for fd in fds:
            os.close(fd)
        channel.sendall(ANSWER.pack(pid, error))


def _stream(fd: int, like: io.TextIOWrapper, mode: str) -> io.TextIOWrapper:
    """Open a standard stream as Python does."""
    unbuffered = like.write_through and mode == "wb"
    binary: Any = open(fd, mode, buffering=0 if unbuffered else -1, closefd=False)  # noqa: SIM115  remains open
    getattr(binary, "raw", binary).name = like.name
    lines = like.name == "<stderr>" or (mode == "wb" and binary.isatty())
    text = io.TextIOWrapper(binary, like.encoding, like.errors, "\n" if mode == "wb" else None)
    text.reconfigure(line_buffering=lines, write_through=unbuffered)
    text.mode = mode[0]  # type: ignore[misc]  # open() sets it as well
    return text


def _become(request: dict[str, Any], fds: list[int]) -> None:
    """Set this process up like a new process that was started with the request."""
    # Move the descriptors to high numbers first, so that none is overwritten before it is moved.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, _UNUSED) for fd in fds]
    numbers = [0, 1, 2, *request["keep"]]
    os.closerange(3, _UNUSED)
    for number, fd in zip(numbers, high, strict=True):
        os.dup2(fd, number)
    os.closerange(_UNUSED, _DESCRIPTORS)
    for limit, values in request["limits"]:
        if resource.getrlimit(limit) != values:
            resource.setrlimit(limit, values)
    if request["session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    # Keep the variables that Python itself adds when it coerces the locale.
    ours = {name: value for name, value in os.environ.items() if name not in STARTED_WITH}
    os.environ.clear()
    os.environ.update({**ours, **request["env"]})
    locale.setlocale(locale.LC_CTYPE, "")
    random.seed()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, getattr(sys, name), "wb" if number else "rb")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv[1:] = request["words"]
    sys.path[0] = os.getcwd()
    gc.enable()


def _run(request: dict[str, Any]) -> None:
    from acpterm.host import daemon
    from acpterm.keeper.process.main import main

    if request["keeper"]:
        main(request["words"])
    daemon.become_keeper = _become_keeper  # type: ignore[attr-defined]  # imported there
    runpy._run_module_as_main("acpterm")  # type: ignore[attr-defined]  # as `python -m` does


def _become_keeper(sock: socket.socket, worker: int, worker_command: Sequence[str]) -> NoReturn:
    """Do what `acpterm.keeper.client.become_keeper` and its exec do."""
    from acpterm.keeper.process.main import main

    sock.set_inheritable(True)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.get_inheritable(int(name)):
                os.close(int(name))
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    arguments = ["supervise", str(sock.fileno()), str(worker), "--", *worker_command]
    _exit(_status_of(lambda: main(arguments)))


def _status_of(run: Callable[[], None]) -> int:
    """Run to the end; return the exit status."""
    try:
        run()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        return end.code or 0
    return 0


def _exit(status: int) -> NoReturn:
    """Exit as Python does, but free no memory."""
    threading._shutdown()  # type: ignore[attr-defined]  # the stubs leave it out
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(status)  # Python reports the error.
    os._exit(status & 0xFF)


if __name__ == "__main__":
    STARTED_WITH = set(marshal.loads(bytes.fromhex(sys.argv[2])))
    # As with `-m`, instead of the directory of this file.
    sys.path[0] = os.getcwd()
    _import_all()
    # SIGINT is for the children, in which it is pending until they are set up.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    gc.collect()
    gc.disable()
    gc.freeze()
    _request, _fds = _serve(socket.socket(fileno=int(sys.argv[1])), _thread_id())
    _become(_request, _fds)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _exit(_status_of(lambda: _run(_request)))
