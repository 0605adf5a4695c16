"""Responses to lines from the client that are not messages.

The transport of the SDK passes on an exception instead of such a line, and the SDK only logs the
exception: a client whose request is invalid would wait for a response. The response has the id in
the line, or null if the line has no id that can be read. Empty lines get no response.
"""

import json
import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

_ID: Final = re.compile(r'\s*\{[^\[\]{}]*?"id"\s*:\s*(\d{1,18}|"[^"\\]*")')
"""Finds the id in a line that is not valid JSON, if it comes before any inner object or array."""

_BAD_ID: Final = types.JSONRPCError(
    jsonrpc="2.0",
    id=None,
    error=types.ErrorData(
        code=types.INVALID_REQUEST, message="the id of a request must be a string or an integer"
    ),
)


@asynccontextmanager
async def answering_invalid(
    received: AsyncIterable[SessionMessage | Exception],
    send: Callable[[SessionMessage], Awaitable[None]],
) -> AsyncIterator[MemoryObjectReceiveStream[SessionMessage | Exception]]:
    """Yield a stream of the messages in `received`; respond to invalid lines with `send`."""
    passed, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    async with anyio.create_task_group() as tasks, messages:
        tasks.start_soon(_pass, received, send, passed)
        yield messages
        tasks.cancel_scope.cancel()


async def _pass(
    received: AsyncIterable[SessionMessage | Exception],
    send: Callable[[SessionMessage], Awaitable[None]],
    passed: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    """Pass messages on to `passed`, and respond to invalid lines with `send`.

    Return when `received` has ended, or when the reader of `passed` has closed its stream.
    """
    async with passed:
        try:
            async for item in received:
                if isinstance(item, SessionMessage) and _lacks_id(item):
                    await send(SessionMessage(_BAD_ID))
                elif not isinstance(item, ValidationError):
                    await passed.send(item)
                elif (answer := _answer(item)) is not None:
                    await send(SessionMessage(answer))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return


def _lacks_id(item: SessionMessage) -> bool:
    """Return whether a message is a request with an invalid id, such as 1.5.

    The SDK drops the id, and takes the request for a notification.
    """
    message = item.message
    return isinstance(message, types.JSONRPCNotification) and not message.method.startswith(
        "notifications/"
    )


def _answer(error: ValidationError) -> types.JSONRPCError | None:
    """Return the response to the invalid line in `error`; None if the line is empty."""
    detail = error.errors(include_url=False)[0]
    line = detail["input"]
    if detail["type"] != "json_invalid":
        problem = types.ErrorData(code=types.INVALID_REQUEST, message="not a JSON-RPC message")
        return types.JSONRPCError(jsonrpc="2.0", id=_id(line), error=problem)
    if not line.strip():
        return None
    try:
        identifier = _id(json.loads(line))
    except (ValueError, RecursionError):
        found = _ID.match(line)
        identifier = None if found is None else json.loads(found[1])
    problem = types.ErrorData(code=types.PARSE_ERROR, message=detail["msg"])
    return types.JSONRPCError(jsonrpc="2.0", id=identifier, error=problem)


def _id(message: Any) -> str | int | None:
    """Return the id of an invalid message; None if it has no valid id."""
    identifier = message.get("id") if isinstance(message, dict) else None
    is_id = isinstance(identifier, str | int) and not isinstance(identifier, bool)
    if not is_id or (isinstance(identifier, str) and not identifier.isprintable()):
        return None
    return identifier
