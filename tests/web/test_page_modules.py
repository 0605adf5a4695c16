"""The page's modules that need no browser, in Node: their tests, and the words of `acpterm ls`."""

import itertools
import json
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

import acpterm
from acpterm.acp.agent_api import StoppedProgram
from acpterm.acp.agent_meta import BackgroundProcess
from acpterm.acp.user_api import ExitInfo, TerminalInfo
from acpterm.commands import format as words
from acpterm.runtime import sanitize

HERE = Path(__file__).parent
MODULES = Path(acpterm.__file__).parent / "web" / "page" / "js"
NOW = 1_700_000_000.25
# Calls functions of a module: reads [[name, [argument, …]], …], writes the list of results.
CALL = """
import * as module from "MODULE";
let text = "";
for await (const part of process.stdin) text += part;
process.stdout.write(JSON.stringify(JSON.parse(text).map(([name, args]) => module[name](...args))));
"""


@pytest.fixture
def node(tmp_path: Path) -> str:
    """Copy the page's modules and their tests to `tmp_path`; return the path of Node."""
    command = shutil.which("node")
    if command is None:
        pytest.skip("the page's modules are tested with node")
    shutil.copytree(MODULES, tmp_path / "js")
    shutil.copytree(HERE / "page", tmp_path / "tests")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    return command


def call(node: str, directory: Path, module: str, calls: list[tuple[str, list[Any]]]) -> list[Any]:
    script = directory / "call.js"
    script.write_text(CALL.replace("MODULE", f"./js/{module}"))
    # ASCII, since JSON must carry lone surrogates.
    done = subprocess.run(
        [node, str(script)],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        check=True,
    )
    results: list[Any] = json.loads(done.stdout)
    return results


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(path.name for path in (HERE / "page").glob("*.mjs")))
def test_modules_pass_their_own_tests(node, tmp_path, name):
    done = subprocess.run(
        [node, "--test", str(tmp_path / "tests" / name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\bfail 0$", done.stdout, re.MULTILINE), done.stdout


BACKGROUND = [
    BackgroundProcess(4711, "vi\u202ete", [5173, 5174]),
    BackgroundProcess(12, "server", [80]),
    BackgroundProcess(13, "sleep 60", []),
]
TEXTS = [
    "",
    "plain",
    "  spaces around\t",
    "two\nlines\r\nand\ttabs",
    "\x1b[31mred\x1b[0m \x9b1m \x07",
    "bidi \u202eevil\u202c \u2066x\u2069 \u200e\u200f\u061c",
    "zero\u200bwidth\u200djoin\ufeff\xad",
    "emoji 👩\u200d👩\u200d👧 ❤\ufe0f ❤\ufe0f\ufe0f 1\ufe0f\u20e3 a\ufe0f 👩\u200d",
    "\u0645\u06cc\u200c\u062e\u0648 \u200c",
    "tag \U000e0041 flag \U0001f1e9\U0001f1ea",
    "\x1c\x1f\x85\u2028 stripped as in Python \u3000\x1c",
    "\ufeffnot stripped by Python\ufeff",
    "hangul \u3164\u115f\uffa0",
    "lone \ud800 surrogates \udfff",
    'back\\slash "quotes" <b>&amp;',
    "日本語 → ünïcode",
]


def some_texts() -> list[str]:
    """Return `TEXTS`, and random texts of characters that need care and some that do not."""
    chosen = random.Random(16)
    special = sorted({character for text in TEXTS for character in text})
    # Every character that may be invisible, and some beyond.
    characters = map(chr, itertools.chain(range(0x32000), range(0xE0000, 0xE1100)))
    return ["x".join(characters), *TEXTS] + [
        "".join(chosen.choices(special, k=chosen.randrange(30))) for _ in range(300)
    ]


@pytest.mark.long
def test_escapes_are_those_of_the_commands(node, tmp_path):
    texts = some_texts()
    expected = [
        *(sanitize.escape_invisible(text) for text in texts),
        *(sanitize.escape_invisible_text(text) for text in texts),
        *(sanitize.strip_controls(text) for text in texts),
        *(sanitize.one_line(text, 12) for text in texts),
    ]
    calls: list[tuple[str, list[Any]]] = [
        *(("visible", [text]) for text in texts),
        *(("visibleText", [text]) for text in texts),
        *(("stripControls", [text]) for text in texts),
        *(("oneLine", [text, 12]) for text in texts),
    ]
    assert call(node, tmp_path, "text.js", calls) == expected


def terminals() -> list[TerminalInfo]:
    """Return terminals in all states, with all kinds of text and times."""
    now = int(NOW * 1000)
    running = TerminalInfo(
        terminal_id="term_0123456789abcdef0123456789abcdef",
        name=None,
        state="running",
        owner="agent",
        agent="Claude",
        connection="conn",
        session_id="sess",
        tool_calls=[],
        command="make test",
        cwd="/",
        pid=1,
        cols=80,
        rows=24,
        created_at=now - 65_000,
        last_output_at=now - 500,
        exited_at=None,
        position=0,
        attached=0,
        waiting_for_input=False,
        recording=None,
        exit_status=None,
    )
    replace = msgspec.structs.replace
    exits = [
        ExitInfo(exit_code=code, signal=signal, ended_by=by, wall_ms=1)
        for code, signal in ((0, None), (255, None), (None, "SIGKILL"), (None, "a\u202eb"))
        for by in ("exited", "user", "lost", "node_failure")
    ]
    ended = [replace(running, state="exited", exited_at=now, exit_status=one) for one in exits]
    return [
        running,
        *(replace(running, created_at=now - 1000 * age) for age in (-5, 0, 1, 59, 60, 3600, 86400)),
        *(replace(running, waiting_for_input=value) for value in (True, None)),
        replace(running, ending=True, waiting_for_input=True),
        replace(running, stopped=StoppedProgram(7, "a\u202eb", "wants to read", "use x")),
        replace(running, owner="user", agent=None, session_id=None, last_output_at=None),
        replace(running, provider="podman", isolation="container"),
        replace(running, provider="slurm:cpu", state="queued"),
        replace(running, provider="slurm:cpu", host="n\u202e1"),
        replace(running, provider="ssh:box", host="box"),
        replace(running, command="x" * 1500),
        replace(running, command="👩" * 1001),
        replace(running, state="released", released_at=now - 3000),
        replace(running, state="released"),
        *ended,
        *(replace(ended[0], background=BACKGROUND[:number]) for number in (1, 3)),
        replace(ended[0], background=BACKGROUND, background_omitted=3),
        *(replace(one, state="released", released_at=now - 90_000) for one in ended),
        *(replace(one, state="released") for one in ended[:2]),
        *(replace(running, name=text, agent=text, command=text) for text in TEXTS),
    ]


def on_wire(value: Any) -> Any:
    # Through msgspec's builtins, since its JSON cannot carry lone surrogates.
    return msgspec.to_builtins(value)


def test_words_are_those_of_ls(node, tmp_path):
    infos = terminals()
    rows = [words.row(info, "0123abcd", NOW)._asdict() for info in infos]
    assert {row["state"] for row in rows} > {
        words.WAITS,
        words.ENDING,
        "exited 0",
        "stopped: a\\u202eb wants to read",
        "running",
        "queued",
    }
    calls: list[tuple[str, list[Any]]] = [("row", [on_wire(one), "0123abcd", NOW]) for one in infos]
    assert call(node, tmp_path, "words.js", calls) == rows


def test_words_for_times_and_exits_are_those_of_the_commands(node, tmp_path):
    spans = [-1, 0, 0.9, 1, 59.9, 60, 61, 3599, 3600, 3661, 86399, 86400, 90061, 1e7]
    sizes = [0, 1023, 1024, 1100, 1024**2 - 1, 1024**2, 5 * 1024**3]
    exits = [
        ExitInfo(exit_code=0, signal=None, ended_by="user", wall_ms=0),
        ExitInfo(exit_code=None, signal="SIGTERM", ended_by="agent", wall_ms=0),
        *(
            ExitInfo(
                exit_code=1,
                signal=None,
                ended_by="idle",
                wall_ms=0,
                limit="idle",
                limit_value=value,
            )
            for value in (300.0, 0.5, 1e9)
        ),
    ]
    calls: list[tuple[str, list[Any]]] = [
        *(("span", [seconds]) for seconds in spans),
        *(("duration", [seconds]) for seconds in spans),
        *(("memory", [size]) for size in sizes),
        *(("ended", [on_wire(one)]) for one in exits),
        *(("endedBy", [on_wire(one)]) for one in exits),
    ]
    assert call(node, tmp_path, "words.js", calls) == [
        *(words.span(seconds) for seconds in spans),
        *(words.duration(seconds) for seconds in spans),
        *(words.memory(size) for size in sizes),
        *(words.ended(one) for one in exits),
        *(words.ended_by(one) for one in exits),
    ]


def test_list_is_sorted_as_in_ls(node, tmp_path):
    infos = [info for info in terminals() if info.owner == "agent"]
    sorted_infos = words.in_list_order(infos)
    calls: list[tuple[str, list[Any]]] = [
        ("byState", [on_wire(one), on_wire(other)])
        for one, other in itertools.pairwise(sorted_infos)
    ]
    assert all(result <= 0 for result in call(node, tmp_path, "words.js", calls))
