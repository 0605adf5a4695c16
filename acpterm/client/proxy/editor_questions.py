"""Asks the user, through the editor, whether an agent's command may run.

A question of the host becomes a request `session/request_permission` to the editor, for a tool call
of its own that shows the command. States of a question here:

- *asked*: the request was sent, and has no response yet.
- *over*: the editor has responded, or the question was withdrawn; a withdrawn request is cancelled
  with `$/cancel_request`. The tool call is then reported as completed or failed, so that no editor
  shows it as running forever.

The ids of these requests begin with random text, so that they differ from the ids that the agent
chooses for its own requests. Every response with such an id is handled here, even if it comes late,
and is not passed on to the agent.

If the editor responds with an error, or with something that is not an answer, the host is notified
that the user cannot answer the question here. The user can still answer it elsewhere.
"""

import itertools
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

from acpterm.acp.approvals import ApprovalInfo
from acpterm.acp.raw_json import members, text
from acpterm.client.envelope import Envelope
from acpterm.client.questions import CHOICES, Questions, question_options
from acpterm.client.sanitize import escape_invisible_text, one_line
from acpterm.client.session_update import encode_tool_call_update
from acpterm.jsonrpc import encode_notification, encode_request
from acpterm.link.endpoint import Endpoint

_PREFIX_BYTES: Final = 16
_TITLE_CHARS_MAX: Final = 1000


class EditorQuestions:
    """Asks the user the questions in `questions` through the editor; sends the answers to `host`.

    `send` queues lines for the editor. `drain` waits until the editor has read most of these lines.
    """

    def __init__(
        self,
        questions: Questions,
        host: Endpoint,
        *,
        send: Callable[[list[bytes]], None],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        self._questions = questions
        self._host = host
        self._send = send
        self._drain = drain
        self._prefix: Final = f"acpterm-{secrets.token_hex(_PREFIX_BYTES)}-"
        self._numbers = itertools.count(1)
        # The question of each request without a response, by the request's id; and the id of the
        # request, by the question's id.
        self._asked: dict[str, ApprovalInfo] = {}
        self._requests: dict[str, str] = {}

    async def run(self) -> None:
        """Ask each new question, and cancel the request of each withdrawn one, until cancelled."""
        while True:
            await self._drain()
            pending = self._questions.pending
            for identifier in [one for one in self._requests if one not in pending]:
                self._withdraw(identifier)
            for identifier, info in list(pending.items()):
                if identifier not in self._requests:
                    self._ask(info)
            # At once after the comparison: a change during another wait would be missed.
            await self._questions.wait_changed()

    def _ask(self, info: ApprovalInfo) -> None:
        request = f"{self._prefix}{next(self._numbers)}"
        self._requests[info.approval_id] = request
        self._asked[request] = info
        params = _permission_params(info)
        self._send([encode_request(request, "session/request_permission", params)])

    def _withdraw(self, identifier: str) -> None:
        request = self._requests.pop(identifier)
        info = self._asked.pop(request, None)
        if info is not None:
            self._send([encode_notification("$/cancel_request", {"requestId": request})])
            self._end_tool_call(info, "failed")

    def take_response(self, message: Envelope) -> bool:
        """Handle the editor's response to a question; return False for other responses."""
        request = message.id
        if not isinstance(request, str) or not request.startswith(self._prefix):
            return False
        info = self._asked.pop(request, None)
        if info is None:
            return True  # the question was withdrawn before
        outcome = members(members(message.result).get("outcome"))
        kind, option = text(outcome.get("outcome")), text(outcome.get("optionId"))
        choice = CHOICES.get(option or "") if kind == "selected" else None
        if kind == "cancelled":
            choice = "deny", "once"
        options = [one.option_id for one in question_options(info)]
        if choice is None or option not in (None, *options):
            reason = _why(message)
            self._questions.decline(self._host, info.approval_id, reason)
            self._end_tool_call(info, "failed")
            return True
        self._questions.answer(self._host, info.approval_id, *choice)
        self._end_tool_call(info, "completed" if choice[0] == "allow" else "failed")
        return True

    def _end_tool_call(self, info: ApprovalInfo, status: str) -> None:
        call = info.session_id, _tool_call_id(info)
        self._send([encode_tool_call_update(call, status=status)])


def _why(message: Envelope) -> str:
    error = text(members(message.error).get("message"))
    if error is not None:
        return f"the editor cannot ask: {one_line(error)}"
    return "the editor has responded to the question with something that is no answer"


def _tool_call_id(info: ApprovalInfo) -> str:
    return f"acpterm-approval-{info.approval_id}"


def _permission_params(info: ApprovalInfo) -> dict[str, Any]:
    """Return the params of the `session/request_permission` for a question."""
    about = f"{info.reason}\n\nDirectory: {info.cwd}"
    if len(info.command) > _TITLE_CHARS_MAX:
        # The title has only the beginning: what the user allows must be visible as a whole.
        about += f"\n\nCommand:\n{info.command}"
    block = {"type": "text", "text": escape_invisible_text(about)}
    return {
        "sessionId": info.session_id,
        "toolCall": {
            "toolCallId": _tool_call_id(info),
            "title": one_line(info.command, _TITLE_CHARS_MAX),
            "kind": "execute",
            "status": "pending",
            "rawInput": {"command": info.command, "cwd": info.cwd},
            "content": [{"type": "content", "content": block}],
        },
        "options": question_options(info),
    }
