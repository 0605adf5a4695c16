"""Tries out a container engine: finds the options that the engine needs, and checks the isolation.

The trial runs one command in a container, with the options of a terminal, and checks what the
command can do there: an engine that ignores an option must not be used. (`sandbox_trial` is for
bubblewrap and landlock.)

A container that stays in the terminal's control group is preferred, since acpterm's limits and
kills then apply to it. If the engine cannot do that (docker, runc), the container gets a control
group of its own.
"""

import os
import re
from typing import Final

import trio

from acpterm.providers.container_argv import EngineSetup, base_options, shell_argv
from acpterm.providers.engine import CommandResult, Engine
from acpterm.providers.provider import ProviderError

_IMAGE: Final = re.compile(r"[a-zA-Z0-9][\w./:@-]*")
# Prints, for `describe`, what the command can do. Uses only builtins of a POSIX shell.
_PROBE: Final = """\
while read -r key value; do
  case $key in Uid:|CapEff:|CapBnd:|NoNewPrivs:|Seccomp:) echo "$key" $value ;; esac
done </proc/self/status
while read -r name _; do case $name in *:) echo "Interface: ${name%:}" ;; esac; done </proc/net/dev
if (: >/acpterm-trial) 2>/dev/null; then echo "Writable: /"; fi
if ! (: >/tmp/acpterm-trial) 2>/dev/null; then echo "Unwritable: /tmp"; fi
"""


async def try_engine(
    engine: Engine, image: str, labels: tuple[str, ...], name: str
) -> tuple[EngineSetup, str]:
    """Run a trial in a container; return the options that work, and a line for the user."""
    engine.require()
    version = await _version(engine)
    await _require_image(engine, image)
    result = CommandResult(1, "", "")
    for setup in await _setups(engine, image, labels):
        options = base_options(setup, name, network=False)
        argv = shell_argv(setup, options, ["/", "/bin/sh", "-c", _PROBE])
        is_done = False
        try:
            result = await engine.run_argv(argv)
            is_done = result.status == 0
        finally:
            # If the command has succeeded, the engine has removed its container already.
            if not is_done:
                with trio.CancelScope(shield=True):
                    await engine.remove(name)
        if result.status == 0:
            return setup, describe(version, setup, result.stdout)
    msg = (
        f"{engine.name} cannot run a command in the image {image}: {result.message} (the image "
        f"must have a /bin/sh; try `{engine.name} run --rm --network=none {image} /bin/sh -c true`)"
    )
    raise ProviderError(msg)


async def _version(engine: Engine) -> str:
    result = await engine.run("--version")
    found = re.search(r"\d+(?:\.\d+)+", result.stdout)
    if result.status != 0 or found is None:
        msg = f"{engine.name} does not work: `{engine.name} --version` says: {result.message}"
        raise ProviderError(msg)
    return f"{engine.name} {found[0]}"


async def _require_image(engine: Engine, image: str) -> None:
    if not _IMAGE.fullmatch(image):
        msg = f"{image!r} is not the name of an image, such as docker.io/library/debian:12"
        raise ProviderError(msg)
    result = await engine.run("image", "inspect", "--format={{.Id}}", image)
    if result.status == 0:
        return
    if "no such image" in result.message.lower() or "image not known" in result.message.lower():
        msg = f"{engine.name} does not have the image {image}: run `{engine.name} pull {image}`"
        raise ProviderError(msg)
    msg = f"{engine.name} does not work: {result.message} (try `{engine.name} info`)"
    raise ProviderError(msg)


async def _setups(engine: Engine, image: str, labels: tuple[str, ...]) -> list[EngineSetup]:
    """Return the sets of options to try with the engine, the preferred one first."""
    uid, gid = os.geteuid(), os.getegid()
    setup = EngineSetup(engine.name, image, labels, f"{uid}:{gid}", keeps_id=False, has_cgroup=True)
    if engine.name == "podman":
        setup = setup._replace(keeps_id=uid != 0)
        return [setup._replace(has_cgroup=False), setup]
    info = await engine.run("info", "--format={{.SecurityOptions}}")
    if info.status != 0:
        msg = f"docker does not work: {info.message} (is its daemon running? try `docker info`)"
        raise ProviderError(msg)
    # In a container of a rootless docker, root is the user who runs the daemon.
    return [setup._replace(user="0:0")] if "rootless" in info.stdout else [setup]


def describe(version: str, setup: EngineSetup, output: str) -> str:
    """Return a line for the user; raise `ProviderError` if the output shows no isolation."""
    found: dict[str, list[str]] = {}
    for key, _, value in (line.partition(": ") for line in output.splitlines()):
        found.setdefault(key, []).append(value)
    uid = setup.user.partition(":")[0]
    problems = []
    if {int(value, 16) for key in ("CapEff", "CapBnd") for value in found.get(key, ["1"])} != {0}:
        problems.append("programs have capabilities")
    if found.get("NoNewPrivs") != ["1"]:
        problems.append("setuid programs gain privileges")
    if found.get("Uid") != [" ".join([uid] * 4)]:
        problems.append(f"programs do not run as user {uid}")
    if set(found.get("Interface", ["?"])) - {"lo"}:
        problems.append("there is a network")
    if "Writable" in found:
        problems.append("the image is writable")
    if "Unwritable" in found:
        problems.append("/tmp is not writable")  # noqa: S108  it is the container's own
    if problems:
        msg = f"{version} does not isolate a container of {setup.image}: {', '.join(problems)}"
        raise ProviderError(msg)
    # acpterm sets a terminal's limits on the terminal's control group.
    own = "a control group of its own, so limits of memory, CPU, processes and disk do not apply"
    group = own if setup.has_cgroup else "the terminal's control group"
    seccomp = "a system call filter" if found.get("Seccomp") == ["2"] else "no system call filter"
    return (
        f"{version}: image {setup.image}, user {uid} without capabilities, no network, "
        f"{seccomp}, {group}"
    )
