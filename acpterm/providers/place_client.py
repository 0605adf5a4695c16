"""What the providers of places have in common on this machine: a directory, and an environment."""

import hashlib
import os
from collections.abc import Mapping

from acpterm.config.paths import default_socket
from acpterm.providers.provider import ProviderError
from acpterm.pty.tracking.marks import Daemon
from acpterm.runtime.unix_socket import ListenError, make_private_dir


def private_directory(kind: str, name: str, daemon: Daemon | None) -> str:
    """Return the path of the private directory for the place `name` of this kind.

    The next daemon on the same socket gets the same one, and takes over what is in it. Raises
    `ProviderError`.
    """
    owner = os.getpid() if daemon is None else daemon.place or str(daemon)
    return shared_directory(kind, f"{owner} {name}")


def shared_directory(kind: str, key: str, *more: str) -> str:
    """Return the path of the private directory that all daemons of the user have for `key`.

    `more` are the names of directories in it. Raises `ProviderError`.
    """
    base = os.path.join(os.path.dirname(default_socket()), kind)
    path = os.path.join(base, hashlib.blake2b(os.fsencode(key), digest_size=6).hexdigest())
    try:
        make_private_dir(os.path.dirname(base))
        make_private_dir(base)
        make_private_dir(path)
        for one in more:
            path = os.path.join(path, one)
            make_private_dir(path)
    except (OSError, ListenError) as error:
        raise ProviderError(f"{path}: cannot be a private directory: {error}") from error
    return path


def client_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a place's client, which runs here: nothing that was requested.

    `TERM` is passed on.
    """
    own = {name: os.environ[name] for name in ("PATH", "HOME", "USER") if name in os.environ}
    return {**own, "TERM": env.get("TERM", "dumb")}
