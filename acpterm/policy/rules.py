"""The user's prefix rules: reads their TOML file, and appends a rule to it.

    [[rule]]
    pattern = ["git", ["push", "fetch"]]
    decision = "allow"
    reason = "The remote is ours."
    match = ["git push origin main"]
    not_match = ["git pull"]

A rule matches a command whose first words are those of its pattern; a list in the pattern has
alternatives for one word. A rule with the decision `allow` allows a dangerous command only if it
has no further words, unless the rule has `prefix = true`. `match` and `not_match` are examples:
commands that the rule must match, and must not match. They are checked when the file is loaded. If
one of them fails, loading raises `RulesError`, and no rule of the file is used.
"""

import os
import shlex
import stat
import tempfile
import tomllib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast, get_args

from acpterm.config.paths import default_file
from acpterm.config.profiles import Decision

_DECISIONS: Final = get_args(Decision)
_KEYS: Final = ("pattern", "decision", "prefix", "reason", "match", "not_match")


class RulesError(Exception):
    """The rules file cannot be used; the message is one line, and says what would be valid."""


class Rule(NamedTuple):
    """A rule with a decision on all commands that begin with certain words."""

    pattern: tuple[tuple[str, ...], ...]
    """For each of the words, in order, the alternatives that match."""
    decision: Decision
    reason: str = ""
    """The user's reason for the rule; may be empty."""
    prefix: bool = False
    """Whether a rule that allows also allows dangerous commands with further words."""

    def matches(self, words: Sequence[str]) -> bool:
        """Return whether `words`, the words of a command, begin with the words of the pattern."""
        return len(words) >= len(self.pattern) and all(
            word in alternatives for word, alternatives in zip(words, self.pattern, strict=False)
        )

    def allows(self, words: Sequence[str], *, is_dangerous: bool) -> bool:
        """Return whether the rule, whose decision is `allow`, allows a command."""
        is_whole = len(words) == len(self.pattern)
        return self.matches(words) and (self.prefix or is_whole or not is_dangerous)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the pattern; alternatives are one word, such as `[push|fetch]`."""
        return tuple(one[0] if len(one) == 1 else f"[{'|'.join(one)}]" for one in self.pattern)

    def __str__(self) -> str:
        words = " ".join(
            shlex.quote(word) if len(one) == 1 else word
            for word, one in zip(self.words, self.pattern, strict=True)
        )
        return f"{self.decision} {words}"


def default_rules_file() -> str:
    """Return the default path of the rules file."""
    return os.path.join(os.path.dirname(default_file()), "rules.toml")


_FILE_BYTES_MAX: Final = 1024 * 1024


def load_rules(path: str) -> tuple[Rule, ...]:
    """Return the rules of the file; none if it does not exist. Raises `RulesError`."""
    try:
        return parse_rules(_read(path), path)
    except FileNotFoundError as error:
        if os.path.islink(path):
            raise RulesError(f"{path}: is a symbolic link to a file that does not exist") from error
        return ()
    except OSError as error:
        raise RulesError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RulesError(f"{path}: is not UTF-8: {error.reason}") from error


def _read(path: str) -> str:
    """Return the text of a file; empty for /dev/null. Raises `RulesError`, `OSError`."""
    # A pipe or a device would block the reader, or have no end.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        if os.path.samestat(status, os.stat(os.devnull)):
            return ""
        raise RulesError(f"{path}: is not a regular file")
    with open(descriptor, "rb") as file:
        if status.st_size > _FILE_BYTES_MAX:
            raise RulesError(
                f"{path}: has {status.st_size} bytes: a file of rules has at most {_FILE_BYTES_MAX}"
            )
        # Some editors write a byte order mark.
        return file.read(_FILE_BYTES_MAX).decode("utf-8-sig")


def parse_rules(text: str, path: str) -> tuple[Rule, ...]:
    """Return the rules in `text`. Raises `RulesError`, which names `path`."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RulesError(f"{path}: is not TOML: {error}") from error
    for key in document:
        if key != "rule":
            raise RulesError(f"{path}: {key!r} is unknown: rules are tables [[rule]]")
    tables = document.get("rule", [])
    if not isinstance(tables, list):
        raise RulesError(f"{path}: 'rule' must be an array of tables: write [[rule]]")
    return tuple(_rule(table, f"{path}: rule {number}") for number, table in enumerate(tables, 1))


def _rule(table: Any, where: str) -> Rule:
    if not isinstance(table, dict):
        raise RulesError(f"{where}: must be a table, [[rule]]")
    for key in table:
        if key not in _KEYS:
            raise RulesError(f"{where}: {key!r} is unknown: the keys are {', '.join(_KEYS)}")
    decision: Decision | None = table.get("decision")
    if decision is None or decision not in _DECISIONS:
        problem = "is missing" if decision is None else f"is {decision!r}"
        raise RulesError(f"{where}: decision {problem}: it must be {', '.join(_DECISIONS)}")
    reason = table.get("reason", "")
    if not isinstance(reason, str):
        raise RulesError(f"{where}: reason is {reason!r}: it must be a string")
    prefix = table.get("prefix", False)
    if not isinstance(prefix, bool):
        raise RulesError(f"{where}: prefix is {prefix!r}: it must be true or false")
    rule = Rule(_pattern(table.get("pattern"), where), decision, reason, prefix)
    _check_examples(rule, table, where)
    return rule


def _check_examples(rule: Rule, table: dict[str, Any], where: str) -> None:
    for key, is_expected in (("match", True), ("not_match", False)):
        examples = table.get(key, [])
        if not isinstance(examples, list):
            raise RulesError(f"{where}: {key} is {examples!r}: it must be an array of commands")
        for example in examples:
            if rule.matches(_words(example, f"{where}: {key}")) != is_expected:
                does = "does not match" if is_expected else "matches"
                raise RulesError(
                    f"{where}: the pattern of {str(rule)!r} {does} the command {example!r} of "
                    f"{key}: correct the pattern or the example"
                )


def _pattern(value: Any, where: str) -> tuple[tuple[str, ...], ...]:
    right = 'it must be an array of words or of alternatives, such as ["git", ["push", "fetch"]]'
    if not isinstance(value, list) or not value:
        problem = "is missing" if value is None else f"is {value!r}"
        raise RulesError(f"{where}: pattern {problem}: {right}")
    pattern = []
    for item in value:
        alternatives = item if isinstance(item, list) else [item]
        if not alternatives or not all(isinstance(one, str) for one in alternatives):
            raise RulesError(f"{where}: pattern has {item!r}: {right}")
        pattern.append(tuple(alternatives))
    if "" in pattern[0]:
        raise RulesError(f"{where}: pattern has an empty name of a program: {right}")
    for name in pattern[0]:
        if name != name.strip() or (" " in name and "/" not in name):
            raise RulesError(
                f"{where}: pattern has the program {name!r}: write each word as a string of its own"
            )
    return tuple(pattern)


def _words(example: Any, where: str) -> list[str]:
    if isinstance(example, list) and all(isinstance(word, str) for word in example):
        return example
    if not isinstance(example, str):
        raise RulesError(f"{where}: {example!r} must be a command, or an array of its words")
    try:
        return shlex.split(example)
    except ValueError as error:
        raise RulesError(f"{where}: {example!r} is not a command: {error}") from error


def add_rule(path: str, rule: Rule) -> None:
    """Append a rule to the file, which need not exist. Raises `RulesError`."""
    import tomlkit  # noqa: PLC0415  slow to import, and only needed to write

    load_rules(path)
    table = tomlkit.table()
    table["pattern"] = [one[0] if len(one) == 1 else list(one) for one in rule.pattern]
    table["decision"] = rule.decision
    if rule.prefix:
        table["prefix"] = True
    if rule.reason:
        table["reason"] = rule.reason
    rules = tomlkit.aot()
    rules.append(table)
    document = tomlkit.document()
    document["rule"] = rules
    text = _text(path)
    separator = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    _write(path, f"{text}{separator}{tomlkit.dumps(document)}")


def remove_rules(path: str, words: Sequence[str]) -> list[Rule]:
    """Remove the rules with these `words` from the file; return them. Raises `RulesError`."""
    import tomlkit  # noqa: PLC0415  slow to import, and only needed to write

    rules = load_rules(path)
    found = [at for at, rule in enumerate(rules) if rule.words == tuple(words)]
    if found:
        document = tomlkit.parse(_text(path))
        tables = cast("list[object]", document["rule"])
        for at in reversed(found):
            del tables[at]
        _write(path, tomlkit.dumps(document))
    return [rules[at] for at in found]


def _text(path: str) -> str:
    try:
        return _read(path)
    except FileNotFoundError:
        return ""


def _write(path: str, text: str) -> None:
    # As a whole, so that a reader never sees half of a rule.
    parse_rules(text, path)
    target = os.path.realpath(path)
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        mode = os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o600
        descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".rules-")
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, mode)
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise RulesError(f"{path}: cannot be written: {error.strerror}") from error
