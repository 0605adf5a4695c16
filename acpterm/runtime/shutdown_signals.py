"""The signals that shut down an acpterm process, and an event that they set."""

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

# The signals that a user, a service manager or a closing window sends.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def shutdown_signals() -> list[int]:
    """Return the signals that shut down an acpterm process. SIGHUP is omitted under nohup(1)."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in _SIGNALS if number != signal.SIGHUP or not ignored]


@asynccontextmanager
async def shutdown_event(
    on_signal: Callable[[signal.Signals], object] = lambda _: None,
) -> AsyncIterator[trio.Event]:
    """Yield an event that the first shutdown signal sets, after `on_signal` was called with it."""
    shutdown = trio.Event()

    async def watch() -> None:
        # Receive all signals: trio raises unreceived signals again when the receiver closes.
        async for number in signals:
            if not shutdown.is_set():
                on_signal(signal.Signals(number))
            shutdown.set()

    with trio.open_signal_receiver(*shutdown_signals()) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            yield shutdown
            nursery.cancel_scope.cancel()


def restore_signal_defaults() -> None:
    """Stop ignoring SIGCHLD, and unblock SIGCHLD and the signals that shut down a process."""
    # While SIGCHLD is ignored, the kernel reaps children itself, and their exit status is lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    needed = (signal.SIGCHLD, *_SIGNALS)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, needed)
