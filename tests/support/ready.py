"""A process that has imported acpterm, and forks children that become `acpterm`.

`starting` runs this script in two processes: one for keepers, which imports only what they need,
and one for all other commands. The imports take most of the time of a command; here they are done
once. Modules that few commands need (`_RARE`) are not imported here, since the fork of a larger
process takes longer.

Each child is forked by an intermediate process, which then exits. So the orphan becomes a child of
the process that has requested it, which is a subreaper at that moment, and which waits for it.

A child does what `python -m acpterm` does, with two exceptions, which save most of the time: it
frees no memory at its exit, which would copy every page that it shares with this process; and the
keeper of a daemon, or an embedded keeper, continues in the forked process, without an exec.

Wire, over a stream socket: four bytes with the length of a request, together with the descriptors
that become stdin, stdout and stderr, and then those of `keep`; the request, by marshal. The
response: a pid and an errno, one of which is 0.
"""

import atexit
import contextlib
import errno
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
# Above the number of descriptors that are ever open here, and above all requested numbers.
_DESCRIPTORS = 0x1000
_UNUSED = 0x200
# Packages that need as much memory as all others together.
_RARE = ("acpterm.cli.mcp", "acpterm.mcp", "acpterm.web")
# The maximum number of descriptors of a request.
_FDS_MAX = 16


def _import_all() -> None:
    import acpterm

    for found in pkgutil.walk_packages(acpterm.__path__, "acpterm."):
        if not found.name.endswith("__main__") and not found.name.startswith(_RARE):
            importlib.import_module(found.name)
    from acpterm.terminal.vt import emulator

    emulator.preload()


def _fork() -> int:
    """Fork a child that is an orphan at once; return its pid, or 0 in the child."""
    reads, writes = os.pipe()
    parent = os.fork()
    if parent:
        os.close(writes)
        with open(reads, "rb") as pipe:
            pid = int(pipe.read() or 0)
        os.waitpid(parent, 0)
        if not pid:
            raise OSError(errno.EAGAIN, "the second fork failed")
        return pid
    try:
        parent = os.getpid()
        if pid := os.fork():
            os.write(writes, str(pid).encode())
            os._exit(0)
    except OSError:
        os._exit(1)
    os.close(reads)
    os.close(writes)
    while os.getppid() == parent:
        os.sched_yield()
    return 0


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += channel.recv(size - len(data))
    return data


def _serve(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Serve requests on `channel` by forking children; exit at the end of the stream.

    Return only in each child, with its request and the received descriptors.
    """
    while True:
        head, fds, _, _ = socket.recv_fds(channel, 4, _FDS_MAX)
        if not head:
            sys.exit(0)
        asked = marshal.loads(_exactly(channel, int.from_bytes(head, "little")))
        pid, error = 0, 0
        try:
            pid = _fork()
        except OSError as failed:
            error = failed.errno or -1
        if not pid and not error:
            # Free the descriptor's number, which the child may need for another descriptor.
            channel.detach()
            return asked, fds
        for fd in fds:
            os.close(fd)
        channel.sendall(ANSWER.pack(pid, error))


def _stream(fd: int, like: io.TextIOWrapper, mode: str) -> io.TextIOWrapper:
    """Open `fd` as Python opens stdin, stdout or stderr; name and encoding are those of `like`."""
    at_once = like.write_through and mode == "wb"
    binary: Any = open(fd, mode, buffering=0 if at_once else -1, closefd=False)  # noqa: SIM115  it stays open to the end
    getattr(binary, "raw", binary).name = like.name
    lines = like.name == "<stderr>" or (mode == "wb" and binary.isatty())
    text = io.TextIOWrapper(binary, like.encoding, like.errors, "\n" if mode == "wb" else None)
    text.reconfigure(line_buffering=lines, write_through=at_once)
    text.mode = mode[0]  # type: ignore[misc]  # open() sets it as well
    return text


def _become(asked: dict[str, Any], fds: list[int]) -> None:
    """Make this process what the request `asked` describes, with the received descriptors `fds`."""
    # Move the descriptors to high numbers first, so that dup2 overwrites none that is still needed.
    numbers = [0, 1, 2, *asked["keep"]]
    unused = max(_UNUSED, *numbers) + 1
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, unused) for fd in fds]
    os.closerange(3, unused)
    for number, fd in zip(numbers, high, strict=True):
        os.dup2(fd, number)
    os.closerange(unused, _DESCRIPTORS)
    for limit, values in asked["limits"]:
        if resource.getrlimit(limit) != values:
            resource.setrlimit(limit, values)
    if asked["session"]:
        os.setsid()
    os.chdir(asked["cwd"])
    os.umask(asked["umask"])
    # Keep the variables that Python itself has added when it coerced the locale.
    ours = {name: value for name, value in os.environ.items() if name not in STARTED_WITH}
    os.environ.clear()
    os.environ.update({**ours, **asked["env"]})
    locale.setlocale(locale.LC_CTYPE, "")
    random.seed()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _stream(number, getattr(sys, name), "wb" if number else "rb")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv[1:] = asked["words"]
    sys.path[0] = os.getcwd()
    gc.enable()


def _run(asked: dict[str, Any]) -> None:
    if asked["keeper"]:
        from acpterm.keeper.process.main import main

        main(asked["words"])
    from acpterm.host import start_keeper

    start_keeper.become_keeper = _become_keeper  # type: ignore[attr-defined]  # imported there
    runpy._run_module_as_main("acpterm")  # type: ignore[attr-defined]  # as `python -m` does


def _become_keeper(sock: socket.socket, worker: int, worker_command: Sequence[str]) -> NoReturn:
    """Do the same as `acpterm.keeper.startup.become_keeper`, without an exec."""
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
    """Call `run` to its end; return the exit status that Python would exit with."""
    try:
        run()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        return end.code or 0
    return 0


def _exit(status: int) -> NoReturn:
    """Exit like Python, but without freeing memory."""
    threading._shutdown()  # type: ignore[attr-defined]  # the stubs leave it out
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(status)  # Python reports the error of stdout or stderr
    os._exit(status & 0xFF)


if __name__ == "__main__":
    STARTED_WITH = set(marshal.loads(bytes.fromhex(sys.argv[2])))
    # As for `python -m`: the current directory, not that of this file.
    sys.path[0] = os.getcwd()
    if sys.argv[3] == "keeper":
        importlib.import_module("acpterm.keeper.process.main")
    else:
        _import_all()
    # Ctrl-C is meant for the children; each unblocks it once it is ready.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    gc.collect()
    gc.disable()
    gc.freeze()
    _asked, _fds = _serve(socket.socket(fileno=int(sys.argv[1])))
    _become(_asked, _fds)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _exit(_status_of(lambda: _run(_asked)))
