"""`acpterm setup`: write acpterm into the settings of agents, and remove it again."""

import os
from typing import TYPE_CHECKING, Final

import click

from acpterm.cli._options import fail, require_user
from acpterm.cli._output import echo_once, is_colour_wanted, json_text
from acpterm.mcp.tool_set_names import TOOL_SET_NAMES
from acpterm.runtime.sanitize import escape_invisible

if TYPE_CHECKING:
    from acpterm.setup.agents import Agent
    from acpterm.setup.targets import Target

# The names of `client.setup.agents.AGENTS`. They are repeated here, since --help does not import
# that module.
_NAMES: Final = ("claude", "codex", "gemini", "opencode", "copilot", "cursor", "zed")
_APPROVALS: Final = "To be asked about dangerous commands, keep this open: acpterm approvals -f"
_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}


@click.command("setup")
@click.argument("agent", required=False, type=click.Choice(_NAMES), metavar="[AGENT]")
@click.option("--proxy", is_flag=True, help="Put acpterm proxy before an editor's agents.")
@click.option("--skill", is_flag=True, help="Install the skill, which teaches agents the tools.")
@click.option(
    "--tools",
    type=click.Choice(TOOL_SET_NAMES),
    help="Tools of acpterm mcp.  [default: session, or those that are set up]",
)
@click.option("--undo", is_flag=True, help="Remove what setup has added.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Only show the change.")
@click.option("--json", "as_json", is_flag=True, help="Without AGENT: print a JSON array.")
def command(
    agent: str | None,
    *,
    proxy: bool,
    skill: bool,
    tools: str | None,
    undo: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Give AGENT terminals: add acpterm mcp to its settings, as an MCP server.

    AGENT is claude (Claude Code), codex, gemini (Gemini CLI), opencode, copilot (Copilot CLI),
    cursor or zed. Without AGENT, list the agents, and what is set up. With --skill but without
    AGENT, install the skill for all agents that are installed.

    The change is shown as a diff, and written if you confirm it. Nothing else in the settings
    changes, not even comments. A file that is not valid is not changed. --undo restores the file
    byte for byte; if the agent has changed the file since, --undo removes only the entry.

    --proxy is for zed: each agent that speaks ACP and is on the PATH is added to zed's settings a
    second time, behind acpterm proxy. Several agents read the same skill, in ~/.agents/skills.

    In an agent's terminal only the list and --dry-run are allowed.

    Exit status: 0 if the change was made or is not needed, 1 if not.
    """
    from acpterm.setup.files import SetupError  # noqa: PLC0415  other commands start faster
    from acpterm.setup.targets import has_skill  # noqa: PLC0415

    if proxy and skill:
        raise click.UsageError("--proxy and --skill do not go together: run the command twice")
    if tools and (proxy or skill or undo):
        raise click.UsageError("--tools is for the MCP entry: leave out the other option")
    if as_json and (agent or proxy or skill or tools or undo):
        raise click.UsageError("--json is for the list: leave out the other options")
    if agent is None and not skill:
        if proxy or tools or undo:
            raise click.UsageError("say which AGENT")
        _list(as_json)
        return
    is_entry = not (proxy or skill)
    chosen = _agents(agent)
    try:
        for titles, target in _targets(chosen, proxy=proxy, skill=skill, tools=tools, undo=undo):
            _change(titles, target, undo=undo, yes=yes, dry_run=dry_run)
    except SetupError as error:
        fail(str(error))
    if is_entry and not (undo or dry_run):
        advice = [chosen[0].advice] if chosen[0].advice else []
        lines = [f"The skill teaches it the tools: acpterm setup {agent} --skill"]
        echo_once("\n".join([*advice, *lines[has_skill(chosen[0]) :], _APPROVALS]))


def _agents(name: str | None) -> "list[Agent]":
    """Return the agent `name`; without a name, all agents that are installed."""
    from acpterm.setup.agents import AGENTS  # noqa: PLC0415

    if name is not None:
        return [agent for agent in AGENTS if agent.name == name]
    installed = [agent for agent in AGENTS if agent.is_installed()]
    if not installed:
        fail("none of the agents is installed: acpterm setup lists them. Say which AGENT")
    return installed


def _list(as_json: bool) -> None:
    from acpterm.setup.targets import overview  # noqa: PLC0415

    states = overview()
    if as_json:
        echo_once(json_text([state._asdict() for state in states]))
        return
    lines = [f"{'AGENT':<10}{'INSTALLED':<11}{'SET UP':<20}SETTINGS"]
    for state in states:
        installed = "yes" if state.is_installed else "no"
        parts = ", ".join(state.parts) or "-"
        lines.append(
            f"{state.name:<10}{installed:<11}{parts:<20}{escape_invisible(state.settings)}"
        )
        if state.error:
            lines.append(f"{'':<21}{escape_invisible(state.error)}")
    echo_once("\n".join(lines))


def _targets(
    agents: "list[Agent]", *, proxy: bool, skill: bool, tools: str | None, undo: bool
) -> "list[tuple[str, Target]]":
    """Return each file to change once, with the titles of the agents that read it."""
    from acpterm.setup import targets  # noqa: PLC0415

    found: dict[str, tuple[list[str], Target]] = {}
    for agent in agents:
        target: Target
        if skill:
            target = targets.skill_target(agent)
        elif proxy:
            target = targets.proxy_target(agent, undo=undo)
        else:
            target = targets.server_target(agent, tools)
        found.setdefault(target.path, ([], target))[0].append(agent.title)
    return [(", ".join(titles), target) for titles, target in found.values()]


def _change(titles: str, target: "Target", *, undo: bool, yes: bool, dry_run: bool) -> None:
    """Show the change of one file, ask the user, and write it; `titles`: the agents' names."""
    from acpterm.config import setup_dir  # noqa: PLC0415
    from acpterm.setup.plan import Journal, apply, plan_setup, plan_undo  # noqa: PLC0415

    journal = Journal(setup_dir())
    plan = (plan_undo if undo else plan_setup)(target, journal)
    if not plan.is_needed:
        state = "is not set up" if undo else "is set up already"
        echo_once(f"{titles} {state}: {escape_invisible(target.path)}")
        return
    echo_once("\n".join(_coloured(escape_invisible(line)) for line in plan.diff()))
    if dry_run:
        return
    require_user()
    if not yes:
        if not (os.isatty(0) and os.isatty(1)):
            fail("there is no terminal to ask on: --yes writes the change, --dry-run only shows it")
        if not click.confirm(f"Write {escape_invisible(target.path)}?"):
            raise SystemExit(1)
    apply(plan, journal)
    path = escape_invisible(target.path)
    echo_once(
        f"Removed acpterm from {path}" if undo else f"Wrote {path}: start {titles} again to use it"
    )


def _coloured(line: str) -> str:
    colour = _COLOURS.get(line[:1])
    return click.style(line, fg=colour) if colour and is_colour_wanted() else line
