"""A profile for tests with which harmless commands are asked about.

All commands are unknown and asked about, except `true` and `env`, which are safe, and `printf`,
which is dangerous: its question is refused after `TIMEOUT_S`.
"""

from pathlib import Path
from typing import Any

import msgspec
import tomlkit

from acpterm.config import Settings
from acpterm.config.profiles import ProfileTable

TIMEOUT_S = 0.5


def asking_table(**values: Any) -> ProfileTable:
    """Return the profile, with other `values` of `[profiles.NAME]`."""
    fields: dict[str, Any] = {
        "safe_commands": ["true", "env"],
        "unknown": "ask",
        "dangerous_patterns": ["printf"],
        "dangerous_timeout": TIMEOUT_S,
        **values,
    }
    return ProfileTable(**fields)


def asking_settings(**values: Any) -> dict[str, Any]:
    """Return the settings with the profile, and without rules; `values` are as for the profile."""
    profiles = {"asking": asking_table(**values)}
    return {"profile": "asking", "profiles": profiles, "rules": "/dev/null"}


def asking(**values: Any) -> Settings:
    """Return what `asking_settings` does, as settings."""
    return Settings(**asking_settings(**values))


def asking_variables(directory: Path, **values: Any) -> dict[str, str]:
    """Write a settings file with the profile; return the variables with which acpterm uses it.

    `values` are as for the profile. The file of rules is `rules.toml`, beside the settings file.
    """
    return configured(directory, profile="asking", profiles={"asking": asking_table(**values)})


def configured(directory: Path, **settings: Any) -> dict[str, str]:
    """Write a settings file; return the variables of the environment with which acpterm uses it."""
    home = directory / "settings"
    (home / "acpterm").mkdir(parents=True, exist_ok=True)
    text = tomlkit.dumps(msgspec.to_builtins(settings))
    (home / "acpterm" / "config.toml").write_text(text)
    return {"XDG_CONFIG_HOME": str(home)}


def recording_script(directory: Path) -> str:
    """Create a program that appends its arguments to the file `ran`; return the program's path."""
    path = directory / "record"
    path.write_text(f'#!/bin/sh\necho "$@" >> {directory}/ran\n')
    path.chmod(0o755)
    return str(path)


def ran(directory: Path) -> str:
    """Return what the program of `recording_script` has recorded."""
    path = directory / "ran"
    return path.read_text() if path.exists() else ""
