"""Brings a directory back to a snapshot: what that changes, and the change itself.

The snapshot of now, which is taken before, says what is there. Paths are opened one directory at a
time without following links: a program that still runs cannot redirect a write to another place.
"""

import errno
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Final, NamedTuple

from acpterm.pty import processes
from acpterm.undo.scan import FILE_BYTES_MAX, LISTING, Directories, UnkeptError, open_file
from acpterm.undo.store import Kept, Snapshot, Store, copy, split, unescaped

_GIT: Final = b".git"
_LOCK: Final = ".git/index.lock"
# What a repository reads first is written last.
_LAST: Final = {b"index": 1, b"tables.list": 1, b"HEAD": 2}
_FILES_ALONE: Final = "only files are restored, and not branches, index and stash: "
# What is there belongs to other worktrees.
_WORKTREES: Final = b".git/worktrees"
_NAMED_MAX: Final = 10
_TEMPORARY: Final = b".acpterm-undo.new"


class Change(NamedTuple):
    path: bytes
    what: str
    """`restore`, `remove`, `change` (content or type), or `mode`."""
    mode: int = 0
    """As in a tree of git."""
    oid: bytes = b""
    was: bytes = b""
    """The object that is there now: a plan is out of date if that changes."""

    @property
    def is_git(self) -> bool:
        return _GIT in self.path.split(b"/")


class Plan(NamedTuple):
    """What brings a directory from the snapshot `now` to `target`, by paths relative to it."""

    now: Snapshot
    target: Snapshot
    files: list[Change]
    modes: dict[bytes, int]
    """Modes to set, of files and directories."""
    made: list[bytes]
    """Directories to make."""
    removed: list[bytes]
    """Directories to remove, if they are empty then."""
    objects: list[bytes]
    """Objects of the user's repositories to bring back."""
    damaged: list[bytes]
    """Objects of repositories that a program has changed in place, which git never does."""
    dropped: list[bytes]
    """Objects of repositories that are removed."""
    note: str
    """What is not restored, and why; may be empty."""

    @property
    def changes(self) -> list[Change]:
        """All changes that a user sees, by path."""
        named = {change.path for change in self.files}.union(self.made)
        return sorted(
            [
                *self.files,
                *(Change(path, "change") for path in self.damaged),
                *(Change(path, "mode") for path in self.modes.keys() - named),
                *(Change(path + b"/", "restore") for path in self.made),
                *(Change(path + b"/", "remove") for path in self.removed),
            ]
        )


def plan(store: Store, kept: Kept, target: Snapshot) -> Plan:
    """Compare the directory, of which `kept` is the newest snapshot, with `target`."""
    now = kept.snapshot
    found = Plan(now, target, [], {}, [], [], [], [], [], _note(store, now, target))
    skipped = split(store.git("cat-file", "blob", f"{target.ref}:skipped"))[::2]
    unkept = kept.skipped.keys() | skipped
    notes = [found.note]
    root = os.fsencode(store.root)
    if lost := [path for path in skipped if not os.path.lexists(os.path.join(root, path))]:
        notes.append(f"gone, and not kept: {_names(lost)}")
    options = ("-r", "-z", "--raw", "--no-renames", "--no-abbrev")
    raw = iter(split(store.git("diff-tree", *options, now.ref, target.ref)))
    listings = []
    # They come and go with a repository that does so as a whole.
    stays = len(store.having("files/%.git/HEAD", [now, target])) == 2
    has_git = bool(store.having("files/%.git", [now]))
    for facts, whole in zip(raw, raw, strict=True):
        _, mode, was, oid, status = facts.split(b" ")
        top, _, path = whole.partition(b"/")
        path = unescaped(path)
        if stays and path.startswith(_WORKTREES):
            continue
        # The file that names the repository of a worktree comes back with the worktree.
        if found.note and path.split(b"/")[0] == _GIT and (has_git or path != _GIT):
            continue
        if top == b"linked":
            (found.dropped if status == b"D" else found.objects).append(path)
        elif top == b"dirs":
            listings.append(path[: -len(LISTING)].rstrip(b"/"))
        elif top == b"files" and not any(one in unkept for one in _with_parents(path)):
            what = {b"A": "restore", b"D": "remove"}.get(status, "change")
            found.files.append(Change(path, what, int(mode, 8), oid, was))
    _plan_modes(store, found, listings)
    found.removed[:] = [
        path for path in found.removed if not any(one in unkept for one in _with_parents(path))
    ]
    found.damaged.extend(_damaged(store, found))
    if left := set(_new_repositories(store, now, target)):
        below = {path for one in left for path in _with_parents(one)}
        found.files[:] = [
            one
            for one in found.files
            if one.what != "remove" or left.isdisjoint(_with_parents(one.path))
        ]
        found.removed[:] = [
            path
            for path in found.removed
            if path not in below and left.isdisjoint(_with_parents(path))
        ]
        notes.append(f"repositories that were made since are not removed: {_names(left)}")
    # The objects of a repository that stays are never removed.
    removed = set(found.removed)
    found.dropped[:] = [path for path in found.dropped if path.rsplit(b"/", 2)[0] in removed]
    if _has_lock(store, found):
        notes.append(f"{_LOCK} is removed if the git that made it has ended")
    found.removed.extend({os.path.dirname(path) for path in found.dropped} - removed)
    return found._replace(note="; ".join(filter(None, notes)))


def _names(paths: Iterable[bytes]) -> str:
    names = [path.decode(errors="backslashreplace") for path in sorted(paths)]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more


def _new_repositories(store: Store, now: Snapshot, target: Snapshot) -> list[bytes]:
    """Return the repositories of a directory that is none which the target does not have."""
    old, new = (
        {
            os.path.dirname(path)
            for path in map(unescaped, split(store.git("ls-tree", "-rtz", "--name-only", one.ref)))
            if os.path.basename(path) == _GIT and path.startswith(b"files/")
        }
        for one in (now, target)
    )
    if b"files" in old | new:
        return []
    return [path.removeprefix(b"files/") for path in old - new]


def _damaged(store: Store, found: Plan) -> Iterator[bytes]:
    if found.note:
        return
    directories = Directories(os.fsencode(store.root))
    names = ("ls-tree", "-r", "-z", "--name-only", found.target.ref, "linked/")
    for name in split(store.git(*names)):
        path = unescaped(name.removeprefix(b"linked/"))
        with suppress(OSError):
            kept = open(store.object_path(path), "rb")  # noqa: SIM115
            with kept, open(_opened(directories, path), "rb") as file:
                one, other = os.fstat(kept.fileno()), os.fstat(file.fileno())
                same = (one.st_size, one.st_mtime_ns) == (other.st_size, other.st_mtime_ns)
                is_large = one.st_size > FILE_BYTES_MAX
                # Its time changes, too, when git has it again.
                if not same and (is_large or kept.read() != file.read()):
                    yield path
    directories.close()


def _opened(directories: Directories, path: bytes) -> int:
    return open_file(os.path.basename(path), directories.open(os.path.dirname(path)))


def _plan_modes(store: Store, found: Plan, listings: list[bytes]) -> None:
    """Plan the directories and modes, by the directories whose listings differ."""
    old, new = (_listings(store, snapshot) for snapshot in (found.now, found.target))
    written = {one.path: one for one in found.files if one.what != "remove"}
    directories = [*listings, *(os.path.dirname(path) for path in written)]
    oids = sorted({one[path] for one in (old, new) for path in directories if path in one})
    with reading(store, oids) as contents:
        texts = dict(zip(oids, contents, strict=True))
    gone = {one.path for one in found.files if one.what == "remove"}
    for path in listings:
        if path not in new:
            found.removed.append(path)
            continue
        if path not in old:
            found.made.append(path)
        before, after = (_modes(path, texts.get(one.get(path, b""), b"")) for one in (old, new))
        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name):
                # One that has no mode of its own has a usual mode.
                usual = 0o755 if before.get(name, 0) & 0o100 else 0o644
                found.modes[name] = after.get(name, usual)
    for path in gone.difference(found.made):
        found.modes.pop(path, None)
    for path, change in written.items():
        if stat.S_ISREG(change.mode):
            directory = os.path.dirname(path)
            named = _modes(directory, texts[new[directory]]) if directory in new else {}
            found.modes[path] = named.get(path, change.mode & 0o777)
        else:
            found.modes.pop(path, None)


def _note(store: Store, now: Snapshot, target: Snapshot) -> str:
    """Say why the state of git is left alone, if it is."""
    if store.git("ls-tree", target.ref, "files/%.git").startswith(b"100"):
        return f"{_FILES_ALONE}{store.root} is a worktree of another repository, which has them"
    old, new = _refs(store, now), _refs(store, target)
    for name, head in old.items():
        if name.startswith(b"worktrees/") and name.endswith(b"/HEAD"):
            branch = head.removeprefix(b"ref: ")
            if old.get(branch) != new.get(branch):
                text = branch.decode(errors="replace").removeprefix("refs/heads/")
                return f"{_FILES_ALONE}{text}, which another worktree has, has changed since"
    return ""


def _refs(store: Store, snapshot: Snapshot) -> dict[bytes, bytes]:
    """Return what branches, and the HEADs of other worktrees, are, by their names in `.git`."""
    top = "files/%.git/"
    wanted = [f"{top}{name}" for name in ("packed-refs", "refs/heads/", "worktrees/")]
    oids = {}
    for line in split(store.git("ls-tree", "-r", "-z", snapshot.ref, *wanted)):
        facts, _, path = line.partition(b"\t")
        name = unescaped(path.removeprefix(top.encode()))
        if not name.startswith(b"worktrees/") or name.endswith(b"/HEAD"):
            oids[name] = facts.split(b" ")[2]
    with reading(store, list(oids.values())) as contents:
        found = {name: next(contents).strip() for name in oids}
    lines = found.pop(b"packed-refs", b"").splitlines()
    packed = (line.split(b" ", 1)[::-1] for line in lines if line[:1] not in b"#^")
    return {**dict(packed), **found}


def _with_parents(path: bytes) -> Iterator[bytes]:
    while path:
        yield path
        path = os.path.dirname(path)


def _listings(store: Store, snapshot: Snapshot) -> dict[bytes, bytes]:
    """Return the object that has the modes of each directory."""
    found = {}
    for line in split(store.git("ls-tree", "-r", "-z", snapshot.ref, "dirs/")):
        facts, _, path = line.partition(b"\t")
        path = unescaped(path.removeprefix(b"dirs/"))
        found[path[: -len(LISTING)].rstrip(b"/")] = facts.split(b" ")[2]
    return found


def _modes(directory: bytes, listing: bytes) -> dict[bytes, int]:
    """Return the mode of a directory, and those of the files in it that have unusual ones."""
    found = {}
    for line in split(listing):
        mode, _, name = line.partition(b" ")
        found[os.path.join(directory, name) if name else directory] = int(mode, 8)
    return found


@contextmanager
def reading(store: Store, oids: list[bytes]) -> Iterator[Iterator[bytes]]:
    """Yield the contents of objects, in this order, one at a time."""
    process = store.start(["cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101
        yield _read(process.stdin, process.stdout, oids)
        process.stdin.close()


def _read(requests: IO[bytes], contents: IO[bytes], oids: list[bytes]) -> Iterator[bytes]:
    for oid in oids:
        requests.write(oid + b"\n")
        requests.flush()
        facts = contents.readline().split()
        if len(facts) != 3:
            raise UnkeptError(f"the snapshot has lost {os.fsdecode(oid)}")
        yield contents.read(int(facts[2]) + 1)[:-1]


def apply(store: Store, found: Plan) -> list[str]:
    """Carry a plan out, within `locked`; return what could not be done, and why.

    Raises `UnkeptError` if nothing is done: git works in the directory, or the disk is full.
    """
    has_lock = _has_lock(store, found)
    if has_lock and _is_held(store.root):
        raise UnkeptError(f"git works there now: {store.root}/{_LOCK} exists; nothing was restored")
    _check_space(store, found)
    # It may have been removed with all that was in it.
    os.makedirs(store.root, exist_ok=True)
    done = _Restorer(os.fsencode(store.root))
    try:
        _apply(store, found, done)
    except (UnkeptError, OSError) as error:
        # It has begun: what it could not do is reported, and recorded.
        done.failures.append(str(error))
    if has_lock:  # not earlier: until now it has kept others' git out
        done.remove(os.fsencode(_LOCK))
    done.close()
    return done.failures


def _apply(store: Store, found: Plan, done: "_Restorer") -> None:
    for path in [*(one.path for one in found.files if one.what == "remove"), *found.dropped]:
        done.remove(path)
    for path in sorted(found.removed, reverse=True):
        done.remove_directory(path)
    for path in sorted(found.made):
        done.make_directory(path)
    for path in [*found.objects, *found.damaged]:
        done.write_object(path, store.object_path(path))
    written = [change for change in found.files if change.what != "remove"]
    written.sort(key=lambda one: (one.is_git, _LAST.get(os.path.basename(one.path), 0)))
    with reading(store, [change.oid for change in written]) as contents:
        for change, content in zip(written, contents, strict=True):
            done.write(change, content, found.modes.get(change.path, 0o600))
    # Directories last, the deepest first: one that is read-only cannot be changed any more.
    modes = {**done.opened, **found.modes}
    for path in sorted(
        modes, key=lambda one: (one in done.opened, one.count(b"/"), one), reverse=True
    ):
        done.set_mode(path, modes[path])


def _has_lock(store: Store, found: Plan) -> bool:
    is_due = any(change.is_git for change in found.files)
    return is_due and os.path.lexists(os.path.join(store.root, _LOCK))


def _is_held(root: str) -> bool:
    """Return whether the program that has made the lock of a repository may still run."""
    lock = os.path.join(root, _LOCK)
    with suppress(FileNotFoundError):
        # One that began later has not made it. Both clocks are read to a hundredth of a second.
        made = processes.now() - (time.time() - os.lstat(lock).st_mtime) + 1
        return any(
            process is not None
            and not process.zombie
            and process.started <= made
            and _may_hold(process.pid, lock, root)
            for process in processes.read_all()
        )
    return False


def _may_hold(pid: int, lock: str, root: str) -> bool:
    # git closes the lock while its editor runs; other programs keep it open.
    program = os.path.basename(b"".join(processes.arguments_of(pid)[:1]))
    if program == b"git" or program.startswith(b"git-"):
        try:
            place = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            # A process of another user, which may have made the lock.
            with suppress(OSError):
                return os.stat(f"/proc/{pid}").st_uid == os.stat(lock).st_uid
            return False
        if os.path.join(place, "").startswith(os.path.join(root, "")):
            return True
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{name}") == lock:
                    return True
    return False


def _check_space(store: Store, found: Plan) -> None:
    oids = b"\n".join(change.oid for change in found.files if change.what != "remove")
    sizes = store.git("cat-file", "--batch-check=%(objectsize)", stdin=oids).split()
    needed = sum(int(size) for size in sizes if size.isdigit())
    place = store.root
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    free = shutil.disk_usage(place).free
    if needed > free:
        raise UnkeptError(
            f"nothing was restored: that needs {needed >> 10} KiB, and {free >> 10} are free"
        )


class _Restorer(Directories):
    def __init__(self, root: bytes) -> None:
        super().__init__(root)
        self.failures: Final[list[str]] = []
        self.opened: Final[dict[bytes, int]] = {}
        """The modes of directories that had to be made writable."""

    @contextmanager
    def noting(self, path: bytes) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failures.append(f"{os.fsdecode(path)}: {error.strerror}")

    def _enter(self, name: bytes, parent: int | None, path: bytes) -> int:
        try:
            fd = super()._enter(name, parent, path)
        except PermissionError:
            mode = os.lstat(name, dir_fd=parent).st_mode
            if not stat.S_ISDIR(mode):
                raise
            self.opened.setdefault(path, stat.S_IMODE(mode))
            _chmod(name, 0o700, parent)
            fd = super()._enter(name, parent, path)
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode & 0o700 != 0o700:
            self.opened.setdefault(path, mode)
            os.fchmod(fd, mode | 0o700)
        return fd

    def remove(self, path: bytes) -> None:
        with self.noting(path), suppress(FileNotFoundError):
            os.unlink(os.path.basename(path), dir_fd=self.open(os.path.dirname(path)))

    def remove_directory(self, path: bytes) -> None:
        with self.noting(path), suppress(FileNotFoundError):
            os.rmdir(os.path.basename(path), dir_fd=self.open(os.path.dirname(path)))
            self.opened.pop(path, None)

    def make_directory(self, path: bytes) -> None:
        if path:
            with self.noting(path), suppress(FileExistsError):
                os.mkdir(os.path.basename(path), 0o700, dir_fd=self.open(os.path.dirname(path)))

    def write(self, change: Change, content: bytes, mode: int) -> None:
        name = os.path.basename(change.path)
        with self.noting(change.path):
            directory = self.open(os.path.dirname(change.path))
            with _temporary(directory):
                if stat.S_ISLNK(change.mode):
                    os.symlink(content, _TEMPORARY, dir_fd=directory)
                else:
                    with open(_new(directory), "wb") as file:
                        file.write(content)
                        os.fchmod(file.fileno(), mode)
                os.rename(_TEMPORARY, name, src_dir_fd=directory, dst_dir_fd=directory)

    def write_object(self, path: bytes, kept: bytes) -> None:
        with self.noting(path), open(kept, "rb") as source:
            self.make_directory(os.path.dirname(path))
            directory = self.open(os.path.dirname(path))
            name = os.path.basename(path)
            with _temporary(directory):
                if os.fstat(source.fileno()).st_size > FILE_BYTES_MAX:
                    with suppress(OSError):  # another file system, for example
                        os.link(kept, _TEMPORARY, dst_dir_fd=directory, follow_symlinks=False)
                with suppress(FileExistsError):
                    copy(source, _new(directory))
                os.rename(_TEMPORARY, name, src_dir_fd=directory, dst_dir_fd=directory)

    def set_mode(self, path: bytes, mode: int) -> None:
        with self.noting(path), suppress(FileNotFoundError):
            directory, name = self.open(os.path.dirname(path)), os.path.basename(path) or b"."
            if not stat.S_ISLNK(os.lstat(name, dir_fd=directory).st_mode):
                _chmod(name, mode, directory)


@contextmanager
def _temporary(directory: int) -> Iterator[None]:
    """Remove what is left of a temporary file, before and after."""
    with suppress(FileNotFoundError):
        os.unlink(_TEMPORARY, dir_fd=directory)
    try:
        yield
    except OSError:
        with suppress(OSError):
            os.unlink(_TEMPORARY, dir_fd=directory)
        raise


def _new(directory: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(_TEMPORARY, flags, 0o600, dir_fd=directory)


def _chmod(name: bytes, mode: int, directory: int | None) -> None:
    """Change a mode, but not that of what a link, which has come meanwhile, leads to."""
    try:
        os.chmod(name, mode, dir_fd=directory, follow_symlinks=False)
    except (NotImplementedError, ValueError) as error:
        if sys.platform != "linux":
            raise OSError(errno.ELOOP, "has become a link") from error
        # It is a link, or glibc is older than 2.32.
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise OSError(errno.ELOOP, "has become a link") from error
            os.chmod(f"/proc/self/fd/{fd}", mode)
        finally:
            os.close(fd)
