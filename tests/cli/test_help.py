"""What the command line says of itself, and how it fails."""

import subprocess

import pytest

from acpterm import __version__
from acpterm.cli import _aliases
from acpterm.cli.main import SHORT
from tests.support.processes import environment
from tests.support.starting import ACPTERM, start


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `acpterm` to its end, with an input that has ended."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start(list(arguments), env=environment(**env), **pipes) as process:
        try:
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    return subprocess.CompletedProcess(arguments, process.returncode, out.decode(), err.decode())


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_command(flag):
    done = run(flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: acpterm" in done.stdout
    for command in ("serve", "stdio"):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("serve", ["--socket PATH", "--config FILE", "--log-level", "--log-format", "SIGTERM"]),
        (
            "stdio",
            ["--socket PATH", "--embedded", "--config FILE", "--log-level", "stdin and stdout"],
        ),
    ],
)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_of_a_command_names_its_flags(command, says, flag):
    done = run(command, flag)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Usage: acpterm {command}" in done.stdout
    assert [text for text in says if text not in done.stdout] == []


def test_version():
    done = subprocess.run([*ACPTERM, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"acpterm, version {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["unknown"], "there is no command 'unknown': acpterm --help lists all commands"),
        (["atach"], "there is no command 'atach': did you mean attach?"),
        (["LS"], "there is no command 'LS': did you mean ls"),
        (["send-keys", "-t", "x"], "use acpterm send TERMINAL TEXT --enter, or --key NAME"),
        (["help", "atach"], "did you mean attach?"),
        (
            ["prompt", "x", "--allow", "all", "kimi", "--acp"],
            "put -- before the agent's command: acpterm prompt x --allow all -- kimi --acp",
        ),
        (["prompt", "x", "--allow", "all"], "say which agent: end the line with -- AGENT"),
        (
            ["proxy", "npx", "-y", "x"],
            "put -- before the agent's command: acpterm proxy -- npx -y x",
        ),
        (["proxy", "--embedded", "a b"], "acpterm proxy --embedded -- 'a b'"),
        (["prompt", "do it", "x", "-v"], "acpterm prompt 'do it' -- x -v"),
        (["proxy", "--unknown", "x"], "No such option"),
        (["prompt", "x"], "say which agent"),
        (["serve", "--unknown"], "No such option"),
        (["serve", "--log-level", "loud"], "'loud' is not one of"),
        (["serve", "--socket"], "requires an argument"),
        (["stdio", "surplus"], "unexpected extra argument"),
    ],
)
def test_a_wrong_command_line_ends_with_status_2(arguments, says):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "command"),
    [("list", "ls"), ("ps", "ls"), ("a", "attach"), ("new", "run"), ("stop", "kill")],
)
def test_command_has_another_name(name, command):
    done = run(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run(command, "--help").stdout
    assert run("help", name).stdout == done.stdout


def test_help_and_version_are_commands_too():
    assert run("help").stdout == run("--help").stdout
    assert run("version").stdout == run("--version").stdout


def test_every_other_name_leads_to_a_command():
    for name, instead in _aliases._ELSEWHERE.items():
        assert instead.split()[0].rstrip(",") in SHORT
        assert name not in SHORT
    assert set(_aliases.ALIASES.values()) <= set(SHORT)


def test_no_command_is_answered_with_help():
    done = run()
    assert done.returncode in (0, 2)
    assert "Usage: acpterm" in done.stdout + done.stderr


# Settings


def refused(*arguments: str, **env: str) -> str:
    """Run `acpterm`, and check that settings are refused in one clear line: that."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start([*arguments], env=environment(**env), **pipes) as process:
        out, err = process.communicate(timeout=30)
    said = err.decode()
    assert (process.returncode, out) == (1, b"")
    assert said.startswith("acpterm: ")
    assert len(said.splitlines()) == 1
    return said


@pytest.mark.parametrize("command", ["serve", "stdio"])
def test_a_bad_value_of_the_environment_is_named(command):
    said = refused(command, ACPTERM_COLS="wide")
    assert "the environment's ACPTERM_COLS: cols = 'wide': Expected `int`, got `str`" in said


@pytest.mark.parametrize("command", ["serve", "stdio"])
@pytest.mark.parametrize("how", ["flag", "environment", "default"])
def test_a_bad_value_in_the_file_is_named_with_the_file(tmp_path, command, how):
    file = tmp_path / "acpterm" / "config.toml"
    file.parent.mkdir()
    file.write_text("rows = 0\n")
    if how == "flag":
        said = refused(command, "--config", str(file))
    elif how == "environment":
        said = refused(command, ACPTERM_CONFIG=str(file))
    else:
        said = refused(command, XDG_CONFIG_HOME=str(tmp_path))
    assert f"{file}: rows = 0: Expected `int` >= 1" in said


def test_a_file_that_is_named_and_not_there_is_an_error(tmp_path):
    file = str(tmp_path / "none.toml")
    said = refused("serve", "--config", file)
    assert said == f"acpterm: {file}: cannot be read: No such file or directory\n"


def test_settings_reach_the_host(tmp_path):
    """From all three sources; the later ones win."""
    file = tmp_path / "settings.toml"
    file.write_text('log_level = "debug"\nmax_message_bytes = 2000\nlog_format = "text"\n')
    line = '{"jsonrpc":"2.0","method":"x","params":"' + "x" * 1200 + '","id":1}\n'
    done = subprocess.run(
        [*ACPTERM, "stdio", "--embedded", "--config", str(file), "--log-format", "json"],
        env=environment(ACPTERM_MAX_MESSAGE_BYTES="1024"),
        input=line,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
    assert "at most 1024" in done.stdout
    assert all(line.startswith("{") for line in done.stderr.splitlines())
    assert '"event":"message refused"' in done.stderr


def test_a_command_pays_for_nothing_that_it_does_not_need():
    script = (
        "import atexit, sys\n"
        "from acpterm.cli import main\n"
        "names = ('trio', 'msgspec', 'structlog')\n"
        "atexit.register(lambda: print([name for name in names if name in sys.modules]))\n"
        "sys.argv[1:] = ['--help']\n"
        "main()\n"
    )
    done = subprocess.run(
        [ACPTERM[0], "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
