"""The script that restricts its own process by Landlock and seccomp, then executes a program.

The keeper's child executes it by path, as `python -I -S landlock_exec.py WORD…`, without the site
packages. `encode` returns the words, and `Spec` describes them. The script imports only the
standard library, and `keeper.programs.child`, which executes the program. If a step fails, the
script prints why and exits with 126, and nothing has been executed.

The steps are, in this order:

1. drop all capabilities, so that root is not exempt from permissions, and set no_new_privs;
2. enumerate the files, and restrict access to them (landlock(7));
3. filter system calls (seccomp(2)). Without network, the program can create no socket; with
   network, all except Unix sockets. Pairs of connected stream sockets are always allowed.
   io_uring, which could create any socket, and calls of other architectures are refused.

Landlock denies all access except what a rule allows, and a rule for a directory allows access to
everything below. So to withhold a path, rules allow its siblings and the siblings of each of its
parents, but none of its parents. A file that is created later in one of these parents is withheld
too.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

ABI_MIN = 6
"""The lowest ABI of Landlock that restricts files, TCP and signals (Linux 6.12)."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_ALL = (1 << 16) - 1
_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _ALL & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)
_DEVICE = _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_TCP = 0b11
_SCOPED = 0b11
_RULE_PATH_BENEATH = 1
# Only Linux has O_PATH. The module is imported elsewhere too, where Landlock does not exist.
_PATH: int = getattr(os, "O_PATH", 0)

_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 22, 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION = 0x20080522
_CAP_LAST = 63

# For each machine: the AUDIT_ARCH, and the numbers of socket, socketpair, io_uring_setup, capset.
_MACHINES = {"x86_64": (0xC000003E, 41, 53, 425, 126), "aarch64": (0xC00000B7, 198, 199, 425, 91)}
_X32_BIT = 0x40000000
_AF_UNIX, _SOCK_DGRAM = 1, 2
# A Unix socket of type SOCK_RAW (3) is one of type SOCK_DGRAM (2).
_SOCK_TYPE_MASK = 0xE
_EACCES, _ENOSYS = 13, 38
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
# Instructions of BPF: load a word of the seccomp_data, compare it (equal, at least), mask, return.
_LOAD, _EQUALS, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_FIELDS = 8


class Spec:
    """The program to execute, and the files that it may access. All paths are real paths."""

    def __init__(
        self,
        *,
        network: bool,
        workspace: str,
        tmpdir: str,
        readable: Sequence[str],
        hidden: Sequence[str],
        protected: Sequence[str],
        env: Sequence[str],
        argv: Sequence[str],
        fallback_argv: Sequence[str],
    ) -> None:
        self.network = network
        self.workspace = workspace
        self.tmpdir = tmpdir
        self.readable = readable
        """Paths that are readable although they are below `hidden` ones."""
        self.hidden = hidden
        self.protected = protected
        """Paths in the workspace that are read-only."""
        self.env = env
        """Variables, as NAME=VALUE, that are set only for the program.

        An example is `LD_PRELOAD`, which would otherwise affect this script too.
        """
        self.argv = argv
        self.fallback_argv = fallback_argv
        """The argv to execute if the program of `argv` does not exist; empty for none."""


def encode(spec: Spec) -> list[str]:
    """Return `spec` as lists of arguments for this script, each after its length."""
    lists = (
        [str(int(spec.network)), spec.workspace, spec.tmpdir],
        *(spec.readable, spec.hidden, spec.protected, spec.env, spec.argv, spec.fallback_argv),
    )
    return [word for found in lists for word in (str(len(found)), *found)]


def decode(words: Sequence[str]) -> Spec:
    """Return the `Spec` that `encode` has turned into `words`."""
    lists = []
    at = 0
    while at < len(words):
        end = at + 1 + int(words[at])
        lists.append(list(words[at + 1 : end]))
        at = end
    (network, workspace, tmpdir), readable, hidden, protected, env, argv, fallback_argv = lists
    return Spec(
        network=network == "1",
        workspace=workspace,
        tmpdir=tmpdir,
        readable=readable,
        hidden=hidden,
        protected=protected,
        env=env,
        argv=argv,
        fallback_argv=fallback_argv,
    )


def abi() -> int:
    """Return the ABI version of the kernel's Landlock; 0 if Landlock is missing or disabled."""
    found = _libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(int(found), 0)


def is_known_machine() -> bool:
    """Return whether this module has the system call numbers of this machine's architecture."""
    return os.uname().machine in _MACHINES


def restrict(spec: Spec) -> None:
    """Restrict this process and its later children, which cannot be undone. Raises `OSError`."""
    if abi() < ABI_MIN or not is_known_machine():
        raise OSError(_ENOSYS, f"the kernel's Landlock has ABI {abi()}, and {ABI_MIN} is needed")
    _drop_capabilities()
    _check(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _restrict_files(spec)
    _filter_system_calls(network=spec.network)


def main(words: Sequence[str]) -> NoReturn:
    """Restrict this process as the encoded `Spec` says, and execute the program in its place."""
    from acpterm.keeper.programs import child  # noqa: PLC0415  the path is set by now

    spec = decode(words)
    try:
        restrict(spec)
    except BaseException as error:  # noqa: BLE001  nothing may run without the restrictions
        message = f"acpterm: the sandbox of Landlock cannot be set up: {error}\n"
        os.write(2, message.encode(errors="backslashreplace"))
        os._exit(child.CANNOT_RUN)
    env = dict(os.environ)
    for variable in spec.env:
        name, _, value = variable.partition("=")
        env[name] = value
    umask = os.umask(0)
    child.reset_signals()
    child.exec_program((list(spec.argv), env, ".", umask, [], list(spec.fallback_argv) or None))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _drop_capabilities() -> None:
    libc = _libc()
    for capability in range(_CAP_LAST + 1):
        # This fails for numbers that the kernel does not have, and without CAP_SETPCAP. Without it
        # the bounding set stays, but with capset and no_new_privs no capability can be gained.
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    capset = _MACHINES[os.uname().machine][4]
    _check(libc.syscall(capset, header, bytes(24)), "capset")
    with open("/proc/self/status") as status:
        effective = [line for line in status if line.startswith(("CapEff", "CapPrm", "CapBnd"))]
    if os.geteuid() == 0 and any(int(line.split()[1], 16) for line in effective):
        raise OSError(1, "root's capabilities cannot be dropped")


def _restrict_files(spec: Spec) -> None:
    libc = _libc()
    attributes = struct.pack("QQQ", _ALL, 0 if spec.network else _TCP, _SCOPED)
    size = ctypes.c_size_t(len(attributes))
    ruleset = _check(libc.syscall(_CREATE_RULESET, attributes, size, ctypes.c_uint(0)), "ruleset")

    def allow(path: str, rights: int, *, follow: bool = False) -> None:
        flags = _PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        try:
            fd = os.open(path, flags)
        except OSError:
            return  # the path cannot be reached, or was removed meanwhile
        try:
            mode = os.fstat(fd).st_mode & 0o170000
            if mode == 0o120000:
                return  # the target of a symbolic link has its own rules
            rule = struct.pack("=Qi", rights if mode == 0o040000 else rights & _FILE, fd)
            if rights & _FILE or mode == 0o040000:
                _check(libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0), path)
        finally:
            os.close(fd)

    _allow_except("/", spec.hidden, lambda path: allow(path, _READ))
    # A right to list `/` includes everything below: Landlock cannot withhold the names of only some
    # files.
    allow("/", _READ_DIR)
    hidden = [path for path in spec.hidden if _is_below(path, spec.workspace)]
    _allow_except(spec.workspace, hidden, lambda path: allow(path, _READ))
    withheld = [*hidden, *spec.protected]
    _allow_except(spec.workspace, withheld, lambda path: allow(path, _WRITE))
    allow(spec.tmpdir, _WRITE)
    for path in spec.readable:
        allow(path, _READ)
    for name in _DEVICES:
        allow(f"/dev/{name}", _DEVICE)
    for fd in range(3):
        if os.isatty(fd):
            allow(os.ttyname(fd), _DEVICE)
    _check(libc.syscall(_RESTRICT_SELF, ruleset, ctypes.c_uint(0)), "restrict")
    os.close(ruleset)


def _allow_except(directory: str, withheld: Sequence[str], allow: Callable[[str], None]) -> None:
    """Call `allow` with paths that together cover `directory` without the `withheld` ones."""
    below = [path for path in withheld if _is_below(path, directory)]
    if directory in below:
        return
    if not below:
        allow(directory)
        return
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        if not entry.is_symlink():
            _allow_except(entry.path, below, allow)


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _filter_system_calls(*, network: bool) -> None:
    arch, socket, socketpair, io_uring_setup, _ = _MACHINES[os.uname().machine]
    refused = _ERRNO | _EACCES
    # The second and third number of a comparison are the instructions to skip if it is true, and if
    # it is false.
    program = [
        (_LOAD, 0, 0, 4),
        (_EQUALS, 1, 0, arch),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_EQUALS, 0, 1, io_uring_setup),
        (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        (_EQUALS, 0, 4, socketpair),
        # A socket of a datagram pair can send to any Unix socket; other pairs stay connected.
        (_LOAD, 0, 0, 24),
        (_AND, 0, 0, _SOCK_TYPE_MASK),
        (_EQUALS, 0, 5, _SOCK_DGRAM),
        (_RETURN, 0, 0, refused),
        (_EQUALS, 0, 3, socket),
        *([(_LOAD, 0, 0, 16), (_EQUALS, 0, 1, _AF_UNIX)] if network else []),
        (_RETURN, 0, 0, refused),
        (_RETURN, 0, 0, _ALLOW),
    ]
    if not network:
        program[11] = (_EQUALS, 0, 3, _SOCK_DGRAM)
        program[13] = (_EQUALS, 0, 1, socket)
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code)
    # struct sock_fprog has a pointer, which is aligned to 8 bytes.
    fprog = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
    _check(_libc().prctl(_PR_SET_SECCOMP, 2, fprog, 0, 0), "seccomp")


if __name__ == "__main__":
    sys.path.append(__file__.rsplit("/", 3)[0])
    main(sys.argv[1:])
