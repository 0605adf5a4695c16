"""Error messages for the user, out of the exception groups that nurseries raise."""

import os


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
