"""Errors of several modules, and `root_error`, which returns an error's message."""

import os

from acpterm.jsonrpc import INTERNAL_ERROR, RpcError


class AcptermError(Exception):
    """The base class of all exceptions that the Python API raises."""


class LostError(RpcError):
    """The peer's connection has ended, so no response will come; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(INTERNAL_ERROR, message)


def root_error(error: BaseException) -> str:
    """Return the message of `error`; for an exception group, that of its first exception.

    For an `OSError` the message is `FILE: TEXT`, or only TEXT if the error names no file.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        name = error.filename
        return error.strerror if name is None else f"{os.fsdecode(name)}: {error.strerror}"
    return str(error)
