"""The pages in docs/ say what the code does."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import click
import pytest

from acpterm.acp import agent_api
from acpterm.acp.base import Wire
from acpterm.cli._aliases import ALIASES
from acpterm.cli.main import group
from acpterm.config import Settings
from acpterm.host.agent.methods import NOTIFICATIONS, REQUESTS
from tests.support.hosts import agent_here, environment, poll

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.glob("**/*.md")])
PROTOCOL = (DOCS / "protocol.md").read_text()
EXAMPLES = re.findall(r"^```json\n(.*?)^```", PROTOCOL, re.MULTILINE | re.DOTALL)
# What differs from run to run.
VARIES = re.compile(r'"(wallMs|cpuMs|maxRssBytes|resume)": (\d+|"[0-9a-f]{64}")')


def load(name, monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_pages_are_up_to_date(monkeypatch):
    pages = load("generate", monkeypatch).pages()
    stale = [page for page, make in pages.items() if not _is(DOCS / page, make())]
    assert not stale, "run `make docs`"
    kept = {f"{page.relative_to(DOCS)}" for page in DOCS.glob("commands/*")}
    kept |= {f"{page.relative_to(DOCS)}" for page in DOCS.glob("man/*")}
    assert kept <= set(pages), "there are pages of commands that there are not"


def _is(page, text):
    return page.exists() and page.read_text() == text


def test_makefile_installs_only_extras_that_the_package_has():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = re.findall(r"'\.\[([^\]]*)\]'", (ROOT / "Makefile").read_text())
    assert {name for names in lists for name in names.split(",")} <= set(
        project["optional-dependencies"]
    )


def test_every_setting_is_on_the_page():
    for name in Settings.__struct_fields__:
        assert f"| `{name}` |" in (DOCS / "settings.md").read_text()


# Their options are the same on the page and in the command.
WITH_OPTIONS = {
    *("attach", "export", "inspect", "kill", "logs", "ls", "prompt", "replay", "rm", "run"),
    *("screen", "send", "wait"),
}


def test_the_page_for_users_of_other_programs_names_commands_that_exist():
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


def test_the_page_for_users_of_other_programs_names_the_other_names_that_work():
    paragraph = re.search(
        r"^Several commands .*?\n\n",
        (DOCS / "coming-from.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    groups = re.findall(
        r"`([a-z-]+)(?: COMMAND)?`(?: and `([a-z-]+)`)?\s\(`([^`]*)`\)", paragraph[0]
    )
    names = {name: meant for *both, meant in groups for name in both if name}
    assert names == {**ALIASES, "help": "COMMAND --help", "version": "--version"}


def test_every_module_has_its_line_in_the_architecture():
    page = (DOCS / "architecture.md").read_text()
    package = ROOT / "acpterm"
    modules = {str(path.relative_to(package).with_suffix("")) for path in package.glob("*/**/*.py")}
    described = {
        f"{room}/{module}"
        for room, rows in re.findall(
            r"^\| `acpterm/([\w/]+)/` \| \|\n((?:\|.*\n)+)", page, re.MULTILINE
        )
        for names in re.findall(r"^\| (`.*?`) \|", rows, re.MULTILINE)
        for module in re.findall(r"`(\w+)`", names)
    }
    assert described == {module for module in modules if not module.endswith("/__init__")}


@pytest.mark.parametrize("method", [*REQUESTS, *NOTIFICATIONS, "$/cancel_request"])
def test_every_method_has_its_heading(method):
    assert re.search(rf"^##? {re.escape(method)}$", PROTOCOL, re.MULTILINE)


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            field
            for kind in vars(agent_api).values()
            if isinstance(kind, type) and issubclass(kind, Wire) and kind is not Wire
            for field in kind.__struct_encode_fields__
            if not field.startswith("_")
        }
    ),
)
def test_every_member_of_an_extension_is_described(name):
    assert re.search(rf"`([\w.]+\.)?{name}`", PROTOCOL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_json_example_is_json(page):
    for example in re.findall(r"^```json\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        for line in example.splitlines():
            json.loads(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_inside_leads_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        file = page.parent / target if target else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, anchor


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


async def test_the_examples_of_the_protocol_are_real():
    """Every request is sent, in order, and every answer is the one on the page."""
    ids = {}

    def real(line):
        return re.sub(r"term_[0-9a-f]{32}", lambda match: ids[match[0]], line)

    def plain(message):
        return VARIES.sub(r'"\1": 0', json.dumps(message, sort_keys=True))

    async with agent_here() as agent:
        for example in EXAMPLES:
            messages = [json.loads(line) for line in example.splitlines()]
            for message in messages:
                if "method" in message:
                    await agent.send(real(json.dumps(message)).encode() + b"\n")
                    agent._methods[message.get("id")] = message["method"]
                    continue
                answer = await poll(lambda m=message: agent._answers.get(m["id"]))
                if "terminalId" in message.get("result", {}):
                    ids[message["result"]["terminalId"]] = answer["result"]["terminalId"]
                assert plain(answer) == real(plain(message))


def test_an_agent_author_finds_an_answer_to_every_request():
    asked = re.findall(r'"id":(\d+),"method"', PROTOCOL)
    answered = re.findall(r'"id":(\d+),"(?:result|error)"', PROTOCOL)
    assert sorted(asked) == sorted(answered)
    assert len(asked) == len(set(asked))


def run(*arguments, **more):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env=environment(**more),
    )


AGENT = DOCS / "examples" / "agent.py"
DEMO = DOCS / "examples" / "demo.py"


@pytest.fixture
def own_daemon(tmp_path):
    """The settings for a daemon of the test's own, which has ended at the end of the test."""
    path = tmp_path / "agent.sock"
    yield {"ACPTERM_SOCKET": str(path), "ACPTERM_IDLE_EXIT": "0.5"}
    deadline = time.monotonic() + 10
    while path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_example_agent_runs_a_command_and_exits_with_its_code(own_daemon):
    done = run(AGENT, "echo hello; exit 7", **own_daemon)
    assert (done.stdout, done.stderr, done.returncode) == ("hello\n", "", 7)


def test_the_example_agent_kills_what_takes_too_long(own_daemon):
    done = run(AGENT, "--timeout", "0.2", "echo hello; sleep 60", **own_daemon)
    assert (done.stdout, done.returncode) == ("hello\n", 1)
    assert done.stderr == "agent: ended by SIGTERM\n"


def test_the_demo_does_what_it_says_without_a_terminal(tmp_path):
    done = run(DEMO, TMPDIR=str(tmp_path), FORCE_COLOR="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All 16 checks passed." in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    assert os.listdir(tmp_path) == []


def test_the_demo_fails_and_says_why_when_a_step_comes_out_wrong(tmp_path):
    wrong = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import demo; "
        "demo.LINT = 'exit 4'; demo.STEPS = (demo.hello, demo.failure); sys.exit(demo.main())"
    )
    done = run("-c", wrong, DEMO.parent, TMPDIR=str(tmp_path))
    assert done.returncode == 1
    assert "Not as it should be:\n   exit code 3; found {'exitCode': 4" in done.stdout
    assert os.listdir(tmp_path) == []


def test_the_pictures_of_screens_are_as_screen_svg_draws_them():
    picture = (DOCS / "person.svg").read_text()
    assert "white-space: pre" in picture
    assert "font:" not in picture
    assert 'font-weight="bold"' in picture


def test_the_picture_is_small_and_says_nothing_of_a_machine():
    picture = (DOCS / "demo.svg").read_text()
    assert len(picture) < 100_000
    assert "checks&#160;passed" in picture
    assert not re.search(r"/(home|root|tmp|usr|work|var)\b|term_[0-9a-f]", picture)
    assert re.findall(r"https?://[^\"' ]+", picture) == ["http://www.w3.org/2000/svg"]
