"""Places: other hosts and clusters on which terminals' programs can run.

Each kind of place, `ssh` or `slurm`, is a setting. In the settings file, a place is a table with
the kind and the name of the place, such as `[ssh.build1]`. Its provider is named `ssh:build1`.
A profile lists the places that its agents may request. The user can use all places.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias, get_args

from msgspec import Meta, Struct, field

_LOST_S: Final = 120.0
_KEPT_LOST_S: Final = 28800.0
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class SshPlace(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table `[ssh.NAME]`: a host that OpenSSH's client reaches."""

    host: Annotated[
        str | None,
        Meta(
            title="Destination as `ssh` takes it: a `Host` of your ssh configuration, `HOST` or "
            "`USER@HOST`; by default NAME."
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
        Meta(
            title="Absolute path of the configuration file for `ssh` (`-F`); by default ssh's own."
        ),
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
        Annotated[float, Meta(ge=10, le=604800)] | None,
        Meta(
            title="Seconds without contact to acpterm here after which the host ends the programs "
            "of its terminals by itself; by default 120, and eight hours with `keeper`."
        ),
    ] = None
    keeper: Annotated[
        bool | str,
        Meta(
            title="Whether the daemon of acpterm on the host keeps the terminals there, if acpterm "
            "is installed: a lost connection does not end them. Or the path of acpterm there."
        ),
    ] = False

    @property
    def lost_after(self) -> float:
        """The value of `lost_timeout` in seconds, or the default if `lost_timeout` is not set."""
        if self.lost_timeout is not None:
            return self.lost_timeout
        return _LOST_S if self.keeper is False else _KEPT_LOST_S

    def check(self) -> None:
        """Raise `ValueError` for an invalid value."""
        if self.host is not None and (not self.host or self.host[0] == "-"):
            raise ValueError(f"host = {self.host!r}: is no destination for ssh")
        _check_paths(self)
        if isinstance(self.keeper, str) and not re.fullmatch(r"/[^\n]*[^\s]", self.keeper):
            raise ValueError(f"keeper = {self.keeper!r}: is not an absolute path")


Resource: TypeAlias = Literal["partition", "account", "time", "cpus", "memory", "gpus"]
"""A resource that an agent may request from a cluster, if the place's settings allow it."""
RESOURCES: Final[tuple[str, ...]] = get_args(Resource)
JOB_RESOURCES: Final = ("partition", "account")
"""Resources that only a new job can request, not a program in a job that exists already."""
_RESOURCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.,:@/-]{0,127}")
# No comma: after it, Slurm would read another kind of resource.
_GPUS: Final = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_.-]{0,99}:)?[0-9]{1,9}")
_EXPECTED: Final = {
    "partition": "the name of a partition, or several with commas",
    "account": "the name of an account",
    "time": "minutes, or HOURS:MINUTES:SECONDS",
    "memory": "a number with K, M, G or T, such as 4G",
    "gpus": "a number, or TYPE:NUMBER",
}


class SlurmResources(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The resources that a job requests from Slurm. None means Slurm's default."""

    partition: Annotated[str | None, Meta(title="Partition, or several with commas.")] = None
    account: Annotated[str | None, Meta(title="Account that the job is charged to.")] = None
    time: Annotated[
        str | None,
        Meta(title="Time limit as Slurm writes it, such as `30` (minutes) or `2:00:00`."),
    ] = None
    cpus: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None, Meta(title="Number of CPUs.")
    ] = None
    memory: Annotated[str | None, Meta(title="Memory of the node, such as `4G`.")] = None
    gpus: Annotated[str | None, Meta(title="GPUs as Slurm writes it, such as `1` or `a100:2`.")] = (
        None
    )

    def check(self) -> None:
        """Raise `ValueError` if a resource has a text that Slurm would not accept for it."""
        for name, expected in _EXPECTED.items():
            text, pattern = getattr(self, name), _GPUS if name == "gpus" else _RESOURCE
            if text is not None and not pattern.fullmatch(text):
                raise ValueError(
                    f"{name} = {text!r}: Slurm has no such {name}; it must be {expected}"
                )


class SlurmPlace(SlurmResources, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table `[slurm.NAME]`: a cluster, and how programs run in its jobs."""

    options: Annotated[
        list[str], Meta(title="More options for `srun` and `salloc`, such as `--qos=interactive`.")
    ] = field(default_factory=list)
    session: Annotated[
        bool,
        Meta(
            title="Whether one allocation serves all terminals of an agent's session, so that only "
            "the first one queues. It is released with the session."
        ),
    ] = False
    job: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(title="Id of a job of yours whose allocation serves all terminals; never cancelled."),
    ] = None
    requests: Annotated[
        list[Resource],
        Meta(
            title="What an agent's request may set instead of this table: `partition`, `account`, "
            "`time`, `cpus`, `memory`, `gpus`."
        ),
    ] = field(default_factory=list)
    directories: Annotated[
        dict[str, str],
        Meta(title="As for ssh: directories here, and those on the nodes that stand for them."),
    ] = field(default_factory=dict)
    config: Annotated[
        str | None,
        Meta(title="Absolute path of `slurm.conf` (SLURM_CONF); by default Slurm's own."),
    ] = None

    def check(self) -> None:
        """Raise `ValueError` for an invalid value."""
        super().check()
        if self.session and self.job is not None:
            raise ValueError("session and job exclude each other")
        for option in self.options:
            if not option.startswith("-") or "\0" in option:
                raise ValueError(f"options: {option!r}: is not an option")
        _check_paths(self)


Place: TypeAlias = SshPlace | SlurmPlace
PLACE_TYPES: Final[Mapping[str, type[Place]]] = {"ssh": SshPlace, "slurm": SlurmPlace}
"""The Struct type of the places of each kind."""


def _check_paths(place: Place) -> None:
    for path in (*place.directories, *place.directories.values()):
        if not path.startswith("/"):
            raise ValueError(f"directories: {path!r}: is not an absolute path")
    if place.config is not None and not place.config.startswith("/"):
        raise ValueError(f"config = {place.config!r}: is not an absolute path")


def check_places(places: Mapping[str, Place]) -> None:
    """Raise `ValueError` if a place has an invalid name or an invalid value in its table."""
    for name, place in places.items():
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be the name of a place: at most 64 letters, digits, _, . and -"
            )
        place.check()
