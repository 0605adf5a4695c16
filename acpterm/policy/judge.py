"""The entry point of the policy: judges a command by rules and a profile, and returns the verdict.

A command is judged in three steps:

1. All commands that it executes are found: in the shell line, and behind wrappers such as `sudo`.
   Each of them is a part.
2. Each part gets a level: safe, unknown or dangerous (`classifier`). A line that is not plain
   (`syntax`) is one more part, and at least unknown.
3. Each part gets a decision: the one of the strictest rule that matches the part, or else the one
   of the profile for the part's level. The decision on the command is the strictest of all parts.

A rule that allows counts only if the words of the part are known exactly, in a plain line; rules
that ask or deny count wherever they match. The profile's lists of blocked commands always deny.

Judging does no I/O, and its work is bounded. A command that exceeds a bound is *too long to be
judged*. Such a command is dangerous if it contains the name of a dangerous program, or if it is too
long to be searched for such names; otherwise it is unknown.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from acpterm.config.profiles import Decision, Kind, Profile
from acpterm.policy.arguments import is_inside, is_secret
from acpterm.policy.classifier import SEARCHED_MAX, SUSPICIOUS_NAMES, Classifier
from acpterm.policy.losses.find import text_losses
from acpterm.policy.losses.loss import NO_FINDINGS, Finding, Loss
from acpterm.policy.losses.table import listed_paths
from acpterm.policy.parts import FoundPart, Lists, pattern_text, rule_words
from acpterm.policy.prefix import always_prefix, is_never_allowed
from acpterm.policy.rules import Rule
from acpterm.policy.syntax.readers import reader_of
from acpterm.policy.verdict import JudgedPart, Level, Verdict, strictest, worst
from acpterm.policy.words import UNKNOWN_TEXT, TooLongError
from acpterm.policy.wrappers.unwrapped import is_standard

# Values with which variables that can change what is executed change nothing that matters.
_HARMLESS_VARIABLE: Final = re.compile(
    r"(?:\w+_)?PAGER=(?:cat)?|(?:\w+_)?EDITOR=(?:true|:)?|GIT_TERMINAL_PROMPT=\d|GIT_OPTIONAL_LOCKS=\d"
    r"|PYTHON(?:UNBUFFERED|DONTWRITEBYTECODE|IOENCODING|UTF8|HASHSEED)=[\w.-]*|CARGO_TERM_\w+=\w*"
    r"|NODE_ENV=\w*|NODE_DISABLE_COLORS=\d|MAKEFLAGS=-j\d*|npm_config_(?:color|loglevel|yes)=\w*"
)
# The name of a dangerous program anywhere in a line. `find` and `git` are often used safely, so of
# these, only some arguments count.
_DANGEROUS_NAME: Final = re.compile(
    rf"(?<![\w.-])(?:{'|'.join(SUSPICIOUS_NAMES)})(?![\w-])|-(?:delete|exec)\b"
    r"|git\s[^\n]{0,200}reset"
)


# In a pattern that matches syntax of shells, which has no meaning in quotes.
_SYNTAX: Final = re.compile(r"`|\\[$|]|^[<>]")


class _Decided(NamedTuple):
    """The decision on one part of a command."""

    decision: Decision
    rule: str | None = None
    """The rule, or the allowed prefix, that decided; None if the profile decided by the level."""
    reason: str = ""
    """The reason that the rule gives; may be empty."""


def decide(
    classifier: Classifier, line: str, allowed: frozenset[tuple[str, ...]], *, is_shell: bool
) -> Verdict:
    """Return the verdict on the command `line`, whose parts `classifier` has found."""
    # A prefix in `allowed` allows a part if no rule matches it, its words are known exactly, the
    # profile asks, and the part is not dangerous or is equal to the prefix.
    parts = tuple(
        JudgedPart(tuple(word.text for word in part.words), part.level, part.reason)
        for part in classifier.found
    )
    if classifier.has_left:
        allowed = frozenset()  # the user has allowed them in this directory
    blocked = _blocked(classifier, line)
    if blocked:
        reason = f"the command matches {blocked}"
        return Verdict(Level.DANGEROUS, "deny", blocked, reason, parts, None, is_shell)
    decided = [(part, _decide(part, classifier, allowed)) for part in classifier.found]
    decision = strictest(one.decision for _, one in decided)
    level = worst(part.level for part in classifier.found)
    rule, reason, kind, is_given = None, "", None, False
    for part, one in decided:
        # Several parts may have the strictest decision: give the reason of the most dangerous one,
        # and rather what it loses than that it is in a list.
        is_worst = part.level is level
        if one.decision == decision and (not reason or (is_worst and (part.kinds or not is_given))):
            rule, reason = one.rule, one.reason or part.reason or reason
            kind = part.kinds[0] if part.kinds and not one.reason else None
            is_given = is_worst
            if part.kinds:
                break
    asking = [part for part, one in decided if one.decision == "ask"]
    is_only = decision == "ask" and len(asking) == 1 and rule is None and not classifier.has_left
    prefix = always_prefix(asking[0]) if is_only else None
    pending = tuple(classifier.pending)
    lost = _lost(classifier, decided)
    return Verdict(level, decision, rule, reason, parts, prefix, is_shell, kind, pending, lost)


def _lost(
    classifier: Classifier, decided: Sequence[tuple[FoundPart, _Decided]]
) -> Mapping[Loss, Finding] | None:
    """Return what the parts that matter to a question lose; None if that is not known."""
    lost: dict[Loss, Finding] = {}
    for part, one in decided:
        # A line that is not plain may do anything with its commands.
        is_known = bool(part.words) and not any(UNKNOWN_TEXT in word.text for word in part.words)
        if part.level is Level.DANGEROUS or one.decision != "allow" or not part.words:
            if not (is_known and part.losses) or Kind.DOWNLOADS in part.kinds:
                return None
            lost |= {loss: classifier.findings.get(loss) for loss in part.losses}
    return lost


def _by_level(part: FoundPart, profile: Profile) -> Decision:
    decisions: dict[Level, Decision] = {
        Level.SAFE: profile.safe,
        Level.UNKNOWN: profile.unknown,
        Level.DANGEROUS: profile.dangerous,
    }
    if not part.kinds:
        return decisions[part.level]
    found = [profile.decision_on(kind) for kind in part.kinds]
    return strictest([*found, profile.dangerous] if part.is_listed else found)


def _decide(
    part: FoundPart, classifier: Classifier, allowed: frozenset[tuple[str, ...]]
) -> _Decided:
    by_level = _by_level(part, classifier.lists.profile)
    if not part.words or not (classifier.rules or allowed):
        return _Decided(by_level)
    texts = rule_words(part.words)
    full = (part.words[0].text, *texts[1:])
    named = texts if is_standard(full[0]) else full
    is_dangerous = part.level is Level.DANGEROUS
    can_allow = part.is_exact and not (is_dangerous and is_never_allowed(full))
    found: dict[Decision, Rule] = {}
    for rule in classifier.rules:
        if rule.decision == "allow":
            if can_allow and any(
                rule.allows(one, is_dangerous=is_dangerous) for one in (full, named)
            ):
                found.setdefault("allow", rule)
        elif rule.matches(texts) or rule.matches(full):
            found.setdefault(rule.decision, rule)
    if found:
        decision = strictest(found)
        return _Decided(decision, str(found[decision]), found[decision].reason)
    if part.is_exact and by_level == "ask":
        for prefix in allowed:
            is_whole = len(prefix) == len(full)
            if full[: len(prefix)] == prefix and (is_whole or not is_dangerous):
                return _Decided("allow", f"allowed in this session: {' '.join(prefix)}")
    return _Decided(by_level)


def _blocked(classifier: Classifier, line: str) -> str:
    """Return which entry of the profile's lists denies the command `line`; empty if none does."""
    lists = classifier.lists
    for part in classifier.found if lists.blocked else ():
        if part.words and (name := rule_words(part.words)[0]) in lists.blocked:
            return f"blocked_commands: {name}"
    if lists.blocked_patterns and len(line) > SEARCHED_MAX:
        return "blocked_patterns: the command is too long to be searched"
    if lists.blocked_patterns:
        words = [part.words for part in classifier.found if part.words]
        texts = classifier.texts + [pattern_text(one) for one in words]
        for pattern in lists.blocked_patterns:
            is_syntax = _SYNTAX.search(pattern.pattern)
            if any(map(pattern.search, classifier.unquoted if is_syntax else texts)):
                return f"blocked_patterns: {pattern.pattern}"
    return ""


class Judge:
    """Judges commands by `rules` and profiles. Stores nothing about the commands."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._rules = tuple(rules)
        self._lists: dict[str, Lists] = {}

    def judge(
        self,
        command: str,
        args: Sequence[str] | None,
        *,
        profile: Profile,
        env: Mapping[str, str] = MappingProxyType({}),
        path: str | None = None,
        allowed: Collection[tuple[str, ...]] = (),
        shell: str = "bash",
        directory: str = "",
        cwd: str | None = None,
        findings: Mapping[Loss, Finding] = NO_FINDINGS,
    ) -> Verdict:
        """Return the verdict on shell text, or, with `args`, on a program with these arguments."""
        # `env` has the variables that the request sets, `path` is the PATH, `allowed` has the
        # prefixes that the user has allowed for the session, `directory` is that of the session,
        # `findings` are the facts about losses of earlier verdicts (`Verdict.pending`).
        lists = self._lists.get(profile.name)
        if lists is None or lists.profile is not profile:
            lists = self._lists[profile.name] = Lists(profile)
        is_elsewhere = cwd is not None and not is_inside(cwd, directory)
        classifier = Classifier(lists, self._rules, findings, directory, is_elsewhere=is_elsewhere)
        line = command if args is None else " ".join((command, *args))
        try:
            if args is None:
                classifier.line(command, reader_of(shell))
                is_shell = not _is_one_word(command, classifier)
            else:
                is_shell = False
                classifier.program((command, *args))
        except (TooLongError, RecursionError):
            is_shell = args is None
            classifier.texts.append(line)
            classifier.unquoted.append(line)
            classifier.found.append(_too_long(line))
        problem = _environment(env, path)
        if cwd and not problem and is_secret(f"{cwd}/."):
            problem = f"{cwd} may have secrets"
        if not problem:
            return decide(classifier, line, frozenset(allowed), is_shell=is_shell)
        # With this environment, the same words may do other things than when they were allowed.
        classifier.add((), Level.UNKNOWN, problem)
        verdict = decide(classifier, line, frozenset(), is_shell=is_shell)
        return verdict._replace(prefix=None)


def _too_long(line: str) -> FoundPart:
    """Return a command that is too long to be judged as a part, with its level and the reason."""
    level, reason = Level.UNKNOWN, "the command is too long to be judged"
    kinds: tuple[Kind, ...] = ()
    losses = text_losses(line) if len(line) <= SEARCHED_MAX else None
    if losses is None:
        level = Level.DANGEROUS
    elif danger := _DANGEROUS_NAME.search(line):
        level, reason = Level.DANGEROUS, f"{reason}, and has {danger[0]!r}"
    elif losses:
        level, reason = Level.DANGEROUS, f"{reason}, and {losses[0].text(())}"
        kinds = tuple(one.kind for one in losses)
    return FoundPart((), level, reason, False, False, False, kinds, not kinds)


def _is_one_word(command: str, classifier: Classifier) -> bool:
    return (
        len(classifier.found) == 1
        and [word.text for word in classifier.found[0].words] == [command]
        and classifier.found[0].is_exact
    )


def deciding(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `env` that can change what a command executes."""
    return {
        name: value
        for name, value in env.items()
        if listed_paths("variables").search(name)
        and not _HARMLESS_VARIABLE.fullmatch(f"{name}={value}")
    }


def _environment(env: Mapping[str, str], path: str | None) -> str:
    """Return why no command is safe with these variables and this PATH; "" if some may be."""
    for name in deciding(env):
        return f"the variable {name} is set, which can change what is executed"
    if path is not None and not all(one.startswith("/") for one in path.split(":")):
        return "PATH has a directory that is not absolute"
    return ""
