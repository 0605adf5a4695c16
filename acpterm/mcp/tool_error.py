"""The error that a tool reports to the model."""


class ToolError(Exception):
    """A call cannot be executed. The message is for the model: what is wrong, and what to do."""
