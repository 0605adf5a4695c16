"""A debugger, as far as this matters: `tracing(pid)` has another process trace `pid`."""

import subprocess
import sys
from contextlib import contextmanager

import pytest

_CODE = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
PTRACE_SEIZE = 0x4206
print(libc.ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None), flush=True)
sys.stdin.read()
"""


@contextmanager
def tracing(pid):
    """Trace `pid`: its death is kept from its parent for as long as the block lasts."""
    tracer = subprocess.Popen(
        [sys.executable, "-c", _CODE, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with tracer:
        if tracer.stdout.readline() != b"0\n":
            pytest.skip("nothing may be traced here")
        yield
