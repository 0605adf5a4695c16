"""Starts `acpterm` as a process."""

import subprocess
import sys
from typing import Any

ACPTERM = [sys.executable, "-m", "acpterm"]


def start(words: list[str], **how: Any) -> "subprocess.Popen[bytes]":
    """Start `acpterm` with the arguments `words`; `how` is as for `subprocess.Popen`."""
    return subprocess.Popen([*ACPTERM, *words], **how)
