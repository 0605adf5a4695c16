"""The tests that need a kernel of their own: they run in a guest, all at once."""

import sys

import pytest

from tests.support.guest import run_in_guest


@pytest.mark.exhaustive
@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("tests", ["check_limits.py"])
def test_limits_of_control_groups_are_enforced(tmp_path, tests):
    arguments = ["-p", "no:cacheprovider", "-p", "no:xdist", "-q", "--color=no", "--timeout=40"]
    result = run_in_guest(
        tmp_path, sys.executable, "-m", "pytest", *arguments, f"tests/guest/{tests}"
    )
    assert result.status == 0, result.output
    assert " passed" in result.output
    assert " skipped" not in result.output
