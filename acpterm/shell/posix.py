r"""The typed line and the command file, by which acpterm runs a command in bash or zsh.

acpterm types the line into the shell. The line executes the file, which contains the command. Both
call functions that acpterm's rc file for the shell defines, such as ``__acpterm_begin``.
"""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_BEGIN = '{{ __acpterm_begin {n} "$?" && :; }} >/dev/null 2>&1'
_LINE = (
    " " + _BEGIN + r"; \builtin . {path}"
    '; {{ __acpterm_again "$?" && :; }} >/dev/null 2>&1'
)
PARSED_BYTES_MAX = 16 * 1024  # a longer command is not parsed; this takes about 5 ms


@cache
def _parser() -> "Parser":
    import tree_sitter_bash  # noqa: PLC0415  slow to import
    from tree_sitter import Language, Parser  # noqa: PLC0415

    return Parser(Language(tree_sitter_bash.language()))


def is_complete(command: str) -> bool:
    """Return whether text after `command` certainly begins another command.

    It does not if a quote, a here-document or a compound command has no end, after an operator such
    as ``|``, and after no command. In doubt it does not: if tree-sitter's grammar of bash does not
    accept `command`, or if it is too long to parse.
    """
    data = command.encode("utf-8", "surrogateescape")
    if len(data) > PARSED_BYTES_MAX:
        return False
    root = _parser().parse(data).root_node
    if root.has_error or all(node.type == "comment" for node in root.children):
        return False
    return b"<<" not in data or all(
        # The grammar accepts a last line that only begins with the delimiter.
        data[node.end_byte : node.end_byte + 1] in (b"", b"\n")
        for node in _heredoc_ends(root)
    )


def _heredoc_ends(root: "Node") -> "list[Node]":
    found, pending = [], [root]
    while pending:
        node = pending.pop()
        if node.type == "heredoc_end":
            found.append(node)
        pending += node.children
    return found


def command_file(n: int, command: str, flags: str, end: str) -> str:
    """Return the file of command `n`; it depends on `v` and `x` of the shell's last ``$-``."""
    # `end` saves exit code and pipe status.
    if "v" in flags:
        # With `set -v` the shell prints each line of the file: print none but the command's.
        return command + "\n"
    begin = _BEGIN.format(n=n) + "\n" if "x" in flags else ""
    return begin + command + (end if is_complete(command) else "\n")


def typed_line(n: int, path: str) -> str:
    """Return the line that sources the command's file by its quoted path."""
    return _LINE.format(n=n, path=path)
