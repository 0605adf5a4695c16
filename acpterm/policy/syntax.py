"""The commands of a shell line, found in the tree that tree-sitter-bash makes of it.

`parse` returns every command of a line, wherever it is: in lists, pipelines, substitutions, bodies
of loops and functions. It also returns whether the line is *plain*: nothing but commands, words,
quoted strings, `&&`, `||`, `;`, `|`, newlines, and redirections to descriptors and /dev/null. Only
a plain line can be safe. Two parsers have to agree about that: tree-sitter recovers from errors and
accepts more than a shell does, so the words and operators are also found by a regular expression,
and have to be the same.

A shell assigns variables while it runs a line, which a parser does not. To find `X=rm; $X -r .`,
the constants that the line assigns are collected first, and used in all of its words.
"""

import functools
import itertools
import re
import time
import unicodedata
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from acpterm.policy.words import UNKNOWN_TEXT, Raw, TooLongError, Word, words_of

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

LINE_BYTES_MAX: Final = 64 * 1024
"""Maximum size of a line that is judged."""
UNTIMED_BYTES: Final = 256
"""Size below which parsing a line needs no limit."""
PARSE_TIME_S: Final = 0.004
"""Maximum CPU time of parsing a line: hundreds of times that of a usual line."""
COMMANDS_MAX: Final = 256
"""Maximum commands of a line that is judged."""
WORDS_MAX: Final = 4096
"""Maximum words of a command that is judged."""
SUSPECTED_MAX: Final = 64
"""Maximum commands, and words of each, that are suspected in a line that cannot be parsed."""
VALUE_MAX: Final = 256
"""Maximum characters of the value of a variable that is known."""
NODES_MAX: Final = 20_000
"""Maximum nodes of the tree of a line that is judged."""

Input = Literal["", "pipe", "text", "computed"]
"""What the stdin of a command is: inherited, a pipe, known text, or the output of a command."""


_NO_CONSTANTS: Final[Mapping[str, str]] = MappingProxyType({})


class Command(NamedTuple):
    """A simple command of a line."""

    words: tuple[Word, ...]
    others: tuple[tuple[Word, ...], ...] = ()
    """The words if other values of variables are assumed; for finding danger only."""
    input: Input = ""
    text: str = ""
    """The text of a here-document or here-string on the command's stdin."""


class Script(NamedTuple):
    """A parsed line."""

    commands: tuple[Command, ...]
    problem: str
    """Why the line is not plain; empty if it is."""
    danger: str = ""
    """Why the line itself is dangerous; empty if it is not."""
    constants: Mapping[str, str] = _NO_CONSTANTS
    suspected: tuple[Command, ...] = ()
    """If the line cannot be parsed: what may be commands in it, for finding danger only."""


class _Found(NamedTuple):
    raws: list[Raw]
    is_piped: bool
    input: Input
    text: str


_COMMANDS: Final = frozenset(("command", "declaration_command", "unset_command"))
_EXPANSIONS: Final = frozenset(
    ("command_substitution", "process_substitution", "expansion", "simple_expansion",
     "arithmetic_expansion")
)  # fmt: skip
_PLAIN_KINDS: Final = frozenset(
    ("program", "list", "pipeline", "command", "command_name", "word", "number", "concatenation",
     "string", "string_content", "raw_string", "redirected_statement", "file_redirect",
     "file_descriptor")
)  # fmt: skip
_PROBLEMS: Final = {
    "ansi_c_string": "a string with escapes ($'…')",
    "arithmetic_expansion": "an arithmetic expansion",
    "brace_expression": "braces that are expanded",
    "case_statement": "a case statement",
    "c_style_for_statement": "a loop",
    "command_substitution": "a command substitution",
    "comment": "a comment",
    "compound_statement": "a group of commands",
    "declaration_command": "a declaration of a variable",
    "expansion": "a variable",
    "for_statement": "a loop",
    "function_definition": "a function",
    "heredoc_redirect": "a here-document",
    "herestring_redirect": "a here-string",
    "if_statement": "an if statement",
    "negated_command": "a negation",
    "process_substitution": "a process substitution",
    "simple_expansion": "a variable",
    "special_variable_name": "a variable",
    "subshell": "a subshell",
    "test_command": "a test",
    "translated_string": "a translated string",
    "unset_command": "an unset command",
    "variable_assignment": "an assignment",
    "variable_assignments": "an assignment",
    "variable_name": "a variable",
    "while_statement": "a loop",
}
_HARMLESS_REDIRECTION: Final = re.compile(
    r"\d*(?:(?:>>?|<|>\||&>>?|>&)\s*/dev/null|[<>]&\s*(?:\d+|-))"
)
_DEVICE: Final = re.compile(
    r"\d*(?:&>>?|>[>|&]?|<>)\s*[\"']?/dev/(?!null\b|std(?:out|err|in)\b|tty\b|zero\b|full\b"
    r"|fd/|shm/|pts/|tcp/|udp/)"
)
# The independent parser of plain lines.
_TOKEN: Final = re.compile(
    r"""(?P<blank>(?:[ \t]|\\\n)++)
    |(?P<redirection>(?:[0-9]+(?=[<>]))?(?:(?:>>?|<|>\||&>>?|>&)[ \t]*/dev/null(?=[ \t\n;|&]|$)
        |[<>]&[ \t]*(?:[0-9]+|-)(?=[ \t\n;|&<>]|$)))
    |(?P<operator>&&|\|\||[;|\n])
    |(?P<word>(?:[^\s'"\\;&|<>()$`\#]|\\[^\n]|'[^']*+'|"(?:[^"\\$`]|\\.)*+"|(?<=[^\s;&|<>])\#
        |\$(?![\w({'"@*\#?$!-]))++)
    """,
    re.DOTALL | re.VERBOSE,
)
_KEYWORDS: Final = frozenset(
    ("!", "[[", "]]", "{", "}", "if", "then", "elif", "else", "fi", "case", "esac", "for", "select",
     "while", "until", "do", "done", "in", "function", "coproc")
)  # fmt: skip
_SEPARATORS: Final = re.compile("[;&|\n()`\r\x0b\x0c\x85\u2028\u2029]+")
_PUNCTUATION: Final = re.compile(r"[\s{},'\"$]+")
_ODD_CATEGORIES: Final = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp"))


@functools.cache
def _parser() -> "Parser":
    # Loaded with the first line: most commands of acpterm judge none.
    import tree_sitter_bash  # noqa: PLC0415
    from tree_sitter import Language, Parser  # noqa: PLC0415

    return Parser(Language(tree_sitter_bash.language()))


def parse(line: str, constants: Mapping[str, str] = _NO_CONSTANTS) -> Script:
    """Return the commands of a line, and whether it is plain.

    `constants` are known values of variables that are set around the line. Raises `TooLongError`.
    """
    odd = _odd_character(line)
    original = line
    if odd:
        # No shell takes such characters for spaces. Its reader may, and so may another program.
        line = "".join(" " if _is_odd(one) else one for one in line)
    source = line.encode(errors="replace")
    if len(source) > LINE_BYTES_MAX:
        raise TooLongError
    tree = _tree(source)
    walk = _Walk(source, constants)
    root = tree.root_node
    walk.run(root)
    commands = tuple(walk.commands())
    problem = walk.problem
    if odd:
        problem = f"the unusual character {unicodedata.name(odd, f'U+{ord(odd):04X}')}"
    elif root.has_error:
        problem = "text that cannot be parsed"
    elif not problem and not _agrees(line, walk):
        problem = "text that two parsers read differently"
    suspected = tuple(_suspected(original)) if root.has_error or odd else ()
    return Script(commands, problem, walk.danger, walk.constants, suspected)


def _tree(source: bytes) -> "Tree":
    """Return the tree of a line; raise `TooLongError` if parsing takes too much CPU time.

    The time of tree-sitter is quadratic in the number of commands of a pipeline.
    """
    parser = _parser()
    if len(source) < UNTIMED_BYTES:
        return parser.parse(source)
    deadline = time.thread_time() + PARSE_TIME_S
    try:
        return parser.parse(
            lambda at, _: source[at:],
            progress_callback=lambda *_: time.thread_time() > deadline,
        )
    except ValueError:
        parser.reset()
        raise TooLongError from None


def _suspected(line: str) -> Iterator[Command]:
    """Yield what may be commands in a line that cannot be parsed."""
    for text in itertools.islice(filter(str.strip, _SEPARATORS.split(line)), SUSPECTED_MAX):
        expanded = itertools.chain.from_iterable(
            words_of(Raw(word, ()), _NO_CONSTANTS) for word in text.split()[:SUSPECTED_MAX]
        )
        simple = _PUNCTUATION.sub(" ", text.replace("\\", "")).split()[:SUSPECTED_MAX]
        for words in (simple, [word.text for word in expanded]):
            while words and words[0] in _KEYWORDS:
                del words[0]
            if words:
                yield Command(tuple(Word(word, is_literal=False) for word in words))


def _is_odd(character: str) -> bool:
    return character not in " \t\n" and unicodedata.category(character) in _ODD_CATEGORIES


def _odd_character(line: str) -> str:
    if line.isascii() and line.isprintable():
        return ""
    return next((one for one in line if _is_odd(one)), "")


def _agrees(line: str, walk: "_Walk") -> bool:
    """Return whether the independent parser finds the same words in the same commands."""
    commands: list[list[str]] = [[]]
    at, operator = 0, "\n"
    while at < len(line):
        match = _TOKEN.match(line, at)
        if match is None:
            return False
        at = match.end()
        if match.lastgroup == "operator":
            if not commands[-1] and match[0] != "\n":
                return False
            if commands[-1]:
                commands.append([])
                operator = match[0]
        elif match.lastgroup == "word":
            commands[-1].append(match[0])
    if not commands[-1]:
        commands.pop()
        if operator in ("&&", "||", "|"):
            return False
    if any(words[0] in _KEYWORDS for words in commands):
        return False
    return commands == [[raw.text for raw in found.raws] for found in walk.found]


class _Walk:
    """Collects the commands and constants of a tree, iteratively: trees can be very deep."""

    def __init__(self, source: bytes, constants: Mapping[str, str]) -> None:
        self._source = source
        self.found: list[_Found] = []
        self.problem = ""
        self.danger = ""
        self.constants = {"IFS": " ", **constants}
        self._values: list[tuple[str, str]] = []
        # Arguments that the tree has in a redirection, by the id of the command's node.
        self._late: dict[int, list[Node]] = {}
        # Nodes to visit, each with whether its stdin is a pipe, and what else its stdin is.
        self._stack: list[tuple[Node, bool, Input, str]] = []

    def run(self, root: "Node") -> None:
        """Visit all nodes in the order of the line."""
        self._stack.append((root, False, "", ""))
        visited = 0
        while self._stack:
            visited += 1
            if visited > NODES_MAX or len(self.found) > COMMANDS_MAX:
                raise TooLongError
            self._visit(*self._stack.pop())

    def _check(self, node: "Node", kind: str) -> None:
        """Note why the line is not plain, if it is because of a node."""
        if kind not in _PLAIN_KINDS and not self.problem:
            if node.is_named:
                self.problem = _PROBLEMS.get(kind, "syntax that is not plain")
            elif kind == "&":
                self.problem = "a background command"

    def _visit(self, node: "Node", is_piped: bool, given: Input, text: str) -> None:
        kind = node.type
        self._check(node, kind)
        if kind in _COMMANDS:
            self._command(node, is_piped, given, text)
            return
        children = node.children
        if kind == "pipeline":
            pushed, after = [], False
            for child in children:
                pushed.append((child, is_piped or after, given, text))
                after = True
            self._stack += reversed(pushed)
            return
        if kind == "redirected_statement":
            self._redirected(node, is_piped, given, text)
            return
        if kind in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
            self._redirection(node)
        elif kind == "variable_assignment":
            self._assignment(node)
        elif kind == "for_statement":
            self._loop(node)
        self._stack += [
            # tree-sitter puts the rest of a pipeline after `<<END |` into the redirection.
            (
                child,
                is_piped or (kind == "heredoc_redirect" and child.type == "pipeline"),
                given,
                text,
            )
            for child in reversed(children)
        ]

    def _command(self, node: "Node", is_piped: bool, given: Input, text: str) -> None:
        raws: list[Raw] = []
        nested: list[tuple[Node, bool, Input, str]] = []
        end = -1
        name_kind = node.type
        for child in node.children:
            kind = child.type
            if kind == "variable_assignment" and name_kind == "command":
                nested.append((child, False, "", ""))
                continue
            if kind == "herestring_redirect":
                given, text = self._here(child)
                nested.append((child, False, "", ""))
                continue
            if kind.endswith("_redirect"):
                nested.append((child, False, "", ""))
                continue
            if name_kind == "declaration_command" and kind == "variable_assignment":
                self._assignment(child)
            raw = self._raw(child, nested)
            if raws and not self._source[end : child.start_byte].replace(b"\\\n", b""):
                # Two nodes of the tree without a blank between them are one word.
                before = raws[-1]
                size = len(before.text)
                moved = tuple((size + a, size + b) for a, b in raw.expansions)
                raws[-1] = Raw(before.text + raw.text, before.expansions + moved)
            else:
                raws.append(raw)
            end = child.end_byte
            if len(raws) > WORDS_MAX:
                raise TooLongError
        raws += [self._raw(one, nested) for one in self._late.pop(node.id, ())]
        self.found.append(_Found(raws, is_piped, given, text))
        self._stack += reversed(nested)

    def _raw(self, node: "Node", nested: list[tuple["Node", bool, Input, str]]) -> Raw:
        """Return a raw word; append what has to be visited in it to `nested`."""
        start = node.start_byte
        raw = self._source[start : node.end_byte]
        if node.child_count == 0 or raw.isalnum():
            return Raw(raw.decode(errors="replace"), ())
        spans: list[tuple[int, int]] = []
        stack = [node]
        while stack:
            current = stack.pop()
            kind = current.type
            if kind in _EXPANSIONS:
                spans.append((current.start_byte - start, current.end_byte - start))
                nested.append((current, False, "", ""))
            else:
                self._check(current, kind)
                stack += reversed(current.children)
        if not raw.isascii():
            spans = [
                (len(raw[:a].decode(errors="replace")), len(raw[:b].decode(errors="replace")))
                for a, b in spans
            ]
        return Raw(raw.decode(errors="replace"), tuple(spans))

    def _redirected(self, node: "Node", is_piped: bool, given: Input, text: str) -> None:
        body: list[tuple[Node, bool, Input, str]] = []
        others: list[tuple[Node, bool, Input, str]] = []
        extra: list[Node] = []
        for child in node.children:
            if child.type in ("heredoc_redirect", "herestring_redirect"):
                given, text = self._here(child)
            elif child.type == "file_redirect":
                destinations = child.children_by_field_name("destination")
                # tree-sitter takes arguments after a redirection for more of its destinations.
                extra += destinations[1:]
                if any(one.type == "process_substitution" for one in destinations):
                    given = given or "computed"
            (others if child.type.endswith("_redirect") else body).append((child, is_piped, "", ""))
        if extra and body:
            last = body[-1][0]
            while last.type != "command" and last.child_count:
                last = last.children[-1]
            self._late[last.id] = extra
        body = [(child, piped, given, text) for child, piped, _, _ in body]
        self._stack += reversed([*body, *others])

    def _here(self, node: "Node") -> tuple[Input, str]:
        """Return the stdin that a here-document or here-string gives to a command."""
        for child in node.children:
            if child.type == "heredoc_body":
                return "text", self._text(child)
            if child.is_named and node.type == "herestring_redirect":
                words = words_of(self._raw(child, []), self.constants)
                text = " ".join(word.text for word in words)
                return ("computed" if UNKNOWN_TEXT in text else "text"), text
        return "computed", ""

    def _redirection(self, node: "Node") -> None:
        if node.type != "file_redirect":
            return
        destinations = node.children_by_field_name("destination")
        end = destinations[0].end_byte if destinations else node.end_byte
        text = self._source[node.start_byte : end].decode(errors="replace")
        if not _HARMLESS_REDIRECTION.fullmatch(text) and not self.problem:
            self.problem = "a redirection to a file"
        if _DEVICE.match(text):
            self.danger = "it writes to a device"

    def _assignment(self, node: "Node") -> None:
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        if name is None:
            return
        text = self._text(name).partition("[")[0]
        if value is None:
            self.constants.setdefault(text, "")
        elif value.type == "array":
            items = [self._raw(child, []) for child in value.children if child.is_named]
            words = itertools.chain(*(words_of(item, self.constants) for item in items))
            self._assign(text, " ".join(word.text for word in words))
        else:
            found = words_of(self._raw(value, []), self.constants)
            self._assign(text, " ".join(word.text for word in found))

    def _loop(self, node: "Node") -> None:
        variable = node.child_by_field_name("variable")
        if variable is not None:
            for value in node.children_by_field_name("value")[:WORDS_MAX]:
                for word in words_of(self._raw(value, []), self.constants):
                    self._assign(self._text(variable), word.text)

    def _assign(self, name: str, value: str) -> None:
        if len(value) > VALUE_MAX:  # `X=$X$X` doubles the value
            value = UNKNOWN_TEXT
        self.constants[name] = value
        if len(self._values) < COMMANDS_MAX:
            self._values.append((name, value))

    def _text(self, node: "Node") -> str:
        return self._source[node.start_byte : node.end_byte].decode(errors="replace")

    def commands(self) -> Iterator[Command]:
        """Yield the commands with their words, for which all constants have to be known."""
        for name, value in _assignments_by_commands(self.found):
            self._assign(name, value)
        tables = self._tables()
        for found in self.found:
            if not found.raws:
                continue
            variants: list[tuple[Word, ...]] = []
            is_expanded = any(raw.expansions for raw in found.raws)
            for constants, unknown in tables if is_expanded else tables[:1]:
                lists = [words_of(raw, constants, unknown) for raw in found.raws]
                words = tuple(itertools.chain.from_iterable(lists))
                if not self.problem and (len(words) != len(lists) or not _is_plain(words)):
                    self.problem = "a word that is expanded"
                if words and words not in variants:
                    variants.append(words)
            if variants:
                given: Input = found.input or ("pipe" if found.is_piped else "")
                yield Command(variants[0], tuple(variants[1:]), given, found.text)

    def _tables(self) -> list[tuple[Mapping[str, str], str]]:
        """Return tables of constants to try, each with the text that stands for unknown text."""
        tables: list[tuple[Mapping[str, str], str]] = [(self.constants, UNKNOWN_TEXT)]
        first = {**self.constants, **dict(reversed(self._values))}
        if first != self.constants:
            tables.append((first, UNKNOWN_TEXT))
        tables.append((self.constants, ""))
        # A variable that has one value after another, as in a loop.
        names = [name for name, _ in self._values]
        repeated = [pair for pair in self._values if names.count(pair[0]) > 2][:8]
        tables += [({**self.constants, name: value}, "") for name, value in repeated]
        return tables


def _is_plain(words: tuple[Word, ...]) -> bool:
    """Return whether words of a plain line are literal, or globs, or begin with `~/`."""
    return all(
        word.is_literal or word.is_glob or word.text == "~" or word.text.startswith("~/")
        for word in words
    )


def _assignments_by_commands(commands: list[_Found]) -> Iterator[tuple[str, str]]:
    """Yield what `printf -v NAME TEXT`, `read NAME <<< TEXT` and `set -- WORD…` assign."""
    for found in commands:
        texts = [raw.text.strip("'\"") for raw in found.raws]
        if texts[:2] == ["printf", "-v"] and len(texts) > 3:
            yield texts[2], " ".join(texts[3:] if "%" not in texts[3] else texts[4:])
        elif texts[:1] == ["read"] and found.input == "text":
            for name in texts[1:]:
                yield name, found.text
        elif texts[:2] == ["set", "--"]:
            yield "@", " ".join(texts[2:])
            yield "*", " ".join(texts[2:])
            for number, text in enumerate(texts[2:10], 1):
                yield str(number), text
