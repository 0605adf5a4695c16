"""The text of a settings file in one of three formats: JSON, JSON with comments, or TOML.

Each change is checked: the new text is parsed, and its data must be the old data with exactly this
change. Otherwise `SetupError` is raised, and nothing is written: an edit that goes wrong cannot
damage a file.
"""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

from acpterm.setup import json_edit, toml_edit
from acpterm.setup.files import SetupError
from acpterm.setup.json_edit import ParseError

Format = Literal["json", "jsonc", "toml"]


@dataclass(frozen=True)
class Document:
    """The text of the settings file at `path`; empty if there is no file."""

    path: str
    format: Format
    text: str

    @classmethod
    def decode(cls, path: str, form: Format, content: bytes | None) -> "Document":
        try:
            document = cls(path, form, (content or b"").decode())
        except UnicodeDecodeError as error:
            line = (content or b"").count(b"\n", 0, error.start) + 1
            raise SetupError(f"{path}:{line}: is not UTF-8. Nothing was changed") from None
        document.data()
        return document

    def data(self) -> dict[str, Any]:
        try:
            if self.format == "toml":
                return toml_edit.parse(self.text)
            return json_edit.parse(self.text, comments=self._comments)
        except ParseError as error:
            raise self._invalid(error) from None

    def get(self, path: Sequence[str]) -> Any:
        found: Any = self.data()
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def missing_parents(self, path: Sequence[str]) -> int:
        """Return how many of the objects around the value at `path` do not exist."""
        return sum(self.get(path[:depth]) is None for depth in range(1, len(path)))

    def add(self, path: Sequence[str], entry: Mapping[str, Any]) -> "Document":
        """Return the document with `entry` added at `path`, at which there must be no value."""
        try:
            if self.format == "toml":
                text = toml_edit.add(self.text, path, entry)
            else:
                text = json_edit.add(self.text, path, entry, comments=self._comments)
        except ParseError as error:
            raise self._invalid(error) from None
        expected = self.data()
        around = expected
        for name in path[:-1]:
            around = around.setdefault(name, {})
        around[path[-1]] = entry
        return self._checked(text, [expected], path)

    def remove(self, path: Sequence[str], parents: int) -> "Document":
        """Return the document without the value at `path`, and up to `parents` emptied objects."""
        if self.format == "toml":
            text = toml_edit.remove(self.text, path, parents=parents)
        else:
            text = json_edit.remove(self.text, path, parents=parents, comments=self._comments)
        expected = self.data()
        # The data does not show whether an empty object stays because of a comment: both are right.
        allowed: list[dict[str, Any]] = []
        for depth in range(len(path), max(len(path) - parents, 1) - 1, -1):
            around = expected
            for name in path[: depth - 1]:
                around = around[name]
            if depth == len(path) or not around[path[depth - 1]]:
                del around[path[depth - 1]]
                allowed.append(deepcopy(expected))
        return self._checked(text, allowed if self._comments else allowed[-1:], path)

    @property
    def _comments(self) -> bool:
        return self.format == "jsonc"

    def _checked(
        self, text: str, allowed: Collection[dict[str, Any]], path: Sequence[str]
    ) -> "Document":
        changed = replace(self, text=text)
        try:
            is_right = changed.data() in allowed
        except SetupError:
            is_right = False
        if not is_right:
            raise SetupError(
                f"{self.path}: {'.'.join(path)} cannot be changed without a change to other "
                "settings. Nothing was changed: edit the file yourself"
            )
        return changed

    def _invalid(self, error: ParseError) -> SetupError:
        return SetupError(
            f"{self.path}:{error.line}: {error}. Nothing was changed: repair the file, and run "
            "the command again"
        )
