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
        """Return what the keeper runs for `program`. Raises `RpcError` (-32603)."""
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

    async def clean_up(self, token: str | None) -> None:
        """Remove what `prepare` made for a program that did not start. Errors are logged."""
        if token is None:
            return
        with trio.move_on_after(CLEAN_UP_TIMEOUT_S, shield=True):
            try:
                await self.provider.clean_up(token)
            except Exception as error:  # noqa: BLE001  what is left may be anything
                _log.warning("something of a terminal may be left", exc_info=error)


def remote_program(provider: Provider, token: str | None) -> RemoteProgram | None:
    """Return the program of a terminal on another host; None if it runs on this one."""
    if token is None or not isinstance(provider, RemoteProvider):
        return None
    return provider.program(token)


def resources_of(params: ResourcesParams | None) -> SlurmResources | None:
    return None if params is None else SlurmResources(**asdict(params))


def check_resources(
    provider: str, place: Place | None, resources: SlurmResources, *, is_agents: bool
) -> None:
    """Raise `RpcError` (-32602) if a request may not set `resources`."""
    # Only a program on a Slurm cluster has resources. An agent may set those in the setting
    # `requests` of the place. A job of several terminals has its own (`JOB_RESOURCES`).
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
    return RpcError(
        INTERNAL_ERROR,
        f"the command was not run: the provider {provider!r} cannot be used: {error}",
    )


def strictest(selected: str, others: Iterable[str | None], *, network: bool) -> str:
    """Return the name of the strictest provider; None in `others` is ignored."""
    # Of two of which neither is stricter, such as podman and docker, the first one counts.
    for other in others:
        if other in stricter_than(selected, network=network):
            selected = other
    return selected


def allowed_places(places: Iterable[str], patterns: Iterable[Sequence[str]]) -> list[str]:
    """Return the places that match a pattern of each profile."""
    lists = list(patterns)
    return [
        place
        for place in places
        if all(any(fnmatchcase(place, one) for one in patterns) for patterns in lists)
    ]


def directory_text(provider: str, directory: str) -> str:
    """Return a directory as text for the user, after the name of the place, if any."""
    # An answer "always" is stored with this text, so that it holds only for that place.
    return f"{provider}:{directory}" if is_place(provider) else directory


def stricter(
    selected: str, requested: str | None, *, network: bool, places: Sequence[str] = ()
) -> str:
    """Return the provider to use: `requested` if the agent may request it, else `selected`."""
    # It may request what is stricter, or one of the allowed `places`. Raises `RpcError` (-32602).
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
