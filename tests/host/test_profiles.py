"""Which profile an agent's connection gets."""

import os
import subprocess

import pytest

from acpterm.config import Settings
from acpterm.config.profiles import ProfileFor
from acpterm.host.profiles import Profiles, program_names, programs_of
from acpterm.jsonrpc import RpcError
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


def test_directory_pattern_covers_the_directories_below():
    selector = {"profile": "pool", "directory": "/srv/p"}
    assert select([], "/srv/p/src/deep", selector) == "pool"
    assert select([], "/srv/pp", selector) == "guarded"
    assert select([], "/a/b", {"profile": "pool", "directory": "/"}) == "pool"


def test_directory_pattern_may_contain_a_symbolic_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    selector = {"profile": "pool", "directory": f"{tmp_path}/link/*"}
    assert select([], f"{tmp_path}/real/x", selector) == "pool"


@pytest.mark.parametrize("programs", [[], ["acpterm"], ["python3.11", "acpterm"]])
def test_no_profile_is_selected_by_a_program_that_is_not_known(programs):
    selectors = (
        {"profile": "open", "directory": "/srv"},
        {"profile": "pool", "agent": "codex*", "directory": "/home"},
    )
    assert select(programs, "/srv", *selectors) == "open"
    assert select(programs, "/elsewhere", *selectors) == "guarded"
    with pytest.raises(RpcError, match="the agent's program cannot be determined"):
        select(programs, "/home/u", *selectors)
    assert select([*programs, "codex"], "/home/u", *selectors) == "pool"


def test_program_of_a_process_is_its_file_and_not_the_name_that_it_chose():
    with subprocess.Popen(["codex", "60"], executable="/bin/sleep") as process:
        try:
            assert programs_of([process.pid]) == [os.path.basename(os.path.realpath("/bin/sleep"))]
        finally:
            process.kill()


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
