"""Which names of variables, options and headers belong to a secret, such as `GITHUB_TOKEN`."""

import re
from enum import IntEnum
from functools import cache, lru_cache
from typing import Final

HINTS: Final = (
    *(
        "pass",
        "pw",
        "secret",
        "token",
        "key",
        "cred",
        "auth",
        "cookie",
        "otp",
        "jwt",
        "bearer",
        "psk",
    ),
)
"""Every name of a secret contains one of these texts, in lower or upper case."""

_NAME_CHARS_MAX: Final = 128
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ANYWHERE: Final = re.compile(
    "password|passwd|passphrase|passcode|secret(?!ar|io|el)|credential|api_?key|auth_?token"
    "|(?:access|account|auth|encryption|license|master|private|secret|shared|signing|storage)_?key"
    "|_key_data$"
)
_LAST: Final = {
    *("token", "creds", "pass", "pwd", "pw", "passwd", "jwt", "otp", "totp", "apikey", "bearer"),
    "psk",
}
_WEAK: Final = {
    "token",
    "tokens",
    "auth",
    "authorization",
    "cookie",
    "cookies",
    "pass",
}
# Words that end with `pass` and do not mean a password.
_NOT_PASS: Final = {
    "bypass",
    "compass",
    "encompass",
    "overpass",
    "surpass",
    "trespass",
    "underpass",
}
# Last words of names whose value only describes a secret, such as `token_type`.
_ABOUT: Final = (
    "age algorithm alg arn attempts backend bits budget bytes cache changed class command config "
    "count counter counts days dir directory enabled endpoint engine env error expiration expires "
    "expiry exists field file filename fingerprint format func function group header headers "
    "helper hint host index input interval kind label len length lifetime limit limits list "
    "location manager max message min mode name names needed number option options path paths "
    "pattern permissions plugin policy pool port prefix prompt provider range ref refresh regex "
    "region required reset resolver role rotation rule scope scopes server size start "
    "stdin store strategy strength suffix tag template text timeout title ttl type url "
    "uri usage user username valid validation validator variable vault version wait window"
)
# Words before `key` in the names of keys that are no secrets, such as `primary_key`.
_PUBLIC_KEYS: Final = (
    "arrow cache column compose composite config context data dict dictionary field foreign group "
    "hash host hot i18n index json lookup map message meta object order partition primary property "
    "pub public registry repeat row route shard shortcut sort sorting state storage_class string "
    "tab tag translation unique"
)
# First words of options that take no value, such as `--no-password`.
_SWITCHES: Final = (
    "allow check disable enable force generate has hide is list no only print prompt rotate show "
    "skip test use verify with without"
)


class Strength(IntEnum):
    """How certain it is that the value of a name is a secret."""

    NONE = 0
    """The name does not indicate a secret."""
    WEAK = 1
    """The value is a secret only if it looks random."""
    KEY = 2
    """The value is a secret unless it is a path."""
    STRONG = 3
    """The value is a secret."""


def may_have_name(lower: str) -> bool:
    """Return whether `lower`, a text in lower case, may contain the name of a secret."""
    return any(map(lower.__contains__, HINTS))


@lru_cache(maxsize=1024)
def strength(name: str) -> Strength:
    """Return how certain it is that the value of `name` is a secret."""
    if len(name) > _NAME_CHARS_MAX or name in ("PWD", "OLDPWD"):
        return Strength.NONE
    words = [word.lower() for word in _WORDS.findall(name)]
    while words and words[-1].isdigit():
        words.pop()
    if not words or words[-1] in _set(_ABOUT):
        return Strength.NONE
    joined, last = "_".join(words), words[-1]
    if _ANYWHERE.search(joined):
        is_key = not re.search("pass|secret_access", joined)
        return (
            Strength.NONE
            if last == "id" and "secret" not in joined
            else (Strength.KEY if is_key else Strength.STRONG)
        )
    if last in _LAST or (last.endswith("pass") and last not in _NOT_PASS):
        return Strength.KEY if last in ("token", "creds") else Strength.STRONG
    if last == "key" and len(words) > 1 and words[-2] not in _set(_PUBLIC_KEYS):
        return Strength.KEY if name.isupper() else Strength.WEAK
    return Strength.WEAK if name == "KEY" or _WEAK.intersection(words) else Strength.NONE


@lru_cache(maxsize=1024)
def is_switch(name: str) -> bool:
    """Return whether the option `name`, without its dashes, takes no value."""
    return re.split("[-_.]", name, maxsplit=1)[0].lower() in _set(_SWITCHES)


@cache
def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())
