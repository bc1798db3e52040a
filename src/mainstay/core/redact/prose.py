"""Secrets in sentences: `token x9… was revoked`, `password 'x' is too common`.

A sentence names a secret and quotes it, or ends with it. A word counts as a secret if no ordinary
word is written so; after `password`, what stands in quotes does too.
"""

from __future__ import annotations

import re

from mainstay.core.redact.plain import (
    is_dense,
    is_key,
    is_odd,
    is_plain,
    is_prose,
    is_random,
    without_stop,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Span = tuple[int, int]

_NOUNS = (
    r"(?:(?P<code>(?:backup|recovery|unlock|verification|access|security|one[- ]time"
    r"|2fa|mfa|sms|login|authorization|reset|activation|confirmation)"
    r" (?:codes?|passwords?|passcodes?|pins?)|passcodes?|pin|otp|tan)"
    r"|(?P<password>pass(?:words?|wds?|phrases?)|passwor[dt]e?|kennwort"
    r"|contrase[ñn]a|senha|wachtwoord|mot de passe|парол[ья]|pswd|pwd|pw|bindpw"
    r"|has[łl][oa]|heslo|l[öo]senord|salasana|parola|şifre|jelsz[óo]|adgangskode|passord|lozinka"
    r"|(?:security|secret) answers?|answer to the security question)"
    r"|(?P<token>secrets?|tokens?|(?:api|access|secret|private|signing|encryption|license|account"
    r"|master|subscription|deploy|shared|auth)[ _-]?keys?|bearer|session(?:[ _]?id)?|cookies?"
    r"|credentials?|signature|jwt|requirepass|masterauth|psk|hmac|community strings?"
    r"|(?P<cipher>(?:(?:de|en)crypt(?:ed|ing|ion)?|(?:authenti\w{4,7}|log(?:ged |ging )?in"
    r"|signed in|signing in|connect\w{0,3})(?: failed| refused| rejected| denied)?)"
    r" (?:with|using) (?:the )?key))"
    r"|(?P<key>keys?))"
)
_NOUN = re.compile(rf"(?<![a-z](?=[a-z])){_NOUNS}(?![\w.$(/-])")
_NO_SECRET = re.compile(
    r"(?i)(?:unexpected|expecting|expected|syntax|near|primary|foreign|public|host|cache"
    r"|partition|sort|routing|idempotency|object|redis|the key|for|duplicate|unique|s3|message|i18n"
    r"|translation|gpg|site|socket|publishable|verify|verifying)[\W_]{1,3}\Z"
)
_REACH = 160
_QUOTED = re.compile(
    r"(?<![\w\"'`])(?:[\"'`\u2018“«„\u300c\u2039][ ]?"
    r"([^\"'`\u2018\u2019”“»\u300d\u203a\r\n]{3,200}+)"
    r"[\"'`\u2018\u2019”“»\u300d\u203a]"
    r"|\[([^\"'`\[\]\r\n]{3,200}+)\]|\"((?:[^\"\s\\]|\\.){3,200}+)\""
    r"|`([^`\s]{3,200}+)`|'([^'\s]{3,200}+)')(?!\w)"
)
_BRACKETED = re.compile(r"[(<]([^\s()<>\"'`]{5,60}+(?:[ ][^\s()<>\"'`]{5,60}+){1,3}+)[)>]")
"""Some words in brackets."""
_WORD = re.compile(r"(?=[^\s\"'`,;\\]{0,60}[0-9!#$%^&*~+])[^\s\"'`\u2018“«()\[\]<>,;\\]{4,4000}+")
"""A word that has more than letters in it."""
_AND = re.compile(r"(?:,|;|[ ](?:and|or))[ ]?")
_BELOW = re.compile(r"(?:\r?\n[ \t]{0,8}){1,3}(\S{6,200}+)[ \t]{0,8}(?=\r?\n|\Z)")
"""A line of its own, below a sentence that ends with a colon."""
_GROUPS = re.compile(r"(?<![\w.:-])[0-9]{2,4}(?:[ ][0-9]{2,4}){1,3}(?![\w:-]|\.\w)")
"""A code as people read it out: `904 116`."""
_FINAL = re.compile(r"(?P<before>\b\w{1,20})\b[^\w\r\n]{0,2}:[ ](?P<secret>\S{5,100}+)\Z")
"""What ends a line, whatever signs it has."""
_NOT_FINAL = frozenset(
    """
    user users username host hostname file path column field table database role realm account by
    from at in on id uid error code line version client server module service app status request
    """.split()
)
_GOT = frozenset("got given was entered tried received found supplied provided".split())
"""Words before a value that was not accepted."""
_FINAL_PHRASE = re.compile(
    r"\b(?:got|given|received|provided|supplied|entered|tried|was)[^\w\r\n]{0,2}:[ ]"
    r"(?P<secret>[^\s:=\"'()]{3,40}+(?:[ ][^\s:=\"'()]{3,40}+){1,3}+)\Z"
)
_FAULTS = frozenset(
    "short long weak common simple wrong bad incorrect compromised breached pwned guessable".split()
)
"""Words for what is wrong with a value."""
_FAULTY = re.compile(r"[A-Za-z][\w.!@#$%^&*+~-]{3,100}+")
_BRIEF = re.compile(r"\btoo short: (?P<secret>(?![0-9]{1,2}\b|min)[^\s:=\"'()<>]{1,4})\Z")
"""What is too short to differ from a word, behind the words that state it."""
_REASONS = frozenset(
    """
    policy lockout locked timeout minimum maximum complexity history dictionary reused account
    length unauthorized forbidden retry retrying again failed denied
    """.split()
)
"""Words behind them that are no value."""
_LAST = re.compile(r":[ ]([A-Za-z]{4,60}+)[.!]?\Z")
"""Letters at the end of a line."""
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PATH = re.compile(r"[/:]")
_LINK = re.compile(
    r"(?i)(?:\b(?:value|values|is|was|be|to|from|got|given|provided|supplied|received|entered|input"
    r"|sent|using|equals?|want|computed|tried|attempt|attempted|rejected|expected|as|matches|and|or|with|than|not|are|ist|lautet|est|es|er|är|это|now)"
    r"[ ,:=]{1,3}(?:string[ ])?<?|[:=][ ]{0,2}<?|\()\Z"
)
_OTHER = re.compile(
    r"(?i)\b(?:user|users|username|host|hostname|file|path|column|field|table|database|role"
    r"|realm|account"
    r"|order|job|build|commit|profile|release|server|client|id|uid|request|trace|status|code|line|version|type|at|by|in|on"
    r"|mode|algorithm"
    r"|module|url|uri|key|service|app|argument|attribute|parameter|option|pattern|regex|permitted|class|placeholder|label|role)"
    r"[ _]?(?:id)?[\"']?[:= ]{1,3}(?:[A-Z]\w{0,20}+\()?\Z"
)
_DIRECT = re.compile(
    r"[\"'`]?(?:[ ]?<[A-Z_]{1,40}>)?[\"'`]?[ ]{1,2}(?:[-\u2013\u2014][ ])?[(<>*]?"
    r"(?:(?:no|nr|number|id|value)[. :]{1,2})?\Z"
)
_STRUCTURE = re.compile(
    r"[{}|&]|\\(?![\"'])|[\"'],[ ]?[\"']|[\"']:[ ]?[\"'{\[]|(?<!value)(?<!given)(?<!input)="
)
"""What stands in data, not in sentences."""
_PLURAL = re.compile(
    r"(?i)\bpasswords?[: ]{1,2}(?=[\"']([^\"'\r\n]{3,100}+)[\"'],[ ](?:and[ ]|or[ ])?"
    r"[\"'][^\"'\r\n]{3,100}[\"'](?![ ]?[:=]))"
)
_WITHOUT_SPACES = re.compile(
    r"(?:密码|密碼|口令|パスワード|비밀번호)[は是为為가는이\uff1a:=\x20]{0,3}[“「『\"'\u2018]"
    r"([^”」』\"'\u2019\r\n]{2,100}+)[”」』\"'\u2019]"
)
_KEY_IS = re.compile(r"[ ]['\"]?|[ ]?(?:was|is)?[: ]{1,2}['\"]?")
_HEX = re.compile(r"[0-9a-fA-F]+")
_KEY_LENGTHS = (32, 48, 64, 96, 128)
"""Of a key in hexadecimal digits; a fingerprint has 16 or 40."""
_PRINT = re.compile(
    r"(?:SHA256|SHA512|MD5):|id_[a-z]|(?:0x)?(?:[0-9A-F]{8}|[0-9A-F]{16}|[0-9A-F]{40})(?!\w)"
)
"""How a message names a key: by its fingerprint or its file."""
_CODE = re.compile(r"[0-9][0-9-]{2,54}[0-9]")
_CHANGE = re.compile(
    r"[ ](?:from[ ](\S{3,100}+)[ ]to[ ](\S{3,100}+)"
    r"|(?P<old>[^\s()\[\]{},;:]{3,100}+)[ ](?:->|\u2192)[ ](?P<new>[^\s()\[\]{},;:]{3,100}+))"
)
_SURE = _NOUNS.replace("|(?P<key>keys?)", "")
_BEFORE = re.compile(
    rf"""(?i)(?<![\w"'`])(?:(["'`])(?P<quoted>[^"'`\r\n]{{3,200}}+)\1|(?P<word>[^\s"'`]{{8,400}}+))
    [ ](?:(?:is|was|isn't|of|for|as|does|did|into|expected)(?:[ ][\w'-]{{1,20}}+){{0,5}}?)
    [ ]["'`<]?[\w.$-]{{0,40}}?{_SURE}(?![\w.$(/])""",
    re.VERBOSE,
)
_READ_OUT = re.compile(  # 123456 is your login code; your code: 123456
    r"""(?i)(?<![\w.,:-])(?:[A-Z]-)?(?P<before>[0-9]{4,8}|[0-9]{3}[ -][0-9]{3})
    [ ](?:is|as)[ ](?:your|the)(?:[ ][\w-]{1,20}+){0,3}?[ ](?:code|pin|otp|tan|passcode)\b
    |\b(?:your|enter|use)[ ](?:the[ ])?code(?:[ ]is)?:?[ ]
    (?P<behind>[0-9]{5,8}|[0-9]{3}[ -][0-9]{3})(?![\w:-]|\.\w)""",
    re.VERBOSE,
)


def in_sentences(text: str, lowered: str, mentions: list[Span]) -> Iterator[Span]:
    """Where secrets stand in prose."""
    nouns = list(_nouns(lowered, mentions))
    for number, noun in enumerate(nouns):
        last = noun.end() + _REACH
        for place in range(number + 1, len(nouns)):
            other = nouns[place]
            if other.lastgroup != "key" or other.end() >= last:
                last = min(last, other.start())
                break
        before = text[max(0, noun.start() - 24) : noun.start()]
        if noun.lastgroup not in ("token", "key") or _NO_SECRET.search(before) is None:
            yield from _after(text, noun, min(last, len(text)))


def _nouns(lowered: str, mentions: list[Span]) -> Iterator[re.Match[str]]:
    """The words for secrets; each is mentioned, some with words before or behind."""
    done = 0
    for start, end in mentions:
        at = max(done, start - _LEAD)
        while (found := _NOUN.search(lowered, at, end + _REST)) is not None:
            noun = _NOUN.match(lowered, found.start())  # what is behind it counts
            done = at = found.end() if noun is None else noun.end()
            if noun is not None:
                yield noun


_LEAD = 32
_REST = 4


def _after(text: str, noun: re.Match[str], end: int) -> Iterator[Span]:
    """What a sentence quotes, or ends with, after the word for it."""
    start = noun.end()
    data = _STRUCTURE.search(text, start, end)
    if data is not None:
        end = data.start()
    for quoted in _QUOTED.finditer(text, start, end):
        place = quoted.lastindex or 0
        between = text[start : quoted.start()]
        is_judged = _is_judged(text, noun, between, quoted)
        if is_judged or _is_meant(between, noun, quoted[place], is_quoted=True):
            yield quoted.span(place)
            yield from _compared(text, noun, quoted.end())
    for group in _BRACKETED.finditer(text, start, end) if " " in text[start:end] else ():
        if all(is_random(word, 5) for word in group[1].split(" ")):
            yield group.span(1)
    line = text.find("\n", start, end)
    found = -1
    for part in _WORD.finditer(text, start, end if line < 0 else line):
        word = _WORD.match(text, part.start()) or part
        written = without_stop(word[0])
        is_next = found >= 0 and _AND.fullmatch(text, found, word.start()) is not None
        if (is_next and _is_such(noun, "", written)) or _is_meant(
            text[start : word.start()], noun, written, is_quoted=False
        ):
            found = word.start() + len(written)
            yield word.start(), found
    stop = end if line < 0 else line
    yield from _below(text, noun, start, line)
    if noun.lastgroup == "code":
        yield from _grouped(text, start, stop)
    elif noun.lastgroup != "key" and text.find(": ", start, stop) >= 0:
        yield from _final(text, start, stop, is_any=noun.lastgroup == "password")
        if noun[0].endswith("key"):
            yield from _provided(text, start, stop)


def _is_judged(text: str, noun: re.Match[str], between: str, quoted: re.Match[str]) -> bool:
    """Whether the sentence judges what it quotes as a secret: `secret 'x' does not match`.

    A name is found or missing, a word of a program unexpected: those are no secrets.
    """
    written = quoted[quoted.lastindex or 0]
    if noun.lastgroup != "token" or noun[0] in _NEVER_JUDGED:
        return False
    if is_plain(written, noun[0], is_quoted=True) or is_prose(written):
        return False
    if _DIRECT.fullmatch(between) is None:
        is_length = "token" not in noun[0] or _LENGTH.search(between) is not None
        return is_length and _RECEIVED.search(between) is not None
    before = text[max(0, noun.start() - 12) : noun.start()].lower()
    if noun[0].endswith(("key", "keys")) and before.endswith(_WRONG):
        return True
    if _DEMANDED.match(text, quoted.end()) and not noun[0].startswith("token"):
        return True
    is_known = before.endswith(_SORTS) and _UNKNOWN.match(text, quoted.end()) is not None
    return is_known or bool(noun["cipher"]) or _JUDGED.match(text, quoted.end()) is not None


_WRONG = ("invalid ", "wrong ", "bad ", "with ", "incorrect ", "verify ")
_SORTS = ("refresh ", "access ", "session ", "bearer ", "auth ", "api ", "csrf ", "personal ")
_UNKNOWN = re.compile(r",? (?:is |was )?(?:not )?(?:un)?(?:known|recogni[sz]ed|found)\b")
_DEMANDED = re.compile(
    r" (?:must|should|may|can)(?:not| not)? (?:be|contain|have|end|start|begin)\b"
)
_NEVER_JUDGED = ("session", "signature", "cookie", "cookies", "jwt", "hmac", "bearer")
_LENGTH = re.compile(r"\b(?:must|characters?|chars|bytes|digits|length)\b")
_RECEIVED = re.compile(r"\b(?:got|given|received|provided|supplied|was|is)[: ]{1,2}\Z")
_JUDGED = re.compile(
    r"""(?i),?[ ](?:(?:is|was|are|were|has|have)[ ](?:been[ ])?)?
    (?:no[ ]longer[ ]|not[ ]|an?[ ])?(?:an?[ ])?
    (?:(?:in)?valid|wrong|(?:in)?correct|too[ ](?:short|long|weak|common|simple)|malformed|rejected
      |accepted|revoked|expired|compromised|leaked|disabled|mismatch|unauthori[sz]ed
      |(?:the[ ])?(?:in|wrong|bad)[ ]?(?:format|length)|ung[üu]ltig|falsch)\b
    |,?[ ](?:does|did|do)(?:[ ]not|n't)[ ](?:match|verify|work|decrypt|authenticate)
    |:[ ](?:unknown|invalid|bad|wrong)[ ](?:issuer|audience|signature|client|tenant)\b
    |[ ]ist[ ](?:ung|fal|abg)""",
    re.VERBOSE,
)


def _compared(text: str, noun: re.Match[str], at: int) -> Iterator[Span]:
    """The passwords that a sentence compares with the first one, or lists behind it."""
    while noun.lastgroup == "password" and (other := _ANOTHER.match(text, at)) is not None:
        at = other.end()
        yield other.span(1)


_ANOTHER = re.compile(
    r"""(?:[ ]?[!=<>]{1,3}[ ]|,?[ ](?:(?:and|or|vs\.?|versus|not|but|got|was|is|actual(?:ly)?
      |expected|instead[ ]of|than|to|does[ ]not[ ](?:match|equal)|differs[ ]from|the|confirmation
      |repeated|it|one|found):?[ ]){1,4}|,[ ])
    [\"'`“\u2018]([^\"'`”\u2019\r\n]{3,100}+)[\"'`”\u2019]""",
    re.VERBOSE,
)


def _below(text: str, noun: re.Match[str], start: int, line: int) -> Iterator[Span]:
    """What stands in the lines below a sentence that ends with a colon."""
    below = _BELOW.match(text, line) if _announces(text, start, line) else None
    while below is not None and _is_such(noun, " ", below[1]):
        yield below.span(1)
        below = _BELOW.match(text, below.end(1))


def _announces(text: str, start: int, line: int) -> bool:
    """Whether a line ends so that what it is about stands below."""
    return line >= 0 and _ANNOUNCING.search(text[max(start, line - 8) : line]) is not None


_ANNOUNCING = re.compile(r"(?::|[ ](?:is|to|was))[ \t\r]{0,3}\Z")


def _grouped(text: str, start: int, stop: int) -> Iterator[Span]:
    """The digits of a code, in groups."""
    for group in _GROUPS.finditer(text, start, stop):
        if _LINK.search(text[start : group.start()][-24:]) is not None:
            yield group.span()


def _final(text: str, start: int, stop: int, *, is_any: bool) -> Iterator[Span]:
    """What stands at the end of a line, perhaps with signs that would end a word elsewhere."""
    final = _FINAL.search(text, max(start, stop - 128), stop) if is_any else None
    if final is not None and _is_final(final["before"].lower(), final["secret"]):
        yield final.span("secret")
    phrase = _FINAL_PHRASE.search(text, max(start, stop - 128), stop) if is_any else None
    if phrase is not None and not is_prose(phrase["secret"]):
        yield phrase.span("secret")
    brief = _BRIEF.search(text, max(start, stop - 40), stop) if is_any else None
    if brief is not None and not is_plain(brief["secret"], "", is_quoted=False):
        yield brief.span("secret")
    last = _LAST.search(text, start, stop)
    if last is not None and is_odd(last[1]):
        yield last.span(1)


def _provided(text: str, start: int, stop: int) -> Iterator[Span]:
    """A key that ends a line, if the word before it is one for what was given."""
    final = _FINAL.search(text, max(start, stop - 128), stop)
    if final is not None and final["before"].lower() in _GOT:
        written = without_stop(final["secret"])
        if is_random(written, is_named=True):
            yield final.start("secret"), final.start("secret") + len(written)


def _is_final(before: str, written: str) -> bool:
    """Whether the end of a sentence about a password is one."""
    if is_plain(written, "", is_quoted=False) or is_plain(written, "", is_quoted=True):
        return False
    if is_dense(written) or before in _GOT:
        return True
    if before in _FAULTS and _FAULTY.fullmatch(written):
        return written.lower() not in _REASONS
    is_mixed = _LETTER.search(written) is not None and is_random(written, 5, is_named=True)
    return is_mixed and before not in _NOT_FINAL


_LETTER = re.compile(r"[A-Za-z]")


def _is_meant(between: str, noun: re.Match[str], written: str, *, is_quoted: bool) -> bool:
    """Whether this is the secret that the sentence is about."""
    is_direct = _DIRECT.fullmatch(between) is not None
    tail = between[-24:]
    if not is_direct and (_LINK.search(tail) is None or _OTHER.search(tail) is not None):
        return False
    if is_plain(written, noun[0], is_quoted=is_quoted):
        return False
    if noun.lastgroup == "password" and is_quoted:
        words = written.split()
        is_value = is_direct or len(words) == 1 or any(is_random(word, 5) for word in words)
        return is_value or (len(words) < 6 and not is_prose(written))
    return _is_such(noun, between, written)


def _is_such(noun: re.Match[str], between: str, written: str) -> bool:
    """Whether a secret of that sort is written so."""
    kind = noun.lastgroup
    if noun[0] == "session" and _UUID.fullmatch(written):
        return False
    if noun["cipher"] and _PRINT.match(written):
        return False
    if kind == "code":
        is_word = noun[0].endswith(("word", "words"))
        return _CODE.fullmatch(written) is not None or is_random(written, is_named=is_word)
    if kind == "key":
        is_key = is_dense(written) if len(written) > 15 else False
        is_key = is_key or (_HEX.fullmatch(written) is not None and len(written) in _KEY_LENGTHS)
        return is_key and _KEY_IS.fullmatch(between) is not None and _PATH.search(written) is None
    if "/" in written and not is_dense(written):
        return False
    return is_random(written, 6 if kind == "password" else 8, is_named=kind == "password")


def _is_token(written: str, least: int) -> bool:
    """Whether it looks like a token also if no quotes are around it."""
    is_hex = _HEX.fullmatch(written) is not None and len(written) >= 4 * least
    return is_dense(written) or is_hex


def around_words(text: str, lowered: str) -> Iterator[Span]:
    """What stands before the word for it, and what was changed from one to another."""
    for found in _CHANGE.finditer(text) if _has_change(lowered) else ():
        before = lowered[max(0, found.start() - 60) : found.start()]
        noun = _NOUN.search(before)
        if noun is None or (found["old"] and (noun.end() < len(before) or noun["key"])):
            continue
        old, new = (1, 2) if found["old"] is None else (3, 4)
        if is_random(found[old]) or is_random(found[new]):
            yield from (found.span(old), found.span(new))
    for found in _WITHOUT_SPACES.finditer(text) if not text.isascii() else ():
        yield found.span(1)
    for found in (
        _PLURAL.finditer(text) if 'passwords "' in lowered or "passwords '" in lowered else ()
    ):
        yield found.span(1)
        at = found.end(1) + 1
        while (other := _ANOTHER.match(text, at)) is not None:
            at = other.end()
            yield other.span(1)
    for found in _READ_OUT.finditer(text) if "code" in lowered or " your " in lowered else ():
        yield found.span(found.lastgroup or "")
    for found in _GRANTED.finditer(text) if "code" in lowered and _has_grant(lowered) else ():
        if is_dense(found[1]) or is_key(found[1]):
            yield found.span(1)
    for found in _BEFORE.finditer(text) if _LINKS.search(lowered) is not None else ():
        place = "quoted" if found["quoted"] else "word"
        is_password = place == "quoted" and (
            found["password"] is not None or _KEY_BEHIND.search(found[0]) is not None
        )
        is_token = is_random if place == "quoted" else _is_token
        is_secret = is_password or is_token(found[place], 8)
        before = text[max(0, found.start() - 24) : found.start()]
        if _OTHER.search(before) and not (is_password and before.lower().endswith("key ")):
            continue
        if is_secret and not is_plain(found[place], "", is_quoted=False):
            yield found.span(place)


_KEY_BEHIND = re.compile(
    r"(?i)(?:valid|wrong|correct|acceptable|rejected|as)[ ](?:an?[ ]|the[ ])?(?:[\w-]{1,20}[ ])?"
    r"(?:(?:api|access|secret|private|signing|encryption|license|master|auth)[ _-]?keys?|secret"
    r"|credentials?)\Z"
)
_GRANTED = re.compile(r"(?i)\bcode[ ][\"'(]?([\w~%+=-]{12,200}+)")


_LINKS = re.compile(r" (?:i(?:s|nto)|was|of|for|as|d(?:oes|id)|expected)\b")


def _has_change(lowered: str) -> bool:
    """Whether something may have been changed to something else."""
    return " from " in lowered or " -> " in lowered or " \u2192 " in lowered


def _has_grant(lowered: str) -> bool:
    """Whether the text is about the code of an OAuth grant."""
    return "oauth" in lowered or "grant" in lowered or "openid" in lowered
