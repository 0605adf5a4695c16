"""Changes one setting in the settings file, and keeps the rest of the file, with its comments."""

import os
import secrets
from contextlib import suppress


def set_value(path: str, name: str, value: str) -> None:
    """Set a setting in the file at `path`, which need not exist. Raises `OSError`, `ValueError`."""
    # A new file replaces the whole, with the same mode.
    import tomlkit  # noqa: PLC0415  slow to import, and only commands that change settings need it

    # Replace the target of a symbolic link, not the link.
    path = os.path.realpath(path)
    mode = 0o600
    text = ""
    if os.path.exists(path):
        mode = os.stat(path).st_mode & 0o777
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    document = tomlkit.parse(text)
    if name in document:
        document[name] = value
        changed = tomlkit.dumps(document)
    else:
        # Insert the line at the beginning: after a table, it would be a part of that table.
        changed = tomlkit.dumps({name: value}) + text
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "w", encoding="utf-8", newline="") as file:
            # The mode of `os.open` is subject to the umask.
            os.fchmod(file.fileno(), mode)
            file.write(changed)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
