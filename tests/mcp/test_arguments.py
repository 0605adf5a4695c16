"""The arguments of tools as clients send them: values that can be meant, and errors."""

import pytest

from acpterm.mcp.arguments import decode
from acpterm.mcp.tool_error import ToolError
from acpterm.mcp.tool_sets import TOOL_SETS

TOOLS = {tool.name: tool for tools in TOOL_SETS.values() for tool in tools}


@pytest.mark.parametrize(
    ("tool", "arguments", "name", "value"),
    [
        ("terminal_continue", {"sessionId": 1, "stdin": 5}, "stdin", "5"),
        ("terminal_continue", {"sessionId": "term-1", "stdin": True}, "stdin", "true"),
        ("terminal_continue", {"sessionId": "x", "keys": '["Up", "F5"]'}, "keys", ["Up", "F5"]),
        ("terminal_continue", {"sessionId": "x", "keys": "[ Up"}, "keys", "[ Up"),
        ("terminal_continue", {"sessionId": "x", "stdin": '{"a": 1}'}, "stdin", '{"a": 1}'),
        ("terminal_start", {"command": "x", "env": '{"A": "1"}'}, "env", {"A": "1"}),
        (
            "terminal_start",
            {"command": "x", "env": {"A": 1, "B": False}},
            "env",
            {"A": "1", "B": "false"},
        ),
        ("terminal_start", {"command": "x", "cols": "80"}, "cols", 80),
        ("terminal_start", {"command": ["echo", "a b"]}, "command", "echo 'a b'"),
        ("terminal_start", {"command": 5}, "command", "5"),
        ("terminal_start", '{"command": "x"}', "command", "x"),
        ("terminal_start", {"command": "x", "cwd": "~/a"}, "cwd", "/home/me/a"),
        ("terminal_bash", {"command": "x", "working_directory": "~"}, "cwd", "/home/me"),
        ("exec_command", {"cmd": "x", "workdir": "~/b"}, "workdir", "/home/me/b"),
        ("terminal_bash", {"command": "x", "run_in_background": "true"}, "run_in_background", True),
        ("spawn_background_terminal", {"command": '["head", 5]'}, "command", ["head", "5"]),
        ("write_stdin", {"session_id": "term-3"}, "session_id", 3),
        ("exec_command", {"cmd": "x", "prefix_rule": '["a"]'}, "prefix_rule", ["a"]),
    ],
)
def test_value_that_can_be_meant_is_accepted(monkeypatch, tool, arguments, name, value):
    monkeypatch.setenv("HOME", "/home/me")
    params = decode(tool, arguments, TOOLS[tool].params)
    assert getattr(params, name) == value


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("terminal_start", {}, "command is missing; it takes command (required), cwd"),
        ("terminal_start", {"command": {"a": 1}}, 'command is {"a":1}, but must be a string;'),
        (
            "terminal_start",
            {"command": "x", "cols": "wide"},
            'cols is "wide", but must be an integer;',
        ),
        (
            "terminal_start",
            {"command": "x", "env": "A=1"},
            'env is "A=1", but must be an object with strings;',
        ),
        (
            "terminal_continue",
            {"sessionId": "x", "keys": {}},
            "keys is {}, but must be an array of strings or a string;",
        ),
        (
            "terminal_wait",
            {"idle_seconds": 0},
            "idle_seconds is 0, but must be a number over 0;",
        ),
        (
            "terminal_bash",
            {"command": "x", "run_in_background": "yes"},
            'run_in_background is "yes", but must be true or false;',
        ),
        (
            "spawn_background_terminal",
            {"command": []},
            "command is [], but must be an array of strings, not an empty one;",
        ),
        (
            "exec_command",
            {"cmd": "x", "sandbox_permissions": "all"},
            'sandbox_permissions is "all", but must be one of require_escalated, use_default',
        ),
        ("terminal_list", [1], "arguments is [1], but must be an object;"),
        ("terminal_list", "x", 'arguments is "x", but must be an object;'),
    ],
)
def test_value_that_cannot_be_meant_is_an_error_that_says_what_is_accepted(
    tool, arguments, message
):
    with pytest.raises(ToolError) as caught:
        decode(tool, arguments, TOOLS[tool].params)
    assert str(caught.value).startswith(f"{tool}: {message}")
