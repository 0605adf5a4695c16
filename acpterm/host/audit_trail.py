"""Writes what happens in a host to the audit log: creates, decisions, input, kills, exits.

What programs print, and what is typed, is not recorded. `policy.audit` redacts secrets.
"""

import os
from typing import Final

from acpterm.config import Settings, default_audit_dir
from acpterm.host.entry import TerminalEntry
from acpterm.policy.audit.log import AuditLog

# Characters of a command, and number of arguments, in the audit log.
COMMAND_CHARS_MAX: Final = 16 * 1024
# Events of the event bus that are recorded, and their names in the record.
_EVENTS: Final = {
    "created": "started",
    "exited": "exit",
    "killed": "kill",
    "released": "release",
    "promoted": "promote",
    "attached": "attach",
    "detached": "detach",
}


def open_audit_log(settings: Settings) -> AuditLog | None:
    """Return the audit log of the settings; None if it is disabled."""
    if not settings.audit:
        return None
    directory = settings.audit_dir or default_audit_dir()
    return AuditLog(directory, file_bytes=settings.audit_file_bytes, files=settings.audit_files)


class AuditTrail:
    """The audit log of one host; without a `log` nothing is recorded."""

    def __init__(self, log: AuditLog | None) -> None:
        self._log: Final = log

    def terminal(self, event: str, entry: TerminalEntry, by: str | None) -> None:
        """Record an event of the event bus about a terminal, if it is one of those to record."""
        name = _EVENTS.get(event)
        if self._log is None or name is None:
            return
        fields: dict[str, str | int | None] = {**_identity(entry)}
        record = entry.record
        if name == "started":
            fields |= {
                "command": entry.command,
                "directory": _text(entry.cwd),
                "provider": record.provider,
                "isolation": record.isolation,
                "level": record.level,
                "pid": entry.terminal.pid,
            }
        if name == "exit" and (status := entry.terminal.exit) is not None:
            fields |= {"code": status.code, "signal": status.signal, "endedBy": status.ended_by}
            fields["limit"] = None if status.cause is None else status.cause.limit
        if by is not None:
            fields["by"] = by
        self._log.record(name, **fields)

    def request(self, event: str, **fields: str | int | bool | list[str] | None) -> None:
        """Record something about a create request: `create`, `decision` or `refused`."""
        if self._log is not None:
            self._log.record(event, **fields)

    def users_create(
        self, command: str, args: list[str] | None, *, directory: str, provider: str
    ) -> None:
        """Record that the user requests a terminal, for which no decision is needed."""
        self.request(
            "create",
            command=command[:COMMAND_CHARS_MAX],
            args=None if args is None else args[:COMMAND_CHARS_MAX],
            directory=_text(directory),
            provider=provider,
            by="user",
        )

    def input(self, entry: TerminalEntry, by: str, size: int) -> None:
        """Record that `size` bytes were typed into a terminal, by `agent` or `user`."""
        if self._log is not None:
            self._log.record("input", **_identity(entry), by=by, bytes=size)


def _identity(entry: TerminalEntry) -> dict[str, str | None]:
    """Return the fields that say which terminal it is, and which agent created it."""
    record = entry.record
    if record.connection is None:
        return {"terminal": entry.id}
    return {
        "terminal": entry.id,
        "agent": record.agent,
        "connection": record.connection,
        "session": record.session,
    }


def _text(path: str) -> str:
    return os.fsencode(path).decode(errors="replace")
