"""`fs/read_text_file` and `fs/write_text_file`, inside the session's directories and nowhere else.

A path is taken as what it leads to: symbolic links are resolved, and of a file that was opened the
system is asked once more where it is, so that nothing is read or written by way of a link that was
made meanwhile (an empty file or folder may be made where it leads). Only regular files are read and
written, so nothing waits for a pipe. What is written takes the place of all that was there, in the
same file: its owner, its mode and its other names stay.
"""

import errno
import io
import os
import stat
import sys
from collections.abc import Sequence
from typing import Final

from acpterm.acp import ReadTextFileRequest, WriteTextFileRequest
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quote

# The longest file that is read. Bytes.
FILE_BYTES_MAX: Final = 32 * 1024 * 1024


class Files:
    """The files of one session. `roots`: its directories; none is none."""

    def __init__(self, roots: Sequence[str], *, read_only: bool) -> None:
        self._roots = [os.path.realpath(root) for root in roots]
        self._read_only = read_only

    def read(self, params: ReadTextFileRequest) -> str:
        """Give the text of a file, from `line` on, at most `limit` lines. May block: for a thread.

        Raises `RpcError`: -32602 for a path that is not to be read or is no text, -32002 when there
        is no such file.
        """
        fd = self._open(params.path, os.O_RDONLY, "read")
        try:
            with open(fd, "rb") as file:
                if (size := os.fstat(fd).st_size) > FILE_BYTES_MAX:
                    raise _bad(
                        params.path, f"has {size} bytes: at most {FILE_BYTES_MAX} can be read"
                    )
                data = file.read(FILE_BYTES_MAX)
        except OSError as error:
            raise _failed("read", params.path, error) from error
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise _bad(params.path, f"is no text: byte {error.start + 1} is not UTF-8") from error
        if params.line is None and params.limit is None:
            return text
        first = max(0, (params.line or 1) - 1)
        end = None if params.limit is None else first + params.limit
        # A line ends with a line feed alone, as editors and grep count.
        return "".join(io.StringIO(text, newline="\n").readlines()[first:end])

    def write(self, params: WriteTextFileRequest) -> None:
        """Write a file, which is made if it is missing, with its folders. May block: for a thread.

        Raises `RpcError` (-32602).
        """
        if self._read_only:
            raise _bad(params.path, "is not written: this session may only read (--read-only)")
        fd = self._open(params.path, os.O_WRONLY | os.O_CREAT, "written")
        try:
            with open(fd, "wb") as file:
                file.truncate(0)
                file.write(params.content.encode())
        except OSError as error:
            raise _failed("written", params.path, error) from error

    def _open(self, path: str, flags: int, how: str) -> int:
        """Open a regular file inside, which with its folders is made if `flags` say so."""
        resolved = self._resolve(path)
        try:
            if flags & os.O_CREAT:
                os.makedirs(os.path.dirname(resolved), exist_ok=True)
            fd = os.open(resolved, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _failed(how, path, error) from error
        try:
            self._check_opened(fd, path)
        except OSError as error:
            os.close(fd)
            raise _failed(how, path, error) from error
        except RpcError:
            os.close(fd)
            raise
        return fd

    def _resolve(self, path: str) -> str:
        if not os.path.isabs(path) or "\0" in path:
            wrong = "holds a NUL character" if "\0" in path else "is not absolute"
            raise _bad(path, f"{wrong}: give the absolute path of a file")
        resolved = os.path.realpath(path)
        if not self._is_inside(resolved):
            raise self._outside(path)
        return resolved

    def _check_opened(self, fd: int, path: str) -> None:
        """Raise `RpcError` unless what was opened is a regular file, and inside."""
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _bad(path, "is no regular file")
        # Elsewhere O_NOFOLLOW has to do: what is swapped is then a folder above the file.
        if sys.platform == "linux" and not self._is_inside(os.readlink(f"/proc/self/fd/{fd}")):
            raise self._outside(path)

    def _is_inside(self, path: str) -> bool:
        return any(path == root or path.startswith(root.rstrip("/") + "/") for root in self._roots)

    def _outside(self, path: str) -> RpcError:
        right = " or ".join(quote(root) for root in self._roots) or "none"
        return _bad(path, f"is outside of the session's directories: they are {right}")


def _bad(path: str, wrong: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"path {quote(path)} {wrong}")


def _failed(how: str, path: str, error: OSError) -> RpcError:
    missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
    code = RESOURCE_NOT_FOUND if missing else INVALID_PARAMS
    return RpcError(code, f"path {quote(path)} cannot be {how}: {error.strerror}")
