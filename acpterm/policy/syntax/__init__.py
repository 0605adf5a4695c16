"""The parser of shell lines: finds the commands of a line, in the tree of tree-sitter-bash.

A line is *plain* if it has nothing but commands, words, quoted strings, `&&`, `||`, `;`, `|`,
newlines, and redirections to descriptors and /dev/null. Only a plain line can be safe. Two parsers
must find the same words in a plain line. tree-sitter alone is not enough: it recovers from errors,
and accepts more than a shell does. So a parser made of a regular expression parses the line too.
"""
