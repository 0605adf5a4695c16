"""`acpterm proxy`: relay between an editor and its agent, and provide terminals to both."""

from typing import Literal

import click

from acpterm.agents.acp_registry import RegistryError
from acpterm.agents.proxy.run import ProxyOptions, run_proxy
from acpterm.agents.wirelog import LogError
from acpterm.cli._agent import BeforeAgent, hosted, mcp_options, start_agent
from acpterm.cli._async import run
from acpterm.cli._options import common, fail, settings
from acpterm.keeper.reports import KeeperLostError
from acpterm.pty.tracking.trees import TrackingError
from acpterm.runtime import logs, stdio


@click.command("proxy", cls=BeforeAgent)
@click.option(
    "--terminals",
    type=click.Choice(["ours", "editor"]),
    help="Whose terminals the agent uses.  [default: the editor's if it has any and there is no "
    "--profile, or else ours]",
)
@click.option(
    "--no-chat", is_flag=True, help="Pass prompts that begin with /terminal on to the agent."
)
@hosted
@common
def command(
    *,
    agent: tuple[str, ...],
    agent_id: str | None,
    embedded: bool,
    terminals: Literal["ours", "editor"] | None,
    profile: str | None,
    no_chat: bool,
    mcp: bool,
    tools: str | None,
    log: str | None,
    config: str | None,
    socket: str | None,
    **flags: object,
) -> None:
    """Relay between an editor, on stdin and stdout, and its agent, and provide terminals.

    Put this command before the agent's command in the editor's settings. AGENT is started, and
    messages between editor and agent are passed on, except those about terminals: the agent gets
    terminals of the daemon, which is started if it is not running, and the editor shows them as
    well as it can. acpterm itself answers prompts that begin with /terminal.

    Without an agent, this command is a proxy in a chain: a conductor starts it and the agent
    (proxy/initialize and proxy/successor of ACP, which are unstable).

    When the editor ends, the agent and all processes that it has started are ended too.
    """
    if profile is not None and terminals == "editor":
        raise click.UsageError(
            f"--profile {profile} does not apply to the editor's terminals: leave out "
            "--terminals editor, or --profile"
        )
    chosen = settings(config, socket=socket, **flags)
    logs.configure(chosen.log_level, chosen.log_format)
    try:
        stream = stdio.take_stdio()
    except OSError as error:
        fail(str(error))
    why_not = None
    try:
        words, variables = start_agent(agent, agent_id, chosen)
    except RegistryError as error:
        words, variables, why_not = [str(agent_id)], {}, str(error)
    added = mcp_options(words, tools, config, profile, mcp=mcp)
    options = ProxyOptions(
        command=words,
        env=variables,
        why_not=why_not,
        config=config,
        embedded=embedded,
        log=log,
        profile=profile,
        mcp=added,
        terminals=terminals,
        chat=not no_chat,
    )
    expected = TrackingError, KeeperLostError, LogError
    raise SystemExit(run(run_proxy, stream, chosen, options, expected=expected))
