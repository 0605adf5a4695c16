"""Start a program on a new PTY, as a child of the keeper, in a session that `leader` leads.

There are three ways; the first way that supports the request is used.

1. `leader`: `posix_spawn` of the session's leader, which starts the program with vfork's semantics.
   No process runs Python.
2. `fork`: a forked keeper becomes the leader and forks the program, in which `child.exec_program`
   prints on the terminal why a program cannot be executed. Used if the first way fails, and on
   machines for which there is no code of the leader.
3. `ptyprocess`: on systems other than Linux, which have no CLONE_PARENT: the program itself leads
   its session, so what it leaves in the background is hung up when it ends.

The keeper keeps the slave open until the program has opened it, so a terminal cannot hang up before
its program has started.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import _socket
import errno
import fcntl
import os
import resource
import struct
import termios

from acpterm.keeper.programs import child, leader, system
from acpterm.keeper.programs.leader import Leader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from acpterm.keeper.programs.child import Program

SPARE_DESCRIPTORS = 32  # for messages of the worker: with fewer, no program is started
# Descriptors that the leader gets under other numbers must be above these.
_FD_MIN = 10
# Only a hang lasts so long. Meanwhile the keeper starts, kills and reports nothing, and heeds no
# signal. But with a shorter limit, programs fail on a busy machine.
_LEADER_TIMEOUT_S = 30.0
_IUTF8 = 0x4000 if system.LINUX else 0
_SIGNALS = sorted(_signal.valid_signals())


def spawn(
    program: Program, cols: int, rows: int, cgroup: int | None
) -> tuple[int, int, Leader | None, str]:
    """Start a program on a new PTY; return its pid, the PTY's master, its leader, and the way.

    If it cannot be found or executed, the child prints a message and exits with 127 or 126. Raises
    `OSError`, and leaves nothing behind, if no PTY, process or descriptor is available.
    """
    _require_descriptors()
    if not system.LINUX:
        return ptyprocess_spawn(program, cols, rows)
    master, slave = os.openpty()
    try:
        # `openpty` makes both descriptors non-inheritable. The child gets the slave by its path or
        # as 0, 1 and 2.
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        attributes = termios.tcgetattr(slave)
        attributes[0] |= _IUTF8
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        path = _path_of(slave)
        if path is not None and program[1].get("GPG_TTY") == "":
            program[1]["GPG_TTY"] = path
        try:
            return _spawn_by_leader(program, path, master, cgroup)
        except TimeoutError:
            raise  # the program may run
        except (OSError, ValueError):
            return _fork(program, slave, master, cgroup)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)


def _require_descriptors() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    if soft != resource.RLIM_INFINITY and lowest >= soft - SPARE_DESCRIPTORS:
        number = errno.EMFILE
        raise OSError(
            number,
            f"{os.strerror(number)}: the keeper may have {soft} descriptors (ulimit -n), and the"
            f" last {SPARE_DESCRIPTORS} are reserved",
        )


def _path_of(slave: int) -> str | None:
    """Return the path of a PTY's slave; None if /dev/pts is not this PTY's file system."""
    try:
        return os.ttyname(slave)
    except OSError:
        return None


def _spawn_by_leader(
    program: Program, slave: str | None, master: int, cgroup: int | None
) -> tuple[int, int, Leader | None, str]:
    """Start a program by the leader's own code. Raises `OSError` or `ValueError`."""
    argv, env, cwd, umask, limits, _ = program
    image = leader.image()
    if image is None or slave is None:
        raise OSError(errno.ENOSYS, "no code of the leader for this system")
    paths = child.search_path(argv[0], env)
    executable = next((path for path in paths if _can_execute(os.path.join(cwd, path))), None)
    if executable is None:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    first = leader.block(cwd, umask, limits, in_cgroup=cgroup is not None)
    end, leaders_end = _socket_pair()
    pid = 0
    try:
        end.send(first)
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, slave, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
            (os.POSIX_SPAWN_DUP2, leaders_end.fileno(), leader.SOCKET_FD),
        ]
        if cgroup is not None:
            actions.append((os.POSIX_SPAWN_DUP2, cgroup, leader.CGROUP_FD))
        pid = os.posix_spawn(
            image,
            [leader.NAME, executable, *argv],
            env,
            file_actions=actions,
            setsid=True,
            setsigmask=_SIGNALS,
            setsigdef=_SIGNALS,
        )
        leaders_end.close()
        end.settimeout(_LEADER_TIMEOUT_S)
        started = leader.started(end)
    except BaseException:
        leaders_end.close()
        _discard(pid, end)
        raise
    return started, master, Leader(pid, end.detach()), "leader"


def _discard(leader_pid: int, end: _socket.socket) -> None:
    if leader_pid:
        Leader(leader_pid, end.detach()).end()
        # Until it is gone, no other leader can get the PTY.
        os.waitpid(leader_pid, 0)
    else:
        end.close()


def _socket_pair() -> tuple[_socket.socket, _socket.socket]:
    """Return the keeper's and the leader's end of a leader's socket."""
    end, leaders_end = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    if leaders_end.fileno() < _FD_MIN:
        moved = fcntl.fcntl(leaders_end.fileno(), fcntl.F_DUPFD_CLOEXEC, _FD_MIN)
        leaders_end.close()
        leaders_end = _socket.socket(fileno=moved)
    return end, leaders_end


def _can_execute(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)


def _fork(
    program: Program, slave: int, master: int, cgroup: int | None
) -> tuple[int, int, Leader | None, str]:
    end, leaders_end = _socket_pair()
    pid = 0
    try:
        pid = os.fork()
        if pid == 0:
            _run_leader(program, slave, leaders_end, cgroup)
        leaders_end.close()
        end.settimeout(_LEADER_TIMEOUT_S)
        started = leader.started(end)
    except BaseException:
        leaders_end.close()
        _discard(pid, end)
        raise
    return started, master, Leader(pid, end.detach()), "fork"


def _run_leader(program: Program, slave: int, sock: _socket.socket, cgroup: int | None) -> NoReturn:
    try:
        child.reset_signals()
        child.lead_session(slave)
        if system.clone_sibling(cgroup) == 0:
            child.use_terminal(slave)
            # Now a signal or a Ctrl-C finds the program in the foreground.
            sock.send(leader.response(os.getpid()))
            sock.close()
            child.exec_program(program)
        child.hold_session(sock.fileno(), leader.image(), program[1])
    except OSError as error:
        sock.send(leader.response(-(error.errno or errno.EIO)))
    finally:
        os._exit(child.CANNOT_RUN)


def ptyprocess_spawn(program: Program, cols: int, rows: int) -> tuple[int, int, Leader | None, str]:
    import ptyprocess  # noqa: PLC0415  only where the other ways do not work

    def run_in_child() -> None:
        child.reset_signals()
        child.exec_program(program)

    # `exec_program` never returns, so /bin/sh is never run. ptyprocess requires the name of a
    # program that exists.
    process = ptyprocess.PtyProcess.spawn(
        ["/bin/sh"], preexec_fn=run_in_child, dimensions=(rows, cols), pass_fds=()
    )
    # Duplicate the master: ptyprocess sleeps and closes its own when the object is collected.
    master = os.dup(process.fd)
    process.fileobj.close()
    process.closed = True
    return process.pid, master, None, "ptyprocess"
