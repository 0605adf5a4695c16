"""The table of what a host answers the person: each method, its params, and its handler."""

from acpterm.acp import Empty, InitializeRequest
from acpterm.acp.user_api import (
    AttachRequest,
    EventsRequest,
    ExportRequest,
    GetRequest,
    ListRequest,
    NamedRequest,
    Nothing,
    PersonCreateRequest,
    PersonReadRequest,
    PersonResizeRequest,
    PersonSignalRequest,
    PersonWriteRequest,
    RenameRequest,
    SubscribeRequest,
    WindowRequest,
)
from acpterm.acp.user_output import FollowRequest
from acpterm.host.server.dispatch import Method, Methods
from acpterm.host.user import daemon_methods, launches, terminal_methods
from acpterm.host.user.subscribe import subscriptions

PERSON = Methods(
    {
        "initialize": Method(InitializeRequest, daemon_methods.initialize),
        "_acpterm/terminal/list": Method(ListRequest, terminal_methods.list_all),
        "_acpterm/terminal/get": Method(GetRequest, terminal_methods.get),
        "_acpterm/terminal/create": Method(PersonCreateRequest, terminal_methods.create),
        "_acpterm/terminal/read": Method(PersonReadRequest, terminal_methods.read),
        "_acpterm/terminal/output": Method(NamedRequest, terminal_methods.output),
        "_acpterm/terminal/follow": Method(FollowRequest, terminal_methods.follow),
        "_acpterm/terminal/write": Method(
            PersonWriteRequest, terminal_methods.write, acts_first=True
        ),
        "_acpterm/terminal/resize": Method(PersonResizeRequest, terminal_methods.resize),
        "_acpterm/terminal/rename": Method(RenameRequest, terminal_methods.rename),
        "_acpterm/terminal/inspect": Method(NamedRequest, launches.inspect),
        "_acpterm/terminal/restart": Method(NamedRequest, launches.restart),
        "_acpterm/terminal/signal": Method(PersonSignalRequest, terminal_methods.signal),
        "_acpterm/terminal/wait": Method(NamedRequest, terminal_methods.wait),
        "_acpterm/terminal/kill": Method(
            NamedRequest, terminal_methods.kill, result_at_once=Empty()
        ),
        "_acpterm/terminal/release": Method(
            NamedRequest, terminal_methods.release, result_at_once=Empty()
        ),
        "_acpterm/terminal/promote": Method(NamedRequest, terminal_methods.promote),
        "_acpterm/terminal/screen": Method(NamedRequest, terminal_methods.screen),
        "_acpterm/terminal/attach": Method(AttachRequest, terminal_methods.attach),
        "_acpterm/terminal/window": Method(WindowRequest, terminal_methods.window),
        "_acpterm/terminal/export": Method(ExportRequest, terminal_methods.export),
        "_acpterm/session/list": Method(Nothing, daemon_methods.sessions),
        "_acpterm/session/subscribe": Method(SubscribeRequest, subscriptions.subscribe),
        "_acpterm/events": Method(EventsRequest, daemon_methods.events),
        "_acpterm/status": Method(Nothing, daemon_methods.status),
        "_acpterm/restart": Method(Nothing, daemon_methods.restart),
        "_acpterm/shutdown": Method(Nothing, daemon_methods.shutdown),
    },
    {},
)
