"""The terminal service: results, sessions, levels, compound commands, providers and plugins."""

import os
import sys
import time

import anyio
import msgspec
import pytest

import acpterm
from acpterm.api.service.service import SessionRecord, TerminalState
from acpterm.runtime.command_line import find_shell
from tests.api.test_client import ROLES, connect
from tests.support.backends import on_both_backends
from tests.support.cases import each_case
from tests.support.depth import DEADLINE_S

QUICK = acpterm.OutputWaitOptions(0.0, 0.5, DEADLINE_S)


def options(**more):
    return acpterm.ExecuteCommandOptions(**more)


@pytest.mark.long
@ROLES
@on_both_backends
async def test_commands_return_a_result_of_each_status(settings, role, tmp_path, monkeypatch):
    monkeypatch.setenv("SEEN", "of the client")
    async with connect(settings, role) as client:
        service = acpterm.TerminalService(client)
        execute = service.execute_command
        assert await execute("echo one; echo two", []) == acpterm.Success("one\ntwo\n")
        assert await execute("echo", ["a b", "$HOME"]) == acpterm.Success("a b $HOME\n")
        failed = await execute("echo oops; exit 3")
        assert failed == acpterm.BadExitCode("oops\n", 3)
        assert msgspec.json.decode(msgspec.json.encode(failed)) == {
            "status": "badExitCode",
            "output": "oops\n",
            "exitCode": 3,
        }
        assert await execute("kill -KILL $$") == acpterm.BadExitCode("", 137)
        assert await execute("no-such-program") == acpterm.BadExitCode(
            f"{find_shell('auto')}: line 1: no-such-program: command not found\n", 127
        )
        late = await execute("sleep 60", options=options(timeout_seconds=0.1))
        assert late == acpterm.Timeout()
        nowhere = await execute("true", [], options(working_directory="/no/such/place"))
        assert nowhere.status == "unknownError"
        assert "/no/such/place" in nowhere.error
        variables = options(env={"SET": "yes", "UNSET": None}, working_directory=str(tmp_path))
        assert await execute("echo $SET$UNSET; pwd", [], variables) == acpterm.Success(
            f"yes\n{tmp_path}\n"
        )
        removed = options(env={"SEEN": None})
        assert await execute("echo ${SEEN-unset}", [], removed) == acpterm.Success("unset\n")
        script = await service.run_script("for i in 1 2; do\n  echo $i\ndone\nexit 4\n")
        assert script == acpterm.BadExitCode("1\n2\n", 4)
        assert not [each for each in await client.terminals() if each.state == "running"]


@pytest.mark.long
@ROLES
@on_both_backends
async def test_input_is_stdin_exactly_and_no_argument(settings, role):
    async with connect(settings, role) as client:
        execute = acpterm.TerminalService(client).execute_command
        for text in ("", "a\n$b'", "\x00\r\x04ü" + 300_000 * "0123456789"):
            size = len(text.encode())
            counted = await execute("wc -c", options=options(input=text))
            assert counted == acpterm.Success(f"{size}\n")
        upper = await execute("tr", ["a-z", "A-Z"], options(input="a"))
        assert upper == acpterm.Success("A")
        seen = "tr '\\0' ' ' </proc/$$/cmdline /proc/$PPID/cmdline; cat; echo"
        lines = (await execute(seen, options=options(input="secret"))).output.split("secret")
        assert (len(lines), lines[1]) == (2, "\n")
        # A program that reads nothing, or not all, ends nevertheless.
        assert await execute("true", options=options(input=text)) == acpterm.Success("")
        assert await execute("head -c 2", options=options(input="abc")) == acpterm.Success("ab")
        assert (await execute("exit 3", options=options(input=text))).exit_code == 3
        late = await execute("sleep 60", options=options(input=text, timeout_seconds=0.1))
        assert late == acpterm.Timeout()


@ROLES
@on_both_backends
async def test_stdin_is_a_named_pipe_only(settings, role, tmp_path):
    (tmp_path / "file").write_text("text")
    read_end, write_end = os.pipe()
    os.write(write_end, b"of another program\n")
    os.close(write_end)
    anonymous = f"/proc/{os.getpid()}/fd/{read_end}"
    async with connect(settings, role) as client:
        for path in str(tmp_path / "file"), anonymous, "/dev/null":
            terminal = await client.create("cat", stdin=path)
            assert (await terminal.wait(DEADLINE_S)).code == 126
            assert (await terminal.output()).text == "acpterm: stdin is no named pipe\n"
            await terminal.release()
    assert os.read(read_end, 100) == b"of another program\n"
    os.close(read_end)


@on_both_backends
async def test_refused_command_is_an_unknown_error_that_says_why(settings):
    async with connect(settings, "agent", profile="pool") as client:
        result = await acpterm.TerminalService(client).execute_command("kill 1")
        assert result.status == "unknownError"
        assert "blocked" in result.error


@pytest.mark.costly
@on_both_backends
async def test_cancelled_command_is_ended(settings):
    async with connect(settings, "agent") as client:
        service = acpterm.TerminalService(client)
        with anyio.move_on_after(0.1):
            await service.execute_command("sleep 60")
        # If the create was cancelled, the terminal is released when its response has arrived.
        with anyio.fail_after(DEADLINE_S):
            while await client.terminals():
                await anyio.sleep(0.005)


async def retrieve(service, session, end, *, complete=False):
    """Return output to `end`, or if `complete` all output, and the last result with it.

    On a busy machine, the output settles before that.
    """
    output = ""
    with anyio.fail_after(DEADLINE_S):
        while True:
            result = await service.retrieve_session_output(session)
            output += result.output
            if output.endswith(end) and (result.complete or not complete):
                return output, result


@ROLES
@on_both_backends
async def test_session_is_started_continued_and_terminated(settings, role):
    async with connect(settings, role) as client:
        service = acpterm.TerminalService(client, intervals=QUICK)
        session = await service.start_interactive_session(
            "echo Server starting...; read x; echo got $x; read y"
        )
        number = int(session.removeprefix("term-"))
        other = await service.start_interactive_session("read x; echo over; exit 7")
        assert other == f"term-{number + 1}"
        output, first = await retrieve(service, session, "Server starting...\n")
        assert (output, first.complete) == ("Server starting...\n", False)
        assert first.position == len("Server starting...\r\n")
        await service.send_input_to_session(session, "y\n")
        output, second = await retrieve(service, session, "got y\n")
        assert (output, second.complete) == ("y\ngot y\n", False)
        everything = await service.get_complete_session_output(session)
        assert everything == "Server starting...\ny\ngot y\n"
        provider = service.require_active_terminal()
        status = await provider.get_session_status(session)
        assert (status.id, status.running, status.exit_code) == (session, True, None)
        assert abs(status.start_time - time.time()) < 60
        assert status.output_length == second.position
        records = service.state.list_sessions()
        assert [(each.id, each.last_position) for each in records] == [
            (session, second.position),
            (other, 0),
        ]
        await service.send_input_to_session(other, "\n")
        output, ended = await retrieve(service, other, "over\n", complete=True)
        assert (output, ended.complete) == ("\nover\n", True)
        assert service.state.get_session(other) is None
        again = await service.retrieve_session_output(other)
        assert again == acpterm.SessionOutput("", ended.position, True)
        assert (await provider.get_session_status(other)).exit_code == 7
        assert await service.get_complete_session_output(other) == "\nover\n"
        await service.terminate_session(session)
        assert await provider.get_session_status(session) is None
        assert service.state.list_sessions() == []
        why = f"no session '{session}'; there are: {other}"
        with pytest.raises(acpterm.AcptermError, match=why):
            await service.send_input_to_session(session, "x")
        await service.shutdown()
        assert await client.terminals() == []


@pytest.mark.costly
@on_both_backends
async def test_python_is_used_interactively(settings):
    async with connect(settings, "agent") as client:
        service = acpterm.TerminalService(client, intervals=QUICK)
        # The other REPL, of Python 3.13, moves the cursor after each prompt.
        session = await service.start_interactive_session(
            f"PYTHON_BASIC_REPL=1 {sys.executable} -q"
        )
        await retrieve(service, session, ">>> ")
        await service.send_input_to_session(session, 'print("Hello from Python")\n')
        await retrieve(service, session, "\nHello from Python\n>>> ")
        await service.send_input_to_session(session, "x = 42\nprint(x * 2)\n")
        await retrieve(service, session, "\n84\n>>> ")
        await service.terminate_session(session)


@on_both_backends
async def test_levels_of_commands_are_those_of_the_policy(settings):
    async with connect(settings, "user") as client:
        level = acpterm.TerminalService(client).get_command_safety_level
        assert level("rm -rf /") == "dangerous"
        assert level("my_custom_script.sh") == "unknown"
        assert level("ls -la") == "safe"
        assert level("npm install") == "safe"
        assert level("ls && sudo ls") == "dangerous"


COMPOUND = {
    'git add . && git commit -m "test" || echo "failed"': [
        *("git", "add", ".", "git", "commit", "-m", '"test"', "echo", '"failed"'),
    ],
    "cat a|grep b;ls": ["cat", "a", "grep", "b", "ls"],
    "echo 'a && b' \"c; d\" e\\;f": ["echo", "'a && b'", '"c; d"', "e\\;f"],
    "make 2>&1 | tee log": ["make", "2>&1", "tee", "log"],
    "": [],
    " ;; && ": [],
    "echo 'open": ["echo", "'open"],
}


@pytest.mark.parametrize("command", COMPOUND)
def test_compound_command_is_split_into_words(command):
    service = acpterm.TerminalService.parse_compound_command
    assert service(None, command) == COMPOUND[command]


def test_splitting_a_long_command_takes_linear_time():
    started = time.monotonic()
    for command in ('"' * 100_000, "\\" * 100_001, "a" * 1_000_000, "&" * 100_001):
        acpterm.TerminalService.parse_compound_command(None, command)
    assert time.monotonic() - started < DEADLINE_S


class Elsewhere:
    """A provider that runs nothing: its results are fixed, or made of the arguments."""

    def __init__(self, client=None):
        self.client = client

    async def execute_command(self, command, args, options):
        await anyio.lowlevel.checkpoint()
        return acpterm.Success(f"{command} {args} {options.timeout_seconds:g}")

    async def start_interactive_session(self, *_):
        await anyio.lowlevel.checkpoint()
        return "mine"

    async def collect_output(self, _id, from_position, _wait):
        await anyio.lowlevel.checkpoint()
        return acpterm.InteractiveTerminalOutput("abc"[from_position:], 3, False)

    async def terminate_session(self, _id):
        await anyio.lowlevel.checkpoint()
        raise OSError("unreachable")

    def get_isolation_level(self):
        return "container"


@on_both_backends
async def test_providers_are_registered_and_selected(settings):
    async with connect(settings, "user") as client:
        service = acpterm.TerminalService(client)
        builtin = ["local", "landlock", "bubblewrap", "podman", "docker"]
        assert service.get_available_providers() == builtin
        assert service.state.provider_name == "local"
        assert service.require_active_terminal().get_isolation_level() == "none"
        mine = Elsewhere()
        service.register_terminal_provider("my-provider", mine)
        assert service.get_available_providers() == [*builtin, "my-provider"]
        assert service.require_terminal_provider_by_name("my-provider") is mine
        service.set_active_terminal("my-provider")
        assert service.require_active_terminal() is mine
        assert (await service.execute_command("x", ["y"])).output == "x ['y'] 120"
        assert await service.start_interactive_session("x") == "mine"
        assert (await service.retrieve_session_output("mine")).output == "abc"
        assert (await service.retrieve_session_output("mine")).output == ""
        assert await service.get_complete_session_output("mine") == "abc"
        with pytest.raises(acpterm.AcptermError, match="no provider 'none'; there are local, "):
            service.set_active_terminal("none")
        assert service.require_active_terminal() is mine
        levels = {name: service.require_terminal_provider_by_name(name) for name in builtin}
        assert [each.get_isolation_level() for each in levels.values()] == [
            *("none", "sandbox", "sandbox", "container", "container"),
        ]


@on_both_backends
async def test_output_is_returned_once_when_the_state_has_lost_the_session(settings):
    async with connect(settings, "user") as client:
        service = acpterm.TerminalService(client)
        service.register_terminal_provider("my-provider", Elsewhere())
        service.set_active_terminal("my-provider")
        before = service.state.serialize()
        await service.start_interactive_session("x")
        assert (await service.retrieve_session_output("mine")).output == "abc"
        service.state.deserialize(before)
        assert (await service.retrieve_session_output("mine")).output == ""


class Ending(Elsewhere):
    """A provider whose session ends when it is terminated; its output is complete after that."""

    def __init__(self):
        super().__init__()
        self.collecting = anyio.Event()
        self.terminated = anyio.Event()

    async def collect_output(self, _id, _from_position, _wait):
        self.collecting.set()
        await self.terminated.wait()
        return acpterm.InteractiveTerminalOutput("abc", 3, True)

    async def terminate_session(self, _id):
        await anyio.lowlevel.checkpoint()


@on_both_backends
async def test_service_keeps_nothing_of_a_session_that_is_terminated_during_a_call(settings):
    async with connect(settings, "user") as client:
        service = acpterm.TerminalService(client)
        provider = Ending()
        service.register_terminal_provider("my-provider", provider)
        service.set_active_terminal("my-provider")
        session = await service.start_interactive_session("x")
        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(service.retrieve_session_output, session)
                await provider.collecting.wait()
                await service.terminate_session(session)
                provider.terminated.set()
        kept = [name for name, value in vars(service).items() if session in repr(value)]
        assert kept == []


@on_both_backends
async def test_shutdown_terminates_all_sessions_when_a_provider_raises_an_error(settings):
    async with connect(settings, "user") as client:
        service = acpterm.TerminalService(client)
        service.register_terminal_provider("my-provider", Elsewhere())
        service.set_active_terminal("my-provider")
        await service.start_interactive_session("x")
        service.set_active_terminal("local")
        await service.start_interactive_session("sleep 60")
        with pytest.raises(ExceptionGroup) as raised:
            await service.shutdown()
        assert [str(error) for error in raised.value.exceptions] == ["unreachable"]
        assert service.state.list_sessions() == []
        with pytest.raises(acpterm.AcptermError, match="no session 'mine'; there are: none"):
            await service.retrieve_session_output("mine")
        assert await client.terminals() == []


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """Install a package with entry points in a directory of the import path."""
    package = tmp_path / "elsewhere-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1\n")
    (package / "entry_points.txt").write_text(
        "[acpterm.providers]\n"
        "elsewhere = elsewhere_plugin:Elsewhere\n"
        "broken = elsewhere_plugin:No\n"
    )
    (tmp_path / "elsewhere_plugin.py").write_text(
        "from tests.api.test_service import Elsewhere as Base\nclass Elsewhere(Base): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("elsewhere_plugin", None)


@on_both_backends
async def test_plugin_is_a_provider_that_is_loaded_when_it_is_used(settings, plugins):
    async with connect(settings, "user") as client:
        service = acpterm.TerminalService(client)
        assert service.get_available_providers()[-2:] == ["elsewhere", "broken"]
        assert "elsewhere_plugin" not in sys.modules
        service.set_active_terminal("elsewhere")
        assert service.require_active_terminal().client is client
        assert (await service.execute_command("x")).status == "success"
        with pytest.raises(acpterm.AcptermError, match="'broken' cannot be loaded"):
            service.set_active_terminal("broken")


METHODS = [
    *("execute_command", "run_script", "start_interactive_session", "send_input_to_session"),
    *("retrieve_session_output", "get_complete_session_output", "terminate_session"),
    *("get_command_safety_level", "parse_compound_command", "require_active_terminal"),
    *("set_active_terminal", "register_terminal_provider", "require_terminal_provider_by_name"),
    "get_available_providers",
]
PROVIDER_METHODS = [
    *("execute_command", "run_script", "start_interactive_session", "send_input"),
    *("collect_output", "terminate_session", "get_session_status", "get_isolation_level"),
]
MEMBERS = {
    acpterm.ExecuteCommandOptions: {"input", "timeoutSeconds", "env", "workingDirectory"},
    acpterm.Success: {"status", "output"},
    acpterm.BadExitCode: {"status", "output", "exitCode"},
    acpterm.Timeout: {"status"},
    acpterm.UnknownError: {"status", "error"},
    acpterm.OutputWaitOptions: {"minInterval", "settleInterval", "maxInterval"},
    acpterm.InteractiveTerminalOutput: {"output", "newPosition", "isComplete", "exitCode"},
    acpterm.SessionOutput: {"output", "position", "complete"},
    acpterm.SessionStatus: {"id", "running", "startTime", "outputLength", "exitCode"},
    TerminalState: {"providerName", "bash", "interactiveConfig", "sessions"},
    SessionRecord: {"id", "command", "lastPosition", "startTime", "running"},
}


def test_service_has_the_documented_methods():
    service = acpterm.TerminalService
    assert all(callable(getattr(service, name)) for name in METHODS)
    assert isinstance(service.name, str)
    assert isinstance(service.description, str)


def test_provider_has_the_documented_methods():
    defined = [name for name in vars(acpterm.TerminalProvider) if not name.startswith("_")]
    assert defined == PROVIDER_METHODS


@each_case("kind", MEMBERS)
def test_types_have_the_documented_members(kind):
    assert set(kind.__struct_encode_fields__) == MEMBERS[kind]


@on_both_backends
async def test_missing_provider_is_an_error(settings):
    async with connect(settings, "user") as client:
        service = acpterm.TerminalService(client)
        with pytest.raises(acpterm.AcptermError, match="there is no provider 'none'"):
            service.require_terminal_provider_by_name("none")
        with pytest.raises(acpterm.AcptermError, match="there is no provider 'none'"):
            service.set_active_terminal("none")
        service.state.provider_name = None
        with pytest.raises(acpterm.AcptermError, match="no provider is active"):
            service.require_active_terminal()
        with pytest.raises(acpterm.AcptermError, match="no provider is active"):
            await service.execute_command("true")


@pytest.mark.long
def test_state_can_be_stored_restored_and_shown():
    state = TerminalState("local")
    state.register_session("term-1", "npm run dev")
    state.update_session_position("term-1", 1024)
    stored = state.serialize()
    assert stored["bash"] == {"cropOutput": 10000, "timeoutSeconds": 60.0}
    assert stored["interactiveConfig"] == {
        "minInterval": 1.0,
        "settleInterval": 2.0,
        "maxInterval": 30.0,
    }
    restored = TerminalState()
    restored.deserialize(msgspec.json.decode(msgspec.json.encode(stored)))
    assert restored == state
    record = restored.get_session("term-1")
    assert isinstance(record, SessionRecord)
    assert (record.command, record.last_position, record.running) == ("npm run dev", 1024, True)
    assert state.show() == ["Provider: local", "Sessions: 1", "  term-1: npm run dev"]
    state.remove_session("term-1")
    assert state.list_sessions() == []
