"""The files of the page, and the headers that every response has (`http_connection`).

The page holds no secret, so a browser may load it without a login. The page loads nothing from
other hosts, and no other site may show it in a frame, where a user could be made to click on it.
"""

import os
from typing import Final

from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

DIRECTORY: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page")
# Higher levels take several times as long, and save only a few percent more.
_GZIP_LEVEL: Final = 5

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; font-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def page_routes(directory: str = DIRECTORY) -> list[BaseRoute]:
    """Return the routes of the page, which itself reads the secrets in its links."""
    files = StaticFiles(directory=directory, check_dir=False)

    async def index(request: Request) -> FileResponse:
        del request
        return FileResponse(os.path.join(directory, "index.html"))

    paths = ("/", "/login", "/share")
    return [
        *(Route(path, index, methods=["GET"]) for path in paths),
        Mount("/assets", GZipMiddleware(files, compresslevel=_GZIP_LEVEL)),
    ]
