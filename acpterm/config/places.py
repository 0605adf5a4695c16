"""Places: other hosts and clusters on which terminals' programs can run.

Each kind of place is a setting: a table whose name in the settings file is the kind, such as
`[ssh.build1]`. The provider of a place has the name of its kind and its own, such as `ssh:build1`.
A profile lists the places that its agents may request. The user can use all places.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct, field

KINDS: Final = ("ssh",)
"""The kinds of places, which are the names of their settings too."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class SshPlace(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table `[ssh.NAME]`: a host that OpenSSH's client reaches."""

    host: Annotated[
        str | None,
        Meta(
            title="Destination as `ssh` takes it: a `Host` of your ssh configuration, `HOST` or "
            "`USER@HOST`; by default NAME.",
        ),
    ] = None
    directories: Annotated[
        dict[str, str],
        Meta(
            title="Table of directories here and the directories there that stand for them, both "
            "absolute. The longest one that contains a terminal's directory applies. Other "
            "directories have the same path there."
        ),
    ] = field(default_factory=dict)
    config: Annotated[
        str | None,
        Meta(title="Path of the configuration file for `ssh` (`-F`); by default ssh's own."),
    ] = None
    sessions: Annotated[
        Annotated[int, Meta(ge=2, le=1000)],
        Meta(
            title="Maximum number of sessions of one connection: at most `MaxSessions` of the "
            "server. For more terminals, more connections are made."
        ),
    ] = 10
    connect_timeout: Annotated[
        Annotated[float, Meta(gt=0, le=300)],
        Meta(title="Seconds within which a connection must be made."),
    ] = 15.0
    lost_timeout: Annotated[
        Annotated[float, Meta(ge=10, le=86400)],
        Meta(
            title="Seconds without a word from here after which the host ends the programs of its "
            "terminals by itself."
        ),
    ] = 120.0

    def check(self) -> None:
        """Raise `ValueError` for an invalid value."""
        if self.host is not None and (not self.host or self.host[0] == "-"):
            raise ValueError(f"host = {self.host!r}: is no destination for ssh")
        for path in (*self.directories, *self.directories.values(), self.config or "/"):
            if not path.startswith("/"):
                raise ValueError(f"{path!r}: is not an absolute path")


Place: TypeAlias = SshPlace


def check_places(places: Mapping[str, Place]) -> None:
    """Raise `ValueError` for an invalid name or value; `places` are those of one kind."""
    for name, place in places.items():
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be the name of a place: at most 64 letters, digits, _, . and -"
            )
        place.check()
