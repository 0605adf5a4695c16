"""acpterm: real terminals for agents that speak the Agent Client Protocol (ACP).

The daemon consists of two processes:

- `keeper`: a small process that starts programs, and owns their PTYs and output;
- the worker: `host` serves agents and the user, with terminals from `terminal`; `web` is its HTTP
  server, `policy` decides what agents may run, `audit` logs that, `providers` run programs in
  sandboxes and on other hosts, and `pty` has PTYs and processes.

What connects to the daemon:

- `agents`: editors, agents and prompts; `commands`, `setup`: the user's commands; `cli`: the
  command line, a thin layer on these; `link`: connections to the daemon;
- `mcp`: a server with terminals as tools for MCP clients;
- `api`: the Python API, whose names this module exports (docs/python.md).

What both use:

- `acp`, `jsonrpc`: messages; `config`: settings; `runtime`: stdio, logs, signals, threads;
- `shell`: shells that run one command after another; `keys`: names of keys, and their bytes.

`docs/internals/HACKING.md` has a glossary of all terms, and a table of what to edit for each kind
of change.

The names of the API are imported only when they are used, so that commands start fast.
"""

# As `typing.TYPE_CHECKING`; the keeper, which has to be small, does without `typing`.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Final

    from acpterm.api.client import Client
    from acpterm.api.connect import connect
    from acpterm.api.errors import (
        AcptermError,
        ClosedError,
        CommandRefused,
        DaemonError,
        RequestError,
    )
    from acpterm.api.results import (
        CommandCheck,
        CommandPart,
        Completed,
        Exit,
        Output,
        RawOutput,
        RetainedOutput,
        Screen,
        Waited,
    )
    from acpterm.api.service.service import TerminalService
    from acpterm.api.service.types import (
        BadExitCode,
        ExecuteCommandOptions,
        ExecuteCommandResult,
        InteractiveTerminalOutput,
        OutputWaitOptions,
        SessionOutput,
        SessionStatus,
        Success,
        TerminalProvider,
        Timeout,
        UnknownError,
    )
    from acpterm.api.shell import Shell
    from acpterm.api.shell_process import ShellBusyError, ShellError
    from acpterm.api.terminal import Terminal

__version__ = "0.1.0"

__all__ = [
    "AcptermError",
    "BadExitCode",
    "Client",
    "ClosedError",
    "CommandCheck",
    "CommandPart",
    "CommandRefused",
    "Completed",
    "DaemonError",
    "ExecuteCommandOptions",
    "ExecuteCommandResult",
    "Exit",
    "InteractiveTerminalOutput",
    "Output",
    "OutputWaitOptions",
    "RawOutput",
    "RequestError",
    "RetainedOutput",
    "Screen",
    "SessionOutput",
    "SessionStatus",
    "Shell",
    "ShellBusyError",
    "ShellError",
    "Success",
    "Terminal",
    "TerminalProvider",
    "TerminalService",
    "Timeout",
    "UnknownError",
    "Waited",
    "__version__",
    "connect",
]

_MODULES: "Final" = {
    "client": ("Client",),
    "connect": ("connect",),
    "errors": ("AcptermError", "ClosedError", "CommandRefused", "DaemonError", "RequestError"),
    "results": (
        *("CommandCheck", "CommandPart", "Completed", "Exit", "Output", "RawOutput"),
        *("RetainedOutput", "Screen", "Waited"),
    ),
    "service.service": ("TerminalService",),
    "service.types": (
        *("BadExitCode", "ExecuteCommandOptions", "ExecuteCommandResult"),
        *("InteractiveTerminalOutput", "OutputWaitOptions", "SessionOutput", "SessionStatus"),
        *("Success", "TerminalProvider", "Timeout", "UnknownError"),
    ),
    "shell": ("Shell",),
    "shell_process": ("ShellBusyError", "ShellError"),
    "terminal": ("Terminal",),
}
_EXPORTS: "Final" = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> "Any":
    """Import the API's module that defines `name`, and return the value of `name`.

    Raises `AttributeError` if the API has no such name.
    """
    from importlib import import_module  # noqa: PLC0415  only needed for the API

    if (module := _EXPORTS.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"acpterm.api.{module}"), name)
    return value
