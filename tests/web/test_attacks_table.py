"""The table of attacks in docs/web.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_table_of_attacks_names_tests_that_exist():
    page = (ROOT / "docs" / "web.md").read_text().partition("\n## Attacks\n")[2]
    named = set(re.findall(r"`(test_\w+)`", page))
    files = [*ROOT.glob("tests/web/test_*.py"), *ROOT.glob("tests/mcp/test_*.py")]
    defined = {
        name
        for file in files
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    assert len(named) > 30
    assert named <= defined, named - defined
