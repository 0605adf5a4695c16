"""Where a program runs: chooses its provider, and prepares the program with the provider.

The provider turns the argv, environment and directory of a launch request into what the keeper
runs. If the provider cannot be used, nothing runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

import structlog
import trio
from msgspec.structs import asdict

from acpterm.acp.agent_meta import ResourcesParams
from acpterm.config.places import JOB_RESOURCES, Place, SlurmPlace, SlurmResources
from acpterm.config.providers import stricter_than
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcError, quote
from acpterm.providers.provider import (
    NAMES,
    Command,
    Prepared,
    Provider,
    ProviderError,
    RemoteProvider,
    is_place,
)
from acpterm.pty.program import Program
from acpterm.terminal.remote import RemoteProgram

# How long a provider may take to remove what is left of a terminal.
CLEAN_UP_TIMEOUT_S: Final = 4.0

_log = structlog.get_logger("acpterm.policy")


class Placement(NamedTuple):
    """Where a program runs, and what it may use there.

    `network`: whether the program may use the network. `hidden` are absolute paths that the program
    must not reach. `session` identifies the agent's session; None for a command of the user.
    `resources` are what the request asks of a cluster; None for what the place's settings say.
    """

    provider: Provider
    workspace: str
    """The absolute path of the directory in which the program may write."""
    network: bool = True
    hidden: Sequence[str] = ()
    session: str | None = None
    resources: SlurmResources | None = None

    async def prepare(
        self, program: Program, shell: str, requested: Mapping[str, str]
    ) -> tuple[Program, Prepared]:
        """Return the program that the keeper runs for `program`, and what the provider prepared.

        `shell` is the path of the shell. `requested` are the variables that acpterm, the settings
        and the request set; in a container, the program gets few others. Raises `RpcError` (-32603)
        if the provider cannot be used.
        """
        command = Command(
            argv=program.argv,
            fallback_argv=program.fallback_argv,
            env=program.env,
            cwd=program.cwd,
            workspace=self.workspace,
            shell=shell,
            network=self.network,
            hidden=self.hidden,
            requested=requested,
            session=self.session,
            resources=self.resources,
            umask=program.umask,
        )
        try:
            prepared = await self.provider.prepare(command)
        except ProviderError as error:
            raise unusable(self.provider.name, error) from error
        placed = program._replace(
            argv=prepared.argv,
            env=prepared.env,
            cwd=prepared.cwd,
            fallback_argv=prepared.fallback_argv,
        )
        return placed, prepared

    def remote(self, token: str | None) -> RemoteProgram | None:
        """Return a terminal's program if the program runs on another host, else None.

        `token` is the terminal's clean-up token (`Prepared.token`). Return None if `token` is None.
        """
        return remote_program(self.provider, token)

    async def clean_up(self, token: str | None) -> None:
        """Remove what `prepare` has made for a program that could not be started.

        `token` is the clean-up token; None if nothing was made. Errors are logged, not raised: the
        caller reports why the program could not be started.
        """
        if token is None:
            return
        with trio.move_on_after(CLEAN_UP_TIMEOUT_S, shield=True):
            try:
                await self.provider.clean_up(token)
            except Exception as error:  # noqa: BLE001  what is left may be anything
                _log.warning("something of a terminal may be left", exc_info=error)


def remote_program(provider: Provider, token: str | None) -> RemoteProgram | None:
    """Return a terminal's program if `provider` runs programs on another host, else None.

    `token` is the terminal's clean-up token. Return None if `token` is None.
    """
    if token is None or not isinstance(provider, RemoteProvider):
        return None
    return provider.program(token)


def resources_of(params: ResourcesParams | None) -> SlurmResources | None:
    """Return what a request asks of a cluster; None if it asks for nothing."""
    return None if params is None else SlurmResources(**asdict(params))


def check_resources(
    provider: str, place: Place | None, resources: SlurmResources, *, is_agents: bool
) -> None:
    """Raise `RpcError` (-32602) if a request sets `resources` that it may not set.

    Only a program on a Slurm cluster has resources, and all their values must be valid. An agent
    may set only the resources that the place's setting `requests` lists. If a job serves several
    terminals, no request may set the resources of the job (`JOB_RESOURCES`).

    `provider` is the provider's name. `place` has the settings of the place; None if the provider
    is not that of a place. `is_agents` is true for a request of an agent, false for one of the
    user.
    """
    if not isinstance(place, SlurmPlace):
        raise RpcError(INVALID_PARAMS, f"resources are for Slurm's places, not for {provider!r}")
    try:
        resources.check()
    except ValueError as error:
        raise RpcError(INVALID_PARAMS, f"resources: {error}") from error
    asked = [name for name in resources.__struct_fields__ if getattr(resources, name) is not None]
    for name in asked:
        if is_agents and name not in place.requests:
            raise RpcError(
                INVALID_PARAMS,
                f"resources: agents may not set {name!r} of {provider!r}: they may set "
                f"{', '.join(place.requests) or 'nothing'} (the setting requests of the place)",
            )
        if name in JOB_RESOURCES and (place.job is not None or (place.session and is_agents)):
            raise RpcError(
                INVALID_PARAMS,
                f"resources: {name!r} of {provider!r} is that of its allocation, which serves "
                "several terminals: leave it out",
            )


def unusable(provider: str, error: ProviderError) -> RpcError:
    """Return the error for a command that is not run, because its provider cannot be used.

    `provider` is the provider's name, and `error` the reason.
    """
    return RpcError(
        INTERNAL_ERROR,
        f"the command was not run: the provider {provider!r} cannot be used: {error}",
    )


def strictest(selected: str, others: Iterable[str | None], *, network: bool) -> str:
    """Return the name of the strictest provider among `selected` and `others`.

    In `others`, None is ignored. Of two providers of which neither is stricter, such as podman and
    docker, the first one counts. `network` says whether all profiles allow the network: if they do,
    `bubblewrap` is not stricter than `landlock` (see `stricter_than`).
    """
    for other in others:
        if other in stricter_than(selected, network=network):
            selected = other
    return selected


def allowed_places(places: Iterable[str], patterns: Iterable[Sequence[str]]) -> list[str]:
    """Return the names in `places` that all profiles allow.

    `patterns` has one list for each profile: the patterns of the places that the profile allows.
    """
    lists = list(patterns)
    return [
        place
        for place in places
        if all(any(fnmatchcase(place, one) for one in patterns) for patterns in lists)
    ]


def directory_text(provider: str, directory: str) -> str:
    """Return `directory` as text for the user: `ssh:NAME:/dir` if `ssh:NAME` is the provider.

    Only the name of a place is put before the directory; other providers are omitted. An answer
    "always" of the user is stored with this text, so that the answer holds only for that place.
    """
    return f"{provider}:{directory}" if is_place(provider) else directory


def stricter(
    selected: str, requested: str | None, *, network: bool, places: Sequence[str] = ()
) -> str:
    """Return the name of the provider to use: `requested`, if that is given, else `selected`.

    `selected` is the strictest provider among those of the agent's profiles, `requested` the
    provider that the agent requests. The agent may request a provider that is stricter than
    `selected`, or one of `places`: the places that all these profiles allow. `network` says whether
    all these profiles allow the network: if they do, `bubblewrap` is not stricter than `landlock`
    (see `stricter_than`). Raises `RpcError` (-32602) if `requested` is unknown or not allowed.
    """
    if requested is None or requested == selected or requested in places:
        return selected if requested is None else requested
    if is_place(requested):
        possible = ", ".join(places) or "none"
        raise RpcError(
            INVALID_PARAMS,
            f"provider {quote(requested)} is not a place that the user's profile allows; it "
            f"allows {possible}",
        )
    if requested not in NAMES:
        known = ", ".join((*NAMES, *places))
        raise RpcError(INVALID_PARAMS, f"provider {quote(requested)} is unknown: there are {known}")
    allowed = stricter_than(selected, network=network)
    if requested not in allowed:
        others = [name for name in NAMES if name in allowed or name == selected]
        possible = ", ".join(dict.fromkeys((*others, selected, *places)))
        raise RpcError(
            INVALID_PARAMS,
            f"provider {quote(requested)} is not stricter than {selected!r}, which the user has "
            f"selected: request one of {possible}, or none",
        )
    return requested
