"""The table of what a host answers the person: each method, its params, and its handler."""

from acpterm.acp import InitializeRequest
from acpterm.acp.following import FollowRequest
from acpterm.acp.person import (
    AttachRequest,
    EventsRequest,
    ExportRequest,
    ListRequest,
    NamedRequest,
    Nothing,
    PersonCreateRequest,
    PersonReadRequest,
    PersonResizeRequest,
    PersonSignalRequest,
    PersonWriteRequest,
    SubscribeRequest,
    WindowRequest,
)
from acpterm.host import front_methods, person_methods, subscriptions
from acpterm.host.method import Method, Methods

PERSON = Methods(
    {
        "initialize": Method(InitializeRequest, front_methods.initialize),
        "_acpterm/terminal/list": Method(ListRequest, person_methods.list_all),
        "_acpterm/terminal/get": Method(NamedRequest, person_methods.get),
        "_acpterm/terminal/create": Method(PersonCreateRequest, person_methods.create),
        "_acpterm/terminal/read": Method(PersonReadRequest, person_methods.read),
        "_acpterm/terminal/output": Method(NamedRequest, person_methods.output),
        "_acpterm/terminal/follow": Method(FollowRequest, person_methods.follow),
        "_acpterm/terminal/write": Method(PersonWriteRequest, person_methods.write),
        "_acpterm/terminal/resize": Method(PersonResizeRequest, person_methods.resize),
        "_acpterm/terminal/signal": Method(PersonSignalRequest, person_methods.signal),
        "_acpterm/terminal/wait": Method(NamedRequest, person_methods.wait),
        "_acpterm/terminal/kill": Method(NamedRequest, person_methods.kill),
        "_acpterm/terminal/release": Method(NamedRequest, person_methods.release),
        "_acpterm/terminal/promote": Method(NamedRequest, person_methods.promote),
        "_acpterm/terminal/screen": Method(NamedRequest, person_methods.screen),
        "_acpterm/terminal/attach": Method(AttachRequest, person_methods.attach),
        "_acpterm/terminal/window": Method(WindowRequest, person_methods.window),
        "_acpterm/terminal/export": Method(ExportRequest, person_methods.export),
        "_acpterm/session/list": Method(Nothing, front_methods.sessions),
        "_acpterm/session/subscribe": Method(SubscribeRequest, subscriptions.subscribe),
        "_acpterm/events": Method(EventsRequest, front_methods.events),
        "_acpterm/status": Method(Nothing, front_methods.status),
        "_acpterm/shutdown": Method(Nothing, front_methods.shutdown),
    },
    {},
)
