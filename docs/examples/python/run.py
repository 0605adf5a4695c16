"""Run a program in a terminal, answer its question, and read how it ended."""

import anyio

import acpterm


async def main() -> None:
    """Start a terminal that is the user's, as `acpterm run` does."""
    async with acpterm.connect() as client:
        terminal = await client.create("printf 'Name? '; read name; echo Hello, $name; exit 3")
        asked = await terminal.wait_for(r"\? $", timeout=10)
        await terminal.write("Ada\n")
        ended = await terminal.wait()
        rest = await terminal.read(asked.position)
        print(rest.text, ended)
        await terminal.release()


if __name__ == "__main__":
    anyio.run(main)  # or asyncio.run(main()), or trio.run(main)
