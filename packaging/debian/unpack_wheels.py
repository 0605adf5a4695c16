"""Unpack wheels into a directory: `python3 unpack_wheels.py WHEELS TARGET`.

Nothing has to be compiled. The scripts and data of the wheels are not installed, because the
package has its own.
"""

import re
import sys
import zipfile
from pathlib import Path

for wheel in sorted(Path(sys.argv[1]).glob("*.whl")):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not re.match(r"[^/]+\.data/", name)]
        archive.extractall(sys.argv[2], names)
