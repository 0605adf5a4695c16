"""A scripted model for agents under test: an OpenAI-compatible server controlled by the prompt.

Each line `@@TOOL {"name": …, "arguments": {…}}` of the prompt is a tool call. The first response
makes all calls up to a line `@@THEN`; once the agent has sent their results, the next response
makes the calls behind that line. After the last results, the model's message is `RESULT` followed
by all results. So the agent's last message has exactly what a real model would have received.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MARK = "@@TOOL "
THEN = "@@THEN"


def tool(name: str, **arguments: Any) -> str:
    """Return the line of a prompt that makes the model call a tool."""
    return MARK + json.dumps({"name": name, "arguments": arguments})


def in_turn(*calls: str) -> str:
    """Return a prompt that makes the model call tools one after the other, one per response."""
    return f"\n{THEN}\n".join(calls)


@contextmanager
def model() -> Iterator[str]:
    """Run the server while the block lasts; yield its base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = _answer(request["messages"])
        if request.get("stream"):
            lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in _chunks(answer)]
            self._send("text/event-stream", "".join([*lines, "data: [DONE]\n\n"]))
        else:
            self._send("application/json", json.dumps(_whole(answer)))

    def do_GET(self) -> None:
        models = [{"id": "scripted", "object": "model", "created": 0, "owned_by": "tests"}]
        self._send("application/json", json.dumps({"object": "list", "data": models}))

    def _send(self, kind: str, body: str) -> None:
        data = body.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def _answer(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the model's next message."""
    prompts = [n for n, message in enumerate(messages) if MARK in _text(message)]
    prompts = [n for n in prompts if messages[n]["role"] == "user"]
    if not prompts:
        return {"role": "assistant", "content": "Nothing to do."}
    prompt, *after = messages[prompts[-1] :]
    results = [_text(message) for message in after if message["role"] == "tool"]
    # One step for each response with calls.
    steps = _text(prompt).split(f"\n{THEN}\n")
    done = sum(bool(message.get("tool_calls")) for message in after)
    if done == len(steps):
        return {"role": "assistant", "content": "\n".join(["RESULT", *results])}
    lines = [line for line in steps[done].splitlines() if line.startswith(MARK)]
    calls = [json.loads(line.removeprefix(MARK)) for line in lines]
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "index": n,
                "id": f"call_{len(messages)}_{n}",
                "type": "function",
                "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
            }
            for n, call in enumerate(calls)
        ],
    }


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


_ENVELOPE = {"id": "answer", "created": 0, "model": "scripted"}
_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def _reason(answer: dict[str, Any]) -> str:
    return "tool_calls" if "tool_calls" in answer else "stop"


def _whole(answer: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": answer, "finish_reason": _reason(answer)}
    return {**_ENVELOPE, "object": "chat.completion", "choices": [choice], "usage": _USAGE}


def _chunks(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    envelope = {**_ENVELOPE, "object": "chat.completion.chunk"}
    yield {**envelope, "choices": [{"index": 0, "delta": answer, "finish_reason": None}]}
    yield {**envelope, "choices": [{"index": 0, "delta": {}, "finish_reason": _reason(answer)}]}
    yield {**envelope, "choices": [], "usage": _USAGE}
