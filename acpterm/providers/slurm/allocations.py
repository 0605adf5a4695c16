"""Slurm allocations that serve all terminals of a session, so that only the first terminal queues.

`salloc --no-shell` waits for the allocation. It writes its messages to a file whose name is derived
from the session. So the request that creates a terminal does not have to wait. The scripts of the
session's terminals read the file to find out when they may start. And the next worker finds the
allocation by the file.

States of an allocation: *pending*; *granted*; *gone*: failed, expired, cancelled or preempted. If
the allocation is gone, the next terminal of the session requests a new one. An allocation is
released when its session has ended and no terminal uses the allocation any more (a terminal that
the user has promoted outlives the session). A pending allocation is released as soon as no terminal
waits for it, so that it takes no resources for which other users queue.

What can go wrong:

- The allocation is gone while no terminal uses it. So the allocation is checked before its next
  use in two cases: it was not used for some time, or a step could not be started in it.
- The session ends before the controller has received the request for the allocation. So salloc is
  ended first, and then the allocation is cancelled.
- The controller does not answer at the release of the allocation. Then the file is kept, since
  it names the allocation, and the allocation is released later.
"""

import contextlib
import hashlib
import os
from typing import Final

import structlog
import trio

from acpterm.config.places import SlurmPlace, SlurmResources
from acpterm.providers.provider import ProviderError
from acpterm.providers.slurm import progress
from acpterm.providers.slurm.commands import cancel, end, job_options, job_state, start_detached

_PREFIX: Final = "session-"
_ENDED: Final = ".ended"
_TIMEOUT_S: Final = 5.0
# An allocation is used without a check if it was last used or checked less than this time ago.
_TRUSTED_S: Final = 20.0

_log = structlog.get_logger("acpterm.provider")


class Allocations:
    """The allocations of a place, named after their sessions; `directory` has salloc's messages."""

    def __init__(self, place: SlurmPlace, directory: str) -> None:
        self._place: Final = place
        self._directory: Final = directory
        self._lock: Final = trio.Lock()
        self._users: dict[str, set[str]] = {}
        self._seen_at: dict[str, float] = {}
        # The processes of salloc that have not ended yet, by the names of their allocations.
        self._requests: dict[str, trio.Process] = {}

    def path(self, name: str) -> str:
        """Return the path of the file with salloc's messages about the allocation `name`."""
        return os.path.join(self._directory, name)

    async def find_or_request(self, session: str, nursery: trio.Nursery) -> str:
        """Return the name of a session's usable allocation; request one if there is none."""
        # Does not wait for the grant. A task in `nursery` reaps salloc.
        name = _name(session)
        async with self._lock:
            if not await self._is_usable(name):
                await self._request(name, nursery)
            self._seen_at[name] = trio.current_time()
        return name

    async def _is_usable(self, name: str) -> bool:
        found = progress.read(self.path(name))
        if not self._exists(name) or (found.error is not None and found.job is None):
            return False
        if found.job is None:
            return True
        seen_at = self._seen_at.get(name)
        is_trusted = seen_at is not None and trio.current_time() - seen_at < _TRUSTED_S
        if is_trusted and found.error is None:
            return True
        done = await job_state(self._place, found.job, timeout_s=_TIMEOUT_S)
        if done.status != 0 and not done.is_gone:
            # The controller does not answer: srun waits until it does.
            return True
        return done.text in ("RUNNING", "PENDING", "CONFIGURING", "SUSPENDED")

    async def _request(self, name: str, nursery: trio.Nursery) -> None:
        if self._exists(name):
            # The earlier allocation cannot be used, but may still be granted.
            await self._release(name)
            if self._exists(name):
                raise ProviderError("an earlier allocation of the session cannot be released")
        options = job_options(self._place, SlurmResources())
        argv = ["salloc", "--no-shell", f"--job-name={self._job_name(name)}", *options]
        process = await start_detached(self._place, argv, self.path(name))
        self._requests[name] = process
        nursery.start_soon(self._reap, name, process)

    async def _reap(self, name: str, process: trio.Process) -> None:
        # salloc ends when the allocation is granted or refused.
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                await end(process)
            if self._requests.get(name) is process:
                del self._requests[name]

    def _job_name(self, name: str) -> str:
        # The directory's name belongs to this daemon and this place.
        owner = hashlib.blake2b(self._directory.encode(), digest_size=6).hexdigest()
        return f"acpterm-{owner}-{name}"

    def use(self, name: str, user: str) -> None:
        """Record that the program with the identifier `user` uses the allocation `name`."""
        self._users.setdefault(name, set()).add(user)

    async def leave(self, name: str, user: str) -> None:
        """Record that a program no longer uses an allocation; release one that no program uses."""
        self._users.get(name, set()).discard(user)
        # Locked, since a terminal that is being created may have found the allocation just now.
        async with self._lock:
            is_pending = self._exists(name) and not progress.read(self.path(name)).is_granted
            if is_pending or self._exists(name + _ENDED):
                await self._release_unused(name)

    def distrust(self, name: str) -> None:
        """Check the allocation before its next use: a step could not be started in it."""
        self._seen_at.pop(name, None)

    async def end_session(self, session: str) -> None:
        """Record that a session has ended; release its allocation once no terminal uses it."""
        name = _name(session)
        # Locked, since a terminal that is being created may be requesting the allocation.
        async with self._lock:
            if not self._exists(name):
                return
            self._mark_ended(name)
        await self._release_unused(name)

    async def release_all(self) -> None:
        """Release all allocations of this daemon. Does not raise: errors are logged."""
        try:
            names = os.listdir(self._directory)
        except OSError as error:
            _log.warning("allocations may be left", problem=str(error))
            return
        await self._release(
            *(name for name in names if name.startswith(_PREFIX) and not name.endswith(_ENDED))
        )

    async def _release_unused(self, name: str) -> None:
        if not self._users.get(name):
            await self._release(name)

    async def _release(self, *names: str) -> None:
        """Release allocations. Does not raise: errors are logged, and the file is kept."""
        # One command for all with known job ids; the others by name, one by one.
        await end(*(self._requests[name] for name in names if name in self._requests))
        found = {name: progress.read(self.path(name)).job for name in names}
        granted = {name: job for name, job in found.items() if job is not None}
        pending = [{name: f"--name={self._job_name(name)}"} for name in names if not found[name]]
        for words in filter(None, (granted, *pending)):
            try:
                await cancel(self._place, words.values(), timeout_s=_TIMEOUT_S)
            except ProviderError as error:
                _log.warning("allocations may be left", problem=str(error))
                continue
            for name in words:
                self._remove(name)

    def _exists(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def _mark_ended(self, name: str) -> None:
        # In a file, so that the next worker knows it too.
        with contextlib.suppress(OSError), open(self.path(name) + _ENDED, "wb"):
            pass

    def _remove(self, name: str) -> None:
        for path in (self.path(name), self.path(name) + _ENDED):
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._seen_at.pop(name, None)


def _name(session: str) -> str:
    return _PREFIX + hashlib.blake2b(session.encode(), digest_size=8).hexdigest()
