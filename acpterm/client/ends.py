"""How a program ended, as a client tells it."""

from acpterm.acp.notes import End

__all__ = ["End"]
