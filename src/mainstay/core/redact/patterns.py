"""What a secret looks like without a field name: a table of expressions.

Each has signs, of which one must be in the text before its expression is tried: most texts hold
none, and cost a few searches. What a person needs to distinguish cases, such as the user and
the host of a URL, stays.

Every expression is linear in the text. An open repetition ends its expression, or is possessive, or
cannot reach past the next place where the expression could begin; all others have a bound.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Replace = str | Callable[[re.Match[str]], str]

MARK = "[redacted]"
"""What stands where a secret was."""


def without_secrets(text: str) -> str:
    """The text without what looks like a secret.

    >>> without_secrets("GET https://ann:hunter2@example.org/ failed")
    'GET https://ann:[redacted]@example.org/ failed'
    """
    lowered = text.lower()
    for signs, expression, replace in _SHAPES:
        for sign in signs:
            if sign in lowered:
                text = expression.sub(replace, text)
                break
    if _LONG.search(text) is not None:
        for sign in _ISSUED:
            if sign in text:
                text = _TOKEN.sub(MARK, text)
                break
    return _CARD.sub(_card, text) if _DIGITS.search(text) is not None else text


# --- keys, URLs, headers, tokens with a shape -----------------------------------------------------


def _url(match: re.Match[str]) -> str:
    """The user and the host of a URL stay; a long user is a token."""
    user, password = match[2], match[3]
    if password is not None and (user.startswith("[") or _PORT.match(password)):
        return match[0]  # an address and its port; the @ is further on, in the path
    is_token = len(user) >= 20 or (len(user) >= 12 and _is_mixed(user))
    if password:
        return f"{match[1]}{MARK if is_token else user}:{MARK}@"
    return f"{match[1]}{MARK}{match[0][match.end(2) - match.start() :]}" if is_token else match[0]


_PORT = re.compile(r"[0-9]{1,5}\\{0,8}[/?#]")


def _is_mixed(text: str) -> bool:
    """Whether it has digits and letters: no word has both."""
    has_digit = any(char.isdigit() for char in text)
    return has_digit and any(char.isalpha() for char in text)


def _scheme(match: re.Match[str]) -> str:
    """The credentials of an Authorization header; prose has words there ("basic settings")."""
    name, value = match[1].lower(), match[3]
    if name == "basic":
        is_secret = _is_user_and_password(value)
    else:
        shortest, longest_word = (16, 32) if name == "token" else (8, 20)
        has_digit = any(char.isdigit() for char in value)
        is_secret = len(value) >= (shortest if has_digit else longest_word)
    return f"{match[1]}{match[2]}{MARK}" if is_secret else match[0]


def _is_user_and_password(value: str) -> bool:
    try:
        return b":" in a2b_base64(value + "=" * (-len(value) % 4))
    except Error:
        return False


def _digest(match: re.Match[str]) -> str:
    """The answer to a challenge; an image has a digest too."""
    return f"{match[1]}{MARK}" if "response=" in match[0].lower() else match[0]


_PEM = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"[^-]*+(?:-(?!----END)[^-]*+)*+(?:-----END [A-Z0-9 ]{0,40}-----)?"
)
_SLASHES = r"\\{0,8}+/\\{0,8}+/"
_USERINFO = (  # JSON may have a backslash before a slash
    rf"(:{_SLASHES})([^\s:/@?#\"'<>`\]]*+)(?::((?:[^\s\"'<>`:]|:(?!{_SLASHES}))*))?@"
)
_ENCODED = r"(%3a%2f%2f(?:(?!%3a|%40|%2f)[\w.~%+-]){0,100}+%3a)(?:(?!%40)[\w.~!*%+-]){1,200}+%40"
_LOGIN = (
    r"(?<![\w/:@.%+-])([\w.%+-]++:)(?!//)[^\s@\"'<>/]{1,200}"
    r"@(?=[\w.-]{1,255}+:[0-9]|tcp\(|unix\(|localhost\b)"
)
_USER = (  # curl -u ann:hunter2, and the same as a list of words; a user and a group are numbers
    r"(?<![\w-])((?:-u|-U|--user|--proxy-user)(?:[\"']?,)?[ =]?[\"']?"
    r"[^\s:\"',=-][^\s:\"',]{0,99}+:)(?![0-9]{1,10}+(?:[\s\"']|\Z))[^\s\"']{1,200}+"
)
_PAIR = (  # auth=("ann", "hunter2")
    r"(?i)(auth[\"']?[ ]?[=:][ ]?[(\[][ ]?[bru]?[\"'][^\"'\r\n]{0,200}+[\"'],[ ]?[bru]?([\"']))"
    r"(?:(?!\2)[^\r\n]){1,200}+"
)
_SCHEMES = "bearer|basic|token|apikey|negotiate|ntlm"
_JWT = r"eyJ(?:(?!eyJ)[\w-]){5,}\.[\w-]{4,}+(?:\.[\w-]*+){0,3}"
_HOOK = r"(hooks\.slack\.com/[a-z]{1,20}/|discord(?:app)?\.com/api/webhooks/)[\w/-]{8,}+"

_SHAPES: tuple[tuple[tuple[str, ...], re.Pattern[str], Replace], ...] = (
    (("-----begin",), re.compile(_PEM), MARK),
    (("://", ":\\"), re.compile(_USERINFO), _url),
    (("%3a%2f%2f",), re.compile(_ENCODED, re.IGNORECASE), rf"\1{MARK}%40"),
    (("@",), re.compile(_LOGIN), rf"\1{MARK}@"),
    (("-u", "-user"), re.compile(_USER), rf"\1{MARK}"),
    (("auth",), re.compile(_PAIR), rf"\1{MARK}"),
    (("hooks.", "/webhooks/"), re.compile(_HOOK), rf"\1{MARK}"),
    (
        ("bearer ", "basic ", "token ", "apikey ", "negotiate ", "ntlm "),
        re.compile(
            rf"(?i)\b({_SCHEMES})([ \t]{{1,8}}+)(?!(?:{_SCHEMES})\b)([A-Za-z0-9+/=._~-]{{4,}}+)"
        ),
        _scheme,
    ),
    (
        ("digest ",),
        re.compile(r"(?i)\b(digest )(?:\w{1,40}+=(?:\"[^\"\r\n]*+\"|[^\s,\"]++)(?:,[ ]?)?+)++"),
        _digest,
    ),
    (("eyj",), re.compile(_JWT, re.ASCII), MARK),
    (
        (":aa",),
        re.compile(r"(?<![0-9A-Za-z])[0-9]{8,10}:AA[\w-]{33}(?![\w-])", re.ASCII),
        MARK,
    ),
)

# --- tokens that are known by how they begin ------------------------------------------------------

_ISSUERS: tuple[tuple[str, str], ...] = (
    (  # AWS
        "AKIA ASIA ABIA ACCA AGPA AIDA AIPA ANPA ANVA APKA AROA",
        r"[A-Z0-9]{16}(?![A-Za-z0-9])",
    ),
    ("AIza ya29. GOCSPX-", r"[\w.-]{20,}+"),  # Google
    ("ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"\w{16,}+"),
    (
        "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- glsoat- gloas- glsa_ glc_",
        r"[\w.=-]{16,}+",
    ),  # GitLab and Grafana
    ("xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-", r"[\w.%-]{10,}+"),
    ("sk_live_ sk_test_ rk_live_ rk_test_ pk_live_ whsec_", r"\w{8,}+"),  # Stripe
    ("sk-", r"(?=[A-Za-z_-]{0,60}[0-9])[\w-]{16,}+"),  # OpenAI, Anthropic
    ("gsk_ xai- pplx- r8_ npm_ hf_ dckr_pat_", r"[A-Za-z0-9]{24,}+"),
    ("pypi-Ag", r"[\w-]{16,}+"),
    ("hvs. hvb. hvr.", r"[\w-]{16,}+"),  # Vault
    ("dop_v1_ doo_v1_ dor_v1_ shpat_ shpss_ shpca_ shppa_ dapi", r"[a-f0-9]{32,}+"),
    ("SG.", r"[\w-]{16,64}\.[\w-]{16,}+"),  # SendGrid
    ("lin_api_ sbp_ pscale_tkn_ pscale_pw_ ATATT3 NRAK- PMAK- dp.pt.", r"[\w=-]{16,}+"),
    ("AGE-SECRET-KEY-1", r"[A-Z0-9]{30,}+"),
)
_ISSUED = tuple(prefix for prefixes, _ in _ISSUERS for prefix in prefixes.split())
_TOKEN = re.compile(
    "(?<![A-Za-z0-9])(?:"
    + "|".join(
        f"(?:{'|'.join(map(re.escape, prefixes.split()))}){rest}" for prefixes, rest in _ISSUERS
    )
    + ")",
    re.ASCII,
)
_LONG = re.compile(r"[\w.%+/=-]{15}", re.ASCII)
"""The shortest of those tokens; most texts have no word as long."""

# --- card numbers ---------------------------------------------------------------------------------

_DIGITS = re.compile(r"[2-6][0-9]{3}[ -]?[0-9]{4}")
_CARD = re.compile(
    r"(?<![\w.+-])(?:(?:2[2-7]|[3-6][0-9])[0-9]{11,17}"
    r"|(?:2[2-7]|[3-6][0-9])[0-9]{2}([ -])[0-9]{4}\1[0-9]{4}\1[0-9]{1,7}"
    r"|3[0-9]{3}([ -])[0-9]{6}\2[0-9]{4,5})(?!\w|[.-][0-9])"
)


def _card(match: re.Match[str]) -> str:
    """Card numbers satisfy Luhn's check (ISO/IEC 7812-1); nine in ten other numbers do not."""
    digits = [int(char) for char in reversed(match[0]) if char.isdigit()]
    total = sum(digits[::2]) + sum(2 * digit - 9 * (digit > 4) for digit in digits[1::2])
    return match[0] if total % 10 else MARK
