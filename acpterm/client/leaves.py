"""What went wrong, out of the groups that nurseries put exceptions in."""


def leaf(error: BaseException) -> str:
    """Give the message of the first exception in a group of them, or of the exception itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)
