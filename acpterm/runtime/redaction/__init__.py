"""Redaction: replaces secrets in text by `[redacted]`, before the text is written anywhere.

- `redact`: `redact` for a text, `redact_args` for the arguments of a program;
- `tokens`: tokens of the large services, which are recognised by their prefix;
- `names`: which names of variables and options belong to a secret;
- `values`: the end of a value, and whether it can be a secret;
- `named`: values after such a name, such as `--password=…`, `TOKEN=…` and headers;
- `places`: secrets in URLs, and passwords on the stdin of a program;
- `programs`: options of one letter, such as `-p` of mysql;
- `log_events`: a structlog processor.

What remains is enough to recognise the secret: the prefix of the token, the name of the variable or
option, and the user's name. Redaction is a help, and not a proof: a secret without a known prefix,
name or option looks like any other word.

All patterns take linear time. A pattern starts with a literal or a class, it does not match the
same characters in two ways, and where one can fail after a long match, the length is bounded.
"""

from acpterm.runtime.redaction.redact import may_have_secret, redact, redact_args
from acpterm.runtime.redaction.tokens import REDACTED

__all__ = ["REDACTED", "may_have_secret", "redact", "redact_args"]
