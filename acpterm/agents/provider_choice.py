"""The providers as the user sees them: which of them work on this machine, and which is selected.

The selected provider is the setting `provider`. `select` writes the setting into the settings
file. A running daemon uses the new provider only after a restart.
"""

import os
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from acpterm.acp.user_api import StatusResponse
from acpterm.commands.daemon_control import daemon_status
from acpterm.commands.format import columns
from acpterm.config import (
    ConfigError,
    Settings,
    default_file,
    load,
    load_with_sources,
    on_demand_environment,
)
from acpterm.config.edit import set_value
from acpterm.config.providers import Isolation, isolation_of
from acpterm.jsonrpc import RpcError
from acpterm.link.daemon import DaemonError
from acpterm.providers.provider import NAMES, ProviderError, is_place
from acpterm.providers.registry import make
from acpterm.runtime.threads import run_blocking

# The last column of the list is not folded to fewer columns.
_FOLDED_MIN: Final = 30


class SelectError(Exception):
    """The provider cannot be selected; the message says why."""


class ProviderRow(NamedTuple):
    name: str
    isolation: Isolation
    works: bool
    selected: bool
    found: str
    """The result of the check, such as a version, or why the provider does not work."""


def text_of(rows: Sequence[ProviderRow], width: int | None = None) -> str:
    """Return the rows as text; the last column is folded to fit `width` columns."""
    heads = columns(
        [
            (
                f"{'*' if row.selected else ' '} {row.name}",
                row.isolation,
                "works" if row.works else "fails" if is_place(row.name) else "missing",
                "|",
            )
            for row in rows
        ]
    )
    lines = []
    for head, row in zip(heads.splitlines(), rows, strict=True):
        room = sys.maxsize if width is None else max(_FOLDED_MIN, width - len(head) + 1)
        found = textwrap.wrap(row.found, room, break_long_words=False, break_on_hyphens=False) or [
            ""
        ]
        lines += [head[:-1] + found[0], *(" " * (len(head) - 1) + line for line in found[1:])]
    return "\n".join(line.rstrip() for line in lines)


async def provider_rows(settings: Settings, selected: str) -> list[ProviderRow]:
    rows = []
    for name in names(settings):
        try:
            provider = make(name, image=settings.image, places=settings.places)
            found, works = await provider.check(), True
        except ProviderError as error:
            found, works = str(error), False
        rows.append(ProviderRow(name, isolation_of(name), works, name == selected, found))
    return rows


def names(settings: Settings) -> list[str]:
    """Return the names: first those on this machine, then the places."""
    return [*NAMES, *settings.places]


async def select(name: str, config: str | None) -> str:
    """Write a provider that works into the settings file, and return its path."""
    # A host that cannot be reached now may be reached later.
    if name != "local" and not is_place(name):
        try:
            await make(name, image=load(config).image).check()
        except (ConfigError, ProviderError) as error:
            raise SelectError(f"the provider is not changed: {error}") from error
    return await run_blocking(partial(_write, name, config))


def _write(name: str, config: str | None) -> str:
    path = os.path.abspath(config or default_file())
    try:
        set_value(path, "provider", name)
    except OSError as error:
        raise SelectError(f"{path}: cannot be written: {error.strerror}") from error
    except ValueError as error:
        raise SelectError(f"{path}: is not TOML, and is not changed: {error}") from error
    return path


def selected_text(name: str, path: str) -> str:
    """Return what to tell the user after `select`."""
    return (
        f'{path}: provider = "{name}"\n'
        "A running daemon uses it from its next start: acpterm restart"
    )


class Used(NamedTuple):
    name: str
    source: str
    """What sets it: a path, a variable, or "default"."""
    in_daemon: bool
    """Else the next daemon will use it."""

    @property
    def text(self) -> str:
        who = "the running daemon uses" if self.in_daemon else "a daemon will use"
        return f"{who} {self.name}, by {self.source}"


def used(config: str | None) -> Used:
    """Return the provider that a daemon uses, or will use."""
    settings, sources = load_with_sources(config, on_demand_environment(os.environ))
    # A daemon refuses the user's requests in agents' terminals.
    with suppress(DaemonError, RpcError):
        status = daemon_status(settings, config)
        if isinstance(status, StatusResponse) and status.provider:
            return Used(status.provider, status.sources.get("provider", "default"), True)
    return Used(settings.provider, sources.get("provider", "default"), False)
