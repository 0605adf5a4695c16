"""The user API and ACP over a WebSocket."""

import pytest

from acpterm.jsonrpc import RpcError
from acpterm.web.json_rpc_websockets import PAGE_METHODS
from tests.support.agent import Agent, agent_of, agent_on
from tests.support.asking import asking_settings
from tests.support.cases import each_case
from tests.support.polling import poll
from tests.support.web import web_here


@pytest.fixture
async def web(tmp_path):
    async with web_here(tmp_path) as web:
        yield web


async def test_user_socket_creates_a_terminal_when_the_browser_is_logged_in(web):
    browser = await web.browser()
    async with browser.user() as user:
        await user.request("initialize", {"protocolVersion": 1})
        terminal = (await user.request("terminal/create", {"command": "echo hello"}))["terminalId"]
        await user.terminal_request("wait", terminal)
        output = await user.terminal_request("output", terminal)
    assert output["text"] == "hello\n"


async def test_user_socket_works_with_the_bearer_token_without_an_origin(web):
    async with web.api_client().user() as user:
        assert await user.list() == []


async def test_user_socket_streams_output_live(web):
    async with (await web.browser()).user() as user:
        created = await user.request("terminal/create", {"command": "cat"})
        _, token = await user.open(
            "terminal/attach", terminalId=created["terminalId"], cols=80, rows=24
        )
        await user.until(lambda: user.by_token[token])
        await user.terminal_request("write", created["terminalId"], data="typed\n")
        await poll(lambda: len(user.by_token[token]) > 1)


@each_case("method", ["shutdown", "restart", "approver", "web/open"])
async def test_user_socket_does_not_have_methods_that_a_page_must_not_call(web, method):
    async with (await web.browser()).user() as user:
        with pytest.raises(RpcError, match="there is no method"):
            await user.request(method, {})


def test_methods_that_a_page_must_not_call_are_the_only_ones_left_out():
    left_out = {"_acpterm/shutdown", "_acpterm/restart", "_acpterm/approver", "_acpterm/web/open"}
    left_out.add("_acpterm/token/create")
    assert not left_out & PAGE_METHODS.requests.keys()
    assert "_acpterm/approval/answer" in PAGE_METHODS.requests


async def test_answer_on_the_page_is_recorded_as_the_pages(tmp_path):
    async with web_here(tmp_path, **asking_settings()) as web, agent_of(web.host) as agent:
        browser = await web.browser()
        async with browser.user() as user:
            _, token = await user.open("approval/subscribe")
            params = {"sessionId": agent.session, "command": "echo approved"}
            create = await agent.start("terminal/create", params)
            asked = await user.until(lambda: user.by_token[token])
            question = asked[0]["params"]["approval"]["approvalId"]
            await user.request("approval/answer", {"approvalId": question, "decision": "allow"})
            withdrawn = await user.until(lambda: user.by_token[token][1:])
        assert withdrawn[0]["params"]["answer"]["by"] == "page"
        assert await agent.result(create)


async def test_connection_of_the_page_counts_until_it_is_closed(web):
    async with (await web.browser()).user() as user:
        assert (await user.request("status"))["users"] == 1
    await poll(lambda: web.host.daemon.users == 0)


async def test_agent_runs_a_command_over_a_websocket(web):
    client = web.api_client()
    async with client.websocket("/acp") as websocket:
        assert len(websocket.headers["acp-connection-id"]) == 36
        async with agent_on(websocket) as agent:
            output, status = await agent.run("echo over a websocket")
    assert (output, status["exitCode"]) == ("over a websocket\n", 0)


async def test_each_agents_websocket_has_an_id_of_its_own(web):
    client = web.api_client()
    ids = set()
    for _ in range(2):
        async with client.websocket("/acp") as websocket:
            ids.add(websocket.headers["acp-connection-id"])
    assert len(ids) == 2


async def test_closed_websocket_releases_the_agents_terminals(web):
    async with web.api_client().websocket("/acp") as websocket, agent_on(websocket) as agent:
        assert isinstance(agent, Agent)
        await agent.create("sleep 1000")
        assert web.host.daemon.agents == 1
    await poll(lambda: web.host.daemon.agents == 0 and not web.host.terminals.registry.is_busy)
