"""Secrets to plant, of every sort that redaction knows, each with a text that says what it is."""

from __future__ import annotations

import base64
import json
import shlex
import string
from contextlib import contextmanager
from html import escape
from urllib.parse import quote, quote_plus

from hypothesis import strategies as st

from mainstay.core.redact.exact.process import PROCESS

JWT = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0"
    ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
)
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-a-\n+x==\n-----END RSA PRIVATE KEY-----"
GITHUB = "ghp_" + "a1B2" * 9
ALNUM = string.ascii_letters + string.digits


def spelled(name: str) -> list[str]:
    """A name of two words in every spelling."""
    first, second = name.split()
    return [
        f"{first}_{second}", f"{first}-{second}", f"{first}{second.title()}", f"{first}{second}",
        f"{first}_{second}".upper(), f"X-{first.title()}-{second.title()}",
    ]  # fmt: skip


NAMES = st.sampled_from(
    [
        *spelled("api key"), *spelled("client secret"), *spelled("access token"),
        *spelled("db password"), *spelled("private key"), "pwd", "passwd", "PGPASSWORD", "secret",
    ]
)  # fmt: skip
QUOTED = ['"{}": "{}"', "'{}': '{}'", '"{}":"{}"', r"\"{}\": \"{}\"", "{}='{}'", "('{}', '{}')"]
BARE = ["{}={}", "{}: {}", "{} = {}", "--{}={}", "--{} {}", "?a=1&{}={}"]
SCHEMES = ["https", "postgresql", "redis", "amqp", "nats", "mongodb+srv"]
PREFIXES = """
    AIza ya29. GOCSPX- ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- gldt- glrt- glcbt- glptt-
    glft- glimt- glagent- glsoat- gloas- glsa_ glc_ xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo-
    xoxp- xoxr- xoxs- xapp- sk_live_ sk_test_ rk_live_ rk_test_ whsec_ sk- gsk_ xai-
    pplx- r8_ npm_ hf_ dckr_pat_ pypi-Ag hvs. hvb. hvr. dop_v1_ doo_v1_ dor_v1_ shpat_ shpss_
    shpca_ shppa_ dapi lin_api_ sbp_ pscale_tkn_ pscale_pw_ ATATT3 NRAK- PMAK- dp.pt. sntrys_
    figd_ tskey- CFPAT- dckr_oat_ glffct- npg_
""".split()
HEX = ("dop_", "doo_", "dor_", "shp", "dapi")


def password(alphabet: str) -> st.SearchStrategy[str]:
    """One that no ordinary text holds."""
    return st.text(ALNUM + alphabet, min_size=5, max_size=30).map(lambda text: f"q{text}7z")


@st.composite
def named(draw):
    """The value of a field, in quotes."""
    secret = draw(password("!#$%*+-.:/=?@^_~()[]{}<>|,;& "))
    return secret, draw(st.sampled_from(QUOTED)).format(draw(NAMES), secret)


@st.composite
def bare(draw):
    """The value of a field, without quotes."""
    secret = draw(password("!#$%*+-./@^_~"))
    return secret, draw(st.sampled_from(BARE)).format(draw(NAMES), secret)


@st.composite
def in_url(draw):
    """A password in a URL."""
    secret = draw(password("!$%*+-._~=@:"))
    user = draw(st.sampled_from(["", "ann"]))
    return secret, f"{draw(st.sampled_from(SCHEMES))}://{user}:{secret}@db.example.org/x"


@st.composite
def issued(draw):
    """A token with an issuer's prefix."""
    prefix = draw(st.sampled_from(PREFIXES))
    letters = "abcdef0123456789" if prefix.startswith(HEX) else ALNUM
    token = prefix + draw(st.text(letters, min_size=34, max_size=60)) + "7"
    return token, token


@st.composite
def card(draw):
    """A card number, in one piece or in fours."""
    digits = "4" + draw(st.text("0123456789", min_size=14, max_size=14))
    doubled = [
        int(d) * 2 - 9 * (int(d) > 4) if i % 2 == 0 else int(d) for i, d in enumerate(digits)
    ]
    digits += str(-sum(doubled) % 10)
    secret = draw(st.sampled_from(["", " ", "-"])).join(digits[i : i + 4] for i in range(0, 16, 4))
    return secret, secret


@st.composite
def credentials(draw):
    """What follows the scheme of an Authorization header."""
    secret = draw(st.text(ALNUM, min_size=24, max_size=60)) + "7"
    scheme = draw(st.sampled_from(["Bearer", "Token", "bearer", "ApiKey"]))
    return secret, f"{draw(st.sampled_from(['', 'Authorization: ']))}{scheme} {secret}"


FIXED = [
    JWT,
    PEM,
    "AKIAIOSFODNN7EXAMPLE",
    "SG." + "a" * 22 + "." + "b" * 43,
    "AGE-SECRET-KEY-1" + "A1" * 20,
]


def planted() -> st.SearchStrategy[tuple[str, str]]:
    """A secret, and the text that holds it."""
    fixed = st.sampled_from(FIXED).map(lambda text: (text, text))
    return st.one_of(named(), bare(), in_url(), issued(), card(), credentials(), fixed)


# --- secrets that a process knows by their value ------------------------------------------------

OWN = {
    "SHOP_DB_PASSWORD": "q7Xz-otter/9P+k=",
    "SHOP_API_KEY": 'Gr\u00fc\u00dfe-7 "quoted" w0rd\\s',
    "SHOP_SIGNING_SECRET": "line 0ne, 7x%\nline tw0: <9q&>",
    "SHOP_TOKEN": "a'b\U0001f511c9-d_e$f",
}
"""Variables of the environment with a secret name, and what they hold."""


def notations(value: str) -> list[str]:
    """A value as programs write it into texts, in one notation or in two."""
    once = [
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        ascii(value)[1:-1],
        repr(value.encode())[2:-1],
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
        quote(value, safe="").replace("%2F", "%2f").replace("%2B", "%2b"),
        escape(value),
        shlex.quote(value),
        *(encode(before + value.encode()) for before in (b"", b"a", b"ab") for encode in _BASE64),
    ]
    twice = [json.dumps(json.dumps(value)), quote(json.dumps(value)), json.dumps(quote(value))]
    return [*once, *twice, quote(quote(value, safe="")), escape(json.dumps(value))]


_BASE64 = (
    lambda data: base64.b64encode(data).decode(),
    lambda data: base64.urlsafe_b64encode(data).decode().rstrip("="),
)


@st.composite
def owned(draw):
    """A value that the process knows, in any notation, and a text around it."""
    value = draw(st.sampled_from(sorted(OWN.values())))
    written = draw(st.sampled_from(notations(value)))
    return written, draw(AROUND) + written + draw(AROUND)


AROUND = st.text("ab1 .,:;'\"%&\\/=+-[]\n\u00e9", max_size=12)


@contextmanager
def knowing_as_before():
    """What the process comes to know inside is forgotten afterwards."""
    before = dict(PROCESS._sources)
    try:
        yield
    finally:
        if PROCESS._sources != before:
            _know(before.items())


@contextmanager
def only_knowing():
    """A process that knows nothing to be secret at first."""
    with knowing_as_before():
        _know(())
        yield


def _know(sources):
    PROCESS._sources.clear()
    PROCESS._sources.update(sources)
    PROCESS.version += 1
