"""Fetches the registry of agents, and installs the binaries of agents.

What arrives is written to a new directory beside its destination, checked there, and renamed into
place: what fails, or is interrupted by Ctrl-C, leaves nothing behind.

An archive is not trusted before its checksum is verified, and not much then: nothing is written
outside of its directory, and members that are neither files nor directories are refused.
"""

import hashlib
import io
import os
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import PurePosixPath
from shutil import rmtree
from typing import IO, Any, Final, NamedTuple
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from acpterm.agents.acp_registry import (
    REGISTRY_BYTES_MAX,
    AgentEntry,
    Registry,
    RegistryError,
    binary_of,
    copy_path,
    parse_registry,
)
from acpterm.config import agents_dir
from acpterm.config.http import check_address

ARCHIVE_BYTES_MAX: Final = 1024**3
UNPACKED_BYTES_MAX: Final = 4 * 1024**3
MEMBERS_MAX: Final = 100_000
_NETWORK_TIMEOUT_S: Final = 30.0
_CHUNK: Final = 256 * 1024
_TAR: Final = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2")


def fetch(address: str) -> Registry:
    """Copy the registry at an address, and return it. Raises `RegistryError`."""
    with _new_directory() as directory:
        path = os.path.join(directory, "registry")
        _download(address, path, REGISTRY_BYTES_MAX)
        with open(path, "rb") as file:
            registry = parse_registry(file.read(), address)
        os.replace(path, copy_path(address))
    return registry


def install(agent: AgentEntry) -> None:
    """Install an agent's binary in place of its other versions. Raises `RegistryError`."""
    binary, destination = binary_of(agent)
    with _new_directory() as directory:
        archive, files = os.path.join(directory, "archive"), os.path.join(directory, "files")
        digest = _download(binary.archive, archive, ARCHIVE_BYTES_MAX)
        if digest != os.path.basename(destination):
            raise RegistryError(
                f"{binary.archive} is not what the registry names: its SHA-256 is {digest}, and "
                f"not {binary.sha256}; it was removed"
            )
        os.mkdir(files)
        try:
            _unpack(archive, urlsplit(binary.archive).path.lower(), files, binary.cmd)
            program = os.path.join(files, binary.cmd)
            if not os.path.isfile(program):
                raise RegistryError(f"{binary.archive} has no file {binary.cmd!r}")
            os.chmod(program, 0o755)  # noqa: S103  in a directory of this user
        except _UNPACK_ERRORS as error:
            raise RegistryError(f"{binary.archive} cannot be unpacked: {error}") from error
        versions = os.path.dirname(destination)
        os.makedirs(versions, exist_ok=True)
        if os.path.isdir(destination):
            rmtree(destination)
        os.rename(files, destination)
        for other in os.listdir(versions):
            if other != os.path.basename(destination):
                rmtree(os.path.join(versions, other), ignore_errors=True)


@contextmanager
def _new_directory() -> Iterator[str]:
    """Make a directory for the duration of the block."""
    try:
        os.makedirs(agents_dir(), mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=agents_dir(), prefix=".new-") as directory:
            yield directory
    except OSError as error:
        raise RegistryError(f"{error.filename or agents_dir()}: {error.strerror}") from error


class _SafeRedirects(HTTPRedirectHandler):
    def redirect_request(self, *request: Any) -> Request | None:
        check_address(request[-1])
        return super().redirect_request(*request)


def _download(address: str, path: str, most: int) -> str:
    """Write what is at an address to a file; return its SHA-256. Raises `RegistryError`."""
    digest, size = hashlib.sha256(), 0
    try:
        check_address(address)
        request = Request(address, headers={"User-Agent": "acpterm"})  # noqa: S310  it is checked
        opened = build_opener(_SafeRedirects).open(request, timeout=_NETWORK_TIMEOUT_S)
        with opened as source, open(path, "xb") as file:
            while data := source.read(_CHUNK):
                size += len(data)
                if size > most:
                    raise RegistryError(f"{address} is larger than {most} bytes")
                digest.update(data)
                file.write(data)
    except (OSError, ValueError, HTTPException) as error:
        raise RegistryError(f"{address} cannot be fetched: {error}") from error
    return digest.hexdigest()


class _Member(NamedTuple):
    name: str
    mode: int
    is_directory: bool
    is_file: bool
    open: Callable[[], IO[bytes] | io.FileIO | None]


# What `tarfile` and `zipfile` raise for archives that they cannot read.
_UNPACK_ERRORS: Final = (
    OSError,
    ValueError,
    EOFError,
    RuntimeError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


def _members(archive: str, name: str, cmd: str) -> Iterator[_Member]:
    if name.endswith(".zip"):
        with zipfile.ZipFile(archive) as members:
            for one in members.infolist():
                mode = one.external_attr >> 16
                is_file = stat.S_IFMT(mode) in (0, stat.S_IFREG)
                opened = partial(members.open, one)
                yield _Member(one.filename, mode, one.is_dir(), is_file, opened)
    elif name.endswith(_TAR):
        with tarfile.open(archive) as tar:
            for entry in tar:
                opener = partial(tar.extractfile, entry)
                yield _Member(entry.name, entry.mode, entry.isdir(), entry.isreg(), opener)
    else:  # the program itself
        yield _Member(cmd, 0o755, False, True, partial(io.FileIO, archive))


def _unpack(archive: str, name: str, directory: str, cmd: str) -> None:
    left = UNPACKED_BYTES_MAX
    for number, member in enumerate(_members(archive, name, cmd), 1):
        if number > MEMBERS_MAX:
            raise ValueError(f"it has more than {MEMBERS_MAX} files")
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{member.name!r} would be outside of its directory")
        target = os.path.join(directory, path)
        if member.is_directory:
            os.makedirs(target, exist_ok=True)
            continue
        source = member.open() if member.is_file else None
        if source is None:
            raise ValueError(f"{member.name!r} is a link, or no regular file")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with source, open(target, "xb") as file:
            while data := source.read(_CHUNK):
                left -= len(data)
                if left < 0:
                    raise ValueError(f"its files have more than {UNPACKED_BYTES_MAX} bytes")
                file.write(data)
        os.chmod(target, 0o755 if member.mode & 0o111 else 0o644)
