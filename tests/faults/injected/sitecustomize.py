"""Faults inside the worker. Python imports this module at its start from PYTHONPATH.

acpterm has no hooks for faults, so this module patches it. A fault is requested by a file in the
directory `FAULTS_DIR`, whose content is an argument. The first worker that finds the file removes
it, so that the fault happens once, unless its name ends in `-always`.

| file | fault |
| --- | --- |
| `fail`, `fail-always` | a worker that is started exits with status 3 |
| `hang`, `hang-always` | a worker that is started waits forever |
| `delay`, `delay-always` | a worker starts after this many seconds |
| `kill-spawned` | the worker kills itself after the response to the next spawn |
| `kill-spawning` | the worker kills itself this many milliseconds after the next spawn request |
"""

import importlib.abc
import importlib.machinery
import os
import signal
import sys
import time

_TARGET = "acpterm.keeper.client"
_SUCCESSOR = "ACPTERM_KEEPER_FD"


def main():
    directory = os.environ.get("FAULTS_DIR")
    words = getattr(sys, "orig_argv", [])
    if directory is None or "serve" not in words:
        return
    if _SUCCESSOR in os.environ:
        _at_start(directory)
    sys.meta_path.insert(0, _Finder(directory))


def _at_start(directory):
    if (argument := take(directory, "delay")) is not None:
        time.sleep(float(argument))
    if take(directory, "hang") is not None:
        while True:
            time.sleep(1000)
    if take(directory, "fail") is not None:
        os._exit(3)


def take(directory, name):
    """Return the argument of the fault `name`; None if the fault is not requested.

    Remove the request, unless its name ends in `-always`.
    """
    path = os.path.join(directory, name)
    try:
        with open(path + "-always") as file:
            return file.read()
    except FileNotFoundError:
        pass
    taken = f"{path}.taken-{os.getpid()}"
    try:
        os.rename(path, taken)
    except FileNotFoundError:
        return None
    with open(taken) as file:
        return file.read()


class _Finder(importlib.abc.MetaPathFinder):
    """Patches a module when it has been imported."""

    def __init__(self, directory):
        self._directory = directory

    def find_spec(self, name, path, target=None):
        if name != _TARGET:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                _patch(module, self._directory)

            spec.loader.exec_module = exec_module
        return spec


def _patch(module, directory):
    spawn = module.KeeperClient.spawn

    async def patched(self, *arguments, **named):
        if (argument := take(directory, "kill-spawning")) is not None:
            # SIGALRM has its default action, which kills the process.
            signal.setitimer(signal.ITIMER_REAL, max(float(argument), 0.001) / 1000)
        spawned = await spawn(self, *arguments, **named)
        if take(directory, "kill-spawned") is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return spawned

    module.KeeperClient.spawn = patched


main()
