"""The store of one directory: takes, lists and prunes its snapshots."""

import errno
import fcntl
import glob
import hashlib
import marshal
import math
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Any, Final, NamedTuple

from acpterm.undo.scan import (
    FILE_BYTES_MAX,
    LISTING,
    Directories,
    Scan,
    Signature,
    UnkeptError,
    open_file,
    scan,
)

KEPT_MAX: Final = 200
AGE_MAX_S: Final = 7 * 24 * 3600.0
BYTES_MAX: Final = 1024**3
# Pruning repacks everything: it is done once for this many snapshots.
PRUNE_PERIOD: Final = 20
_LOCK_TIMEOUT_S: Final = 60.0
# A file whose times are this young may change again without a change of its times.
_RACE_NS: Final = 100_000_000
_COARSE_RACE_NS: Final = 2_000_000_000
_CACHE_VERSION: Final = 1
_COPIED_BYTES_MAX: Final = 256 * 1024 * 1024
# The copies are no more readable than an `.env` is.
_UMASK: Final = 0o077
_REFS: Final = "refs/undo/"
# What a git that failed, or was killed, has left in the repository.
_REMAINS: Final = (
    "objects/pack/tmp_*",
    "objects/info/**/*.lock",
    "refs/**/*.lock",
    "*.lock",
    "gc.pid",
    "fast_import_crash_*",
)
_BEFORE: Final = "before "
_DURING: Final = "during "
# Names that git, or we, cannot have in a tree.
_REFUSED: Final = frozenset((b".git", b".gitmodules", LISTING))
_CONFIG: Final = {
    "core.autocrlf": "false",
    "core.bare": "true",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.protectHFS": "false",
    "core.protectNTFS": "false",
    "core.quotePath": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    # A quarter less processor time than the usual level, and hardly larger.
    "pack.compression": "1",
    "core.compression": "1",
}


class Snapshot(NamedTuple):
    id: str
    """The time at which it was complete, in ms since 1970."""
    why: str

    @property
    def time(self) -> float:
        return int(self.id) / 1000

    @property
    def is_during(self) -> bool:
        """Whether a command had begun before all was read: a part may be from after it."""
        return self.why.startswith(_DURING)

    @property
    def ref(self) -> str:
        return f"{_REFS}{self.id}"


class Kept(NamedTuple):
    snapshot: Snapshot
    skipped: dict[bytes, str]
    should_prune: bool


class _Cache(NamedTuple):
    tree: str
    files: dict[bytes, Signature]
    dirs: dict[bytes, bytes]
    objects: dict[bytes, bytes]
    skipped: dict[bytes, str]
    # When the scan began.
    began_ns: int

    def is_unchanged(self, path: bytes, signature: Signature) -> bool:
        """Return whether a file surely has the content that the cached tree has."""
        if self.files.get(path) != signature:
            return False
        youngest = max(signature[2], signature[3])
        is_coarse = not youngest % 1_000_000
        return youngest < self.began_ns - (_COARSE_RACE_NS if is_coarse else _RACE_NS)


_NO_CACHE: Final = _Cache("", {}, {}, {}, {}, 0)


class Store:
    """The snapshots of the directory `root`, below the directory `stores`. Raises `UnkeptError`."""

    def __init__(self, stores: str, root: str) -> None:
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
        self.root: Final = root
        self.directory: Final = os.path.join(stores, name)
        self.linked: Final = os.fsencode(os.path.join(self.directory, "linked"))
        self._stores: Final = stores
        self._repository: Final = os.path.join(self.directory, "git")
        inside = os.path.join(os.path.realpath(stores), "")
        if inside.startswith(os.path.join(root, "")) or root.startswith(inside):
            raise UnkeptError(f"{root} has acpterm's own files")
        if (git := shutil.which("git")) is None:
            raise UnkeptError("there is no git on this machine")
        self._git: Final = git
        self._lock_fds: tuple[int, ...] = ()

    @property
    def exists(self) -> bool:
        return os.path.isdir(self._repository)

    @property
    def is_busy(self) -> bool:
        """Whether a process takes a snapshot, restores or prunes."""
        try:
            with open(os.path.join(self.directory, "lock"), encoding="ascii") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, which ends with this process. Raises `UnkeptError` after a minute."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        path = os.path.join(self.directory, "lock")
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while True:
            with open(path, "a", encoding="ascii") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise UnkeptError(
                            f"another process keeps or restores {self.root}"
                        ) from None
                    time.sleep(0.02)
                    continue
                # Pruning for another directory may have removed the store meanwhile.
                if not _is_at(lock, path):
                    os.makedirs(self.directory, mode=0o700, exist_ok=True)
                    continue
                # git inherits it: a `git gc` whose parent was killed must not remove what the
                # next process writes.
                self._lock_fds = (lock.fileno(),)
                try:
                    self._initialise()
                    yield
                finally:
                    self._lock_fds = ()
                return

    def _initialise(self) -> None:
        if self.exists:
            self._remove_remains()
            return
        os.chmod(self._stores, 0o700)
        aside = f"{self._repository}.new"
        shutil.rmtree(aside, ignore_errors=True)
        self._run(["init", "--quiet", "--bare", "--template=", aside], is_repository=False)
        with open(os.path.join(self.directory, "root"), "wb") as file:
            file.write(os.fsencode(self.root))
        os.rename(aside, self._repository)

    def _remove_remains(self) -> None:
        # They may fill the disk, and locks let all that follows fail. Whoever made them has ended:
        # it held the lock of the store.
        for pattern in _REMAINS:
            for path in glob.iglob(pattern, root_dir=self._repository, recursive=True):
                os.unlink(os.path.join(self._repository, path))

    def _argv(self, words: Sequence[str], *, is_repository: bool = True) -> list[str]:
        config = [word for name, value in _CONFIG.items() for word in ("-c", f"{name}={value}")]
        where = [f"--git-dir={self._repository}"] if is_repository else []
        return [self._git, *where, *(config if is_repository else ()), *words]

    def _environment(self) -> dict[str, str]:
        # None of the user's GIT_… variables, and no configuration but ours.
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": self.directory,
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
        }

    def start(self, words: Sequence[str], **streams: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._argv(words),
            env=self._environment(),
            cwd=self.directory,
            pass_fds=self._lock_fds,
            umask=_UMASK,
            **streams,
        )

    def _run(
        self, words: Sequence[str], stdin: bytes = b"", *, is_repository: bool = True
    ) -> bytes:
        done = subprocess.run(
            self._argv(words, is_repository=is_repository),
            env=self._environment(),
            cwd=self.directory,
            pass_fds=self._lock_fds,
            umask=_UMASK,
            input=stdin,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            text = done.stderr.decode(errors="replace").strip()[-300:]
            raise UnkeptError(f"git {words[0]} failed: {text or done.returncode}")
        return done.stdout

    def git(self, *words: str, stdin: bytes = b"") -> bytes:
        """Return what git prints. Raises `UnkeptError` if it fails."""
        return self._run(words, stdin)

    def object_path(self, path: bytes) -> bytes:
        """Return where an object of the user's is kept."""
        return os.path.join(self.linked, *path.split(b"/")[-2:])

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots, the oldest first."""
        return list(self._trees())

    def _trees(self) -> dict[Snapshot, str]:
        """Return the snapshots, the oldest first, and the tree of each."""
        if not self.exists:
            return {}
        form = "--format=%(refname:lstrip=2) %(tree) %(contents:subject)"
        lines = self.git("for-each-ref", form, _REFS).decode(errors="replace").splitlines()
        found = sorted((line.split(" ", 2) for line in lines), key=lambda one: int(one[0]))
        return {Snapshot(name, why): tree for name, tree, why in found}

    def having(self, path: str, snapshots: Sequence[Snapshot]) -> list[Snapshot]:
        """Return those of the snapshots whose trees have a path."""
        if not snapshots:
            return []
        names = "".join(f"{one.ref}:{path}\n" for one in snapshots).encode()
        lines = self.git("cat-file", "--batch-check=%(objecttype)", stdin=names).splitlines()
        found = zip(snapshots, lines, strict=True)
        return [one for one, line in found if not line.endswith(b" missing")]

    def keep(self, why: str, has_begun: Callable[[], bool] = lambda: False) -> Kept:
        """Take a snapshot within `locked`, or return the newest one if nothing has changed.

        It is one of before `why` unless `has_begun` returns true once all is read.
        """
        cache = self._load_cache()
        if cache is not None:
            # A cached tree may be gone: after a crash of the system, for example.
            with suppress(UnkeptError):
                return self._keep(why, cache, has_begun)
        return self._keep(why, _NO_CACHE, has_begun)

    def _keep(self, why: str, cache: _Cache, has_begun: Callable[[], bool]) -> Kept:
        trees = self._trees()
        earlier = list(trees)
        # What was killed, or had no space, after it had made a ref has left an older cache.
        if not trees or cache.tree != trees[earlier[-1]]:
            cache = _NO_CACHE
        began_ns = time.time_ns()
        found = scan(os.fsencode(self.root))
        self._link(found, cache)
        changed = [path for path, sig in found.files.items() if not cache.is_unchanged(path, sig)]
        is_same = found[1:] == (cache.dirs, cache.objects, cache.skipped)
        is_same = is_same and not changed and found.files.keys() == cache.files.keys()
        # One that was taken during a command becomes, with a new ref, one of before this command.
        if is_same and cache.tree and not earlier[-1].is_during:
            # Its time says when the directory was last kept.
            os.utime(os.path.join(self.directory, "cache"))
            return Kept(earlier[-1], found.skipped, should_prune=False)
        needed = sum(found.files[path][1] for path in changed)
        if needed > shutil.disk_usage(self.directory).free // 2:
            raise UnkeptError("there is too little space on the disk for a snapshot")
        last = int(earlier[-1].id) if earlier else 0
        process = self.start(
            ["fast-import", "--quiet", "--done", "--date-format=raw"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None and process.stderr is not None  # noqa: PT018, S101
        try:
            with process.stdin as stream:
                snapshot = self._feed(stream, found, cache, changed, why, has_begun, last)
        except BrokenPipeError:
            snapshot = None
        error = process.stderr.read().decode(errors="replace")
        process.stderr.close()
        if process.wait() or snapshot is None:
            self._remove_remains()
            raise UnkeptError(f"git fast-import failed: {error.strip()[-300:]}")
        tree = self.git("rev-parse", f"{snapshot.ref}^{{tree}}").decode().strip()
        if tree == cache.tree and earlier and earlier[-1].is_during <= snapshot.is_during:
            # What was young enough to be read again has not changed.
            self.git("update-ref", "-d", snapshot.ref)
            snapshot = earlier[-1]
        self._save_cache(_Cache(tree, *found, began_ns))
        over = len(earlier) - KEPT_MAX
        is_old = len(earlier) > 1 and earlier[1].time < time.time() - AGE_MAX_S
        is_due = not (len(earlier) + 1) % PRUNE_PERIOD or over >= PRUNE_PERIOD
        return Kept(snapshot, found.skipped, should_prune=is_due or is_old)

    def _feed(  # noqa: PLR0917
        self,
        stream: IO[bytes],
        found: Scan,
        cache: _Cache,
        changed: list[bytes],
        why: str,
        has_begun: Callable[[], bool],
        last: int,
    ) -> Snapshot:
        """Write a snapshot as input of git fast-import; return it."""
        written = self._feed_contents(stream, found, changed)
        # Nothing of the directory is read after this.
        if has_begun():
            why = _DURING + why.removeprefix(_BEFORE)
        identifier = max(time.time_ns() // 1_000_000, last + 1)
        stream.write(b"commit %b\n" % f"{_REFS}{identifier}".encode())
        stream.write(b"committer acpterm <> %d +0000\n" % (identifier // 1000))
        stream.write(_data(why.encode()))
        if cache.tree:
            stream.write(b'M 040000 %b ""\n' % cache.tree.encode())
        for top, old, new in (
            (b"files", cache.files, found.files),
            (b"dirs", cache.dirs, found.dirs),
            (b"linked", cache.objects, found.objects),
        ):
            tail = b"/" + LISTING if top == b"dirs" else b""
            # Before the rest: a directory may have become a file.
            for path in old.keys() - new.keys():
                stream.write(b"D %b\n" % _quoted(top, path, tail))
        for path, command in written.items():
            stream.write(b"%b%b\n" % (command, _quoted(b"files", path)))
        for path, listing in found.dirs.items():
            if cache.dirs.get(path) != listing:
                stream.write(b"M 100644 inline %b\n" % _quoted(b"dirs", path, b"/" + LISTING))
                stream.write(_data(listing))
        for path in found.objects.keys() - cache.objects.keys():
            stream.write(b"M 100644 inline %b\ndata 0\n\n" % _quoted(b"linked", path))
        skipped = b"".join(
            path + b"\0" + why.encode() + b"\0" for path, why in found.skipped.items()
        )
        stream.write(b"M 100644 inline skipped\n" + _data(skipped) + b"done\n")
        return Snapshot(str(identifier), why)

    def _feed_contents(
        self, stream: IO[bytes], found: Scan, changed: list[bytes]
    ) -> dict[bytes, bytes]:
        """Write the contents of files; return how a commit names each, by path."""
        written = {}
        directories = Directories(os.fsencode(self.root))
        for mark, path in enumerate(changed, 1):
            mode = found.files[path][0]
            try:
                content = _read(directories.open(os.path.dirname(path)), path, mode)
            except FileNotFoundError:
                del found.files[path]
                continue
            except OSError as error:
                del found.files[path]
                found.skipped[path] = error.strerror or "cannot be read"
                continue
            stream.write(b"blob\nmark :%d\ndata %d\n%b\n" % (mark, len(content), content))
            kind = b"120000" if stat.S_ISLNK(mode) else b"100755" if mode & 0o100 else b"100644"
            written[path] = b"M %b :%d " % (kind, mark)
        directories.close()
        return written

    def _link(self, found: Scan, cache: _Cache) -> None:
        """Take over the user's new objects."""
        directories = Directories(os.fsencode(self.root))
        for path, key in [item for item in found.objects.items() if item[0] not in cache.objects]:
            try:
                take(directories.open(os.path.dirname(path)), os.path.join(self.linked, key))
            except OSError as error:
                del found.objects[path]
                if error.errno != errno.ENOENT:
                    found.skipped[path] = error.strerror or "cannot be linked"
        directories.close()

    def _load_cache(self) -> _Cache | None:
        try:
            with open(os.path.join(self.directory, "cache"), "rb") as file:
                # Not `load`, which takes ten times as long.
                version, *fields = marshal.loads(file.read())  # noqa: S302  our own file
            return _Cache(*fields) if version == _CACHE_VERSION else None
        except (OSError, EOFError, ValueError, TypeError):
            return None

    def _save_cache(self, cache: _Cache) -> None:
        path = os.path.join(self.directory, "cache")
        with open(f"{path}.new", "wb", opener=partial(os.open, mode=0o600)) as file:
            file.write(marshal.dumps((_CACHE_VERSION, *cache)))
        os.replace(f"{path}.new", path)

    def prune(
        self, *, kept: int = KEPT_MAX, age_s: float = AGE_MAX_S, size: int = BYTES_MAX
    ) -> None:
        """Remove, within `locked`, what is over a bound; the newest snapshot stays."""
        oldest = time.time() - age_s
        left = self.snapshots()
        # What was there unchanged for long is as old as the change: its age begins with the next.
        ended = [one.time for one in left[1:]] + [math.inf]
        left = [one for one, end in zip(left, ended, strict=False) if end >= oldest][-kept:]
        while True:
            self._drop_all_but(left)
            if len(left) < 2 or self.size() <= size:
                break
            left = left[(len(left) + 1) // 2 :]
        for name in os.listdir(self._stores):
            _remove_old(os.path.join(self._stores, name), oldest)

    def _drop_all_but(self, left: Sequence[Snapshot]) -> None:
        gone = [one for one in self.snapshots() if one not in left]
        self.git(
            "update-ref", "--stdin", stdin=b"".join(f"delete {one.ref}\n".encode() for one in gone)
        )
        self.git("gc", "--quiet", "--prune=now")
        needed = {
            b"/".join(path.split(b"/")[-2:])
            for one in left
            for path in split(self.git("ls-tree", "-r", "-z", "--name-only", one.ref, "linked/"))
        }
        for key in list_keys(self.linked):
            if key not in needed:
                os.unlink(os.path.join(self.linked, key))

    def size(self) -> int:
        """Return the number of bytes that the store alone holds."""
        total = 0
        for directory, _, names in os.walk(self.directory):
            for name in names:
                with suppress(OSError):
                    status = os.lstat(os.path.join(directory, name))
                    # What is linked, and still in the user's repository, costs nothing.
                    total += 0 if status.st_nlink > 1 else status.st_size
        return total


def _is_at(file: IO[str], path: str) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    return False


def list_keys(linked: bytes) -> Iterator[bytes]:
    """Return the names of linked objects, such as `pack/pack-….pack`."""
    for directory, _, names in os.walk(linked):
        yield from (os.path.join(os.path.basename(directory), name) for name in names)


def _remove_old(store: str, oldest: float) -> None:
    """Remove the store of another directory if its newest snapshot is too old."""
    with suppress(OSError), open(os.path.join(store, "lock"), "rb") as lock:
        cache = os.path.join(store, "cache")
        # One whose first snapshot was killed has none.
        if os.stat(cache if os.path.exists(cache) else store).st_mtime < oldest:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(store)


def _read(directory: int, path: bytes, mode: int) -> bytes:
    name = os.path.basename(path)
    if stat.S_ISLNK(mode):
        return os.readlink(name, dir_fd=directory)
    with open(open_file(name, directory), "rb") as file:
        content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, "grows while it is read")
    return content


def _data(content: bytes) -> bytes:
    return b"data %d\n%b\n" % (len(content), content)


def escaped(path: bytes) -> bytes:
    """Return a path whose components git accepts in its trees."""
    return b"/".join(
        b"%" + name if name.lower() in _REFUSED or name[:1] == b"%" else name
        for name in path.split(b"/")
    )


def unescaped(path: bytes) -> bytes:
    return b"/".join(name.removeprefix(b"%") for name in path.split(b"/"))


def _quoted(top: bytes, path: bytes, tail: bytes = b"") -> bytes:
    whole = top + (b"/" + escaped(path) if path else b"") + tail
    whole = whole.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"%b"' % whole


def take(directory: int, target: bytes) -> None:
    """Copy an object of a repository, by its name, to `target`. Raises `OSError`.

    A large one is linked. It then shares a change of its bytes in place, which git never makes.
    """
    if os.path.lexists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    name, aside = os.path.basename(target), target + b".new"
    with suppress(FileNotFoundError):
        os.unlink(aside)
    with open(open_file(name, directory), "rb") as source:
        status = os.fstat(source.fileno())
        try:
            if status.st_size <= FILE_BYTES_MAX:
                copy(source, os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400))
            else:
                os.link(name, aside, src_dir_fd=directory, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
                raise
            if status.st_size > _COPIED_BYTES_MAX:
                raise OSError(errno.EFBIG, "too large to copy to another file system") from error
            copy(source, os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400))
    os.replace(aside, target)


def copy(source: IO[bytes], target: int) -> None:
    """Copy a file of git to a new one, with its time, and close that."""
    status = os.fstat(source.fileno())
    with open(target, "wb") as file:
        shutil.copyfileobj(source, file, 1024 * 1024)
        file.flush()
        os.utime(file.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
        os.fchmod(file.fileno(), 0o444)


def split(raw: bytes) -> list[bytes]:
    """Return the parts that NUL bytes end."""
    return raw.split(b"\0")[:-1]
