"""A profile for tests, which asks about harmless commands.

The commands `true` and `env` are safe. `printf` is dangerous: a question about it is refused after
`TIMEOUT_S`. All other commands are unknown, and the user is asked about them.
"""

from pathlib import Path
from typing import Any

import msgspec
import tomlkit

from acpterm.config import Settings
from acpterm.config.profiles import ProfileTable

TIMEOUT_S = 0.5


def asking_table(**values: Any) -> ProfileTable:
    """Return the profile; `values` replace values of its table `[profiles.NAME]`."""
    fields: dict[str, Any] = {
        "safe_commands": ["true", "env"],
        "unknown": "ask",
        "dangerous_patterns": ["printf"],
        "dangerous_timeout": TIMEOUT_S,
        "unattended": "refuse",
        **values,
    }
    return ProfileTable(**fields)


def asking_settings(**values: Any) -> dict[str, Any]:
    """Return the arguments of `Settings` that select the profile, without rules.

    `values` are as for `asking_table`.
    """
    profiles = {"asking": asking_table(**values)}
    return {"profile": "asking", "profiles": profiles, "rules": "/dev/null"}


def asking(**values: Any) -> Settings:
    """Return settings that select the profile; `values` are as for `asking_table`."""
    return Settings(**asking_settings(**values))


def asking_variables(directory: Path, **values: Any) -> dict[str, str]:
    """Write a settings file that selects the profile.

    Return the environment variables with which acpterm uses the file. `values` are as for
    `asking_table`. The file of rules is `rules.toml`, beside the settings file.
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
    """Return the arguments that the program of `recording_script` has recorded, a line per run."""
    path = directory / "ran"
    return path.read_text() if path.exists() else ""
