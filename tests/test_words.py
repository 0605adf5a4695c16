"""Sources, pages and command help use standard terms."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Words that are not used, and what to write instead. A phrase matches across line ends; letters in
# parentheses are optional.
WORDS = {
    "anew": "again",
    "anybody": "any client, any program",
    "as it comes": "live, continuously",
    "asker(s)": "execution context; client",
    "be it": "even if, whether",
    "but for": "except",
    "everybody": "all clients",
    "farewell": "disconnect grace",
    "fate": "result, exit status",
    "fewest": "minimum",
    "folder(s)": "directory",
    "for ever": "forever, without end",
    "for want of": "for lack of",
    "front end(s)": "client",
    "go on": "continue",
    "goes on": "continues",
    "had best": "should",
    "happening(s)": "event",
    "heard": "received",
    "henceforth": "from then on",
    "is said": "is reported, is sent",
    "is told": "is sent, is notified",
    "lets go": "releases",
    "looked at": "inspected, read",
    "looks at": "inspects, reads",
    "looks on": "is attached, subscribes",
    "mended": "repaired, fixed",
    "mending": "repair",
    "mine": "owned",
    "news": "changes, updates",
    "nobody": "no client, no process",
    "patience": "timeout",
    "people": "users",
    "person(s)": "user",
    "roster": "registry",
    "rubbish": "invalid data",
    "said": "sent, reported",
    "somebody": "a client, a process",
    "someone": "a client, a process",
    "theirs": "the agent's",
    "tidings": "events",
    "to be had": "available",
    "told": "sent, notified, reported",
    "untold": "pending",
    "was said": "was reported, was sent",
    "what is told": "updates",
    "what was said": "the messages",
    "who asked": "the client",
    "who asks": "the client",
    "who is": "which client, the process that",
    "who looks": "the viewer, the subscriber",
    "whoever": "the client that, the process that",
    "whom": "the client that",
    "whosoever": "the client that, the process that",
}

# Files in which a word may occur, since a name that acpterm did not choose contains it, or one on
# the wire.
EXEMPT = {
    "asker(s)": {"acpterm/acp/agent_meta.py", "acpterm/host/launch/environment.py"},
    # Options of yarn.
    "folder(s)": {"acpterm/policy/arguments.py"},
}

SOURCES = sorted((ROOT / "acpterm").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# The pages of the commands are generated from their help.
HELP = sorted((ROOT / "docs" / "commands").glob("*.md"))


def split_identifiers(text: str) -> str:
    """Separate the words of CamelCase and snake_case names by spaces."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ")


def prose(page: str) -> str:
    """Blank code blocks, code spans and the targets of links in a Markdown page."""
    page = re.sub(
        r"^(`{3,}).*?^\1",
        lambda match: "\n" * match[0].count("\n"),
        page,
        flags=re.DOTALL | re.MULTILINE,
    )
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", "", page))


def pattern(word: str) -> re.Pattern[str]:
    """Return the pattern of a word, for text whose identifiers were split."""
    text = re.sub(r"\((\w+)\)", r"(?:\1)?", word).replace(" ", r"[\s#]+")
    return re.compile(rf"(?<![a-z]){text}(?![a-z])", re.IGNORECASE)


def test_no_source_page_or_help_has_a_word_of_the_list():
    patterns = {word: pattern(word) for word in WORDS}
    # Searching for a fixed text is much faster than for a pattern.
    stems = {word: re.split(r"[ (]", word)[0] for word in WORDS}
    errors = []
    for path in [*SOURCES, *PAGES, *HELP]:
        name = str(path.relative_to(ROOT))
        text = path.read_text()
        text = split_identifiers(text) if path.suffix == ".py" else prose(text)
        lowered = text.lower()
        for word, one in patterns.items():
            if stems[word] in lowered and name not in EXEMPT.get(word, ()):
                errors += [
                    f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}: write "
                    f"{WORDS[word]}"
                    for match in one.finditer(text)
                ]
    assert errors == []


def test_pattern_matches_identifiers_and_phrases_across_lines():
    text = split_identifiers("class AskerRecord: pass  # what is\n# told of_the_asker")
    assert len(pattern("asker(s)").findall(text)) == 2
    assert pattern("what is told").search(text)
    assert not pattern("told").search("untold")
