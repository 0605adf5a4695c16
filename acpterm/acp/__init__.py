"""The wire types of ACP v1, and of acpterm's own ``_acpterm/…`` methods.

A module is imported when one of its names is first used: a command that needs three types does not
wait for all of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from acpterm.acp.agent import (
        AgentCapabilities,
        AuthMethod,
        InitializeResponse,
        NewSessionResponse,
        PermissionOption,
        PromptResponse,
        ReadTextFileRequest,
        RequestPermissionRequest,
        SessionCapabilities,
        WriteTextFileRequest,
    )
    from acpterm.acp.agent_api import (
        CreateMeta,
        EndedBy,
        ExecContext,
        ExitMeta,
        Format,
        InitializeMeta,
        OutputMeta,
        ReadRequest,
        ReadResponse,
        ResizeRequest,
        ResumeMeta,
        SetSessionRequest,
        SignalRequest,
        WriteRequest,
        WriteResponse,
        own_meta,
    )
    from acpterm.acp.base import DEFAULT_ON_ERROR, SKIP_INVALID_ITEMS, MetaIn, MetaOut, Wire
    from acpterm.acp.initialize import (
        PROTOCOL_VERSION,
        ClientCapabilities,
        FileSystemCapabilities,
        Implementation,
        InitializeAnswer,
        InitializeRequest,
        host_answer,
    )
    from acpterm.acp.lenient import decode
    from acpterm.acp.session import (
        CancelNotification,
        Content,
        Diff,
        OtherUpdate,
        SessionNotification,
        Terminal,
        ToolCall,
        ToolCallContent,
        ToolCallLocation,
        ToolCallStatus,
        ToolCallUpdate,
        ToolKind,
        read_update,
    )
    from acpterm.acp.terminal import (
        CreateTerminalRequest,
        CreateTerminalResponse,
        Empty,
        EnvVariable,
        SessionId,
        TerminalExitStatus,
        TerminalId,
        TerminalOutputResponse,
        TerminalRequest,
        WaitForTerminalExitResponse,
    )

_MODULES: Final = ("base", "terminal", "initialize", "lenient", "agent_api", "session", "agent")

__all__ = [
    "DEFAULT_ON_ERROR",
    "PROTOCOL_VERSION",
    "SKIP_INVALID_ITEMS",
    "AgentCapabilities",
    "AuthMethod",
    "CancelNotification",
    "ClientCapabilities",
    "Content",
    "CreateMeta",
    "CreateTerminalRequest",
    "CreateTerminalResponse",
    "Diff",
    "Empty",
    "EndedBy",
    "EnvVariable",
    "ExecContext",
    "ExitMeta",
    "FileSystemCapabilities",
    "Format",
    "Implementation",
    "InitializeAnswer",
    "InitializeMeta",
    "InitializeRequest",
    "InitializeResponse",
    "MetaIn",
    "MetaOut",
    "NewSessionResponse",
    "OtherUpdate",
    "OutputMeta",
    "PermissionOption",
    "PromptResponse",
    "ReadRequest",
    "ReadResponse",
    "ReadTextFileRequest",
    "RequestPermissionRequest",
    "ResizeRequest",
    "ResumeMeta",
    "SessionCapabilities",
    "SessionId",
    "SessionNotification",
    "SetSessionRequest",
    "SignalRequest",
    "Terminal",
    "TerminalExitStatus",
    "TerminalId",
    "TerminalOutputResponse",
    "TerminalRequest",
    "ToolCall",
    "ToolCallContent",
    "ToolCallLocation",
    "ToolCallStatus",
    "ToolCallUpdate",
    "ToolKind",
    "WaitForTerminalExitResponse",
    "Wire",
    "WriteRequest",
    "WriteResponse",
    "WriteTextFileRequest",
    "decode",
    "host_answer",
    "own_meta",
    "read_update",
]


def __getattr__(name: str) -> Any:
    """Return a name of one of the modules, and keep it here (PEP 562)."""
    if name in __all__:
        for module in _MODULES:
            found = vars(import_module(f"{__name__}.{module}"))
            if name in found:
                globals()[name] = found[name]
                return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
