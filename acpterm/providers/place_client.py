"""Private directories and the environment for the client of a place, such as ssh or srun.

The client runs on this machine, and the directories are on this machine.
"""

import hashlib
import os
from collections.abc import Mapping

from acpterm.config.paths import default_socket
from acpterm.providers.provider import ProviderError
from acpterm.pty.tracking.marks import Daemon
from acpterm.runtime.unix_socket import ListenError, make_private_dir


def private_directory(kind: str, name: str, daemon: Daemon | None) -> str:
    """Create this daemon's private directory for a place. Raises `ProviderError`."""
    # The next daemon on the same socket gets the same directory, and can use the files in it.
    owner = os.getpid() if daemon is None else daemon.place or str(daemon)
    return shared_directory(kind, f"{owner} {name}")


def shared_directory(kind: str, key: str, *more: str) -> str:
    """Create the private directory of all the user's daemons for `kind` and `key`."""
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
    """Return the environment of a place's client, such as ssh, on this machine."""
    # Other variables, which an agent may have requested, could change what the client does.
    own = {name: os.environ[name] for name in ("PATH", "HOME", "USER") if name in os.environ}
    return {**own, "TERM": env.get("TERM", "dumb")}
