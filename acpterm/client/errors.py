"""Errors that several clients raise, and messages out of the exception groups of nurseries."""

import os

from acpterm.jsonrpc import INTERNAL_ERROR, RpcError


class LostError(RpcError):
    """The connection has ended, and no answer comes; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(INTERNAL_ERROR, message)


def root_error(error: BaseException) -> str:
    """Return the message of `error`, or of the first exception if it is a group.

    The message of an `OSError` is its text and the file name, if it has one, without the number.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        name = error.filename
        return error.strerror if name is None else f"{os.fsdecode(name)}: {error.strerror}"
    return str(error)
