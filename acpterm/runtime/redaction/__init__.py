"""Redaction: replaces secrets in text by `[redacted]`, before the text is written anywhere.

- `redact`: `redact` for a text, `redact_args` for the arguments of a program;
- `tokens`: tokens of the large services, which are recognised by their prefix;
- `secret_names`: which names of variables and options belong to a secret;
- `values`: where in the text a value ends, and whether the value can be a secret;
- `named_values`: values after the name of a secret: `--password=…`, `TOKEN=…` and headers;
- `phrases`: secrets at a certain place of a phrase: in URLs, pipes, SQL, XML and others;
- `programs`: passwords in the options of known programs, such as `-p` of mysql;
- `log_events`: a structlog processor.

The rest of the text is kept, so that a reader recognises which secret was there: by the prefix of
the token, the name of the variable or option, or the user's name in a URL. Redaction is no
guarantee: a secret without a known prefix, name or option looks like any other word.

All patterns take linear time. A pattern starts with a literal or a character class, it does not
match the same characters in two ways, and where it can fail after a long match, the length of the
match is bounded.
"""

from acpterm.runtime.redaction.redact import may_have_secret, redact, redact_args
from acpterm.runtime.redaction.tokens import REDACTED

__all__ = ["REDACTED", "may_have_secret", "redact", "redact_args"]
