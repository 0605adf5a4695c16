"""A scripted model for real agents: it speaks the API that each of them expects, on loopback.

The script is a list of steps; each step is the calls of one response. A tool is named by the end
of its name, since each agent gives MCP tools a prefix of its own. Once an agent has sent the
results of a step, the next response makes the calls of the next one. `received` has the results as
the model got them.
"""

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Json = dict[str, Any]
Call = tuple[str, Json]


@dataclass
class Model:
    """A server with the script of one run."""

    steps: list[list[Call]]
    received: list[str] = field(default_factory=list)
    tools_at_first: bool | None = None
    """Whether the first request had all tools of the script."""
    missing: set[str] = field(default_factory=set)
    """The tools of the script that the agent did not offer when they were called."""

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"model": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def next_calls(self, names: list[str], results: list[str]) -> list[Call]:
        """Return the calls that follow these results, with the names that the agent uses."""
        wanted = {name for step in self.steps for name, _ in step}
        if self.tools_at_first is None:
            self.tools_at_first = all(_offered(name, names) for name in wanted)
        if len(results) > len(self.received):
            self.received[:] = results
        done = 0
        for step in self.steps:
            if done == len(results):
                return [self._call(name, names, arguments) for name, arguments in step]
            done += len(step)
        return []

    def _call(self, name: str, names: list[str], arguments: Json) -> Call:
        offered = _offered(name, names)
        if offered is None:
            self.missing.add(name)
        return offered or name, {key: self._filled(value) for key, value in arguments.items()}

    def _filled(self, value: Any) -> Any:
        """Replace the text `ID` by the last id in the results, as a model would copy it."""
        if value != "ID":
            return value
        pattern = r"\b(?:term|pending)-\d+|(?<=session ID )\d+|(?<=with ID: )\w+"
        ids = re.findall(pattern, "\n".join(self.received))
        found = ids[-1] if ids else value
        return int(found) if found.isdigit() else found


def _offered(name: str, names: list[str]) -> str | None:
    found = [one for one in names if one.endswith(name)]
    return min(found, key=len) if found else None


def _text(content: Any) -> str:
    """Return the text of the content of a result, in any of the four shapes."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(map(_text, content))
    if isinstance(content, dict):
        return next((_text(content[k]) for k in ("text", "output") if k in content), str(content))
    return ""


def _anthropic(request: Json) -> tuple[list[str], list[str]]:
    blocks = [
        b for m in request["messages"] if isinstance(m["content"], list) for b in m["content"]
    ]
    results = [_text(b.get("content")) for b in blocks if b["type"] == "tool_result"]
    return [tool["name"] for tool in request.get("tools", [])], results


def _anthropic_answer(calls: list[Call], text: str) -> Iterator[Json]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
    }
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    yield {"type": "message_start", "message": message}
    blocks: list[tuple[Json, Json]] = [
        (
            {"type": "tool_use", "id": f"toolu_{_new_id()}", "name": name, "input": {}},
            {"type": "input_json_delta", "partial_json": json.dumps(arguments)},
        )
        for name, arguments in calls
    ] or [({"type": "text", "text": ""}, {"type": "text_delta", "text": text})]
    for index, (start, delta) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


def _responses(request: Json) -> tuple[list[str], list[str]]:
    names = []
    for tool in request.get("tools", []):
        names += [f"{tool['name']}.{t['name']}" for t in tool.get("tools", [])]
        names += [tool["name"]] if tool["type"] == "function" else []
    outputs = [item for item in request["input"] if item.get("type") == "function_call_output"]
    return names, [_text(item["output"]) for item in outputs]


def _responses_answer(calls: list[Call], text: str) -> Iterator[Json]:
    items: list[Json] = []
    for full, arguments in calls:
        namespace, _, name = full.rpartition(".")
        item = {"type": "function_call", "id": f"f{_new_id()}", "call_id": f"c{_new_id()}"}
        item |= {"name": name, "arguments": json.dumps(arguments)}
        items.append(item | ({"namespace": namespace} if namespace else {}))
    content = [{"type": "output_text", "text": text}]
    items = items or [{"type": "message", "role": "assistant", "id": "m1", "content": content}]
    yield {"type": "response.created", "response": {"id": "r1"}}
    for item in items:
        yield {"type": "response.output_item.done", "item": item}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    usage |= {"input_tokens_details": None, "output_tokens_details": None}  # type: ignore[dict-item]
    yield {"type": "response.completed", "response": {"id": "r1", "usage": usage}}


def _chat(request: Json) -> tuple[list[str], list[str]]:
    names = [tool["function"]["name"] for tool in request.get("tools") or []]
    return names, [_text(m["content"]) for m in request["messages"] if m["role"] == "tool"]


def _chat_answer(calls: list[Call], text: str) -> Iterator[Json]:
    made = [
        {
            "index": n,
            "id": f"call_{_new_id()}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for n, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "tool_calls": made} if calls else _say(text)
    whole = {"id": "answer", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    reason = "tool_calls" if calls else "stop"
    yield whole | {"choices": [{"index": 0, "delta": message, "finish_reason": None}]}
    yield whole | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    yield whole | {"choices": [], "usage": usage}


def _say(text: str) -> Json:
    return {"role": "assistant", "content": text}


def _gemini(request: Json) -> tuple[list[str], list[str]]:
    lists = [tool.get("functionDeclarations", []) for tool in request.get("tools", [])]
    parts = [part for content in request["contents"] for part in content.get("parts", [])]
    answers = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    return [tool["name"] for tools in lists for tool in tools], [_gemini_text(a) for a in answers]


def _gemini_text(answer: Json) -> str:
    return (
        _text(answer) if {"output", "text"} & answer.keys() else _text(answer.get("error", answer))
    )


def _gemini_answer(calls: list[Call], text: str) -> Iterator[Json]:
    parts: list[Json] = [{"functionCall": {"name": n, "args": a}} for n, a in calls]
    content = {"role": "model", "parts": parts or [{"text": text}]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    candidate = {"index": 0, "content": content, "finishReason": "STOP"}
    yield {"candidates": [candidate], "usageMetadata": usage}


# By a part of the path.
_DIALECTS = {
    "/messages": (_anthropic, _anthropic_answer),
    "/responses": (_responses, _responses_answer),
    "/chat/completions": (_chat, _chat_answer),
    "enerateContent": (_gemini, _gemini_answer),
}

_ids = iter(range(1, 1_000_000))


def _new_id() -> int:
    return next(_ids)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Model

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        path = self.path.partition("?")[0]
        dialect = next((d for part, d in _DIALECTS.items() if part in path), None)
        if dialect is None or "count_tokens" in path:
            return self._send("application/json", '{"input_tokens": 1, "totalTokens": 1}')
        read, answer = dialect
        names, results = read(request)
        # A request without tools asks for a title or a summary.
        calls = self.model.next_calls(names, results) if names else []
        events = list(answer(calls, "done"))
        streams = request.get("stream") or "stream" in path
        if not streams:
            return self._send("application/json", json.dumps(_whole(events, path)))
        lines = []
        for event in events:
            head = f"event: {event['type']}\n" if "type" in event else ""
            lines.append(f"{head}data: {json.dumps(event)}\n\n")
        end = ["data: [DONE]\n\n"] if "/chat/" in path else []
        return self._send("text/event-stream", "".join(lines + end))

    def do_GET(self) -> None:
        models = [{"id": "scripted", "object": "model", "created": 0, "owned_by": "tests"}]
        self._send("application/json", json.dumps({"object": "list", "data": models, "models": []}))

    do_HEAD = do_GET  # noqa: N815  a name that http.server expects

    def _send(self, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def _whole(events: list[Json], path: str) -> Json:
    """Return the answer to a request that does not stream."""
    if "/chat/" in path:
        (first, second, last) = events
        reason = second["choices"][0]["finish_reason"]
        choice = {"index": 0, "message": first["choices"][0]["delta"], "finish_reason": reason}
        return last | {"object": "chat.completion", "choices": [choice]}
    if "/messages" in path:
        return events[0]["message"] | {
            "content": [{"type": "text", "text": "done"}],
            "stop_reason": "end_turn",
        }
    return events[0]
