"""Check whether the text of a command is complete, so that text after it begins another command.

A command is incomplete if a quote, a here-document or a compound command has no end, if the text
ends with an operator such as ``|``, or if the text contains no command. In doubt, a command counts
as incomplete: if tree-sitter's grammar of bash does not accept it, or if it is longer than
`PARSED_BYTES_MAX`.
"""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

PARSED_BYTES_MAX = 16 * 1024
"""The maximum length of a command that is parsed, in bytes. Parsing that takes about 5 ms."""


@cache
def _parser() -> "Parser":
    import tree_sitter_bash  # noqa: PLC0415  slow to import
    from tree_sitter import Language, Parser  # noqa: PLC0415

    return Parser(Language(tree_sitter_bash.language()))


def is_complete(command: str) -> bool:
    """Return whether `command`, text for bash or zsh, is certainly complete.

    Returns False if `command` is empty or only a comment.
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
