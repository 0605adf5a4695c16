"""An agent on the official Python SDK: uses terminals from creation to release, prints a report.

    drive.py '{"directory": …, "host": [command to spawn…] or "path of a socket", …}'

All requests go through the SDK, whose models check the host's responses. Only `initialize` goes
through its plain JSON-RPC connection, since agents of the SDK never send that request.
"""

import asyncio
import json
import os
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

from acp import (
    PROTOCOL_VERSION,
    Agent,
    Client,
    RequestError,
    start_tool_call,
    tool_terminal_ref,
    update_tool_call,
)
from acp.core import AgentSideConnection, Connection
from acp.schema import ClientCapabilities, EnvVariable, Implementation, InitializeRequest
from acp.transports import spawn_stdio_transport

SESSION = "session-1"


@asynccontextmanager
async def streams(host, ended):
    """Spawn a host or connect to one; append a spawned host's exit status to `ended`."""
    if isinstance(host, str):
        reader, writer = await asyncio.open_unix_connection(host)
        yield reader, writer
        writer.close()
        await writer.wait_closed()
        return
    async with spawn_stdio_transport(*host, env=os.environ, stderr=None) as (
        reader,
        writer,
        process,
    ):
        yield reader, writer
    ended.append(process.returncode)


class Driver(Agent):
    """The agent: it handles no requests, and only sends some."""

    client: Client

    def on_connect(self, conn):
        self.client = conn


async def result(request):
    """Return a response as JSON; an error as its code and message."""
    try:
        answer = await request
    except RequestError as error:
        return {"error": error.code, "message": str(error)}
    if answer is None or isinstance(answer, dict):
        return answer
    return answer.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def until_output(client, terminal, text):
    """Poll until the output contains `text`."""
    async with asyncio.timeout(30):
        while True:
            output = await result(client.terminal_output(SESSION, terminal))
            if text in output["output"]:
                return output
            await asyncio.sleep(0.01)


def create_go_file(directory):
    """Create the file that the script waits for."""
    Path(directory, "go").touch()


async def whole_life(client, plan):
    created = await client.create_terminal(
        SESSION,
        "/bin/sh",
        args=["-c", plan["script"], "sh", "two  words"],
        env=[EnvVariable(name="GREETING", value=plan["greeting"])],
        cwd=plan["directory"],
        output_byte_limit=1000,
    )
    terminal = created.terminal_id
    shown = [tool_terminal_ref(terminal)]
    await client.session_update(
        SESSION, start_tool_call("call-1", "Run it", kind="execute", content=shown)
    )
    waiting = asyncio.create_task(client.wait_for_terminal_exit(SESSION, terminal))
    running = await until_output(client, terminal, "waiting")
    create_go_file(plan["directory"])
    waited = await result(waiting)
    output = await result(client.terminal_output(SESSION, terminal))
    await client.session_update(SESSION, update_tool_call("call-1", status="completed"))
    return {
        "running": running,
        "waited": waited,
        "output": output,
        "killed": await result(client.kill_terminal(SESSION, terminal)),
        "released": await result(client.release_terminal(SESSION, terminal)),
        "again": await result(client.release_terminal(SESSION, terminal)),
        "after": await result(client.terminal_output(SESSION, terminal)),
    }


async def run(client, command, **more):
    terminal = (await client.create_terminal(SESSION, command, **more)).terminal_id
    waited = await result(client.wait_for_terminal_exit(SESSION, terminal))
    output = await result(client.terminal_output(SESSION, terminal))
    await client.release_terminal(SESSION, terminal)
    return {"waited": waited, "output": output}


async def time_out(client, plan):
    """Do what agents do after a timeout: kill, output, release."""
    terminal = (await client.create_terminal(SESSION, plan["sleeper"])).terminal_id
    await until_output(client, terminal, "asleep")
    try:
        async with asyncio.timeout(0.05):
            gave_up = await result(client.wait_for_terminal_exit(SESSION, terminal))
    except TimeoutError:
        gave_up = "timed out"
    start = time.monotonic()
    killed = await result(client.kill_terminal(SESSION, terminal))
    seconds = time.monotonic() - start
    output = await result(client.terminal_output(SESSION, terminal))
    waited = await result(client.wait_for_terminal_exit(SESSION, terminal))
    return {
        "gave_up": gave_up,
        "killed": killed,
        "seconds": seconds,
        "output": output,
        "waited": waited,
        "released": await result(client.release_terminal(SESSION, terminal)),
        "again": await result(client.release_terminal(SESSION, terminal)),
    }


async def go_wrong(client, plan):
    terminal = (await client.create_terminal(SESSION, "true")).terminal_id
    wrong = {
        "relative": await result(client.create_terminal(SESSION, "true", cwd="not/absolute")),
        "empty": await result(client.create_terminal(SESSION, "")),
        "unknown": await result(client.terminal_output(SESSION, "never-was")),
        "foreign": await result(client.terminal_output("session-2", terminal)),
        "file": await result(client.read_text_file(SESSION, plan["directory"] + "/go")),
        "extension": await result(client.ext_method("nobody/knows", {})),
    }
    await client.release_terminal(SESSION, terminal)
    return wrong


async def main(plan):
    ended = []
    report = {}
    async with streams(plan["host"], ended) as (reader, writer):
        plain = Connection(lambda *_: asyncio.sleep(0), writer, reader)
        request = InitializeRequest(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(terminal=True),
            client_info=Implementation(name="drive", version="1"),
        )
        answer = await plain.send_request("initialize", request.model_dump(by_alias=True))
        await plain.close()
        ClientCapabilities.model_validate(answer["clientCapabilities"])
        Implementation.model_validate(answer["clientInfo"])
        report["initialized"] = answer
    async with streams(plan["host"], ended) as (reader, writer):
        driver = Driver()
        async with AgentSideConnection(driver, writer, reader):
            client = driver.client
            report["life"] = await whole_life(client, plan)
            report["cut"] = await run(client, plan["long"], output_byte_limit=plan["limit"])
            report["signalled"] = await run(client, plan["signalled"])
            report["timed_out"] = await time_out(client, plan)
            report["wrong"] = await go_wrong(client, plan)
            left = (await client.create_terminal(SESSION, plan["sleeper"])).terminal_id
            report["left"] = await until_output(client, left, "asleep")
    report["ended"] = ended
    print(json.dumps(report))


asyncio.run(main(json.loads(sys.argv[1])))
