"""A minimal debugger: `tracing(pid)` traces `pid` from another process."""

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
    """Trace `pid` in the block, so that its parent is not notified of its death."""
    tracer = subprocess.Popen(
        [sys.executable, "-c", _CODE, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with tracer:
        if tracer.stdout.readline() != b"0\n":
            pytest.skip("this process may trace no other process")
        yield
