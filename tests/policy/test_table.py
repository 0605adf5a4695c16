"""The level of each command of the tables."""

import tomllib
from pathlib import Path

import pytest

from acpterm.config.profiles import BUILTIN
from acpterm.policy.judge import Judge

TABLES = {
    file.stem: tomllib.loads(file.read_text()) for file in Path(__file__).parent.glob("*.toml")
}
SECTIONS = [(stem, section) for stem, table in sorted(TABLES.items()) for section in table]
PROFILES = {"commands": "guarded", "hidden": "guarded", "pool": "pool"}


@pytest.mark.parametrize(("stem", "section"), SECTIONS)
def test_judge_returns_the_level_of_the_table(stem, section):
    judge = Judge()
    profile = BUILTIN[PROFILES[stem]]
    mismatches = []
    for expected, commands in TABLES[stem][section].items():
        for command in commands:
            verdict = judge.judge(command, None, profile=profile)
            found = verdict.decision if stem == "pool" else verdict.level
            if found != expected:
                mismatches.append((expected, str(found), command, verdict.reason))
    assert mismatches == []
