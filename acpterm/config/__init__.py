"""Settings: one Struct, loaded from a TOML file, then the environment, then flags."""

from acpterm.config.paths import (
    agent_socket,
    agents_dir,
    audit_dir,
    default_dirs,
    default_file,
    default_record_dir,
    default_socket,
    setup_dir,
    undo_dir,
    user_socket,
    web_dir,
)
from acpterm.config.settings import Settings
from acpterm.config.sources import (
    ENV_PREFIX,
    ConfigError,
    Loaded,
    load,
    load_with_sources,
    on_demand_environment,
    valid_places,
)

__all__ = [
    "ENV_PREFIX",
    "ConfigError",
    "Loaded",
    "Settings",
    "agent_socket",
    "agents_dir",
    "audit_dir",
    "default_dirs",
    "default_file",
    "default_record_dir",
    "default_socket",
    "load",
    "load_with_sources",
    "on_demand_environment",
    "setup_dir",
    "undo_dir",
    "user_socket",
    "valid_places",
    "web_dir",
]
