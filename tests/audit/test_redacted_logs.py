"""acpterm's own logs have no secrets, in both formats, also in tracebacks."""

import json
import subprocess
import sys

import pytest

from tests.audit.secrets import fake

CODE = """
import sys
import structlog
from acpterm.runtime import logs

secret, form = sys.argv[1:]
logs.configure("info", form)
log = structlog.get_logger("x")
log.info(f"run --password {secret}", api_key=secret, url=f"https://me:{secret}@host", count=3)
try:
    try:
        raise OSError(f"cannot run: TOKEN={secret} make")
    except OSError as error:
        raise ValueError(f"Authorization: Bearer {secret}") from error
except ValueError:
    log.exception("failed")
log.info("over")
"""


@pytest.mark.long
@pytest.mark.costly
@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_in_values_and_tracebacks_are_redacted(form):
    secret = fake(30)
    command = [sys.executable, "-c", CODE, secret, form]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert secret not in done.stderr
    for expected in (
        "run --password [redacted]",
        "https://me:[redacted]@host",
        "OSError",
        "cannot run: TOKEN=[redacted] make",
        "Authorization: Bearer [redacted]",
        "over",
    ):
        assert expected in done.stderr
    if form == "json":
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        assert (lines[0]["api_key"], lines[0]["count"]) == ("[redacted]", 3)
        assert "exception" in lines[1]
