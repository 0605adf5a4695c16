"""Redacts tokens of large services, JSON Web Tokens and private keys, recognised by a prefix."""

import re
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

REDACTED: Final = "[redacted]"
"""The text that replaces a secret."""


class TokenKind(NamedTuple):
    """A kind of token, such as the tokens of one service.

    `literal` is the fixed text by which a token of this kind is found, for example `ghp_`. `body`
    is the pattern of the secret after it.
    """

    literal: str
    body: str
    kept: str = ""
    """The pattern of the part between the literal and the secret; it is not redacted."""
    is_bounded: bool = True
    """Whether the literal must be at the beginning of a word, not after a letter or digit."""


_WORD: Final = "[A-Za-z0-9]"
_LONG: Final = rf"{_WORD}{{30,}}+"
_URL: Final = r"[\w-]"  # the alphabet of base64url
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_END: Final = rf"(?!{_WORD})"


def _mixed(literal: str, body: str) -> TokenKind:
    """Return a kind whose literal is short: its body has capitals and digits, unlike a name.

    It does not begin within text in base64.
    """
    outside = f"(?<![/+_-]{re.escape(literal)})"
    return TokenKind(literal, rf"{outside}(?=[A-Za-z]{{0,40}}\d)(?=[a-z0-9]{{0,40}}[A-Z]){body}")


# Telegram's and Azure's tokens have their literal in the middle.
_KINDS: Final = (
    # GitHub. The tokens of apps may have dots and underscores after the first part.
    *(TokenKind(f"gh{kind}_", rf"{_LONG}[\w.-]*+") for kind in "oprsu"),
    TokenKind("github_pat_", r"\w{22,}+"),
    # GitLab
    *(
        TokenKind(f"gl{kind}-", rf"(?=[\w.-]{{0,20}}\d|{_URL}{{0,20}}[A-Z])[\w.-]{{18,}}+")
        for kind in (
            "pat",
            "ptt",
            "dt",
            "rt",
            "rtr",
            "cbt",
            "ft",
            "imt",
            "agent",
            "soat",
            "ffct",
            "oas",
            "wt",
        )
    ),
    TokenKind("GR1348941", rf"{_URL}{{18,}}+"),
    # AWS: the id of an access key. The secret key has no prefix, only the name of its variable.
    *(TokenKind(kind, f"[A-Z0-9]{{16}}{_END}") for kind in ("AKIA", "ASIA", "ABIA", "ACCA")),
    TokenKind("ABSK", r"[A-Za-z0-9+/=]{100,}+"),
    TokenKind("bedrock-api-key-", r"[A-Za-z0-9+/=]{40,}+"),
    TokenKind("X-Amz-Signature=", r"[0-9a-f]{32,}+"),
    # Google
    TokenKind("AIza", rf"{_URL}{{30,}}+"),
    TokenKind("ya29.", rf"{_URL}{{20,}}+[\w.-]*+"),
    TokenKind("AQ.Ab", rf"{_URL}{{40,}}+"),
    TokenKind(":APA91b", rf"{_URL}{{100,}}+", is_bounded=False),
    TokenKind("GOCSPX-", rf"{_URL}{{20,}}+"),
    TokenKind("1//0", rf"{_URL}{{40,}}+"),
    # Slack
    *(TokenKind(f"xox{kind}-", rf"(?={_URL}{{0,16}}\d){_URL}{{10,}}+") for kind in "abcdeoprs"),
    TokenKind("xoxe.", rf"xox[bp]-{_URL}{{10,}}+"),
    TokenKind("xapp-", rf"\d-{_URL}{{10,}}+"),
    TokenKind("hooks.slack.com/services/", r"[\w/]{20,}+"),
    TokenKind("hooks.slack.com/triggers/", r"[\w/]{20,}+"),
    TokenKind("hooks.slack.com/workflows/", r"[\w/]{20,}+"),
    # Stripe
    *(
        TokenKind(f"{kind}_{mode}_", rf"{_WORD}{{10,}}+")
        for kind in ("sk", "rk")
        for mode in ("live", "test", "org_live", "org_test")
    ),
    TokenKind("whsec_", r"[A-Za-z0-9+/=]{24,}+"),
    # OpenAI, Anthropic, OpenRouter, and services that copied the prefix
    *(
        TokenKind(f"sk-{kind}-", rf"(?={_URL}{{0,40}}\d){_URL}{{20,}}+")
        for kind in ("proj", "svcacct", "service", "admin", "ant", "or", "lf", "None")
    ),
    TokenKind("sk-", _LONG),
    TokenKind("sk_", r"[0-9a-f]{40,}+"),
    # Other services for models and data sets
    TokenKind("hf_", _LONG),
    TokenKind("gsk_", _LONG),
    TokenKind("r8_", _LONG),
    TokenKind("pplx-", _LONG),
    TokenKind("xai-", _LONG),
    TokenKind("nvapi-", rf"{_URL}{{40,}}+"),
    *(TokenKind(literal, _LONG) for literal in ("rpa_", "jina_", "rnd_", "csk-", "api_org_")),
    TokenKind("tvly-", _LONG, "(?:dev-|prod-)?"),
    TokenKind("fw_", rf"{_WORD}{{22,}}+"),
    *(TokenKind(f"{kind}_", "[0-9a-f]{64}") for kind in ("key", "crsr", "dtn", "slk")),
    *(TokenKind(kind, f"[0-9a-f]{{32}}{_END}") for kind in ("fc-", "KGAT_", "p8e-")),
    *(_mixed(kind, f"{_URL}{{40,}}+") for kind in ("pa-", "nk-", "m0-", "wandb_v1_")),
    *(_mixed(kind, f"{_WORD}{{20,24}}+{_END}") for kind in ("ak-", "as-", "ak_")),
    *(TokenKind(f"{kind}_", "[0-9a-f]{40}") for kind in ("e2b", "jsrp", "squ", "sqp", "sqa")),
    TokenKind("bb_", rf"{_URL}{{24,}}+", "(?:live|test)_"),
    TokenKind("tid=", r"[0-9a-f]{32};exp=[^\s\"']++"),
    TokenKind("esecret_", rf"{_URL}{{40,}}+"),
    TokenKind("tgp_v1_", rf"{_URL}{{30,}}+"),
    TokenKind("pcsk_", r"\w{40,}+"),
    TokenKind("lsv2_", r"\w{32,}+", "(?:pt|sk)_"),
    # Package registries
    TokenKind("npm_", _LONG),
    TokenKind("pypi-Ag", rf"{_URL}{{30,}}+"),
    TokenKind("CLOJARS_", "[a-z0-9]{60}"),
    TokenKind("oy2", f"(?=[a-z]{{0,40}}\\d)[a-z0-9]{{43}}{_END}"),
    _mixed("cio", f"{_WORD}{{32}}{_END}"),
    TokenKind("AKCp", rf"{_WORD}{{60,}}+"),
    TokenKind("cmVmd", f"{_WORD}{{59}}{_END}"),
    TokenKind("rubygems_", r"[0-9a-f]{40,}+"),
    TokenKind("dckr_pat_", rf"{_URL}{{20,}}+"),
    TokenKind("dckr_oat_", rf"{_URL}{{20,}}+"),
    # Mail and messages
    TokenKind("SG.", rf"{_URL}{{16,}}+\.{_URL}{{16,}}+"),
    TokenKind("SK", f"[0-9a-f]{{32}}{_END}"),
    TokenKind("key-", f"[0-9a-f]{{32}}{_END}"),
    TokenKind(":AA", rf"(?<=\d{{8}}:AA){_URL}{{32,}}+", is_bounded=False),
    TokenKind("/api/webhooks/", rf"{_URL}{{30,}}+", r"\d{5,20}/", is_bounded=False),
    # Clouds and their tools
    *(_mixed(kind, f"{_WORD}{{16,26}}+{_END}") for kind in ("LTAI", "STS.")),
    TokenKind("SCW", f"(?=[A-Z]{{0,16}}\\d)[A-Z0-9]{{17}}{_END}"),
    TokenKind("v1.0-", "[0-9a-f]{24}-[0-9a-f]{100,}+"),
    *(TokenKind(f"cf{kind}_", rf"{_URL}{{40,}}+") for kind in ("ut", "at", "k")),
    TokenKind("pul-", f"[0-9a-f]{{40}}{_END}"),
    TokenKind("sha256~", rf"{_URL}{{40,}}+"),
    TokenKind("fo1_", rf"{_URL}{{40,}}+"),
    *(TokenKind(f"vc{kind}_", rf"{_WORD}{{40,}}+") for kind in "pairk"),
    TokenKind("vercel_blob_rw_", r"\w{30,}+"),
    TokenKind("t1.", rf"{_URL}{{20,}}+={{0,2}}\.{_URL}{{80,}}+"),
    TokenKind("y0_", rf"{_URL}{{50,}}+"),
    TokenKind("_gitlab_session=", "[0-9a-f]{32}", is_bounded=False),
    *(TokenKind(f"do{kind}_v1_", r"[0-9a-f]{60,}+") for kind in "oprt"),
    TokenKind("Q~", r"(?<=\dQ~)[\w~.-]{31,}+", is_bounded=False),
    TokenKind("sig=", r"[A-Za-z0-9+/%]{40,}+"),
    TokenKind("dapi", r"[0-9a-f]{32}(?![A-Za-z])"),
    TokenKind("hvs.", rf"{_URL}{{24,}}+"),
    TokenKind("hvr.", rf"{_URL}{{24,}}+"),
    TokenKind("hvb.", rf"{_URL}{{24,}}+"),
    TokenKind(".atlasv1.", rf"{_URL}{{40,}}+", is_bounded=False),
    TokenKind("tskey-", rf"(?={_URL}{{0,60}}\d){_URL}{{16,}}+"),
    TokenKind("sbp_", r"[0-9a-f]{40,}+"),
    TokenKind("sb_secret_", rf"{_URL}{{20,}}+"),
    TokenKind("pscale_", rf"{_URL}{{30,}}+", "(?:tkn|pw|oauth)_"),
    TokenKind("HRKU-", rf"{_URL}{{30,}}+"),
    TokenKind("dp.", r"\w{40,}+", r"(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]{1,40}\.)?"),
    # Other services
    *(TokenKind(f"shp{kind}_", r"[0-9a-fA-F]{32,}+") for kind in ("at", "ca", "pa", "ss")),
    TokenKind("lin_api_", _LONG),
    TokenKind("ntn_", _LONG),
    TokenKind("secret_", rf"{_WORD}{{40,}}+"),
    TokenKind("glc_", r"[\w+/=]{30,}+"),
    TokenKind("glsa_", r"\w{30,}+"),
    TokenKind("sntrys_", r"[\w+/=]{30,}+"),
    TokenKind("sntryu_", r"[0-9a-f]{40,}+"),
    TokenKind("sq0", rf"{_URL}{{20,}}+", "(?:atp|csp|idp)-"),
    TokenKind("PMAK-", rf"{_URL}{{30,}}+"),
    TokenKind("NRAK-", rf"{_WORD}{{20,}}+"),
    TokenKind("ATATT3x", r"[\w=-]{50,}+"),
    TokenKind("ATCTT3x", r"[\w=-]{50,}+"),
    TokenKind("ATBB", rf"{_WORD}{{28,}}+"),
    *(TokenKind(literal, rf"{_URL}{{36,}}+") for literal in ("figd_", "nfp_", "CFPAT-", "waka_")),
    *(TokenKind(literal, r"\w{38,}+") for literal in ("sgp_", "CCIPAT_", "bkua_", "cio_", "napi_")),
    *(TokenKind(f"ph{kind}_", rf"{_WORD}{{40,}}+") for kind in "cx"),
    *(TokenKind(f"fm{kind}_", r"[\w+/=-]{60,}+") for kind in ("1r", "1a", "2")),
    TokenKind("amzn.mws.", r"[0-9a-f-]{36}"),
    TokenKind("EAA", rf"[A-Z]{_WORD}{{80,}}+"),
    TokenKind("EAAA", rf"{_URL}{{56,}}+"),
    *(TokenKind(f"dt0{kind}.", r"[A-Z0-9]{8,24}\.[A-Z0-9]{60,}+") for kind in ("c01", "s16")),
    TokenKind("aio_", rf"{_WORD}{{28}}{_END}"),
    TokenKind("pat", rf"{_WORD}{{14}}\.[0-9a-f]{{64}}"),
    TokenKind("pat-", _UUID, "(?:na|eu|ap)\\d-"),
    TokenKind("pat.", rf"{_URL}{{22}}\.{_WORD}{{24}}\.{_WORD}{{20}}"),
    TokenKind("access-", _UUID, "(?:sandbox|development|production)-"),
    TokenKind("dnkey-", rf"{_WORD}{{26}}-{_WORD}{{50,}}+"),
    TokenKind("ddapp_", rf"{_WORD}{{30,}}+"),
    *(TokenKind(kind, rf"{_WORD}{{54}}") for kind in ("EZAK", "EZTK")),
    TokenKind("fio-u-", rf"{_URL}{{60,}}+"),
    TokenKind("eyJrIjoi", r"[A-Za-z0-9+/]{60,}+={0,2}"),
    _mixed("ico-", f"{_WORD}{{32}}{_END}"),
    *(TokenKind(f"s-s4t2{kind}-", "[0-9a-f]{64}") for kind in ("ud", "af")),
    TokenKind("lin_oauth_", r"[0-9a-f]{60,}+"),
    TokenKind("live_", rf"(?={_WORD}{{0,30}}\d){_WORD}{{35,}}+"),
    *(TokenKind(kind, rf"{_WORD}{{19,}}+") for kind in ("NRII-", "NRJS-")),
    TokenKind("API-", rf"(?=[A-Z]{{0,24}}\d)[A-Z0-9]{{25,}}+{_END}"),
    TokenKind("SSWS ", rf"{_URL}{{40,}}+"),
    *(TokenKind(kind, rf"{_WORD}{{36}}{_END}") for kind in ("pnu_", "pnb_")),
    TokenKind("rdme_", "[a-z0-9]{70}"),
    TokenKind("re_", rf"{_WORD}{{8}}_(?=[A-Za-z]{{0,23}}\d){_WORD}{{24}}{_END}"),
    TokenKind("tk-us-", rf"{_URL}{{48}}"),
    *(_mixed(f"sm_{kind}_", f"{_WORD}{{16}}{_END}") for kind in ("pat", "aat", "sat")),
    TokenKind("snyk_", rf"\w{{8}}\.{_URL}{{40,}}+[\w.-]*+", "(?:uat|sat)\\."),
    TokenKind("oauth:", f"(?=[a-z]{{0,29}}\\d)[a-z0-9]{{30}}{_END}"),
    TokenKind("tfp_", r"[\w.=-]{40,}+"),
    TokenKind("zpka_", r"\w{30,}+"),
    TokenKind("pk_", rf"\d{{5,12}}_[A-Z0-9]{{30,}}+{_END}"),
    TokenKind("hooks.zapier.com/hooks/catch/", r"\w[\w/]{7,}+"),
    TokenKind("shippo_", "[0-9a-f]{40}", "(?:live|test)_"),
    TokenKind("rzp_", rf"{_WORD}{{14,}}+", "(?:live|test)_"),
    TokenKind("duffel_", rf"{_URL}{{40,}}+", "(?:live|test)_"),
    TokenKind("FLWSECK", r"[0-9a-f]{32}", "(?:_TEST)?-"),
    *(TokenKind(f"x{kind}sib-", rf"{_URL}{{70,}}+") for kind in ("key", "smtp")),
    TokenKind("sk.eyJ", rf"{_URL}{{40,}}+\.{_URL}{{16,}}+"),
    TokenKind("sl.", rf"{_URL}{{120,}}+", "(?:u\\.)?"),
    TokenKind("/IncomingWebhook/", r"[0-9a-f]{32}[\w/-]*+", is_bounded=False),
    TokenKind("ignature=", r"[0-9a-f]{32,}+", is_bounded=False),
    TokenKind("response=", r"[0-9a-f]{32}(?![0-9a-f])", '"?'),
    TokenKind("Private-Lines: ", r"\n(?:[A-Za-z0-9+/=]{1,80}+(?:\n|\Z))++", r"\d{1,4}"),
    TokenKind("ops_eyJ", rf"{_URL}{{50,}}+"),
    TokenKind("AGE-SECRET-KEY-1", r"[0-9A-Z]{40,}+"),
    # JSON Web Tokens, signed and encrypted
    TokenKind(
        "eyJ", rf"{_URL}{{8,}}+\.(?:eyJ{_URL}{{4,}}+\.{_URL}*+|{_URL}*+(?:\.{_URL}{{8,}}+){{3}})"
    ),
    # A private key without an end is redacted to the end of the text.
    TokenKind(
        "-----BEGIN ",
        r"(?:(?s:.*?)(?=-----END [A-Z0-9 ]{0,40}PRIVATE KEY)|(?s:.*))",
        "[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
        is_bounded=False,
    ),
)
_LITERALS: Final = tuple(dict.fromkeys(kind.literal for kind in _KINDS))


def _by_mark() -> dict[str, list[str]]:
    """Return the literals of all kinds of tokens, grouped by a punctuation mark in them.

    A literal is the fixed text by which tokens of a kind are found, such as `ghp_`. The keys are
    the marks. A text that lacks a mark contains no literal of the mark's group. Literals without a
    mark have the key "".
    """
    found: dict[str, list[str]] = {}
    for literal in _LITERALS:
        mark = next((mark for mark in "_-./:=" if mark in literal), "")
        found.setdefault(mark, []).append(literal)
    return found


_BY_MARK: Final = tuple(_by_mark().items())
# The token of a Discord bot begins with a number in base64, and so has no literal.
_DISCORD: Final = (
    r"[MNO](?:(?<![A-Za-z0-9].)|(?<=\\[nrt].))[DTjz][AEIMQUYcgk][wxyz0-5]"
    r"(?:[MNO][DTjz][AEIMQUYcgk][wxyz0-5]){4,6}[A-Za-z0-9]{0,3}\.[\w-]{6}\.[\w-]{27,}+"
)
_DISCORD_CHARS_MIN: Final = 55


def literals_in(text: str) -> list[str]:
    """Return the literals that occur in `text`.

    A literal is the fixed text by which tokens of a kind are found, such as `ghp_`. Discord's
    tokens have none: if `text` may contain such a token, the list also has an empty string.
    """
    # `filter` and `map` with a method are several times as fast as a loop, and this runs for every
    # text that is logged or recorded.
    found: list[str] = []
    for mark, literals in _BY_MARK:
        if mark in text:
            found += filter(text.__contains__, literals)
    if len(text) >= _DISCORD_CHARS_MIN and text.count(".") > 1 and _search_discord()(text):
        found.append("")
    return found


def redact_tokens(text: str, literals: list[str]) -> str:
    """Return `text` with the secret of each token replaced by `REDACTED`.

    `literals` are the fixed texts, such as `ghp_`, by which tokens are found: the result of
    `literals_in` for this text. An empty string in the list stands for Discord's tokens, which have
    no such text.
    """
    for literal in literals:
        text = _pattern(literal).sub(rf"\1{REDACTED}", text)
    return text


@cache
def _search_discord() -> Callable[[str], re.Match[str] | None]:
    return _pattern("").search


@cache
def _pattern(literal: str) -> re.Pattern[str]:
    """Return the pattern of the tokens that have the fixed text `literal`.

    The empty string stands for Discord's tokens, which have no fixed text. Group 1 is the part of
    the token that is not redacted.
    """
    if not literal:
        return re.compile(f"(){_DISCORD}", re.ASCII)
    kind = next(kind for kind in _KINDS if kind.literal == literal)
    text = re.escape(literal)
    # The literal is first, so that `re` searches for it fast; it may follow an escape such as \n.
    start = (
        rf"(?:(?<![A-Za-z0-9]{text})|(?<=\\[nrt]{text})|(?<=%[0-9A-Fa-f]{{2}}{text}))"
        if kind.is_bounded
        else ""
    )
    return re.compile(f"({text}{start}{kind.kept}){kind.body}", re.ASCII)
