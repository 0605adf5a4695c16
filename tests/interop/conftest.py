"""What is here and needs more than the Python environment of the tests runs when it is asked for.

`make interop` asks for it (`ACPTERM_INTEROP=1`), once it has installed what is needed. Then nothing
of it is skipped: what is missing is an error.
"""

import os

collect_ignore_glob = [] if os.environ.get("ACPTERM_INTEROP") == "1" else ["agents/*", "acpx/*"]
