"""Handles `fs/read_text_file` and `fs/write_text_file`, restricted to the session's directories.

Symbolic links in a path are resolved. After a file is opened, its actual path is checked again
(on Linux): if a link was created meanwhile that leads outside of the directories, nothing is read
or written there, but an empty file or directory may have been created. Only regular files are read
and written, so a pipe cannot block. Writing replaces the content of the same file, so the file
keeps its owner, mode and hard links.
"""

import errno
import os
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from acpterm.acp.agent import ReadTextFileRequest, WriteTextFileRequest
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quote
from acpterm.runtime.lines import split_lines

FILE_BYTES_MAX: Final = 32 * 1024 * 1024


class Files:
    """The files in the directories `roots` of one session. Without roots all access is refused."""

    def __init__(
        self, roots: Sequence[str], *, read_only: bool, file_bytes_max: int = FILE_BYTES_MAX
    ) -> None:
        self._roots = [os.path.realpath(root) for root in roots]
        self._read_only = read_only
        self._file_bytes_max = file_bytes_max

    def read(self, params: ReadTextFileRequest) -> str:
        """Return the lines of a file from `params.line` on, counted from 1. Runs in a thread."""
        fd = self._open(params.path, os.O_RDONLY, "read")
        try:
            with open(fd, "rb") as file:
                if (size := os.fstat(fd).st_size) > self._file_bytes_max:
                    raise _bad(
                        params.path, f"has {size} bytes: at most {self._file_bytes_max} can be read"
                    )
                data = file.read(self._file_bytes_max)
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
        return "".join(split_lines(text)[first:end])

    def write(self, params: WriteTextFileRequest) -> None:
        """Write a file; create it and its directories if missing. Runs in a thread."""
        if self._read_only:
            raise _bad(params.path, "is not written: this session may only read (--read-only)")
        fd = self._open(params.path, os.O_WRONLY | os.O_CREAT, "written")
        try:
            with open(fd, "wb") as file:
                file.truncate(0)
                file.write(params.content.encode())
        except OSError as error:
            raise _failed("written", params.path, error) from error

    def _open(self, path: str, flags: int, verb: str) -> int:
        """Open a regular file inside the roots; `verb` is for errors: `read` or `written`."""
        resolved = self._resolve(path)
        try:
            if flags & os.O_CREAT:
                # If a file is there, `open` reports that it is no directory.
                with suppress(FileExistsError):
                    os.makedirs(os.path.dirname(resolved))
            fd = os.open(resolved, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _failed(verb, path, error) from error
        try:
            self._check_opened(fd, path)
        except OSError as error:
            os.close(fd)
            raise _failed(verb, path, error) from error
        except RpcError:
            os.close(fd)
            raise
        return fd

    def _resolve(self, path: str) -> str:
        if not os.path.isabs(path) or "\0" in path:
            reason = "holds a NUL character" if "\0" in path else "is not absolute"
            raise _bad(path, f"{reason}: give the absolute path of a file")
        resolved = os.path.realpath(path)
        if not self._is_inside(resolved):
            raise self._outside(path)
        return resolved

    def _check_opened(self, fd: int, path: str) -> None:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _bad(path, "is no regular file")
        # Elsewhere O_NOFOLLOW is the only protection: it does not detect that a parent directory
        # was replaced by a link.
        if sys.platform == "linux" and not self._is_inside(os.readlink(f"/proc/self/fd/{fd}")):
            raise self._outside(path)

    def _is_inside(self, path: str) -> bool:
        return any(path == root or path.startswith(root.rstrip("/") + "/") for root in self._roots)

    def _outside(self, path: str) -> RpcError:
        allowed = " or ".join(quote(root) for root in self._roots) or "none"
        return _bad(path, f"is outside of the session's directories: they are {allowed}")


def _bad(path: str, reason: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"path {quote(path)} {reason}")


def _failed(verb: str, path: str, error: OSError) -> RpcError:
    missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
    code = RESOURCE_NOT_FOUND if missing else INVALID_PARAMS
    return RpcError(code, f"path {quote(path)} cannot be {verb}: {error.strerror}")
