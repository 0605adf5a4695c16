"""Which profile an agent's connection gets."""

import os
import subprocess

import pytest

from acpterm.config import Settings
from acpterm.config.profiles import ProfileFor
from acpterm.host.profiles import Profiles, program_names, programs_of
from tests.support.polling import poll


def select(programs, directory, *selectors):
    settings = Settings(profile_for=[ProfileFor(**selector) for selector in selectors])
    return Profiles(settings).select(programs, directory).name


def test_profile_of_the_settings_is_selected_without_a_match():
    assert select(["codex"], "/home/u/x") == "guarded"
    assert select(["codex"], "/home/u/x", {"profile": "open", "agent": "gemini"}) == "guarded"


def test_first_selector_whose_patterns_all_match_wins():
    selectors = (
        {"profile": "pool", "agent": "codex*", "directory": "/srv/*"},
        {"profile": "open", "agent": "codex*"},
        {"profile": "confirm", "directory": "/srv/*"},
    )
    assert select(["codex-acp"], "/srv/a/b", *selectors) == "pool"
    assert select(["codex-acp"], "/home", *selectors) == "open"
    assert select(["gemini"], "/srv/a", *selectors) == "confirm"
    assert select(["gemini"], "/srv", *selectors) == "guarded"


def test_directory_pattern_may_begin_with_the_home_directory(monkeypatch):
    monkeypatch.setenv("HOME", "/home/u")
    selector = {"profile": "open", "directory": "~/work*"}
    assert select([], "/home/u/work", selector) == "open"
    assert select([], "/home/u/work/a", selector) == "open"
    assert select([], "/home/v/work", selector) == "guarded"


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (["/usr/bin/codex", "--acp"], ["codex"]),
        (["/usr/bin/node", "--no-warnings", "/x/bin/gemini", "--acp"], ["node", "gemini"]),
        (["python3.11", "-m", "agent"], ["python3.11", "agent"]),
        ([], []),
        ([""], []),
    ],
)
def test_program_names_are_those_of_the_file_and_of_its_script(argv, names):
    assert program_names(argv) == names


async def test_programs_of_a_process_are_read_from_the_system():
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            # During the exec the process has no arguments for a moment.
            assert await poll(lambda: programs_of([process.pid]) == ["sleep"])
        finally:
            process.kill()
    assert programs_of([process.pid]) == []
    assert programs_of([os.getpid()])[0].startswith("python")
