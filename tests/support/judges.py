"""A judge for tests: what a command says about itself decides.

A command that contains `ask-first` is asked about, `wait-first` too, but even if nobody is there
to ask, and `never-run` is refused. The prefix is the first word, unless the command has a `;`.
This module is also the `sitecustomize` of daemons: see `judging`.
"""

import functools
import importlib.util
import os
import sys
from pathlib import Path

_VARIABLE = "ACPTERM_TEST_JUDGE"


def judge(command):
    from acpterm.host.judge import Verdict

    line = " ".join([command.command, *(command.args or ())])
    if "never-run" in line:
        return Verdict("deny", "dangerous", "it says so")
    prefix = None if ";" in line else tuple(line.split()[:1])
    timeout_s = 0.5 if "soon" in line else None
    if "ask-first" in line:
        return Verdict("ask", "dangerous", "it says so", prefix, timeout_s)
    if "wait-first" in line:
        return Verdict("ask", "unknown", "it says so", prefix, timeout_s, "wait")
    return Verdict("allow", "safe", "")


def judging(directory, **more):
    """Return variables of the environment with which daemons use `judge`."""
    hook = Path(directory) / "judge-hook"
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(Path(__file__).read_text())
    path = os.pathsep.join(filter(None, [str(hook), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, _VARIABLE: "1", **more}


class _Finder:
    """Passes `judge` to each `open_host` of this process."""

    def find_spec(self, name, *_):
        if name != "acpterm.host.open_host":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            module.open_host = functools.partial(module.open_host, judge=judge)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get(_VARIABLE) and __name__ == "sitecustomize":
    sys.meta_path.insert(0, _Finder())
