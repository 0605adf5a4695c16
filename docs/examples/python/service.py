"""Use the terminal service: results with a status, sessions, and a provider of one's own."""

import anyio
import anyio.lowlevel

import acpterm


class Recorder:
    """A provider that executes nothing. For sessions, a provider needs further methods."""

    async def execute_command(
        self, command: str, args: list[str], options: acpterm.ExecuteCommandOptions
    ) -> acpterm.ExecuteCommandResult:
        """Return the command as its output."""
        await anyio.lowlevel.checkpoint()
        return acpterm.Success(f"{command} {args}, at most {options.timeout_seconds:g} s")


async def main() -> None:
    """Execute commands, continue a session, and judge commands."""
    async with acpterm.connect(agent="service") as client:
        service = acpterm.TerminalService(client, intervals=acpterm.OutputWaitOptions(0, 10, 30))
        match await service.execute_command("ls /no/such/place"):
            case acpterm.Success(output=output):
                print(output)
            case acpterm.BadExitCode(exit_code=code):
                print("failed with", code)
            case acpterm.Timeout():
                print("took too long")
            case acpterm.UnknownError(error=error):
                print("was not executed:", error)

        session = await service.start_interactive_session("read line; echo got $line; read line")
        await service.send_input_to_session(session, "y\n")
        print(session, await service.retrieve_session_output(session))
        await service.terminate_session(session)

        print(service.get_command_safety_level("rm -rf /"))
        print(service.parse_compound_command('git add . && git commit -m "test"'))

        service.register_terminal_provider("recorder", Recorder())
        service.set_active_terminal("recorder")
        print(await service.execute_command("deploy", ["now"]))


if __name__ == "__main__":
    anyio.run(main)
