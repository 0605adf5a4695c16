"""Random output and sizes, in a process of its own: a crash of the library is a failure."""

import os
import random
import signal
import subprocess
import sys
import time

from tests.terminal.vt.fuzzing import life

SECONDS = float(os.environ.get("ACPTERM_FUZZ_SECONDS", "4"))
# Lives that crashed the library, or of which it gave no screen, before they were seen to.
KNOWN = (5, 11, 17, 21, 100_271, 501_022)
_TOGETHER = 20
_PATIENCE_S = 120


def lives(first, count, path):
    """Run some terminals; fail with the seed and the steps of one that crashes."""
    path.write_bytes(bytes(64))
    run = subprocess.run(
        [sys.executable, "-m", "tests.terminal.vt.fuzzing", str(first), str(count), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_PATIENCE_S,
        check=False,
    )
    if run.returncode:
        seed, step = map(int, path.read_bytes()[:32].split())
        size, steps = life(seed)
        how = signal.Signals(-run.returncode).name if run.returncode < 0 else run.returncode
        said = run.stdout.decode(errors="replace")[-2000:]
        raise AssertionError(f"seed {seed}, {size}: {how} at {steps[: step + 1]!r}\n{said}")


def test_emulator_survives_output_that_once_crashed_it(tmp_path):
    for seed in KNOWN:
        lives(seed, 1, tmp_path / "progress")


def test_emulator_survives_random_output_and_sizes(tmp_path):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        lives(random.randrange(10**9), _TOGETHER if SECONDS > 60 else 2, tmp_path / "progress")
