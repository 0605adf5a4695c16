"""Run commands as an agent: the user's policy applies; terminals end with the `async with`."""

import anyio

import acpterm


async def main() -> None:
    """Start a server, use it while it runs, and ask what the policy says of a command."""
    async with acpterm.connect(agent="my-agent") as client:
        server = await client.create("echo listening; exec sleep 1000", name="server")
        await server.wait_for("listening", timeout=10)
        tests = await client.create("seq 3; false", timeout=60)
        ended = await tests.wait()
        print((await tests.output()).text, ended and ended.code)
        judgement = await client.check("sudo reboot")
        print(judgement.level, judgement.decision)


if __name__ == "__main__":
    anyio.run(main)
