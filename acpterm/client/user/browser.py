"""Opens a link of the HTTP server in the user's browser.

The first browser that opens the link is logged in. All users of the machine can read the arguments
of a process, so the link must not be an argument of the browser. Instead, the browser gets the path
of a private file, which redirects the browser to the link.
"""

import contextlib
import html
import os
import sys
import webbrowser
from typing import Final

_NAME: Final = "open.html"


def open_in_browser(url: str, directory: str) -> bool:
    """Open `url` in the user's graphical browser; return False if no browser could be started.

    The browser opens a file that redirects it to `url`. The file is written to `directory`, which
    only this user can read. Raises `OSError` if the file cannot be written.
    """
    variables = "DISPLAY", "WAYLAND_DISPLAY"
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in variables):
        # A browser that draws in the terminal could not run the page.
        return False
    path = os.path.join(directory, _NAME)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    text = f'<!doctype html>\n<meta http-equiv="refresh" content="0;url={html.escape(url)}">\n'
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    try:
        return webbrowser.open(f"file://{path}")
    except webbrowser.Error:
        return False
