"""The examples of docs/python.md print what they are said to print."""

import importlib.util
import re
from pathlib import Path

import anyio
import pytest

import acpterm
from tests.support.backends import BACKENDS

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS / "examples" / "python"
EXPECTED = {
    "run": r"Ada\nHello, Ada\n Exit\(code=3, signal=None, ended_by='exited', .*\)\n",
    "agent": r"1\n2\n3\n 1\ndangerous ask\n",
    "keys": r">>> 6 \* 7\n42\n>>> 6 \* 8\n48\n>>>\n\(4, 4\)\n",
    "shell": r"done 1 \[0, 1\] /usr\nwaiting_for_input Name\? \ndone Hello, Ada\n",
    "events": r"created asks\nwaiting asks\n(resumed asks\n)?exited asks\n",
    "service": (
        r"failed with 2\n"
        r"term-\d+ SessionOutput\(output='y\\ngot y\\n', position=\d+, complete=False\)\n"
        r"dangerous\n"
        r"\['git', 'add', '\.', 'git', 'commit', '-m', '\"test\"'\]\n"
        r"Success\(output=\"deploy \['now'\], at most 120 s\", status='success'\)\n"
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", EXPECTED)
def test_example_prints_what_it_should(daemon, name, backend, monkeypatch, capsys):
    monkeypatch.setenv("ACPTERM_SOCKET", daemon.socket)
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    anyio.run(module.main, backend=backend)
    printed = capsys.readouterr().out
    assert re.fullmatch(EXPECTED[name], printed), printed


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


def test_page_begins_with_two_of_the_examples():
    blocks = re.findall(
        r"^```python\n(.*?)^```", (DOCS / "python.md").read_text(), re.MULTILINE | re.DOTALL
    )
    for name, block in zip(("run", "agent"), blocks, strict=False):
        assert (EXAMPLES / f"{name}.py").read_text().endswith(block)


@pytest.mark.long
def test_page_names_every_exported_name_and_every_method():
    page = (DOCS / "python.md").read_text()
    classes = (acpterm.Client, acpterm.Terminal, acpterm.Shell, acpterm.TerminalService)
    methods = {name for each in classes for name in vars(each) if not name.startswith("_")}
    missing = {name for name in methods if not re.search(rf"`(await )?{name}\b|\b{name}\(", page)}
    names = set(acpterm.__all__) - {"__version__", "ExecuteCommandResult"}
    assert not missing - {"name", "description"}
    assert not {name for name in names if not re.search(rf"\b{name}\b", page)}
