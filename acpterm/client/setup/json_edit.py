"""Adds members to JSON text, and removes them, without a change to anything else in the text.

`parse` returns the text as a tree of `Node` with positions. Comments and a comma after the last
member are accepted only with `comments`, since programs that read plain JSON reject them.

`add` and `remove` return new text and keep the rest of the old text: comments, order, indentation,
line ends, a byte order mark. A new member is written in the style of its neighbours: on a line of
its own, or on the same line. `add` creates missing objects around the member. `remove` reverts
`add`, if its caller passes the number of objects that `add` has created.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SPACE_AND_COMMENTS: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
# Comments after a value on the same line, which are treated as a part of the value.
_SAME_LINE: Final = re.compile(r"(?:[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/))+")
_BOM: Final = "\ufeff"
_DEPTH_MAX: Final = 200


class ParseError(ValueError):
    """The text is not valid; `line` is the number of the invalid line, counted from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line: Final = line


@dataclass
class Node:
    """A value in the text, from the position `start` up to `end`; `data` is the decoded value."""

    start: int
    end: int
    data: Any
    members: "list[Member] | None" = None
    """The members of an object, in order; None for other values."""

    def member(self, name: str) -> "Member | None":
        """Return the member `name`; None if there is none."""
        # JSON parsers use the last one of several.
        found = [member for member in self.members or () if member.name == name]
        return found[-1] if found else None


@dataclass
class Member:
    """A member of an object. `start` is the position at which the member's name begins."""

    name: str
    start: int
    value: Node
    comma: int | None
    """The position of the comma after the value, if there is one."""


def parse(text: str, *, comments: bool) -> Node | None:
    """Parse `text` and return its value; None if the text is empty or has only comments."""
    parser = _Parser(text, _SPACE_AND_COMMENTS if comments else _SPACE, comments)
    return parser.document()


@dataclass
class _Parser:
    text: str
    space: re.Pattern[str]
    trailing_commas: bool
    decoder: json.JSONDecoder = field(default_factory=json.JSONDecoder)

    def document(self) -> Node | None:
        at = self._skip(len(_BOM) if self.text.startswith(_BOM) else 0)
        if at == len(self.text):
            return None
        node = self._value(at, 0)
        rest = self._skip(node.end)
        if rest != len(self.text):
            self._fail("there is text after the end of the value", rest)
        return node

    def _value(self, at: int, depth: int) -> Node:
        if depth > _DEPTH_MAX:
            self._fail("values are nested too deeply", at)
        opening = self.text[at : at + 1]
        if opening == "{":
            return self._object(at, depth)
        if opening == "[":
            return self._array(at, depth)
        try:
            data, end = self.decoder.raw_decode(self.text, at)
        except json.JSONDecodeError as error:
            self._fail(error.msg, error.pos)
        return Node(at, end, data)

    def _object(self, start: int, depth: int) -> Node:
        members: list[Member] = []
        at, comma = self._skip(start + 1), None
        while self.text[at : at + 1] != "}":
            if members and comma is None:
                self._fail("a comma or } is missing", at)
            if self.text[at : at + 1] != '"':
                self._fail('the name of a member is missing: a string in "', at)
            name = self._value(at, depth)
            colon = self._skip(name.end)
            if self.text[colon : colon + 1] != ":":
                self._fail("a colon is missing", colon)
            value = self._value(self._skip(colon + 1), depth + 1)
            after, comma = self._after(value.end)
            members.append(Member(name.data, at, value, comma))
            at = after
        self._check_comma(comma)
        data = {member.name: member.value.data for member in members}
        return Node(start, at + 1, data, members)

    def _array(self, start: int, depth: int) -> Node:
        items: list[Any] = []
        at, comma = self._skip(start + 1), None
        while self.text[at : at + 1] != "]":
            if items and comma is None:
                self._fail("a comma or ] is missing", at)
            item = self._value(at, depth + 1)
            items.append(item.data)
            at, comma = self._after(item.end)
        self._check_comma(comma)
        return Node(start, at + 1, items)

    def _after(self, end: int) -> tuple[int, int | None]:
        """Skip the comma and the space after the value that ends at `end`."""
        at = self._skip(end)
        if self.text[at : at + 1] != ",":
            return at, None
        return self._skip(at + 1), at

    def _check_comma(self, comma: int | None) -> None:
        if comma is not None and not self.trailing_commas:
            self._fail("there is a comma after the last value", comma)

    def _skip(self, at: int) -> int:
        found = self.space.match(self.text, at)
        assert found is not None  # noqa: S101  the pattern matches the empty text
        return found.end()

    def _fail(self, message: str, at: int) -> NoReturn:
        raise ParseError(message, self.text.count("\n", 0, at) + 1)


def add(text: str, path: Sequence[str], value: object, *, comments: bool) -> str:
    """Return `text` with `value` added as the member at `path`."""
    root = parse(text, comments=comments)
    if root is None:
        between = newline(text) if text.strip("\ufeff \t\r\n") else ""
        return text + between + _dump(_nested(path, value), "  ", newline(text)) + newline(text)
    parent, rest = _innermost(text, root, path)
    member = f"{json.dumps(rest[0], ensure_ascii=False)}: "
    content = _nested(rest[1:], value)
    if _is_inline(text, root, parent):
        compact = ", " not in text and ": " not in text
        separators = (",", ":") if compact else (", ", ": ")
        written = member.rstrip() if compact else member
        written += json.dumps(content, ensure_ascii=False, separators=separators)
        return _insert_inline(text, parent, written, "" if compact else " ")
    unit = _unit(text, root)
    if parent.members:
        indent = _line_indent(text, parent.members[0].start)
    else:
        indent = _line_indent(text, parent.start) + unit
    end = newline(text)
    lines = _dump(content, unit, end).replace(end, end + indent)
    return _insert_line(text, parent, f"{end}{indent}{member}{lines}", comments=comments)


def remove(text: str, path: Sequence[str], *, parents: int, comments: bool) -> str:
    """Return `text` without the member at `path`, and up to `parents` objects that became empty."""
    root = parse(text, comments=comments)
    assert root is not None  # noqa: S101  it has a member
    parent = node_at(root, path[:-1])
    member = parent.member(path[-1]) if parent else None
    assert parent is not None  # noqa: S101
    assert member is not None  # noqa: S101
    text = _without(text, parent, member)
    if parents > 0 and len(path) > 1:
        root = parse(text, comments=comments)
        around = node_at(root, path[:-1]) if root else None
        if around and not around.members and around.end - around.start == len("{}"):
            return remove(text, path[:-1], parents=parents - 1, comments=comments)
    return text


def node_at(root: Node, path: Sequence[str]) -> Node | None:
    """Return the value at `path` in `root`; None if there is none."""
    node: Node | None = root
    for name in path:
        member = node.member(name) if node else None
        node = member.value if member else None
    return node


def newline(text: str) -> str:
    """Return the line end to write into `text`: CR LF if `text` has one anywhere, else LF."""
    return "\r\n" if "\r\n" in text else "\n"


def _innermost(text: str, root: Node, path: Sequence[str]) -> tuple[Node, Sequence[str]]:
    """Follow `path` from `root`; return the last object that exists, and the rest of `path`."""
    node = root
    for depth, name in enumerate(path):
        if node.members is None:
            what = f'"{path[depth - 1]}"' if depth else "the top level"
            line = text.count("\n", 0, node.start) + 1
            raise ParseError(f"{what} is not an object {{…}}", line)
        member = node.member(name)
        if member is None:
            return node, path[depth:]
        node = member.value
    line = text.count("\n", 0, node.start) + 1
    raise ParseError(f'"{".".join(path)}" exists already', line)


def _nested(path: Sequence[str], value: object) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _dump(value: object, unit: str, end: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", end)


def _is_inline(text: str, root: Node, parent: Node) -> bool:
    """Return whether to write a member of `parent` on the line of its neighbours."""
    for node in (parent, root):
        if node.members:
            return "\n" not in text[node.start : node.members[0].start]
    return False


def _line_indent(text: str, at: int) -> str:
    """Return the white space at the beginning of the line that has the position `at`."""
    start = text.rfind("\n", 0, at) + 1
    line = text[start:at].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str, root: Node) -> str:
    """Return the white space by which each level of objects is indented in `text`."""
    if root.members:
        indent = _line_indent(text, root.members[0].start)
        return indent.removeprefix(_line_indent(text, root.start)) or "  "
    return "  "


def _insert_inline(text: str, parent: Node, written: str, space: str) -> str:
    if not parent.members:
        at = parent.end - 1
        return text[:at] + written + text[at:]
    last = parent.members[-1]
    if last.comma is not None:
        at = last.comma + 1
        return f"{text[:at]}{space}{written},{text[at:]}"
    at = last.value.end
    return f"{text[:at]},{space}{written}{text[at:]}"


def _insert_line(text: str, parent: Node, written: str, *, comments: bool) -> str:
    if not parent.members:
        at = parent.end - 1
        if "\n" in text[parent.start : at]:
            at = _start_of_line(text, at)
            return text[:at] + written + text[at:]
        closing = newline(text) + _line_indent(text, parent.start)
        return text[:at].rstrip(" \t") + written + closing + text[at:]
    last = parent.members[-1]
    if last.comma is not None:
        at = _end_of_comments(text, last.comma + 1, comments=comments)
        return f"{text[:at]}{written},{text[at:]}"
    end = last.value.end
    at = _end_of_comments(text, end, comments=comments)
    return f"{text[:end]},{text[end:at]}{written}{text[at:]}"


def _end_of_comments(text: str, at: int, *, comments: bool) -> int:
    """Return the position after the comments that follow the position `at` on the same line."""
    found = _SAME_LINE.match(text, at) if comments else None
    return found.end() if found else at


def _start_of_line(text: str, at: int) -> int:
    """Return `at`, moved back over blanks, and then over a line end if one precedes the blanks."""
    at = len(text[:at].rstrip(" \t"))
    if text[:at].endswith("\n"):
        at -= 1
    return at - text[:at].endswith("\r")


def _without(text: str, parent: Node, member: Member) -> str:
    """Return `text` without `member`, and without the comma that is then superfluous."""
    members = parent.members or []
    index = members.index(member)
    start = _start_of_line(text, member.start)
    if member.comma is not None:
        rest = text[member.comma + 1 :]
        first_of_line = index == 0 and start == member.start
        return text[:start] + (rest.lstrip(" ") if first_of_line else rest)
    if index:
        comma = members[index - 1].comma
        assert comma is not None  # noqa: S101  there is one between two members
        return text[:comma] + text[comma + 1 : start] + text[member.value.end :]
    rest = text[member.value.end : parent.end - 1]
    # If there are comments, keep the white space: it has the line end that ends a comment.
    has_comments = (text[parent.start + 1 : start] + rest).strip()
    return text[:start] + (rest if has_comments else "") + text[parent.end - 1 :]
