"""The table of secrets that `redaction` finds: tokens, phrases, names, and options of programs.

All patterns take linear time: a pattern starts with a literal or a character class, it does not
match the same characters in two ways, and where it can fail after a long match, the length of the
match is bounded.
"""

import re
from enum import Enum, IntEnum, auto
from functools import cache
from typing import Final, NamedTuple

_WORD: Final = "[A-Za-z0-9]"
_LONG: Final = rf"{_WORD}{{30,}}+"
_URL: Final = r"[\w-]"  # the alphabet of base64url
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_END: Final = rf"(?!{_WORD})"


class Pattern(NamedTuple):
    """A secret, and the text before and after it, which is kept."""

    hints: tuple[str, ...]
    """The pattern is searched only in a text that contains one of these, in any case."""
    before: str
    secret: str
    after: str = ""
    must_be_random: bool = False

    def compiled(self) -> re.Pattern[str]:
        """Return the pattern, with the groups `before` and `secret`."""
        return compiled(f"({self.before})({self.secret}){self.after}")


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a compiled pattern of ASCII text."""
    return re.compile(pattern, re.ASCII)


# Tokens of services, which begin with one of the literals: the literals, the pattern of the secret
# after them, and the pattern of a part between the two that is kept.
_TOKENS: Final = (
    # GitHub. The tokens of apps may have dots and underscores after the first part.
    ("gho_ ghp_ ghr_ ghs_ ghu_", rf"{_LONG}[\w.-]*+", ""),
    ("github_pat_", r"\w{22,}+", ""),
    # GitLab
    (
        (
            "glpat- glptt- gldt- glrt- glrtr- glcbt- glft- glimt- glagent- glsoat- glffct- "
            "gloas- glwt-"
        ),
        rf"(?=[\w.-]{{0,20}}\d|{_URL}{{0,20}}[A-Z])[\w.-]{{18,}}+",
        "",
    ),
    # AWS: the id of an access key. The secret key has no prefix, only the name of its variable.
    ("AKIA ASIA ABIA ACCA", f"[A-Z0-9]{{16}}{_END}", ""),
    ("ABSK", r"[A-Za-z0-9+/=]{100,}+", ""),
    ("bedrock-api-key-", r"[A-Za-z0-9+/=]{40,}+", ""),
    # Slack
    *((f"xox{kind}-", rf"(?={_URL}{{0,16}}\d){_URL}{{10,}}+", "") for kind in "abcdeoprs"),
    ("xoxe.", rf"xox[bp]-{_URL}{{10,}}+", ""),
    ("xapp-", rf"\d-{_URL}{{10,}}+", ""),
    ("hooks.slack.com/", r"[\w/]{20,}+", "(?:services|triggers|workflows)/"),
    # Stripe
    ("sk_ rk_", rf"{_WORD}{{10,}}+", "(?:org_)?(?:live|test)_"),
    ("whsec_", r"[A-Za-z0-9+/=]{24,}+", ""),
    # OpenAI, Anthropic, OpenRouter, and services that copied the prefix
    (
        "sk-",
        rf"(?={_URL}{{0,40}}\d){_URL}{{20,}}+",
        "(?:proj|svcacct|service|admin|ant|or|lf|None)-",
    ),
    ("sk_", r"[0-9a-f]{40,}+", ""),
    # A long word of letters and digits
    (
        "sk- hf_ gsk_ r8_ pplx- xai- rpa_ jina_ rnd_ csk- api_org_ npm_ lin_api_ ntn_ ddapp_",
        _LONG,
        "",
    ),
    ("tvly-", _LONG, "(?:dev-|prod-)?"),
    ("fw_", rf"{_WORD}{{22,}}+", ""),
    ("secret_ vcp_ vca_ vci_ vcr_ vck_ phc_ phx_", rf"{_WORD}{{40,}}+", ""),
    ("AKCp", rf"{_WORD}{{60,}}+", ""),
    ("cmVmd", f"{_WORD}{{59}}{_END}", ""),
    ("NRAK- NRII- NRJS-", rf"{_WORD}{{19,}}+", ""),
    ("ATBB", rf"{_WORD}{{28,}}+", ""),
    ("aio_", rf"{_WORD}{{28}}{_END}", ""),
    ("EZAK EZTK", rf"{_WORD}{{54}}", ""),
    ("pnu_ pnb_", rf"{_WORD}{{36}}{_END}", ""),
    ("live_", rf"(?={_WORD}{{0,30}}\d){_WORD}{{35,}}+", ""),
    ("re_", rf"{_WORD}{{8}}_(?=[A-Za-z]{{0,23}}\d){_WORD}{{24}}{_END}", ""),
    ("EAA", rf"[A-Z]{_WORD}{{80,}}+", ""),
    ("rzp_", rf"{_WORD}{{14,}}+", "(?:live|test)_"),
    ("dnkey-", rf"{_WORD}{{26}}-{_WORD}{{50,}}+", ""),
    # Letters, digits, - and _
    ("GR1348941", rf"{_URL}{{18,}}+", ""),
    ("GOCSPX- dckr_pat_ dckr_oat_ sb_secret_", rf"{_URL}{{20,}}+", ""),
    ("ya29.", rf"{_URL}{{20,}}+[\w.-]*+", ""),
    ("sq0", rf"{_URL}{{20,}}+", "(?:atp|csp|idp)-"),
    ("hvs. hvr. hvb.", rf"{_URL}{{24,}}+", ""),
    ("bb_", rf"{_URL}{{24,}}+", "(?:live|test)_"),
    ("AIza pypi-Ag tgp_v1_ PMAK- HRKU-", rf"{_URL}{{30,}}+", ""),
    ("pscale_", rf"{_URL}{{30,}}+", "(?:tkn|pw|oauth)_"),
    ("figd_ nfp_ CFPAT- waka_", rf"{_URL}{{36,}}+", ""),
    ("AQ.Ab 1//0 nvapi- esecret_ cfut_ cfat_ cfk_ sha256~ fo1_", rf"{_URL}{{40,}}+", ""),
    ("SSWS", rf"{_URL}{{40,}}+", " "),
    ("duffel_", rf"{_URL}{{40,}}+", "(?:live|test)_"),
    ("tk-us-", rf"{_URL}{{48}}", ""),
    ("y0_ ops_eyJ", rf"{_URL}{{50,}}+", ""),
    ("EAAA", rf"{_URL}{{56,}}+", ""),
    ("fio-u-", rf"{_URL}{{60,}}+", ""),
    ("xkeysib- xsmtpsib-", rf"{_URL}{{70,}}+", ""),
    ("sl.", rf"{_URL}{{120,}}+", "(?:u\\.)?"),
    ("tskey-", rf"(?={_URL}{{0,60}}\d){_URL}{{16,}}+", ""),
    ("SG.", rf"{_URL}{{16,}}+\.{_URL}{{16,}}+", ""),
    ("t1.", rf"{_URL}{{20,}}+={{0,2}}\.{_URL}{{80,}}+", ""),
    ("pat.", rf"{_URL}{{22}}\.{_WORD}{{24}}\.{_WORD}{{20}}", ""),
    ("sk.eyJ", rf"{_URL}{{40,}}+\.{_URL}{{16,}}+", ""),
    ("glsa_ zpka_ vercel_blob_rw_", r"\w{30,}+", ""),
    ("sgp_ CCIPAT_ bkua_ cio_ napi_ pcsk_", r"\w{38,}+", ""),
    ("lsv2_", r"\w{32,}+", "(?:pt|sk)_"),
    ("dp.", r"\w{40,}+", r"(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]{1,40}\.)?"),
    ("snyk_", rf"\w{{8}}\.{_URL}{{40,}}+[\w.-]*+", "(?:uat|sat)\\."),
    # Base64, and hexadecimal digits
    ("glc_ sntrys_", r"[\w+/=]{30,}+", ""),
    ("fm1r_ fm1a_ fm2_", r"[\w+/=-]{60,}+", ""),
    ("eyJrIjoi", r"[A-Za-z0-9+/]{60,}+={0,2}", ""),
    ("ATATT3x ATCTT3x", r"[\w=-]{50,}+", ""),
    ("tfp_", r"[\w.=-]{40,}+", ""),
    ("sig=", r"[A-Za-z0-9+/%]{40,}+", ""),
    ("fc- KGAT_ p8e- SK key-", f"[0-9a-f]{{32}}{_END}", ""),
    ("dapi", r"[0-9a-f]{32}(?![A-Za-z])", ""),
    ("FLWSECK", r"[0-9a-f]{32}", "(?:_TEST)?-"),
    ("shpat_ shpca_ shppa_ shpss_", r"[0-9a-fA-F]{32,}+", ""),
    ("response=", r"[0-9a-f]{32}(?![0-9a-f])", '"?'),
    ("e2b_ jsrp_ squ_ sqp_ sqa_ rubygems_ sbp_ sntryu_", "[0-9a-f]{40,}+", ""),
    ("pul-", f"[0-9a-f]{{40}}{_END}", ""),
    ("shippo_", "[0-9a-f]{40}", "(?:live|test)_"),
    ("doo_v1_ dop_v1_ dor_v1_ dot_v1_ lin_oauth_", r"[0-9a-f]{60,}+", ""),
    ("key_ crsr_ dtn_ slk_ s-s4t2ud- s-s4t2af-", "[0-9a-f]{64}", ""),
    ("v1.0-", "[0-9a-f]{24}-[0-9a-f]{100,}+", ""),
    ("pat", rf"{_WORD}{{14}}\.[0-9a-f]{{64}}", ""),
    ("amzn.mws.", r"[0-9a-f-]{36}", ""),
    ("pat-", _UUID, "(?:na|eu|ap)\\d-"),
    ("access-", _UUID, "(?:sandbox|development|production)-"),
    # Small letters or capitals, and digits
    ("CLOJARS_", "[a-z0-9]{60}", ""),
    ("rdme_", "[a-z0-9]{70}", ""),
    ("oy2", f"(?=[a-z]{{0,40}}\\d)[a-z0-9]{{43}}{_END}", ""),
    ("oauth:", f"(?=[a-z]{{0,29}}\\d)[a-z0-9]{{30}}{_END}", ""),
    ("SCW", f"(?=[A-Z]{{0,16}}\\d)[A-Z0-9]{{17}}{_END}", ""),
    ("API-", rf"(?=[A-Z]{{0,24}}\d)[A-Z0-9]{{25,}}+{_END}", ""),
    ("pk_", rf"\d{{5,12}}_[A-Z0-9]{{30,}}+{_END}", ""),
    ("dt0c01. dt0s16.", r"[A-Z0-9]{8,24}\.[A-Z0-9]{60,}+", ""),
    ("AGE-SECRET-KEY-1", r"[0-9A-Z]{40,}+", ""),
    ("hooks.zapier.com/hooks/catch/", r"\w[\w/]{7,}+", ""),
    # JSON Web Tokens, signed and encrypted
    ("eyJ", rf"{_URL}{{8,}}+\.(?:eyJ{_URL}{{4,}}+\.{_URL}*+|{_URL}*+(?:\.{_URL}{{8,}}+){{3}})", ""),
)
# As `_TOKENS`, with literals so short that the secret must have capitals and digits, unlike a name,
# and it must not be within text in base64.
_SHORT_TOKENS: Final = (
    ("pa- nk- m0- wandb_v1_", f"{_URL}{{40,}}+"),
    ("ak- as- ak_", f"{_WORD}{{20,24}}+{_END}"),
    ("cio ico-", f"{_WORD}{{32}}{_END}"),
    ("LTAI STS.", f"{_WORD}{{16,26}}+{_END}"),
    ("sm_pat_ sm_aat_ sm_sat_", f"{_WORD}{{16}}{_END}"),
)


def _token(literal: str, secret: str, kept: str = "") -> Pattern:
    text = re.escape(literal)
    # The literal is first, so that `re` searches for it fast. It begins a word, or follows an
    # escape such as \n.
    start = rf"(?:(?<!{_WORD}{text})|(?<=\\[nrt]{text})|(?<=%[0-9A-Fa-f]{{2}}{text}))"
    return Pattern((literal.lower(),), text + start + kept, secret)


def _short_token(literal: str, secret: str) -> Pattern:
    outside = f"(?<![/+_-]{re.escape(literal)})"
    return _token(literal, rf"(?=[A-Za-z]{{0,40}}\d)(?=[a-z0-9]{{0,40}}[A-Z]){secret}", outside)


_QUOTED_OR_WORD: Final = r"""'[^'\n]{1,500}+'|"[^"\n]{1,500}+"|[^\s"'`|;&<>()]{1,500}+"""
_QUOTED: Final = r"""\\?'[^'\n]{1,500}+'|\\?"[^"\n]{1,500}+\""""
_SAME_COMMAND: Final = r"[^\n;|&]{0,200}?"
_NAMES: Final = r"(?:password|passwd|secret|token|api_?key)"
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

PATTERNS: Final = (
    # First those that contain other secrets: what ends with a redacted one counts as redacted.
    # A private key without an end is redacted to the end of the text.
    Pattern(
        ("-----begin ",),
        "-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----",
        r"(?s:.*?)(?=-----END [A-Z0-9 ]{0,40}PRIVATE KEY)|(?s:.+)",
    ),
    _token("tid=", r"[0-9a-f]{32};exp=[^\s\"']++"),
    *(
        _token(literal, secret, kept)
        for literals, secret, kept in _TOKENS
        for literal in literals.split()
    ),
    *(
        _short_token(literal, secret)
        for literals, secret in _SHORT_TOKENS
        for literal in literals.split()
    ),
    # Tokens whose literal is in the middle, or at no beginning of a word. The token of a Discord
    # bot begins with a number in base64.
    Pattern((":apa91b",), ":APA91b", rf"{_URL}{{100,}}+"),
    Pattern((":aa",), r":AA(?<=\d{8}:AA)", rf"{_URL}{{32,}}+"),
    Pattern(("/api/webhooks/",), r"/api/webhooks/\d{5,20}/", rf"{_URL}{{30,}}+"),
    Pattern(("_gitlab_session=",), "_gitlab_session=", "[0-9a-f]{32}"),
    Pattern(("q~",), r"Q~(?<=\dQ~)", r"[\w~.-]{31,}+"),
    Pattern((".atlasv1.",), r"\.atlasv1\.", rf"{_URL}{{40,}}+"),
    Pattern(("/incomingwebhook/",), "/IncomingWebhook/", r"[0-9a-f]{32}[\w/-]*+"),
    Pattern(("ignature=",), "ignature=", r"[0-9a-f]{32,}+"),
    Pattern(("azdo",), rf"(?<!{_WORD})", rf"{_WORD}{{76}}AZDO{_WORD}{{4}}{_END}"),
    Pattern(
        (".",),
        r"(?=[MNO](?:(?<![A-Za-z0-9].)|(?<=\\[nrt].)))",
        r"[MNO][DTjz][AEIMQUYcgk][wxyz0-5]"
        r"(?:[MNO][DTjz][AEIMQUYcgk][wxyz0-5]){4,6}[A-Za-z0-9]{0,3}\.[\w-]{6}\.[\w-]{27,}+",
    ),
    Pattern(
        ("private-lines: ",), r"Private-Lines: \d{1,4}", r"\n(?:[A-Za-z0-9+/=]{1,80}+(?:\n|\Z))++"
    ),
    # URLs. A password may contain an `@` that is not encoded, so the last `@` ends it. A token may
    # be in the place of the user.
    Pattern(("://",), "://", r"[^\s/@:\"'<>?#]{1,256}+", "(?=:x-oauth-basic@)"),
    Pattern(("://",), r"://[^\s/@:\"'<>?#]{0,256}+:(?!x-oauth-basic@)", r"[^\s/\"'<>?#]+", "(?=@)"),
    Pattern(("://",), "://", r"[^\s/@:\"'<>?#]{20,256}+", "(?=:?@)", must_be_random=True),
    Pattern(("passw",), r"\bpassw[\w-]{2,20}+[= ](?:<\(|[\"'])echo\s{1,4}", _QUOTED_OR_WORD),
    Pattern((".pgpass",), r"(?m:^)[^\s:]+:(?:\d+|\*):[^\s:]+:[^\s:]+:", _QUOTED_OR_WORD),
    Pattern(
        ("nmcli", "mysqladmin", "machine"),
        r"\b(?:nmcli|mysqladmin|machine)\s[^;|&]{0,200}?\s(?:password|wifi-sec\.psk)\s+",
        _QUOTED_OR_WORD,
    ),
    Pattern(
        ("</",),
        rf"(?i:<(?:[\w:.-]{{0,40}}{_NAMES}|\w+\s[^<>]{{0,60}}[\"'][\w.:-]{{0,60}}{_NAMES}[\"'])"
        r"[^<>]{0,60}>)",
        r"[^<>\s]{1,500}+",
        "(?=</)",
    ),
    Pattern(
        ("value=",), rf"(?i:\b(?:key|name)=[\"'][\w.:-]{{0,60}}{_NAMES}[\"']\s+value=)", _QUOTED
    ),
    # Kaggle's `kaggle.json`.
    Pattern(
        ('"key"', '\\"key\\"'),
        r'"username\\?"\s?:\s?\\?"[^"]{1,64}",\s?\\?"key\\?"\s?:\s?',
        r'\\?"[0-9a-f]{32}\\?"',
    ),
    # The older personal access tokens of Azure DevOps.
    Pattern(
        ("pat",),
        r"(?i:pat(?<![a-z]pat)[\"']?(?:\s{0,4}[=:]\s{0,4}|\s{1,4})[\"']?)",
        rf"[a-z2-7]{{52}}{_END}",
    ),
    Pattern(
        ("rclone",),
        rf"\brclone\s+config\s{_SAME_COMMAND}"
        r"\s(?:secret_access_key|client_secret|pass|token|key)[= ]",
        _QUOTED_OR_WORD,
    ),
    Pattern(
        (" key", "token is", "password is", "password for"),
        r"(?i:\b(?:(?:api|access|secret|private|license|auth) key|token|password|passphrase)"
        r"(?: for \S{1,60}+)?(?: is|:)\s{1,4}+)",
        _QUOTED_OR_WORD,
        must_be_random=True,
    ),
    Pattern(("auth=(",), r"\bauth=\(\s{0,4}[\"'][^\"'\n]{0,100}[\"'],\s{0,4}", _QUOTED_OR_WORD),
    Pattern(
        ("assword",),
        rf"assword{_SAME_COMMAND}[;\n]?\s{{0,4}}\bsend\s{{1,4}}(?:--\s)?",
        _QUOTED_OR_WORD,
    ),
    Pattern(
        ("htpasswd", "rabbitmqctl", "wpa_passphrase"),
        r"\b(?:htpasswd\s+-\w*b\w*\s+(?:-\w+\s+){0,3}\S+\s+\S+|wpa_passphrase\s+\S+"
        r"|rabbitmqctl\s+(?:add_user|change_password)\s+\S+)\s+",
        _QUOTED_OR_WORD,
    ),
    Pattern(
        ("secret", "vault"),
        rf"\bvault\s+kv\s+(?:put|patch)\s{_SAME_COMMAND}\s[\w-]{{1,60}}="
        rf"|\bsecrets?\s+set\s(?:{_SAME_COMMAND}\s(?:-b|--body)[ =]|\s*(?:-\S+\s+){{0,4}}\w+=)"
        r"|\bcreate\s+secret\s[^\n;|&]{0,400}?--from-literal[ =][\w.-]+=",
        _QUOTED_OR_WORD,
    ),
    Pattern(
        _READ_HINTS,
        r"\b(?:echo|printf)\s{1,4}+(?:-[A-Za-z]{1,3}\s{1,4}+){0,3}+"
        r"(?:['\"]?%s(?:\\n)?['\"]?\s{1,4}+)?+",
        _QUOTED_OR_WORD,
        rf"(?=\s{{0,4}}\|\s{{0,4}}{_READS})",
    ),
    Pattern(
        _READ_HINTS,
        r"\b(?:sudo|chpasswd|passwd|smbpasswd|cryptsetup|kinit|docker|podman|helm|gh|gpg)\s"
        r"[^|;&\n<]{0,200}+<<<\s{0,4}+",
        _QUOTED_OR_WORD,
    ),
    Pattern(
        ("@",),
        r"(?<![\w/@.:-])(?!sha256|npm|git)[A-Za-z][\w.-]{0,64}+:",
        r"[^\s:@/\"'$<>]{4,100}+",
        r"(?=@(?!sha256)[\w.-]{1,255}+(?::\d|\(|/))",
    ),
    Pattern(
        ("identified", "password"),
        r"(?i:\bidentified(?:\s+with\s+\w+)?\s+by"
        r"|\b(?:with|encrypted|login|set|(?:user|role)\s+[^\s;]{1,100}+)\s+password)"
        r"(?:\s+|\s*=\s*)",
        _QUOTED,
    ),
    # ODBC. `PWD` is the working directory of a shell, too.
    Pattern((";pwd=",), "(?i:;pwd=)", r"(?![/~$.])[^;\s\"']{1,100}+"),
    Pattern(("xfreerdp",), rf"\bxfreerdp3?\s{_SAME_COMMAND}\s/p:", _QUOTED_OR_WORD),
    Pattern(
        (" alias set ",),
        r"\bmc(?:li)?\s+alias\s+set\s+\S{1,60}+\s+\S{1,200}+\s+\S{1,100}+\s+",
        _QUOTED_OR_WORD,
    ),
    Pattern(
        ("sqlplus", "impdp", "expdp", "thin:"),
        r"\b(?:(?:sqlplus|impdp|expdp)\s[^\n;|&@]{0,60}?|thin:)[\w$#]{1,60}/",
        r"[^\s@\"'/]{1,100}+",
        "(?=@)",
    ),
    Pattern(
        ("requirepass", "redis-cli"),
        rf"(?i:\b(?:requirepass|redis-cli\s{_SAME_COMMAND}auth)\s+)",
        _QUOTED_OR_WORD,
    ),
    Pattern(
        (" login ", " auth ", "authtoken ", " unlock "),
        r"\b(?:vault|wandb|cargo|snyk|ngrok|bw)\s+(?:config\s+)?"
        r"(?:login|auth|unlock|(?:add-)?authtoken)\s+(?:-\S+\s+){0,3}",
        _QUOTED_OR_WORD,
        must_be_random=True,
    ),
    Pattern(
        (" config ",),
        rf"\b(?:composer|poetry|git|pulumi)\s+config\s{_SAME_COMMAND}(?:http-basic\.\S+\s+\S+"
        r"|(?:github-oauth|pypi-token)\.\S+|--secret\s+\S+|\.password)\s+",
        _QUOTED_OR_WORD,
    ),
    Pattern(
        ("securestring",),
        r"\bput-parameter\b(?=[^\n;|&]{0,400}SecureString)[^\n;|&]{0,300}?--value[ =]"
        r"|\bConvertTo-SecureString\s+(?:-String\s+)?",
        _QUOTED_OR_WORD,
    ),
    Pattern(("bearer",), r"(?i:\bbearer\s{1,4})", r"[\w.~+/=-]{16,}+", must_be_random=True),
)


class Strength(IntEnum):
    """How certain it is that the value of a name is a secret."""

    NONE = 0
    """It is none."""
    WEAK = 1
    """Only if it looks random."""
    KEY = 2
    """Unless it is a path."""
    STRONG = 3
    """It is one."""


NAME_HINTS: Final = (
    *("pass", "pw", "secret", "token", "key", "cred", "auth", "cookie", "otp", "jwt", "bearer"),
    "psk",
)
"""Every name of a secret contains one of these texts, in lower or upper case."""
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
    "pub public registry repeat row route shard shortcut sort sorting state string "
    "tab tag translation unique"
)
_ANYWHERE: Final = (
    "(?:password|passwd|passphrase|passcode|secret(?!ar|io|el)|credential|api_?key|auth_?token"
    "|(?:access|account|auth|encryption|license|master|private|secret|shared|signing|storage)_?key"
    "|_key_data$)"
)
NAMES: Final = (
    (rf"(?:^|_)(?:{_ABOUT.replace(' ', '|')})$", Strength.NONE),
    (rf"^(?!.*secret)(?=.*{_ANYWHERE}).*(?:^|_)id$", Strength.NONE),
    (rf"^(?=.*(?:pass|secret_access)).*{_ANYWHERE}", Strength.STRONG),
    (_ANYWHERE, Strength.KEY),
    ("(?:^|_)(?:token|creds)$", Strength.KEY),
    ("(?:^|_)(?:pwd|pw|passwd|jwt|otp|totp|apikey|bearer|psk)$", Strength.STRONG),
    ("(?:^|_)(?!(?:by|com|encom|over|sur|tres|under)pass$)[a-z]*pass$", Strength.STRONG),
    (rf"(?:^|_)(?!(?:{_PUBLIC_KEYS.replace(' ', '|')})_)[a-z0-9]+_key$", Strength.WEAK),
    ("(?:^|_)(?:tokens?|auth|authorization|cookies?|pass)(?:_|$)", Strength.WEAK),
    ("(?:^|_)pat$", Strength.WEAK),
)
"""Patterns of names, as words in lower case joined by `_`; the first that matches counts."""
SWITCHES: Final = (
    "allow check disable enable force generate has hide is list no only print prompt rotate show "
    "skip test use verify with without"
)
"""First words of options that take no value, such as `--no-password`."""
WORDS: Final = (
    "true false null none nil undefined yes no on off str string int bool bytes required optional "
    "env stdin prompt file pass auto default secretstr token"
)
"""Values that are no secrets, whatever their name."""


class Form(Enum):
    """Where the value of a program's option is, and which part of it is secret."""

    ATTACHED = auto()
    """In the same word, as in `-pSECRET`."""
    NEXT = auto()
    """The next word."""
    ANY = auto()
    """In the same word, or the next word."""
    USER = auto()
    """As ANY. Only the part after `:`, `,`, `%` or `=` is secret, or all of a token."""
    SOURCE = auto()
    """As ANY. Only the part after `pass:` is secret, as in openssl's `pass:SECRET`."""


# Programs, their options with a secret, and the form of these. `login` is the subcommand of docker,
# podman, helm, az and others, and `push` that of `dotnet nuget`.
_PROGRAMS: Final = (
    ("mysql mysqldump mysqladmin mysqlimport mysqlsh mysqlshow mycli", "p", Form.ATTACHED),
    ("mariadb mariadb-dump mariadb-admin 7z 7za 7zz unrar", "p", Form.ATTACHED),
    ("rar", "p h", Form.ATTACHED),
    ("zip unzip sqlcmd bcp ipmitool mosquitto_pub mosquitto_sub", "P", Form.ANY),
    ("mongo mongosh mongodump mongorestore mongoexport supabase evil-winrm", "p", Form.ANY),
    ("sshpass cqlsh yt-dlp twine skopeo useradd usermod login", "p", Form.ANY),
    ("ldapsearch ldapmodify ldapadd ldapdelete ldapwhoami", "w", Form.ANY),
    ("ldappasswd", "s a w", Form.ANY),
    ("snmpget snmpset snmpwalk", "A X", Form.ANY),
    ("influx doctl vercel flyctl fly", "t", Form.ANY),
    ("choco push", "k", Form.ANY),
    ("ssh-keygen", "N P", Form.ANY),
    ("security", "p w", Form.ANY),
    ("redis-cli", "a", Form.ANY),
    ("http https xh", "a auth", Form.USER),
    ("smbclient rpcclient", "U", Form.USER),
    ("curl", "u U user proxy-user b cookie E cert", Form.USER),
    ("lftp", "u", Form.USER),
    ("etcdctl", "user", Form.USER),
    ("openssl", "k", Form.NEXT),
    ("openssl", "pass passin passout", Form.SOURCE),
)
PROGRAMS: Final[dict[str, dict[str, Form]]] = {}
for _programs, _options, _form in _PROGRAMS:
    for _program in _programs.split():
        PROGRAMS.setdefault(_program, {}).update(dict.fromkeys(_options.split(), _form))
