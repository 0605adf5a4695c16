"""Run commands in one shell, which keeps its directory, variables and functions."""

import anyio

import acpterm


async def main() -> None:
    """Run two commands, and answer the question of the second one."""
    async with (
        acpterm.connect(agent="shell") as client,
        client.shell("bash", user_rc=False) as shell,
    ):
        done = await shell.run("cd /usr; ask() { read -p 'Name? ' name; }; true | false")
        print(done.state, done.exit_code, done.pipe_status, done.cwd)
        asked = await shell.run("ask; echo Hello, $name")
        print(asked.state, asked.output)
        if shell.terminal is not None:
            await shell.terminal.write("Ada\n")
        done = await shell.wait(timeout=60)
        print(done.state, done.output.splitlines()[-1])


if __name__ == "__main__":
    anyio.run(main)
