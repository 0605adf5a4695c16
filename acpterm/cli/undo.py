"""`acpterm undo`: bring a directory back to what it was before a command."""

import os
import re
import time
from collections.abc import Sequence
from typing import Any, Final

import click
from msgspec import UNSET

from acpterm.acp.user_api import (
    GetRequest,
    ListRequest,
    ListResponse,
    NoParams,
    StatusResponse,
    TerminalInfo,
)
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import absolute, fail, json_option, require_user
from acpterm.cli._output import echo, echo_once, json_text
from acpterm.cli._params import complete_terminal, parse_time
from acpterm.commands.format import ago, background_number, summary_line, title
from acpterm.config import agent_socket, undo_dir
from acpterm.config.paths import daemons_environment
from acpterm.runtime.sanitize import escape_invisible_text
from acpterm.undo.operation import (
    SHOWN_MAX,
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
    info, before = _when(when, daemon)
    try:
        store = find_store(_stores(daemon), info.cwd if info else absolute(directory or "."))
        if lists:
            _list(store, as_json)
        elif keeps:
            _keep(store, as_json)
        else:
            _undo(store, before, daemon, patch=patch, yes=yes, as_json=as_json)
    except UnkeptError as error:
        fail(str(error))


def _stores(daemon: ChosenDaemon) -> str:
    status = daemon.request_running("status", NoParams(), StatusResponse)
    if status is not None and status.undo_dir is not None:
        return status.undo_dir
    return undo_dir(daemons_environment(agent_socket(daemon.settings())))


def _keep(store: Store, as_json: bool) -> None:
    with store.locked():
        kept = store.keep("acpterm undo --keep")
        if kept.should_prune:
            store.prune()
    named = {named(path): why for path, why in sorted(kept.skipped.items())}
    if as_json:
        value = {"directory": store.root, "id": kept.snapshot.id, "skipped": named}
        echo_once(json_text(value))
        return
    lines = [f"{store.root} is kept as {kept.snapshot.id}"]
    lines += _some("not kept: ", [f"{path} ({why})" for path, why in named.items()])
    echo_once("\n".join(lines))


def _undo(
    store: Store,
    before: float | None,
    daemon: ChosenDaemon,
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
        failures = restore(store, found.target.id, digest_of(found))
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


def _when(when: str | None, daemon: ChosenDaemon) -> tuple[TerminalInfo | None, float | None]:
    """Return the terminal, if one is meant, and the time before which the snapshot was taken."""
    if when is None:
        return None, None
    if _ID.fullmatch(when):
        return None, int(when) / 1000
    try:
        return None, parse_time(when, time.time())
    except (ValueError, OverflowError):
        info = daemon.request("terminal/get", GetRequest(when), TerminalInfo)
    if isinstance(info.host, str):
        fail(f"terminal {when!r} runs on {info.host}: only directories of this host are kept")
    if info.unkept is not UNSET:
        fail(
            f"there is no way back to before the command of {when!r}: {info.unkept}; earlier "
            "snapshots: acpterm undo --list"
        )
    return info, info.created_at / 1000


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
    inside = os.path.join(root, "")
    return [
        info
        for info in (listed.terminals if listed else ())
        if (info.state == "running" or background_number(info))
        and os.path.join(os.path.realpath(info.cwd), "").startswith(inside)
    ]


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
