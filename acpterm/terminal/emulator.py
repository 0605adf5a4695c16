"""The parser of the VT emulator behind `screen`: control functions in, calls of `Grid` out.

pyte has a parser of its own, but it knows neither string sequences but OSC, nor private
markers but `?`, nor intermediates, nor sub-parameters: it prints parts of them as text, or
raises. So pyte's screen is used here, and its parser is not.

Rules:

- Sequences begin and end as in `controls`; one not whole yet is held, SEQUENCE_MAX
  characters at the most. What is not listed below is left out.
- No sequence raises: if pyte does, the sequence is left out.
- Modes are few: IRM, LNM, DECOM, DECAWM, DECTCEM and the alternate screen; and those of `told`,
  which are only noted. A program does not change the width of the screen (DECCOLM): the PTY's
  window size says what it is.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from pyte import modes

from acpterm.terminal.controls import SEQUENCE_MAX
from acpterm.terminal.grid import Grid
from acpterm.terminal.hyperlink import link_of

if TYPE_CHECKING:
    from collections.abc import Callable

# Characters that say nothing anywhere; SO and SI do here.
_MEANINGLESS = re.compile(r"[\x00-\x06\x10-\x17\x19\x1c-\x1f\x7f-\x9f]+")
_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x1f]+)|"
    r"(?P<control>[\x00-\x1a])|"
    r"\x1b(?:"
    r"\[(?P<csi>[\x07-\x0f -?]*)(?P<final>[@-~])|"
    r"\](?P<osc>[^\a\x18\x1a\x1b\n\v\f]*)(?:[\a\x18\x1a]|(?=[\x1b\n\v\f]))|"
    r"[X^_][^\x18\x1a\x1b\n\v\f]*(?:[\x18\x1a]|(?=[\x1b\n\v\f]))|"
    r"P[^\x18\x1a\x1b]*(?:[\x18\x1a]|(?=\x1b))|"
    r"(?P<escape>[\x07-\x0f]*(?:[ -/][\x07-\x0f -/]*[0-~]|[0-OQ-WYZ\\`-~]))|"
    # Cut short.
    r"(?P<cut>\[[\x07-\x0f -?]*|[\x07-\x0f -/]*)(?:[\x18\x1a]|(?=[\x1b\xa0-\U0010ffff])))"
)
_CONTROL = re.compile(r"[\x07-\x0f]")
_PARAMETERS = re.compile(r"(\??)([0-9;]*)")
# How keys are told: kitty's protocol, modifyOtherKeys.
_KEYS = re.compile(r"[<=>][0-9;]{0,32}")
_RENDITION = re.compile(r"[0-9;:]*")
_LINK = re.compile(r"0*8;(.*)", re.DOTALL)
_TITLE = re.compile(r"0*[02];(.*)", re.DOTALL)
# What stays in force however much is printed behind it; and what ends or begins such a thing.
_LASTING = re.compile(
    r"\x1b(?:\[(?P<csi>[0-9;?! ]*)(?P<final>[hlrqp])|"
    r"\[(?P<keys>[<=>][0-9;]{0,32})(?P<end>[umn])|(?P<escape>[=>c])|"
    r"\](?P<osc>0*[02];[^\a\x18\x1a\x1b\n\v\f]{0,1024})(?=[\a\x1b]))"
)

_CONTROLS: dict[str, Callable[[Grid], object]] = {
    "\b": Grid.backspace,
    "\t": Grid.tab,
    "\n": Grid.linefeed,
    "\v": Grid.linefeed,
    "\f": Grid.linefeed,
    "\r": Grid.carriage_return,
    "\x0e": Grid.shift_out,
    "\x0f": Grid.shift_in,
}
_ESCAPES: dict[str, Callable[[Grid], object]] = {
    "7": Grid.save_cursor,
    "8": Grid.restore_cursor,
    "D": Grid.index,
    "=": lambda grid: grid.told.set_mode(66, True),
    ">": lambda grid: grid.told.set_mode(66, False),
    "E": Grid.next_line,
    "H": Grid.set_tab_stop,
    "M": Grid.reverse_index,
    "c": Grid.reset,
    "#8": Grid.alignment_display,
    "(0": lambda grid: grid.define_charset("0", "("),
    "(B": lambda grid: grid.define_charset("B", "("),
    ")0": lambda grid: grid.define_charset("0", ")"),
    ")B": lambda grid: grid.define_charset("B", ")"),
}
_SEQUENCES: dict[str, Callable[[Grid, int], object]] = {
    "@": Grid.insert_characters,
    "A": Grid.cursor_up,
    "B": Grid.cursor_down,
    "C": Grid.cursor_forward,
    "D": Grid.cursor_back,
    "E": Grid.cursor_down1,
    "F": Grid.cursor_up1,
    "G": Grid.cursor_to_column,
    "I": Grid.tab_forward,
    "J": Grid.erase_in_display,
    "K": Grid.erase_in_line,
    "L": Grid.insert_lines,
    "M": Grid.delete_lines,
    "P": Grid.delete_characters,
    "S": Grid.scroll_up,
    "T": Grid.scroll_down,
    "X": Grid.erase_characters,
    "Z": Grid.tab_back,
    "`": Grid.cursor_to_column,
    "a": Grid.cursor_forward,
    "b": Grid.repeat,
    "d": Grid.cursor_to_line,
    "e": Grid.cursor_down,
    "g": Grid.clear_tab_stop,
}
_POSITIONS: dict[str, Callable[[Grid, int, int], object]] = {
    "H": Grid.cursor_position,
    "f": Grid.cursor_position,
    "r": Grid.set_region,
}
_MODES = {
    "4": modes.IRM,
    "20": modes.LNM,
    "?6": modes.DECOM,
    "?7": modes.DECAWM,
    "?25": modes.DECTCEM,
}


class Emulator:
    """Draws what a program prints on `grid`."""

    __slots__ = ("_held", "grid")

    def __init__(self, cols: int, rows: int) -> None:
        self.grid = Grid(cols, rows)
        self._held = ""

    def feed(self, text: str) -> None:
        """Do what `text`, whole characters, says. Never raises."""
        text = self._held + _MEANINGLESS.sub("", text)
        self._held = ""
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            end = token.end() if token else at
            if token is None or (end - at > SEQUENCE_MAX and token["text"] is None):
                if token is None and len(text) - at < SEQUENCE_MAX:
                    self._held = text[at:]
                    return
                at += SEQUENCE_MAX
                continue
            # pyte has raised on odd input before, and what it raises is of many kinds.
            with suppress(Exception):
                self._do(token)
            at = end

    @property
    def held(self) -> str:
        """What came of a sequence that is not whole yet."""
        return self._held

    def skip(self, text: str) -> None:
        """Do only what stays in force, of `text` that is too much to be drawn. Never raises.

        That is modes, how keys are told, the alternate screen, the region and the title; a sequence
        cut at the beginning or the end is lost, and attributes and charsets are as on a new screen.
        """
        self._held = ""
        for token in _LASTING.finditer(text):
            with suppress(Exception):
                if token["osc"] is not None:
                    self._command(token["osc"])
                elif token["escape"]:
                    self._escape(token["escape"])
                elif token["keys"]:
                    self.grid.told.keys.do(token["keys"], token["end"])
                else:
                    self._control_sequence(token["csi"], token["final"])
        self.grid.restyle("")
        self.grid.lead("")
        self._escape("(B")
        self._escape(")0")
        self._control("\x0f")

    def _do(self, token: re.Match[str]) -> None:
        if token["text"]:
            self.grid.draw(token["text"])
        elif token["control"]:
            self._control(token["control"])
        elif token["final"]:
            self._control_sequence(self._controls_in(token["csi"]), token["final"])
        elif token["escape"]:
            self._escape(self._controls_in(token["escape"]))
        elif token["osc"] is not None:
            # Only one that was not cut short.
            if token.string[token.end("osc")] in "\a\x1b":
                self._command(token["osc"])
        elif token["cut"]:
            self._controls_in(token["cut"])

    def _control(self, char: str) -> None:
        if control := _CONTROLS.get(char):
            control(self.grid)

    def _escape(self, sequence: str) -> None:
        if escape := _ESCAPES.get(sequence):
            escape(self.grid)

    def _command(self, command: str) -> None:
        """Do an operating system command (OSC)."""
        if title := _TITLE.fullmatch(command):
            self.grid.told.set_title(title[1])
        elif link := _LINK.fullmatch(command):
            self.grid.lead(link_of(link[1]))

    def _controls_in(self, sequence: str) -> str:
        """Do the controls inside `sequence`, as a VT does; return it without them."""
        for char in _CONTROL.findall(sequence):
            self._control(char)
        return _CONTROL.sub("", sequence)

    def _control_sequence(self, parameters: str, final: str) -> None:
        if final == "m" and _RENDITION.fullmatch(parameters):
            self.grid.restyle(parameters)
        elif _KEYS.fullmatch(parameters):
            self.grid.told.keys.do(parameters, final)
        elif parameters[-1:] in {" ", "!"}:
            self._intermediate(parameters[:-1], parameters[-1] + final)
        elif known := _PARAMETERS.fullmatch(parameters):
            self._sequence(known, final)

    def _sequence(self, known: re.Match[str], final: str) -> None:
        private = known[1]
        numbers = [_number(digits) for digits in known[2].split(";")[:16]]
        if final in "hl":
            for number in numbers:
                self._mode(f"{private}{number}", final == "h")
        elif private and final not in "JK":
            return
        elif one := _SEQUENCES.get(final):
            if final != "T" or len(numbers) == 1:
                one(self.grid, numbers[0])
        elif two := _POSITIONS.get(final):
            two(self.grid, numbers[0], numbers[1] if len(numbers) > 1 else 0)
        elif final == "s":
            self.grid.save_cursor()
        elif final == "u":
            self.grid.restore_cursor()

    def _intermediate(self, parameters: str, final: str) -> None:
        if final == " q" and (not parameters or parameters.isdecimal()):
            self.grid.told.set_shape(_number(parameters))
        elif final == "!p" and not parameters:
            self.grid.soft_reset()

    def _mode(self, mode: str, on: bool) -> None:
        if mode in {"?47", "?1047", "?1049"}:
            self.grid.alternate(on, with_cursor=mode == "?1049")
        elif mode == "?1048":
            if on:
                self.grid.save_cursor()
            else:
                self.grid.restore_cursor()
        elif (number := _MODES.get(mode)) is not None:
            if on:
                self.grid.set_mode(number)
            else:
                self.grid.reset_mode(number)
        elif mode.startswith("?"):
            self.grid.told.set_mode(int(mode[1:]), on)


def _number(digits: str) -> int:
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) < 5 else 9999
