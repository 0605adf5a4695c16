"""The private directory through which the driver and its shell exchange files.

The directory has mode 0700 and a random name. The driver writes rc files and command files, and
deletes them once they were read; the shell writes one record for each command. A command may delete
the directory: the next write creates it again.
"""

import os
import secrets
import shutil
import tempfile
from contextlib import suppress

from acpterm.shell.record import RECORD_BYTES_MAX, Record, parse_record

_PREFIX = "acpterm-shell-"
_GITIGNORE = ".gitignore"


class ShellDirectory:
    """One shell's private directory, and its nonce."""

    def __init__(self, parent: str | None = None) -> None:
        """Create the directory in the user's runtime directory, or hidden in `parent`.

        In `parent`, a workspace, git ignores it.
        """
        self.nonce = secrets.token_hex(16)
        self.is_in_workspace = parent is not None
        if parent is None:
            runtime = os.environ.get("XDG_RUNTIME_DIR", "")
            runtime = runtime if os.access(runtime, os.W_OK) else tempfile.gettempdir()
            self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=os.path.abspath(runtime))
        else:
            self.path = tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=os.path.abspath(parent))
            self.write(_GITIGNORE, "*\n")

    def write(self, name: str, text: str) -> str:
        """Write a file, which only the user can read; return its path."""
        path = os.path.join(self.path, name)
        with suppress(FileExistsError):
            os.mkdir(self.path, 0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
        return path

    def remove(self, name: str) -> None:
        """Delete a file, if it exists."""
        with suppress(OSError):
            os.unlink(os.path.join(self.path, name))

    def command_name(self, n: int) -> str:
        """Return the name of the file of command `n`."""
        return f"{n}"

    def record(self, n: int, event: str = "end") -> Record | None:
        """Return the valid record of command `n`, if there is one."""
        try:
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
            descriptor = os.open(os.path.join(self.path, f"{n}.{event}"), flags)
        except OSError:
            return None
        try:
            record = parse_record(os.read(descriptor, RECORD_BYTES_MAX), self.nonce)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return record if record and (record.n, record.event) == (n, event) else None

    def forget(self, n: int) -> None:
        """Delete the files of command `n`."""
        self.remove(self.command_name(n))
        self.remove(f"{n}.end")

    def close(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.path, ignore_errors=True)
