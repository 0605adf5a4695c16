"""Redacts passwords in the options of known programs, such as `-p` of mysql."""

import os
import re
from collections.abc import Mapping
from enum import Enum, auto
from functools import cache
from typing import Final, TypeAlias

from acpterm.runtime.redaction.tokens import REDACTED
from acpterm.runtime.redaction.values import VALUE, is_random, is_reference


class Form(Enum):
    """Where the value of an option is, and which part of the value is secret."""

    ATTACHED = auto()
    """The value is in the same word, as in `-pSECRET`."""
    NEXT = auto()
    """The value is the next word."""
    ANY = auto()
    """The value is in the same word, or is the next word."""
    USER = auto()
    """As ANY. Only the part after `:`, `,`, `%` or `=` is secret, or all of a token."""
    SOURCE = auto()
    """As ANY. Only the part after `pass:` is secret, as in openssl's `pass:SECRET`."""


Options: TypeAlias = Mapping[str, Form]

_ATTACHED_P: Final[Options] = {"p": Form.ATTACHED}
_P: Final[Options] = {"p": Form.ANY}
_CAPITAL_P: Final[Options] = {"P": Form.ANY}
_W: Final[Options] = {"w": Form.ANY}
_A: Final[Options] = {"a": Form.USER, "auth": Form.USER}
_T: Final[Options] = {"t": Form.ANY}
_CAPITAL_U: Final[Options] = {"U": Form.USER}

_PROGRAMS: Final[Mapping[str, Options]] = {
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlsh"), _ATTACHED_P),
    **dict.fromkeys(("mysqlshow", "mycli", "mariadb", "mariadb-dump"), _ATTACHED_P),
    **dict.fromkeys(("mariadb-admin", "7z", "7za", "7zz", "unrar"), _ATTACHED_P),
    "rar": {"p": Form.ATTACHED, "h": Form.ATTACHED},
    **dict.fromkeys(("zip", "unzip", "sqlcmd", "bcp"), _CAPITAL_P),
    **dict.fromkeys(("mongo", "mongosh", "mongodump", "mongorestore", "mongoexport"), _P),
    **dict.fromkeys(("ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldapwhoami"), _W),
    **dict.fromkeys(("http", "https", "xh"), _A),
    **dict.fromkeys(("smbclient", "rpcclient"), _CAPITAL_U),
    "curl": dict.fromkeys(("u", "U", "user", "proxy-user", "b", "cookie", "E", "cert"), Form.USER),
    "lftp": {"u": Form.USER},
    "etcdctl": {"user": Form.USER},
    "supabase": _P,
    "evil-winrm": _P,
    "ipmitool": _CAPITAL_P,
    **dict.fromkeys(("snmpget", "snmpset", "snmpwalk"), dict.fromkeys("AX", Form.ANY)),
    "influx": _T,
    "choco": {"k": Form.ANY},
    **dict.fromkeys(("sshpass", "cqlsh", "yt-dlp"), _P),
    **dict.fromkeys(("twine", "skopeo", "useradd", "usermod"), _P),
    **dict.fromkeys(("mosquitto_pub", "mosquitto_sub"), _CAPITAL_P),
    **dict.fromkeys(("doctl", "vercel", "flyctl", "fly"), _T),
    "ssh-keygen": dict.fromkeys("NP", Form.ANY),
    "security": dict.fromkeys("pw", Form.ANY),
    "ldappasswd": dict.fromkeys("saw", Form.ANY),
    "push": {"k": Form.ANY},  # of `dotnet nuget`
    "redis-cli": {"a": Form.ANY},
    "openssl": {
        "k": Form.NEXT,
        "pass": Form.SOURCE,
        "passin": Form.SOURCE,
        "passout": Form.SOURCE,
    },
    # The subcommand of docker, podman, helm, az and others.
    "login": {"p": Form.ANY},
}
_NAMES: Final = tuple(_PROGRAMS)
# The names that contain no other name. Every text that contains a name contains one of these.
_HINTS: Final = tuple(
    name for name in _NAMES if not any(other in name and other != name for other in _NAMES)
)
_PORT: Final = re.compile(r"\d{1,5}(?::\d{1,5})?")
# Options of one letter may be combined; the last one may have a value.
_COMBINED: Final = re.compile(r"[A-Za-z]{1,8}")
_SEPARATOR: Final = re.compile(r"=|[ \t]{1,8}")


def has_program(text: str) -> bool:
    """Return whether `text` may contain the name of a program of `_PROGRAMS`: a fast check."""
    return any(map(text.__contains__, _HINTS))


def redact_programs(text: str) -> str:
    """Return `text`, such as a shell line, with secrets in options of known programs redacted."""
    search = _events().search
    pieces: list[str] = []
    options: Options = {}
    position = copied = 0
    while match := search(text, position):
        position = match.end()
        if match["program"]:
            options = _PROGRAMS[match["program"]]
        elif match["operator"]:
            options = {}
        elif found := _secret_after(text, match, options):
            start, position = found
            pieces += [text[copied:start], REDACTED]
            copied = position
    return "".join([*pieces, text[copied:]]) if pieces else text


def options_of(argument: str) -> Options | None:
    """Return the secret options of the program `argument`, which is a name or a path.

    A secret option is one whose value is or contains a secret. Returns None if the program is not
    known.
    """
    return _PROGRAMS.get(os.path.basename(argument))


def attached_secret(argument: str, options: Options) -> int | None:
    """Return the index at which the secret in `argument` starts, such as 2 in `-pSECRET`.

    `options` are the secret options of the program (`options_of`). Returns None if `argument`
    contains no secret.
    """
    name, equals, _ = argument.partition("=")
    if equals and name.lstrip("-") in options and name[2:]:
        form, start = options[name.lstrip("-")], len(name) + 1
    elif argument[1:2] in options and argument[1:] not in options:
        form, start = options[argument[1]], 2
    else:
        return None
    value = argument[start:]
    if form is Form.NEXT or not _is_secret(value, form):
        return None
    return start + _kept(value, form)


def secret_in_next(argument: str, options: Options) -> Form | None:
    """Return the `Form` of the option `argument` if the next argument may be its secret value.

    `options` are the secret options of the program (`options_of`). Returns None if `argument` is
    not one of them, or if the value cannot be the next argument. Of combined options, such as
    `-xp`, the last one counts.
    """
    name = argument.lstrip("-")
    if name not in options and not argument.startswith("--") and _COMBINED.fullmatch(name):
        name = name[-1]
        if options.get(name) is Form.NEXT:
            return None
    form = options.get(name)
    return None if form is Form.ATTACHED else form


def redact_value(value: str, form: Form) -> str:
    """Return the value of an option with the secret redacted.

    `form` says which part of the value is the secret.
    """
    return value[: _kept(value, form)] + REDACTED if _is_secret(value, form) else value


@cache
def _events() -> re.Pattern[str]:
    programs = "|".join(sorted(map(re.escape, _NAMES), key=len, reverse=True))
    return re.compile(
        rf"(?<![\w-])(?P<program>{programs})(?=\s)|(?P<operator>[;&|\n])"
        r"|(?<=\s)(?P<option>-{1,2}[A-Za-z][A-Za-z-]{0,15})",
        re.ASCII,
    )


def _secret_after(text: str, match: re.Match[str], options: Options) -> tuple[int, int] | None:
    """Return the start and end of the secret of the option in `match`; None if there is none.

    `options` are the secret options of the program to which the option belongs.
    """
    if not options:
        return None
    option, end = match["option"], match.end()
    letter = options.get(option[1])
    is_combined = letter is None or len(option) == 2 or option[1:] in options
    form = secret_in_next(option, options) if is_combined else None
    separator = _SEPARATOR.match(text, end)
    if form and separator:
        end = separator.end()
    elif letter and letter is not Form.NEXT:
        form, end = letter, match.start() + 2
    else:
        return None
    value = VALUE.match(text, end)
    if value is None or value[0].startswith("-"):
        return None
    start, stop = value.span(value.lastindex or 0)
    secret = text[start:stop]
    return (start + _kept(secret, form), stop) if _is_secret(secret, form) else None


def _is_secret(value: str, form: Form) -> bool:
    return not is_reference(value[_kept(value, form) :]) and not (
        form is Form.ANY and _PORT.fullmatch(value)
    )


def _kept(value: str, form: Form) -> int:
    """Return how many characters at the beginning of an option's value are no secret."""
    if form is Form.SOURCE:
        return len("pass:") if value.startswith("pass:") else len(value)
    if form is Form.USER:
        separator = re.search("[:,%=]", value)
        if separator and separator.end() < len(value):
            return separator.end()
        return 0 if is_random(value) else len(value)
    return 0
