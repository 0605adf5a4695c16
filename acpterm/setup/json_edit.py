"""Adds members to JSON text, and removes them, without a change to anything else in the text.

The text is edited by positions. These come from a copy of the same length, in which comments and a
comma after the last member are blank, so that Python's decoder reads it. Both are accepted only
with `comments`, since programs that read plain JSON reject them.

A new member is written in the style of its neighbours: on a line of its own, or on the same line.
`remove` reverts `add`; it gets the number of objects that `add` has created around the member.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

_STRING: Final = r'"(?:[^"\\\r\n]|\\.)*"?'
_COMMENT: Final = re.compile(rf"{_STRING}|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA: Final = re.compile(rf"{_STRING}|,(?=[ \t\r\n]*[}}\]])")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
# Comments after a value on the same line, which are treated as a part of the value.
_SAME_LINE: Final = re.compile(r"(?:[ \t]*(?://[^\r\n]*|/\*[^\r\n]*?\*/))+")
_BOM: Final = "\ufeff"


class ParseError(ValueError):
    """The text is not valid; `line` is the number of the invalid line, counted from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line: Final = line


class _Member(NamedTuple):
    name: str
    start: int
    value: int
    """The position at which the value begins."""
    end: int
    comma: int | None


class _Object(NamedTuple):
    start: int
    end: int
    members: list[_Member]

    def member(self, name: str) -> _Member | None:
        # Parsers use the last one of several.
        return next((one for one in reversed(self.members) if one.name == name), None)


class _Source:
    def __init__(self, text: str, *, comments: bool) -> None:
        self.text: Final = text
        with_commas = f" {text[1:]}" if text.startswith(_BOM) else text
        if comments:
            with_commas = _COMMENT.sub(_blank, with_commas)
        self._with_commas: Final = with_commas
        self.plain: Final = _LAST_COMMA.sub(_blank, with_commas) if comments else with_commas
        self.root_start: Final = _skip(self.plain, 0)
        self.is_empty: Final = self.root_start == len(text)

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def object_at(self, start: int) -> _Object:
        decode = json.JSONDecoder().raw_decode
        members: list[_Member] = []
        at = _skip(self.plain, start + 1)
        while self.plain[at] != "}":
            name, end = decode(self.plain, at)
            value = _skip(self.plain, _skip(self.plain, end) + 1)
            _, end = decode(self.plain, value)
            after = _skip(self._with_commas, end)
            comma = after if self._with_commas[after] == "," else None
            members.append(_Member(name, at, value, end, comma))
            at = after if comma is None else _skip(self.plain, after + 1)
        return _Object(start, at + 1, members)

    def innermost(self, path: Sequence[str]) -> tuple[_Object, Sequence[str]]:
        """Return the last object on the way to the member `path`, and the rest of `path`."""
        found = self.object_at(self.root_start)
        for depth, name in enumerate(path[:-1]):
            member = found.member(name)
            if member is None:
                return found, path[depth:]
            if self.plain[member.value] != "{":
                raise ParseError(f'"{name}" is not an object {{…}}', self.line(member.value))
            found = self.object_at(member.value)
        return found, path[-1:]


def _blank(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else re.sub(r"[^\r\n]", " ", match[0])


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None  # noqa: S101  the pattern matches the empty text
    return found.end()


def parse(text: str, *, comments: bool) -> dict[str, Any]:
    """Return the data of `text`: an object, which is empty if the text is, or has only comments."""
    source = _Source(text, comments=comments)
    if source.is_empty:
        return {}
    try:
        data = json.loads(source.plain)
    except json.JSONDecodeError as error:
        raise ParseError(error.msg, error.lineno) from None
    except RecursionError:
        raise ParseError("values are nested too deeply", 1) from None
    if not isinstance(data, dict):
        raise ParseError("the top level is not an object {…}", source.line(source.root_start))
    return data


def add(text: str, path: Sequence[str], value: object, *, comments: bool) -> str:
    """Return `text` with `value` added as the member at `path`; create missing objects around."""
    source = _Source(text, comments=comments)
    end = "\r\n" if "\r\n" in text else "\n"
    if source.is_empty:
        between = end if text.strip(f"{_BOM} \t\r\n") else ""
        return text + between + _dump(_nested(path, value), "  ", end) + end
    root, (parent, rest) = source.object_at(source.root_start), source.innermost(path)
    if member := parent.member(rest[0]):
        raise ParseError(f'"{".".join(path)}" exists already', source.line(member.start))
    content = _nested(rest[1:], value)
    last = parent.members[-1] if parent.members else None
    is_inline = _is_inline(text, root, parent)
    if is_inline:
        is_compact = ", " not in text and ": " not in text
        separators = (",", ":") if is_compact else (", ", ": ")
        written = json.dumps({rest[0]: content}, ensure_ascii=False, separators=separators)[1:-1]
        lead = "" if is_compact or last is None else " "
    else:
        unit = _unit(text, root)
        indent = _line_indent(text, parent.members[0].start if last else parent.start)
        indent += "" if last else unit
        lines = _dump(content, unit, end).replace(end, end + indent)
        written = f"{json.dumps(rest[0], ensure_ascii=False)}: {lines}"
        lead = end + indent
    if last is None:
        at = parent.end - 1
        if not is_inline:
            if "\n" not in text[parent.start : at]:
                closing = end + _line_indent(text, parent.start)
                return text[:at].rstrip(" \t") + lead + written + closing + text[at:]
            at = _start_of_line(text, at)
        return text[:at] + lead + written + text[at:]
    after = last.end if last.comma is None else last.comma + 1
    same_line = _SAME_LINE.match(text, after) if comments and not is_inline else None
    at = same_line.end() if same_line else after
    if last.comma is None:
        return f"{text[:after]},{text[after:at]}{lead}{written}{text[at:]}"
    return f"{text[:at]}{lead}{written},{text[at:]}"


def remove(text: str, path: Sequence[str], *, parents: int, comments: bool) -> str:
    """Return `text` without the member at `path`, and up to `parents` objects that became empty."""
    parent, rest = _Source(text, comments=comments).innermost(path)
    member = parent.member(rest[0])
    assert member is not None  # noqa: S101
    text = _without(text, parent, member)
    if parents > 0 and len(path) > 1 and text.startswith("{}", parent.start):
        return remove(text, path[:-1], parents=parents - 1, comments=comments)
    return text


def _without(text: str, parent: _Object, member: _Member) -> str:
    """Return `text` without `member`, and without the comma that is then superfluous."""
    index = parent.members.index(member)
    start = _start_of_line(text, member.start)
    if member.comma is not None:
        rest = text[member.comma + 1 :]
        first_of_line = index == 0 and start == member.start
        return text[:start] + (rest.lstrip(" ") if first_of_line else rest)
    if index:
        comma = parent.members[index - 1].comma
        assert comma is not None  # noqa: S101  there is one between two members
        return text[:comma] + text[comma + 1 : start] + text[member.end :]
    rest = text[member.end : parent.end - 1]
    # If there are comments, keep the white space: it has the line end that ends a comment.
    has_comments = (text[parent.start + 1 : start] + rest).strip()
    return text[:start] + (rest if has_comments else "") + text[parent.end - 1 :]


def _nested(path: Sequence[str], value: object) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _dump(value: object, unit: str, end: str) -> str:
    return json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", end)


def _is_inline(text: str, root: _Object, parent: _Object) -> bool:
    """Return whether to write a member of `parent` on the line of its neighbours."""
    for found in (parent, root):
        if found.members:
            return "\n" not in text[found.start : found.members[0].start]
    return False


def _line_indent(text: str, at: int) -> str:
    """Return the white space at the beginning of the line that has the position `at`."""
    line = text[text.rfind("\n", 0, at) + 1 : at].lstrip(_BOM)
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str, root: _Object) -> str:
    """Return the white space by which each level of objects is indented in `text`."""
    indent = _line_indent(text, root.members[0].start) if root.members else ""
    return indent.removeprefix(_line_indent(text, root.start)) or "  "


def _start_of_line(text: str, at: int) -> int:
    """Return `at`, moved back over blanks, and then over a line end if one precedes the blanks."""
    at = len(text[:at].rstrip(" \t"))
    if text[:at].endswith("\n"):
        at -= 1
    return at - text[:at].endswith("\r")
