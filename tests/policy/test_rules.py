"""The rules file: its form, its errors, and appending to it."""

import os
import stat

import pytest

from acpterm.policy.rules import (
    Rule,
    RulesError,
    add_rule,
    default_rules_file,
    load_rules,
    remove_rules,
)


def allow(path, *words, reason=""):
    add_rule(path, Rule(tuple((word,) for word in words), "allow", reason))


def write(path, text):
    path.write_text(text)
    return str(path)


def test_file_is_loaded_with_its_examples(tmp_path):
    file = write(
        tmp_path / "rules.toml",
        '[[rule]]\npattern = ["git", ["push", "fetch"]]\ndecision = "allow"\nreason = "ours"\n'
        'match = ["git push -v", ["git", "fetch"]]\nnot_match = ["git pull", "git"]\n'
        '[[rule]]\npattern = ["rm"]\ndecision = "deny"\n',
    )
    first, second = load_rules(file)
    assert first == Rule((("git",), ("push", "fetch")), "allow", "ours")
    assert (str(first), str(second)) == ("allow git [push|fetch]", "deny rm")
    assert first.matches(["git", "fetch", "x"])
    assert not first.matches(["git"])
    assert not first.matches(["git", "pushx"])


def test_missing_file_has_no_rules(tmp_path):
    assert load_rules(str(tmp_path / "none.toml")) == ()
    assert load_rules("/dev/null") == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", "is not TOML"),
        ("rules = 1", "'rules' is unknown: rules are tables [[rule]]"),
        ("rule = 1", "'rule' must be an array of tables"),
        ("rule = [1]", "rule 1: must be a table"),
        ('[[rule]]\npattern = ["a"]', "rule 1: decision is missing: it must be allow, ask, deny"),
        ('[[rule]]\npattern = ["a"]\ndecision = "prompt"', "decision is 'prompt'"),
        ('[[rule]]\ndecision = "ask"', "pattern is missing"),
        ('[[rule]]\ndecision = "ask"\npattern = []', "pattern is []"),
        ('[[rule]]\ndecision = "ask"\npattern = "a"', "pattern is 'a'"),
        ('[[rule]]\ndecision = "ask"\npattern = [1]', "pattern has 1"),
        ('[[rule]]\ndecision = "ask"\npattern = [[]]', "pattern has []"),
        ('[[rule]]\ndecision = "ask"\npattern = [""]', "empty name"),
        (
            '[[rule]]\ndecision = "ask"\npattern = ["a"]\nx = 1',
            "'x' is unknown: the keys are pattern",
        ),
        ('[[rule]]\ndecision = "ask"\npattern = ["a"]\nreason = 1', "reason is 1"),
        ('[[rule]]\ndecision = "allow"\npattern = ["a"]\nprefix = 1', "prefix is 1"),
        ('[[rule]]\ndecision = "ask"\npattern = ["a"]\nmatch = "a"', "match is 'a'"),
        ('[[rule]]\ndecision = "ask"\npattern = ["a"]\nmatch = [1]', "1 must be a command"),
        ('[[rule]]\ndecision = "ask"\npattern = ["a"]\nmatch = ["\'"]', "is not a command"),
        (
            '[[rule]]\ndecision = "ask"\npattern = ["a"]\nmatch = ["b"]',
            "does not match the command 'b'",
        ),
        (
            '[[rule]]\ndecision = "ask"\npattern = ["a"]\nnot_match = ["a b"]',
            "matches the command 'a b'",
        ),
    ],
)
def test_error_names_the_file_and_the_value(tmp_path, text, expected):
    file = write(tmp_path / "rules.toml", text)
    with pytest.raises(RulesError) as caught:
        load_rules(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert expected in str(caught.value)


def test_unreadable_file_is_an_error(tmp_path):
    with pytest.raises(RulesError, match="is not a regular file"):
        load_rules(str(tmp_path))
    (tmp_path / "x").write_bytes(b"\xff")
    with pytest.raises(RulesError, match="is not UTF-8"):
        load_rules(str(tmp_path / "x"))


def test_file_that_is_no_regular_file_is_an_error_and_does_not_block(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    for path, expected in (
        (pipe, "is not a regular file"),
        ("/dev/zero", "is not a regular file"),
        (tmp_path, "is not a regular file"),
        (tmp_path / "dangling", "symbolic link to a file that does not exist"),
    ):
        with pytest.raises(RulesError, match=expected):
            load_rules(str(path))


def test_huge_file_is_an_error(tmp_path):
    path = write(tmp_path / "rules.toml", "#" * (1024 * 1024 + 1))
    with pytest.raises(RulesError, match="has 1048577 bytes"):
        load_rules(path)


def test_byte_order_mark_is_accepted(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_bytes(b"\xef\xbb\xbf[[rule]]\npattern = ['true']\ndecision = 'deny'\n")
    assert len(load_rules(str(path))) == 1


def test_program_of_several_words_is_an_error(tmp_path):
    text = "[[rule]]\npattern = ['git push']\ndecision = 'deny'\n"
    with pytest.raises(RulesError, match="each word as a string of its own"):
        load_rules(write(tmp_path / "rules.toml", text))


def test_allowed_prefix_creates_a_private_file(tmp_path):
    file = tmp_path / "acpterm" / "rules.toml"
    allow(str(file), "cargo", 'a"b\\')
    assert load_rules(str(file)) == (Rule((("cargo",), ('a"b\\',)), "allow", ""),)
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert os.listdir(file.parent) == ["rules.toml"]


@pytest.mark.parametrize("end", ["", "\n", "  # a comment", "\n\n[rule.x]\n"])
def test_allowed_prefix_keeps_the_rest_of_the_file(tmp_path, end):
    text = '# mine\n[[rule]]\npattern = ["a"] # b\ndecision = "ask"' + end
    file = write(tmp_path / "rules.toml", text)
    os.chmod(file, 0o640)
    if "[rule.x]" in end:
        with pytest.raises(RulesError, match="'x' is unknown"):
            allow(file, "b", reason="why")
        assert (tmp_path / "rules.toml").read_text() == text
        return
    allow(file, "b", reason="why")
    assert (tmp_path / "rules.toml").read_text().startswith(text)
    assert load_rules(file)[1] == Rule((("b",),), "allow", "why")
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o640


def test_allowed_prefix_without_a_program_is_an_error(tmp_path):
    file = str(tmp_path / "rules.toml")
    for prefix in ([], [""]):
        with pytest.raises(RulesError):
            allow(file, *prefix)
    assert not os.path.exists(file)


def test_removed_rule_leaves_the_rest_of_the_file(tmp_path):
    file = write(
        tmp_path / "rules.toml",
        '# mine\n[[rule]]\npattern = ["a"] # b\ndecision = "ask"\n\n'
        '[[rule]]\npattern = ["git", ["push", "fetch"]]\ndecision = "deny"\n\n'
        '[[rule]]\npattern = ["a", "b"]\nprefix = true\ndecision = "allow"\n',
    )
    assert remove_rules(file, ["git", "push"]) == []
    assert [str(one) for one in remove_rules(file, ["git", "[push|fetch]"])] == [
        "deny git [push|fetch]"
    ]
    assert load_rules(file) == (
        Rule((("a",),), "ask"),
        Rule((("a",), ("b",)), "allow", prefix=True),
    )
    text = (tmp_path / "rules.toml").read_text()
    assert text.startswith('# mine\n[[rule]]\npattern = ["a"] # b\n')
    assert remove_rules(str(tmp_path / "none.toml"), ["a"]) == []


def test_symbolic_link_to_the_file_stays(tmp_path):
    write(tmp_path / "real.toml", "")
    os.symlink("real.toml", tmp_path / "rules.toml")
    allow(str(tmp_path / "rules.toml"), "b")
    assert os.path.islink(tmp_path / "rules.toml")
    assert len(load_rules(str(tmp_path / "real.toml"))) == 1


def test_default_file_is_beside_the_settings(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert default_rules_file() == str(tmp_path / "acpterm" / "rules.toml")
