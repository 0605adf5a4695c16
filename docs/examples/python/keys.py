"""Press keys in an interactive program, and look at its screen."""

import sys

import anyio

import acpterm

PROMPT = ">>> $"


async def main() -> None:
    """Calculate in Python's prompt, and repeat the line with the Up key."""
    async with acpterm.connect(agent="keys") as client:
        # The prompt that all versions of Python have.
        env = {"PYTHON_BASIC_REPL": "1"}
        python = await client.create(sys.executable, ["-q"], env=env, cols=40, rows=6)
        shown = await python.wait_for(PROMPT, timeout=10)
        await python.write("6 * 7\n")
        shown = await python.wait_for(PROMPT, since=shown.position, timeout=10)
        await python.keys("Up", "BSpace", "8", "Enter")
        await python.wait_for(PROMPT, since=shown.position, timeout=10)
        screen = await python.screen()
        print(screen.text())
        print(screen.cursor)


if __name__ == "__main__":
    anyio.run(main)
