"""Random output and sizes in a separate process: a crash of the library is a failure."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.terminal.vt.fuzzing import steps_of

SECONDS = float(os.environ.get("ACPTERM_FUZZ_SECONDS", "4"))
# Seeds that once crashed the library, or after which it returned no screen.
KNOWN = (5, 11, 17, 21, 100_271, 501_022)
_SEEDS_PER_PROCESS = 20
_TIMEOUT_S = 120


def run_seeds(first, count, path):
    """Run `count` seeds from `first` on; fail with the seed and the steps of one that crashes."""
    path.write_bytes(bytes(64))
    run = subprocess.run(
        [sys.executable, "-m", "tests.terminal.vt.fuzzing", str(first), str(count), str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if run.returncode:
        seed, step = map(int, path.read_bytes()[:32].split())
        size, steps = steps_of(seed)
        reason = signal.Signals(-run.returncode).name if run.returncode < 0 else run.returncode
        output = run.stdout.decode(errors="replace")[-2000:]
        raise AssertionError(f"seed {seed}, {size}: {reason} at {steps[: step + 1]!r}\n{output}")


@pytest.mark.long
def test_emulator_survives_output_that_once_crashed_it(tmp_path):
    for seed in KNOWN:
        run_seeds(seed, 1, tmp_path / "progress")


@pytest.mark.exhaustive
@pytest.mark.long
def test_emulator_survives_random_output_and_sizes(tmp_path):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        run_seeds(
            random.randrange(10**9),
            _SEEDS_PER_PROCESS if SECONDS > 60 else 2,
            tmp_path / "progress",
        )
