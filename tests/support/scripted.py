"""An ACP agent whose prompt is a list of steps: `python tests/support/scripted.py [OPTION]…`.

It uses only the standard library. A prompt's text is a JSON list of steps, objects with `do`:

- `say` `text`: a message; `update` `update`: a `session/update`;
- `ask` `method` `params` [`as` NAME] [`report`]: a request to the client, with `sessionId` added.
  Its result is stored as NAME; with `report` it is also sent as a message. `"$NAME"` in later steps
  is its `terminalId`;
- `start`: like `ask`, without waiting for the response; `await` `as` waits for it;
- `many` `times` [`text`]: that number of messages;
- `stderr` `text`, `line` `text` [`times`] (a raw line), `sleep` `seconds`, `exit` `code`,
  `cut` `text`: the beginning of a line, and the agent's end;
  `until` `path`: waits until the file exists;
  `spawn` `argv` [`as`]: a child that is not waited for, whose pid is sent as a message;
- `stop` `reason`: the end of the turn with another stop reason than `end_turn`.

A cancel ends the turn at once with `cancelled`, without releasing terminals, as with real agents.
Options: `--stay` does not exit when stdin closes; `--deaf` ignores SIGTERM; `--garbage` first
prints lines that are no messages; `--silent` never responds to `initialize`; `--die` exits with
status 7 when it receives `initialize`; `--login` requires authentication; `--v2` claims protocol
version 2; `--stubborn` ignores cancels; `--name=NAME` sets the name in `agentInfo`; `--commands`
sends a list of commands before it responds to `session/new`.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OPTIONS = set(sys.argv[1:])
NAME = next((it.removeprefix("--name=") for it in OPTIONS if it.startswith("--name=")), "scripted")
lock = threading.Lock()
answers: dict[int, dict[str, Any]] = {}
answered = threading.Condition()
cancelled = threading.Event()
ids = itertools.count(1)
sessions = itertools.count(1)


def send(message: dict[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def ask(method: str, params: dict[str, Any]) -> int:
    id_ = next(ids)
    send({"id": id_, "method": method, "params": params})
    return id_


def wait(id_: int) -> dict[str, Any] | None:
    with answered:
        while id_ not in answers:
            if cancelled.is_set():
                return None
            answered.wait(0.02)
        return answers.pop(id_)


def fill(value: Any, names: dict[str, Any]) -> Any:
    if isinstance(value, str) and value.startswith("$") and value[1:] in names:
        result = names[value[1:]]
        return result.get("terminalId", result) if isinstance(result, dict) else result
    if isinstance(value, dict):
        return {name: fill(item, names) for name, item in value.items()}
    return [fill(item, names) for item in value] if isinstance(value, list) else value


class Turn:
    def __init__(self, session: str) -> None:
        self.session = session
        self.names: dict[str, Any] = {}
        self.reason = "end_turn"

    def update(self, update: dict[str, Any]) -> None:
        send({"method": "session/update", "params": {"sessionId": self.session, "update": update}})

    def say(self, text: str) -> None:
        content = {"type": "text", "text": text}
        self.update({"sessionUpdate": "agent_message_chunk", "content": content})

    def record_result(self, step: dict[str, Any], id_: int) -> None:
        answer = wait(id_)
        if answer is None:
            return
        result = answer.get("result", answer.get("error"))
        self.names[step.get("as", "last")] = result
        if step.get("report"):
            self.say(json.dumps(result))

    def run(self, steps: list[dict[str, Any]]) -> None:
        for raw in steps:
            if cancelled.is_set() or self.reason != "end_turn":
                break
            step = fill(raw, self.names)
            getattr(self, f"do_{step['do']}")(step)
        if cancelled.is_set():
            self.reason = "cancelled"

    def do_say(self, step: dict[str, Any]) -> None:
        self.say(step["text"])

    def do_update(self, step: dict[str, Any]) -> None:
        self.update(step["update"])

    def do_ask(self, step: dict[str, Any]) -> None:
        params = {"sessionId": self.session, **step.get("params", {})}
        self.record_result(step, ask(step["method"], params))

    def do_start(self, step: dict[str, Any]) -> None:
        params = {"sessionId": self.session, **step.get("params", {})}
        self.names["?" + step["as"]] = ask(step["method"], params)

    def do_await(self, step: dict[str, Any]) -> None:
        self.record_result(step, self.names["?" + step["as"]])

    def do_stderr(self, step: dict[str, Any]) -> None:
        print(step["text"], file=sys.stderr, flush=True)

    def do_line(self, step: dict[str, Any]) -> None:
        with lock:
            sys.stdout.write(step["text"] * step.get("times", 1) + "\n")
            sys.stdout.flush()

    def do_cut(self, step: dict[str, Any]) -> None:
        os.write(1, step["text"].encode())
        os._exit(5)

    def do_many(self, step: dict[str, Any]) -> None:
        for number in range(step["times"]):
            self.say(f"{number} {step.get('text', '')}")

    def do_sleep(self, step: dict[str, Any]) -> None:
        cancelled.wait(step["seconds"])

    def do_until(self, step: dict[str, Any]) -> None:
        while not (os.path.exists(step["path"]) or cancelled.wait(0.01)):
            pass

    def do_exit(self, step: dict[str, Any]) -> None:
        os._exit(step["code"])

    def do_spawn(self, step: dict[str, Any]) -> None:
        child = subprocess.Popen(step["argv"], start_new_session=True)
        self.names[step.get("as", "pid")] = child.pid
        self.say(str(child.pid))

    def do_stop(self, step: dict[str, Any]) -> None:
        self.reason = step["reason"]


def prompt(id_: Any, params: dict[str, Any]) -> None:
    cancelled.clear()
    turn = Turn(params["sessionId"])
    text = "".join(block.get("text", "") for block in params["prompt"])
    try:
        steps = json.loads(text)
    except ValueError:
        steps = [{"do": "say", "text": f"You said: {text}"}]
    try:
        turn.run(steps)
    except (KeyError, TypeError, AttributeError, OSError) as error:
        send({"id": id_, "error": {"code": -32603, "message": f"{type(error).__name__}: {error}"}})
        return
    send({"id": id_, "result": {"stopReason": turn.reason}})


def initialize(id_: Any, params: dict[str, Any]) -> None:
    if "--silent" in OPTIONS:
        return
    if "--die" in OPTIONS:
        print("no key in the environment: set AGENT_KEY", file=sys.stderr, flush=True)
        os._exit(7)
    result: dict[str, Any] = {
        "protocolVersion": 2 if "--v2" in OPTIONS else 1,
        "agentCapabilities": {"loadSession": True, "sessionCapabilities": {"resume": {}}},
        "agentInfo": {"name": NAME, "version": "1"},
        "authMethods": [],
        "_meta": {"clientCapabilities": params.get("clientCapabilities")},
    }
    if "--login" in OPTIONS:
        method = {"id": "login", "name": "Log in", "description": "Run `scripted login` first."}
        result["authMethods"] = [method]
    send({"id": id_, "result": result})


def new_session(id_: Any, params: dict[str, Any]) -> None:
    if "--login" in OPTIONS:
        send({"id": id_, "error": {"code": -32000, "message": "Authentication required"}})
        return
    session = f"s{next(sessions)}"
    if "--commands" in OPTIONS:
        command = {"name": "web", "description": "Search the web"}
        update = {"sessionUpdate": "available_commands_update", "availableCommands": [command]}
        send({"method": "session/update", "params": {"sessionId": session, "update": update}})
    send({"id": id_, "result": {"sessionId": session}})


def prompt_in_thread(id_: Any, params: dict[str, Any]) -> None:
    threading.Thread(target=prompt, args=(id_, params), daemon=True).start()


def done(id_: Any, params: dict[str, Any]) -> None:
    send({"id": id_, "result": {}})


ANSWERS = {
    "initialize": initialize,
    "session/new": new_session,
    "session/load": done,
    "session/resume": done,
    "session/close": done,
    "session/prompt": prompt_in_thread,
}


def process(message: dict[str, Any]) -> None:
    id_: Any = message.get("id")
    method = message.get("method")
    if method is None:
        with answered:
            answers[id_] = message
            answered.notify_all()
    elif method in ANSWERS:
        ANSWERS[method](id_, message.get("params") or {})
    elif method == "session/cancel":
        if "--stubborn" not in OPTIONS:
            cancelled.set()
    elif "id" in message:
        # Echo unknown requests and notifications, so that a test sees what the proxy passed on.
        send({"id": id_, "result": {"echo": message}})
    else:
        send({"method": "_echo", "params": {"echo": message}})


def main() -> None:
    if "--deaf" in OPTIONS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--garbage" in OPTIONS:
        print("Welcome to the agent!\n{broken", flush=True)
        print('"text"\n{"level":"info","id":0}\n{"level":"info","method":"GET"}', flush=True)
    for line in sys.stdin:
        process(json.loads(line))
    while "--stay" in OPTIONS:
        time.sleep(0.1)


if __name__ == "__main__":
    main()
