"""Redacts secrets at a certain place of a phrase: in URLs, pipes, SQL, XML and others."""

import re
from functools import cache
from typing import Final, NamedTuple

from acpterm.runtime.redaction.secret_names import may_have_name
from acpterm.runtime.redaction.tokens import REDACTED
from acpterm.runtime.redaction.values import is_random, is_reference

_WORD: Final = r"""'[^'\n]{1,500}+'|"[^"\n]{1,500}+"|[^\s"'`|;&<>()]{1,500}+"""
_QUOTED: Final = r"""\\?'[^'\n]{1,500}+'|\\?"[^"\n]{1,500}+\""""


class Phrase(NamedTuple):
    """Texts around a secret. A phrase is searched only in a text that contains one of `hints`."""

    hints: tuple[str, ...]
    """In lower case."""
    before: str
    """The pattern of the text before the secret; it is not redacted."""
    after: str = ""
    value: str = _WORD
    must_be_random: bool = False


# A password in a URL may contain an `@` that is not encoded, so the last `@` ends the password.
_URL: Final = r"""(://)([^\s/@:"'<>?#]{0,256}+)(?:(:)([^\s/"'<>?#]*))?(?=@)"""
# In the place of the password; the token of GitHub is the user.
_FLAG: Final = "x-oauth-basic"
_SAME_COMMAND: Final = r"[^\n;|&]{0,200}?"
_WORDS: Final = r"(?:password|passwd|secret|token|api_?key)"
# Programs that read a password from stdin.
_READS: Final = (
    r"(?:sudo(?:\s{1,4}+(?!-\w*S)-\w++)*+\s{1,4}+-\w*S"
    r"|.{0,200}?--(?:password-stdin|with-token|passphrase-fd[ =]0)"
    r"|(?:sudo\s{1,4}+)?(?:chpasswd|passwd|smbpasswd|cryptsetup|kinit|su|secret-tool)\b"
    r"|(?:npx\s{1,4}+)?(?:wrangler|docker|podman|gh|vercel)\s{1,4}+(?:secret|env)\s{1,4}+"
    r"(?:put|create|set|add)\b)"
)
_READ_HINTS: Final = (
    *("sudo", "passwd", "--password-stdin", "--with-token", "--passphrase-fd", "cryptsetup"),
    *("kinit", "su -", "secret-tool", " secret ", " env add"),
)
_ECHO: Final = (
    r"\b(?:echo|printf)\s{1,4}+(?:-[A-Za-z]{1,3}\s{1,4}+){0,3}+(?:['\"]?%s(?:\\n)?['\"]?\s{1,4}+)?+"
)
# Phrases that also have the name of a secret.
_NAMED: Final = (
    Phrase(("passw",), r"\bpassw[\w-]{2,20}+[= ](?:<\(|[\"'])echo\s{1,4}"),
    Phrase((".pgpass",), r"(?m:^)[^\s:]+:(?:\d+|\*):[^\s:]+:[^\s:]+:"),
    Phrase(
        ("nmcli", "mysqladmin", "machine"),
        r"\b(?:nmcli|mysqladmin|machine)\s[^;|&]{0,200}?\s(?:password|wifi-sec\.psk)\s+",
    ),
    Phrase(
        ("</",),
        rf"(?i:<(?:[\w:.-]{{0,40}}{_WORDS}|\w+\s[^<>]{{0,60}}[\"'][\w.:-]{{0,60}}{_WORDS}[\"'])"
        r"[^<>]{0,60}>)",
        "</",
        r"[^<>\s]{1,500}+",
    ),
    Phrase(
        ("value=",),
        rf"(?i:\b(?:key|name)=[\"'][\w.:-]{{0,60}}{_WORDS}[\"']\s+value=)",
        value=_QUOTED,
    ),
    # Kaggle's `kaggle.json`.
    Phrase(
        ('"key"', '\\"key\\"'),
        r'"username\\?"\s?:\s?\\?"[^"]{1,64}",\s?\\?"key\\?"\s?:\s?',
        value=r'\\?"[0-9a-f]{32}\\?"',
    ),
    Phrase(
        ("rclone",),
        rf"\brclone\s+config\s{_SAME_COMMAND}"
        r"\s(?:secret_access_key|client_secret|pass|token|key)[= ]",
    ),
    Phrase(
        (" key", "token is", "password is", "password for"),
        r"(?i:\b(?:(?:api|access|secret|private|license|auth) key|token|password|passphrase)"
        r"(?: for \S{1,60}+)?(?: is|:)\s{1,4}+)",
        must_be_random=True,
    ),
    Phrase(("auth=(",), r"\bauth=\(\s{0,4}[\"'][^\"'\n]{0,100}[\"'],\s{0,4}"),
)
_OTHERS: Final = (
    Phrase(("assword",), rf"assword{_SAME_COMMAND}[;\n]?\s{{0,4}}\bsend\s{{1,4}}(?:--\s)?"),
    Phrase(
        ("htpasswd", "rabbitmqctl", "wpa_passphrase"),
        r"\b(?:htpasswd\s+-\w*b\w*\s+(?:-\w+\s+){0,3}\S+\s+\S+|wpa_passphrase\s+\S+"
        r"|rabbitmqctl\s+(?:add_user|change_password)\s+\S+)\s+",
    ),
    Phrase(
        ("secret", "vault"),
        rf"\bvault\s+kv\s+(?:put|patch)\s{_SAME_COMMAND}\s[\w-]{{1,60}}="
        rf"|\bsecrets?\s+set\s(?:{_SAME_COMMAND}\s(?:-b|--body)[ =]|\s*(?:-\S+\s+){{0,4}}\w+=)"
        r"|\bcreate\s+secret\s[^\n;|&]{0,400}?--from-literal[ =][\w.-]+=",
    ),
    Phrase(_READ_HINTS, _ECHO, rf"\s{{0,4}}\|\s{{0,4}}{_READS}"),
    Phrase(
        _READ_HINTS,
        r"\b(?:sudo|chpasswd|passwd|smbpasswd|cryptsetup|kinit|docker|podman|helm|gh|gpg)\s"
        r"[^|;&\n<]{0,200}+<<<\s{0,4}+",
    ),
    Phrase(
        ("@",),
        r"(?<![\w/@.:-])(?!sha256|npm|git)[A-Za-z][\w.-]{0,64}+:",
        r"@(?!sha256)[\w.-]{1,255}+(?::\d|\(|/)",
        r"[^\s:@/\"'$<>]{4,100}+",
    ),
    Phrase(
        ("identified", "password"),
        r"(?i:\bidentified(?:\s+with\s+\w+)?\s+by|\b(?:with|encrypted|login|set)\s+password)"
        r"(?:\s+|\s*=\s*)",
        value=_QUOTED,
    ),
    # ODBC. `PWD` is the working directory of a shell, too.
    Phrase((";pwd=",), "(?i:;pwd=)", value=r"(?![/~$.])[^;\s\"']{1,100}+"),
    Phrase(("xfreerdp",), rf"\bxfreerdp3?\s{_SAME_COMMAND}\s/p:"),
    Phrase((" alias set ",), r"\bmc(?:li)?\s+alias\s+set\s+\S{1,60}+\s+\S{1,200}+\s+\S{1,100}+\s+"),
    Phrase(
        ("sqlplus", "impdp", "expdp", "thin:"),
        r"\b(?:(?:sqlplus|impdp|expdp)\s[^\n;|&@]{0,60}?|thin:)[\w$#]{1,60}/",
        "@",
        r"[^\s@\"'/]{1,100}+",
    ),
    Phrase(
        ("requirepass", "redis-cli"), rf"(?i:\b(?:requirepass|redis-cli\s{_SAME_COMMAND}auth)\s+)"
    ),
    Phrase(
        (" login ", " auth ", "authtoken ", " unlock "),
        r"\b(?:vault|wandb|cargo|snyk|ngrok|bw)\s+(?:config\s+)?"
        r"(?:login|auth|unlock|(?:add-)?authtoken)\s+(?:-\S+\s+){0,3}",
        must_be_random=True,
    ),
    Phrase(
        (" config ",),
        rf"\b(?:composer|poetry|git|pulumi)\s+config\s{_SAME_COMMAND}(?:http-basic\.\S+\s+\S+"
        r"|(?:github-oauth|pypi-token)\.\S+|--secret\s+\S+|\.password)\s+",
    ),
    Phrase(
        ("securestring",),
        r"\bput-parameter\b(?=[^\n;|&]{0,400}SecureString)[^\n;|&]{0,300}?--value[ =]"
        r"|\bConvertTo-SecureString\s+(?:-String\s+)?",
    ),
)
_PHRASES: Final = (*_NAMED, *_OTHERS)
# The values of a secret of Kubernetes, whatever their names.
_KUBERNETES: Final = r"((?m:^)\s{0,8}(?:data|stringData):[ ]*\n)((?:[ \t]{1,16}+\S[^\n]*(?:\n|$))+)"
_KUBERNETES_VALUE: Final = r"(:[ \t]+[\"']?)([^\s\"'|>][^\s\"']*)"
_HINTS: Final = tuple(
    {hint for phrase in _OTHERS for hint in phrase.hints if not may_have_name(hint)} - {"@"}
)


def has_phrase(text: str, lower: str) -> bool:
    """Return whether `redact_phrases` may change `text`, which has no name of a secret.

    A fast check. `lower` is `text` in lower case.
    """
    return ("@" in text and ":" in text) or any(map(lower.__contains__, _HINTS))


def redact_phrases(text: str, lower: str) -> str:
    """Return `text` with the secrets in URLs and in phrases such as `echo … | sudo -S` redacted."""
    if "://" in text and "@" in text:
        text = re.sub(_URL, _in_url, text, flags=re.ASCII)
    for index, phrase in enumerate(_PHRASES):
        if any(map(lower.__contains__, phrase.hints)):
            text = _compiled(index).sub(_random_word if phrase.must_be_random else _word, text)
    if "kind: Secret" in text:
        text = re.sub(_KUBERNETES, _in_kubernetes, text)
    return text


@cache
def _compiled(index: int) -> re.Pattern[str]:
    phrase = _PHRASES[index]
    after = f"(?={phrase.after})" if phrase.after else ""
    return re.compile(f"({phrase.before})({phrase.value}){after}", re.ASCII)


def _in_url(match: re.Match[str]) -> str:
    start, user, colon, password = match.groups()
    if password and password != _FLAG:
        return match[0] if is_reference(password) else start + user + colon + REDACTED
    # A token in the place of the user.
    is_token = bool(password) or (len(user) >= 20 and is_random(user))
    if is_reference(user) or not is_token:
        return match[0]
    return start + REDACTED + (colon or "") + (password or "")


def _word(match: re.Match[str]) -> str:
    return match[1] + _redacted_word(match[2])


def _random_word(match: re.Match[str]) -> str:
    return match[1] + (_redacted_word(match[2]) if is_random(match[2].strip("\\\"'")) else match[2])


def _redacted_word(word: str) -> str:
    """Return `word`, which may be in quotes, redacted; unchanged if it is only a reference."""
    start = word[: len(word) - len(word.lstrip("\\\"'"))]
    inner = word[len(start) :].rstrip("\"'").removesuffix("\\") if start else word
    return word if is_reference(inner) else start + REDACTED + start


def _in_kubernetes(match: re.Match[str]) -> str:
    def value(found: re.Match[str]) -> str:
        return found[0] if is_reference(found[2]) else found[1] + REDACTED

    return match[1] + re.sub(_KUBERNETES_VALUE, value, match[2])
