"""`acpterm provider`: list the providers, which run terminals' programs, and select a provider."""

import os

import click
import trio

from acpterm.agents import provider_choice
from acpterm.agents.provider_choice import SelectError, Used, provider_rows
from acpterm.cli._daemon import note_questions_of
from acpterm.cli._options import config_option, fail, json_option, require_user, settings
from acpterm.cli._output import echo_once, json_text
from acpterm.commands.format import columns
from acpterm.commands.output.blocking_stdout import window_size
from acpterm.config import ConfigError
from acpterm.providers.provider import NAMES, is_place


@click.group("provider")
def command() -> None:
    """List the providers of terminals, and select one.

    A provider runs the programs of agents' terminals: local runs them without isolation; bubblewrap
    and landlock use a sandbox; podman and docker use a container; a place of the settings, such as
    ssh:NAME, is another host.
    """


@command.command("list")
@json_option
@config_option
def _list(as_json: bool, config: str | None) -> None:
    """List the providers, and try each of them.

    Each provider runs one command. An asterisk marks the provider of agents' terminals: the one
    that the daemon uses or, if none runs, that of the settings. The last line says what sets it.
    """
    used = _used(config)
    loaded = settings(config)
    note_questions_of(loaded)
    rows = trio.run(provider_rows, loaded, used.name)
    if as_json:
        found = [row._asdict() | ({"source": used.source} if row.selected else {}) for row in rows]
        echo_once(json_text(found))
        return
    width = window_size()[0] if os.isatty(1) else None
    echo_once(f"{provider_choice.text_of(rows, width)}\n{used.text}")


@command.command("get")
@json_option
@config_option
def _get(as_json: bool, config: str | None) -> None:
    """Print the name of the provider that `acpterm provider list` marks.

    With --json, also what sets it.
    """
    used = _used(config)
    found = {"provider": used.name, "source": used.source}
    echo_once(json_text(found) if as_json else used.name)


@command.command("set")
@click.argument("name")
@json_option
@config_option
def _set(name: str, as_json: bool, config: str | None) -> None:
    """Select the provider NAME: write it into the settings file.

    A provider of this machine is tried first; if it does not work, the error says what is missing,
    and nothing changes. The rest of the file does not change. A running daemon uses the provider
    from its next start (acpterm restart). In an agent's terminal the command is refused.
    """
    known = provider_choice.names(settings(config)) if is_place(name) else NAMES
    if name not in known:
        raise click.BadParameter(f"{name!r} is not one of {', '.join(known)}")
    require_user(config)
    _select(name, config, as_json=as_json)


@command.command("select")
@config_option
def _choose(config: str | None) -> None:
    """Select a provider interactively, from a list.

    In an agent's terminal the command is refused.
    """
    if not (os.isatty(0) and os.isatty(2)):
        fail("there is no terminal to ask on: use acpterm provider set NAME")
    require_user(config)
    rows = trio.run(provider_rows, settings(config), _used(config).name)
    states = [row.isolation if row.works else f"does not work here: {row.found}" for row in rows]
    names = [f"{number}. {row.name}" for number, row in enumerate(rows, 1)]
    click.echo(columns(list(zip(names, states, strict=True))), err=True)
    default = next(number for number, row in enumerate(rows, 1) if row.selected)
    number = click.prompt("Provider", type=click.IntRange(1, len(rows)), default=default, err=True)
    _select(rows[number - 1].name, config)


def _select(name: str, config: str | None, *, as_json: bool = False) -> None:
    try:
        path = trio.run(provider_choice.select, name, config)
    except SelectError as error:
        fail(str(error))
    if as_json:
        echo_once(json_text({"provider": name, "file": path}))
    else:
        echo_once(provider_choice.selected_text(name, path))
    used = _used(config)
    if used.name != name and used.source.startswith("the environment"):
        click.echo(f"acpterm: {used.text}, which takes precedence", err=True)


def _used(config: str | None) -> Used:
    try:
        return provider_choice.used(config)
    except ConfigError as error:
        fail(str(error))
