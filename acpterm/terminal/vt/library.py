"""The native library libghostty-vt, loaded when the first emulator needs it."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from acpterm.terminal.vt import declarations

PACKAGE: Final = "pyghostty"


class EmulatorMissingError(Exception):
    """The package with the terminal emulator is not installed, or cannot be loaded."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"this needs the terminal emulator of the package {PACKAGE}, which cannot be loaded "
            f"({reason}): install it with `pip install {PACKAGE}`, or ask for text or raw"
        )


class Library(NamedTuple):
    """libghostty-vt: cffi's view of its types, and its functions."""

    ffi: Any
    lib: Any

    def check(self, result: int, call: str) -> None:
        """Raise `MemoryError` or `RuntimeError` unless a call of the library succeeded."""
        if result == self.lib.GHOSTTY_OUT_OF_MEMORY:
            raise MemoryError(f"libghostty: {call}")
        if result:
            raise RuntimeError(f"libghostty: {call} failed with {result}")


@cache
def _load() -> Library | str:
    """Return the library, or why it cannot be loaded: a failed import is not tried again."""
    try:
        from cffi import FFI  # noqa: PLC0415  loaded only when it is needed

        ffi = FFI()
        ffi.cdef(declarations.TYPES + declarations.FUNCTIONS + _constants())
        return Library(ffi, ffi.dlopen(_path()))
    except (ImportError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def _constants() -> str:
    members = (f"{name} = {value}" for name, value in declarations.CONSTANTS.items())
    return f"enum {{ {', '.join(members)} }};"


def _path() -> str:
    """Return the path of the shared library in the package."""
    found = find_spec(PACKAGE)
    for directory in (found and found.submodule_search_locations) or ():
        for name in ("libghostty-vt.so", "libghostty-vt.dylib"):
            if os.path.exists(path := os.path.join(directory, "_lib", name)):
                return path
    raise ImportError(f"the package {PACKAGE} with libghostty-vt is not installed")


def load() -> Library:
    """Return the library. Raises `EmulatorMissingError`."""
    found = _load()
    if isinstance(found, str):
        raise EmulatorMissingError(found)
    return found
