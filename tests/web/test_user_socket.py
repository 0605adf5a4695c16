"""The user API over a WebSocket."""

import pytest

from tests.support.web import RefusedError, web_daemon


async def test_user_socket_creates_a_terminal_when_the_browser_is_logged_in(tmp_path):
    async with web_daemon(tmp_path) as web:
        browser = await web.browser()
        async with browser.user() as user:
            await user.request("initialize", {"protocolVersion": 1})
            created = await user.request("terminal/create", {"command": "echo hello"})
            terminal = created["terminalId"]
            await user.terminal_request("wait", terminal)
            output = await user.terminal_request("output", terminal)
    assert output["text"] == "hello\n"


async def test_user_socket_works_with_the_bearer_token_without_an_origin(tmp_path):
    async with web_daemon(tmp_path) as web, web.api_client().user() as user:
        assert await user.list() == []


async def test_user_socket_refuses_a_cookie_without_its_key(tmp_path):
    async with web_daemon(tmp_path) as web:
        browser = await web.browser()
        browser.key = web.stranger().key
        with pytest.raises(RefusedError) as refused:
            async with browser.websocket("/user"):
                pass
    assert refused.value.status == 401
