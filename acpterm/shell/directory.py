"""The private directory through which a shell and its driver exchange files.

The driver is the code that types commands into the shell's terminal (`acpterm.api.shell`).

The directory has mode 0700 and a random name. The driver writes rc files and command files, and
deletes them once they were read; the shell writes one report for each command.

Programs in the shell may do anything to the directory. If they run in a sandbox and the driver does
not, they must not be able to make the driver read, replace or wait for a file outside the sandbox.
So the driver keeps the directory open, accesses files only relative to that descriptor, follows no
symbolic links, and never blocks on a file. If the directory's path leads to another directory,
writing raises an error. If a command has deleted the directory, the next write creates it again.
"""

import errno
import os
import secrets
import shutil
import stat
import tempfile
from contextlib import suppress

from acpterm.shell.report import REPORT_BYTES_MAX, Report, parse_report

_PREFIX = "acpterm-shell-"
_GITIGNORE = ".gitignore"


class ShellDirectory:
    """One shell's private directory; `nonce` authenticates its marks and reports."""

    def __init__(self, parent: str | None = None) -> None:
        """Create the directory in `parent`, or in the user's runtime directory. Raises `OSError`.

        `parent` is one that the shell's sandbox shows. There it has a hidden name, which git
        ignores.
        """
        self.nonce = secrets.token_hex(16)
        self.is_in_workspace = parent is not None
        if parent is None:
            runtime = os.environ.get("XDG_RUNTIME_DIR", "")
            runtime = runtime if os.access(runtime, os.W_OK) else tempfile.gettempdir()
            self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=os.path.abspath(runtime))
        else:
            self.path = tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=os.path.abspath(parent))
        above, self._name = os.path.split(self.path)
        self._above = os.open(above, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._descriptor = self._open()
        except OSError:
            os.close(self._above)
            raise
        self._is_closed = False
        if parent is not None:
            self.write(_GITIGNORE, "*\n")

    def write(self, name: str, text: str) -> str:
        """Write a new file, or replace one, and return its path. Raises `OSError`."""
        self._check()
        self._unlink(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(name, flags, 0o600, dir_fd=self._descriptor)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        return os.path.join(self.path, name)

    def _open(self) -> int:
        """Return a descriptor of the directory. Raises `OSError` if it is another user's."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        descriptor = os.open(self._name, flags, dir_fd=self._above)
        if os.fstat(descriptor).st_uid != os.geteuid():
            os.close(descriptor)
            raise self._replaced()
        return descriptor

    def _check(self) -> None:
        """Create the directory again if it was deleted; raise `OSError` if it was replaced."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            os.mkdir(self._name, 0o700, dir_fd=self._above)
            os.close(self._descriptor)
            self._descriptor = self._open()
            found = os.stat(self.path, follow_symlinks=False)
        own = os.fstat(self._descriptor)
        if not os.path.samestat(found, own):
            raise self._replaced()
        if stat.S_IMODE(own.st_mode) != 0o700:
            # A command has changed the mode, perhaps of everything in the workspace.
            os.fchmod(self._descriptor, 0o700)

    def _replaced(self) -> OSError:
        return OSError(errno.ENOTDIR, "the shell's private directory was replaced", self.path)

    def _unlink(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Delete the file `name` if it exists; ignore errors."""
        with suppress(OSError):
            self._unlink(name)

    def command_name(self, n: int) -> str:
        return f"{n}"

    def report(self, n: int, event: str = "end") -> Report | None:
        """Return a valid report, `end` of command `n` or `ready` of 0, if there is one."""
        try:
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
            descriptor = os.open(f"{n}.{event}", flags, dir_fd=self._descriptor)
        except OSError:
            return None
        try:
            report = parse_report(os.read(descriptor, REPORT_BYTES_MAX), self.nonce)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return report if report and (report.n, report.event) == (n, event) else None

    def forget(self, n: int) -> None:
        self.remove(self.command_name(n))
        self.remove(f"{n}.end")

    def close(self) -> None:
        """Delete the directory, unless it was replaced by another one. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(OSError):
            found = os.stat(self._name, dir_fd=self._above, follow_symlinks=False)
            if os.path.samestat(found, os.fstat(self._descriptor)):
                shutil.rmtree(self._name, ignore_errors=True, dir_fd=self._above)
        os.close(self._descriptor)
        os.close(self._above)
