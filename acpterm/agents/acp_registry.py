"""The registry of agents, in the format of the ACP registry: how each agent is started, by its ID.

The setting `registry` is the path of a file, or an address. Of an address, `fetch` makes a copy in
acpterm's state directory; nothing else uses the network for it. Beside the copy are the binaries of
agents (`installation`), each in a directory `ID/SHA256`: an agent is installed if the directory for
the checksum in the registry is there.
"""

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct, field

from acpterm.config import agents_dir
from acpterm.config.http import is_address
from acpterm.jsonrpc import is_utf8_encodable

REGISTRY_BYTES_MAX: Final = 8 * 1024 * 1024
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}


class RegistryError(Exception):
    """The registry cannot be used, or an agent of it cannot be started; the message says why."""


class LocalProgram(Struct):
    """A program on this machine; not in the ACP registry, but in files that Harbor reads."""

    cmd: Annotated[str, Meta(min_length=1)]
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)


class Binary(LocalProgram, kw_only=True):
    """An archive for one platform; `cmd` is a path in it."""

    archive: str
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-fA-F]{64}\Z")] | None = None


class Package(Struct):
    """A package that `npx` or `uvx` runs."""

    package: Annotated[str, Meta(pattern="^[^-]")]
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)


class Distribution(Struct):
    """The ways to start an agent, in the order in which they are tried."""

    local: LocalProgram | None = None
    binary: dict[str, Binary] = field(default_factory=dict)
    npx: Package | None = None
    uvx: Package | None = None


class AgentEntry(Struct):
    """An agent of the registry."""

    id: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]*\Z")]
    name: str
    version: str
    distribution: Distribution
    description: str = ""


class Registry(Struct):
    """A registry file; members that acpterm does not use are ignored."""

    agents: list[AgentEntry]


class Way(NamedTuple):
    """One way to start an agent. `why_not` is None if it can be started so now."""

    kind: Literal["local", "binary", "npx", "uvx"]
    command: list[str]
    env: Mapping[str, str]
    why_not: str | None


def load_registry(setting: str | None) -> Registry:
    """Read the registry of the setting `registry`. Raises `RegistryError`."""
    if setting is None:
        raise RegistryError(
            "there is no registry of agents: set registry to a file in the format of the ACP "
            "registry, or to its address (docs/proxy.md, Agents by name)"
        )
    path = copy_path(setting) if is_address(setting) else setting
    try:
        with open(path, "rb") as file:
            data = file.read(REGISTRY_BYTES_MAX + 1)
    except FileNotFoundError:
        if not is_address(setting):
            raise RegistryError(f"the registry {path} does not exist") from None
        why = "was not fetched yet: acpterm agents --fetch fetches it"
        raise RegistryError(f"the registry at {setting} {why}") from None
    except OSError as error:
        raise RegistryError(f"the registry {path} cannot be read: {error.strerror}") from error
    return parse_registry(data, path)


def parse_registry(data: bytes, source: str) -> Registry:
    """Parse a registry; `source` names it in errors. Raises `RegistryError`."""
    if len(data) > REGISTRY_BYTES_MAX:
        raise RegistryError(f"the registry {source} is larger than {REGISTRY_BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(data, type=Registry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RegistryError(f"the registry {source} is malformed: {error}") from error


def copy_path(address: str) -> str:
    """Return the path of the copy of the registry at an address."""
    import hashlib  # noqa: PLC0415  only for a registry that has an address

    name = hashlib.sha256(address.encode(errors="surrogateescape")).hexdigest()[:16]
    return os.path.join(agents_dir(), f"registry-{name}.json")


def find(registry: Registry, name: str) -> AgentEntry:
    """Return the agent with the ID `name`. Raises `RegistryError`, which names similar IDs."""
    for agent in registry.agents:
        if agent.id == name:
            return agent
    import difflib  # noqa: PLC0415  only needed for a wrong name

    near = difflib.get_close_matches(name.lower(), [agent.id for agent in registry.agents])
    advice = f"did you mean {' or '.join(near)}?" if near else "acpterm agents lists all"
    raise RegistryError(f"there is no agent {name!r} in the registry: {advice}")


def start_of(setting: str | None, name: str) -> Way:
    """Return how to start an agent now. Raises `RegistryError`, with why not for each way."""
    found = best_way(find(load_registry(setting), name))
    if found.why_not is not None:
        raise RegistryError(f"the agent {name!r} cannot be started: {found.why_not}")
    return found


def best_way(agent: AgentEntry) -> Way:
    """Return the first way to start an agent that works now; else the first, with all reasons."""
    ways = list(_ways(agent))
    for way in ways:
        if way.why_not is None:
            return way
    if not ways:
        return Way("local", [], {}, "the registry has no way to start it that acpterm knows")
    return ways[0]._replace(why_not="; ".join(way.why_not or "" for way in ways))


def binary_of(agent: AgentEntry) -> tuple[Binary, str]:
    """Return an agent's binary for this platform, and its directory if it is installed.

    Raises `RegistryError`.
    """
    found = agent.distribution.binary
    if not found:
        raise RegistryError(f"the registry has no binary of {agent.id!r}: acpterm installs nothing")
    here = f"{sys.platform}-{_MACHINES.get(machine := platform.machine().lower(), machine)}"
    if here not in found:
        there = ", ".join(sorted(found))
        raise RegistryError(f"the registry has no binary for {here}, only for {there}")
    binary = found[here]
    if binary.sha256 is None:
        raise RegistryError(f"distribution.binary.{here} has no sha256: acpterm does not trust it")
    path = PurePosixPath(binary.cmd)
    if path.is_absolute() or ".." in path.parts:
        raise RegistryError(f"distribution.binary.{here}.cmd {binary.cmd!r} leaves the archive")
    return binary, os.path.join(agents_dir(), agent.id, binary.sha256.lower())


def can_install(agent: AgentEntry) -> bool:
    """Return whether `acpterm agents --install` installs something that is not installed."""
    try:
        return not os.path.isdir(binary_of(agent)[1])
    except RegistryError:
        return False


def _ways(agent: AgentEntry) -> Iterator[Way]:
    found = agent.distribution
    if local := found.local:
        missing = None if _is_found(local.cmd) else f"there is no program {local.cmd!r}"
        yield Way("local", [local.cmd, *local.args], local.env, missing)
    if found.binary:
        try:
            binary, directory = binary_of(agent)
        except RegistryError as error:
            yield Way("binary", [], {}, str(error))
        else:
            path = os.path.join(directory, binary.cmd)
            missing = f"acpterm agents --install {agent.id} installs it"
            why_not = None if os.path.isfile(path) else missing
            yield Way("binary", [os.path.normpath(path), *binary.args], binary.env, why_not)
    if npx := found.npx:
        missing = None if _is_found("npx") else "npx (of Node.js) is not on the PATH"
        yield Way("npx", ["npx", "-y", npx.package, *npx.args], npx.env, missing)
    if uvx := found.uvx:
        missing = None if _is_found("uvx") else "uvx (of uv) is not on the PATH"
        yield Way("uvx", ["uvx", uvx.package, *uvx.args], uvx.env, missing)


def _is_found(program: str) -> bool:
    return is_utf8_encodable(program) and shutil.which(program) is not None
