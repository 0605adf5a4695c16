"""The files of the page, and the headers of responses."""

import gzip

import pytest
from starlette.routing import Mount

from acpterm.web.pages import page_routes
from tests.support.cases import each_case
from tests.support.web import web_here


@pytest.fixture
async def web(tmp_path):
    directory = tmp_path / "page"
    (directory / "js").mkdir(parents=True)
    (directory / "index.html").write_text("<!doctype html><title>page</title>")
    (directory / "js" / "main.js").write_text("export const x = 1;\n" * 1000)
    (tmp_path / "secret").write_text("secret")
    async with web_here(tmp_path, page=str(directory)) as web:
        yield web


def host(web):
    return [("Host", web.stranger().host)]


async def test_page_is_served_without_an_access(web):
    for path in ("/", "/login", "/share"):
        reply = await web.stranger().request(path, headers=host(web))
        assert (reply.status, reply.text) == (200, "<!doctype html><title>page</title>")
        assert reply.headers["content-type"] == "text/html; charset=utf-8"


async def test_files_are_compressed_and_checked_for_changes(web):
    headers = [*host(web), ("Accept-Encoding", "gzip")]
    reply = await web.stranger().request("/assets/js/main.js", headers=headers)
    assert reply.headers["content-encoding"] == "gzip"
    assert gzip.decompress(reply.body) == b"export const x = 1;\n" * 1000
    assert reply.headers["content-type"].startswith("text/javascript")
    assert reply.headers["cache-control"] == "no-cache"
    headers = [*host(web), ("If-None-Match", reply.headers["etag"])]
    reply = await web.stranger().request("/assets/js/main.js", headers=headers)
    assert (reply.status, reply.body) == (304, b"")


@each_case(
    "path", ["/assets/../secret", "/assets/%2e%2e/secret", "/assets/js/..%2f..%2f..%2fsecret"]
)
async def test_no_file_outside_of_the_page_is_served(web, path):
    reply = await web.stranger().request(path, headers=host(web))
    assert (reply.status, b"secret" in reply.body) == (404, False)


@each_case("path", ["/", "/assets/js/main.js", "/nothing", "/?x", "/logout"])
async def test_each_response_has_the_headers_that_protect_the_page(web, path):
    reply = await web.stranger().request(path, headers=host(web))
    policy = dict(
        part.split(" ", 1) for part in reply.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert "http" not in reply.headers["content-security-policy"]
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["referrer-policy"] == "no-referrer"
    assert not any(name.startswith("access-control-") for name in reply.headers)
    assert reply.headers["cache-control"] in ("no-store", "no-cache")
    assert "server" not in reply.headers


def test_assets_of_the_package_are_mounted():
    assert any(isinstance(route, Mount) and route.path == "/assets" for route in page_routes())
