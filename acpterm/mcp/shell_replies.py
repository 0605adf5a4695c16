"""The results of tools about commands in persistent shells (`shells`)."""

from acpterm.api.results import Completed
from acpterm.mcp.cropping import Cropped
from acpterm.mcp.sessions import Session
from acpterm.mcp.states import SessionResult, State, call_text, directory_gone
from acpterm.mcp.tool import Reply


def state_of_command(completed: Completed) -> State:
    """Return the state of a command; `exited` if the command or its shell has ended."""
    match completed.state:
        case "running":
            return "running"
        case "waiting_for_input":
            return "waiting_for_input"
        case _:
            return "exited"


def command_reply(
    session: Session,
    completed: Completed,
    output: Cropped,
    *,
    next_call: str,
    heading: str = "",
    text: str | None = None,
    note: str | None = None,
) -> Reply:
    """Return the reply about a command; `completed` is the command's result so far.

    The first line of the reply suggests the call `next_call`. Then follows `text`. If `text` is
    None, `heading` and `output` follow instead. If a part of `output` was left out, `note` says how
    to read that part. If `note` is None, the reply says to read it with `terminal_output`.
    """
    if note is None:
        note = call_text("terminal_output", sessionId=session.id, offset=output.head_lines)
    shown = output.with_note(note)
    state = state_of_command(completed)
    status = f"[{_what(session, completed)} · {next_call}{_attach(session, state)}]"
    return Reply(
        state=status,
        text=f"{heading}{shown}" if text is None else text,
        data=SessionResult(
            id=session.id,
            status=status,
            state=state,
            output=shown,
            position=session.position,
            complete=state == "exited",
            exitCode=completed.exit_code,
            cwd=session.cwd,
            wallSeconds=round(completed.wall_seconds, 3),
            totalBytes=completed.position,
            truncated=output.is_cropped or completed.truncated,
        ),
    )


def _what(session: Session, completed: Completed) -> str:
    seconds = f"{completed.wall_seconds:.1f} s"
    new = "in a new shell, " if completed.started_new else ""
    match completed.state:
        case "running":
            what = f"running {seconds}"
        case "waiting_for_input":
            what = f"running {seconds}, {completed.waiting_program or 'waits for input'}"
        case "shell_ended":
            what = f"the shell has ended after {seconds}"
        case _:
            what = f"exited after {seconds}, {new}exit code {_code(completed)}"
    if completed.boundary == "unknown":
        what += ", boundary unknown"
    if session.cwd_gone is not None:
        return what + directory_gone(session)
    return f"{what}, in {session.cwd}" if completed.cwd else what


def _code(completed: Completed) -> str:
    return "unknown" if completed.exit_code is None else str(completed.exit_code)


def _attach(session: Session, state: State) -> str:
    return "" if state == "exited" else f" · the user can: acpterm attach {session.id}"


def exit_heading(session: Session, completed: Completed) -> str:
    """Return the text before the output of a command.

    It has the exit code, or the id of the session if the command has not ended.
    """
    detail = f"{completed.detail}\n" if completed.detail and completed.boundary == "unknown" else ""
    if state_of_command(completed) != "exited":
        why = "waits for input" if completed.state == "waiting_for_input" else "has not ended yet"
        return f"Terminal Id: {session.id}\nThe command {why}, and continues.\n\nOutput:\n"
    return f"Exit Code: {_code(completed)}\n{detail}\nOutput:\n"
