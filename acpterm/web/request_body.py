"""Reads the body of an HTTP request, with limits of size and time."""

from contextlib import aclosing
from typing import Final

import trio
from starlette.requests import ClientDisconnect, Request

_TIMEOUT_S: Final = 10.0


class BodyError(Exception):
    """The body of a request is too large, is not complete, or did not arrive in time."""


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body of a request. Raises `BodyError` if it is too large, late or incomplete."""
    body = b""
    with trio.move_on_after(_TIMEOUT_S) as timeout:
        try:
            async with aclosing(request.stream()) as parts:
                async for part in parts:
                    body += part
                    if len(body) > max_bytes:
                        raise BodyError(f"the body has more than {max_bytes} bytes")
        except ClientDisconnect as error:
            raise BodyError("the body is not complete") from error
    if timeout.cancelled_caught:
        raise BodyError(f"the body did not arrive in {_TIMEOUT_S:g} s")
    return body
