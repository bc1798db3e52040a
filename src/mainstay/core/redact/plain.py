"""What stands where a secret could, and is none: words, placeholders, paths, code, numbers.

And the other way round: what no word, number, time or path looks like (`is_random`).
"""

from __future__ import annotations

import re

from mainstay.core.redact.names import KEY, SECRET, squashed

_WORDS = frozenset(
    """
    none null nil true false undefined empty missing required expired invalid unknown unset
    wrong not is was are has have must may can cannot should could expected unexpected too the a
    an no yes and or for from in of on to with failed ok denied rejected accepted revoked set
    this that str string bytes int bool any optional text object varchar char number integer
    float uuid await kerberos ldap local n/a na - on off files strong weak enabled disabled
    allowed blocked strict lax present absent valid authentication authorization changed updated
    all
    reset incorrect mismatch unbound undeclared deprecated mandatory blank contains will got given
    does readonly omitted unavailable value values redacted hidden masked removed filtered
    secret password impl dyn try yield secretstr secretstring secretbytes securestring unrecognized
    unrecognised flag argument option parameter permission include omit same-origin bcrypt scrypt
    argon2 argon2id pbkdf2 can't please sorry new
    raise return throw at between minimum maximum inherit read write
    """.split()
)
"""Words that stand after a name in prose, in code and where there is no value."""
_SCHEMES = frozenset("basic bearer digest negotiate oauth oauth2 ntlm token apikey".split())
"""Words that are no value by themselves, and go before one."""
_HOLDER = re.compile(
    r"""\?|\$[0-9]{1,3}|%s|\*+|\.{3}|…|[•●*xX.-]{3,}+|-+
    | \$env:\w{2,60}+|\#\{[^}]{1,80}+\}?|\$\(\(.{1,60}?\)\)|cat[ ][~./$][\w./$-]{1,100}+
    | <base64[^<>]{0,60}+>|@Microsoft\.KeyVault\(.{0,200}
    | (?:id|src)=[a-z_./~-]{1,80}+(?:,\w.{0,80}+)?
    | \$\{[^}]{1,80}+\}?|\$?\{\{.{1,80}?\}\}|\{[a-z_.]{1,40}+\}
    | \$[A-Z_]{2,60}|\$[a-z_]{2,60};?|\$\([^)]{1,80}+\)
    | %[A-Z_]{2,40}%|%\(\w{1,40}\)s|:[a-z_]{2,40}|@{1,2}[A-Za-z_]{2,40}@{0,2}
    | [:@]p[0-9]{1,3}|:[0-9]{1,3}
    | [\w.-]{1,60}+=(?:deleted|"")?(?:;\s?(?i:expires|max-age|path|domain|secure|httponly|samesite)
      (?:=[^;]{0,60}+)?+)++                                     # a cookie that is taken back
    | <[A-Za-z][A-Za-z_\x20'-]{0,80}+(?:>.{0,40}+)?|\[(?:redacted|filtered|hidden|masked)\]
    | (?i:[\[(<{*]{1,3}+(?:protected|secured?|sensitive|omitted|removed|suppressed|encrypted
        |obfuscated
        |obscured|scrubbed|stripped|concealed|withheld|private|not[ ]shown|set|unset|elided
        |truncated
        |snip|redacted|hidden|masked|filtered|secret|empty|present|provided|none)[\])>}*]{1,3}+)
    | (?:required|nullable|sometimes|bail|string|confirmed)(?:\|[\w:,./()-]{1,60}+){1,12}+
    | \$_?[A-Za-z]\w{0,40}+(?:(?:->|::)\w{1,40}+|\[["']?\w{0,60}+["']?\]?){1,4}+|<%[=-]?
    | \[REDACTED[\w:\x20]{1,60}+\]|[A-Z][A-Za-z]{1,40}+<[A-Za-z_'&:<>,\x20]{0,80}+
    | &(?:'\w{1,20}+|mut)|\{\s*+"[^"\r\n]{1,200}+",\s*+\[[^\]]{0,200}validation:[^\]]{0,200}\]\s*+\}
    | \((?:known\ after\ apply|sensitive[\w\x20]{0,20}|redacted|hidden)\)
    | (?i:\[(?:redacted|filtered|hidden|masked)\]|[\[({]?your[\w-]{0,40}+[\])}]?
        |(?:change|replace)[_-]?me\w{0,20}
        |todo|placeholder|insert[_-]\w{1,40}|\w{0,12}[_-]?\.{3}|!vault|!reference|!ref)
    | (?=[A-Z_]{0,40}(?:TOKEN|PASSWORD|SECRET|KEY)_?[A-Z]{0,10})[A-Z_]{2,60}|</?\w{1,20}>|</\w{1,20}
    | \[[A-Z_]{3,40}+\]|\[(?:self|[a-z]+[A-Z]\w*+|\w++\.\w++)[\w.]*+(?:[ ]\w{1,40}+:?){1,4}+\]
    | [a-z][\w.-]{0,40}+:/(?:app|builds?|certs?|code|conf|config|data|dev|docker|etc|github|home
      |keys?|kaniko|media|mnt|opt|proc|root|run|secrets?|srv|tmp|usr|var|vault|workspace)
      (?:/[a-z_.-]{1,60}+){1,12}+                              # a name and its file
    | \[\s*+\]|\{\s*+\}|\((?:known|sensitive|redacted|hidden|unchanged|leave|optional|required|empty
        |none|blank)
    | (?i:[\[{]\s*+(?:[\w"'.-]{1,60}+[:=]\s?["']?
        (?:true|false|null|none|strict|lax|[0-9]{1,5})["']?,?\s*+)++[\]}])
    | [\[{]{1,2}\s*+(?:["']?(?:path|name|namespace|audience|file|env|ref|fieldPath|secretName
        |expirationSeconds|optional|mode|defaultMode)["']?:\s?["']?(?:[a-z][a-z_./-]{0,60}+|[0-9]{1,6}+)["']?,?\s*+
        )++[\]}]{1,2}
    | SIG[A-Z]{2,6}[0-9+]{0,3}|[~^<>=]{1,2}+\s?v?[0-9]{1,6}+(?:\.[0-9x*]{1,6}+){1,3}+[\w.+-]{0,20}+
    | (?:~|\.{0,2})/[a-z0-9_.-]{1,60}+(?:/[a-z0-9_.-]{0,60}+)*+|[A-Za-z]:\\[\w\\.\x20-]{1,200}
    | (?:file|env|vault|ref|arn|ssm|secretsmanager|op|doppler|gsm):[/:]?[\w./:\#-]{1,200}
    """,
    re.VERBOSE,
)
"""What stands for a value in SQL, templates, shells and code, and where one was hidden before."""
_CODE = re.compile(
    r"(?:[A-Za-z_]++(?:\.|->|::))*+[A-Za-z_]++[\[(](?:[\w\"'`({\[)\]$*&.,: -].*+)?+", re.DOTALL
)
_TYPES = frozenset(
    "null none redacted filtered hidden masked removed sensitive int str float list dict bool "
    "bytes nonetype string object include omit same-origin sha1 sha224 sha256 sha384 sha512 md5 "
    "true false hex base64 utf8 utf-8 utf16 utf-16 ascii varchar char "
    "latin1 latin-1 iso-8859-1 cp1252 bigint integer boolean".split()
)
_MESSAGE = re.compile(
    r"""[\[{(]?+[\s"'“]*+(?:This|That|The|These|Field|Value|Must|Not|Ensure|Enter|Password|Passwords|Token
    |Invalid|Your|Please|String|Input|It|Is|May|Cannot|Required|Too|Should|Only|Unable|No|Missing
    |Expected|Given|Provided|A|An|must|may|cannot|is|should|too|invalid|does|not|field|required|value
    |can't|can’t|doesn't|isn't|has|needs|contains|minimum|maximum)
    (?:[ ][\w'’,.()-]++){2,40}+[\s"'”\])}]*+""",
    re.VERBOSE,
)
_RECORD_TYPE = re.compile(
    r"""\{(?:\s*+(?:readonly\s)?(?:[\w$]{1,60}+\??|\[\w{1,20}:[ ]\w{1,20}\])[ ]?:[ ]?
      (?:(?i:string|str|number|int(?:eger)?|float|double|bool(?:ean)?|bytes|bigint|any|unknown|never
        |null|none|nil|undefined|void|object|symbol|date|buffer|uint8array)\b(?:\[\])?[ ]?[|?]?[ ]?
        ){1,6}+[;,]?)++\s*+\}""",
    re.VERBOSE,
)
"""A type with its fields: `{ password: string; user?: string }`."""
_SCHEMA = re.compile(
    r"\{\s*+type:\s?+[A-Z]\w*+\b|\{\s*+[\"'](?:type|\$ref|oneOf|anyOf|title|description|required)[\"']\s*+:"
)
"""What describes a field: a part of JSON Schema, not its value."""
_REFERENCE = re.compile(
    r"(?:var|locals?|data|module|self|this|env|process|secrets|config|settings|cfg|opts"
    r"|options|args"
    r"|request|req|params|ctx|os|app|cls|props|state)\.[A-Za-z_][\w.]*+|[a-z_]++(?:\.[a-z_]++){2,}+"
)
"""A variable and its attributes."""
_ORDINARY = re.compile(
    r"""[0-9.,:/%+-]++|0x[0-9a-fA-F]{1,16}+
    | v?[0-9]{1,6}+(?:[.-][0-9a-z]{1,8}+)*+|[0-9.]{1,12}+[a-zA-Z%]{1,4}
    | [0-9]{8}T[0-9]{4,6}Z?|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]?[0-9:.+Z-]{0,30}
    | (?:[0-9]{1,4}(?:st|nd|rd|th|[hms]))+
    | (?i:utf|sha|md|x|ipv|http|base|tls|ssl|rsa|aes|ed|v|p|python|java|oauth|s3v|line|port|pid)
      [-/.]?[0-9]{1,5}(?:[-_/.][a-z0-9.]{1,12}){0,3}
    | [a-z]{1,10}://\S*+|[\w.+-]{1,60}@[\w.-]{1,80}|[\w.-]{1,80}:[0-9]{1,5}
    | (?:[a-z]{1,20}/)?[a-z][a-z0-9]{0,30}(?:-[a-z][a-z0-9]{0,30}){0,6}   # an object of Kubernetes
      (?:-[bcdf-hj-np-tv-xz2-9]{8,10})?-[bcdf-hj-np-tv-xz24-9]{5}
    | [A-Za-z][A-Za-z_]{1,30}(?:-[A-Za-z_]{1,30}){0,3}-[0-9]{1,4}(?:\.[0-9]{1,4}){1,3}   # a package
    | [A-Z][A-Z_]{2,40}[0-9]{0,6}|[A-Z]{1,6}-?[0-9]{1,6}
    | (?:[A-Za-z_]++[./:]){1,12}[A-Za-z_]++(?:\(\))?(?::[0-9]{1,6}){0,2}
    | (?:[\w.-]{0,60}[/\\]){0,20}[\w.-]{1,80}?\.(?:py|go|rs|java|php|js|ts|rb|c|h|txt|json|ya?ml
        |toml|ini|key|pem|crt|log|com|org|net|io)(?::[0-9]{1,6}){0,2}
    """,
    re.VERBOSE,
)
"""Numbers, times, versions, addresses, names in code."""
_NUMBERED = re.compile(r"[A-Za-z]{1,20}[-_]?[0-9]{1,4}")
"""A word and a number: `user42`, and also `hunter2`."""
_LOWER = re.compile(r"[a-z_./:-]+")
_SCORE = re.compile(r"[0-9.,/]{1,6}+%?")
_LONGEST = 400
"""No placeholder or message is longer, and long values are not read once for each name in them."""
_COUNTED = ("sessionid", "sessid", "tokens", "secrets", "keys", "cookies", "passwords", "codes")
_SHORT_ID = re.compile(r"[0-9]{1,7}")
_READ_OUT = re.compile(r"[0-9]{6,8}")
"""A code that a person reads out, of a message or a device."""
_LETTER = re.compile(r"[^\W\d_]")
_DIGIT = re.compile(r"[0-9]")
_SIGN = re.compile(r"\w[!#$%^&*~+]\w")


def is_secret_value(
    kind: str, name: str, value: str, *, is_quoted: bool, is_assigned: bool = False
) -> bool:
    """Whether the value of a name can be a secret."""
    if is_plain(value, name, is_quoted=is_quoted):
        return False
    if kind == SECRET:
        return not (_SHORT_ID.fullmatch(value) and squashed(name).endswith(_COUNTED))
    value = value.strip()
    if kind in (KEY, "sk", "encrypt"):
        return is_key(value) or (name.isupper() and _is_short_key(value))
    if kind in ("pin", "puk", "otp", "totp", "hotp", "cvv", "cvc"):
        digits = len(_DIGIT.findall(value))
        is_word = _ORDINARY.fullmatch(value) is not None or len(value) < 6
        return digits >= 3 + (kind == "pin") or (digits > 0 and not is_word)
    if kind == "pass":
        is_word = not (is_quoted or is_assigned) and _LOWER.fullmatch(value) is not None
        return not is_word and not _SCORE.fullmatch(value)
    is_code = kind == "code" and _READ_OUT.fullmatch(value) is not None
    return is_code or (is_random(value, least=8) and _CALLED.match(value) is None)


def is_key(value: str) -> bool:
    """Whether it looks like a key to a service, in letters and digits or in hexadecimal ones."""
    is_token = _TOKEN.fullmatch(value) is not None and is_dense(value)
    return is_token or (_KEY_OF_HEX.fullmatch(value) is not None and len(value) in _KEY_LENGTHS)


_CALLED = re.compile(r"[A-Za-z_]\w{0,40}+(?:\.[A-Za-z_]\w{0,40}+){1,4}+\(")
"""A call of what a module or an object has."""
_TOKEN = re.compile(r"[\w+=~-]{16,}")


def _is_short_key(value: str) -> bool:
    """Whether it looks like a key of a variable of the environment: `IPINFO_KEY`."""
    is_word = _TOKEN_OF_TEN.fullmatch(value) is not None
    return _SHORT_KEY.fullmatch(value) is not None or (is_word and is_dense(value))


_TOKEN_OF_TEN = re.compile(r"[\w+=~-]{10,15}")
_SHORT_KEY = re.compile(
    r"(?=(?:[0-9]*[a-fA-F]){3})(?=(?:[a-fA-F]*[0-9]){3})(?:[0-9a-f]{12,128}|[0-9A-F]{12,128})"
)
_KEY_OF_HEX = re.compile(r"(?=.*[0-9])[0-9a-fA-F]+")
_KEY_LENGTHS = (32, 48, 64, 96, 128)
"""Of a key in hexadecimal digits; a fingerprint has 16 or 40."""


def is_reference(value: str) -> bool:
    """Whether it stands for a value that is elsewhere, as a variable of a shell does.

    >>> is_reference("$REDIS"), is_reference("hunter2")
    (True, False)
    """
    return _HOLDER.fullmatch(value) is not None


def is_plain(value: str, name: str, *, is_quoted: bool) -> bool:
    """Whether a value is none: a word of prose, a placeholder, a sign, the name itself."""
    if len(value) > _LONGEST:
        return False
    value = value.strip()
    scheme, _, rest = value.partition(" ")
    if scheme.lower() in _SCHEMES and (rest or is_quoted):
        value = rest.strip()
    if not value or (len(value) == 1 and not value.isalnum()) or _HOLDER.fullmatch(value):
        return True
    if value.startswith("{") and _RECORD_TYPE.fullmatch(value):
        return True
    if is_quoted:
        return value.lower() in _TYPES or _is_message(value)
    return _is_code(value, name) or _is_word(value)


def _is_code(value: str, name: str) -> bool:
    """Whether it is a variable, a call or an option; one with the name of the field, or any."""
    if _REFERENCE.fullmatch(value) or _CODE.fullmatch(value) or value.startswith("--"):
        return True
    last = squashed(name.rpartition(".")[2])
    return last != "" and squashed(value.removesuffix(")s").rpartition(".")[2]) == last


def _is_word(value: str) -> bool:
    """Whether it is a word of prose, or begins a sentence."""
    word = value.strip(".,:;!?()&*").lower()
    if word in _WORDS or word in _SCHEMES or not word:
        return True
    first = word.partition(" ")[0]
    return first in _WORDS and "=" not in word and not _DIGIT.search(word)


def _is_message(value: str) -> bool:
    """Whether it is a sentence about a field, or its description: validators list them by name."""
    if _SCHEMA.match(value):
        return True
    return _MESSAGE.fullmatch(value) is not None and not any(
        is_random(word.strip("\"'.,()“”"), is_named=True) for word in value.split()
    )


def is_prose(written: str) -> bool:
    """Whether some words are a part of a sentence: `not set`, `at least 8`.

    >>> is_prose("must be set"), is_prose("otter garden")
    (True, False)
    """
    words = written.lower().split()
    return len(words) > 1 and not _FUNCTION_WORDS.isdisjoint(words)


_FUNCTION_WORDS = frozenset(
    """
    a an and are as at be by can cannot contain does enough expired field for from has in invalid
    is it least missing more must no not of on only or required set should strong than that the this
    to too valid was will with you your
    """.split()
)


def is_random(value: str, least: int = 6, *, is_named: bool = False) -> bool:
    """Whether no word, number, time, version, address or path looks so.

    >>> [is_random(text) for text in ("x9Qz-1aP", "token", "10.0.0.1:80", "utf-8", "2026-01-31")]
    [True, False, False, False, False]
    """
    if len(value) < least or " " in value or "\n" in value or _ORDINARY.fullmatch(value):
        return False
    if not is_named and _NUMBERED.fullmatch(value):
        return False
    if not _LETTER.search(value):
        return is_named and len(value) >= 8 and _DIGIT.search(value) is not None
    if _DIGIT.search(value) or _SIGN.search(value):
        return True
    is_long = len(value) >= 20 and value != value.lower() and "_" not in value and "/" not in value
    return is_long and not _is_of_words(_PART.findall(value))


def is_ordinary(value: str) -> bool:
    """Whether numbers, times, versions, addresses, paths and names in code are written so."""
    return _ORDINARY.fullmatch(value) is not None or _PATH.fullmatch(value) is not None


_PATH = re.compile(r"(?:[A-Za-z]:|~|\.{1,2})?+(?:[/\\][\w.@+ -]*+){2,}+")


def without_stop(word: str) -> str:
    """A word without the sign that ends its sentence; behind a digit, `!` is a part of it.

    >>> without_stop("changed!"), without_stop("hunter2!")
    ('changed', 'hunter2!')
    """
    word = word.rstrip(".:?")
    return word if word[-2:-1].isdigit() else word.rstrip("!.:?")


_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^A-Za-z0-9]")
_COMMON = frozenset(
    """
    th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve
    co me de hi ri ro ic ne ea ra ce li ch ll be ma si om ur ca el ta la ns di fo ho pe ec pr no
    ct us ac ot il tr ly nc et ut ss so rs un lo wa ge ie wh ee wi em ad ol rt po we na ul ni ts
    mo ow pa im mi ai sh ir su id os iv ia am fi ci vi pl ig tu ev ld ry mp fe bl ab gh ty op wo
    sa ay ex ke fr oo av ag if ap gr od bo sp rd do uc bu ei ov by rm ep tt oc fa ef cu rn sc gi
    da yo cr cl du ga qu ue ff ba ey ls va um pp ua up lu go ht ru ug ds lt pi rc rr eg au ck ew
    mu br bi pt ak pu ui rg ib tl ny ki rk ys ob mm fu ph og ms ye ud mb ip ub oi rl gu dr hr cc
    tw ft wn nu af hu nn eo vo rv nf xp gn sm fl iz ok nl my gl aw ju oa eq sy sl ps jo lf nv je
    nk kn gs dy hy ze ks xt bs ik dd rp sk xi oe oy ws lv dl rf eu dg wr xa yi nm eb rb tm xc eh
    tc gy ja hn yp za gg ym sw bj lm cs ii ix xe oh lk lp ax ox uf dm iu sf bt ka yt ek pm ya gt
    wl rh yl hs ah yc yb rw uk uo kt dt bd
    """.split()
)
"""Pairs of letters that are frequent in words of English and German."""
_NOT_DENSE = re.compile(
    r"""[0-9a-f-]++|[0-9A-F-]++|(?:(?:[A-Za-z_]{1,20}|[0-9.]{1,12})-){2,6}[0-9a-f]{32,128}
    | 0x[0-9A-Fa-f]++|.*(?:A-Z|a-z|0-9|\\[dw]).*
    | (?:[A-Z]?[a-z]++|[A-Z]++)[0-9]{0,4}+
      (?:[_.-](?:(?:[A-Z]?[a-z]++|[A-Z]++)[0-9]{0,4}+|[0-9]{1,5}+))++""",
    re.VERBOSE,
)
"""Hashes, classes of characters in an expression, words and numbers that are joined by a sign."""
_DATED = re.compile(r"[0-9]{4}-?[01][0-9]-?[0-3][0-9]")


def is_dense(value: str) -> bool:
    """Whether letters and digits are mixed as in no word, identifier, hash, time or version.

    >>> [is_dense(text) for text in ("Xk92pLqZ", "yzpQsdVUMb", "OAuth2Token", "1f8a90c2")]
    [True, True, False, False]
    """
    if len(value) < 8 or not _LETTER.search(value) or _NOT_DENSE.fullmatch(value):
        return False
    if _ORDINARY.fullmatch(value) or _DATED.search(value):
        return False
    if not _DIGIT.search(value):
        return is_odd(value)
    parts = _PART.findall(value)
    return sum(map(str.isalnum, parts)) > 2 and not _is_of_words(parts)


def is_odd(letters: str) -> bool:
    """Whether capital letters stand as in no name that is put together of words.

    >>> is_odd("yzpQsdVUMb"), is_odd("getByName")
    (True, False)
    """
    parts = _PART.findall(letters)
    is_strange = any(len(part) < 4 and part.isalpha() and not _is_common(part) for part in parts)
    return is_strange and len(parts) > 2 and not _is_of_words(parts)


def _is_of_words(parts: list[str]) -> bool:
    """Whether half of a text is words."""
    words = [part for part in parts if len(part) > 3 and part.isalpha() and _is_common(part)]
    return sum(map(len, words)) * 2 > sum(len(part) for part in parts if part.isalnum())


def _is_common(part: str) -> bool:
    """Whether most of its pairs of letters are frequent ones."""
    lowered = part.lower()
    pairs = [lowered[at : at + 2] in _COMMON for at in range(len(lowered) - 1)]
    return sum(pairs) * 10 >= len(pairs) * (6 if len(part) > 4 else 9)
