"""Parses JSON, with or without comments, and keeps the position of each value in the text.

Stateless. `parse` returns a tree of `Node`, or raises `ParseError`, which has the number of the
invalid line. Comments and a comma after the last member are accepted only if the caller allows
them, since programs that read plain JSON reject them.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SPACE_AND_COMMENTS: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
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
        """Return the member `name`; None if there is none.

        If there are several, return the last one, which is the one that JSON parsers use.
        """
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
    """Parse `text` and return its value; None if the text is empty or has only comments.

    With `comments`, accept comments, and a comma after the last member or item. Raises `ParseError`
    if the text is not valid.
    """
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
        """Skip the comma and the space after the value that ends at `end`.

        Return the position at which the text continues, and the position of the comma (None if
        there is no comma).
        """
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
