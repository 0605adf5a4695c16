"""`acpterm undo`: bring a directory back to what it was before a command."""

import os
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import click
import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from acpterm.acp.user_api import (
    GetRequest,
    ListRequest,
    ListResponse,
    NoParams,
    StatusResponse,
    TerminalInfo,
)
from acpterm.audit.entry import Entry, time_text
from acpterm.audit.writer import AuditWriter, Batch
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import absolute, fail, json_option, require_user
from acpterm.cli._output import echo, echo_once, json_text
from acpterm.cli._params import complete_terminal, parse_time, terminal_name
from acpterm.commands.blocking_client import BlockingClient
from acpterm.commands.format import ago, background_number, summary_line, title
from acpterm.config import Settings, agent_socket, audit_dir, undo_dir
from acpterm.config.paths import daemons_environment
from acpterm.jsonrpc import RESOURCE_NOT_FOUND, RpcError
from acpterm.runtime.redaction import redact
from acpterm.runtime.sanitize import escape_invisible_text
from acpterm.undo.operation import (
    SHOWN_MAX,
    below,
    diff,
    digest_of,
    find_store,
    listed,
    moment,
    named,
    planned,
    restore,
)
from acpterm.undo.restore import Plan
from acpterm.undo.scan import UnkeptError
from acpterm.undo.store import Store
from acpterm.undo.terminals import find

_ID: Final = re.compile(r"\d{13}", re.ASCII)


@click.command("undo")
@click.argument("when", metavar="[TERMINAL|TIME]", required=False, shell_complete=complete_terminal)
@click.option(
    "-C",
    "--directory",
    metavar="DIR",
    help="Restore this directory, which may be gone, instead of the current one.",
)
@click.option("-p", "--patch", is_flag=True, help="Show the whole difference.")
@click.option("--list", "lists", is_flag=True, help="List the snapshots of the directory.")
@click.option("--keep", "keeps", is_flag=True, help="Take a snapshot now, and restore nothing.")
@click.option("-y", "--yes", is_flag=True, help="Restore without asking.")
@json_option
@at_daemon
def command(
    *,
    when: str | None,
    directory: str | None,
    patch: bool,
    lists: bool,
    keeps: bool,
    yes: bool,
    as_json: bool,
    daemon: ChosenDaemon,
) -> None:
    """Bring a directory back to what it was before a command.

    acpterm keeps an agent's directory before each command that may change something: its files and
    the state of its git repository. This shows what differs from then, asks, and restores it. The
    state from before is kept as well: another acpterm undo brings it back.

    Without an argument, the newest snapshot of the current directory that differs is restored. With
    TERMINAL, that of its directory from before its command was started. TIME is a span (10m), a
    time of day (10:30), a date, or the number of a snapshot in --list. What has been changed since
    by anyone else is undone, too.

    With --json nothing is restored without --yes.

    Exit status: 0 on success; 1 if there is no such snapshot, if you do not confirm, if something
    could not be restored, or if acpterm itself runs in an agent's terminal.
    """
    require_user(daemon.config, "restores files")
    status = daemon.request_running("status", NoParams(), StatusResponse)
    environment = daemons_environment(agent_socket(daemon.settings()))
    stores = (status and status.undo_dir) or undo_dir(environment)
    place, before = _when(when, stores, daemon)
    try:
        store = find_store(stores, place or absolute(directory or "."))
        if lists:
            _list(store, as_json)
        elif keeps:
            _keep(store, as_json)
        else:
            log = status.audit_dir if status else _audit_dir(daemon.settings(), environment)
            _undo(store, before, daemon, log, patch=patch, yes=yes, as_json=as_json)
    except UnkeptError as error:
        fail(str(error))


def _audit_dir(settings: Settings, environment: Mapping[str, str]) -> str | None:
    return audit_dir(settings, environment) if settings.audit else None


def _record(daemon: ChosenDaemon, log: str, entry: Entry) -> None:
    """Write an entry of the audit log, which several processes may write."""
    settings = daemon.settings()
    batch = Batch([msgspec.json.encode(entry) + b"\n"])
    file = AuditWriter(log, file_bytes=settings.audit_file_bytes, files=settings.audit_files)
    try:
        file.append(batch)
    except OSError as error:
        click.echo(f"acpterm: not in the audit log: {error.strerror}", err=True)


def _keep(store: Store, as_json: bool) -> None:
    with store.locked():
        kept = store.keep("acpterm undo --keep")
        if kept.should_prune:
            store.prune()
    skipped = {named(path): why for path, why in sorted(kept.skipped.items())}
    if as_json:
        value = {"directory": store.root, "id": kept.snapshot.id, "skipped": skipped}
        echo_once(json_text(value))
        return
    lines = [f"{store.root} is kept as {kept.snapshot.id}"]
    lines += _some("not kept: ", [f"{path} ({why})" for path, why in skipped.items()])
    echo_once("\n".join(lines))


def _undo(
    store: Store,
    before: float | None,
    daemon: ChosenDaemon,
    log: str | None,
    *,
    patch: bool,
    yes: bool,
    as_json: bool,
) -> None:
    found = planned(store, before)
    running = _running(daemon, store.root)
    failures: list[str] = []
    if not as_json:
        echo(_text(store, found, running, patch))
    if found.changes and not as_json and not yes:
        click.confirm("Restore this?", abort=True)
    if found.changes and (yes or not as_json):
        entry = Entry(
            time=time_text(time.time()),
            event="undo",
            worker=os.getpid(),
            seq=1,
            by="user",
            directory=redact(named(os.fsencode(store.root))),
            snapshot=found.target.id,
            reason="it was interrupted",
        )
        try:
            changes, failures = restore(store, found.target.id, digest_of(found))
            entry = replace(entry, changes=changes, failures=len(failures), reason=None)
        except (UnkeptError, OSError) as error:
            entry = replace(entry, reason=str(error))
            # Then nothing was restored.
            log = None if isinstance(error, UnkeptError) else log
            raise
        finally:
            if log is not None:
                _record(daemon, log, entry)
    if as_json:
        echo_once(json_text(_as_json(store, found, running, failures, restored=yes)))
    else:
        for failure in failures:
            click.echo(f"acpterm: not restored: {summary_line(failure)}", err=True)
        if failures:
            echo(
                f"Not all is restored. acpterm undo {found.target.id} tries again; acpterm undo "
                f"{found.now.id} brings back what was there now."
            )
        elif found.changes:
            echo("Restored. Another acpterm undo here brings back what was there now.")
    raise SystemExit(1 if failures else 0)


def _when(when: str | None, stores: str, daemon: ChosenDaemon) -> tuple[str | None, float | None]:
    """Return the directory of the terminal, if one is meant, and when its command, or TIME, was."""
    if when is None:
        return None, None
    if _ID.fullmatch(when):
        return None, int(when) / 1000
    try:
        return None, parse_time(when, time.time())
    except (ValueError, OverflowError):
        info = daemon.call_running(partial(_terminal, terminal_name(when)))
    # Also those that were released, or of a daemon that has ended.
    known = {one.id: one for one in find(stores, when)}
    if info is not None and info.name == when:
        known.clear()
    count = len(known.keys() | ({info.terminal_id} if info else set()))
    if count > 1:
        fail(f"{when!r} is the beginning of {count} terminals' ids: give more of it")
    if info is None and known:
        (found,) = known.values()
        return found.root, found.time
    info = info or daemon.request("terminal/get", GetRequest(when), TerminalInfo)
    if isinstance(info.host, str):
        fail(f"terminal {when!r} runs on {info.host}: only directories of this host are kept")
    if info.is_kept is not True:
        why = "nothing was kept for it" if info.unkept is UNSET else info.unkept
        fail(
            f"there is no way back to before the command of {when!r}: {why}; earlier snapshots: "
            "acpterm undo --list"
        )
    return info.cwd, info.created_at / 1000


def _terminal(name: str, client: BlockingClient) -> TerminalInfo | None:
    try:
        return client.call("terminal/get", GetRequest(name), TerminalInfo)
    except RpcError as error:
        if error.code == RESOURCE_NOT_FOUND:
            return None
        raise


def _list(store: Store, as_json: bool) -> None:
    if as_json:
        echo_once(json_text(listed(store)))
        return
    snapshots = store.snapshots()
    now = time.time()
    lines = [f"{'SNAPSHOT':<15}{'AGE':<6}WHY"]
    lines += [f"{one.id:<15}{ago(int(one.id), now):<6}{one.why}" for one in reversed(snapshots)]
    none = (
        "the first snapshot of {} is being taken"
        if store.is_busy
        else "there are no snapshots of {}"
    )
    echo_once("\n".join(lines) if snapshots else none.format(store.root))


def _running(daemon: ChosenDaemon, root: str) -> list[TerminalInfo]:
    """Return the terminals in which something runs that may write in the directory."""
    listed = daemon.request_running("terminal/list", ListRequest(), ListResponse)
    found = {
        info.terminal_id: info
        for info in (listed.terminals if listed else ())
        if info.state == "running" or background_number(info)
    }
    places = {name: info.cwd for name, info in found.items()}
    inside = below(root, places, os.path.realpath)
    return [found[name] for name in inside]


def _text(store: Store, found: Plan, running: Sequence[TerminalInfo], patch: bool) -> str:
    if not found.changes:
        note = f" ({found.note})" if found.note else ""
        return (
            f"{store.root} is as it was {moment(found.target)}: there is nothing to restore{note}"
        )
    lines = [f"To bring {store.root} back to {moment(found.target)} ({found.target.why}):"]
    if text := diff(store, found, patch=patch):
        lines.append(escape_invisible_text(text))
    whole = {one.path for one in found.changes if one.path.endswith(b".git/")}
    git = [
        named(one.path)
        for one in found.changes
        # Not all that is in a repository which comes or goes.
        if one.is_git and one.path[: one.path.rfind(b".git/") + 5] not in whole
    ]
    others = [one for one in found.changes if not one.is_git]
    lines += _some("git: ", [path for path in git if "/logs/" not in path])
    lines += _some("modes: ", [named(one.path) for one in others if one.what == "mode"])
    for what in ("restore", "remove"):
        paths = [named(one.path) for one in others if one.what == what]
        lines += _some(f"directories to {what}: ", [path for path in paths if path.endswith("/")])
    lines += [f" {summary_line(found.note)}"] if found.note else []
    lines += [
        f"runs there, and may write meanwhile: {summary_line(title(info))}: "
        f"{summary_line(info.command)}"
        for info in running
    ]
    return "\n".join(lines)


def _some(label: str, paths: list[str]) -> list[str]:
    if not paths:
        return []
    more = f" and {len(paths) - SHOWN_MAX} more" if len(paths) > SHOWN_MAX else ""
    return [f" {label}{', '.join(map(summary_line, paths[:SHOWN_MAX]))}{more}"]


def _as_json(
    store: Store,
    found: Plan,
    running: Sequence[TerminalInfo],
    failures: list[str],
    *,
    restored: bool,
) -> dict[str, Any]:
    return {
        "directory": store.root,
        "from": found.now.id,
        "to": found.target.id,
        "changes": [{"path": named(one.path), "what": one.what} for one in found.changes],
        "note": found.note,
        "running": [info.terminal_id for info in running],
        "restored": restored,
        "failures": failures,
    }
