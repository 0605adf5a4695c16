"""The results of tools about commands in persistent shells (`shells`)."""

from collections.abc import Sequence

from acpterm.api.results import Completed
from acpterm.mcp.cropping import Cropped, crop, lost_before
from acpterm.mcp.named_shell import has_ended
from acpterm.mcp.shells import Ran
from acpterm.mcp.states import (
    SessionResult,
    State,
    View,
    background_parts,
    call_text,
    directory_gone,
    ended_by,
    says_more,
    state_line,
    state_of,
)
from acpterm.mcp.tool import Reply


def crop_command(completed: Completed, limit: int) -> Cropped:
    lost = None
    if completed.truncated:
        size = completed.position - completed.begin
        lost = lost_before(completed.output, size, completed.beginning, completed.total_lines)
    return crop(completed.output, limit, lost)


def command_reply(
    ran: Ran,
    output: Cropped,
    *,
    next_calls: Sequence[str],
    stop: str,
    heading: str = "",
    text: str | None = None,
    note: str | None = None,
    matched: str | None = None,
    shows_id: bool = False,
    is_short: bool = False,
) -> Reply:
    """Return the reply about a command in a shell: `text`, or else `heading` and `output`.

    `stop` is the call that ends the shell. `note` says how to read what `output` leaves out; by
    default with `terminal_output`. If `is_short`, the first line is left out unless it says more
    than that the command runs, or its exit code.
    """
    session, completed = ran.session, ran.completed
    total = completed.output_begin + len(completed.output.encode())
    # Only `terminal_output` takes a position in the terminal, to which the shell prints, too.
    position = session.position if note is None else total
    if note is None:
        since = completed.begin
        note = call_text(
            "terminal_output", sessionId=session.id, since=since, offset=output.head_lines
        )
    shown = output.with_note(note)
    if has_ended(completed):
        state: State = "exited"
        status = _ended_line(ran, stop)
        says_it = not _is_plain(ran)
    else:
        view = _view(ran, output, matched)
        state = state_of(view)
        status = state_line(session, view, next_calls=next_calls, stop=stop, shows_id=shows_id)
        says_it = says_more(session, view)
    end = session.exit
    text = f"{heading}{shown}" if text is None else text
    return Reply(
        state=None if is_short and text.strip() and not says_it else status,
        text=text,
        data=SessionResult(
            id=session.id,
            status=status,
            state=state,
            output=shown,
            position=position,
            complete=state == "exited",
            exitCode=completed.exit_code,
            signal=None if end is None else end.signal,
            endedBy=_ended_by(ran),
            cwd=session.cwd,
            wallSeconds=round(completed.wall_seconds, 3),
            totalBytes=total,
            truncated=output.is_cropped or completed.truncated,
            background=ran.background,
        ),
    )


def _view(ran: Ran, output: Cropped, matched: str | None) -> View:
    completed, info = ran.completed, ran.info
    return View(
        text=ran.new,
        cropped=output,
        since=completed.begin,
        position=completed.position,
        is_waiting=completed.state == "waiting_for_input" and ran.stopped is None,
        hides_input=info is not None and info.hides_input,
        stopped=ran.stopped,
        waiting_program=completed.waiting_program,
        prompt=ran.session.prompt,
        screen_size=ran.screen_size,
        matched=matched,
        seconds=completed.wall_seconds,
    )


def _ended_by(ran: Ran) -> str | None:
    if not has_ended(ran.completed):
        return None
    if ran.was_killed:
        return "timeout"
    return "exited" if ran.session.exit is None else ran.session.exit.ended_by


def _is_plain(ran: Ran) -> bool:
    completed = ran.completed
    is_usual = completed.state == "done" and completed.boundary != "unknown"
    has_more = completed.started_new or ran.session.cwd_gone is not None or ran.is_cwd_new
    return is_usual and not (
        has_more or ran.was_killed or (ran.is_background_new and ran.background)
    )


def _ended_line(ran: Ran, stop: str) -> str:
    session, completed = ran.session, ran.completed
    seconds = f"{completed.wall_seconds:.1f} s"
    new = "in a new shell, " if completed.started_new else ""
    what = f"exited after {seconds}, {new}exit code {_code(completed)}"
    if completed.state == "shell_ended":
        what = f"the shell has ended after {seconds}, exit code {_code(completed)}"
        if session.exit is not None and not ran.was_killed:
            what += ended_by(session.exit)
    if completed.boundary == "unknown":
        what += ", boundary unknown"
    if session.cwd_gone is not None:
        what += directory_gone(session)
    elif ran.is_cwd_new:
        what += f", in {session.cwd}"
    if ran.was_killed:
        what += ", at its time limit"
    continues = ran.is_background_new and bool(ran.background)
    parts = [what]
    if continues:
        parts += background_parts(ran.background, stop, f" in {session.id}")
        if completed.state != "shell_ended":
            parts[-1] += ", and the shell"
    return f"[{' · '.join(parts)}]"


def _code(completed: Completed) -> str:
    return "unknown" if completed.exit_code is None else str(completed.exit_code)


def unknown_end(completed: Completed) -> str:
    """Return the text before the output if it is not known exactly where the output ends."""
    is_unknown = has_ended(completed) and completed.boundary == "unknown" and completed.detail
    return f"{completed.detail}\n\n" if is_unknown else ""
