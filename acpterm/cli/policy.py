"""`acpterm policy`: check a command, allow commands, and list profiles and rules."""

import os
import shlex
from typing import TYPE_CHECKING, Any, Final

import click

from acpterm.cli._options import fail, require_user, settings
from acpterm.cli._output import echo_once, json_text

if TYPE_CHECKING:
    from acpterm.config import Settings
    from acpterm.config.profiles import Profile
    from acpterm.policy.verdict import Verdict

_STATUS: Final = {"allow": 0, "ask": 3, "deny": 4}


@click.group("policy")
def command() -> None:
    """Check and change what agents may run.

    A profile decides about commands by their level: safe, unknown or dangerous. Rules decide about
    commands that begin with certain words, whatever their level is.
    """


@command.command("check", context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="COMMAND")
@click.option("--profile", metavar="NAME", help="Use the profile NAME.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.option("--config", metavar="FILE", help="Read the settings from FILE.")
def check(words: tuple[str, ...], profile: str | None, as_json: bool, config: str | None) -> None:
    """Show the level of a command, and whether it may run.

    A single COMMAND is a line for the shell. Several words are a program and its arguments; put --
    before them.

    Without --profile, the profile is that of an agent which works in the current directory. Tables
    [[profile_for]] that name an agent are not used.

    Each part of a command is shown with its level: the commands of a line, and those behind
    wrappers such as sudo or sh -c. A part without words is the line itself.

    Exit status: 0 if the command is allowed, 3 if the user is asked, 4 if it is denied, 1 if the
    settings or the rules have an error.
    """
    from acpterm.config import shell_path  # noqa: PLC0415  help does not need it
    from acpterm.policy.judge import Judge  # noqa: PLC0415  no other command needs it
    from acpterm.policy.rules import RulesError, load_rules  # noqa: PLC0415

    loaded = settings(config)
    chosen = _profile(loaded, profile)
    try:
        judge = Judge(load_rules(_rules_file(loaded)))
    except RulesError as error:
        fail(str(error))
    args = list(words[1:]) if len(words) > 1 else None
    path, shell = os.environ.get("PATH"), shell_path(loaded)
    verdict = judge.judge(words[0], args, profile=chosen, path=path, shell=shell)
    echo_once(json_text(_as_json(verdict, chosen)) if as_json else _as_text(verdict, chosen))
    raise SystemExit(_STATUS[verdict.decision])


@command.command("allow", context_settings={"ignore_unknown_options": True})
@click.argument("prefix", nargs=-1, required=True)
@click.option("--reason", default="", metavar="TEXT", help="Why the commands are allowed.")
@click.option("--config", metavar="FILE", help="Read the settings from FILE.")
def allow(prefix: tuple[str, ...], reason: str, config: str | None) -> None:
    """Allow commands that begin with the words PREFIX.

    The rule is appended to the rules file, and printed. It applies to commands whose words are
    exactly known, and not to lines with substitutions, variables or redirections to files. If words
    of PREFIX begin with a dash, put -- before PREFIX.

    Exit status: 0 on success, 1 if the rules file has an error or cannot be written, or if acpterm
    itself runs in an agent's terminal.
    """
    from acpterm.policy.rules import (  # noqa: PLC0415  no other command needs it
        Rule,
        RulesError,
        allow_prefix,
        load_rules,
    )

    path = _rules_file(settings(config))
    require_user(config)
    try:
        allow_prefix(path, prefix, reason)
    except RulesError as error:
        fail(str(error))
    lines = [f"{Rule(tuple((word,) for word in prefix), 'allow', reason)}", f"in {path}"]
    stricter = [
        str(rule) for rule in load_rules(path) if rule.decision != "allow" and rule.matches(prefix)
    ]
    if stricter:
        lines.append(f"but a stricter rule decides before it: {', '.join(stricter)}")
    echo_once("\n".join(lines))


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.option("--config", metavar="FILE", help="Read the settings from FILE.")
def list_policy(as_json: bool, config: str | None) -> None:
    """List the profiles and the rules.

    The profile with an asterisk is that of agents for which the settings select no other.

    Exit status: 0 on success, 1 if the settings or the rules have an error.
    """
    import msgspec  # noqa: PLC0415  the help of the commands does not need it

    from acpterm.config.profiles import resolve  # noqa: PLC0415
    from acpterm.policy.rules import RulesError, load_rules  # noqa: PLC0415

    loaded = settings(config)
    path = _rules_file(loaded)
    try:
        rules = load_rules(path)
    except RulesError as error:
        fail(str(error))
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
    lines += [f"  {rule}" + (f"  ({rule.reason})" if rule.reason else "") for rule in rules]
    echo_once("\n".join(lines if rules else [*lines, "  none"]))


def _rules_file(loaded: "Settings") -> str:
    """Return the path of the rules file."""
    from acpterm.policy.rules import default_rules_file  # noqa: PLC0415  help does not need it

    return loaded.rules or default_rules_file()


def _profile(loaded: "Settings", name: str | None) -> "Profile":
    """Return the profile `name`; if `name` is None, that of an agent in the current directory.

    If there is no such profile, or the current directory cannot be used, print an error message and
    exit with status 1.
    """
    from acpterm.host.profiles import Profiles  # noqa: PLC0415  help does not need it
    from acpterm.jsonrpc import RpcError  # noqa: PLC0415

    try:
        return Profiles(loaded).choose(name, "" if name else os.getcwd())
    except OSError as error:
        fail(f"the current directory cannot be used: {error.strerror}: change to another one")
    except RpcError as error:
        fail(error.message)


def _as_json(verdict: "Verdict", profile: "Profile") -> dict[str, Any]:
    return {
        "profile": profile.name,
        "level": verdict.level,
        "decision": verdict.decision,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "parts": [part._asdict() for part in verdict.parts],
        "prefix": verdict.prefix,
    }


def _as_text(verdict: "Verdict", profile: "Profile") -> str:
    from acpterm.client.sanitize import one_line  # noqa: PLC0415  help does not need it

    lines = [f"level     {verdict.level}", f"decision  {verdict.decision} (profile {profile.name})"]
    if verdict.rule is not None:
        lines.append(f"rule      {one_line(verdict.rule)}")
    if verdict.reason:
        lines.append(f"reason    {one_line(verdict.reason)}")
    for part in verdict.parts:
        words = one_line(shlex.join(part.words)) if part.words else "the line itself"
        lines.append(f"part      {part.level:<10}{words}")
    if verdict.prefix is not None:
        lines.append(f"always    acpterm policy allow -- {one_line(shlex.join(verdict.prefix))}")
    return "\n".join(lines)
