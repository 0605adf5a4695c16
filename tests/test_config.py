"""Settings: their sources, the precedence of these, and the errors for invalid values."""

import msgspec
import pytest

from acpterm.config import ConfigError, Settings, default_file, default_socket, load
from acpterm.config.http import parse_address
from acpterm.config.places import SshPlace
from tests.support.cases import each_case


@pytest.fixture(autouse=True)
def _no_file(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture
def file(tmp_path):
    """Return a function that writes the settings file at its default path, and returns the path."""

    def write(text: str | bytes):
        path = tmp_path / "config" / "acpterm" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_every_setting_has_a_default():
    assert load(environ={}) == Settings()
    assert Settings().cols == 200
    assert Settings().rows == 40
    assert Settings().output_bytes == 1 << 20
    assert Settings().max_output_bytes == 16 << 20


def test_every_setting_has_a_title():
    for field in msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"].values():
        assert field["title"].endswith(".")


def test_later_source_wins_for_each_setting(file):
    file('cols = 1\nrows = 1\nlog_level = "debug"\n')
    environ = {"ACPTERM_ROWS": "2", "ACPTERM_LOG_LEVEL": "error"}
    settings = load(environ=environ, flags={"log_level": "warning", "socket": None})
    assert (settings.cols, settings.rows, settings.log_level) == (1, 2, "warning")
    assert settings.socket is None


def test_flag_for_the_file_takes_precedence_over_the_environment_variable(file, tmp_path):
    file("cols = 1\n")
    by_variable, by_flag = tmp_path / "variable.toml", tmp_path / "flag.toml"
    by_variable.write_text("cols = 2\n")
    by_flag.write_text("cols = 3\n")
    assert load(environ={}).cols == 1
    assert load(environ={"ACPTERM_CONFIG": str(by_variable)}).cols == 2
    assert load(str(by_flag), environ={"ACPTERM_CONFIG": str(by_variable)}).cols == 3


@each_case(
    ("variable", "value", "name", "expected"),
    [
        ("ACPTERM_COLS", "80", "cols", 80),
        ("ACPTERM_KILL_GRACE", "0.5", "kill_grace", 0.5),
        ("ACPTERM_KILL_GRACE", "1", "kill_grace", 1.0),
        ("ACPTERM_SIGNAL_EXIT_CODE", "false", "signal_exit_code", False),
        ("ACPTERM_SIGNAL_EXIT_CODE", "1", "signal_exit_code", True),
        ("ACPTERM_SIGNAL_EXIT_CODE", "auto", "signal_exit_code", "auto"),
        (
            "ACPTERM_AGENT_ENV",
            "GH_PAGER='less -S' LESS=",
            "agent_env",
            {"GH_PAGER": "less -S", "LESS": ""},
        ),
        ("ACPTERM_SOCKET", "/run/x", "socket", "/run/x"),
        ("ACPTERM_SHELL", "/bin/dash", "shell", "/bin/dash"),
        ("ACPTERM_TRACKING", "subreaper", "tracking", "subreaper"),
        ("ACPTERM_DETACH_KEY", "C-b d", "detach_key", "C-b d"),
    ],
)
def test_environment_text_is_converted_to_the_type_of_the_setting(variable, value, name, expected):
    assert getattr(load(environ={variable: value}), name) == expected


def test_unknown_environment_variables_are_ignored():
    assert load(environ={"ACPTERM_TERMINAL_ID": "term_1", "ACPTERM_UNKNOWN": "x"}) == Settings()


@each_case(
    ("name", "value", "expected"),
    [
        ("cols", "0", ">= 1"),
        ("cols", "10001", "<= 10000"),
        ("cols", "1.5", "Expected `int`"),
        ("cols", "", "Expected `int`"),
        ("rows", "x", "Expected `int`"),
        ("output_bytes", "-1", ">= 0"),
        ("max_message_bytes", "1023", ">= 1024"),
        ("kill_grace", "-0.1", ">= 0"),
        ("kill_grace", "61", "<= 60"),
        ("kill_grace", "nan", "kill_grace = 'nan'"),
        ("kill_grace", "inf", "kill_grace = 'inf'"),
        ("signal_exit_code", "maybe", "Invalid enum value 'maybe'"),
        ("agent_env", "PAGER", "'PAGER' is not NAME=VALUE"),
        ("agent_env", "=x", "no environment can hold a variable ''"),
        ("agent_env", "A='", "No closing quotation"),
        ("log_level", "loud", "Invalid enum value 'loud'"),
        ("tracking", "none", "Invalid enum value 'none'"),
        ("detach_key", "C-5", "a terminal has no key 'C-5': Ctrl goes with letters"),
        ("detach_key", " ", "no key is named"),
        ("socket", "agent.sock", "is not an absolute path"),
        ("user_socket", "./user.sock", "is not an absolute path"),
        ("record_dir", "~/recordings", "is not an absolute path"),
        ("shell", "bash", "is not an absolute path"),
    ],
)
def test_error_names_the_source_of_an_invalid_value(name, value, expected):
    variable = f"ACPTERM_{name.upper()}"
    with pytest.raises(ConfigError) as caught:
        load(environ={variable: value})
    assert str(caught.value).startswith(f"the environment's {variable}: {name} = {value!r}: ")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cols = 0\n", "cols = 0: Expected `int` >= 1"),
        ("cols = []\n", "cols = []: Expected `int`, got `array`"),
        ("kill_grace = nan\n", "kill_grace = nan: "),
        ('cols = "80"\n', "cols = '80': Expected `int`, got `str`"),
        ('idle_exit = "600"\n', "idle_exit = '600': Expected `float`, got `str`"),
        ('signal_exit_code = "true"\n', "signal_exit_code = 'true': Invalid enum value 'true'"),
        ("agent_env = { A = 1 }\n", "agent_env = {'A': 1}: Expected `str`, got `int`"),
        ('agent_env = { "A=" = "x" }\n', "no environment can hold a variable 'A='"),
        ('detach_key = "C-Enter"\n', "detach_key = 'C-Enter': a terminal has no key 'C-Enter'"),
        ('detach_key = "C-b Nothing"\n', "detach_key = 'C-b Nothing': there is no key 'Nothing'"),
        ('socket = "agent.sock"\n', "socket = 'agent.sock': is not an absolute path"),
        ("shell = 7\n", "shell = 7: Expected `str`, got `int`"),
        ("columns = 1\n", "there is no setting 'columns'; there are socket, user_socket"),
        ("[table]\nx = 1\n", "there is no setting 'table'"),
        ("cols = \n", "is not TOML: "),
        ("cols = 1\ncols = 2\n", "is not TOML: "),
        (b"\xff\xfe", "is not TOML: "),
        (b"shell = '\x00'\n", "is not TOML: "),
    ],
)
def test_error_names_the_file_of_an_invalid_setting(file, text, expected):
    path = file(text)
    with pytest.raises(ConfigError) as caught:
        load(environ={})
    assert str(caught.value).startswith(f"{path}: ")
    assert expected in str(caught.value)


def test_file_may_have_an_integer_for_a_float_setting(file):
    file("kill_grace = 1\nidle_exit = 0.5\n")
    settings = load(environ={})
    assert (settings.kill_grace, settings.idle_exit) == (1.0, 0.5)


def test_error_names_an_invalid_flag():
    with pytest.raises(ConfigError, match="the flags: cols = 0: "):
        load(environ={}, flags={"cols": 0})


def test_path_of_a_flag_is_relative_to_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load(environ={}, flags={"socket": "run/a.sock"}).socket == f"{tmp_path}/run/a.sock"
    assert load(environ={}, flags={"socket": "/run/a.sock"}).socket == "/run/a.sock"


def test_replaced_value_is_not_checked(file):
    file("cols = 0\n")
    assert load(environ={"ACPTERM_COLS": "7"}).cols == 7


def test_directory_in_place_of_the_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(str(tmp_path), environ={})


def test_default_paths_are_in_the_users_directories(tmp_path):
    assert default_socket() == str(tmp_path / "runtime" / "acpterm" / "agent.sock")
    assert default_file() == str(tmp_path / "config" / "acpterm" / "config.toml")


def test_places_are_tables_of_hosts(file):
    file(
        'provider = "ssh:a"\n[ssh.a]\nhost = "me@a.example.org"\n'
        '[ssh.a.directories]\n"/work" = "/w"\n'
        '[profiles.far]\nprovider = "ssh:b"\nplaces = ["ssh:*"]\n[ssh.b]\n'
    )
    settings = load(environ={})
    assert settings.places == {
        "ssh:a": SshPlace(host="me@a.example.org", directories={"/work": "/w"}),
        "ssh:b": SshPlace(),
    }
    assert settings.provider == "ssh:a"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[ssh.a]\nhost = '-oProxyCommand=x'\n", "is no destination"),
        ("[ssh.a]\nhost = ''\n", "is no destination"),
        ("[ssh.'a b']\n", "cannot be the name of a place"),
        ("[ssh.a]\nport = 22\n", r"\[ssh.a\]: there is no key 'port'; there are host, directories"),
        ("[ssh.a]\nsessions = 'x'\n", r"\[ssh.a\]: sessions = 'x': Expected `int`, got `str`$"),
        ("[ssh.a]\nconfig = '~/x'\n", r"\[ssh.a\]: config = '~/x': is not an absolute path$"),
        ("[ssh]\na = 1\n", r"\[ssh.a\]: 1 is not a table"),
        (
            "[slurm.a]\n[slurm.b]\nmemory = '4 bananas'\n",
            r"toml: \[slurm.b\]: memory = '4 bananas': Slurm has no such memory; it must be .*4G$",
        ),
        (
            "[slurm.a]\nrequests = ['nodes']\n",
            r"requests = \['nodes'\]: Invalid enum value 'nodes'; there are partition, .*, gpus$",
        ),
        ("[ssh.a]\n[ssh.a.directories]\nwork = '/w'\n", "'work': is not an absolute path"),
        ("[ssh.a]\nkeeper = 'acpterm'\n", "'acpterm': is not an absolute path"),
        ("provider = 'ssh:a'\n", r"there is not a table \[ssh.a\]; the providers are local"),
        ("provider = 'jail'\n", "there is not such a provider"),
        ("[profiles.far]\nprovider = 'ssh:a'\n", "profiles.far.provider = 'ssh:a'"),
    ],
)
def test_invalid_place_is_refused(file, text, problem):
    file(text)
    with pytest.raises(ConfigError, match=problem):
        load(environ={})


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("127.0.0.1", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_http_address_is_an_ip_address_and_a_port(address, parsed):
    assert parse_address(address) == parsed
    assert load(environ={"ACPTERM_HTTP": address}).http == address


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":80",
        "80",
        "127.0.0.1",
        "127.0.0.1:",
        "::1:80",
        "[127.0.0.1]:80",
        "a.b:80",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:\u0663",
        "[::1:80",
    ],
)
def test_http_address_of_another_form_is_an_error(address):
    with pytest.raises(ConfigError, match="is not ADDRESS:PORT"):
        load(environ={"ACPTERM_HTTP": address})


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"http": "0.0.0.0:80"}, "set http_remote"),
        ({"http": "192.0.2.7:80"}, "set http_remote"),
        ({"http": "192.0.2.7:80", "http_remote": True}, "nothing would be encrypted"),
        (
            {"http": "192.0.2.7:80", "http_remote": True, "http_origins": ["http://a.example"]},
            "nothing would be encrypted",
        ),
        (
            {
                "http": "0.0.0.0:80",
                "http_remote": True,
                "http_certificate": "/c",
                "http_key": "/k",
            },
            "name those that browsers use in http_origins",
        ),
        ({"http": "127.0.0.1:80", "http_certificate": "/c"}, "belong together"),
    ],
)
def test_http_server_that_would_be_unsafe_is_an_error(settings, wrong):
    with pytest.raises(ConfigError, match=wrong):
        load(environ={}, flags=settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"http": "127.0.0.1:80"},
        {"http": "[::1]:80"},
        {"http": "192.0.2.7:80", "http_remote": True, "http_origins": ["https://a.example"]},
        {
            "http": "192.0.2.7:443",
            "http_remote": True,
            "http_certificate": "/c",
            "http_key": "/k",
        },
    ],
)
def test_http_server_that_is_safe_is_accepted(settings):
    assert load(environ={}, flags=settings).http == settings["http"]


def test_http_origins_are_separated_by_spaces_in_the_environment():
    environ = {"ACPTERM_HTTP_ORIGINS": "https://a.example http://localhost:9000"}
    assert load(environ=environ).http_origins == ["https://a.example", "http://localhost:9000"]


@pytest.mark.parametrize(
    "origin",
    [
        "a.example",
        "https://a.example/",
        "https://A.example",
        "ftp://a.example",
        "https://",
        "null",
        "*",
        "https://u@a.example",
        "https://a.example?x",
        "https://a.example:x",
        "https://a.example:443",
        "http://a.example:80",
        "http://*.a.example",
    ],
)
def test_http_origin_that_no_browser_sends_is_an_error(origin):
    with pytest.raises(ConfigError, match="is not an origin"):
        load(environ={}, flags={"http_origins": [origin]})
