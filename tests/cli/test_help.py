"""Help, aliases, and errors of the command line and of settings."""

import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from acpterm import __version__
from acpterm.cli.main import _ELSEWHERE, ALIASES, GROUPS, SHORT
from tests.support.cases import each_case
from tests.support.commands import Result, run_here
from tests.support.processes import environment
from tests.support.starting import ACPTERM


def run(*arguments: str, **env: str) -> Result:
    return run_here(list(arguments), environment(**env))


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_command_by_group(flag):
    done = run(flag, COLUMNS="80")
    assert (done.status, done.err) == (0, "")
    assert "Usage: acpterm" in done.out
    _, _, *parts = done.out.split("\n\n")
    listed = {}
    for part in parts[1:]:
        title, *lines = part.splitlines()
        found = [re.fullmatch(r"  (\S+) +(\S.*)", line) for line in lines]
        listed[title.removesuffix(":")] = dict(line.groups() for line in found)
    assert listed == GROUPS


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("serve", ["--socket PATH", "--config FILE", "--log-level", "--log-format", "SIGTERM"]),
        (
            "stdio",
            ["--socket PATH", "--embedded", "--config FILE", "--log-level", "stdin and stdout"],
        ),
    ],
)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_of_a_command_names_its_flags(command, expected, flag):
    done = run(command, flag)
    assert (done.status, done.err) == (0, "")
    assert f"Usage: acpterm {command}" in done.out
    assert [text for text in expected if text not in done.out] == []


@pytest.mark.costly
@pytest.mark.parametrize("argument", ["--version", "-V", "-v", "version"])
def test_version_and_commit_are_printed(argument):
    done = subprocess.run([*ACPTERM, argument], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    root = Path(__file__).parents[2]
    git = ["git", "-C", root, "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    assert done.stdout == f"acpterm, version {__version__} (commit {commit})\n"


@pytest.mark.long
@each_case(
    ("arguments", "expected"),
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
def test_command_exits_with_2_and_advice_at_an_invalid_command_line(arguments, expected):
    done = run(*arguments)
    assert (done.status, done.out) == (2, "")
    assert expected in done.err
    assert "Traceback" not in done.err


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "command"),
    [("list", "ls"), ("ps", "ls"), ("a", "attach"), ("new", "run"), ("stop", "kill")],
)
def test_alias_prints_the_help_of_its_command(name, command):
    done = run(name, "--help")
    assert (done.status, done.err) == (0, "")
    assert done.out == run(command, "--help").out
    assert run("help", name).out == done.out


def test_help_and_version_work_as_commands():
    assert run("help").out == run("help", "help").out == run("--help").out
    assert run("version").out == run("--version").out


def test_every_alias_leads_to_a_command():
    for name, instead in _ELSEWHERE.items():
        assert instead.split()[0].rstrip(",") in SHORT
        assert name not in SHORT
    assert set(ALIASES.values()) <= set(SHORT)


def test_acpterm_prints_its_help_without_a_command():
    # Since click 8.2 a missing command is an error: status 2, and the help is on stderr.
    since_8_2 = tuple(map(int, version("click").split(".")[:2])) >= (8, 2)
    text = run("--help").out
    expected = (2, "", text) if since_8_2 else (0, text, "")
    done = run()
    assert (done.status, done.out, done.err) == expected


# Settings


def error_of_settings(*arguments: str, **env: str) -> str:
    """Check that `acpterm` refuses its settings with a message of one line; return the message."""
    done = run(*arguments, **env)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("acpterm: ")
    assert len(done.err.splitlines()) == 1
    return done.err


@pytest.mark.parametrize("command", ["serve", "stdio"])
def test_error_names_the_variable_of_an_invalid_setting(command):
    message = error_of_settings(command, ACPTERM_COLS="wide")
    assert "the environment's ACPTERM_COLS: cols = 'wide': Expected `int`, got `str`" in message


@pytest.mark.parametrize("command", ["serve", "stdio"])
@pytest.mark.parametrize("source", ["flag", "environment", "default"])
def test_error_names_the_file_of_an_invalid_setting(tmp_path, command, source):
    file = tmp_path / "acpterm" / "config.toml"
    file.parent.mkdir()
    file.write_text("rows = 0\n")
    if source == "flag":
        message = error_of_settings(command, "--config", str(file))
    elif source == "environment":
        message = error_of_settings(command, ACPTERM_CONFIG=str(file))
    else:
        message = error_of_settings(command, XDG_CONFIG_HOME=str(tmp_path))
    assert f"{file}: rows = 0: Expected `int` >= 1" in message


def test_serve_fails_when_the_settings_file_is_missing(tmp_path):
    file = str(tmp_path / "none.toml")
    message = error_of_settings("serve", "--config", file)
    assert message == f"acpterm: {file}: cannot be read: No such file or directory\n"


@pytest.mark.long
def test_host_uses_settings_of_the_file_the_environment_and_flags(tmp_path):
    """The flags take precedence over the environment, which takes precedence over the file."""
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


def test_help_imports_no_slow_module():
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
