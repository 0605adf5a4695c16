"""`acpterm policy`: check a command, change the rules, and list profiles and rules."""

import os
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import click
import msgspec

from acpterm.cli._daemon import note_questions_of
from acpterm.cli._options import absolute, config_option, fail, json_option, require_user, settings
from acpterm.cli._output import echo_once, json_text
from acpterm.config import Settings
from acpterm.config.profiles import Decision, Profile, resolve
from acpterm.host.loss_facts import LossFacts, judged_now
from acpterm.host.profiles import Profiles
from acpterm.jsonrpc import RpcError
from acpterm.policy.judge import Judge
from acpterm.policy.prefix import is_never_allowed
from acpterm.policy.rules import (
    Rule,
    RulesError,
    add_rule,
    default_rules_file,
    load_rules,
    remove_rules,
)
from acpterm.policy.verdict import Level, Verdict
from acpterm.policy.words import UNKNOWN_TEXT
from acpterm.runtime.command_line import find_shell
from acpterm.runtime.sanitize import one_line

_STATUS: Final = {"allow": 0, "ask": 3, "deny": 4}
# Dangerous commands: those that begin with the words of a rule are shown as examples.
_EXAMPLES: Final = (
    "rm -rf src", "git reset --hard", "git clean -fdx", "git rm -r src", "chmod -R 777 src",
    "chown -R root src", "find . -delete", "sudo rm -rf src", "systemctl poweroff",
)  # fmt: skip


@click.group("policy")
def command() -> None:
    """Check and change what agents may run.

    A profile decides about commands by their level: safe, unknown or dangerous. Rules decide about
    commands that begin with certain words, whatever their level is.
    """


@command.command("check", context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="COMMAND")
@click.option("--profile", metavar="NAME", help="Use the profile NAME.")
@json_option
@config_option
def check(words: tuple[str, ...], profile: str | None, as_json: bool, config: str | None) -> None:
    """Show the level of a command, and whether it may run.

    A single COMMAND is a line for the shell. Several words are a program and its arguments; put --
    before them.

    Without --profile, the profile is that of an agent which works in the current directory. Tables
    [[profile_for]] that name an agent are not used.

    What the command would lose depends on the current directory, such as the state of its git
    repository, which is only read.

    Each part of a command is shown with its level: the commands of a line, and those behind
    wrappers such as sudo or sh -c. A part without words is the line itself.

    Exit status: 0 if the command is allowed, 3 if the user is asked, 4 if it is denied, 1 if the
    settings or the rules have an error.
    """
    loaded = settings(config)
    note_questions_of(loaded)
    chosen = _profile(loaded, profile)
    rules = _rules(_rules_file(loaded))
    args = list(words[1:]) if len(words) > 1 else None
    path, shell = os.environ.get("PATH"), find_shell(loaded.shell)
    directory = os.getcwd()
    judge = partial(
        Judge(rules).judge,
        words[0],
        args,
        profile=chosen,
        path=path,
        shell=shell,
        directory=directory,
    )
    verdict = judged_now(judge, LossFacts(directory))
    echo_once(json_text(_as_json(verdict, chosen)) if as_json else _as_text(verdict, chosen))
    raise SystemExit(_STATUS[verdict.decision])


def _changes_rules(name: str) -> Callable[[Callable[..., None]], click.Command]:
    def decorate(function: Callable[..., None]) -> click.Command:
        for parameter in (
            click.argument("words", nargs=-1, required=True, metavar="WORD…"),
            config_option,
        ):
            function = parameter(function)
        settings_of = {"ignore_unknown_options": True}
        return command.command(name, context_settings=settings_of)(function)

    return decorate


_reason = click.option("--reason", default="", metavar="TEXT", help="Why the rule is there.")


@_changes_rules("allow")
@click.option("--prefix", is_flag=True, help="Allow dangerous commands with further words, too.")
@_reason
def allow(words: tuple[str, ...], prefix: bool, reason: str, config: str | None) -> None:
    """Allow commands that begin with the given words.

    A dangerous command is only allowed if it has exactly these words. With --prefix, further words
    may follow: acpterm shows what else that allows, and asks you to confirm. No rule allows some
    commands, such as rm -rf /: you are asked each time.

    The rule is appended to the rules file, and printed. It applies to commands whose words are
    exactly known, and not to lines with substitutions, variables or redirections to files. Put --
    before words that begin with a dash.

    Exit status: 0 on success, 1 if the rules file has an error or cannot be written, if you do not
    confirm, or if acpterm itself runs in an agent's terminal.
    """
    loaded = settings(config)
    profile = _profile(loaded, None)

    def dangerous(command: Sequence[str]) -> list[tuple[str, ...]]:
        verdict = Judge().judge(command[0], command[1:], profile=profile)
        return [part.words for part in verdict.parts if part.level is Level.DANGEROUS]

    require_user(config)
    parts = dangerous(words)
    if any(part and is_never_allowed(part) for part in parts):
        fail(f"no rule allows {shlex.join(words)}: you are asked each time an agent runs it")
    others = [shlex.split(example) for example in _EXAMPLES]
    others = [one for one in others if tuple(one[: len(words)]) == words and one != [*words]]
    shown = [shlex.join(one) for one in [*others, [*words, "../other"]] if dangerous(one)]
    notes = []
    if prefix and shown:
        click.echo("This also allows every dangerous command that begins so, such as:")
        click.echo("".join(f"  {line}\n" for line in shown), nl=False)
        click.confirm("Allow them?", abort=True)
    elif parts:
        notes = ["a dangerous command: allowed with exactly these words, or more with --prefix"]
    elif shown:
        notes = [f"you are still asked about dangerous commands, such as {shown[0]}"]
    _add(loaded, words, "allow", reason, prefix=prefix, notes=notes)


@_changes_rules("ask")
@_reason
def ask(words: tuple[str, ...], reason: str, config: str | None) -> None:
    """Ask about commands that begin with the given words.

    The rule is appended to the rules file, and printed. It applies wherever such a command is in a
    line. Put -- before words that begin with a dash.

    Exit status: 0 on success, 1 if the rules file has an error or cannot be written, or if acpterm
    itself runs in an agent's terminal.
    """
    require_user(config)
    _add(settings(config), words, "ask", reason)


@_changes_rules("deny")
@_reason
def deny(words: tuple[str, ...], reason: str, config: str | None) -> None:
    """Refuse commands that begin with the given words.

    The rule is appended to the rules file, and printed. It applies wherever such a command is in a
    line. Put -- before words that begin with a dash.

    Exit status: 0 on success, 1 if the rules file has an error or cannot be written, or if acpterm
    itself runs in an agent's terminal.
    """
    require_user(config)
    _add(settings(config), words, "deny", reason)


@_changes_rules("remove")
def remove(words: tuple[str, ...], config: str | None) -> None:
    """Remove the rules with exactly the given words.

    Write the words as acpterm policy list shows them, without the decision. The removed rules are
    printed. Put -- before words that begin with a dash.

    Exit status: 0 on success, 1 if there is no such rule, if the rules file has an error or cannot
    be written, or if acpterm itself runs in an agent's terminal.
    """
    require_user(config)
    path = _rules_file(settings(config))
    try:
        removed = remove_rules(path, words)
    except RulesError as error:
        fail(str(error))
    if not removed:
        fail(f"{path} has no rule {shlex.join(words)}: acpterm policy list shows the rules")
    echo_once("\n".join([*(f"removed: {rule}" for rule in removed), f"from {path}"]))


def _add(
    loaded: Settings,
    words: tuple[str, ...],
    decision: Decision,
    reason: str,
    *,
    prefix: bool = False,
    notes: Sequence[str] = (),
) -> None:
    if words[0].startswith("-"):
        fail(f"a rule begins with the name of a program, not with {words[0]}")
    path = _rules_file(loaded)
    rule = Rule(tuple((word,) for word in words), decision, reason, prefix)
    try:
        add_rule(path, rule)
    except RulesError as error:
        fail(str(error))
    rules = _rules(path)
    lines = [str(rule), f"in {path}", *notes]
    order = ("allow", "ask", "deny")
    stricter = [
        str(one)
        for one in rules
        if order.index(one.decision) > order.index(decision) and one.matches(words)
    ]
    if stricter:
        lines.append(f"but a stricter rule decides before it: {', '.join(stricter)}")
    echo_once("\n".join(lines))


@command.command("list")
@json_option
@config_option
def list_policy(as_json: bool, config: str | None) -> None:
    """List the profiles and the rules.

    The profile with an asterisk is that of agents for which the settings select no other.

    Exit status: 0 on success, 1 if the settings or the rules have an error.
    """
    loaded = settings(config)
    note_questions_of(loaded)
    path = _rules_file(loaded)
    rules = _rules(path)
    profiles, default = resolve(loaded.profiles), loaded.profile
    if as_json:
        value = {
            "profile": default,
            "profiles": {name: msgspec.to_builtins(one) for name, one in profiles.items()},
            "rulesFile": path,
            "rules": [rule._asdict() for rule in rules],
        }
        echo_once(json_text(value))
        return
    lines = [f"  {'PROFILE':<12}SAFE   UNKNOWN  DANGEROUS"]
    lines += [
        f"{'*' if name == default else ' '} {name:<12}{one.safe:<7}{one.unknown:<9}{one.dangerous}"
        for name, one in profiles.items()
    ]
    lines += ["", f"Rules in {path}:"]
    lines += [f"  {_listed(rule)}" for rule in rules]
    echo_once("\n".join(lines if rules else [*lines, "  none"]))


def _listed(rule: Rule) -> str:
    prefix = "  (dangerous ones, too)" if rule.prefix else ""
    return f"{rule}{prefix}" + (f"  ({rule.reason})" if rule.reason else "")


def _rules_file(loaded: Settings) -> str:
    return loaded.rules or default_rules_file()


def _rules(path: str) -> tuple[Rule, ...]:
    try:
        return load_rules(path)
    except RulesError as error:
        fail(str(error))


def _profile(loaded: Settings, name: str | None) -> Profile:
    """Return the profile `name`, or else that of an agent in the current directory."""
    try:
        return Profiles(loaded).choose(name, "" if name else absolute())
    except RpcError as error:
        fail(error.message)


def _as_json(verdict: Verdict, profile: Profile) -> dict[str, Any]:
    return {
        "profile": profile.name,
        "level": verdict.level,
        "kind": verdict.kind,
        "decision": verdict.decision,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "parts": [part._asdict() for part in verdict.parts],
        "prefix": verdict.prefix,
    }


def _as_text(verdict: Verdict, profile: Profile) -> str:
    lines = [f"level     {verdict.level}", f"decision  {verdict.decision} (profile {profile.name})"]
    if verdict.kind is not None:
        lines.append(f"kind      {verdict.kind}")
    if verdict.rule is not None:
        lines.append(f"rule      {one_line(verdict.rule)}")
    if verdict.reason:
        lines.append(f"reason    {one_line(verdict.reason)}")
    for part in verdict.parts:
        command = shlex.join(part.words).replace(UNKNOWN_TEXT, "…")
        words = one_line(command) if part.words else "the line itself"
        lines.append(f"part      {part.level:<10}{words}")
    if verdict.prefix is not None:
        lines.append(f"always    acpterm policy allow -- {one_line(shlex.join(verdict.prefix))}")
    return "\n".join(lines)
