"""`POST /login`, `/logout` and `/access`: log a browser in or out, or describe a browser's access.

The only secret in a response is the cookie, which scripts of the page cannot read.
"""

from typing import Final

import msgspec
import structlog
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from acpterm.host.audit_trail import AuditTrail
from acpterm.web.access import KEY_LENGTHS, AccessStore, Grant
from acpterm.web.access_file import AccessFileError
from acpterm.web.endpoint import HttpEndpoint
from acpterm.web.guard import access_of
from acpterm.web.request_body import BodyError, read_body

_BODY_MAX: Final = 4096

_log = structlog.get_logger("acpterm.web")


class _LoginRequest(Struct):
    token: str
    key: str


class Logins:
    def __init__(self, endpoint: HttpEndpoint, access: AccessStore, trail: AuditTrail) -> None:
        self._trail: Final = trail
        self._endpoint: Final = endpoint
        self._access: Final = access

    async def log_in(self, request: Request) -> Response:
        """Exchange the token of a link or share, and the page's key, for a cookie."""
        origin = request.headers.get("origin")
        if origin is None:
            return _refusal(403, "a login needs an Origin: use a browser, or the bearer token")
        try:
            asked = msgspec.json.decode(await read_body(request, _BODY_MAX), type=_LoginRequest)
        except (msgspec.DecodeError, UnicodeDecodeError, BodyError):
            return _refusal(400, 'the body must be {"token": …, "key": …}')
        if len(asked.key) not in KEY_LENGTHS:
            return _refusal(
                400, f"key must have {KEY_LENGTHS.start} to {KEY_LENGTHS.stop - 1} characters"
            )
        try:
            login = self._access.exchange(asked.token, asked.key)
        except AccessFileError as error:
            _log.error("a browser cannot log in", why=str(error))
            return _refusal(503, "the login cannot be stored: see the log of the daemon")
        if login is None:
            return _refusal(
                403,
                "the link has ended: it was used, has expired or was revoked, or its terminal was "
                "removed; acpterm open prints another link, and acpterm share one to a terminal",
            )
        self._record("login", login.access)
        response = JSONResponse(_describe(login.access))
        response.set_cookie(
            self._cookie(login.access),
            login.cookie,
            max_age=int(login.lifetime_s),
            path="/",
            secure=origin.startswith("https://"),
            httponly=True,
            samesite="strict",
        )
        return response

    async def log_out(self, request: Request) -> Response:
        access = access_of(request.scope)
        self._record("logout", access)
        response = Response(status_code=204)
        try:
            self._access.log_out(access)
        except AccessFileError as error:
            _log.error("a logout cannot be stored: it may be undone", why=str(error))
            response = _refusal(
                503, "the login has ended, but may be valid again after acpterm restart"
            )
        response.delete_cookie(self._cookie(access), path="/", httponly=True, samesite="strict")
        return response

    async def describe(self, request: Request) -> Response:
        return JSONResponse(_describe(access_of(request.scope)))

    def _record(self, event: str, access: Grant) -> None:
        share = None if access.share is None else access.share.id
        self._trail.record(event, by="user" if share is None else "share", share=share)

    def _cookie(self, access: Grant) -> str:
        return self._endpoint.cookie if access.share is None else self._endpoint.share_cookie


def _describe(access: Grant) -> dict[str, object]:
    if access.share is None:
        return {"access": "user"}
    return {
        "access": "share",
        "terminalId": access.share.terminal_id,
        "write": access.share.write,
        "endsAt": round(1000 * access.share.ends_at),
    }


def _refusal(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status)
