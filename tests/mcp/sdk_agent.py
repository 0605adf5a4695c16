"""An ACP agent on the official SDK that uses its MCP servers with the official client.

A prompt's text is a JSON list of tool calls, each a list of a tool's name and its arguments. The
agent sends each result as a message: the list of its blocks of text. The tools are those of the
first MCP server; the prompt `servers` is answered with the names of all servers.

The servers of a session run until the session is closed. `--early` calls `terminal_start` before it
responds to `session/new`.
"""

import asyncio
import json
import sys

import mcp
from acp import (
    PROTOCOL_VERSION,
    Agent,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    run_agent,
    update_agent_message_text,
)
from acp.schema import (
    AgentCapabilities,
    CloseSessionResponse,
    Implementation,
    SessionCapabilities,
    SessionCloseCapabilities,
)
from mcp.client.stdio import StdioServerParameters


class Session:
    """The MCP servers of one session; one task holds the client, as the SDK requires."""

    def __init__(self, servers):
        self.servers = servers
        self._calls = asyncio.Queue()
        self.task = asyncio.create_task(self._run())

    async def _run(self):
        first = self.servers[0]
        env = {one.name: one.value for one in first.env}
        server = StdioServerParameters(command=first.command, args=first.args, env=env)
        async with mcp.Client(server) as client:
            while (call := await self._calls.get()) is not None:
                name, arguments, answer = call
                result = await client.call_tool(name, arguments)
                answer.set_result([block.text for block in result.content])

    async def call(self, name, arguments):
        answer = asyncio.get_running_loop().create_future()
        await self._calls.put((name, arguments, answer))
        return await answer

    async def close(self):
        await self._calls.put(None)
        await self.task


class McpAgent(Agent):
    """Answers prompts with the results of tools."""

    def __init__(self):
        self.sessions = {}

    def on_connect(self, conn):
        self.client = conn

    async def initialize(self, protocol_version, **_):
        capabilities = SessionCapabilities(close=SessionCloseCapabilities())
        return InitializeResponse(
            protocol_version=min(protocol_version, PROTOCOL_VERSION),
            agent_capabilities=AgentCapabilities(session_capabilities=capabilities),
            agent_info=Implementation(name="mcp-agent", version="1"),
        )

    async def new_session(self, mcp_servers=None, **_):
        identifier = f"session-{len(self.sessions) + 1}"
        session = self.sessions[identifier] = Session(mcp_servers)
        if "--early" in sys.argv:
            call = asyncio.create_task(session.call("terminal_start", {"command": "exec cat"}))
            await asyncio.sleep(1)
            assert not call.done(), call.result()
        return NewSessionResponse(session_id=identifier)

    async def close_session(self, session_id, **_):
        await self.sessions.pop(session_id).close()
        return CloseSessionResponse()

    async def prompt(self, session_id, prompt, **_):
        session = self.sessions[session_id]
        text = prompt[0].text
        if text == "servers":
            await self.say(session_id, [server.name for server in session.servers])
        else:
            for name, arguments in json.loads(text):
                await self.say(session_id, await session.call(name, arguments))
        return PromptResponse(stop_reason="end_turn")

    async def say(self, session_id, value):
        update = update_agent_message_text(json.dumps(value))
        await self.client.session_update(session_id, update)


if __name__ == "__main__":
    asyncio.run(run_agent(McpAgent(), use_unstable_protocol=True))
