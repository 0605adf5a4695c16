"""The commands of a shell line, found in the tree that tree-sitter-bash makes of it.

A line is *plain* if it has nothing but commands, words, quoted strings, `&&`, `||`, `;`, `|`,
newlines, and redirections to descriptors and /dev/null. Only a plain line can be safe. Two parsers
have to agree about that: tree-sitter recovers from errors and accepts more than a shell does, so
the words and operators are also found by a regular expression, and have to be the same.

- `parse`: the commands of a line, and whether it is plain;
- `walk`: the walk over the tree;
- `plain`: the independent parser of plain lines;
- `variables`: the values of variables, which a shell would assign while it runs the line;
- `suspected`: what may be commands in a line that cannot be parsed;
- `command`: what the parser returns.
"""
