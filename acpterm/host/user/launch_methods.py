"""The handlers of the user's methods that create, restart and inspect a terminal.

`create` stores the command, the environment and the execution context in a launch record
(`LaunchRecord`). `restart` starts the same program from this record, and `inspect` reports the
record.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from acpterm.acp.agent_meta import CreateMeta, variable_of
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
from acpterm.host.launch.launch import Launch
from acpterm.host.launch.placement import Placement, resources_of
from acpterm.host.registry import TerminalRegistry
from acpterm.host.state.records import LaunchRecord
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, quote, readable
from acpterm.providers.provider import NAMES, is_place
from acpterm.terminal.status import EndedBy


async def create(user: UserConnection, params: UserCreateRequest) -> TerminalInfo:
    """`_acpterm/terminal/create`: create a terminal that the user owns.

    Raises `RpcError`: -32602 for invalid params, such as a name that another terminal has; -32603
    if the provider cannot be used, or the program cannot be started.
    """
    launch = Launch(
        settings=user.settings,
        context=user.context,
        command=params.command,
        args=params.args,
        env=dict(map(variable_of, params.env)),
        cwd=params.cwd or user.context.cwd,
        # The members of both requests, by their names.
        options=msgspec.convert(params, CreateMeta, from_attributes=True),
        attended=True,
        is_removed_at_end=params.remove,
    )
    launch.check()
    with user.registry.reserve_name(params.name) as name:
        placement = await _placement(user, launch)
        entry = await _start(user, replace(launch, name=name), placement, hold=params.hold)
    return user.info(entry)


async def _placement(user: UserConnection, launch: Launch) -> Placement:
    """Return the placement of a program that the user may start now, and record the create.

    The program may write in its working directory, and use the network. Raises `RpcError`: -32602
    if the provider is unknown, or does not support what is asked of it, or if the directory cannot
    be used; -32603 if the provider cannot be used.
    """
    # The setting `provider` is for agents.
    provider = launch.options.provider or "local"
    launch.check_provider(provider)
    if not is_place(provider):
        await user.directories.check(launch.cwd)
    if provider not in (*NAMES, *user.settings.places):
        known = ", ".join((*NAMES, *user.settings.places))
        raise RpcError(INVALID_PARAMS, f"provider {quote(provider)} is unknown: there are {known}")
    resources = resources_of(launch.options.resources)
    placement = user.policy.placement(provider, launch.cwd, network=True, resources=resources)
    user.trail.record(
        "create",
        **command_fields(launch.command, launch.args),
        directory=readable(launch.cwd),
        provider=placement.provider.name,
        by="user",
    )
    return placement


async def _start(
    user: UserConnection, launch: Launch, placement: Placement, *, hold: bool = False
) -> TerminalEntry:
    terminal, record = await launch.start(user.terminals.pool, placement, user.writer)
    if hold:
        user.hold_output(terminal, 0)
    entry = TerminalEntry(terminal, record, user.writer, launch=launch.stored())
    user.terminals.add(entry, launch.program_env)
    return entry


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
    entry = user.resolve(params, Need.READ)
    stored = entry.launch
    if stored is None:
        raise RpcError(
            INVALID_PARAMS,
            f"terminal {entry.name or entry.id!r} was not created by acpterm run: how it was "
            "created is not known, so it cannot be restarted",
        )
    if entry.is_restarting:
        raise RpcError(
            INVALID_PARAMS, f"terminal {entry.name or entry.id!r} is being restarted already"
        )
    command, args = stored.words
    context, record = stored.context.to_context(), entry.record
    launch = Launch(
        settings=user.settings,
        context=context,
        command=command,
        args=args,
        env=stored.variables,
        cwd=context.cwd,
        options=CreateMeta(
            cols=record.cols, rows=record.rows, provider=record.provider, resources=stored.resources
        ),
        attended=True,
        is_removed_at_end=record.is_removed_at_end,
    )
    launch.check()
    with _restarting(user.registry, entry):
        # Check while the old program still runs: it must not be ended if the directory is missing,
        # or if the provider cannot be used any more.
        placement = await _placement(user, launch)
        user.registry.kill(entry, EndedBy.USER)
        with user.cancel_on_close():
            # The program and its children must have released their resources, such as a port.
            await entry.terminal.wait_closed()
        if user.registry.get(entry.id) is not entry:
            raise RpcError(
                RESOURCE_NOT_FOUND,
                f"terminal {entry.name or entry.id!r} was removed while it was being restarted",
            )
        # The user may have renamed the terminal meanwhile.
        created = await _start(user, replace(launch, name=entry.name), placement)
        if user.registry.get(entry.id) is entry:
            user.registry.remove(entry)
    return user.info(created)


@contextmanager
def _restarting(registry: TerminalRegistry, entry: TerminalEntry) -> Iterator[None]:
    """Keep a terminal and its name during the block. Raises `RpcError` if its name is taken."""
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
    terminal = entry.terminal
    return InspectResponse(
        terminal=user.info(entry),
        launch=None if entry.launch is None else _launch_info(entry.launch),
        windows=[
            WindowInfo(window.cols, window.rows, window.read_only)
            for window in user.windows.of(entry)
        ],
        oldest=terminal.ring.start,
        retained_bytes=terminal.retained_bytes,
    )


def _launch_info(launch: LaunchRecord) -> LaunchInfo:
    command, args = launch.words
    inherited = launch.context.to_context().env
    env = {**inherited, **launch.variables}.items()
    return LaunchInfo(
        command=_text(command),
        args=None if args is None else [_text(word) for word in args],
        env={_text(name): _text(value) for name, value in env if value is not None},
        umask=launch.context.umask,
    )


def _text(text: str) -> str:
    # JSON in UTF-8 cannot contain lone surrogates.
    return text.encode(errors="replace").decode()
