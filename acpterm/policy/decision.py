"""The decision on a command, from its parts: by the lists and rules, and the profile."""

from typing import TYPE_CHECKING, NamedTuple

from acpterm.config.profiles import Decision
from acpterm.policy.levels import Level, Part, Verdict, strictest, worst
from acpterm.policy.parts import FoundPart, pattern_text, rule_words
from acpterm.policy.prefix import always_prefix
from acpterm.policy.search import SEARCHED_MAX, Search
from acpterm.policy.wrappers.unwrapped import is_standard

if TYPE_CHECKING:
    from acpterm.policy.rules import Rule


class _Decided(NamedTuple):
    """The decision on a part, and what has decided, if it was not the profile's on the level."""

    decision: Decision
    rule: str | None = None
    reason: str = ""
    """The reason that the rule gives; may be empty."""


def decide(
    search: Search, line: str, allowed: frozenset[tuple[str, ...]], *, is_shell: bool
) -> Verdict:
    """Return the verdict on the command of a search, `line`.

    `allowed` are prefixes that count like rules that allow. `is_shell` is passed on.
    """
    parts = tuple(
        Part(tuple(word.text for word in part.words), part.level, part.reason)
        for part in search.found
    )
    blocked = _blocked(search, line)
    if blocked:
        reason = f"the command matches {blocked}"
        return Verdict(Level.DANGEROUS, "deny", blocked, reason, parts, None, is_shell)
    decided = [(part, _decide(part, search, allowed)) for part in search.found]
    decision = strictest(one.decision for _, one in decided)
    level = worst(part.level for part in search.found)
    rule, reason = None, ""
    for part, one in decided:
        # The reason is that of the worst part among those that decided.
        if one.decision == decision and (not reason or part.level is level):
            rule, reason = one.rule, one.reason or part.reason or reason
            if part.level is level:
                break
    asking = [part for part, one in decided if one.decision == "ask"]
    is_only = decision == "ask" and len(asking) == 1 and rule is None
    prefix = always_prefix(asking[0]) if is_only else None
    return Verdict(level, decision, rule, reason, parts, prefix, is_shell)


def _decide(part: FoundPart, search: Search, allowed: frozenset[tuple[str, ...]]) -> _Decided:
    profile = search.lists.profile
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
    found: dict[Decision, Rule] = {}
    for rule in search.rules:
        if rule.decision == "allow":
            if part.is_exact and (rule.matches(full) or rule.matches(named)):
                found.setdefault("allow", rule)
        elif rule.matches(texts) or rule.matches(full):
            found.setdefault(rule.decision, rule)
    if found:
        decision = strictest(found)
        return _Decided(decision, str(found[decision]), found[decision].reason)
    if part.is_exact and by_level == "ask":
        for prefix in allowed:
            is_whole = len(prefix) == len(full)
            if full[: len(prefix)] == prefix and (is_whole or part.level is not Level.DANGEROUS):
                return _Decided("allow", f"allowed in this session: {' '.join(prefix)}")
    return _Decided(by_level)


def _blocked(search: Search, line: str) -> str:
    """Return the entry of the profile's lists that blocks the command; empty if none does."""
    lists = search.lists
    for part in search.found:
        if part.words:
            name = rule_words(part.words)[0]
            if name in lists.blocked:
                return f"blocked_commands: {name}"
    if lists.blocked_patterns and len(line) > SEARCHED_MAX:
        return "blocked_patterns: the command is too long to be searched"
    if lists.blocked_patterns:
        found = (pattern_text(part.words) for part in search.found if part.words)
        for text in (line, *search.texts, *found):
            for pattern in lists.blocked_patterns:
                if pattern.search(text):
                    return f"blocked_patterns: {pattern.pattern}"
    return ""
