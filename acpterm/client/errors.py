"""Errors that several clients raise, and the message of one that a nursery has put in a group."""

import os

from acpterm.jsonrpc import INTERNAL_ERROR, RpcError


class LostError(RpcError):
    """The connection has ended, and no answer comes; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(INTERNAL_ERROR, message)


def root_error(error: BaseException) -> str:
    """Return the message of the first exception in a group of them, or of the exception itself.

    That of an `OSError` of the system's has the file's name, if it has one, and no number.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        name = error.filename
        return error.strerror if name is None else f"{os.fsdecode(name)}: {error.strerror}"
    return str(error)
