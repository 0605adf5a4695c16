"""The MCP server: lists the tools of one set, and executes calls.

One server serves one client, which is an agent to the host. The agent's name is the name that the
client has sent as its own (`clientInfo.name`). The first call that needs the connection to the host
opens it. An error that the model can correct is a result with `isError`. A call of a tool that does
not exist is an error of the protocol.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import mcp_types as types
import msgspec
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError

from acpterm import __version__
from acpterm.api.errors import AcptermError, ClosedError
from acpterm.config import Settings
from acpterm.config.tools import ToolSettings, resolve_tools
from acpterm.mcp.call import Call, Report
from acpterm.mcp.host_link import Connect, HostLink
from acpterm.mcp.questions import Ask, Jobs, ask_by_request, can_ask, is_modern
from acpterm.mcp.resources import Resources
from acpterm.mcp.sessions import Sessions
from acpterm.mcp.shells import Shells, closing
from acpterm.mcp.starting import ApprovalPendingError, Starts
from acpterm.mcp.states import SessionResult, call_text
from acpterm.mcp.tool import Reply, Tool
from acpterm.mcp.tool_error import ToolError, shortened
from acpterm.mcp.tool_set_names import ToolSetName
from acpterm.mcp.tool_sets import INSTRUCTIONS, TOOL_SETS

DEFAULT_AGENT: Final = "mcp"
"""The name of a client that sends no name."""


class TerminalServer:
    """Executes the calls of one client. Its background tasks run in `group`.

    `tools` is the name of the client's set of tools. `link` opens the connection to the host, and
    `shells` has the client's persistent shells. A program runs in the directory `cwd` if the client
    names no directory for it.
    """

    def __init__(
        self,
        tools: ToolSetName,
        settings: Settings,
        link: HostLink,
        group: TaskGroup,
        shells: Shells,
        *,
        cwd: str,
    ) -> None:
        self._cwd: Final = cwd
        self._shells: Final = shells
        self.resources: Final = Resources(group)
        self._tools: Final[Mapping[str, Tool[Any]]] = {tool.name: tool for tool in TOOL_SETS[tools]}
        self._settings: Final = settings
        self._link: Final = link
        self._starts: Final = Starts(group)
        self._jobs: Final = Jobs(group)
        self._sessions: Sessions | None = None

    def sessions(self, ctx: ServerRequestContext[Any]) -> Sessions:
        """Return the client's `Sessions` object, which the first call of this method creates.

        `ctx` has the name of the client.
        """
        if self._sessions is None:
            agent = _client_name(ctx)
            provider = _tool_settings(self._settings, agent).provider
            asks = self._starts.decide if can_ask(ctx) else None
            self._sessions = Sessions(self._link, agent, self._cwd, provider=provider, asks=asks)
            self.resources.start(self._sessions, ctx.session)
        return self._sessions

    def list_tools(self, ctx: ServerRequestContext[Any]) -> types.ListToolsResult:
        """Return the response to `tools/list`: all tools of the set."""
        structured = _tool_settings(self._settings, _client_name(ctx)).structured
        described = [tool.describe(structured=structured) for tool in self._tools.values()]
        return types.ListToolsResult(tools=described)

    async def call_tool(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Execute a call. Raises `MCPError` if there is no such tool."""
        tool = self._tools.get(params.name)
        if tool is None:
            known = ", ".join(self._tools)
            raise MCPError(
                types.INVALID_PARAMS,
                f"there is no tool {shortened(params.name)!r}; there are {known}",
            )

        async def work(ask: Ask | None) -> types.CallToolResult:
            settings = _tool_settings(self._settings, _client_name(ctx))
            call = Call(
                self.sessions(ctx),
                self._starts,
                self._shells,
                settings,
                report=_report(ctx),
                ask=ask,
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call.send_progress)
                result = await _execute(tool, call, params.arguments)
                tasks.cancel_scope.cancel()
            return result

        if not can_ask(ctx):
            return await work(None)
        if is_modern(ctx):
            return await self._jobs.serve(params, work)
        return await work(ask_by_request(ctx))


async def _execute(
    tool: Tool[Any], call: Call, arguments: Mapping[str, Any] | None
) -> types.CallToolResult:
    """Execute a call; return its result, or a result with the error that the model should see."""
    try:
        try:
            reply = await tool.run(call, arguments)
        except ApprovalPendingError as error:
            if error.start.id is None:
                return await _pending(tool, call, error)
            # The call names the id of an earlier start: wait for the user again.
            call.doing = "waiting for the user's approval"
            with anyio.move_on_after(call.remaining_approval):
                await error.start.done.wait()
            if not error.start.done.is_set():
                return await _pending(tool, call, error)
            reply = await tool.run(call, arguments)
        return _to_result(reply, structured=call.settings.structured)
    except ClosedError as error:
        return _failure(call.sessions.disconnected(error))
    except (ToolError, AcptermError) as error:
        return _failure(error)


async def _pending(
    tool: Tool[Any], call: Call, error: ApprovalPendingError
) -> types.CallToolResult:
    """Return the result of a call that has to return while its program waits for approval.

    The start of the program becomes pending, and the result contains the id of the start. Some
    tools have results that cannot describe a pending start. For these, return `error` as the
    result, and cancel the start if this call began it; this also withdraws the question to the
    user.
    """
    if tool.result is not SessionResult:
        if error.start.id is None:
            await error.start.discard(call.sessions)
        return _failure(error)
    identifier = call.starts.keep(error.start)
    wait = call_text("terminal_wait", sessionId=identifier)
    status = f"[waits for the user's approval · {wait} · the user can: acpterm approvals]"
    return _to_result(
        Reply(
            state=status,
            text=f"Terminal Id: {identifier}\n{error}",
            data=SessionResult(id=identifier, status=status, state="approval_pending"),
        ),
        structured=call.settings.structured,
    )


def _client_name(ctx: ServerRequestContext[Any]) -> str:
    client = ctx.session.client_params
    return (client.client_info.name if client is not None else "") or DEFAULT_AGENT


def _tool_settings(settings: Settings, agent: str) -> ToolSettings:
    default = ToolSettings(
        min_interval=settings.tool_min_interval,
        settle_interval=settings.tool_settle_interval,
        max_interval=settings.tool_max_interval,
        crop_output=settings.tool_crop_output,
        timeout_seconds=settings.tool_timeout_seconds,
        at_timeout=settings.tool_at_timeout,
        structured=settings.tool_structured,
    )
    return resolve_tools(default, settings.tools_for, agent)


def _report(ctx: ServerRequestContext[Any]) -> Report | None:
    """Return the function that sends progress; None if the client has not requested progress."""
    if ctx.meta is None or ctx.meta.get("progress_token") is None:
        return None

    async def report(elapsed: float, message: str) -> None:
        await ctx.session.report_progress(elapsed, message=message)

    return report


def _to_result(reply: Reply, *, structured: bool) -> types.CallToolResult:
    # Several clients join the blocks of text without anything between.
    blocks = [reply.text] if reply.state is None else [f"{reply.state}\n", reply.text]
    has_data = structured and reply.data is not None
    return types.CallToolResult(
        content=[types.TextContent(text=text) for text in blocks],
        structured_content=msgspec.to_builtins(reply.data) if has_data else None,
    )


def _failure(error: Exception) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)


def initialization_options(server: Server[Any]) -> InitializationOptions:
    """Return the options for `server.run`: what the server sends in the handshake."""
    return server.create_initialization_options(NotificationOptions(resources_changed=True))


def create_server(
    tools: ToolSetName, settings: Settings, connect: Connect, cwd: str
) -> Server[Any]:
    """Return the server for one client, which opens its connection to the host with `connect`.

    Programs start in `cwd`, unless the client names another directory.
    """

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncIterator[TerminalServer]:
        del server
        async with anyio.create_task_group() as group:
            async with closing(Shells()) as shells:
                link = HostLink(connect, group)
                yield TerminalServer(tools, settings, link, group, shells, cwd=cwd)
            group.cancel_scope.cancel()

    async def list_tools(
        ctx: ServerRequestContext[TerminalServer], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del params
        return ctx.lifespan_context.list_tools(ctx)

    async def call_tool(
        ctx: ServerRequestContext[TerminalServer], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        return await ctx.lifespan_context.call_tool(ctx, params)

    async def list_resources(
        ctx: ServerRequestContext[TerminalServer], params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        del params
        serving = ctx.lifespan_context
        return serving.resources.listed(serving.sessions(ctx))

    async def list_templates(
        ctx: ServerRequestContext[TerminalServer], params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        del params
        return ctx.lifespan_context.resources.templates()

    async def read_resource(
        ctx: ServerRequestContext[TerminalServer], params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        serving = ctx.lifespan_context
        return await serving.resources.read(serving.sessions(ctx), str(params.uri))

    async def subscribe(
        ctx: ServerRequestContext[TerminalServer], params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        serving = ctx.lifespan_context
        await serving.resources.subscribe(serving.sessions(ctx), str(params.uri))
        return types.EmptyResult()

    async def unsubscribe(
        ctx: ServerRequestContext[TerminalServer], params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        ctx.lifespan_context.resources.unsubscribe(str(params.uri))
        return types.EmptyResult()

    async def listen(
        ctx: ServerRequestContext[TerminalServer], params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        serving = ctx.lifespan_context
        return await serving.resources.listen(serving.sessions(ctx), ctx, params)

    return Server(
        "acpterm",
        version=__version__,
        title="acpterm terminals",
        instructions=INSTRUCTIONS[tools],
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=listen,
    )
