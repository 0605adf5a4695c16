"""acpterm: real terminals for agents that speak the Agent Client Protocol (ACP).

- `keeper`: a small process that starts programs, and owns their PTYs and output;
- worker: `host` serves the agents and the user, with terminals from `terminal`;
- `client`: connects to the daemon (keeper and worker) for commands and editors;
- `api`: the Python API, whose names this module exports (docs/python.md);
- `cli`: the commands, a thin layer on `client`;
- the glossary of all terms is in `docs/HACKING.md`.

The names of the API are imported when they are used: a command must not pay for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from acpterm.api.client import Client, connect
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
        Exit,
        Output,
        RawOutput,
        RetainedOutput,
        Screen,
        Waited,
    )
    "shell": ("Completed", "Shell", "ShellBusyError", "ShellError"),
