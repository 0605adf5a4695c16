"""Answers to lines of the client that are no messages.

The transport of the SDK passes an exception on in place of such a line, and the SDK only logs it: a
client that has sent a request which cannot be read would wait for its response. The id of such a
line is null in the answer if it cannot be read either. Empty lines are not answered.
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
"""The id of a message in which it comes before the first object or array."""


@asynccontextmanager
async def answering_invalid(
    received: AsyncIterable[SessionMessage | Exception],
    send: Callable[[SessionMessage], Awaitable[None]],
) -> AsyncIterator[MemoryObjectReceiveStream[SessionMessage | Exception]]:
    """Provide the messages of `received`; lines that are none are answered with `send`."""
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
    """Pass messages on until the client has closed its end, or the server its streams."""
    async with passed:
        try:
            async for item in received:
                if not isinstance(item, ValidationError):
                    await passed.send(item)
                elif (answer := _answer(item)) is not None:
                    await send(SessionMessage(answer))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return


def _answer(error: ValidationError) -> types.JSONRPCError | None:
    """Return the answer to an invalid line; None for an empty one."""
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
    """Return the id of a message that is not valid otherwise, if it has one."""
    identifier = message.get("id") if isinstance(message, dict) else None
    is_id = isinstance(identifier, str | int) and not isinstance(identifier, bool)
    if not is_id or (isinstance(identifier, str) and not identifier.isprintable()):
        return None
    return identifier
