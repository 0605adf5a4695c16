"""A process that has imported all of acpterm, and makes children that become `acpterm`.

Run by `starting`, as a script. An import costs most of what a command costs: here it is paid once.
Each child is made with `clone3(CLONE_PARENT)`, as acpterm's own fork server makes them: it is the
child of whoever asks, for that one to wait for, and a process of its own in all that it does from
`-m acpterm` to its last exit handler. What it has from here is what is imported already.

Wire, over a stream socket: four bytes, how long a request is, and with them the descriptors that
are to be stdin, stdout and stderr; the request, by marshal. The answer: a pid and an errno, one of
them 0.
"""

import ctypes
import gc
import importlib
import io
import locale
import marshal
import os
import pkgutil
import random
import runpy
import signal
import socket
import struct
import sys
import threading
from typing import Any

ANSWER = struct.Struct("<ii")
_CLONE_CHILD_CLEARTID = 0x20_0000
_CLONE_CHILD_SETTID = 0x100_0000
_CLONE_PARENT = 0x8000
_SYS_CLONE3 = 435
_CLONE_ARGS = struct.Struct("=8Q")
# The C library keeps a thread's id within so many bytes of where its description begins.
_WITHIN = 0x800
# More than are ever open here.
_DESCRIPTORS = 0x1000

_libc = ctypes.PyDLL(None, use_errno=True)


def _import_all() -> None:
    import acpterm

    for found in pkgutil.walk_packages(acpterm.__path__, "acpterm."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)


def _thread_id() -> int:
    """Find where the C library has noted this thread's id, which is another one's in a child."""
    _libc.pthread_self.restype = ctypes.c_void_p
    begin = _libc.pthread_self()
    noted = (ctypes.c_int * (_WITHIN // 4)).from_address(begin)
    (place,) = [n for n, value in enumerate(noted) if value == threading.get_native_id()]
    return int(begin) + place * 4


def _clone(noted: int) -> int:
    """Fork, as a sibling: the pid, or 0 in the child."""
    flags = _CLONE_PARENT | _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID
    arguments = _CLONE_ARGS.pack(flags, 0, noted, 0, 0, 0, 0, 0)
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


def _serve(channel: socket.socket, noted: int) -> tuple[dict[str, Any], list[int]]:
    """Make children; come back in each of them, with what was asked and its descriptors."""
    while True:
        head, fds, _, _ = socket.recv_fds(channel, 4, 3)
        if not head:
            sys.exit(0)
        asked = marshal.loads(_exactly(channel, int.from_bytes(head, "little")))
        pid, error = 0, 0
        try:
            pid = _clone(noted)
        except OSError as failed:
            error = failed.errno or -1
        if not pid and not error:
            # Its number is to be anybody's.
            channel.detach()
            return asked, fds
        for fd in fds:
            os.close(fd)
        channel.sendall(ANSWER.pack(pid, error))


def _stream(fd: int, like: io.TextIOWrapper, mode: str) -> io.TextIOWrapper:
    """Open a standard stream as Python does."""
    at_once = like.write_through and mode == "wb"
    binary: Any = open(fd, mode, buffering=0 if at_once else -1, closefd=False)  # noqa: SIM115  it stays open to the end
    getattr(binary, "raw", binary).name = like.name
    lines = like.name == "<stderr>" or (mode == "wb" and binary.isatty())
    text = io.TextIOWrapper(binary, like.encoding, like.errors, "\n" if mode == "wb" else None)
    text.reconfigure(line_buffering=lines, write_through=at_once)
    text.mode = mode[0]  # type: ignore[misc]  # open() sets it as well
    return text


def _become(asked: dict[str, Any], fds: list[int]) -> None:
    """Be as a new process is that was started with this."""
    # First off the three numbers, that none is overwritten before it is taken.
    high = [os.dup(fd) for fd in fds]
    for number, fd in enumerate(high):
        os.dup2(fd, number)
    os.closerange(3, _DESCRIPTORS)
    if asked["session"]:
        os.setsid()
    os.chdir(asked["cwd"])
    os.umask(asked["umask"])
    # What Python itself adds, for a locale that it puts right.
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


if __name__ == "__main__":
    STARTED_WITH = set(marshal.loads(bytes.fromhex(sys.argv[2])))
    # As it is for `-m`: not this file's folder.
    sys.path[0] = os.getcwd()
    _import_all()
    # Ctrl-C is for its children, which it waits for until they are ready for it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    gc.collect()
    gc.disable()
    gc.freeze()
    _asked, _fds = _serve(socket.socket(fileno=int(sys.argv[1])), _thread_id())
    _become(_asked, _fds)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    runpy._run_module_as_main("acpterm")  # type: ignore[attr-defined]  # as `python -m` does
