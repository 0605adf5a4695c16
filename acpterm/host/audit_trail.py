"""Writes what happens in a host to the audit log: creates, decisions, input, kills, exits.

The output of programs is not recorded, and of input only the number of bytes. `audit`
redacts secrets.
"""

import re
from typing import Final, TypeAlias

import msgspec

from acpterm.audit.entry import EVENTS
from acpterm.audit.log import AuditLog, LogProgress
from acpterm.config import Settings, audit_dir
from acpterm.host.entry import AgentInfo, TerminalEntry
from acpterm.host.state.records import AuditRecord
from acpterm.host.state.store import AUDIT_KEY
from acpterm.host.state.writer import StateWriter
from acpterm.jsonrpc import readable
from acpterm.pty.background import Background

Value: TypeAlias = str | int | list[str] | None

COMMAND_CHARS_MAX: Final = 16 * 1024
_CUT: Final = "…"
_BY_BUS_EVENT: Final = {event.bus: name for name, event in EVENTS.items() if event.bus}
# Reports of the focus, and answers to queries. CSI 1;2R to 1;8R are F3 with modifiers. No answer
# has control characters: a shell would execute lines between them.
_SENT_BY_WINDOW: Final = re.compile(
    rb"(?:\x1b\[(?:[IO]|[?>=][0-9;]*(?:[cnu]|\$y)|[0-9;]*\$y|0n|(?!1;[2-8]R)[0-9]+;[0-9]+R"
    rb"|(?:[468]|48);[0-9;]*t)|\x1b[P\]][^\x00-\x1f\x7f]*(?:\x1b\\|\a))+"
)


def open_audit_log(
    settings: Settings, writer: StateWriter, previous: AuditRecord | None
) -> AuditLog | None:
    if not settings.audit:
        return None

    def store(progress: LogProgress) -> None:
        writer.changed(AUDIT_KEY, AuditRecord(**progress._asdict()).encode)

    return AuditLog(
        audit_dir(settings),
        file_bytes=settings.audit_file_bytes,
        files=settings.audit_files,
        previous=None if previous is None else LogProgress(**msgspec.structs.asdict(previous)),
        on_progress=store,
    )


class AuditTrail:
    """Writes the events of one host to the audit log `log`. None: nothing is recorded."""

    def __init__(self, log: AuditLog | None) -> None:
        self._log: Final = log

    def record(self, event: str, terminal: TerminalEntry | None = None, /, **fields: Value) -> None:
        if self._log is not None:
            who = {} if terminal is None else _identity(terminal)
            self._log.record(event, **who, **fields)

    def on_bus_event(
        self, kind: str, entry: TerminalEntry, by: str | None, share: str | None = None
    ) -> None:
        name = _BY_BUS_EVENT.get(kind)
        if self._log is None or name is None:
            return
        fields: dict[str, Value] = {"by": by, "share": share}
        record = entry.record
        if name == "started":
            fields |= {
                "command": entry.command,
                "directory": readable(entry.cwd),
                "provider": record.provider,
                "isolation": record.isolation,
                "level": record.level,
                "pid": entry.terminal.pid,
            }
        if name == "exit" and (status := entry.terminal.exit) is not None:
            fields |= {"code": status.code, "signal": status.signal, "endedBy": status.ended_by}
            fields["limit"] = None if status.cause is None else status.cause.limit
        if name in ("kill", "release") and entry.background.number:
            fields["background"] = _background(entry.background)
        self.record(name, entry, **fields)

    def input(self, entry: TerminalEntry, by: str, data: bytes, share: str | None = None) -> None:
        """Record that `data` was typed, unless a window sent it by itself."""
        if by == "agent" or not _SENT_BY_WINDOW.fullmatch(data):
            self.record("input", entry, by=by, bytes=len(data), share=share)


def command_fields(command: str, args: list[str] | None) -> dict[str, Value]:
    """Return `command` and `args` for an entry, with some `COMMAND_CHARS_MAX` characters."""
    # A word that does not fit is left out as a whole: a part of a secret would not be recognised
    # and redacted.
    room = COMMAND_CHARS_MAX - len(command)
    if room < 0:
        command = f"{command[:COMMAND_CHARS_MAX].rpartition(' ')[0]} {_CUT}"
    if args is None:
        return {"command": command, "args": None}
    kept: list[str] = []
    for arg in args:
        room -= len(arg) + 1
        if room < 0:
            kept.append(_CUT)
            break
        kept.append(arg)
    return {"command": command, "args": kept}


def _background(found: Background) -> list[str]:
    """Return the names of processes without their arguments, which may contain secrets."""
    listed = [f"{each.command.partition(' ')[0]} ({each.pid})" for each in found.processes]
    return [*listed, f"{found.omitted} others"] if found.omitted else listed


def agent_fields(agent: AgentInfo, session: str) -> dict[str, Value]:
    """Return the fields that identify an agent; a session id that is too long is cut."""
    return _agent_fields(agent.name, agent.connection_id, session)


def _identity(entry: TerminalEntry) -> dict[str, Value]:
    record = entry.record
    if record.connection is None:
        return {"terminal": entry.id}
    who = _agent_fields(record.agent, record.connection, record.session or "")
    return {"terminal": entry.id, **who}


def _agent_fields(name: str | None, connection: str, session: str) -> dict[str, Value]:
    return {"agent": name, "connection": connection, "session": session[:COMMAND_CHARS_MAX]}
