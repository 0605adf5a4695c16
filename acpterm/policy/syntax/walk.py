"""Walks over the syntax tree of a shell line, and collects its commands, in the order of the line.

A *raw word* (`words.Raw`) is a word as it is written, with its quotes and expansions, which a shell
turns into arguments (`words_of`).

A shell assigns variables while it runs a line; a parser runs nothing. So all values that the line
assigns are collected first, and then replace the variables in all words of the line, to find danger
such as `X=rm; $X .`. If the line assigns several values to a variable, the words are tried with
several tables of values.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from acpterm.policy.own_settings import is_own_file
from acpterm.policy.syntax.command import Input, SimpleCommand
from acpterm.policy.words import EXPANSIONS_MAX, UNKNOWN_TEXT, Raw, TooLongError, Word, words_of

if TYPE_CHECKING:
    from tree_sitter import Node

COMMANDS_MAX: Final = 256
"""Maximum commands of a line that is judged."""
WORDS_MAX: Final = 4096
"""Maximum words of a command that is judged."""
NODES_MAX: Final = 20_000
"""Maximum nodes of the tree of a line that is judged."""

_COMMANDS: Final = frozenset(("command", "declaration_command", "unset_command"))
_EXPANSIONS: Final = frozenset(
    ("command_substitution", "process_substitution", "expansion", "simple_expansion",
     "arithmetic_expansion", "subshell")
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

_WRITES: Final = re.compile(r"\d*(?:&>|>|<>)")
_OPERATOR: Final = re.compile(r"\d*(&>>?|>[>|&]?|<>|<)")
_SUBSHELL: Final = frozenset(("(", "$(", "<(", ">("))
# Texts in which a shell may not substitute the output of a command.
_QUOTED_KINDS: Final = frozenset(("ansi_c_string", "comment", "heredoc_body", "raw_string"))
_SUBSTITUTION: Final = re.compile(
    r"(?:[^`\\$]++|``|\\.|\$(?!\())++|(`(?:[^`\\]++|\\.)*+`|\$\(.*)", re.DOTALL
)

_ASSIGNING: Final = frozenset(("printf", "read", "set"))
VALUE_MAX: Final = 256
"""Maximum characters of a variable's value; a longer value counts as unknown."""
ASSIGNMENTS_MAX: Final = 256
"""Maximum assignments in a line whose values are tried."""
POSITIONAL_MAX: Final = 8
"""Maximum positional parameters (`$1` and so on) whose values are collected."""


class Table(NamedTuple):
    """Values of variables that are tried in the words of a line."""

    constants: Mapping[str, str]
    """The values, by the names of the variables."""
    unknown: str
    """What replaces each text that is not known: `UNKNOWN_TEXT`, or nothing."""


class Variables:
    """The variables that a line assigns, in its order; `constants` are set before the line."""

    def __init__(self, constants: Mapping[str, str]) -> None:
        # The home directory is `~` in every word.
        self.constants: Final = {"IFS": " ", "HOME": "~", "PWD": ".", **constants}
        """The last value of each variable."""
        self._values: Final[list[tuple[str, str]]] = []
        self.functions: Final[set[str]] = set()

    def declare(self, name: str) -> None:
        """Record that the line declares a variable: it is empty unless it has a value already."""
        self.constants.setdefault(name, "")

    def assign(self, name: str, value: str) -> None:
        """Record that the line assigns a value to a variable."""
        if len(value) > VALUE_MAX:  # `X=$X$X` doubles the value
            value = UNKNOWN_TEXT
        self.constants[name] = value
        if len(self._values) < ASSIGNMENTS_MAX:
            self._values.append((name, value))

    def assign_words(self, name: str, raws: Sequence[Raw]) -> None:
        """Turn the raw words `raws` into arguments; assign these as one value, joined by spaces."""
        words = [word.text for raw in raws for word in words_of(raw, self.constants)]
        self.assign(name, " ".join(words))

    def assign_by_command(self, words: Sequence[str], stdin: str | None) -> None:
        """Record what `printf -v NAME TEXT`, `read NAME <<< TEXT` and `set -- WORD…` assign."""
        if not words or not (words[0] in _ASSIGNING or words[0] in self.functions):
            return
        if words[0] in self.functions:
            words = ("set", "--", *words[1:])
        start = list(words[:2])
        if start == ["printf", "-v"] and len(words) > 3:
            self.assign(words[2], " ".join(words[3:] if "%" not in words[3] else words[4:]))
        elif start[:1] == ["read"] and stdin is not None:
            for name in words[1:]:
                self.assign(name, stdin)
        elif start == ["set", "--"]:
            self.assign("@", " ".join(words[2:]))
            self.assign("*", " ".join(words[2:]))
            for number, text in enumerate(words[2 : 2 + POSITIONAL_MAX], 1):
                self.assign(str(number), text)

    def tables(self) -> list[Table]:
        """Return the tables of values to try, the most probable one first."""
        tables = [Table(self.constants, UNKNOWN_TEXT)]
        if self._values and (
            (first := {**self.constants, **dict(reversed(self._values))}) != self.constants
        ):
            tables.append(Table(first, UNKNOWN_TEXT))
        tables.append(Table(self.constants, ""))
        return tables


class _Visit(NamedTuple):
    """A node of the tree to visit, and the stdin that its commands inherit."""

    node: "Node"
    is_piped: bool = False
    """Whether a pipeline provides the stdin."""
    input: Input = ""
    text: str = ""
    """The text on the stdin, if `input` is `text`."""


class _Found(NamedTuple):
    """A command: its words as they are written, and its stdin (as in `_Visit`)."""

    raws: list[Raw]
    is_piped: bool
    input: Input
    text: str
    is_syntax: bool = False


class CommandWalk:
    """Collects the commands in a syntax tree and what the line assigns: `run`, then `commands`."""

    # Nothing is recursive, since trees can be very deep.

    def __init__(self, source: bytes, constants: Mapping[str, str]) -> None:
        self._source = source
        self.found: list[_Found] = []
        self.problem = ""
        self.danger = ""
        self.suspected: list[str] = []
        """Texts that may be commands which the tree does not have.

        If there are more than `COMMANDS_MAX`, only the first `COMMANDS_MAX + 1`. Their total length
        is at most a few times the length of the line.
        """
        self._is_joined = False
        # By kind: the bytes of the last node that is in no other node of its kind.
        self._outermost = {"command_substitution": range(0), "expansion": range(0)}
        self.variables = Variables(constants)
        # Arguments that the tree puts into a redirection after the command, by the id of the
        # command's node.
        self._late: dict[int, list[Node]] = {}
        self._stack: list[_Visit] = []
        self._has_directories = b"cd " in source or b"pushd" in source

    @property
    def words(self) -> list[list[str]]:
        """The words of each command as they are written, with their quotes and expansions."""
        return [[raw.text for raw in found.raws] for found in self.found if not found.is_syntax]

    def run(self, root: "Node") -> None:
        """Visit all nodes below `root`, in the order of the line. Raises `TooLongError`."""
        self._stack.append(_Visit(root))
        visited = 0
        while self._stack:
            visited += 1
            if visited > NODES_MAX or len(self.found) > COMMANDS_MAX:
                raise TooLongError
            self._visit(self._stack.pop())

    def _check(self, node: "Node", kind: str) -> None:
        if kind not in _PLAIN_KINDS and not self.problem:
            if node.is_named:
                self.problem = _PROBLEMS.get(kind, "syntax that is not plain")
            elif kind == "&":
                self.problem = "a background command"
        if kind == "``" and not self._is_joined:
            # tree-sitter joins the words around it.
            self._is_joined = True
            self._suspect(self._source.decode(errors="replace"))
        elif node.is_named and node.child_count == 0:
            self._leaf(node, kind)

    def _suspect(self, text: str) -> None:
        if len(self.suspected) <= COMMANDS_MAX:
            self.suspected.append(text)

    def _leaf(self, node: "Node", kind: str) -> None:
        """Find what tree-sitter leaves out in `${x:-`a`}` and in here-documents."""
        text = self._text(node)
        if ("`" in text or "$(" in text) and not self._is_quoted(node, kind):
            found = (match[1] for match in _SUBSTITUTION.finditer(text) if match[1])
            for one in itertools.islice(found, COMMANDS_MAX + 1):
                self._suspect(one)

    def _is_quoted(self, node: "Node", kind: str) -> bool:
        if kind not in _QUOTED_KINDS:
            return False
        if kind != "heredoc_body" and node.start_byte not in self._outermost["expansion"]:
            # `parent` would take time quadratic in the number of comments.
            return True
        parent = node.parent
        if parent is None:
            return False
        if kind == "heredoc_body":
            starts = (self._text(one) for one in parent.children if one.type == "heredoc_start")
            return any(quote in start for start in starts for quote in "\\'\"")
        # In `"${x:-'`a`'}"`, the single quotes do not quote.
        return "expansion" not in (parent.type, parent.parent and parent.parent.type)

    def _visit(self, visit: _Visit) -> None:
        node = visit.node
        # `[` is a program, `[[` is syntax.
        is_bracket = node.type == "test_command" and node.children[0].type == "["
        kind = "command" if is_bracket else node.type
        self._check(node, kind)
        if kind in _COMMANDS:
            self._command(visit)
            return
        children = node.children
        if kind == "pipeline":
            pushed = [
                visit._replace(node=child, is_piped=visit.is_piped or number > 0)
                for number, child in enumerate(children)
            ]
            self._stack += reversed(pushed)
            return
        if kind == "redirected_statement":
            self._redirected(visit)
            return
        if kind in self._outermost:
            self._expansion(node, kind)
        elif kind == "file_redirect":
            self._redirection(node)
        elif kind == "variable_assignment":
            self._assignment(node)
        elif kind == "function_definition" and (name := node.child_by_field_name("name")):
            self.variables.functions.add(self._text(name))
        elif self._has_directories and (kind == ")" or kind in _SUBSHELL):
            # A subshell has a working directory of its own.
            self.found.append(
                _Found([Raw("(" if kind in _SUBSHELL else ")", ())], False, "", "", True)
            )
        for child in reversed(children):
            # After `<<END |`, tree-sitter puts the rest of the pipeline into the redirection.
            is_rest = kind == "heredoc_redirect" and child.type == "pipeline"
            self._stack.append(visit._replace(node=child, is_piped=visit.is_piped or is_rest))

    def _expansion(self, node: "Node", kind: str) -> None:
        if node.start_byte in self._outermost[kind]:
            return
        self._outermost[kind] = range(node.start_byte, node.end_byte)
        # The texts of nested ones would be as long as the line times the depth of nesting.
        if kind == "command_substitution" and "\\`" in (text := self._text(node)):
            self._suspect(text)

    def _command(self, visit: _Visit) -> None:
        late = self._late.pop(visit.node.id, [])
        lines: list[list[Node]] = [[]]
        end = visit.node.start_byte
        stack = visit.node.children[::-1]
        while stack:
            child = stack.pop()
            if child.type.endswith("_expression"):  # in `[ … ]`
                stack += reversed(child.children)
                continue
            between = self._source[end : child.start_byte].replace(b"\\\n", b"")
            if b"\n" in between and lines[-1]:
                # tree-sitter reads on in the next line after `==` and `=~`.
                lines.append([])
            if child.type != "comment":
                lines[-1].append(child)
            if child.type == "regex":
                # In a subshell, it has all words of the next line.
                self._check(child, child.type)
                self._suspect(self._text(child))
            end = child.end_byte
        for children in lines:
            self._simple(visit, children, late if children is lines[-1] else [])

    def _simple(self, visit: _Visit, children: list["Node"], late: list["Node"]) -> None:
        given, text = visit.input, visit.text
        raws: list[Raw] = []
        nested: list[_Visit] = []
        end = -1
        is_declaration = visit.node.type != "command"
        for child in children:
            kind = child.type
            is_assignment = kind == "variable_assignment"
            if kind == "herestring_redirect":
                given, text = self._here(child)
            if kind.endswith("_redirect") or (is_assignment and not is_declaration):
                nested.append(_Visit(child))
                continue
            if is_assignment:
                self._assignment(child)
            raw = self._raw(child, nested)
            if raws and not self._source[end : child.start_byte].replace(b"\\\n", b""):
                # Two nodes of the tree without a blank between them are parts of one word.
                before = raws[-1]
                if len(before.expansions) > EXPANSIONS_MAX:
                    raise TooLongError
                size = len(before.text)
                moved = tuple((size + a, size + b) for a, b in raw.expansions)
                raws[-1] = Raw(before.text + raw.text, before.expansions + moved)
            else:
                raws.append(raw)
            end = child.end_byte
            if len(raws) > WORDS_MAX:
                raise TooLongError
        raws += [self._raw(one, nested) for one in late]
        self.found.append(_Found(raws, visit.is_piped, given, text))
        self._stack += reversed(nested)

    def _raw(self, node: "Node", nested: list["_Visit"]) -> Raw:
        """Return the word at a node as it is written; append its expansions to `nested`."""
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
                # `$?` is a number.
                if current.text != b"$?":
                    nested.append(_Visit(current))
            else:
                self._check(current, kind)
                stack += reversed(current.children)
        if len(spans) > EXPANSIONS_MAX:
            raise TooLongError
        if not raw.isascii():
            spans = [
                (len(raw[:a].decode(errors="replace")), len(raw[:b].decode(errors="replace")))
                for a, b in spans
            ]
        return Raw(raw.decode(errors="replace"), tuple(spans))

    def _redirected(self, visit: _Visit) -> None:
        body: list[_Visit] = []
        redirections: list[_Visit] = []
        late: list[Node] = []
        given, text = visit.input, visit.text
        for child in visit.node.children:
            if child.type in ("heredoc_redirect", "herestring_redirect"):
                given, text = self._here(child)
            elif child.type == "file_redirect":
                destinations = child.children_by_field_name("destination")
                # In `cmd >file arg`, tree-sitter makes `arg` a destination of the redirection.
                late += destinations[1:]
                if any(one.type == "process_substitution" for one in destinations):
                    given = given or "computed"
            is_redirection = child.type.endswith("_redirect")
            (redirections if is_redirection else body).append(_Visit(child, visit.is_piped))
        if late and body:
            last = body[-1].node
            while last.type != "command" and last.child_count:
                last = last.children[-1]
            self._late[last.id] = late
        body = [one._replace(input=given, text=text) for one in body]
        self._stack += reversed([*body, *redirections])

    def _here(self, node: "Node") -> tuple[Input, str]:
        """Return the stdin that a here-document or here-string provides: its kind and its text."""
        for child in node.children:
            if child.type == "heredoc_body":
                return "text", self._text(child)
            if child.is_named and node.type == "herestring_redirect":
                words = words_of(self._raw(child, []), self.variables.constants)
                text = " ".join(word.text for word in words)
                return ("computed" if UNKNOWN_TEXT in text else "text"), text
        return "computed", ""

    def _redirection(self, node: "Node") -> None:
        destinations = node.children_by_field_name("destination")
        end = destinations[0].end_byte if destinations else node.end_byte
        text = self._source[node.start_byte : end].decode(errors="replace")
        if not _HARMLESS_REDIRECTION.fullmatch(text) and not self.problem:
            self.problem = "a redirection to a file"
        if _DEVICE.match(text):
            self.danger = "it writes to a device"
        if (
            destinations
            and (operator := _OPERATOR.match(text))
            and not _HARMLESS_REDIRECTION.fullmatch(text)
        ):
            raws = [Raw(operator[1], ()), self._raw(destinations[0], [])]
            self.found.append(_Found(raws, False, "", "", True))
        if destinations and _WRITES.match(text):
            words = words_of(self._raw(destinations[0], []), self.variables.constants)
            if any(is_own_file(word.text) for word in words):
                self.danger = "it writes acpterm's settings"

    def _assignment(self, node: "Node") -> None:
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        if name is None:
            return
        text = self._text(name).partition("[")[0]
        if value is None:
            self.variables.declare(text)
        else:
            items = [child for child in value.children if child.is_named]
            raws = [self._raw(one, []) for one in (items if value.type == "array" else [value])]
            self.variables.assign_words(text, raws)

    def _text(self, node: "Node") -> str:
        return self._source[node.start_byte : node.end_byte].decode(errors="replace")

    def commands(self) -> Iterator[SimpleCommand]:
        """Yield the commands, with values in place of variables. Call this after `run`."""
        for found in self.found:
            texts = [raw.text.strip("'\"") for raw in found.raws]
            self.variables.assign_by_command(texts, found.text if found.input == "text" else None)
        tables = self.variables.tables()
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
            if found.raws[0].text == "alias" and not self.problem:
                self.problem = "an alias"
            if found.raws[0].text.isdigit() and variants[0][1:]:
                # tree-sitter takes the descriptor of `0<f a` for the program.
                variants.append(variants[0][1:])
            if variants:
                given: Input = found.input or ("pipe" if found.is_piped else "")
                others = () if found.is_syntax else tuple(variants[1:])
                yield SimpleCommand(variants[0], others, given, found.text, found.is_syntax)


def _is_plain(words: tuple[Word, ...]) -> bool:
    return all(
        word.is_literal or word.is_glob or word.text == "~" or word.text.startswith("~/")
        for word in words
    )
