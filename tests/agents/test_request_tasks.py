"""The tasks that handle an agent's requests in `prompt`."""

from unittest.mock import Mock

import trio
from msgspec import Raw

from acpterm.agents.prompt.acp_client import RequestTasks
from acpterm.jsonrpc import REQUEST_CANCELLED, RequestReceived


async def test_request_can_be_cancelled_before_its_task_has_started():
    agent = Mock()

    async def handler(_request):
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        tasks = RequestTasks(agent, nursery)
        tasks.start(RequestReceived(7, "fs/read_text_file", Raw(b"{}")), handler)
        assert tasks.cancel(7)
    ((id_, error),) = (call.args for call in agent.respond.call_args_list)
    assert (id_, error.code) == (7, REQUEST_CANCELLED)
