"""The sets of tools, of which `acpterm mcp --tools NAME` provides one.

All sets give access to the same terminals. The names and schemas of the tools differ: each set has
those that language models know from another product.
"""

from collections.abc import Mapping
from typing import Any, Final

from acpterm.mcp import inspect_tools
from acpterm.mcp.claude_tools import bash as claude_bash
from acpterm.mcp.claude_tools import bash_output, kill_shell, monitor
from acpterm.mcp.codex_tools import exec_command, write_stdin
from acpterm.mcp.pool_tools import (
    kill_terminal,
    list_terminals,
    promote_terminal,
    read_terminal,
    spawn_background_terminal,
)
from acpterm.mcp.session_tools import (
    bash,
    continue_,
    list_,
    output,
    screen,
    start,
    stop,
    wait,
)
from acpterm.mcp.tool import Tool
from acpterm.mcp.tool_set_names import ToolSetName

TOOL_SETS: Final[Mapping[ToolSetName, tuple[Tool[Any], ...]]] = {
    "session": (
        bash.TOOL,
        start.TOOL,
        continue_.TOOL,
        wait.TOOL,
        output.TOOL,
        screen.TOOL,
        list_.TOOL,
        stop.TOOL,
    ),
    "pool": (
        list_terminals.TOOL,
        read_terminal.TOOL,
        spawn_background_terminal.TOOL,
        promote_terminal.TOOL,
        kill_terminal.TOOL,
    ),
    "codex": (exec_command.TOOL, write_stdin.TOOL),
    "claude": (claude_bash.TOOL, bash_output.TOOL, kill_shell.TOOL, monitor.TOOL),
    "inspect": (inspect_tools.TOOL,),
}


def policy_profile(tools: ToolSetName, requested: str | None) -> str | None:
    """Return the policy profile that applies to a set of tools besides the user's."""
    return "pool" if tools == "pool" and requested is None else requested


INSTRUCTIONS: Final[Mapping[ToolSetName, str]] = {
    "session": (
        "Real terminals on the user's machine. terminal_bash runs a command that ends; "
        "terminal_start starts what continues (servers, REPLs, debuggers), and terminal_continue "
        "types into it. The first line of each result says what the program does and what to call "
        "next. To wait, use terminal_wait instead of sleeping or polling. Passwords are typed by "
        "the user, with acpterm attach."
    ),
    "pool": (
        "Background terminals: check list_terminals before spawning, read_terminal to see whether "
        "a server has started, promote_terminal when the user should take it over, kill_terminal "
        "when it is no longer needed."
    ),
    "codex": (
        "Commands run in real terminals on the user's machine. A session continues until it is "
        "interrupted with write_stdin (\u0003) or ends by itself."
    ),
    "claude": (
        "Commands run in real terminals on the user's machine. A command that takes long, or that "
        "waits for input, continues in the background: BashOutput reads it, KillShell ends it."
    ),
    "inspect": (
        "An interactive bash in a real terminal on the user's machine. What is typed into it stays "
        "in its state: directory, variables, programs that run."
    ),
}
