"""The pages in docs/ agree with the code."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
import trio

from acpterm.acp import agent_api, agent_meta
from acpterm.acp.base import Wire
from acpterm.cli.main import ALIASES, group
from acpterm.config import Settings
from acpterm.host.agent.methods import NOTIFICATIONS, REQUESTS
from acpterm.runtime import extras
from tests.support.cases import each_case
from tests.support.hosts import agent_here
from tests.support.polling import DEADLINE_S, poll, poll_blocking
from tests.support.processes import environment

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.glob("**/*.md")])
PROTOCOL = (DOCS / "protocol.md").read_text()
EXAMPLES = re.findall(r"^```json\n(.*?)^```", PROTOCOL, re.MULTILINE | re.DOTALL)
# Values that differ between runs.
VARIES = re.compile(
    r'"(\w+At|wallMs|cpuMs|maxRssBytes|pid|resume|waitingForInput)": '
    r'(\d+|true|false|"[0-9a-f]{64}")'
)


def load(name, monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date(monkeypatch):
    pages = load("generate", monkeypatch).pages()
    stale = [page for page, make in pages.items() if not _has_text(DOCS / page, make())]
    assert not stale, "run `make docs`"
    existing = {f"{page.relative_to(DOCS)}" for page in DOCS.glob("commands/*")}
    existing |= {f"{page.relative_to(DOCS)}" for page in DOCS.glob("man/*")}
    assert existing <= set(pages), "there are pages of commands that do not exist"


def _has_text(page, text):
    return page.exists() and page.read_text() == text


def test_makefile_installs_only_extras_that_the_package_has():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = re.findall(r"'\.\[([^\]]*)\]'", (ROOT / "Makefile").read_text())
    assert {name for names in lists for name in names.split(",")} <= set(
        project["optional-dependencies"]
    )


def test_no_page_installs_acpterm_from_an_index():
    """The name is not registered there: pip would install what a stranger registers."""
    installs = re.compile(
        r"(?:(?:pip|pipx|uv tool|uv pip) (?:install|upgrade|run)|uvx|uv add)(?: -[\w-]+)* "
        r"['\"]?acpterm\b|['\"`]acpterm\["
    )
    files = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Makefile"]
    for directory, kinds in ("docs", "md 1 py"), ("packaging", "md sh py"), ("acpterm", "py md"):
        files += [path for kind in kinds.split() for path in (ROOT / directory).rglob(f"*.{kind}")]
    lines = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in files
        for line in file.read_text().splitlines()
        if installs.search(line)
    ]
    assert lines == []


def test_install_page_has_a_line_that_links_the_manual_pages(tmp_path):
    (line,) = re.findall(r"^mkdir .*man1/$", (DOCS / "install.md").read_text(), re.MULTILINE)
    pages = tmp_path / "environment/share/man"
    pages.mkdir(parents=True)
    (pages / "man1").symlink_to(DOCS / "man")
    line = line.replace("ENVIRONMENT", str(tmp_path / "environment"))
    subprocess.run(["sh", "-ec", line], check=True, env=environment(HOME=str(tmp_path)))
    assert (tmp_path / ".local/share/man/man1/acpterm-ls.1").read_text().startswith(".TH")


def test_sandbox_section_says_first_that_only_terminals_are_isolated():
    section = (DOCS / "policy.md").read_text().partition("\n## Sandbox your agent")[2]
    assert "agent's *terminals*" in section.partition("\n\n")[2].partition(";")[0]


def test_page_of_the_web_begins_with_its_use():
    page = (DOCS / "web.md").read_text()
    assert re.findall("^## (.*)$", page, re.MULTILINE)[0] == "Use the page"


def test_missing_extras_name_the_packages_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    assert [list(extras.MCP), list(extras.WEB)] == [optional["mcp"], optional["web"]]


def test_settings_page_describes_every_setting():
    for name in Settings.__struct_fields__:
        assert f"| `{name}` |" in (DOCS / "settings.md").read_text()


# Commands whose options in the page are checked.
WITH_OPTIONS = {
    *("attach", "export", "inspect", "kill", "logs", "ls", "prompt", "replay", "rm", "run"),
    *("screen", "send", "wait"),
}


def test_coming_from_page_names_only_commands_and_options_that_exist():
    page = (DOCS / "coming-from.md").read_text()
    lines = re.findall(r"`acpterm ([a-z]+)((?: [^`]*)?)`", page)
    assert len(lines) > 50
    context = click.Context(group)
    for name, rest in lines:
        command = group.get_command(context, name)
        assert command is not None, name
        if name in WITH_OPTIONS:
            known = {option for param in command.params for option in param.opts}
            assert set(re.findall(r"(?<= )--?[a-z][a-z-]*", rest.partition(" -- ")[0])) <= known


def test_coming_from_page_names_all_aliases():
    paragraph = re.search(
        r"^Several commands .*?\n\n",
        (DOCS / "coming-from.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    groups = re.findall(
        r"`([a-z-]+)(?: COMMAND)?`(?: and `([a-z-]+)`)?\s\(`([^`]*)`\)", paragraph[0]
    )
    names = {name: target for *both, target in groups for name in both if name}
    assert names == {**ALIASES, "help": "COMMAND --help", "version": "--version"}


PACKAGE = ROOT / "acpterm"
ARCHITECTURE = (DOCS / "internals" / "architecture.md").read_text()


def test_architecture_lists_the_packages_in_the_layers_that_lint_imports_enforces():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    enforced = [sorted(re.findall(r"acpterm\.(\w+)", layer)) for layer in layers]
    section = re.search(r"^## Rooms$.*?^## ", ARCHITECTURE, re.MULTILINE | re.DOTALL)
    assert section is not None
    rows = re.findall(r"^\| (`.*?`) \|", section[0], re.MULTILINE)
    assert [sorted(re.findall(r"`(\w+)`", row)) for row in rows] == enforced
    # Nothing is without a layer.
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} | {"keys"}
    assert {name for layer in enforced for name in layer} == packages


def test_architecture_names_only_modules_that_exist():
    paths = re.findall(r"`(?:acpterm/)?(\w+/[\w/]*)(?:\.py)?`", ARCHITECTURE)
    named = {path for path in paths if (PACKAGE / path.partition("/")[0]).is_dir()}
    named -= set(REQUESTS)
    assert len(named) > 20
    assert {
        path
        for path in named
        if not (PACKAGE / path).is_dir() and not (PACKAGE / f"{path}.py").is_file()
    } == set()


def test_hacking_names_only_paths_that_exist():
    page = (DOCS / "internals" / "HACKING.md").read_text()
    paths = set(re.findall(r"`(\.?\w[\w.-]*/[\w./-]*)`", page))
    known = {
        path
        for path in paths
        if any((base / path.partition("/")[0]).is_dir() for base in (ROOT, PACKAGE))
    }
    assert len(known) > 30
    assert {
        path for path in known if not (ROOT / path).exists() and not (PACKAGE / path).exists()
    } == set()


@each_case("method", [*REQUESTS, *NOTIFICATIONS, "$/cancel_request"])
def test_protocol_page_has_a_heading_for_every_method(method):
    assert re.search(rf"^##? {re.escape(method)}$", PROTOCOL, re.MULTILINE)


@each_case(
    "name",
    sorted(
        {
            field
            for kind in (*vars(agent_api).values(), *vars(agent_meta).values())
            if isinstance(kind, type) and issubclass(kind, Wire) and kind is not Wire
            for field in kind.__struct_encode_fields__
            if not field.startswith("_")
        }
    ),
)
def test_protocol_page_describes_every_member_of_an_extension(name):
    assert re.search(rf"`([\w.]+\.)?{name}`", PROTOCOL)


@each_case("page", PAGES)
def test_json_examples_are_valid(page):
    for example in re.findall(r"^```json\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        for line in example.splitlines():
            json.loads(line)


@each_case("page", PAGES)
def test_relative_links_have_targets(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        file = page.parent / target if target else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, anchor


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.long
async def test_protocol_examples_match_a_real_host():
    """Send every request, in order, and compare the responses with the page."""
    ids = {}

    def with_real_ids(line):
        return re.sub(r"term_[0-9a-f]{32}", lambda match: ids[match[0]], line)

    def normalize(message):
        text = re.sub(r', "waitingProgram": "[^"]*"', "", json.dumps(message, sort_keys=True))
        return VARIES.sub(r'"\1": 0', text)

    async with agent_here() as agent:
        for example in EXAMPLES:
            messages = [json.loads(line) for line in example.splitlines()]
            positions = {m["id"]: m["result"].get("position") for m in messages if "result" in m}
            for message in messages:
                if "method" in message:
                    request = json.loads(with_real_ids(json.dumps(message)))
                    await _wait_for_output(agent, request, positions.get(message.get("id")))
                    await agent.send_message(**request)
                    agent.methods[message.get("id")] = message["method"]
                    continue
                answer = await poll(lambda m=message: agent.responses.get(m["id"]))
                if "terminalId" in message.get("result", {}):
                    ids[message["result"]["terminalId"]] = answer["result"]["terminalId"]
                assert normalize(answer) == with_real_ids(normalize(message))


async def _wait_for_output(agent, request, position):
    """Wait until the terminal of `request` has the output that the page's response reports."""
    with trio.fail_after(DEADLINE_S):
        while position is not None:
            params = {name: request["params"][name] for name in ("sessionId", "terminalId")}
            # The page's ids are numbers.
            id_ = await agent.start("_acpterm/terminal/get", params, "position")
            if (await agent.result(id_))["position"] >= position:
                return
            await trio.sleep(0.005)


def test_protocol_examples_have_a_response_for_every_request():
    requested = re.findall(r'"id":(\d+),"method"', PROTOCOL)
    answered = re.findall(r'"id":(\d+),"(?:result|error)"', PROTOCOL)
    assert sorted(requested) == sorted(answered)
    assert len(requested) == len(set(requested))


def run(*arguments, python=sys.executable, **more):
    return subprocess.run(
        [python, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=environment(**more),
    )


AGENT = DOCS / "examples" / "agent.py"
DEMO = DOCS / "examples" / "demo.py"


@pytest.fixture
def own_daemon(tmp_path):
    """Yield variables that select a separate daemon, which the test starts; wait for its end."""
    path = tmp_path / "agent.sock"
    yield {"ACPTERM_SOCKET": str(path), "ACPTERM_IDLE_EXIT": "0.5"}
    poll_blocking(lambda: not path.exists())


@pytest.mark.long
def test_example_agent_exits_with_the_exit_code_of_its_command(own_daemon):
    # As after `pipx install`: a Python without acpterm, and the command on the PATH.
    done = run(
        AGENT,
        "echo hello; exit 7",
        python=sys._base_executable,  # type: ignore[attr-defined]  # typeshed omits it
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        **own_daemon,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("hello\n", "", 7)


@pytest.mark.long
def test_example_agent_kills_its_command_after_the_timeout(own_daemon):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = run(AGENT, "--timeout", "5", "echo hello; sleep 60", PATH=path, **own_daemon)
    assert (done.stdout, done.returncode) == ("hello\n", 1)
    assert done.stderr == "agent: ended by SIGTERM\n"


@pytest.mark.exhaustive
@pytest.mark.long
def test_demo_passes_its_checks_without_a_terminal(tmp_path):
    done = run(DEMO, TMPDIR=str(tmp_path), FORCE_COLOR="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All 16 checks passed." in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert os.listdir(tmp_path) == []


@pytest.mark.long
def test_demo_reports_the_reason_when_a_check_fails(tmp_path):
    failing_demo = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import demo; "
        "demo.LINT = 'exit 4'; demo.STEPS = (demo.hello, demo.failure); sys.exit(demo.main())"
    )
    done = run("-c", failing_demo, DEMO.parent, TMPDIR=str(tmp_path))
    assert done.returncode == 1
    assert "Failed checks:\n   exit code 3; found {'exitCode': 4" in done.stdout
    assert os.listdir(tmp_path) == []


def test_moving_picture_is_small_and_has_no_paths_of_a_machine():
    picture = (DOCS / "acpterm.svg").read_text()
    assert len(picture) < 200_000
    assert "<animate " in picture
    assert not re.search(r"/(home|root|tmp|usr|work|var)\b|term_[0-9a-f]", picture)


def test_first_screen_of_the_readme_says_why_and_names_mcp_clients_first():
    first = (ROOT / "README.md").read_text().partition("\n## ")[0]
    assert "docs/acpterm.svg" in first
    assert "What you gain" in first
    assert "make demo" not in first
    rows = re.findall(r"^\| (?!---)(.*?) \|", first, re.MULTILINE)
    assert "MCP client" in rows[1]


@pytest.mark.exhaustive
@pytest.mark.long
def test_moving_picture_is_made_from_a_recording(tmp_path):
    done = run(DOCS / "moving_picture.py", tmp_path / "picture.svg")
    assert done.returncode == 0, done.stderr
    assert "uploaded" in (tmp_path / "picture.svg").read_text()


def test_picture_of_the_demo_is_small_and_has_no_paths_of_a_machine():
    picture = (DOCS / "demo.svg").read_text()
    assert len(picture) < 100_000
    assert "checks&#160;passed" in picture
    assert not re.search(r"/(home|root|tmp|usr|work|var)\b|term_[0-9a-f]", picture)
    assert re.findall(r"https?://[^\"' ]+", picture) == ["http://www.w3.org/2000/svg"]
