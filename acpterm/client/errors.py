"""What went wrong, out of the groups that nurseries put exceptions in."""

import os


def root_error(error: BaseException) -> str:
    """Give the message of the first exception in a group of them, or of the exception itself.

    That of an `OSError` of the system's has the file's name, if it has one, and no number.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, OSError) and error.strerror:
        name = error.filename
        return error.strerror if name is None else f"{os.fsdecode(name)}: {error.strerror}"
    return str(error)
