"""Reads a directory: what a snapshot keeps of it, and what it leaves out and why."""

import errno
import os
import re
import stat
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

FILE_BYTES_MAX: Final = 32 * 1024 * 1024
ENTRIES_MAX: Final = 100_000
BYTES_MAX: Final = 2 * 1024**3
# What a lock file or the next run restores. So are directories with a `CACHEDIR.TAG` (cargo's
# `target`, the caches of pytest, mypy and ruff) or a `pyvenv.cfg` (virtual environments).
LEFT_OUT: Final = frozenset(
    (b"node_modules", b"bower_components", b"__pycache__", b".tox", b".nox", b".gradle")
)
RESTORABLE: Final = "restored by its tool"
FILES_ONLY: Final = "only files, not branches, index and stash, which a linked worktree shares"
"""What is kept of a directory whose `.git` leads to another place."""
_MARKS: Final = frozenset((b"CACHEDIR.TAG", b"pyvenv.cfg"))
_GIT_DIRECTORY: Final = frozenset((b"HEAD", b"objects", b"refs"))
# The file in the tree `dirs` that describes a directory.
LISTING: Final = b"="
_LOOSE: Final = re.compile(rb"[0-9a-f]{2}/[0-9a-f]{38}(?:[0-9a-f]{24})?")
_PACK: Final = re.compile(rb"pack/pack-[0-9a-f]{40,64}\.[a-z]+")

Signature: TypeAlias = tuple[int, int, int, int, int]
"""Mode, size, times of modification and change in ns, and inode: what tells that a file changed."""


class UnkeptError(Exception):
    """No snapshot of the directory can be taken; the message says why."""


class Directories:
    """Opens directories below a root. A link that a program has put there is not followed."""

    FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

    def __init__(self, root: bytes) -> None:
        self._root: Final = root
        self._open: Final[list[tuple[bytes, int]]] = []
        """The last directory that was opened and those above it, each with its name."""

    def open(self, path: bytes) -> int:
        """Return a descriptor until another directory is opened. Raises `OSError`."""
        names = [b"", *path.split(b"/")] if path else [b""]
        shared = 0
        for (name, _), wanted in zip(self._open, names, strict=False):
            if name != wanted:
                break
            shared += 1
        self.close(shared)
        for depth in range(shared, len(names)):
            parent = self._open[-1][1] if depth else None
            fd = self._enter(names[depth], parent, b"/".join(names[1 : depth + 1]))
            self._open.append((names[depth], fd))
        return self._open[-1][1]

    def _enter(self, name: bytes, parent: int | None, path: bytes) -> int:
        del path
        return os.open(name or self._root, self.FLAGS, dir_fd=parent)

    def close(self, left: int = 0) -> None:
        while len(self._open) > left:
            os.close(self._open.pop()[1])


def open_file(name: bytes, directory: int) -> int:
    """Open a regular file of a directory. Raises `OSError`, also if it has become another thing."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "no longer a file")
    return fd


class Scan(NamedTuple):
    """A directory, by paths relative to it."""

    files: dict[bytes, Signature]
    """Regular files and symbolic links."""
    dirs: dict[bytes, bytes]
    """Each directory's own mode, and the modes in it that a tree of git cannot express."""
    objects: dict[bytes, bytes]
    """Objects of the user's repositories, and their names below `objects/`."""
    skipped: dict[bytes, str]
    """What is not kept, and why."""


def scan(root: bytes) -> Scan:
    """Read the directory `root`. Raises `UnkeptError` if it is too large or cannot be read."""
    scanner = _Scanner(root)
    try:
        while scanner.waiting:
            scanner.read(*scanner.waiting.pop())
    finally:
        scanner.directories.close()
    return scanner.found


class _Scanner:
    def __init__(self, root: bytes) -> None:
        self._root: Final = root
        self._bytes = 0
        self.directories: Final = Directories(root)
        self.found: Final = Scan({}, {}, {}, {})
        self.waiting: Final[list[tuple[bytes, bool]]] = [(b"", False)]
        """The directories that are to be read, and whether each is in a `.git`."""

    def read(self, path: bytes, is_git: bool) -> None:
        if (listed := self._list(path)) is None:
            return
        mode, children = listed
        names = {name for name, _ in children}
        if path and names & _MARKS:
            self.found.skipped[path] = RESTORABLE
            return
        is_repository = names >= _GIT_DIRECTORY
        unusual = []
        for name, status in children:
            below = path + b"/" + name if path else name
            if isinstance(status, str):
                self.found.skipped[below] = status
            elif not stat.S_ISDIR(status.st_mode):
                unusual.append(self._add_file(below, status, is_git or is_repository))
            elif name == b"objects" and is_repository:
                self._read_objects(below, status)
            elif name in LEFT_OUT:
                self.found.skipped[below] = RESTORABLE
            else:
                self.waiting.append((below, is_git or is_repository))
        self.found.dirs[path] = b"%o\0" % mode + b"".join(sorted(unusual))
        self._check_bounds()

    def _list(self, path: bytes) -> tuple[int, list[tuple[bytes, os.stat_result | str]]] | None:
        """Return a directory's mode, and what is in it, each with its status or an error."""
        children: list[tuple[bytes, os.stat_result | str]] = []
        try:
            fd = self.directories.open(path)
            mode = stat.S_IMODE(os.fstat(fd).st_mode)
            for name in map(os.fsencode, os.listdir(fd)):
                try:
                    children.append((name, os.lstat(name, dir_fd=fd)))
                except FileNotFoundError:
                    continue
                except OSError as error:
                    children.append((name, error.strerror or "cannot be read"))
        except FileNotFoundError:
            return None
        except OSError as error:
            why = error.strerror or "cannot be read"
            if not path:
                raise UnkeptError(f"{os.fsdecode(self._root)}: {why}") from error
            self.found.skipped[path] = why
            return None
        return mode, children

    def _check_bounds(self) -> None:
        root = os.fsdecode(self._root)
        if len(self.found.files) + len(self.found.dirs) > ENTRIES_MAX:
            raise UnkeptError(f"{root} has more than {ENTRIES_MAX} files")
        if self._bytes > BYTES_MAX:
            raise UnkeptError(f"{root} has more than {BYTES_MAX >> 30} GiB")

    def _add_file(self, path: bytes, status: os.stat_result, is_git: bool) -> bytes:
        """Add what is no directory; return its line in the listing of its directory, if any."""
        mode = status.st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            self.found.skipped[path] = "a socket, FIFO or device"
        elif status.st_size > FILE_BYTES_MAX:
            self.found.skipped[path] = f"larger than {FILE_BYTES_MAX >> 20} MiB"
        elif not (is_git and path.endswith(b".lock")):
            self._bytes += status.st_size
            times = status.st_mtime_ns, status.st_ctime_ns
            self.found.files[path] = (mode, status.st_size, *times, status.st_ino)
            bits = stat.S_IMODE(mode)
            if stat.S_ISREG(mode) and bits != (0o755 if bits & 0o100 else 0o644):
                return b"%o %b\0" % (bits, os.path.basename(path))
        return b""

    def _read_objects(self, objects: bytes, status: os.stat_result) -> None:
        """Find the objects of a repository by name alone; its other files are kept as files."""
        self.found.dirs[objects] = b"%o\0" % stat.S_IMODE(status.st_mode)
        for top in self._names(objects):
            below = os.path.join(objects, top)
            if top == b"info":
                self.waiting.append((below, True))
                continue
            for name in self._names(below):
                key = os.path.join(top, name)
                if _LOOSE.fullmatch(key) or _PACK.fullmatch(key):
                    self.found.objects[os.path.join(objects, key)] = key
            if top == b"pack":
                with suppress(OSError):
                    mode = stat.S_IMODE(os.fstat(self.directories.open(below)).st_mode)
                    self.found.dirs[below] = b"%o\0" % mode

    def _names(self, path: bytes) -> list[bytes]:
        try:
            return [os.fsencode(name) for name in os.listdir(self.directories.open(path))]
        except OSError:
            return []


def root_of(directory: str) -> str:
    """Return the directory that is kept for `directory`: its repository's, or itself.

    Raises `UnkeptError` for a directory that is too general.
    """
    directory, home = os.path.realpath(directory), os.path.realpath(os.path.expanduser("~"))
    root = directory
    while not os.path.lexists(os.path.join(root, ".git")):
        if root in ("/", home):
            root = directory
            break
        root = os.path.dirname(root)
    if root == home:
        root = directory
    is_general = os.path.join(home, "").startswith(os.path.join(root, ""))
    # What is read in the last three has effects, or no end.
    is_system = os.path.join(root, "").startswith(("/proc/", "/sys/", "/dev/"))
    if is_general or is_system or root in ("/tmp", "/var/tmp"):  # noqa: S108
        raise UnkeptError(f"{root} is too general a directory")
    return root
