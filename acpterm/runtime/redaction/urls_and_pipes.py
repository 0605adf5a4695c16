"""Redacts secrets in URLs, and passwords that a shell line writes to the stdin of a program."""

import re
from typing import Final

from acpterm.runtime.redaction.tokens import REDACTED
from acpterm.runtime.redaction.values import is_random, is_reference

# A password in a URL may contain an `@` that is not encoded, so the last `@` ends the password.
_URL: Final = (
    r"""(://(?:[^\s/@:"'<>?#]{0,256}+:(?=[^\s/@"'<>?#])|(?=[\w.~%-]{20,256}@)))"""
    r"""([^\s/"'<>?#]*)(?=@)"""
)
_WORD: Final = r"""'[^'\n]{1,500}+'|"[^"\n]{1,500}+"|[^\s"'|;&<>()]{1,500}+"""
# Programs that read a password from stdin.
_READS: Final = (
    r"(?:sudo(?:\s{1,4}+(?!-\w*S)-\w++)*+\s{1,4}+-\w*S|.{0,200}?--(?:password-stdin|with-token)"
    r"|(?:sudo\s{1,4}+)?(?:chpasswd|passwd\s{1,4}--stdin))"
)
_PIPED: Final = (
    r"(\b(?:echo|printf)\s{1,4}+(?:-[A-Za-z]{1,3}\s{1,4}+){0,3}+(?:['\"]%s(?:\\n)?['\"]\s{1,4}+)?+)"
    rf"({_WORD})(?=\s{{0,4}}\|\s{{0,4}}{_READS})"
)
_HERE_STRING: Final = rf"(\bsudo\s[^|;&\n<]{{0,200}}+<<<\s{{0,4}}+)({_WORD})"
_HINTS: Final = ("sudo", "passwd", "--password-stdin", "--with-token")


def has_url_or_pipe(text: str) -> bool:
    """Return whether `redact_urls_and_pipes` may change `text`: a fast check."""
    return ("://" in text and "@" in text) or (
        ("|" in text or "<<<" in text) and any(hint in text for hint in _HINTS)
    )


def redact_urls_and_pipes(text: str) -> str:
    """Return `text` with the secrets in URLs, pipes (`|`) and here-strings (`<<<`) redacted."""
    if "://" in text:
        text = re.sub(_URL, _in_url, text, flags=re.ASCII)
    if "|" in text:
        text = re.sub(_PIPED, _on_stdin, text)
    if "<<<" in text:
        text = re.sub(_HERE_STRING, _on_stdin, text)
    return text


def _in_url(match: re.Match[str]) -> str:
    kept, secret = match.groups()
    is_user = kept == "://"
    if is_reference(secret) or (is_user and not is_random(secret)):
        return match[0]
    return kept + REDACTED


def _on_stdin(match: re.Match[str]) -> str:
    kept, word = match.groups()
    quote = word[0] if word[0] in "\"'" else ""
    return match[0] if is_reference(word.strip("\"'")) else f"{kept}{quote}{REDACTED}{quote}"
