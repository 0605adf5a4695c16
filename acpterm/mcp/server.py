"""The MCP server: lists the tools of one set, and executes calls.

One server is one agent to the host. It serves one connection of one client, or over HTTP with the
protocol of 2026, a connection for each request of the clients that share a token. The first call
that needs the connection to the host opens it. What depends on the client is decided for each
request: the settings for its name, and whether it can ask its user. An error that the model can
correct is a result with `isError`. A call of a tool that does not exist is an error of the
protocol.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import msgspec
from anyio.abc import TaskGroup

from acpterm import __version__
from acpterm.api.errors import AcptermError, ClosedError
from acpterm.config import Settings
from acpterm.config.tools import ToolSettings, resolve_tools
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.mcp import types
from acpterm.mcp.call import Call, Report
from acpterm.mcp.connection import Handler, Identity, McpConnection, McpRequest, Send
from acpterm.mcp.questions import Ask, Jobs
from acpterm.mcp.resources import Resources
from acpterm.mcp.sessions import Connect, Sessions
from acpterm.mcp.shells import Shells
from acpterm.mcp.starting import ApprovalPendingError, Starts
from acpterm.mcp.states import SessionResult, call_text
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.tool_error import ToolError, shortened
from acpterm.mcp.tool_set_names import ToolSetName
from acpterm.mcp.tool_sets import INSTRUCTIONS, TOOL_SETS

_CLOSE_TIMEOUT_S: Final = 5.0
DEFAULT_AGENT: Final = "mcp"
"""The name of a client that sends no name."""


class TerminalServer:
    """Executes the calls of one agent. Its background tasks run in `group`.

    `agent` is its name to the host; by default that of the client that calls first.
    """

    def __init__(
        self,
        tools: ToolSetName,
        settings: Settings,
        connect: Connect,
        group: TaskGroup,
        shells: Shells,
        *,
        cwd: str,
        agent: str | None = None,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._identity: Final = Identity(
            "acpterm", __version__, "acpterm terminals", INSTRUCTIONS[tools]
        )
        self._on_error: Final = on_error
        self._cwd: Final = cwd
        self._agent: Final = agent
        self._shells: Final = shells
        self._resources: Final = Resources(group)
        self._tools: Final[Mapping[str, Tool[Any]]] = {tool.name: tool for tool in TOOL_SETS[tools]}
        self._settings: Final = settings
        self._connect: Final = connect
        self._group: Final = group
        self._starts: Final = Starts(group)
        self._jobs: Final = Jobs(group)
        self._sessions: Sessions | None = None

    @asynccontextmanager
    async def connection(self, send: Send) -> AsyncIterator[McpConnection]:
        """Serve a connection of the client during the block; then cancel its requests."""
        async with anyio.create_task_group() as requests:
            yield McpConnection(self._identity, self._handlers(), send, self._on_error, requests)
            requests.cancel_scope.cancel()

    def _handlers(self) -> dict[str, Handler]:
        return {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "subscriptions/listen": self._listen,
        }

    def _sessions_of(self, request: McpRequest) -> Sessions:
        if self._sessions is None:
            agent = self._agent or _agent_of(request)
            # Of the clients that share a token, a later one may be able to ask.
            asks = self._starts.decide if self._agent or request.client.can_ask else None
            self._sessions = Sessions(self._connect, self._group, agent, self._cwd, asks=asks)
            self._resources.start(self._sessions, request)
        return self._sessions

    def _settings_for(self, request: McpRequest) -> ToolSettings:
        settings = self._settings
        default = ToolSettings(
            min_interval=settings.tool_min_interval,
            settle_interval=settings.tool_settle_interval,
            max_interval=settings.tool_max_interval,
            crop_output=settings.tool_crop_output,
            timeout_seconds=settings.tool_timeout_seconds,
            at_timeout=settings.tool_at_timeout,
            structured=settings.tool_structured,
        )
        return resolve_tools(default, settings.tools_for, _agent_of(request))

    async def _list_tools(self, request: McpRequest) -> dict[str, Any]:
        structured = self._settings_for(request).structured
        return {"tools": [tool.describe(structured=structured) for tool in self._tools.values()]}

    async def _list_resources(self, request: McpRequest) -> dict[str, Any]:
        return self._resources.listed(self._sessions_of(request))

    async def _list_templates(self, request: McpRequest) -> dict[str, Any]:
        del request
        return self._resources.templates()

    async def _read_resource(self, request: McpRequest) -> dict[str, Any]:
        return await self._resources.read(self._sessions_of(request), request.text("uri"))

    async def _subscribe(self, request: McpRequest) -> dict[str, Any]:
        await self._resources.subscribe(self._sessions_of(request), request.text("uri"))
        return {}

    async def _unsubscribe(self, request: McpRequest) -> dict[str, Any]:
        self._resources.unsubscribe(request.text("uri"))
        return {}

    async def _listen(self, request: McpRequest) -> None:
        await self._resources.listen(self._sessions_of(request), request)

    async def _call_tool(self, request: McpRequest) -> types.CallToolResult | dict[str, Any]:
        name, arguments = request.text("name"), request.params.get("arguments")
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(self._tools)
            raise RpcError(
                INVALID_PARAMS, f"there is no tool {shortened(name)!r}; there are {known}"
            )

        async def work(ask: Ask | None) -> types.CallToolResult:
            settings = self._settings_for(request)
            call = Call(
                self._sessions_of(request),
                self._starts,
                self._shells,
                settings,
                report=_report(request),
                ask=ask,
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call.send_progress)
                result = await _execute(tool, call, arguments)
                tasks.cancel_scope.cancel()
            return result

        if not request.client.can_ask:
            return await work(None)
        if request.client.is_modern:
            return await self._jobs.serve(request.params, work)
        return await work(request.ask)


async def _execute(tool: Tool[Any], call: Call, arguments: Any) -> types.CallToolResult:
    try:
        reply = await tool.run(call, arguments)
        return _to_result(reply, structured=call.settings.structured)
    except ApprovalPendingError as error:
        return await _pending(tool, call, error)
    except ClosedError as error:
        return _failure(call.sessions.disconnected(error))
    except (ToolError, AcptermError) as error:
        return _failure(error)


async def _pending(
    tool: Tool[Any], call: Call, error: ApprovalPendingError
) -> types.CallToolResult:
    """Return the result of a call that has to return while its program waits for approval.

    The start of the program becomes pending, and the result contains the id of the start.
    """
    if tool.result is not SessionResult:
        # The tool's result cannot describe a pending start.
        if error.start.id is None:
            await error.start.discard()
        return _failure(error)
    identifier = call.starts.keep(error.start)
    name, parameter = tool.continued_by
    wait = call_text(name, **{parameter: identifier})
    status = f"[waits for the user's approval · {wait} · the user can: acpterm approvals -f]"
    return _to_result(
        Reply(
            state=status,
            text=f"Terminal Id: {identifier}\n{error}",
            data=SessionResult(id=identifier, status=status, state="approval_pending"),
        ),
        structured=call.settings.structured,
    )


def _agent_of(request: McpRequest) -> str:
    return request.client.name or DEFAULT_AGENT


def _report(request: McpRequest) -> Report | None:
    return None if request.progress_token is None else request.report_progress


def _to_result(reply: Reply, *, structured: bool) -> types.CallToolResult:
    # Several clients join the blocks of text without anything between.
    state = "" if reply.state is None else f"{reply.state}\n"
    # Models' APIs refuse a block without any visible character.
    blocks = [text for text in (state, reply.text) if text.strip()] or [reply.text]
    has_data = structured and reply.data is not None
    return types.CallToolResult(
        content=[types.TextContent(text=text) for text in blocks],
        structured_content=msgspec.to_builtins(reply.data) if has_data else None,
    )


def _failure(error: Exception) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)


@asynccontextmanager
async def open_server(
    tools: ToolSetName,
    settings: Settings,
    connect: Connect,
    cwd: str,
    *,
    agent: str | None = None,
    on_error: Callable[[Exception], None],
) -> AsyncIterator[TerminalServer]:
    """Open the server of one agent during the block. It opens its host with `connect`."""
    async with anyio.create_task_group() as group:
        shells = Shells(group)
        try:
            yield TerminalServer(
                tools, settings, connect, group, shells, cwd=cwd, agent=agent, on_error=on_error
            )
        finally:
            with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                await shells.close()
            group.cancel_scope.cancel()
