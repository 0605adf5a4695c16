"""The dispatch table of the methods that agents call: each with its params and its handler."""

from acpterm.acp.agent_api import (
    EVENTS,
    AgentEventsRequest,
    AgentGetRequest,
    AgentListRequest,
    CheckRequest,
    ReadRequest,
    ResizeRequest,
    SetSessionRequest,
    SignalRequest,
    WriteRequest,
)
from acpterm.acp.approvals import ANSWER, DECLINE, SESSION_OPEN, AnswerRequest, DeclineRequest
from acpterm.acp.initialize import InitializeRequest
from acpterm.acp.session import CancelNotification, SessionNotification
from acpterm.acp.terminal import CreateTerminalRequest, Empty, TerminalRequest
from acpterm.host import verbs
from acpterm.host.agent import approvals, read_methods, session_methods, terminal_methods
from acpterm.host.server.dispatch import Method, MethodTable

REQUESTS: dict[str, Method] = {
    "initialize": Method(InitializeRequest, session_methods.initialize),
    "terminal/create": Method(
        CreateTerminalRequest, terminal_methods.create, takes_id=True, acts_first=True
    ),
    "terminal/output": Method(TerminalRequest, read_methods.output),
    "terminal/wait_for_exit": Method(TerminalRequest, read_methods.wait_for_exit),
    "terminal/kill": Method(TerminalRequest, verbs.kill, result_at_once=Empty()),
    "terminal/release": Method(TerminalRequest, verbs.release, result_at_once=Empty()),
    "_acpterm/terminal/list": Method(AgentListRequest, read_methods.list_own),
    "_acpterm/terminal/get": Method(AgentGetRequest, verbs.get),
    "_acpterm/terminal/read": Method(ReadRequest, verbs.read),
    "_acpterm/terminal/screen": Method(TerminalRequest, verbs.screen),
    "_acpterm/terminal/write": Method(WriteRequest, verbs.write, acts_first=True),
    "_acpterm/terminal/resize": Method(ResizeRequest, verbs.resize),
    "_acpterm/terminal/signal": Method(SignalRequest, verbs.signal),
    "_acpterm/terminal/promote": Method(TerminalRequest, verbs.promote),
    "_acpterm/command/check": Method(
        CheckRequest, terminal_methods.check, takes_id=True, acts_first=True
    ),
    "_acpterm/session/set": Method(SetSessionRequest, session_methods.set_session),
    EVENTS: Method(AgentEventsRequest, read_methods.events, acts_first=True),
    SESSION_OPEN: Method(SetSessionRequest, session_methods.open_session),
    ANSWER: Method(AnswerRequest, approvals.answer),
    DECLINE: Method(DeclineRequest, approvals.decline),
}

NOTIFICATIONS: dict[str, Method] = {
    "session/update": Method(SessionNotification, session_methods.update),
    "session/cancel": Method(CancelNotification, session_methods.cancel),
}

AGENT_METHODS = MethodTable(REQUESTS, NOTIFICATIONS)
