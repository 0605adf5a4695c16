"""An editor on the official Python SDK: runs steps of an agent, and prints what it received.

    edit.py '{"agent": [command…], "steps": […], "cwd": …, "capabilities": {…}}'

All messages go through the SDK, whose models check what the proxy sends.
"""

# ruff: noqa: ARG002  the SDK calls these with parameters by name
import asyncio
import json
import os
import sys

from acp import PROTOCOL_VERSION, Client, RequestError, spawn_agent_process, text_block
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    ReadTextFileResponse,
    RequestPermissionResponse,
)


class Editor(Client):
    """A client without terminals."""

    def __init__(self):
        self.updates = []
        self.requests = []

    async def session_update(self, session_id, update, **kwargs):
        self.updates.append(update.model_dump(mode="json", by_alias=True, exclude_unset=True))

    async def request_permission(self, session_id, tool_call, options, **kwargs):
        self.requests.append(["permission", tool_call.tool_call_id])
        outcome = AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return RequestPermissionResponse(outcome=outcome)

    async def read_text_file(self, session_id, path, line=None, limit=None, **kwargs):
        self.requests.append(["read", path])
        return ReadTextFileResponse(content="what it holds")

    async def ext_method(self, method, params):
        self.requests.append([method, params])
        return {"answer": params}

    async def ext_notification(self, method, params):
        self.requests.append([method, params])


async def main():
    request = json.loads(sys.argv[1])
    editor = Editor()
    report = {}
    async with spawn_agent_process(editor, *request["agent"], env=os.environ) as (agent, process):
        capabilities = ClientCapabilities.model_validate(request["capabilities"])
        begun = await agent.initialize(PROTOCOL_VERSION, client_capabilities=capabilities)
        report["initialize"] = begun.field_meta["clientCapabilities"]
        session = await agent.new_session(request["cwd"], mcp_servers=[])
        prompt = [text_block(json.dumps(request["steps"]))]
        try:
            ended = await agent.prompt(session.session_id, prompt)
            report["ended"] = ended.stop_reason
        except RequestError as error:
            report["error"] = str(error)
        report["extension"] = await agent.ext_method("vendor/thing", {"x": [1, None]})
    report |= {"updates": editor.updates, "requests": editor.requests, "status": process.returncode}
    print(json.dumps(report))


asyncio.run(main())
