"""Load the settings from a TOML file, then the environment, then flags.

For each setting, the last source that has it wins. `--config`, or else `ACPTERM_CONFIG`, names the
file, which must then exist. The default is `$XDG_CONFIG_HOME/acpterm/config.toml`, which may be
missing. The environment variable of a setting is `ACPTERM_` and its name in capitals. An invalid
value, or an unknown setting in the file, is an error whose message has the setting, the value and
the source. The text of an environment variable is converted to the setting's type. Values in the
file are not converted: `"5"` is an error for a number.

A daemon that a command starts serves all agents, so it takes almost nothing from the environment of
that command, which may be one agent's (`on_demand_environment`). So `ACPTERM_CONFIG` does not name
the file of such a daemon.
"""

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from acpterm.config.http import check_exposure, parse_address
from acpterm.config.paths import default_file
from acpterm.config.places import PLACE_TYPES, RESOURCES, Place, check_places
from acpterm.config.profiles import BUILTIN
from acpterm.config.providers import PROVIDERS
from acpterm.config.settings import Settings, require_absolute

ENV_PREFIX: Final = "ACPTERM_"
# Where a daemon listens, how it logs and how long it stays: what any command may choose for it.
_ON_DEMAND: Final = ("socket", "user_socket", "log_level", "log_format", "idle_exit")


class ConfigError(Exception):
    """A setting is invalid or unknown, or the settings file cannot be read."""


class Loaded(NamedTuple):
    """Settings, and where they come from."""

    settings: Settings
    sources: dict[str, str]
    """The source of each setting that a source has: a path, a variable, or the flags."""


def load(
    file: str | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Return the settings from all sources; see `load_with_sources`."""
    return load_with_sources(file, environ, flags).settings


def load_with_sources(
    file: str | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Loaded:
    """Return the settings, and the source of each. Raises `ConfigError`."""
    # Later sources override earlier ones: the settings file, the environment, the flags that are
    # given.
    environ = os.environ if environ is None else environ
    values: dict[str, _SourcedValue] = {}

    def add(more: Mapping[str, Any], source: str, *, is_text: bool = False) -> None:
        values.update({name: _SourcedValue(value, source, is_text) for name, value in more.items()})

    named = file or environ.get(f"{ENV_PREFIX}CONFIG")
    path = named or default_file()
    if named or os.path.exists(path):
        add(_read(path), path)
    for name in Settings.__struct_fields__:
        variable = ENV_PREFIX + name.upper()
        if variable in environ:
            add({name: environ[variable]}, f"the environment's {variable}", is_text=True)
    resolved = {name: _resolve_path(name, value) for name, value in (flags or {}).items()}
    add({name: value for name, value in resolved.items() if value is not None}, "the flags")
    settings = Settings(**{name: _convert(name, value) for name, value in values.items()})
    _check_profiles(settings, values)
    _check_providers(settings, values)
    _check_http(settings, values)
    return Loaded(settings, {name: value.source for name, value in values.items()})


def on_demand_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` without the settings that a daemon started by a command must not take."""
    ignored = {
        ENV_PREFIX + name.upper()
        for name in (*Settings.__struct_fields__, "config")
        if name not in _ON_DEMAND
    }
    return {name: value for name, value in environ.items() if name not in ignored}


def valid_places(file: str | None = None) -> dict[str, Any]:
    """Return the valid places by kind and name, even if `load` refuses other parts of the file."""
    found: dict[str, Any] = {kind: {} for kind in PLACE_TYPES}
    path = file or os.environ.get(f"{ENV_PREFIX}CONFIG") or default_file()
    with contextlib.suppress(ConfigError):
        values = _read(path)
        for kind, places in found.items():
            tables = values.get(kind)
            for name, table in tables.items() if isinstance(tables, Mapping) else ():
                with contextlib.suppress(ConfigError):
                    places[name] = _convert_place(kind, name, table, path)
    return found


class _SourcedValue(NamedTuple):
    """The value of a setting, and the source of the value."""

    value: Any
    source: str
    """The name of the source in error messages: a path, a variable, or the flags."""
    is_text: bool
    """Whether the value must be converted from text, such as `"5"`, `"true"` or `"0.5"`."""


def _read(path: str) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415  slow to import, and most users have no such file

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error


def _extra(name: str, function: str) -> Callable[[Any], Any] | None:
    """Return the `function`, `check` or `read`, that `Settings` attaches to a setting."""
    return (Settings.__annotations__[name].__metadata__[0].extra or {}).get(function)


def _resolve_path(name: str, value: Any) -> Any:
    return os.path.abspath(value) if value and _extra(name, "check") is require_absolute else value


def _convert(name: str, sourced: _SourcedValue) -> Any:
    value, source, is_text = sourced
    if name not in Settings.__struct_fields__:
        known = ", ".join(Settings.__struct_fields__)
        raise ConfigError(f"{source}: there is no setting {name!r}; there are {known}")
    if name in PLACE_TYPES and isinstance(value, Mapping):
        return {place: _convert_place(name, place, table, source) for place, table in value.items()}
    try:
        read = _extra(name, "read") if is_text else None
        parsed = read(value) if read else value
        settings = msgspec.convert({name: parsed}, Settings, strict=not is_text)
        converted = getattr(settings, name)
        if check := _extra(name, "check"):
            check(converted)
    except (msgspec.ValidationError, ValueError) as error:
        reason, _, place = str(error).partition(f" - at `$.{name}")
        if place := place.strip("`"):
            reason = f"{reason} (in {name}{place})"
        raise ConfigError(f"{source}: {name} = {value!r}: {reason}") from error
    return converted


def _convert_place(kind: str, name: str, table: Any, source: str) -> Place:
    where, keys = f"{source}: [{kind}.{name}]", PLACE_TYPES[kind].__struct_fields__
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}: {table!r} is not a table")
    for key in table:
        if key not in keys:
            raise ConfigError(f"{where}: there is no key {key!r}; there are {', '.join(keys)}")
    try:
        place = msgspec.convert(table, PLACE_TYPES[kind])
        check_places({name: place})
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$.")
        key = re.split(r"\W", path, maxsplit=1)[0]
        if key == "requests":
            reason = f"{reason}; there are {', '.join(RESOURCES)}"
        raise ConfigError(f"{where}: {key} = {table[key]!r}: {reason}") from error
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
    return place


def _check_profiles(settings: Settings, values: Mapping[str, "_SourcedValue"]) -> None:
    known = {*BUILTIN, *settings.profiles}
    named = [("profile", settings.profile)]
    named += [("profile_for", entry.profile) for entry in settings.profile_for]
    for setting, name in named:
        if name not in known:
            raise ConfigError(
                f"{values[setting].source}: {setting} names the profile {name!r}, which does not "
                f"exist: the profiles are {', '.join(sorted(known))}"
            )


def _check_providers(settings: Settings, values: Mapping[str, "_SourcedValue"]) -> None:
    known = (*PROVIDERS, *settings.places)
    named = [("provider", settings.provider, "provider")]
    named += [
        ("profiles", table.provider, f"profiles.{name}.provider")
        for name, table in settings.profiles.items()
        if isinstance(table.provider, str)
    ]
    for setting, name, member in named:
        if name not in known:
            source = values[setting].source
            kind, colon, place = name.partition(":")
            what = f"a table [{kind}.{place}]" if colon else "such a provider"
            raise ConfigError(
                f"{source}: {member} = {name!r}: there is not {what}; "
                f"the providers are {', '.join(known)}"
            )


def _check_http(settings: Settings, values: Mapping[str, "_SourcedValue"]) -> None:
    if settings.http is None:
        return
    try:
        check_exposure(settings, parse_address(settings.http))
    except ValueError as error:
        raise ConfigError(f"{values['http'].source}: http = {settings.http!r}: {error}") from error
