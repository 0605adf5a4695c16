"""`acpterm policy`."""

import json

import pytest

from tests.support.commands import run_here
from tests.support.processes import environment


@pytest.fixture
def run(tmp_path):
    def run(*words, typed=""):
        env = environment(XDG_CONFIG_HOME=str(tmp_path), PATH="/usr/bin:/bin")
        return run_here(["policy", *words], env, typed.encode())

    return run


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["ls -la"], 0),
        (["rm -r x"], 3),
        (["--profile", "pool", "rm x"], 4),
        (["--profile", "confirm", "make"], 3),
        (["--", "rm", "-r", "x"], 3),
        (["--", "echo", "; rm -r x"], 0),
    ],
)
def test_check_exits_with_the_status_of_the_decision(run, words, status):
    done = run("check", *words)
    assert (done.status, done.err) == (status, "")


def test_check_prints_level_decision_and_parts(run):
    done = run("check", "ls && X=rm; $X -r .")
    assert done.out.splitlines()[:2] == [
        "level     dangerous",
        "decision  ask (profile guarded)",
    ]
    assert "part      safe      ls\n" in done.out
    assert "part      unknown   the line itself\n" in done.out
    assert "part      dangerous rm -r .\n" in done.out


def test_check_shows_text_that_is_not_known_as_an_ellipsis(run):
    done = run("check", "chmod -R 700 $X")
    assert "reason    chmod -R is in the list of dangerous commands\n" in done.out
    assert "part      dangerous chmod -R 700 '…'\n" in done.out


def test_check_prints_json(run):
    done = json.loads(run("check", "--json", "cargo build > x").out)
    assert (done["profile"], done["level"], done["decision"]) == ("guarded", "unknown", "allow")
    assert [(part["words"], part["level"]) for part in done["parts"]] == [
        ([], "unknown"),
        (["cargo", "build"], "unknown"),
    ]
    assert (done["rule"], done["prefix"]) == (None, None)


def test_check_shows_control_characters_escaped(run):
    assert "\x1b" not in run("check", "rm -r \x1b[2J").out


def test_allowed_prefix_is_listed_and_used(run, tmp_path):
    done = run("allow", "--reason", "ours", "rm", "-r", "build")
    file = tmp_path / "acpterm" / "rules.toml"
    assert done.out == (
        f"allow rm -r build\nin {file}\n"
        "a dangerous command: allowed with exactly these words, or more with --prefix\n"
    )
    done = run("check", "rm -r build")
    assert (done.status, "rule      allow rm -r build\n" in done.out) == (0, True)
    assert "  allow rm -r build  (ours)\n" in run("list").out
    listed = json.loads(run("list", "--json").out)
    assert listed["rules"] == [
        {
            "pattern": [["rm"], ["-r"], ["build"]],
            "decision": "allow",
            "reason": "ours",
            "prefix": False,
        }
    ]
    assert set(listed["profiles"]) == {"open", "guarded", "confirm", "pool"}


def test_prefix_of_a_dangerous_command_is_shown_and_confirmed(run, tmp_path):
    file = tmp_path / "acpterm" / "rules.toml"
    for typed in ("", "n\n"):
        done = run("allow", "--prefix", "rm", "-r", "build", typed=typed)
        assert done.status == 1
        assert "such as:\n  rm -r build ../other\n" in done.out
        assert not file.exists()
    done = run("allow", "--prefix", "git", typed="y\n")
    assert "  git reset --hard\n  git clean -fdx\n  git rm -r src\nAllow them?" in done.out
    assert done.out.endswith(f"allow git\nin {file}\n")
    assert run("check", "git reset --hard").status == 0
    assert "  allow git  (dangerous ones, too)\n" in run("list").out


def test_allowed_program_is_still_asked_about_when_it_is_dangerous(run):
    done = run("allow", "git")
    assert "still asked about dangerous commands, such as git reset --hard\n" in done.out
    assert run("check", "git reset --hard").status == 3


@pytest.mark.parametrize("words", [["rm", "-rf", "/"], ["sudo", "rm", "-rf", "/etc"]])
def test_nothing_is_proposed_or_allowed_for_what_no_rule_allows(run, tmp_path, words):
    assert "policy allow" not in run("check", "--", *words).out
    done = run("allow", "--", *words)
    assert done.status == 1
    assert done.err.startswith("acpterm: no rule allows ")
    assert not (tmp_path / "acpterm").exists()


def test_rule_that_begins_with_an_option_is_refused(run, tmp_path):
    done = run("allow", "--yes", "rm", "-rf", "build")
    assert (done.status, done.out) == (1, "")
    assert done.err == "acpterm: a rule begins with the name of a program, not with --yes\n"
    assert not (tmp_path / "acpterm").exists()


def test_rules_that_ask_and_deny_are_added_and_removed(run, tmp_path):
    file = tmp_path / "acpterm" / "rules.toml"
    assert run("ask", "npm", "owner").out == f"ask npm owner\nin {file}\n"
    assert run("check", "npm owner --tag x").status == 3
    assert run("deny", "--reason", "never", "npm").out == f"deny npm\nin {file}\n"
    assert run("check", "npm owner").status == 4
    done = run("allow", "npm", "owner")
    assert done.out.endswith("a stricter rule decides before it: ask npm owner, deny npm\n")
    assert run("remove", "npm").out == f"removed: deny npm\nfrom {file}\n"
    done = run("remove", "npm", "owner")
    assert done.out == f"removed: ask npm owner\nremoved: allow npm owner\nfrom {file}\n"
    assert run("check", "npm owner").status == 0
    done = run("remove", "npm")
    assert (done.status, done.err.startswith(f"acpterm: {file} has no rule npm")) == (1, True)


def test_error_of_the_rules_file_is_printed(run, tmp_path):
    file = tmp_path / "acpterm" / "rules.toml"
    file.parent.mkdir()
    file.write_text("[[rule]]\n")
    for words in (["check", "ls"], ["allow", "x"], ["list"]):
        done = run(*words)
        assert (done.status, done.out) == (1, "")
        assert done.err.startswith(f"acpterm: {file}: rule 1: decision is missing")


def test_unknown_profile_is_an_error_that_names_the_profiles(run):
    done = run("check", "--profile", "x", "ls")
    assert done.status == 1
    assert "there is no profile 'x'; there are confirm, guarded, open, pool" in done.err


def test_check_uses_the_profile_of_the_current_directory(run, tmp_path, monkeypatch):
    folder = tmp_path / "acpterm"
    folder.mkdir()
    (folder / "config.toml").write_text(
        'profile = "open"\n'
        '[[profile_for]]\nprofile = "pool"\nagent = "*"\n'
        f'[[profile_for]]\nprofile = "confirm"\ndirectory = "{tmp_path}/work*"\n'
    )
    for name, profile in (("work", "confirm"), ("other", "open")):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert f"(profile {profile})" in run("check", "ls").out
        assert "(profile guarded)" in run("check", "--profile", "guarded", "ls").out


def test_rules_of_the_settings_are_used(run, tmp_path):
    folder = tmp_path / "acpterm"
    folder.mkdir()
    rules = tmp_path / "mine.toml"
    (folder / "config.toml").write_text(f'rules = "{rules}"\n')
    assert run("allow", "make").out.endswith(f"in {rules}\n")
