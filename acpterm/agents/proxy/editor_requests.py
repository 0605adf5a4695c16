"""The proxy's own requests to the editor, and the host's questions to the user among them.

A question becomes a `session/request_permission` for a tool call of its own that shows the command.
If it is withdrawn, the request is cancelled with `$/cancel_request`. Then, and after the editor's
response, the tool call is reported as ended, so that no editor shows it as running forever.
"""

import itertools
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

import trio

from acpterm.acp.approvals import ApprovalInfo
from acpterm.acp.raw_json import members, text
from acpterm.agents.envelope import Envelope
from acpterm.agents.questions import CHOICES, CannotAskError, question_options
from acpterm.agents.session_update import encode_tool_call_update
from acpterm.jsonrpc import encode_notification, encode_request
from acpterm.runtime.sanitize import escape_invisible_text, one_line, shortened

_PREFIX_BYTES: Final = 16
_TITLE_CHARS_MAX: Final = 1000


class EditorRequests:
    """Sends requests to the editor through `send`; `drain` waits until most of them are read."""

    def __init__(
        self, send: Callable[[list[bytes]], None], drain: Callable[[], Awaitable[None]]
    ) -> None:
        self._send = send
        self._drain = drain
        # Random, so that the agent's ids differ: no response to us, even a late one, goes to it.
        self._prefix: Final = f"acpterm-{secrets.token_hex(_PREFIX_BYTES)}-"
        self._numbers = itertools.count(1)
        self._pending: dict[str, tuple[trio.Event, list[Envelope]]] = {}

    async def request(self, method: str, params: Any) -> Envelope:
        """Send a request, wait for the response, and return it, even if it is an error."""
        id_ = f"{self._prefix}{next(self._numbers)}"
        received, responses = self._pending[id_] = trio.Event(), []
        self._send([encode_request(id_, method, params)])
        try:
            await received.wait()
        except trio.Cancelled:
            self._send([encode_notification("$/cancel_request", {"requestId": id_})])
            raise
        finally:
            del self._pending[id_]
        return responses[0]

    def take_response(self, message: Envelope) -> bool:
        """Handle the editor's response, and return whether the request was one of these."""
        if not isinstance(message.id, str) or not message.id.startswith(self._prefix):
            return False
        if pending := self._pending.get(message.id):
            received, responses = pending
            responses.append(message)
            received.set()
        return True

    async def ask(self, info: ApprovalInfo) -> str:
        """Ask the user a question of the host; return the id of the chosen option."""
        await self._drain()
        call_id, status = f"acpterm-approval-{info.approval_id}", "failed"
        try:
            params = _permission_params(info, call_id)
            message = await self.request("session/request_permission", params)
            chosen = _chosen(message, info)
            if CHOICES[chosen][0] == "allow":
                status = "completed"
        finally:
            self._send([encode_tool_call_update((info.session_id, call_id), status=status)])
        return chosen


def _chosen(message: Envelope, info: ApprovalInfo) -> str:
    outcome = members(members(message.result).get("outcome"))
    kind, option = text(outcome.get("outcome")), text(outcome.get("optionId"))
    options = [one.option_id for one in question_options(info)]
    if kind == "cancelled" and option in (None, *options):
        return "reject_once"
    if kind == "selected" and option in options:
        return option
    error = text(members(message.error).get("message"))
    if error is not None:
        raise CannotAskError(f"the editor cannot ask: {one_line(error)}")
    raise CannotAskError(
        "the editor has responded to the question with something that is no answer"
    )


def _permission_params(info: ApprovalInfo, call_id: str) -> dict[str, Any]:
    about = f"{info.reason}\n\nDirectory: {info.cwd}"
    if len(info.command) > _TITLE_CHARS_MAX:
        # The title lacks the middle: what the user allows must be visible as a whole.
        about += f"\n\nCommand:\n{info.command}"
    block = {"type": "text", "text": escape_invisible_text(about)}
    return {
        "sessionId": info.session_id,
        "toolCall": {
            "toolCallId": call_id,
            "title": shortened(info.command, _TITLE_CHARS_MAX),
            "kind": "execute",
            "status": "pending",
            "rawInput": {"command": info.command, "cwd": info.cwd},
            "content": [{"type": "content", "content": block}],
        },
        "options": question_options(info),
    }
