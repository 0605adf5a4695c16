"""The error that a tool reports to the model."""

from typing import Final

QUOTED_CHARS_MAX: Final = 100


class ToolError(Exception):
    """A call cannot be executed. The message is for the model: what is wrong, and what to do."""


def shortened(text: str) -> str:
    """Return a text that the model has sent as a message repeats it: at most its beginning."""
    return text if len(text) <= QUOTED_CHARS_MAX else f"{text[: QUOTED_CHARS_MAX - 1]}…"
