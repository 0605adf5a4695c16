"""The decision on a command: allow, ask or deny, by the profile's lists and the user's rules."""

from typing import TYPE_CHECKING, NamedTuple

from acpterm.config.profiles import Decision
from acpterm.policy.classifier import SEARCHED_MAX, Classifier
from acpterm.policy.parts import FoundPart, pattern_text, rule_words
from acpterm.policy.prefix import always_prefix, is_never_allowed
from acpterm.policy.verdict import JudgedPart, Level, Verdict, strictest, worst
from acpterm.policy.wrappers.unwrapped import is_standard

if TYPE_CHECKING:
    from acpterm.policy.rules import Rule


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
    blocked = _blocked(classifier, line)
    if blocked:
        reason = f"the command matches {blocked}"
        return Verdict(Level.DANGEROUS, "deny", blocked, reason, parts, None, is_shell)
    decided = [(part, _decide(part, classifier, allowed)) for part in classifier.found]
    decision = strictest(one.decision for _, one in decided)
    level = worst(part.level for part in classifier.found)
    rule, reason = None, ""
    for part, one in decided:
        # Several parts may have the strictest decision: give the reason of the most dangerous one.
        if one.decision == decision and (not reason or part.level is level):
            rule, reason = one.rule, one.reason or part.reason or reason
            if part.level is level:
                break
    asking = [part for part, one in decided if one.decision == "ask"]
    is_only = decision == "ask" and len(asking) == 1 and rule is None
    prefix = always_prefix(asking[0]) if is_only else None
    return Verdict(level, decision, rule, reason, parts, prefix, is_shell)


def _decide(
    part: FoundPart, classifier: Classifier, allowed: frozenset[tuple[str, ...]]
) -> _Decided:
    profile = classifier.lists.profile
    decisions: dict[Level, Decision] = {
        Level.SAFE: profile.safe,
        Level.UNKNOWN: profile.unknown,
        Level.DANGEROUS: profile.dangerous,
    }
    by_level = decisions[part.level]
    if not part.words:
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
    for part in classifier.found:
        if part.words:
            name = rule_words(part.words)[0]
            if name in lists.blocked:
                return f"blocked_commands: {name}"
    if lists.blocked_patterns and len(line) > SEARCHED_MAX:
        return "blocked_patterns: the command is too long to be searched"
    if lists.blocked_patterns:
        found = (pattern_text(part.words) for part in classifier.found if part.words)
        for text in (line, *classifier.texts, *found):
            for pattern in lists.blocked_patterns:
                if pattern.search(text):
                    return f"blocked_patterns: {pattern.pattern}"
    return ""
