"""Follow the events of terminals, while other tasks use the terminals."""

import anyio

import acpterm


async def main() -> None:
    """Print the events of one terminal until its program has exited."""
    async with acpterm.connect(agent="events") as client, client.events() as events:
        terminal = await client.create("read answer", name="asks")
        async for event in events:
            if event.event == "waiting":
                await terminal.write("yes\n")
            print(event.event, event.terminal and event.terminal.name)
            if event.event == "exited":
                break


if __name__ == "__main__":
    anyio.run(main)
