"""Each row of compatibility.md names tests that exist, or the reason why it has none."""

import ast
import re
from pathlib import Path

from acpterm.config.profiles import POOL_COMMANDS
from tests.api.test_service import METHODS
from tests.support.cases import each_case

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "internals" / "compatibility.md").read_text()
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.partition("\n## ")[2].splitlines()
    if line.startswith("| ") and not line.startswith(("| what |", "| --- |"))
]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
# What the two documents describe by name.
NAMES = [
    *("terminal_bash", "terminal_start", "terminal_continue", "terminal_stop", "terminal_list"),
    *("terminal_output", "/terminal list", "/terminal start", "/terminal send", "/terminal output"),
    *("/terminal stop", "/terminal provider get", "/terminal provider select"),
    *("/terminal provider set", "/terminal provider list", "cropOutput", "timeoutSeconds"),
    *("minInterval", "settleInterval", "maxInterval", "safeCommands", "dangerousCommands"),
    *("providers", "TerminalProvider", "ExecuteCommandOptions", "OutputWaitOptions"),
    *("InteractiveTerminalOutput", "SessionStatus", "TerminalState", "SessionRecord", "success"),
    *("badExitCode", "timeout", "unknownError", "registerSession", "updateSessionPosition"),
    *("getSession", "removeSession", "listSessions", "serialize", "deserialize", "show"),
    *("sendInput", "collectOutput", "getSessionStatus", "getIsolationLevel", "defaultProvider"),
    *("terminalProviderRegistry", "attach", "list_terminals", "read_terminal"),
    *("spawn_background_terminal", "promote_terminal", "kill_terminal", "visible", "createdAt"),
    "Command blocked for security reasons",
    "Spawn rate limit exceeded (max 3/minute)",
    "Maximum concurrent agent terminals reached (5)",
    "Cannot kill visible or user-owned terminals",
    *("/pty/spawn", "pty:attach", "pty:detach", "pty:input", "pty:resize", "pty:attached"),
    *("pty:output", "pty:exit", "pty:error", "TerminalEvent"),
    *POOL_COMMANDS,
]


def defined(path):
    """Return the names of the tests that a file defines."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, kinds)}


def test_each_row_names_tests_that_exist_or_a_reason():
    known = {}
    assert len(ROWS) > 100
    for row in ROWS:
        assert len(row) == 4, row
        tests = TEST.findall(row[3])
        assert tests or row[3].startswith("no test: "), row
        assert TEST.sub("", row[3]).strip() == "" or not tests, row
        for file, name in tests:
            if file not in known:
                known[file] = defined(ROOT / file)
            assert name in known[file], f"{file}::{name}"


def test_each_row_begins_with_a_word_of_the_legend():
    words = set(re.findall(r"^\| (\w+) \|", PAGE.partition("\n## ")[0], re.MULTILINE)) - {"word"}
    assert words == {"same", "more", "differs", "none"}
    for row in ROWS:
        assert re.match(r"\w+", row[2])[0] in words, row


def test_only_foreign_rows_have_no_test():
    for row in ROWS:
        if not TEST.search(row[3]):
            assert row[2].startswith("none"), row


def camel(name):
    return re.sub(r"_(.)", lambda found: found[1].upper(), name)


@each_case("name", [*NAMES, *map(camel, METHODS)])
def test_page_has_what_the_documents_describe(name):
    assert any(name in row[0] or f"`{name}`" in row[1] or f'"{name}"' in row[1] for row in ROWS)
