"""Writes what happens in a host to the audit log: creates, decisions, input, kills, exits.

The output of programs is not recorded, and of input only the number of bytes. `policy.audit`
redacts secrets.
"""

import re
from typing import Final

import msgspec

from acpterm.config import Settings, default_audit_dir
from acpterm.host.entry import AgentInfo, TerminalEntry
from acpterm.host.state.records import AuditRecord
from acpterm.host.state.store import AUDIT_KEY
from acpterm.host.state.writer import StateWriter
from acpterm.jsonrpc import readable
from acpterm.policy.audit.log import AuditLog, Progress
from acpterm.pty.background import Background

COMMAND_CHARS_MAX: Final = 16 * 1024
"""Maximum characters of a command, with its arguments, in the audit log."""
_CUT: Final = "…"
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
# Reports of the focus, and answers to queries. CSI 1;2R to 1;8R are F3 with modifiers. No answer
# has control characters: a shell would execute lines between them.
_SENT_BY_WINDOW: Final = re.compile(
    rb"(?:\x1b\[(?:[IO]|[?>=][0-9;]*(?:[cnu]|\$y)|[0-9;]*\$y|0n|(?!1;[2-8]R)[0-9]+;[0-9]+R"
    rb"|(?:[468]|48);[0-9;]*t)|\x1b[P\]][^\x00-\x1f\x7f]*(?:\x1b\\|\a))+"
)


def open_audit_log(
    settings: Settings, writer: StateWriter, previous: AuditRecord | None
) -> AuditLog | None:
    """Return the audit log of the settings; None if it is disabled.

    `previous` is the record of the previous worker's log, and `writer` stores that of this one.
    """
    if not settings.audit:
        return None

    def store(progress: Progress) -> None:
        writer.changed(AUDIT_KEY, AuditRecord(**progress._asdict()).encode)

    return AuditLog(
        settings.audit_dir or default_audit_dir(),
        file_bytes=settings.audit_file_bytes,
        files=settings.audit_files,
        previous=None if previous is None else Progress(**msgspec.structs.asdict(previous)),
        on_progress=store,
    )


class AuditTrail:
    """Writes the events of one host to the audit log `log`. None: nothing is recorded."""

    def __init__(self, log: AuditLog | None) -> None:
        self._log: Final = log

    def terminal(
        self, event: str, entry: TerminalEntry, by: str | None, share: str | None = None
    ) -> None:
        """Record an event about a terminal; ignore events of kinds that are not audited.

        `event` is the event's kind, such as `killed`. `by` is the event's cause, such as
        `user`; None if no cause is given. If a visitor is the cause, `share` is the id of the
        visitor's share.
        """
        name = _EVENTS.get(event)
        if self._log is None or name is None:
            return
        fields: dict[str, str | int | list[str] | None] = {**_identity(entry)}
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
        if by is not None:
            fields["by"] = by
        if share is not None:
            fields["share"] = share
        self._log.record(name, **fields)

    def agents_request(
        self,
        event: str,
        agent: AgentInfo,
        session: str,
        **fields: str | int | bool | list[str] | None,
    ) -> None:
        """Record an event about a command that an agent has requested in a session.

        `event` is `create`, `check`, `decision` or `refused`, and `session` the session's id.
        `fields` are further members of the entry.
        """
        if self._log is not None:
            who = _agent_fields(agent.name, agent.connection_id, session)
            self._log.record(event, **who, **fields)

    def users_create(
        self, command: str, args: list[str] | None, *, directory: str, provider: str
    ) -> None:
        """Record that the user requests a terminal, which will run `command` with `args`.

        `args` is None if the request has none. `directory` is the working directory, and `provider`
        the provider's name. The entry has no judgement, since only agents' commands are judged.
        """
        if self._log is not None:
            self._log.record(
                "create",
                **command_fields(command, args),
                directory=readable(directory),
                provider=provider,
                by="user",
            )

    def input(self, entry: TerminalEntry, by: str, data: bytes, share: str | None = None) -> None:
        """Record that `data` was typed into a terminal, by `agent`, `user` or `share`.

        `share` is the id of the share that the typing visitor uses; None for others. What a window
        sends by itself is not recorded.
        """
        if self._log is not None and (by == "agent" or not _SENT_BY_WINDOW.fullmatch(data)):
            self._log.record("input", **_identity(entry), by=by, bytes=len(data), share=share)

    def share(
        self,
        event: str,
        share: str,
        *,
        by: str | None = None,
        terminal: TerminalEntry | None = None,
        reason: str | None = None,
    ) -> None:
        """Record that the share with the id `share` was made, or that it has ended.

        `event` is `share` or `unshare`. `by` is the cause, such as `user`, and `terminal` is the
        shared terminal. `reason` is a remark, such as "visitors can type". The entry leaves out
        what is None.
        """
        if self._log is not None:
            who = {} if terminal is None else _identity(terminal)
            self._log.record(event, **who, share=share, by=by, reason=reason)

    def login(self, event: str, share: str | None) -> None:
        """Record that a browser has logged in or out.

        `event` is `login` or `logout`. `share` is the id of the share that a visitor uses; None if
        the browser is the user's.
        """
        if self._log is not None:
            self._log.record(event, by="user" if share is None else "share", share=share)


def command_fields(
    command: str, args: list[str] | None
) -> dict[str, str | int | bool | list[str] | None]:
    """Return the fields of an entry that describe a command: `command` and `args`.

    Together they have about `COMMAND_CHARS_MAX` characters at most. A word that does not fit is
    left out as a whole, since a part of a secret would not be recognised as a secret, and would not
    be redacted.
    """
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


def _identity(entry: TerminalEntry) -> dict[str, str | None]:
    """Return the fields that identify a terminal, and the agent that created it, if any."""
    record = entry.record
    if record.connection is None:
        return {"terminal": entry.id}
    who = _agent_fields(record.agent, record.connection, record.session or "")
    return {"terminal": entry.id, **who}


def _agent_fields(agent: str | None, connection: str, session: str) -> dict[str, str | None]:
    """Return the fields that identify an agent: its name, and the ids of connection and session.

    `agent` is the name; None if the agent has sent none. A session id that is too long is cut.
    """
    return {"agent": agent, "connection": connection, "session": session[:COMMAND_CHARS_MAX]}
