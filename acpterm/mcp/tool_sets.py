"""The sets of tools, of which `acpterm mcp --tools NAME` provides one.

All sets give access to the same terminals. The names and schemas of the tools differ: each set has
those that language models know from another product.
"""

from collections.abc import Mapping
from typing import Any, Final

from acpterm.mcp import claude_tools, codex_tools, inspect_tools, pool_tools
from acpterm.mcp.session_tools import bash, continue_, list_, output, screen, start, stop, wait
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
        pool_tools.LIST,
        pool_tools.READ,
        pool_tools.SPAWN,
        pool_tools.PROMOTE,
        pool_tools.KILL,
    ),
    "codex": (codex_tools.EXEC_COMMAND, codex_tools.WRITE_STDIN),
    "claude": (
        claude_tools.BASH,
        claude_tools.BASH_OUTPUT,
        claude_tools.KILL_SHELL,
        claude_tools.MONITOR,
    ),
    "inspect": (inspect_tools.TOOL,),
}


def policy_profile(tools: ToolSetName, requested: str | None) -> str | None:
    """Return the policy profile that applies to a set of tools besides the user's."""
    return "pool" if tools == "pool" and requested is None else requested


INSTRUCTIONS: Final[Mapping[ToolSetName, str]] = {
    "session": (
        "Real terminals on the user's machine. terminal_bash runs a command that ends; "
        "terminal_start starts what continues (servers, REPLs, debuggers), and terminal_continue "
        "types into it. The first line of a result says what the program does and what to call "
        "next; a terminal_bash that has succeeded returns just its output. To wait, use "
        "terminal_wait instead of sleeping or polling. Passwords are typed by the user, with "
        "acpterm attach."
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
