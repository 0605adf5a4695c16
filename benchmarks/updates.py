"""An agent that responds to its first line, then sends updates: `python updates.py COUNT`.

Every fourth update is that of a tool call with content, which a proxy has to decode. The others are
chunks of a message.
"""

import json
import sys


def main() -> None:
    count = int(sys.argv[1])
    sys.stdin.readline()
    sys.stdout.write('{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}\n')
    text = {"type": "text", "text": "some words of a message, as they come from a model "}
    for number in range(count):
        update = {"sessionUpdate": "agent_message_chunk", "content": text}
        if number % 4 == 0:
            content = [{"type": "content", "content": text}]
            update = {"sessionUpdate": "tool_call_update", "toolCallId": f"call-{number}"}
            update |= {"status": "in_progress", "content": content}
        params = {"sessionId": "s", "update": update}
        message = {"jsonrpc": "2.0", "method": "session/update", "params": params}
        sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.write('{"jsonrpc":"2.0","method":"_done"}\n')
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
