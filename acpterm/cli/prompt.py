"""`acpterm prompt`: run an agent for one turn, from a shell, a script or a CI job."""

import math
import os
import stat
import sys

import click

from acpterm.agents.acp_registry import RegistryError
from acpterm.agents.prompt.acp_client import PromptOptions
from acpterm.agents.prompt.permissions import Rule
from acpterm.agents.prompt.run import run_prompt
from acpterm.agents.wirelog import LogError
from acpterm.cli._agent import BeforeAgent, hosted, mcp_options, start_agent
from acpterm.cli._async import run
from acpterm.cli._options import absolute, common, fail, settings
from acpterm.cli._output import is_colour_wanted
from acpterm.cli._params import Finite
from acpterm.jsonrpc import is_utf8_encodable
from acpterm.keeper.reports import KeeperLostError
from acpterm.pty.tracking.trees import TrackingError
from acpterm.runtime import blocking_io, logs

_DIRECTORY = click.Path(exists=True, file_okay=False)
_SECONDS = Finite(min=0, min_open=True)


@click.command("prompt", cls=BeforeAgent)
@click.argument("text", required=False)
@click.option(
    "--allow",
    type=click.Choice(["ask", "all", "reads", "none"]),
    default="ask",
    show_default=True,
    help="Requests of the agent to allow; reads: what the agent calls reading and searching.",
)
@click.option("--read-only", is_flag=True, help="Do not write files for the agent.")
@click.option(
    "--cwd", type=_DIRECTORY, default=".", help="Directory of the session.  [default: this one]"
)
@click.option(
    "--add-dir", type=_DIRECTORY, multiple=True, help="Additional directory. Can be repeated."
)
@click.option("--resume", metavar="ID", help="Resume an earlier session.")
@click.option("--auth", metavar="ID", help="Log in with one of the agent's authentication methods.")
@click.option("--timeout", type=_SECONDS, help="Maximum seconds for the whole run.")
@click.option(
    "--start-timeout",
    type=_SECONDS,
    default=60,
    show_default=True,
    help="Maximum seconds until the agent has a session.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per line.")
@click.option("-v", "--verbose", is_flag=True, help="Show the agent's stderr and the session's id.")
@hosted
@common
def command(
    *,
    agent: tuple[str, ...],
    agent_id: str | None,
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
    profile: str | None,
    log: str | None,
    mcp: bool,
    tools: str | None,
    config: str | None,
    **flags: object,
) -> None:
    """Send the prompt TEXT to an agent, and print what it says and does until its turn ends.

    TEXT is read from stdin if it is - or omitted. AGENT is started, and ended after the turn
    together with all processes that it has started. It gets terminals of the daemon, which is
    started if it is not running, and access to the files in the session's directories.

    Ctrl-C cancels the turn; a second Ctrl-C ends the agent.

    Exit status: 0 if the agent has finished, 1 if it refused or something failed, 2 if the command
    line is wrong, 3 if the agent's requests were refused (--allow) and nothing was done, 124 after
    the timeout, 130 after Ctrl-C.
    """
    blocking_io.open_missing()
    prompt = _read_prompt(text)
    flags["log_level"] = flags["log_level"] or "warning"
    chosen = settings(config, socket=socket, **flags)
    logs.configure(chosen.log_level, chosen.log_format)
    try:
        words, variables = start_agent(agent, agent_id, chosen)
    except RegistryError as error:
        fail(str(error))
    options = PromptOptions(
        command=words,
        env=variables,
        text=prompt,
        cwd=_directory(cwd),
        add_dirs=[_directory(path) for path in add_dir],
        config=config,
        embedded=embedded,
        allow=allow,
        read_only=read_only,
        resume=None if resume is None else _checked(resume),
        login=None if auth is None else _checked(auth),
        timeout=math.inf if timeout is None else timeout,
        start_timeout=start_timeout,
        as_json=as_json,
        colours=is_colour_wanted(),
        verbose=verbose,
        log=log,
        profile=profile,
        mcp=mcp_options(words, tools, config, profile, mcp=mcp),
    )
    expected = TrackingError, KeeperLostError, LogError
    raise SystemExit(run(run_prompt, chosen, options, expected=expected))


def _directory(path: str) -> str:
    return _checked(absolute(path))


def _checked(value: str) -> str:
    if not is_utf8_encodable(value):
        raise click.UsageError(f"{value!r} cannot be sent to an agent: it is not UTF-8")
    return value


def _read_prompt(text: str | None) -> str:
    if text is None and stat.S_ISCHR(os.fstat(0).st_mode):
        raise click.UsageError("say what is to be done: TEXT, or - to read it from stdin")
    data = sys.stdin.buffer.read() if text in (None, "-") else os.fsencode(text)
    text = data.decode(errors="replace")
    if not text.strip():
        raise click.UsageError("the prompt is empty: say what is to be done")
    return text
