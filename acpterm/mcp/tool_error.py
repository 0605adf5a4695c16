"""The error that a tool reports to the model, and the shortening of texts in its message."""

from typing import Final

QUOTED_CHARS_MAX: Final = 100


class ToolError(Exception):
    """A call cannot be executed. The message is for the model: what is wrong, and what to do."""


def shortened(text: str) -> str:
    """Return a text from the model, cut to `QUOTED_CHARS_MAX` characters, to quote in a message."""
    return text if len(text) <= QUOTED_CHARS_MAX else f"{text[: QUOTED_CHARS_MAX - 1]}…"
