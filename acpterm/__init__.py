"""acpterm: real terminals for agents that speak the Agent Client Protocol (ACP).

- `keeper`: a small process that starts programs, and owns their PTYs and output;
- worker: `host` serves the agents and the user, with terminals from `terminal`;
- `client`: connects to the daemon (keeper and worker) for commands and editors;
- `api`: the Python API, whose names this module exports (docs/python.md);
- `cli`: the commands, a thin layer on `client`;
- the glossary of all terms is in `docs/HACKING.md`.

The names of the API are imported when they are used: a command must not pay for them.
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
    """Import the module of the API that has `name`."""
    from importlib import import_module  # noqa: PLC0415  only needed for the API

    if (module := _EXPORTS.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"acpterm.api.{module}"), name)
    return value
