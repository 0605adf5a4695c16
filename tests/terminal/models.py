"""Slow, simple models of the ring and of the text view, which share no code with them.

`render` processes the whole stream at each call, one character after another.
"""

import codecs
import re


class RingModel:
    """All bytes ever written."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.data = b""

    def write(self, data):
        self.data += data

    def read(self, since, max_bytes):
        start = max(0, len(self.data) - self.capacity)
        position = max(start, since)
        data = self.data[position:]
        return data if max_bytes is None else data[:max_bytes], position, position - since


class TextModel:
    """The text of all bytes ever fed, cut to the limit when it is read."""

    def __init__(self, limit, *, width=16384, sequence_max=8192):
        self.limit = limit
        self.width = width
        self.sequence_max = sequence_max
        self.data = b""
        self.finished = False
        self.sticky = False

    def feed(self, data):
        self.data += data

    def finish(self):
        self.finished = True

    def read(self):
        """Return the text and whether it is truncated."""
        finished, line = render(
            self.data,
            final=self.finished,
            width=self.width,
            sequence_max=self.sequence_max,
        )
        whole = (finished + line).encode()
        if len(finished.encode()) > self.limit or len(whole) > self.limit:
            self.sticky = True
        begin = max(0, len(whole) - self.limit)
        # The last `limit` bytes, without an incomplete character at their start.
        return whole[begin:].decode(errors="ignore"), self.sticky


class _Stream:
    """The state of the text view after the characters processed so far."""

    def __init__(self, width, sequence_max):
        self.width = width
        self.sequence_max = sequence_max
        self.finished_text = ""
        # None is an erased cell.
        self.cells = []
        self.column = 0
        self.sequence = ""

    def line(self):
        cells = list(self.cells)
        while cells and cells[-1] is None:
            cells.pop()
        return "".join(" " if cell is None else cell for cell in cells)

    def put(self, char):
        if self.column == self.width:
            self.finished_text += self.line()
            self.cells, self.column = [], 0
        while len(self.cells) <= self.column:
            self.cells.append(None)
        self.cells[self.column] = char
        self.column += 1

    def plain(self, char):
        """Process a character outside of sequences."""
        if char == "\n":
            self.finished_text += self.line() + "\n"
            self.cells, self.column = [], 0
        elif char == "\r":
            self.column = 0
        elif char == "\b":
            self.column = max(0, self.column - 1)
        elif char == "\t" or char >= " ":
            self.put(char)

    def erase(self, mode):
        for at in range(len(self.cells)):
            if mode == 2 or (mode == 0 and at >= self.column) or (mode == 1 and at <= self.column):
                self.cells[at] = None

    def process(self, char):
        if char in "\v\f":
            char = "\n"
        if (char < " " and char not in "\a\b\t\n\r\x18\x1a\x1b") or "\x7f" <= char <= "\x9f":
            return
        if char == "\x1b":
            self.sequence = char
        elif not self.sequence:
            self.plain(char)
        elif char in "\x18\x1a":
            self.sequence = ""
        else:
            self.inside(char)
        if len(self.sequence) >= self.sequence_max:
            self.sequence = ""

    def inside(self, char):
        kind = self.sequence_kind()
        if kind in {"osc", "string", "dcs"}:
            if char == "\a" and kind == "osc":
                self.sequence = ""
            elif char == "\n" and kind != "dcs":
                self.sequence = ""
                self.plain(char)
            else:
                self.sequence += char
            return
        if char > "~":
            self.sequence = ""
            self.plain(char)
            return
        self.sequence += char
        if char < " ":
            self.plain(char)
            return
        spelled = re.sub("[\x00-\x1f]", "", self.sequence)
        if kind == "csi":
            if char >= "@":
                self.csi(spelled)
                self.sequence = ""
        elif char >= "0" and self.sequence_kind() == "escape":
            self.sequence = ""

    def sequence_kind(self):
        """Return the kind of the current sequence, such as "csi" or "osc".

        It depends on the first character after ESC that is not a control character.
        """
        for char in self.sequence[1:]:
            if char >= " ":
                return {
                    "[": "csi",
                    "]": "osc",
                    "P": "dcs",
                    "X": "string",
                    "^": "string",
                    "_": "string",
                }.get(char, "escape")
        return "escape"

    def csi(self, spelled):
        known = re.fullmatch(r"\[([0-9]*)(;[0-9;]*)?K", spelled)
        if known and int(known[1] or 0) <= 2:
            self.erase(int(known[1] or 0))
        known = re.fullmatch(r"\[([0-9]*)(;[0-9;]*)?G", spelled)
        if known and int(known[1] or 0) <= 1:
            self.process("\r")


def render(data, *, final, width=16384, sequence_max=8192):
    """Return the text of all finished lines, and that of the current line.

    `final` means that no data follows. A line has at most `width` characters. An escape sequence is
    dropped when it has `sequence_max` characters.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    stream = _Stream(width, sequence_max)
    for char in decoder.decode(data, final):
        stream.process(char)
    return stream.finished_text, stream.line()
