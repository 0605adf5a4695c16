"""The provider `bubblewrap`: programs run in namespaces of their own (bwrap(1)).

The rules for programs in the sandbox are:

- They can read all files of the system, except secrets, sockets and acpterm's own files: these are
  hidden.
- They can write only to the workspace, except for the protected names in it (`workspace`), and to
  private directories in place of /tmp, /var/tmp and /dev/shm, which end with the sandbox.
- They have no network, and so no abstract Unix sockets, unless `Command.network` is set.
- They have their own namespaces of users, processes, IPC and host names, no capabilities and no new
  privileges, and they cannot create user namespaces.
- /dev has the harmless devices and its own pseudo-terminals. The program's terminal is /dev/console
  there, as tty(1) prints; the other terminals of the user are missing.

Seen from outside, a terminal has these processes: bwrap, which is the session's leader and reports
the exit status; the sandbox's process 1, which is also bwrap; and the programs. The first bwrap
exits when the program exits. Process 1 reaps orphans, and exits after the last process, so
background processes survive the program. acpterm kills them from outside, as for other terminals.
bwrap is in the foreground process group with the program. It ignores the signals that users send,
since it would otherwise end before its program. It does not ignore SIGHUP, which the session gets
when its terminal is closed.

Exit status: a program that is ended by signal n is reported as exit code 128+n. If the sandbox
cannot be set up, bwrap prints why and exits with 1, and the program has not run.

`prepare` first runs a trial of the sandbox (`sandbox_trial`). A success is remembered for 60 s,
unless the file of bwrap changes; a failure is not remembered.
"""

from functools import partial
from typing import Final

from acpterm.providers import off_loop
from acpterm.providers.bubblewrap_argv import PACKAGE, Tools, prepared_command, trial_command
from acpterm.providers.placeholders import Placeholders
from acpterm.providers.provider import Command, Prepared
from acpterm.providers.sandbox_trial import Trial, file_identity, run_trial, trial_directory


def _find_tools() -> tuple[Tools, object]:
    """Return the paths of bwrap and env, and their identity, the key for `Trial.ensure`."""
    tools = Tools.find()
    return tools, file_identity("bubblewrap", *tools)


class BubblewrapProvider:
    """Runs commands in a sandbox of bubblewrap. Implements `provider.Provider`."""

    name: Final = "bubblewrap"

    def __init__(self, placeholders: Placeholders | None = None) -> None:
        self._placeholders: Final = placeholders or Placeholders()
        self._trial: Final = Trial()

    async def prepare(self, command: Command) -> Prepared:
        """Return the argv and environment with which bwrap runs `command` in a sandbox."""
        tools, identity = await off_loop.look_up(_find_tools)
        await self._trial.ensure(identity, lambda: self._try(tools))
        return await off_loop.prepare(
            partial(self._protected, command, tools), self._placeholders.remove
        )

    def _protected(self, command: Command, tools: Tools) -> Prepared:
        """Create the placeholders in the workspace of `command`; return the prepared command."""
        workspace, token, placeholders = self._placeholders.protect(command.workspace)
        try:
            return prepared_command(command, tools, workspace, placeholders)._replace(token=token)
        except BaseException:
            self._placeholders.remove(token)
            raise

    async def clean_up(self, token: str) -> None:
        """Remove the placeholders of a sandbox. Idempotent; does not raise."""
        await off_loop.clean_up(partial(self._placeholders.remove, token))

    async def check(self) -> str:
        """Run `true` in a sandbox, always; return a line that describes the restrictions."""
        tools, _ = await off_loop.look_up(_find_tools)
        version = await self._try(tools)
        return (
            f"{version}: programs write only to the session's directory and a private /tmp; "
            "secrets, sockets and other processes are hidden; the network is off unless allowed"
        )

    async def _try(self, tools: Tools) -> str:
        """Run `true` in a sandbox with an empty workspace; return bwrap's version."""
        async with trial_directory("bubblewrap") as directory:
            prepared = await off_loop.look_up(partial(trial_command, tools, directory))
            await run_trial(
                "bubblewrap", prepared.argv, prepared.env, lambda text: _cause(text, tools.bwrap)
            )
        version = [tools.bwrap, "--version"]
        return await run_trial("bubblewrap", version, prepared.env, lambda _: PACKAGE)


def _cause(text: str, bwrap: str) -> str:
    """Return why bwrap has failed with the error output `text`, and what the user can do."""
    if _is_set("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"):
        return (
            "AppArmor forbids user namespaces (Ubuntu): add a profile for "
            f"{bwrap} with the rule userns, or set "
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if _is_set("/proc/sys/kernel/unprivileged_userns_clone", "0"):
        return "user namespaces are off: set sysctl kernel.unprivileged_userns_clone=1"
    if _is_set("/proc/sys/user/max_user_namespaces", "0") or "No space left" in text:
        return "no user namespace is left: raise sysctl user.max_user_namespaces"
    if "disable-userns" in text or "Unknown option" in text:
        return "bubblewrap is older than 0.8.0: install a newer one"
    if "invalid option" in text or "unrecognized option" in text or "ignore-signal" in text:
        return "env is not that of GNU coreutils 8.31 or newer: install the package coreutils"
    return (
        "user namespaces are forbidden here, as in many containers: allow them, or use the "
        "provider landlock, or select the provider local to run without a sandbox"
    )


def _is_set(path: str, value: str = "1") -> bool:
    try:
        with open(path) as file:
            return file.read().strip() == value
    except OSError:
        return False
