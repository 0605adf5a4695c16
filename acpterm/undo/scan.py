"""Reads a directory: what a snapshot keeps of it, and what it leaves out and why."""

import os
import re
import stat
from typing import Final, NamedTuple, TypeAlias

FILE_BYTES_MAX: Final = 32 * 1024 * 1024
ENTRIES_MAX: Final = 100_000
BYTES_MAX: Final = 2 * 1024**3
# What a lock file or the next run restores. So are directories with a `CACHEDIR.TAG` (cargo's
# `target`, the caches of pytest, mypy and ruff) or a `pyvenv.cfg` (virtual environments).
LEFT_OUT: Final = frozenset(
    (b"node_modules", b"bower_components", b"__pycache__", b".tox", b".nox", b".gradle")
)
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
    found = Scan({}, {}, {}, {})
    size = 0
    waiting: list[tuple[bytes, bool]] = [(b"", False)]
    while waiting:
        path, is_git = waiting.pop()
        try:
            mode = stat.S_IMODE(os.lstat(os.path.join(root, path)).st_mode)
            with os.scandir(os.path.join(root, path)) as entries:
                children = sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        except OSError as error:
            if not path:
                raise UnkeptError(f"{os.fsdecode(root)} cannot be read: {error.strerror}") from error
            found.skipped[path] = error.strerror or "cannot be read"
            continue
        names = {entry.name for entry in children}
        if path and names & _MARKS:
            found.skipped[path] = "restored by its tool"
            continue
        is_git = is_git or names >= _GIT_DIRECTORY
        listing = [b"%o" % mode]
        for entry in children:
            below = os.path.join(path, entry.name)
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            kind, bits = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
            if kind == stat.S_IFDIR:
                if entry.name in LEFT_OUT:
                    found.skipped[below] = "restored by its tool"
                elif entry.name == b"objects" and names >= _GIT_DIRECTORY:
                    found.dirs[below] = b"%o\0" % bits
                    _scan_objects(root, below, found, waiting)
                else:
                    waiting.append((below, is_git))
            elif kind not in (stat.S_IFREG, stat.S_IFLNK):
                found.skipped[below] = "a socket, FIFO or device"
            elif status.st_size > FILE_BYTES_MAX:
                found.skipped[below] = f"larger than {FILE_BYTES_MAX >> 20} MiB"
            elif not (is_git and entry.name.endswith(b".lock")):
                size += status.st_size
                found.files[below] = (
                    status.st_mode,
                    status.st_size,
                    status.st_mtime_ns,
                    status.st_ctime_ns,
                    status.st_ino,
                )
                if kind == stat.S_IFREG and bits != (0o755 if bits & 0o100 else 0o644):
                    listing.append(b"%o %b" % (bits, entry.name))
        found.dirs[path] = b"".join(line + b"\0" for line in listing)
        if len(found.files) + len(found.dirs) > ENTRIES_MAX:
            raise UnkeptError(f"{os.fsdecode(root)} has more than {ENTRIES_MAX} files")
        if size > BYTES_MAX:
            raise UnkeptError(f"{os.fsdecode(root)} has more than {BYTES_MAX >> 30} GiB of files")
    return found


def _scan_objects(
    root: bytes, objects: bytes, found: Scan, waiting: list[tuple[bytes, bool]]
) -> None:
    """Find the objects of a repository by name alone; its other files are kept as files."""
    for top in _names(os.path.join(root, objects)):
        below = os.path.join(objects, top)
        if top == b"info":
            waiting.append((below, True))
        elif top == b"pack" or len(top) == 2:
            if top == b"pack":
                mode = stat.S_IMODE(os.lstat(os.path.join(root, below)).st_mode)
                found.dirs[below] = b"%o\0" % mode
            for name in _names(os.path.join(root, below)):
                key = os.path.join(top, name)
                if _LOOSE.fullmatch(key) or _PACK.fullmatch(key):
                    found.objects[os.path.join(objects, key)] = key


def _names(path: bytes) -> list[bytes]:
    try:
        return os.listdir(path)
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
    if os.path.join(home, "").startswith(os.path.join(root, "")) or root in ("/tmp", "/var/tmp"):  # noqa: S108
        raise UnkeptError(f"{root} is too general a directory")
    return root
