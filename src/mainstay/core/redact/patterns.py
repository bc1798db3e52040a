"""What a secret looks like without a field name: URLs, headers, keys, hashes, in a table.

Each has signs, of which one must be in the text before its expression is tried: most texts hold
none, and cost a few searches. What a person needs to distinguish cases, such as the user and
the host of a URL, stays. Tokens with an issuer's prefix and card numbers are in
issuers.py.

Every expression is linear in the text. An open repetition ends its expression, or is possessive, or
cannot reach past the next place where the expression could begin; all others have a bound.
"""

from __future__ import annotations

import re
from binascii import Error, a2b_base64

from mainstay.core.redact import MARK
from mainstay.core.redact.names import OneOf
from mainstay.core.redact.plain import is_dense, is_random
from mainstay.core.redact.shapes import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Span = tuple[int, int]
    Pick = Callable[[re.Match[str]], list[Span]]
    Shape = tuple[tuple[str, ...], re.Pattern[str], Pick]


def shaped(text: str, lowered: str) -> Iterator[Span]:
    """Where something stands that looks like a secret.

    >>> url = "GET https://ann:hunter2@example.org/ failed"
    >>> [url[start:end] for start, end in shaped(url, url)]
    ['hunter2']
    """
    if "@" in text:
        yield from _of(URLS, text, lowered)
    if _OTHERS.is_in(lowered):
        for shapes, signs in _GROUPS:
            if signs.is_in(lowered):
                yield from _of(shapes, text, lowered)


def _of(shapes: tuple[Shape, ...], text: str, lowered: str) -> Iterator[Span]:
    for signs, expression, pick in shapes:
        for sign in signs:
            if sign in lowered:
                for found in expression.finditer(text):
                    yield from pick(found)
                break


def _whole(found: re.Match[str]) -> list[Span]:
    return [found.span()]


def _group(found: re.Match[str]) -> list[Span]:
    return [found.span("secret")]


def _if_random(found: re.Match[str]) -> list[Span]:
    secret = found["secret"]
    return [found.span("secret")] if is_random(secret.strip("\"'")) else []


def _if_named_random(found: re.Match[str]) -> list[Span]:
    return [found.span("secret")] if is_random(found["secret"], is_named=True) else []


def _if_written(found: re.Match[str]) -> list[Span]:
    group = found.lastgroup or ""
    return [] if _HELD.fullmatch(found[group]) else [found.span(group)]


def _if_dense(found: re.Match[str]) -> list[Span]:
    secret = found["secret"]
    is_token = is_dense(secret) or _LONG_HEX.fullmatch(secret) is not None
    return [found.span("secret")] if is_token else []


_LONG_HEX = re.compile(r"[0-9a-f]{32,}+")


# --- URLs and logins ------------------------------------------------------------------------------


def _url(found: re.Match[str]) -> list[Span]:
    """The user and the host of a URL stay; a long user is a token."""
    user, password = found[2], found[3]
    if password is not None and (user.startswith("[") or _PORT.match(password)):
        return []  # an address and its port; the @ is further on, in the path
    is_token = (len(user) >= 20 and "@" not in user) or (len(user) >= 12 and _is_mixed(user))
    spans = [found.span(2)] if is_token and _HELD.fullmatch(user) is None else []
    if password and (password[0] in "$%{*x<[#" or password.isupper()) and _HELD.fullmatch(password):
        return spans
    return [*spans, found.span(3)] if password else spans


_HELD = re.compile(
    r"\$\{[^{}]{1,80}+\}|\$[A-Z][A-Z_]{1,60}+|%[A-Z_]{2,40}+%|\{\{[^{}]{1,80}+\}\}|\*{2,}+|x{3,}+"
    r"|<[A-Za-z_ -]{1,40}+>|\[[A-Za-z_ -]{1,40}+\]|#?\{[A-Za-z_][\w.\[\]]{0,60}+\}|%s"
    r"|(?:[A-Z]{1,20}_)?(?:PASSWORD|PASSWD|PASS|TOKEN|SECRET|KEY|PWD)"
)
"""What stands for a part of a URL."""
_PORT = re.compile(r"[0-9]{1,5}\\{0,8}(?:[/?#]|,[\w.-]{1,255}:[0-9]{1,5}[/?#])")


def _is_mixed(text: str) -> bool:
    """Whether it has digits and letters: no word has both."""
    has_digit = any(char.isdigit() for char in text)
    return has_digit and any(char.isalpha() for char in text)


def _oracle(found: re.Match[str]) -> list[Span]:
    """A user and a password before a database; packages have a version there, images a digest."""
    secret = found["secret"]
    is_named = found["tool"] is not None or found["quote"] is not None
    is_strange = is_random(secret) and not secret.islower() and len(secret) > 7
    return [found.span("secret")] if is_named or is_strange else []


# --- headers --------------------------------------------------------------------------------------


def _scheme(found: re.Match[str]) -> list[Span]:
    """The credentials of an Authorization header; prose has words there ("basic settings")."""
    name, value = found[1].lower(), found[3]
    if name == "basic":
        is_secret = _is_user_and_password(value)
    else:
        shortest, longest_word = (16, 32) if name == "token" else (8, 20)
        has_digit = any(char.isdigit() for char in value)
        is_secret = len(value) >= (shortest if has_digit else longest_word)
        is_secret = is_secret and (name != "token" or has_digit or not value.islower())
        is_sent = found.string.endswith(("'", '"'), 0, found.start()) and name == "bearer"
        is_secret = is_secret or (is_sent and is_random(value, 5))
    return [found.span(3)] if is_secret else []


def _is_user_and_password(value: str) -> bool:
    try:
        return b":" in a2b_base64(value + "=" * (-len(value) % 4))
    except Error:
        return False


def _digest(found: re.Match[str]) -> list[Span]:
    """The answer to a challenge; an image has a digest too."""
    return [(found.end(1), found.end())] if "response=" in found[0].lower() else []


_SLASHES = r"\\{0,8}+/\\{0,8}+/"
_USERINFO = (  # JSON may have a backslash before a slash
    rf"(:{_SLASHES})([^\s:/@?#\"'<>`\]]*+(?:@[\w.-]{{1,100}}+(?=:(?![0-9]{{1,5}}(?:[/?#,\s]|\Z))"
    r"[^\s/?#,\"'<>`]{1,100}@[\w.-]))?+)"
    rf"(?::((?:[^\s\"'<>`:]|:(?!{_SLASHES}))*))?@"
)
_SPACED = (  # a password of some words, or with quotes in it
    r"://[\w.%+-]{0,60}+:(?P<secret>(?![0-9]{1,5}[ /\"'`])"
    r"(?:[^\s@:/\"'<>]{1,60}+(?:[ ](?:[^\s@:\"'<>]|@(?=[^\s@/]{1,60}@)){1,60}+){1,3}"
    r"|[^\s@:/,;<>(){}\"'`]{0,60}+(?:[\"'`<>][^\s@:/,;<>(){}\"'`]{0,60}+){1,4}+))"
    r"@(?=[\w.-]{1,255}+(?:[:/?]|\Z))"
)
_LETTERS = (  # ?u=ann&p=hunter2
    r"[?&]u(?:ser|sername)?=[^\s&#\"'<>]{0,100}+&p=(?P<secret>[^\s&#\"'<>]{1,200}+)"
    r"|[?&]p=(?P<before>[^\s&#\"'<>]{1,200}+)&u(?:ser|sername)?="
)
_CUBRID = (
    r"jdbc:cubrid:[^\s:]{1,255}+:[0-9]{1,5}:[^\s:]{1,100}+:[^\s:]{0,100}+:"
    r"(?P<secret>[^\s:?]{1,100}+)"
)
_LOGIN = (
    r"(?:(?<=//)|(?<![\w/:@.%+-]))[\w.%+-]++:(?!\\{0,8}/|oracle:)(?:(?P<secret>[^\s@\"'<>/]{1,200})"
    r"@(?=[\w.-]{1,255}+:[0-9]|tcp\(|unix\(|localhost\b)|(?P<any>\S{1,100})@(?=tcp\(|unix\())"
)
_LOGIN_OF_NO_PORT = (
    r"(?:(?<=//)[\w.%+-]++:(?![0-9]{1,5}/)|(?<![\w/:@.%+-])[\w.%+-]++:(?!\\{0,8}/\\{0,8}/))"
    r"(?P<secret>[^\s@\"'<>]{6,200})"
    r"@(?=[A-Za-z][\w.-]{1,255}+|[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w.]))"
)
_SHARE = (  # //ann:hunter2@nas/share
    r"(?<![^\s\"'`(=])//[\w.%+-]{1,100}+:(?![0-9]{1,5}[/?#])(?P<secret>[^\s@\"'<>`]{1,200}+)"
    r"@(?=[A-Za-z][\w.-]{0,255}+(?:[/:\s]|\Z))"
)
_ORACLE = (
    r"(?i)(?:(?P<tool>\b(?:sqlplus|sqlldr|expdp|impdp|exp|imp|rman|connect|conn|oracle"
    r"|oracle:thin:|oracle:oci8?:|connect\()[ \"']{0,3}+(?:-\w{1,2}[ ]|target[ ]){0,3}+)"
    r"|(?<![\w/:@.%+-]))"
    r"[a-z][\w$#]{0,30}+/(?P<quote>\")?(?P<secret>(?(quote)[^\"\r\n]|[^\s/@\"'<>:,]){3,60}+)"
    r"(?(quote)\")@(?!sha)(?=[\w/(])"
)
_USER = (  # curl -u ann:hunter2, and the same as a list of words; a user and a group are numbers
    r"(?<![\w-])(?:-u|-U|--user|--proxy-user)(?:[\"']?,)?[ =]?[\"']?(?!\w{1,10}+:(?:\w{1,12}+:)?//)"
    r"[^\s:\"',=-][^\s:\"',]{0,99}+:(?![0-9]{1,10}+(?:[\s\"']|\Z))"
    r"(?P<secret>'[^'\r\n]{1,200}+'|\"[^\"\r\n]{1,200}+\"|[^\s\"']{1,200}+)"
)
_PAIR = (  # auth=("ann", "hunter2"), NetworkCredential("ann", "hunter2")
    r"(?i)(?:auth[\"']?[ ]?[=:]?[ ]?|credentials?|authentication|login|simple_bind(?:_s)?)"
    r"[(\[][ ]?[bru]?[\"']"
    r"[^\"'\r\n]{0,200}+[\"'],[ ]?[bru]?(?P<q>[\"'])(?P<secret>(?:(?!(?P=q))[^\r\n]){1,200}+)"
)
_BASIC = (  # basicauth.users=ann:hunter2, CONSUL_HTTP_AUTH=ann:hunter2
    r"(?:(?i:basic[_-]?auth[\w.-]{0,20})|(?<!\w)[A-Z][A-Z0-9_]{1,60}(?<=_AUTH))"
    r"[\"']?[ ]?[=:][ ]?[\"']?[\w.-]{1,60}+:"
    r"(?P<secret>(?![0-9]{1,5}(?!\w))[^\s\"',/]{4,200}+)"
)
_GIVEN = (  # PasswordAuthentication(ann, Xk92pLqZ)
    r"(?i)(?:credentials?|authenticat\w{2,5})[ ]?[(\[{][ ]?[\w.@\\-]{1,60}+,[ ]?"
    r"(?P<secret>[^\s,()\"'=\[\]{}]{6,100}+)[ ]?[)\]}]"
)
_POSITION = (  # the third argument of those that connect to a database
    r"(?i)(?:\bPDO(?:->__construct)?|mysqli(?:->__construct|_connect)?|mysql_p?connect|oci_connect"
    r"|DriverManager\.getConnection)\((?:'[^'\r\n]{0,300}+'|\"[^\"\r\n]{0,300}+\"|NULL),[ ]?"
    r"(?:'[^'\r\n]{0,200}+'|\"[^\"\r\n]{0,200}+\"),[ ]?(?P<q>[\"'])(?P<secret>(?:(?!(?P=q))[^\r\n])"
    r"{1,200}+)"
)
_TRIED = (  # failed to authenticate ann:hunter2
    r"(?i)\b(?:authenticate|auth(?:entication)? failed|login|logon|credentials|creds|bind)(?:[ ]"
    r"(?:as|with|for))?:?[ ]"
    r"[\"'(]{0,2}+[\w.@\\-]{1,60}+[ ]?[:/,][ ]?(?![\w-]{1,40}+=\w)"
    r"(?P<secret>[^\s:/\"',;()]{4,100}+)"
)
_USED = (  # AUTH failed with 'hunter2'
    r"(?i)\b(?:auth|authenticat\w{1,5}|log ?[io]n|bind|sign ?in)\b[^\"'`\r\n]{0,40}?"
    r"[ ](?:with|using)[ ][\"'`](?!(?:scram|cram|sha|ntlm|o?auth|saml|digest|kerb|krb|tls|ssl"
    r"|x\.?509|md5|radius|ldap|err))"
    r"(?P<secret>[^\s\"'`]{4,100}+)[\"'`]"
)
_USED_BARE = (  # could not login as ann with Xk92pLqZ
    r"(?i)\b(?:auth|authenticat\w{1,5}|log(?:ged)? ?[io]n|sign ?in|unlock)\b[^\"'`\r\n]{0,40}?"
    r"[ ](?:with|using)[ ](?:[\w.@-]{1,60}+[ ](?:and|/)[ ])?+(?P<secret>[^\s\"'`/,;()]{8,100}+)"
)
_RADIUS = (  # Login OK: [ann/hunter2]
    r"\bLogin (?:OK|incorrect)(?: \([^()\r\n]{0,200}+\))?: \[[^\s/\[\]]{1,100}+/(?![<\]])"
    r"(?P<secret>[^\r\n\]]{1,100}+)\]"
)
_LOGIN_COMMAND = (  # any program: login -u ann -p hunter2
    r"(?i)\blogin\b(?=[^\r\n;|&]{0,200}[ ](?:-u|--user|--username)[ =])[^\r\n;|&]{0,200}?[ ]-p[ =]"
    r"(?![0-9]{1,5}(?:\s|\Z)|[\"']?[-$<])(?P<secret>'[^'\r\n]{1,200}+'|\"[^\"\r\n]{1,200}+\""
    r"|[^\s\"';|&]{1,200}+)"
)
_UNKNOWN = (  # any program: a word behind -p that is no port, folder or name
    r"(?<![^\s\"'])(?:-p|-P|-pw|-w|/p)(?:[ =]|[\"'],[ ]?)(?P<q>[\"']?)"
    r"(?P<secret>[^\s\"'/;|&()<>]{8,200}+)(?P=q)(?![^\s,\])])"
)
_UNKNOWN_LOGIN = (  # any program with a user: -u ann -p hunter2, and the same as a list of words
    r"(?<![^\s\"'])(?:-[uUlx]|--?user(?:name)?)(?:[ =]|[\"'],[ ]?)(?![-/])[^\s;|&]{1,100}+"
    r"(?:[ ][^\s;|&]{1,60}+){0,6}?[ ][\"']?(?:-p|-P|-pw)(?:[ =]|[\"'],[ ]?)(?P<q>[\"']?)"
    r"(?P<secret>[^\s\"'/;|&()<>]{6,200}+)(?P=q)(?![^\s,\])])"
)
_USER_CODE = (  # of a device that has no keyboard
    r"(?i:user[_ -]?code)[\"']?[ ]?[=: ][ ]?[\"']?(?P<secret>[A-Z0-9]{4}-[A-Z0-9]{4})(?!\w)"
)
_SOCKET = r"bearer\.authorization\.k8s\.io\.(?P<secret>[\w=-]{16,}+)"
_SCHEMES = "bearer|basic|token|apikey|negotiate|ntlm|ssws"

# --- what is picked of the shapes of files --------------------------------------------------------


def _command(found: re.Match[str]) -> list[Span]:
    """What a client sends after its name; a test that passed is written so too."""
    if "/" in found["secret"]:
        return _if_random(found)
    is_login = "USER " in found.string or found[0].startswith(('"', "'", "HELLO", "AUTH default"))
    is_login = is_login or _PROMPT.match(found[0]) is not None or "nickserv" in found.string.lower()
    return _group(found) if is_login else _if_named_random(found)


_PROMPT = re.compile(r"[\w.:\[\]-]{0,30}>|C:")


def _netrc(found: re.Match[str]) -> list[Span]:
    """A password of a line, or one that is followed by the next word of such a file."""
    if MARK in found["secret"]:
        return []
    is_word = _NEXT.match(found.string, found.end()) is None
    return _if_named_random(found) if is_word else _group(found)


_NEXT = re.compile(
    r"[\"',;]?(?:\s{0,20}\Z|[ \t]{0,20}\r?\n|\s{1,20}(?:machine|account|macdef|port|login)\b)"
)


def _cisco(found: re.Match[str]) -> list[Span]:
    """What follows the sort of encryption, or the key of a server; a number counts things too."""
    secret = found["secret"]
    is_value = found["end"] is not None and secret.lower() not in files.NO_KEY
    return _group(found) if is_value else _if_named_random(found)


def _groups(found: re.Match[str]) -> list[Span]:
    return [found.span(number) for number in (1, 2) if found[number]]


def _before(found: re.Match[str]) -> list[Span]:
    """The lines of a key whose first line was cut off."""
    text, start = found.string, found.start()
    while start and (text[start - 1].isalnum() or text[start - 1] in "+/=\r\n \\"):
        start -= 1
    lines = text[start : found.start()]
    first = _LINE_OF_KEY.search(lines)
    return [] if first is None else [(start + first.start(), found.end())]


_LINE_OF_KEY = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{16,}")


URLS: tuple[Shape, ...] = (
    (("://", ":\\"), re.compile(_USERINFO), _url),
    (("@",), re.compile(_LOGIN), _if_written),
    (("//",), re.compile(_SHARE), _if_written),
    (("@",), re.compile(_LOGIN_OF_NO_PORT), _if_random),
    (("://",), re.compile(_SPACED), _if_written),
    (("@",), re.compile(_ORACLE), _oracle),
)
"""Texts with a URL are frequent, and need not be asked for the signs of all others."""

_PASSWORD_SIGNS = (" -p ", " -p=", " -pw ", " -w ", " /p ", "'-p'", '"-p"', "'-pw'", "'-w'")
SHAPES: tuple[Shape, ...] = (
    (("-----begin", "---- begin"), re.compile(files.PEM), _whole),
    (("-----end",), re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"), _before),
    (("-u", "-user"), re.compile(_USER), _if_written),
    (("auth", "cred", "login", "bind"), re.compile(_PAIR), _group),
    (("pdo", "mysql", "oci_", "getconn"), re.compile(_POSITION), _group),
    (("auth", "login", "logon", "cred", "bind "), re.compile(_TRIED), _if_named_random),
    (("hook", "telegram", "ifttt"), re.compile(files.HOOK), _group),
    (
        ("bearer ", "bearer, ", "basic ", "token ", "apikey ", "negotiate ", "ntlm ", "ssws "),
        re.compile(
            rf"(?i)\b({_SCHEMES})(,?[ \t]{{1,8}}+)(?!(?:{_SCHEMES})\b)([A-Za-z0-9+/=._~-]{{4,}}+)"
        ),
        _scheme,
    ),
    (
        ("digest ",),
        re.compile(r"(?i)\b(digest )(?:\w{1,40}+=(?:\"[^\"\r\n]*+\"|[^\s,\"]++)(?:,\s{0,9}+)?+)++"),
        _digest,
    ),
    (("eyj",), re.compile(files.JWT, re.ASCII), _whole),
    (("kty",), re.compile(files.JWK, re.ASCII), _group),
    (
        tuple(
            "$2 $1$ $5$ $6$ $7$ $8$ $9$ $s$ $p$ $h$ $nt$ $dcc2$ "
            "$sha1$ $bcrypt scrypt: $y$ $apr1 $argon2 $scrypt pbkdf2 scram-".split()
        ),
        re.compile(files.HASHED, re.ASCII),
        _whole,
    ),
    (
        ("{ss", "{sh", "{sm", "{md", "{cr", "{pb", "{ar", "{pl", "{cl"),
        re.compile(files.LDAP, re.ASCII | re.IGNORECASE),
        _group,
    ),
    (("private-",), re.compile(files.PUTTY), _groups),
    (
        (":*:", ":5432:", ":5433:", ":5434:", ":6432:", ":6543:"),
        re.compile(files.PGPASS),
        _group,
    ),
    ((" on #", " on >", "~* #", "~* >", '"setuser"'), re.compile(files.ACL), _groups),
    (
        ("pass ", "auth ", '"auth"', "'auth'", "identify ", "login ", "ftp>"),
        re.compile(files.PROTOCOL),
        _command,
    ),
    (
        ("pass ", "word ", "swd ", "pw ", "pass\t", "word\t", "pass\n", "word\n", "word\r"),
        re.compile(files.NETRC),
        _netrc,
    ),
    ((": eap", ": psk", ": xauth", ": ntlm", ': plain "'), re.compile(files.IPSEC), _group),
    (("user =", "user="), re.compile(files.CURLRC), _group),
    (("bundle_",), re.compile(files.BUNDLE), _group),
    (
        (
            *(f"{name} {digit} " for name in ("word", "secret", "key") for digit in "05789"),
            *("message-digest", "isakmp key", "-server key", "authentication-key", "key-string"),
            *("-server host", "ascii 0 "),
        ),
        re.compile(files.CISCO),
        _cisco,
    ),
    (("&p=", "&u"), re.compile(_LETTERS), _groups),
    (("appid=",), re.compile(r"[?&]appid=(?P<secret>[0-9a-f]{32})(?!\w)"), _group),  # of maps
    (("auth-pass ",), re.compile(files.SENTINEL), _if_written),
    (("jdbc:cubrid",), re.compile(_CUBRID), _group),
    (("wifi:",), re.compile(files.WIFI), _group),
    (("community ",), re.compile(files.COMMUNITY), _groups),
    ((":/home", ":/bin/", ":/root", ":/var/"), re.compile(files.NEWUSERS), _if_named_random),
    ((":99999:", ":::"), re.compile(files.SHADOW), _if_named_random),
    (
        (
            *("]:25 ", "]:465 ", "]:587 ", "]:2525 ", "]:587\t", "]:25\t", "static:"),
            *("smtp.", "mail.", "relay."),
        ),
        re.compile(files.SASL),
        _group,
    ),
    (('" * "', "chap-secrets"), re.compile(files.CHAP), _groups),
    (
        (
            "/reset",
            "/magic",
            "/activat",
            "/verif",
            "/confirm",
            "/invit",
            "recover",
            "unlock",
            "-reset/",
            "hooks/",
            "hook/",
        ),
        re.compile(files.LINKED),
        _if_dense,
    ),
    (("userlist", '"md5', "'md5", '" "scram-'), re.compile(files.USERLIST), _groups),
    (('" "',), re.compile(files.LOGINS), _if_named_random),
    ((" with '", " using '", ' with "', ' using "'), re.compile(_USED), _if_named_random),
    (
        ("auth", "login", "logon", "log in", "logged in", "sign in", "signin", "unlock"),
        re.compile(_USED_BARE),
        _if_dense,
    ),
    (("login ok", "login incorrect"), re.compile(_RADIUS), _group),
    ((" -p ", " -p="), re.compile(_LOGIN_COMMAND), _group),
    (_PASSWORD_SIGNS, re.compile(_UNKNOWN), _if_dense),
    (_PASSWORD_SIGNS, re.compile(_UNKNOWN_LOGIN), _if_named_random),
    (("bearer.auth",), re.compile(_SOCKET), _group),
    (("user_code", "usercode", "user code"), re.compile(_USER_CODE), _group),
    (("334",), re.compile(files.CHALLENGED), _group),
    (("auth\r", "auth\n"), re.compile(files.RESP), _group),
    (('"pass ', "'pass ", '"auth ', "'auth "), re.compile(files.SENT), _group),
    (("password ",), re.compile(files.SET_UP), _if_named_random),
    (("::add-mask", "::set-output"), re.compile(files.MASKED), _if_written),
    (("basicauth", "basic-auth", "_auth"), re.compile(_BASIC), _group),
    (("send ",), re.compile(files.EXPECTED), _group),
    (("credential", "authenticat"), re.compile(_GIVEN), _if_dense),
    ((" login ",), re.compile(files.TAGGED), _groups),
    ((":::",), re.compile(files.DUMPED), _group),
    (("priv", "prime1", "exponent1"), re.compile(files.PRINTED), _group),
    (
        ("%b2", "%b3", "%b4", "%b5", "%b6", ";2", ";3", ";4", ";5", ";6"),
        re.compile(files.TRACK),
        _groups,
    ),
)
SIGNS = tuple(sign for signs, _, _ in (*URLS, *SHAPES) for sign in signs)
_OTHERS = OneOf((sign for signs, _, _ in SHAPES for sign in signs), is_brief=True)
_FREQUENT = ("auth", "login", "password ", "pass ", "user=", "334", "send ")
_GROUP = 12


def _groups_of(shapes: list[Shape]) -> Iterator[tuple[tuple[Shape, ...], OneOf]]:
    """Some shapes at a time, and what finds out that a text has none of their signs."""
    for at in range(0, len(shapes), _GROUP):
        group = tuple(shapes[at : at + _GROUP])
        yield group, OneOf((sign for signs, _, _ in group for sign in signs), is_brief=True)


_GROUPS = tuple(_groups_of(sorted(SHAPES, key=lambda shape: set(shape[0]).isdisjoint(_FREQUENT))))
"""The shapes, those with frequent signs first: most texts have no sign of a whole group."""
