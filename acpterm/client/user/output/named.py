"""Errors of what has no name of its own, as stdout: it is named in what is said of them."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def named(name: str) -> Iterator[None]:
    """Have an `OSError` of the block tell, as its file's name, what could not be read or written.

    One that names a file already is left as it is.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = name
        raise
