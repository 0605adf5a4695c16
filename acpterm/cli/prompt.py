"""`acpterm prompt`: runs an agent for one turn, for a person in a shell, a script or a CI job."""

import math
import os
import stat
import sys

import click

from acpterm.cli._async import run
from acpterm.cli._options import BeforeAgent, common, hosted, settings
from acpterm.cli._params import Finite
from acpterm.client.prompt.acp_client import Workspace
from acpterm.client.prompt.permissions import Rule
from acpterm.client.prompt.run import PromptOptions, run_prompt, wants_colours
from acpterm.client.wirelog import LogError
from acpterm.jsonrpc import is_utf8_encodable
from acpterm.keeper.client import KeeperLostError
from acpterm.pty.tracking.trees import TrackingError
from acpterm.runtime import logs, stdio

_FOLDER = click.Path(exists=True, file_okay=False)
_SECONDS = Finite(min=0, min_open=True)


@click.command("prompt", cls=BeforeAgent)
@click.argument("text", required=False)
@click.option(
    "--allow",
    type=click.Choice(["ask", "all", "reads", "none"]),
    default="ask",
    show_default=True,
    help="What the agent may do that it asks for: reads is what it calls reading and searching.",
)
@click.option("--read-only", is_flag=True, help="Write no file for the agent.")
@click.option("--cwd", type=_FOLDER, default=".", help="The session's directory, if not this one.")
@click.option(
    "--add-dir", type=_FOLDER, multiple=True, help="One more directory; can be said repeatedly."
)
@click.option("--resume", metavar="ID", help="Go on with a session that was.")
@click.option("--auth", metavar="ID", help="Have the agent log in, in one of the ways it offers.")
@click.option("--timeout", type=_SECONDS, help="Seconds for all of it.")
@click.option(
    "--start-timeout",
    type=_SECONDS,
    default=60,
    show_default=True,
    help="Seconds until the agent has a session.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Show the agent's stderr, and the session's id."
)
@hosted
@common
def command(
    *,
    agent: tuple[str, ...],
    text: str | None,
    allow: Rule,
    read_only: bool,
    cwd: str,
    add_dir: tuple[str, ...],
    resume: str | None,
    auth: str | None,
    timeout: float | None,
    start_timeout: float,
    as_json: bool,
    verbose: bool,
    embedded: bool,
    socket: str | None,
    log: str | None,
    config: str | None,
    **flags: object,
) -> None:
    """Have an agent do TEXT, and print what it says and does until it is done.

    TEXT is read from stdin if it is - or left out. AGENT is started, and ended at the end with all
    that it has started. It gets the terminals of the daemon, which is started if it is not running,
    and the files in the session's directories.

    Ctrl-C cancels the turn, and once more ends the agent. Exit status: 0 the agent is done, 1 it
    refused or something failed, 2 the command line is wrong, 3 what it asked for was refused
    (--allow) and nothing was done, 124 timed out, 130 cancelled.
    """
    stdio.open_missing()
    said = _text(text)
    chosen = settings(config, socket=socket, **{"log_level": "warning", **_given(flags)})
    logs.configure(chosen.log_level, chosen.log_format)
    options = PromptOptions(
        command=agent,
        text=said,
        place=Workspace(_folder(cwd), [_folder(more) for more in add_dir]),
        config=config,
        embedded=embedded,
        allow=allow,
        read_only=read_only,
        resume=None if resume is None else _told(resume),
        login=None if auth is None else _told(auth),
        timeout=math.inf if timeout is None else timeout,
        start_timeout=start_timeout,
        as_json=as_json,
        colours=wants_colours(1),
        verbose=verbose,
        log=log,
    )
    expected = TrackingError, KeeperLostError, LogError
    raise SystemExit(run(run_prompt, chosen, options, expected=expected))


def _given(flags: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in flags.items() if value is not None}


def _folder(path: str) -> str:
    """Give a directory's path as an agent is told it."""
    return _told(os.path.abspath(path))


def _told(value: str) -> str:
    """Give what an agent is told, unless it cannot be told in JSON."""
    if not is_utf8_encodable(value):
        raise click.UsageError(f"no agent can be told of {value!r}: it is not UTF-8")
    return value


def _text(text: str | None) -> str:
    """Give what is to be done; from stdin, if the command line does not say."""
    if text is None and stat.S_ISCHR(os.fstat(0).st_mode):
        raise click.UsageError("say what is to be done: TEXT, or - to read it from stdin")
    said = sys.stdin.buffer.read() if text in (None, "-") else os.fsencode(text)
    text = said.decode(errors="replace")
    if not text.strip():
        raise click.UsageError("the prompt is empty: say what is to be done")
    return text
