"""The error of `acpterm setup`."""


class SetupError(Exception):
    """Settings cannot be changed; the message says which, why, and what to do."""
