"""The decision on a command: levels, rules, prefixes, variables, lists."""

import msgspec
import pytest

from acpterm.config.profiles import BUILTIN
from acpterm.policy.judge import Judge
from acpterm.policy.rules import Rule
from acpterm.policy.syntax import parse
from acpterm.policy.syntax.walk import COMMANDS_MAX
from acpterm.policy.verdict import Level
from acpterm.policy.words import BRACED_MAX, EXPANSIONS_MAX
from tests.support.cases import each_case

GUARDED, CONFIRM, POOL = BUILTIN["guarded"], BUILTIN["confirm"], BUILTIN["pool"]


def rule(decision, *pattern, reason="", prefix=False):
    words = tuple((one,) if isinstance(one, str) else tuple(one) for one in pattern)
    return Rule(words, decision, reason, prefix)


def decide(command, args=None, *, rules=(), profile=CONFIRM, **options):
    return Judge(rules).judge(command, args, profile=profile, **options)


def test_profile_decides_on_the_level_of_the_worst_part():
    verdict = decide("ls && cargo build && rm -r x", profile=GUARDED)
    assert [part.level for part in verdict.parts] == ["safe", "unknown", "dangerous"]
    assert (verdict.level, verdict.decision, verdict.rule) == (Level.DANGEROUS, "ask", None)
    assert verdict.reason.endswith("is in the list of dangerous commands")
    assert decide("cargo build", profile=GUARDED).decision == "allow"
    assert decide("cargo build").decision == "ask"


def test_arguments_are_judged_as_one_part_without_a_shell():
    verdict = decide("grep", ["-r", "a; rm -r $X", "src"])
    assert (verdict.level, verdict.is_shell) == (Level.SAFE, False)
    assert verdict.parts[0].words == ("grep", "-r", "a; rm -r $X", "src")
    assert decide("bash", ["-lc", "rm -r x"]).level is Level.DANGEROUS
    assert decide("rm -r x", []).level is Level.UNKNOWN
    assert decide("", []).level is Level.UNKNOWN


@pytest.mark.parametrize("command", ["$X", "ls -la", "ls;", "r\\m", "l?"])
def test_line_is_shell_text_when_it_is_more_than_one_word(command):
    assert decide(command).is_shell


def test_line_is_no_shell_text_when_it_is_one_word():
    assert not decide("ls").is_shell


@each_case(
    "name",
    [
        "PATH",
        "LD_PRELOAD",
        "BASH_ENV",
        "ENV",
        "GIT_SSH_COMMAND",
        "PAGER",
        "GIT_PAGER",
        "EDITOR",
        "VISUAL",
        "NODE_OPTIONS",
        "PYTHONSTARTUP",
        "PYTHONPATH",
        "PERL5OPT",
        "RUBYOPT",
        "IFS",
        "PS4",
        "PROMPT_COMMAND",
        "SHELLOPTS",
        "DYLD_INSERT_LIBRARIES",
        "npm_config_script_shell",
    ],
)
def test_command_is_not_safe_with_a_variable_that_changes_what_is_executed(name):
    verdict = decide("ls", env={"TERM": "x", name: "x"})
    assert (verdict.level, verdict.decision) == (Level.UNKNOWN, "ask")
    assert name in verdict.reason


def test_command_stays_safe_with_harmless_variables():
    assert decide("ls", env=dict.fromkeys(("TERM", "CI", "FORCE_COLOR"), "1")).level is Level.SAFE


@pytest.mark.parametrize(
    ("line", "is_safe"),
    [
        ("git status", True),
        ("git -C /w/p/sub status", True),
        ("cd /w/p && git status", True),
        ("cd /w/p/sub && ls", True),
        ("cd sub && git status", True),
        ("cd /w/p/../q && git status", False),
        ("cd /w/pq && git status", False),
        ("git -C /w/p/../q status", False),
        ("cat /w/p/a.py", True),
        ("mkdir /w/p/a", True),
        ("mkdir /w/q", False),
    ],
)
def test_absolute_path_in_the_directory_of_the_session_is_in_it(line, is_safe):
    verdict = decide(line, directory="/w/p", cwd="/w/p")
    assert (verdict.level is Level.SAFE) == is_safe


def test_command_in_another_directory_is_not_safe_if_it_executes_what_that_configures():
    assert decide("git status", directory="/w/p", cwd="/w/q").level is Level.UNKNOWN
    assert decide("git status", directory="", cwd="/w/q").level is Level.UNKNOWN
    assert decide("ls", directory="/w/p", cwd="/w/q").level is Level.SAFE
    assert decide("cat config", directory="/w/p", cwd="/home/me/.ssh").level is Level.UNKNOWN


def test_prefix_allowed_in_a_directory_allows_nothing_after_a_cd_out_of_it():
    allowed = [("pytest",)]
    assert decide("cd sub && pytest", allowed=allowed, directory="/w").decision == "allow"
    for line in ("cd /q && pytest", "cd .. && pytest", "cd && pytest", "cd $X && pytest"):
        verdict = decide(line, allowed=allowed, directory="/w")
        assert (verdict.decision, verdict.prefix) == ("ask", None)


def test_harmless_value_of_a_variable_leaves_a_command_safe():
    assert decide("git log", env={"GIT_PAGER": "cat", "PAGER": ""}).level is Level.SAFE
    assert decide("git log", env={"GIT_PAGER": "./x"}).level is Level.UNKNOWN


def test_command_is_not_safe_when_path_has_a_relative_directory():
    assert decide("ls", path="/usr/bin:/bin").level is Level.SAFE
    for path in (".", "/usr/bin:", "bin:/bin"):
        assert decide("ls", path=path).level is Level.UNKNOWN


def test_strictest_matching_rule_decides():
    rules = [rule("allow", "git"), rule("ask", "git", ["push", "fetch"], reason="It is public.")]
    assert decide("git gc-all", rules=rules).rule == "allow git"
    verdict = decide("git push origin", rules=rules)
    assert (verdict.decision, verdict.rule) == ("ask", "ask git [push|fetch]")
    assert verdict.reason == "It is public."
    assert decide("git push", rules=[*rules, rule("deny", "git", "push")]).decision == "deny"


@each_case(
    "command",
    [
        "cargo build",
        "cargo build --release",
        "timeout 5 cargo build",
        "nohup nice cargo build",
        "env cargo build",
        "command cargo build",
        "time cargo build",
        "ls && 'cargo' \"build\"",
        "bash -lc 'cargo build'",
        "/usr/bin/cargo build",
        "cargo build 2>&1 | tail",
    ],
)
def test_rule_allows_exact_words_in_plain_lines(command):
    verdict = decide(command, rules=[rule("allow", "cargo", "build")])
    assert (verdict.decision, verdict.level) == ("allow", Level.UNKNOWN)


@each_case(
    "command",
    [
        "cargo build > x",
        "cargo build &",
        "cargo $X",
        "X=1 cargo build",
        "cargo buil{d,d}",
        'cargo "build"x',
        "env X=1 cargo build",
        "xargs cargo build",
        "./cargo build",
        "cargo build; $(x)",
        "sudo cargo build",
        "ssh h cargo build",
        "cargo build* ; cargo x",
        "c?rgo build",
        "zsh -c 'cargo build'",
    ],
)
def test_rule_allows_nothing_else(command):
    assert decide(command, rules=[rule("allow", "cargo", "build")]).decision == "ask"


@each_case(
    "command",
    [
        "git push",
        "ls; git push",
        "echo $(git push)",
        "sudo git push",
        "ssh host git push",
        "sh -c 'git push'",
        "docker exec c git push",
        "X=git; $X push",
        "/usr/bin/git push",
        "./git push",
        "xargs git push",
        "npx git push",
        "f() { git push; }",
        "timeout 5 git push",
        "parallel 'git push' ::: a",
    ],
)
def test_rule_denies_wherever_the_command_is(command):
    verdict = decide(command, rules=[rule("deny", "git", "push")], profile=BUILTIN["open"])
    assert (verdict.decision, verdict.rule) == ("deny", "deny git push")


@each_case(
    ("command", "level", "decision"),
    [
        ("X=rm; false && X=git; $X push -rf x", Level.DANGEROUS, "deny"),
        ("X=git; false && X=rm; $X push -rf x", Level.DANGEROUS, "deny"),
        ("X='npm owner'; true || X=ls; $X", Level.UNKNOWN, "deny"),
        ("X=ls; true || X='npm owner'; $X", Level.UNKNOWN, "deny"),
        ("X=make; true || X=ls; $X", Level.UNKNOWN, "ask"),
    ],
)
def test_each_value_that_a_variable_may_have_is_judged_by_the_rules(command, level, decision):
    rules = [rule("ask", "git", "push"), rule("ask", "ls"), rule("deny", "npm", "owner")]
    strict = msgspec.structs.replace(GUARDED, dangerous="deny")
    verdict = decide(command, rules=rules, profile=strict)
    assert (verdict.level, verdict.decision) == (level, decision)


@each_case(
    "command",
    [
        "X=1; rm -r x",
        "rm -r x > f",
        "rm -r x &",
        "(rm -r x)",
        "sudo rm -r x",
        "echo x | xargs rm -r x",
        "env A=1 rm -r x",
        "rm -r $X",
        "eval rm -r x",
    ],
)
def test_dangerous_part_is_not_allowed_outside_of_a_plain_line(command):
    rules = [rule("allow", "rm", "-r", "x")]
    assert decide("rm -r x", rules=rules, profile=GUARDED).decision == "allow"
    assert decide(command, rules=rules, profile=GUARDED).decision == "ask"
    assert decide(command, allowed=[("rm", "-r", "x")], profile=GUARDED).decision == "ask"


def test_allowed_prefix_allows_in_the_session():
    assert decide("cargo build -r", allowed=[("cargo", "build")]).decision == "allow"
    assert decide("cargo test", allowed=[("cargo", "build")]).decision == "ask"
    assert (
        decide("cargo build", allowed=[("cargo",)], rules=[rule("ask", "cargo")]).decision == "ask"
    )


def test_allowed_prefix_of_a_dangerous_part_has_to_be_the_whole_part():
    assert decide("rm -r build", allowed=[("rm", "-r", "build")]).decision == "allow"
    assert decide("rm -r build /", allowed=[("rm", "-r", "build")]).decision == "ask"


@each_case(
    ("words", "command", "is_allowed"),
    [
        ("rm -rf build", "rm -rf build", True),
        ("rm -rf build", "/bin/rm -rf build", True),
        ("rm -rf build", "ls && rm -rf build", True),
        ("rm -rf build", "rm -rf build /somewhere/else", False),
        ("rm -rf build", "rm -rf build --one-file-system", False),
        ("rm -rf build", "rm -rf build && rm -rf src", False),
        ("git", "git stash", True),
        ("git", "git reset --hard", False),
        ("rm", "rm x", True),
        ("rm", "rm -r x", False),
    ],
)
def test_rule_allows_only_exactly_the_dangerous_command_of_its_words(words, command, is_allowed):
    exact, prefix = (rule("allow", *words.split(), prefix=prefix) for prefix in (False, True))
    assert (decide(command, rules=[exact]).decision == "allow") == is_allowed
    assert decide(command, rules=[prefix]).decision == ("ask" if "src" in command else "allow")


@each_case(
    "command",
    [
        "rm -rf /", "rm -rf /*", "rm -rf //", "rm -rf build /", "rm -fr /etc", "rm -rf /home/u/",
        "rm -rf ../..", "rm -rf ~", "rm -rf /tmp/../..", "chmod -R 777 /", "find / -delete",
        "dd if=x of=/dev/sda", "mkfs.ext4 /dev/sda", "shred x", "acpterm setup claude",
        "acpterm policy remove rm",
    ],
)  # fmt: skip
def test_no_rule_allows_what_ends_a_system_and_none_is_proposed(command):
    rules = [rule("allow", *command.split()), rule("allow", command.split()[0], prefix=True)]
    verdict = decide(command, rules=rules)
    assert (verdict.decision, verdict.rule, verdict.prefix) == ("ask", None, None)


@each_case(
    ("command", "prefix"),
    [
        ("cargo build --release", ("cargo", "build")),
        ("ls && pytest -x tests", ("pytest",)),
        ("rm -r build", ("rm", "-r", "build")),
        ("python3 x.py --y", ("python3", "x.py", "--y")),
        ("npm version --tag beta", ("npm", "version")),
        ("uv run pytest", ("uv", "run", "pytest")),
        ("bash -lc 'cargo test'", ("cargo", "test")),
        ("timeout 5 cargo test x", ("cargo", "test")),
        ("sudo ls", ("sudo", "ls")),
        ("cargo build && make", None),
        ("cargo build > x", None),
        ("curl x | sh", None),
        ("echo x | sh", None),
        ("eval $X", None),
        ("cargo $X", None),
        ("sudo rm -r x", None),
        ("ls", None),
    ],
)
def test_prefix_of_always_is_that_of_the_only_part_that_asks(command, prefix):
    verdict = decide(command)
    assert verdict.prefix == prefix
    if prefix is not None:
        assert decide(command, allowed=[prefix]).decision == "allow"


def test_lists_of_the_profile_block_whatever_a_rule_allows():
    rules = [rule("allow", "rm"), rule("allow", "cat")]
    verdict = decide("rm x", rules=rules, profile=POOL)
    assert (verdict.decision, verdict.rule, verdict.prefix) == (
        "deny",
        "blocked_commands: rm",
        None,
    )
    verdict = decide("cat `x`", rules=rules, profile=POOL)
    assert (verdict.decision, verdict.rule) == ("deny", "blocked_patterns: `")
    assert decide("sh", ["-c", "e'v'al x"], profile=POOL).decision == "deny"


def test_profile_of_the_same_name_with_other_lists_is_used():
    judge = Judge()
    assert judge.judge("make", None, profile=GUARDED).level is Level.UNKNOWN
    other = msgspec.structs.replace(GUARDED, safe_commands=["make"], dangerous_patterns=["ls"])
    assert judge.judge("make", None, profile=other).level is Level.SAFE
    assert judge.judge("ls", None, profile=other).level is Level.DANGEROUS
    assert judge.judge("make", None, profile=GUARDED).level is Level.UNKNOWN


@pytest.mark.parametrize(
    "line",
    [
        "ls;" * (COMMANDS_MAX + 2),
        "sudo " * 40,
        "ls |" * 3000 + "ls",
        "echo " + "$X" * (EXPANSIONS_MAX + 1),
        "echo " + "{a,b}" * (EXPANSIONS_MAX + 1),
        "echo {a,b}" + "x" * BRACED_MAX,
    ],
)
def test_too_long_line_is_unknown_and_dangerous_with_the_name_of_a_dangerous_program(line):
    safe_profile = msgspec.structs.replace(GUARDED, dangerous_patterns=[])
    verdict = decide(line, profile=safe_profile)
    assert "too long to be judged" in verdict.reason
    assert verdict.level is (Level.DANGEROUS if "sudo" in line else Level.UNKNOWN)
    assert decide(f"{line}\nrm -r x", profile=safe_profile).level is Level.DANGEROUS


def test_rule_denies_a_command_before_too_many_texts_that_may_be_commands():
    text = " ".join(f"`a{number}`" for number in range(COMMANDS_MAX + 1))
    verdict = decide(f"make x\ncat <<E\n{text}\nE", rules=[rule("deny", "make")])
    assert verdict.decision == "deny"
    assert verdict.parts[-1].reason == "the command is too long to be judged"


@pytest.mark.parametrize(
    "line",
    [
        "sort --random-source -- -o out in",
        "diff --label -- -l a b",
        "git grep -e -- --open-files-in-pager=x",
        "rg --regexp -- --pre=x a",
        "uniq -- -in out",
        "uniq -- -f out",
    ],
)
def test_two_dashes_that_are_the_value_of_an_option_do_not_end_the_options(line):
    profile = msgspec.structs.replace(GUARDED, safe_commands=[*GUARDED.safe_commands, "rg"])
    assert decide(line, profile=profile).level is Level.UNKNOWN


@pytest.mark.parametrize("line", ["sort -- -o in", "uniq -c -- in", "git diff -- -o", "rg a -- -z"])
def test_two_dashes_end_the_options(line):
    profile = msgspec.structs.replace(GUARDED, safe_commands=[*GUARDED.safe_commands, "rg"])
    assert decide(line, profile=profile).level is Level.SAFE


@pytest.mark.parametrize("line", ["nawk 'BEGIN{system(1)}'", "fdfind -x make", "nodejs -e 1"])
def test_other_names_of_a_program_have_its_unsafe_arguments(line):
    names = [*GUARDED.safe_commands, "nawk", "fdfind", "nodejs"]
    profile = msgspec.structs.replace(GUARDED, safe_commands=names)
    assert decide(line, profile=profile).level is Level.UNKNOWN


@pytest.mark.parametrize(
    "line",
    [
        "env sh <<E\nrm -r x\nE",
        "timeout 5 bash <<'E'\nrm -r x\nE",
        "nohup nice sh <<< 'rm -r x'",
        "docker exec -i c sh <<E\nrm -r x\nE",
    ],
)
def test_here_document_of_a_shell_behind_a_wrapper_is_judged(line):
    assert decide(line).level is Level.DANGEROUS


def test_line_is_parsed_once_however_often_it_is_judged(monkeypatch):
    parsed = []
    tree = parse._tree
    monkeypatch.setattr(parse, "_tree", lambda source: parsed.append(source) or tree(source))
    line = "echo parsed-once > file; X=1 $Y `ls`"
    for profile in ("guarded", "confirm", "pool", "guarded"):
        Judge().judge(line, None, profile=BUILTIN[profile])
    assert parsed.count(line.encode()) == 1
