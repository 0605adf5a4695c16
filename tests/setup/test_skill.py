"""The skill: its form, and its installation."""

import re

import pytest

from acpterm.setup.files import SetupError
from acpterm.setup.targets import skill, skill_target
from tests.setup.conftest import agent

TEXT = skill().decode()


def front_matter():
    head = re.match(r"---\n(.*?)\n---\n", TEXT, re.DOTALL)
    return dict(line.split(": ", 1) for line in head[1].splitlines())


def test_front_matter_has_a_valid_name_and_description():
    # https://agentskills.io/specification: a name of the directory's, at most 1024 characters.
    found = front_matter()
    assert list(found) == ["name", "description"]
    assert found["name"] == "acpterm"
    assert 100 < len(found["description"]) <= 1024
    # It is a plain scalar of YAML.
    assert ": " not in found["description"]
    assert " #" not in found["description"]


def test_skill_is_short_and_names_the_tools():
    assert TEXT.count("\n") < 150
    for tool in ("bash", "start", "continue", "wait", "screen", "output", "list", "stop"):
        assert f"terminal_{tool}" in TEXT


def test_skill_is_installed_where_the_agent_reads_it(home, setup):
    setup.write(skill_target(agent("claude")))
    file = home / ".claude" / "skills" / "acpterm" / "SKILL.md"
    assert file.read_text() == TEXT
    assert not setup.write(skill_target(agent("claude"))).is_needed
    setup.undo(skill_target(agent("claude")))
    assert not (home / ".claude").exists()


def test_agents_of_the_common_directory_share_one_skill(home, setup):
    setup.write(skill_target(agent("codex")))
    assert not setup.write(skill_target(agent("zed"))).is_needed
    (home / ".agents" / "skills" / "other").mkdir()
    setup.undo(skill_target(agent("gemini")))
    assert [path.name for path in (home / ".agents" / "skills").iterdir()] == ["other"]


def test_older_skill_is_replaced_but_not_one_that_the_user_changed(home, setup, monkeypatch):
    target = skill_target(agent("claude"))
    monkeypatch.setattr("acpterm.setup.targets.skill", lambda: b"old\n")
    setup.write(target)
    monkeypatch.setattr("acpterm.setup.targets.skill", lambda: b"new\n")
    setup.write(target)
    file = home / ".claude" / "skills" / "acpterm" / "SKILL.md"
    assert file.read_bytes() == b"new\n"
    file.write_bytes(b"mine\n")
    for change in (setup.write, setup.undo):
        with pytest.raises(SetupError, match="has been changed since it was installed"):
            change(target)
    assert file.read_bytes() == b"mine\n"
