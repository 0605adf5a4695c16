"""What a terminal of the user's was created with: described, and used to create it again."""

from collections.abc import Iterator
from contextlib import contextmanager

from acpterm.acp.user_api import (
    InspectResponse,
    LaunchInfo,
    NamedRequest,
    PersonCreateRequest,
    TerminalInfo,
    WindowInfo,
)
from acpterm.host.launch.command import summary
from acpterm.host.launch.exec_context import Asker, from_record, to_record
from acpterm.host.launch.request import Order
from acpterm.host.registry import Entry, Roster
from acpterm.host.state.records import LaunchRecord, pack_text, unpack_text
from acpterm.host.user.connection import Person
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError
from acpterm.terminal.status import EndedBy


def launch_of(params: PersonCreateRequest, asker: Asker, order: Order) -> LaunchRecord | None:
    """Return what a terminal is created with; None if it is too large to be stored."""
    context = to_record(asker._replace(cwd=order.cwd))
    if context is None:
        return None
    return LaunchRecord(
        command=pack_text(params.command),
        args=None if params.args is None else [pack_text(word) for word in params.args],
        env=[(pack_text(item.name), pack_text(item.value)) for item in params.env],
        context=context,
    )


async def restart(person: Person, params: NamedRequest) -> TerminalInfo:
    """`_acpterm/terminal/restart`: end the program, and create the same terminal again.

    The new terminal has the name, size and launch of the old one, which is forgotten once the new
    one has started. It is removed at its end if the old one was to be.
    """
    shared = person.shared
    entry = person.entry(params.terminal_id)
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
    asker = from_record(launch.context)
    order = Order(
        person.settings,
        asker,
        command=command,
        args=args,
        env=[(unpack_text(name), unpack_text(value)) for name, value in launch.env],
        cwd=asker.cwd,
        size=(entry.record.cols, entry.record.rows),
        attended=True,
    )
    with _restarting(shared.roster, entry):
        # While the old one still runs.
        await person.folders.check(order.cwd)
        shared.roster.kill(entry, EndedBy.USER)
        with person.present():
            # What the program and its children have in use, such as a port, has to be free.
            await entry.terminal.wait_gone()
        if shared.roster.get(entry.id) is not entry:
            raise RpcError(
                RESOURCE_NOT_FOUND,
                f"terminal {entry.name or entry.id!r} was removed while it was being restarted",
            )
        with shared.roster.naming(entry.name):
            record = order.record(summary(command, args))
            record.name = entry.name
            record.is_removed_at_end = entry.record.is_removed_at_end
            terminal = await order.start(shared.pool, record, shared.state)
            created = Entry(terminal, record, shared.state, launch=launch)
            shared.add(created, order.env)
        if shared.roster.get(entry.id) is entry:
            shared.roster.remove(entry)
    return shared.describe(created)


@contextmanager
def _restarting(roster: Roster, entry: Entry) -> Iterator[None]:
    """Let nobody else restart a terminal in the block, and do not remove it at its end."""
    entry.is_restarting = True
    try:
        yield
    finally:
        entry.is_restarting = False
        has_ended = entry.terminal.exit is not None
        if entry.record.is_removed_at_end and has_ended and roster.get(entry.id) is entry:
            roster.remove(entry)


def inspect(person: Person, params: NamedRequest) -> InspectResponse:
    """`_acpterm/terminal/inspect`: all that is known of a terminal."""
    entry = person.entry(params.terminal_id)
    shared, terminal = person.shared, entry.terminal
    return InspectResponse(
        terminal=shared.describe(entry),
        launch=None if entry.launch is None else _launch_info(entry.launch),
        windows=[
            WindowInfo(window.cols, window.rows, window.read_only)
            for window in shared.windows.of(entry)
        ],
        oldest=terminal.ring.start,
        retained_bytes=terminal.held,
    )


def _launch_info(launch: LaunchRecord) -> LaunchInfo:
    command, args = _words(launch)
    env = {**launch.context.env, **dict(launch.env)}.items()
    return LaunchInfo(
        command=_text(command),
        args=None if args is None else [_text(word) for word in args],
        env={_text(unpack_text(name)): _text(unpack_text(value)) for name, value in env},
        umask=launch.context.umask,
    )


def _words(launch: LaunchRecord) -> tuple[str, list[str] | None]:
    args = None if launch.args is None else [unpack_text(word) for word in launch.args]
    return unpack_text(launch.command), args


def _text(text: str) -> str:
    """Return text as JSON can have it, without lone surrogates."""
    return text.encode(errors="replace").decode()
