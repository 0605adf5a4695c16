"""`acpterm agents`: the agents of the registry, which `proxy` and `prompt` start by name."""

import contextlib
import signal

import click
import msgspec

from acpterm.agents.acp_registry import (
    AgentEntry,
    RegistryError,
    best_way,
    can_install,
    find,
    load_registry,
)
from acpterm.cli._options import config_option, fail, json_option, require_user, settings
from acpterm.cli._output import echo_once, json_text
from acpterm.commands.format import columns, summary_line
from acpterm.config.http import is_address


@click.command("agents")
@click.option("--fetch", is_flag=True, help="Fetch the registry from its address before.")
@click.option("--install", metavar="ID", help="Install the binary of the agent ID before.")
@json_option
@config_option
def command(*, fetch: bool, install: str | None, as_json: bool, config: str | None) -> None:
    """List the agents that proxy and prompt start by name (--agent ID).

    They are those of the registry in the settings: a file in the format of the ACP registry, or its
    address. A fetched copy is used until the next --fetch. STATE is how an agent is started: as
    an installed program, by npx or uvx, which download what they lack, or why it cannot be started.

    With --install, the archive of a binary is downloaded, and unpacked if it has the checksum that
    the registry names.

    With --json, an array with one object for each agent is printed.

    Exit status: 0; 1 if there is no registry, or if something cannot be fetched or installed.
    """
    registry = settings(config).registry
    try:
        if fetch or install is not None:
            require_user(config, "installs agents")
            with contextlib.suppress(ValueError):  # only the main thread can set signal handlers
                # Ctrl-C removes what is not complete.
                signal.signal(signal.SIGINT, signal.default_int_handler)
            from acpterm.agents import installation  # noqa: PLC0415  slow to import

            if fetch and (registry is None or not is_address(registry)):
                fail("the setting registry is no address: there is nothing to fetch")
            if fetch and registry is not None:
                installation.fetch(registry)
            if install is not None:
                installation.install(find(load_registry(registry), install))
        found = [_Listed.of(agent) for agent in load_registry(registry).agents]
    except RegistryError as error:
        fail(summary_line(str(error)))
    rows = [(one.id, *map(summary_line, (one.version, one.name, one.state()))) for one in found]
    header = ("ID", "VERSION", "NAME", "STATE")
    echo_once(json_text(found) if as_json else columns([header, *rows]))


class _Listed(msgspec.Struct, rename="camel"):
    id: str
    name: str
    version: str
    description: str
    kind: str
    command: list[str]
    why_not: str | None
    can_install: bool

    @classmethod
    def of(cls, agent: AgentEntry) -> "_Listed":
        way = best_way(agent)
        described = (agent.id, agent.name, agent.version, agent.description)
        return cls(*described, way.kind, way.command, way.why_not, can_install(agent))

    def state(self) -> str:
        if self.why_not is not None:
            return f"not available: {self.why_not}"
        if self.kind in ("local", "binary"):
            return "installed"
        return f"started by {self.kind}{', can be installed' * self.can_install}"
