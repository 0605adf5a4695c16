"""The user's answers that count for the rest of a session: "always allow", "always reject"."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final, TypeVar

from acpterm.policy.questions import Answer, Question

# Maximum decisions of each kind that a session remembers; the oldest is forgotten first.
_REMEMBERED_MAX: Final = 256

T = TypeVar("T")


class SessionDecisions:
    """The decisions that the user has made for the rest of a session."""

    def __init__(
        self,
        allowed: Iterable[Iterable[str]] = (),
        rejected: Iterable[Iterable[str]] = (),
        rejected_commands: Iterable[bytes] = (),
    ) -> None:
        self.allowed: Final = [tuple(words) for words in allowed]
        self.rejected: Final = [tuple(prefix) for prefix in rejected]
        self.rejected_commands: Final = list(rejected_commands)

    @property
    def size(self) -> int:
        """About how many bytes of memory the decisions take."""
        words = [word for prefix in (*self.allowed, *self.rejected) for word in prefix]
        return sum(64 + len(word) for word in words) + 96 * len(self.rejected_commands)

    def remember(self, question: Question, answer: Answer) -> bool:
        """Store an answer whose scope is `always`; return whether it was stored."""
        if answer.scope != "always":
            return False
        if question.prefix is None:
            if answer.is_allowed:
                return False
            _append(self.rejected_commands, _digest(question.command))
        elif answer.is_allowed:
            _append(self.allowed, (question.directory, *question.prefix))
        else:
            _append(self.rejected, question.prefix)
        return True

    def allowed_in(self, directory: str) -> list[tuple[str, ...]]:
        """Return the prefixes that are allowed in a directory."""
        return [words[1:] for words in self.allowed if words[0] == directory]

    def find(self, question: Question) -> Answer | None:
        """Return the answer that an earlier decision implies; a refusal wins. None without one."""
        words = question.prefix
        # Compare whole prefixes: a command with more words may do more than the user was shown.
        if _digest(question.command) in self.rejected_commands or words in self.rejected:
            return Answer(
                decision="deny", by="session", reason="the user has rejected it for this session"
            )
        if words is not None and (question.directory, *words) in self.allowed:
            return Answer(decision="allow", by="session")
        return None


def _append(values: list[T], value: T) -> None:
    if value in values:
        values.remove(value)
    values.append(value)
    del values[: max(0, len(values) - _REMEMBERED_MAX)]


def _digest(command: str) -> bytes:
    return sha256(command.encode(errors="surrogatepass")).digest()
