"""What tells a process of ours to end: the signals that it minds, and how it hears of them."""

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

# What a person, a service manager or a window that closes says to end it.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def shutdown_signals() -> list[int]:
    """Give the signals that end a process of ours. Under nohup a hangup is nothing."""
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [number for number in _SIGNALS if number != signal.SIGHUP or not ignored]


@asynccontextmanager
async def shutdown_event(
    heard: Callable[[signal.Signals], object] = lambda _: None,
) -> AsyncIterator[trio.Event]:
    """Give an event that the first signal to end sets; in the block more of them do nothing.

    `heard` is called with that signal, before.
    """
    told = trio.Event()

    async def watch() -> None:
        # To the end: a signal that nobody took is raised again when the receiver closes.
        async for number in signals:
            if not told.is_set():
                heard(signal.Signals(number))
            told.set()

    with trio.open_signal_receiver(*shutdown_signals()) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            yield told
            nursery.cancel_scope.cancel()


def restore_signal_defaults() -> None:
    """Undo what a parent may have left: signals that are needed here, ignored or blocked.

    Where SIGCHLD is ignored the kernel reaps children itself, and how they ended is lost.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    needed = (signal.SIGCHLD, *_SIGNALS)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, needed)
