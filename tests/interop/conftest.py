"""Tests that need more than the Python environment of the test suite run only on request.

`make interop` requests them with `ACPTERM_INTEROP=1`, after installing what they need. Then nothing
is skipped: a missing program is an error.
"""

import os

collect_ignore_glob = (
    []
    if os.environ.get("ACPTERM_INTEROP") == "1"
    else ["agents/*", "acpx/*", "inspector/*", "kimi_code/*"]
)
