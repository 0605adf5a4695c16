"""The parser of shell lines: finds the commands of a line, in the tree of tree-sitter-bash.

A line is *plain* if it has nothing but commands, words, quoted strings, `&&`, `||`, `;`, `|`,
newlines, and redirections to descriptors and /dev/null. Only a plain line can be safe. Two parsers
must find the same words in a plain line. tree-sitter alone is not enough: it recovers from errors,
and accepts more than a shell does. So a parser made of a regular expression parses the line too.

- `parse`: the entry point, which returns the commands of a line, and why it is not plain;
- `walk`: the walk over the tree of tree-sitter, which collects the commands;
- `plain`: the parser made of a regular expression;
- `variables`: the values of variables that the line assigns;
- `readers`: which shell reads a line, and what it reads in another way than bash;
- `suspected`: texts that may be commands, in a line that cannot be parsed;
- `command`: the types that the parser returns.
"""
