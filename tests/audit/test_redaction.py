"""Redaction of secrets in texts and arguments."""

import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acpterm.runtime.redaction import REDACTED, redact, redact_args, redact_event
from acpterm.runtime.secret_patterns import PATTERNS
from tests.audit.secrets import ARGS, FORMS, HARMLESS, LINES, ORDINARY, TOKENS, fake, wrapped
from tests.support.cases import each_case

TEXT_CHARS = 64 * 1024
TIME_MIN_S = 0.02


def test_tables_are_long_enough():
    assert len(TOKENS) + len(LINES) + len(FORMS) >= 250
    assert len(ORDINARY) + len(HARMLESS) >= 180


@each_case(("prefix", "secret"), TOKENS)
def test_token_is_redacted_and_its_prefix_is_kept(prefix, secret):
    text = f"run {prefix}{secret}"
    assert redact(text).startswith(f"run {prefix}{REDACTED}")
    assert secret[:24] not in redact(text)


@each_case(("text", "secret"), list(wrapped()))
def test_token_is_redacted_inside_other_text(text, secret):
    assert secret.strip() not in redact(text)
    before, _, after = text.partition(secret.strip())
    assert redact(text).startswith(before[:1])
    assert redact(text).endswith(after[-1:])


@each_case(("text", "secret", "expected"), LINES)
def test_value_of_a_secret_is_redacted_and_the_rest_is_kept(text, secret, expected):
    assert secret not in redact(text)
    assert expected in redact(text)


@each_case(("text", "secret"), FORMS)
def test_secret_in_a_less_common_form_is_redacted(text, secret):
    assert secret not in redact(text)


@each_case("text", HARMLESS)
def test_text_that_resembles_a_secret_is_not_changed(text):
    assert redact(text) == text


@each_case(("program", "args", "expected"), ARGS)
def test_arguments_are_redacted_item_by_item(program, args, expected):
    assert redact_args(args, program) == expected


@each_case("text", ORDINARY)
def test_ordinary_text_is_not_changed(text):
    assert redact(text) == text
    program, *args = shlex.split(text)
    assert redact_args(args, program) == args


@each_case("text", [text for text, _, _ in LINES] + [prefix + secret for prefix, secret in TOKENS])
def test_redacted_text_is_not_changed_again(text):
    assert redact(redact(text)) == redact(text)


def test_private_key_is_redacted_to_its_end():
    begin, end = ("-----" + word + " RSA PRIVATE KEY-----" for word in ("BEGIN", "END"))
    text = f"echo '{begin}\n{fake(64)}\n{end}' > key; ls"
    assert redact(text) == f"echo '{begin}{REDACTED}{end}' > key; ls"


# The literals by which patterns are found, in their own case where the pattern begins with them.
LITERALS = [
    pattern.before[: len(hint)] if pattern.before.lower().startswith(hint) else hint
    for pattern in PATTERNS
    for hint in pattern.hints
]
WORDS = [
    *LITERALS,
    *("--password", "--token", "PASSWORD=", "TOKEN=", "Authorization: Bearer ", "Cookie: ", "'"),
    *('"', "\\", '\\"', "://", "@", ":", "=", " ", "-p", "-u", "mysql ", "curl ", "login ", "|"),
    *("sudo -S", "echo ", "<<< ", "set ", "$(", "`", "\n", "\0", "\x1b[", "é", "\udcff", "eyJ."),
    *("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----", fake(20), "12345678"),
]
TEXT = st.lists(st.sampled_from(WORDS) | st.text(max_size=20), max_size=30).map("".join)


@pytest.mark.long
@given(TEXT)
def test_redaction_never_fails(text):
    redacted = redact(text)
    if redacted != text:
        assert REDACTED in redacted


@given(st.lists(TEXT, max_size=8), TEXT)
def test_redaction_of_arguments_never_fails_and_keeps_their_number(args, program):
    assert len(redact_args(args, program)) == len(args)


ADVERSARIAL = [
    *WORDS,
    *(f"{word} " for word in WORDS),
    *(f"{word}a" for word in WORDS),
    *(f"{word}{fake(9)}." for word in WORDS),
    *(
        "a",
        "A1",
        "a.",
        "a-",
        "_",
        "M",
        "MTIz",
        "key",
        "token_",
        "pass-",
        "a=",
        "--a ",
        "-a",
        "'\\''",
    ),
    *("PASSWORD='", 'PASSWORD="\\', "password : ", '\\"password\\":\\"', "://a:", "://a", "/a:b@"),
    *(
        "echo 'a",
        "echo a|",
        "echo -n ",
        "sudo -a ",
        "mysql -p'",
        "curl -u a:",
        "set a ",
        "set key ",
    ),
    *("nmcli password ", "htpasswd -b a a ", "vault kv put a=", "secret set -b ", "a:b@c:1 "),
    *("create secret --from-literal=", "<password ", "<a b='password' ", "key='password' value="),
    *("auth=('a', ", "identified by '", "sqlplus a/", "redis-cli auth ", "vault login -a "),
    *("git config .password ", "put-parameter SecureString --value ", "password: a\n", "password="),
    *("kind: Secret\ndata:\n a: b\n", "assword: send ", "password=<(echo ", "password%3D"),
    *("KEY=", "KEY=use", "secret=[", "piKey=f"),
    *("password=\\\n", "password\x1b[m=", "a:1:a:a:", "password = '''", "define('password', '"),
    *(".pgpass a:1:a:a:", "nmcli ", "machine ", "<a", "://a:b@", "a:", "secret set a=", "@", "%20"),
    *("Bearer ", "Authorization: ", "Cookie: a=", "aZ", "aZ-1", "Az.", "/a", "{{", "$(", "<a", "é"),
]


def adversarial_text(piece):
    return (piece * (TEXT_CHARS // len(piece) + 1))[:TEXT_CHARS]


def is_slow(text, rounds=10):
    """Return whether `redact` takes more than linear time for `text`.

    A text that is four times as long takes four times as long in linear time, and sixteen times as
    long in quadratic time. The shortest times of some rounds are compared, since other processes
    run on the machine; a text that is redacted within `TIME_MIN_S` is not slow.
    """
    whole = part = float("inf")
    for _ in range(rounds):
        part = min(part, seconds_for(text[: len(text) // 4]))
        whole = min(whole, seconds_for(text))
        if whole < max(8 * part, TIME_MIN_S):
            return False
    return True


def seconds_for(text):
    start = time.process_time()
    redact(text)
    return time.process_time() - start


# 40 s alone: three texts for each literal.
@pytest.mark.exhaustive
@pytest.mark.long
@pytest.mark.timeout(240)
def test_redaction_takes_linear_time_for_any_repeated_text():
    redact("".join(LITERALS))  # compile the patterns
    assert [piece for piece in ADVERSARIAL if is_slow(adversarial_text(piece))] == []


@pytest.mark.long
@each_case(
    "text",
    [
        *(char * 1_000_000 for char in "A /"),
        *(name + " " * 200_000 for name in ("", "password=", "mysql -p", "pat")),
        *(name + "a" * 1_000_000 for name in ("password=", "AZDO", "://")),
    ],
)
def test_long_text_is_redacted_within_a_second(text):
    redact("".join(LITERALS))  # compile the patterns
    assert any(seconds_for(text) < 1 for _ in range(3))


@pytest.mark.long
@given(st.lists(st.sampled_from(ADVERSARIAL), min_size=1, max_size=6).map("".join))
def test_redaction_takes_linear_time_for_repeated_mixtures(piece):
    assert not is_slow(adversarial_text(piece))


def test_value_of_a_log_event_is_redacted_by_its_name_and_by_its_text():
    secret = fake(36)
    event = {
        "event": f"cannot run --password {secret}",
        "api_key": secret,
        "count": 3,
        "token": 5,
        "items": [{"url": f"https://me:{secret}@host"}, (f"x --token={secret}",)],
        "error": OSError(f"TOKEN={secret}"),
        "method": "terminal/create",
    }
    redacted = redact_event(None, "info", event)
    assert redacted == {
        "event": f"cannot run --password {REDACTED}",
        "api_key": REDACTED,
        "count": 3,
        "token": 5,
        "items": [{"url": f"https://me:{REDACTED}@host"}, [f"x --token={REDACTED}"]],
        "error": f"OSError('TOKEN={REDACTED}')",
        "method": "terminal/create",
    }
