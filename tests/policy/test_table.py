"""The level of each command of the tables."""

import tomllib
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from acpterm.config.profiles import BUILTIN, POOL_COMMANDS, Decision
from acpterm.policy.judge import Judge

TABLES = {
    file.stem: tomllib.loads(file.read_text()) for file in Path(__file__).parent.glob("*.toml")
}
DECISIONS = get_args(Decision)
SECTIONS = [(stem, section) for stem, table in sorted(TABLES.items()) for section in table]
PROFILES = {
    "commands": "guarded",
    "everyday": "confirm",
    "hidden": "guarded",
    "pool": "pool",
    "project": "project",
}
PROJECT = msgspec.structs.replace(
    BUILTIN["confirm"], name="project", safe_commands=["@harmless", "@project"]
)


@pytest.mark.parametrize(("stem", "section"), SECTIONS)
def test_judge_returns_the_level_of_the_table(stem, section):
    judge = Judge()
    profile = PROJECT if stem == "project" else BUILTIN[PROFILES[stem]]
    mismatches = []
    for expected, commands in TABLES[stem][section].items():
        for command in commands:
            verdict = judge.judge(command, None, profile=profile)
            found = verdict.decision if expected in DECISIONS else verdict.level
            if found != expected:
                mismatches.append((expected, str(found), command, verdict.reason))
    assert mismatches == []


@pytest.mark.parametrize("name", ["guarded", "pool"])
def test_everyday_line_is_allowed_unless_its_program_is_blocked(name):
    lines = [line for listed in TABLES["everyday"]["everyday"].values() for line in listed]
    refused = [
        line
        for line in lines
        if Judge().judge(line, None, profile=BUILTIN[name]).decision != "allow"
        and line.partition(" ")[0] not in POOL_COMMANDS
    ]
    assert len(lines) > 100
    assert refused == []
