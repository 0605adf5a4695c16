"""The handlers of the user's methods that create, restart and inspect a terminal.

`create` stores the command, the environment and the execution context in a launch record
(`LaunchRecord`). `restart` starts the same program from this record, and `inspect` reports the
record.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from acpterm.acp.agent_meta import ResourcesParams, variable_of
from acpterm.acp.user_api import (
    InspectResponse,
    LaunchInfo,
    TerminalInfo,
    UserCreateRequest,
    UserTerminalRequest,
    WindowInfo,
)
from acpterm.host.access import Need
from acpterm.host.audit_trail import command_fields
from acpterm.host.entry import TerminalEntry
from acpterm.host.host_state import HostState
from acpterm.host.launch.command import summary
from acpterm.host.launch.placement import Placement, resources_of
from acpterm.host.launch.request import LaunchRequest
from acpterm.host.registry import TerminalRegistry
from acpterm.host.state.records import ContextRecord, LaunchRecord, pack_text, unpack_text
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quote, readable
from acpterm.providers.provider import NAMES, is_place
from acpterm.runtime.exec_context import ExecContext
from acpterm.terminal.status import EndedBy


async def create(user: UserConnection, params: UserCreateRequest) -> TerminalInfo:
    """`_acpterm/terminal/create`: create a terminal that the user owns.

    Raises `RpcError`: -32602 for invalid params, such as a name that another terminal has; -32603
    if the provider cannot be used, or the program cannot be started.
    """
    host, settings = user.host, user.settings
    request = LaunchRequest(
        settings,
        user.context,
        command=params.command,
        args=params.args,
        env=[*map(variable_of, params.env)],
        cwd=params.cwd or user.context.cwd,
        size=(params.cols or settings.cols, params.rows or settings.rows),
        attended=True,
        stdin=params.stdin,
    )
    request.check_provider(params.provider or "local")
    with host.registry.reserve_name(params.name) as name:
        if not is_place(params.provider or "local"):
            await user.directories.check(request.cwd)
        record = request.record(summary(params.command, params.args))
        record.name, record.is_removed_at_end = name, params.remove
        placement = _users_placement(
            host,
            params.provider,
            request.cwd,
            resources=params.resources,
        )
        _record_create(host, params.command, params.args, request.cwd, placement)
        terminal = await request.start(host.pool, record, placement, host.state_writer)
        if params.hold:
            user.hold_output(terminal, 0)
        launch = _launch_of(params, user.context, request)
        entry = TerminalEntry(terminal, record, host.state_writer, launch=launch)
        host.add(entry, request.env)
    return host.terminal_info(entry)


def _record_create(
    host: HostState, command: str, args: list[str] | None, cwd: str, placement: Placement
) -> None:
    host.trail.record(
        "create",
        **command_fields(command, args),
        directory=readable(cwd),
        provider=placement.provider.name,
        by="user",
    )


def _launch_of(
    params: UserCreateRequest, context: ExecContext, request: LaunchRequest
) -> LaunchRecord | None:
    """Return the launch record of a new terminal; None if the environment is too large to store.

    `params` are those of the create request, and `context` is the client's execution context.
    `request` is the launch request made from these two; its directory is recorded.
    """
    record = ContextRecord.from_context(context._replace(cwd=request.cwd))
    if record is None:
        return None
    return LaunchRecord(
        command=pack_text(params.command),
        args=None if params.args is None else [pack_text(word) for word in params.args],
        env=[
            (pack_text(name), None if value is None else pack_text(value))
            for name, value in map(variable_of, params.env)
        ],
        context=record,
        resources=params.resources,
    )


def _users_placement(
    host: HostState,
    provider: str | None,
    cwd: str,
    *,
    resources: ResourcesParams | None = None,
) -> Placement:
    """Return the placement of a program of the user.

    The program may write in its working directory `cwd`, and use the network. `provider` is the
    name of a provider; None means `local`, since the setting `provider` is for agents.
    `resources` are what the request asks of a cluster; None for nothing. Raises `RpcError`: -32602
    if the provider is unknown, or does not support the resources; -32603 if the provider cannot be
    used.
    """
    name = provider or "local"
    if name not in (*NAMES, *host.settings.places):
        known = ", ".join((*NAMES, *host.settings.places))
        raise RpcError(INVALID_PARAMS, f"provider {quote(name)} is unknown: there are {known}")
    return host.policy.placement(name, cwd, network=True, resources=resources_of(resources))


async def restart(user: UserConnection, params: UserTerminalRequest) -> TerminalInfo:
    """`_acpterm/terminal/restart`: end the program, and start it again in a new terminal.

    The new terminal has the name, size, command, environment and resources of the old terminal. If
    the old terminal was to be removed at the end of its program, so is the new terminal. Once the
    new program has started, the old terminal is forgotten.

    Raises `RpcError`: -32602 if the user did not create the old terminal, if it is being restarted
    already, if another terminal has its name, or if its directory cannot be used; -32002 if there
    is no such terminal, or if it is removed during the restart; -32603 if the program cannot be
    started again.
    """
    host = user.host
    entry = user.resolve(params, Need.READ)
    launch = entry.launch
    if launch is None:
        raise RpcError(
            INVALID_PARAMS,
            f"terminal {entry.name or entry.id!r} was not created by acpterm run: how it was "
            "created is not known, so it cannot be restarted",
        )
    if entry.is_restarting:
        raise RpcError(
            INVALID_PARAMS, f"terminal {entry.name or entry.id!r} is being restarted already"
        )
    command, args = _words(launch)
    context = launch.context.to_context()
    request = LaunchRequest(
        user.settings,
        context,
        command=command,
        args=args,
        env=list(_variables(launch).items()),
        cwd=context.cwd,
        size=(entry.record.cols, entry.record.rows),
        attended=True,
    )
    with _restarting(host.registry, entry):
        # Check while the old program still runs: it must not be ended if the directory is missing,
        # or if the provider cannot be used any more.
        if not is_place(entry.record.provider):
            await user.directories.check(request.cwd)
        request.check_provider(entry.record.provider)
        placement = _users_placement(
            host, entry.record.provider, request.cwd, resources=launch.resources
        )
        _record_create(host, command, args, request.cwd, placement)
        host.registry.kill(entry, EndedBy.USER)
        with user.cancel_on_close():
            # The program and its children must have released their resources, such as a port.
            await entry.terminal.wait_closed()
        if host.registry.get(entry.id) is not entry:
            raise RpcError(
                RESOURCE_NOT_FOUND,
                f"terminal {entry.name or entry.id!r} was removed while it was being restarted",
            )
        record = request.record(summary(command, args))
        record.name = entry.name
        record.is_removed_at_end = entry.record.is_removed_at_end
        terminal = await request.start(host.pool, record, placement, host.state_writer)
        created = TerminalEntry(terminal, record, host.state_writer, launch=launch)
        host.add(created, request.env)
        if host.registry.get(entry.id) is entry:
            host.registry.remove(entry)
    return host.terminal_info(created)


@contextmanager
def _restarting(registry: TerminalRegistry, entry: TerminalEntry) -> Iterator[None]:
    """Treat a terminal as being restarted during the block.

    The terminal then counts as not over (`TerminalEntry.is_over`), so that no other terminal can
    get its name. If the terminal is to be removed when its program ends, the terminal is removed
    only after the block. Raises `RpcError` (-32602) if another terminal has the name already.
    """
    with registry.reserve_name(entry.name if entry.is_over else None):
        entry.is_restarting = True
    try:
        yield
    finally:
        entry.is_restarting = False
        has_ended = entry.terminal.exit is not None and not entry.may_have_background
        if entry.record.is_removed_at_end and has_ended and registry.get(entry.id) is entry:
            registry.remove(entry)


def inspect(user: UserConnection, params: UserTerminalRequest) -> InspectResponse:
    """`_acpterm/terminal/inspect`: return a terminal, how it was created, and its windows."""
    entry = user.resolve(params, Need.READ)
    host, terminal = user.host, entry.terminal
    return InspectResponse(
        terminal=host.terminal_info(entry),
        launch=None if entry.launch is None else _launch_info(entry.launch),
        windows=[
            WindowInfo(window.cols, window.rows, window.read_only)
            for window in host.windows.of(entry)
        ],
        oldest=terminal.ring.start,
        retained_bytes=terminal.retained_bytes,
    )


def _launch_info(launch: LaunchRecord) -> LaunchInfo:
    command, args = _words(launch)
    inherited = {
        unpack_text(name): unpack_text(value) for name, value in launch.context.env.items()
    }
    env = (inherited | _variables(launch)).items()
    return LaunchInfo(
        command=_text(command),
        args=None if args is None else [_text(word) for word in args],
        env={_text(name): _text(value) for name, value in env if value is not None},
        umask=launch.context.umask,
    )


def _words(launch: LaunchRecord) -> tuple[str, list[str] | None]:
    args = None if launch.args is None else [unpack_text(word) for word in launch.args]
    return unpack_text(launch.command), args


def _variables(launch: LaunchRecord) -> dict[str, str | None]:
    return {
        unpack_text(name): None if value is None else unpack_text(value)
        for name, value in launch.env
    }


def _text(text: str) -> str:
    """Return `text` with `?` in place of lone surrogates, which JSON in UTF-8 cannot contain."""
    return text.encode(errors="replace").decode()
