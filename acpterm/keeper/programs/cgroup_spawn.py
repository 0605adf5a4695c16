"""`posix_spawn` into a control group, by ctypes: Python has no function for it. Needs glibc 2.39.

As with `clone3` (see the module `spawn`), the child starts in the group. But the child runs no
Python code before it executes its program.
"""

from __future__ import annotations

import ctypes
import functools
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# spawn.h of glibc; the same on every architecture.
_SETSIGDEF = 0x04
_SETSIGMASK = 0x08
_SETSID = 0x80
_SETCGROUP = 0x100
# posix_spawnattr_t has 336 bytes, posix_spawn_file_actions_t 80 and sigset_t 128.
_OPAQUE_BYTES = 1024


def is_available() -> bool:
    """Return whether the C library can spawn into a control group."""
    return hasattr(_libc(), "posix_spawnattr_setcgroup_np")


def spawn(
    executable: str, argv: Sequence[str], env: Mapping[str, str], slave: str, cgroup: int | None
) -> int:
    """Execute a program as a session leader on a PTY; return its pid.

    `executable` is the path of the program, and `slave` the path of the PTY's slave. `cgroup` is a
    descriptor of the control group's directory; None for the keeper's group.

    Raises `OSError` if the program cannot be executed, `ValueError` if a string has a null byte.
    """
    libc = _libc()
    attributes = ctypes.create_string_buffer(_OPAQUE_BYTES)
    actions = ctypes.create_string_buffer(_OPAQUE_BYTES)
    signals = ctypes.create_string_buffer(_OPAQUE_BYTES)
    pid = ctypes.c_int()
    arguments = _strings(argv)
    environment = _strings([f"{name}={value}" for name, value in env.items()])
    _check(libc.posix_spawnattr_init(attributes))
    try:
        _check(libc.posix_spawn_file_actions_init(actions))
        try:
            flags = _SETSID | _SETSIGMASK | _SETSIGDEF
            libc.sigemptyset(signals)
            _check(libc.posix_spawnattr_setsigmask(attributes, signals))
            libc.sigfillset(signals)
            _check(libc.posix_spawnattr_setsigdefault(attributes, signals))
            if cgroup is not None:
                flags |= _SETCGROUP
                _check(libc.posix_spawnattr_setcgroup_np(attributes, cgroup))
            _check(libc.posix_spawnattr_setflags(attributes, ctypes.c_short(flags)))
            path = os.fsencode(slave)
            _check(libc.posix_spawn_file_actions_addopen(actions, 0, path, os.O_RDWR, 0))
            for number in (1, 2):
                _check(libc.posix_spawn_file_actions_adddup2(actions, 0, number))
            file = _strings([executable])[0]
            call = ctypes.byref(pid), file, actions, attributes, arguments, environment
            _check(libc.posix_spawn(*call))
        finally:
            libc.posix_spawn_file_actions_destroy(actions)
    finally:
        libc.posix_spawnattr_destroy(attributes)
    return pid.value


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.PyDLL(None)


def _check(number: int) -> None:
    if number:
        raise OSError(number, os.strerror(number))


def _strings(values: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    """Return `values` as an array of C strings that ends with a null pointer.

    Raises `ValueError` if a value has a null byte.
    """
    encoded = [os.fsencode(value) for value in values]
    if any(b"\0" in value for value in encoded):
        raise ValueError("embedded null byte")
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)
