"""Run commands as an agent: the user's policy applies; terminals end with the `async with`."""

import anyio

import acpterm


async def main() -> None:
    """Start a server, use it while it runs, and try a command that the policy refuses."""
    async with acpterm.connect(agent="my-agent") as client:
        server = await client.create("echo listening; exec sleep 1000", name="server")
        await server.wait_for("listening", timeout=10)
        tests = await client.create("seq 3; false", timeout=60)
        ended = await tests.wait()
        print((await tests.output()).text, ended and ended.code)
        try:
            await client.create("sudo reboot")
        except acpterm.CommandRefused as refused:
            print(refused.message.partition(",")[0])


if __name__ == "__main__":
    anyio.run(main)
