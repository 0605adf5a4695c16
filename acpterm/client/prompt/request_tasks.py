"""Runs handlers of an agent's requests, each in a task of its own, since handlers may wait."""

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

import trio

from acpterm.client.endpoint import Endpoint
from acpterm.jsonrpc import INTERNAL_ERROR, REQUEST_CANCELLED, Id, RequestReceived, RpcError

PENDING_MAX: Final = 1000

Handler: TypeAlias = Callable[[RequestReceived], Coroutine[Any, Any, Any]]


class RequestTasks:
    """Runs handlers of the requests of `agent`, as tasks in `nursery`.

    At most `PENDING_MAX` requests are pending; further requests get an error response. If a handler
    raises an error, only its own request fails.
    """

    def __init__(self, agent: Endpoint, nursery: trio.Nursery) -> None:
        self._agent = agent
        self._nursery = nursery
        self._pending = 0
        self._scopes: dict[Id, trio.CancelScope] = {}

    def start(self, request: RequestReceived, handler: Handler) -> None:
        """Run `handler` in a task; respond to `request` with the handler's result or error."""
        if self._pending >= PENDING_MAX:
            message = f"{PENDING_MAX} requests are pending: wait for some of them"
            self._agent.fail(request.id, RpcError(INTERNAL_ERROR, message))
        else:
            self._pending += 1
            # The request can be cancelled from now on, even before its task starts.
            scope = trio.CancelScope()
            if request.id is not None:
                self._scopes[request.id] = scope
            self._nursery.start_soon(self._run, request, handler, scope)

    def cancel(self, id_: Id) -> bool:
        """Cancel the handler of the request `id_`, and respond to the request with an error.

        Return False if no such request is pending.
        """
        scope = self._scopes.get(id_)
        if scope is not None:
            scope.cancel()
        return scope is not None

    async def _run(
        self, request: RequestReceived, handler: Handler, scope: trio.CancelScope
    ) -> None:
        with scope:
            try:
                self._agent.respond(request.id, await handler(request))
            except RpcError as error:
                self._agent.fail(request.id, error)
            except Exception as error:  # noqa: BLE001  only this request must fail
                message = f"{request.method}: internal error: {type(error).__name__}: {error}"
                self._agent.fail(request.id, RpcError(INTERNAL_ERROR, message))
            finally:
                self._pending -= 1
                self._scopes.pop(request.id, None)
        if scope.cancelled_caught:
            self._agent.fail(request.id, RpcError(REQUEST_CANCELLED, "cancelled, as was asked"))
