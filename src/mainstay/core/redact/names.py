"""Which names are secret: `password`, `apiKey`, `X-API-KEY`, `PGPASSWORD`, and some of one's own.

A name is split into words, so that its spelling does not matter. What it ends with decides
(`db_password` is secret, `password_length` is not), behind words that change nothing
(`password_old`, `token_value`). Some names are secret only if their value looks like one: `pin`,
`session`, `auth`.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SECRET = "secret"  # noqa: S105  a sort of name
"""A name whose value is hidden, whatever it looks like."""

ENDINGS = tuple(
    """
    password passwd passphrase passcode passwordhash passwrd pswd pword secret token bearer
    apikey accesskey accesskeyid secretkey privatekey accountkey masterkey encryptionkey
    signingkey authkey sshkey subscriptionkey functionskey appkey applicationkey hmackey
    deploykey sharedkey sharedaccesskey storagekey clientkey servicekey serviceaccountkey
    licensekey licencekey activationkey presharedkey symmetrickey decryptionkey recoverykey
    unlockkey walletkey wepkey wpakey adminkey integrationkey ingestkey writekey webhookkey
    jwtkey aeskey rsakey cryptkey authorization cookie credential credentials creds
    connectionstring authenticationstring cardnumber creditcard securitycode unlockcode
    recoverycode backupcode verificationcode accesscode authcode authorizationcode devicecode
    mfacode 2facode logincode confirmationcode resetcode activationcode otpcode smscode
    onetimecode pincode codeverifier sessionid sessionkey sessid xamzsignature xgoogsignature
    oauthsignature passwords passphrases secrets apikeys accesskeys secretkeys privatekeys
    cookies recoverycodes backupcodes dbpass userpass rootpass adminpass mysqlpass pgpass
    mailpass smtppass ftppass sshpass sudopass vncpass keypass storepass loginpass bindpass
    ldappass requirepass masterauth bindpw rootpw userpw dbpw adminpw ldappw secretstring
    samlresponse securityanswer secretanswer clavesecreta productkey seedphrase mnemonic psk
    dockerconfigjson passwort kennwort geheimnis zugangscode contrasena contraseña senha
    wachtwoord lösenord losenord motdepasse hasło haslo heslo salasana parola şifre sifre jelszó
    jelszo paroladordine palavrapasse adgangskode passord lykilorð lozinka geslo parolă katasandi
    sandi κωδικός mậtkhẩu matkhau zaporka parool slaptažodis סיסמה كلمةالمرور کلمهعبور
    authtok vpnpass proxypass certpass authpass apipass wifipass httppass hostpass apppass svnpass
    usrpwd userpwd dbpwd rootpwd adminpwd passkey secretkeybase oobcode validationkey
    machinekey cipherkey vaultkey unsealkey serverkey instrumentationkey pairingcode
    zugangsdaten kodeord contrasinal wagwoord mdp парола
    пароля паролем гасло privateexponent privkey communitystring
    rpcauth rediscliauth invitecode invitationcode wifikey plaintextkey rememberme sonarlogin
    пароль 密码 密碼 口令 パスワード 비밀번호 secretaccesskey
    """.split()
)
"""Names that are secret also as the end of a longer one, without case and separators."""

WORDS = frozenset("clave pwd pass pw psw pin cvv cvc otp sig jwt pat cred".split())
"""Short names, secret as a whole word at the end of a name: `db_pass` is, `bypass` is not."""

WEAK = frozenset(
    "pin puk pepper cvv cvc otp totp hotp session sid auth signature sig pat csrf xsrf hmac "
    "assertion verifier salt seed cert jwt community sk encrypt".split()
)
"""Words at the end of a name whose value must look like a secret."""

BARE = frozenset("pass code key ticket".split())
"""Names that are weak if nothing stands before them: `pass: 12`; the others in a query."""

KEY = "named key"
"""A name that ends with `key` behind a word that no other key has: its value must look like one."""

_OTHER_KEYS = frozenset(
    """
    primary foreign public cache partition sort sorting routing route idempotency object host group
    message msg i18n translation hash row index dict map mapping config registry lookup unique
    natural composite candidate surrogate s3 redis memcached dedup dedupe deduplication pub verify
    publishable site gpg pgp fingerprint kms binding shard range join merge order record document
    doc item entity event topic kafka metric counter lock mutex query search filter facet react list
    node tree data field column attr attribute property prop param parameter header meta metadata
    label tag env variable resource bucket file path blob upload download build artifact bundle
    asset image layer digest content block chunk etag checksum version commit git zone dns cursor
    page pagination arrow up down left right enter escape tab shift ctrl control alt function fn
    hot shortcut keyboard any press home end delete space business tenant customer user account
    parent child root top first last next prev previous the a this each no duplicate missing
    socket distribution dist clustering cluster consistency rowset
    """.split()
)
"""Words before `key` in names of what is no secret."""

IN_QUERY = BARE - {"pass"}
"""Names that count only as parameters of a URL or fields of a form."""

_BEHIND = frozenset(
    """
    old new prev previous current confirm confirmation confirmed repeat repeated again retype
    hash hashed digest value text plain plaintext clear cleartext data raw b64 base64 enc
    encrypted prod dev test staging live primary secondary default backup base db database mysql
    postgres redis smtp mail root admin app v ver eu us uk de ap qa uat ci stage local sandbox
    preprod production development int internal external legacy active temp tmp temporary main
    master replica reader writer ro rw read write env var is str string bytes encoded decoded
    hex json
    """.split()
)
"""Words behind a name that do not change what it is."""

_ADJECTIVES = frozenset(
    "invalid expired bad missing wrong unknown error exception unexpected unsupported existing "
    "next page pagination continuation cancel cancellation eos bos unk pad sep cls mask".split()
)
"""Words of other things: what follows them is a message, unless it looks like a secret."""

STEMS = (
    "pass", "pw", "psw", "pin", "cvv", "cvc", "otp", "sig", "jwt", "pat", "cred", "secret",
    "_sk", "encrypt", "rememberm", "sonar", "puk", "pepper",
    "zugangs", "kodeord", "contrasi", "wagwoord", "mdp",
    "ticket", "token", "bearer", "key", "auth", "cookie", "string", "card", "code", "sess",
    "sid", "csrf", "xsrf", "psk", "phrase", "mnemonic", "kennwort", "geheim", "contrase", "senha",
    "wachtw",
    "senord", "motdep", "de passe", "has\u0142o", "haslo", "heslo", "salasana", "parola",
    "ifre", "jelsz", "парол", "identif", "hmac", "assertion", "verifier", "salt", "seed",
    "clave", "samlresponse", "ordine", "adgangskode", "passord", "lykilor", "lozinka", "geslo",
    "sandi", "κωδικ", "khẩu", "khau", "zaporka", "parool", "slapta", "parol", "סיסמה",
    "مرور", "عبور", "гасло", "exponent", "privk", "communit", "answer", "crypt(", "sp_", "dockerc",
    "密", "口令", "パスワード", "비밀번호",
)  # fmt: skip
"""One of these is in every text with such a name."""

_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\W\d_A-Za-z]+")
_REST = re.compile(r"[\w$-]*+(?:\.[\w$-]++)*+")
_FOREIGN = re.compile(r"[^\W\x00-\x7f]*+")
SURE = frozenset(
    "password passwords passwd passphrase secret secrets token tokens credential "
    "credentials".split()
)
"""Words that make a secret of what they are a part of, if its value looks like one."""
_WITHOUT_SPACES = re.compile("密码|密碼|口令|パスワード|비밀번호")
"""Names in languages that write a sentence as one word: `密码错误`."""
_SEPARATORS = re.compile(r"[\W_]+")
_MOST_NAMES = 2000
_LONGEST_NAME = 200


class SecretNames:
    """Which names are secret: the usual ones, and some of one's own.

    >>> names = SecretNames(["patient id"])
    >>> [names.is_secret(name) for name in ("dbPassword", "PATIENT_ID", "password_length")]
    [True, True, False]
    >>> [names.kind(name) for name in ("password", "session", "host")]
    ['secret', 'session', '']
    """

    __slots__ = ("_endings", "_known", "_stems", "_sure", "_weak", "_words", "stems")

    def __init__(self, own: Iterable[str] = (), *, builtin: bool = True) -> None:
        own = tuple(own)
        self._endings = ENDINGS if builtin else ()
        self._words = frozenset(map(squashed, own)) | (WORDS - WEAK if builtin else frozenset())
        self._weak = WEAK if builtin else frozenset()
        self.stems = (*(STEMS if builtin else ()), *(max(words_of(name), key=len) for name in own))
        self._stems = OneOf(self.stems) if own or not builtin else _STEMS
        self._known: dict[str, str] = {}
        self._sure: dict[str, bool] = {}

    def is_secret(self, name: str) -> bool:
        """Whether a field of that name holds a secret, whatever its value looks like."""
        return self.kind(name) == SECRET

    def kind(self, name: str) -> str:
        """SECRET, or the word for which the value decides, or nothing."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _MOST_NAMES:
                self._known.clear()
            known = self._known[name] = self._judged(name[-_LONGEST_NAME:])
        return known

    def is_key(self, name: str) -> bool:
        """Whether it may be the name of a key to a service: its value decides.

        >>> [SecretNames().is_key(name) for name in ("OPENCAGE_KEY", "cache_key", "key")]
        [True, False, False]
        """
        if "key" not in name[-8:].lower():
            return False
        last = name[-_LONGEST_NAME:].rpartition(".")[2].rstrip("0123456789_")
        words = words_of(last) if self._weak else []
        return len(words) > 1 and words[-1] in ("key", "keys") and words[-2] not in _OTHER_KEYS

    def mentions(self, text: str, lowered: str) -> list[tuple[int, int]]:
        """Where words stand that are secret names, or a part of one; none: no finder need look.

        >>> SecretNames().mentions("an API key, a path: compass", "an api key, a path: compass")
        [(7, 10)]
        """
        found = []
        done = 0
        for stem in self._stems.expression.finditer(lowered):
            start = stem.start()
            if start < done:
                continue
            while start > done and (text[start - 1].isalnum() or text[start - 1] in "_$.-"):
                start -= 1
            is_foreign = not stem[0].isascii()
            rest = (_FOREIGN if is_foreign else _REST).match(text, stem.end())
            done = stem.end() if rest is None else rest.end()
            if is_foreign or self._is_mentioned(text, start, done):
                found.append((start, done))
        return found

    def _is_mentioned(self, text: str, start: int, end: int) -> bool:
        """Whether the word is a secret name, has one in it, or is one with the words around it."""
        word = text[start:end]
        known = self._sure.get(word)
        if known is None:
            if len(self._sure) >= _MOST_NAMES:
                self._sure.clear()
            words = words_of(word[-_LONGEST_NAME:])
            is_part = bool(self._weak) and (
                not SURE.isdisjoint(words) or words[-1:] in (["key"], ["keys"], ["codes"])
            )
            known = self._sure[word] = is_part or bool(self.kind(word))
        if not known and text.startswith("(", end) and "." in word:
            known = self.kind(without_method(word)) == SECRET
        return known or any(map(self.kind, _phrases(text, start, end)))

    def _judged(self, name: str) -> str:
        if "://" in name:
            return ""
        plain = squashed(name)
        is_whole = plain in self._words and not (self._weak and plain in BARE)
        if is_whole or (self._weak and _WITHOUT_SPACES.search(plain)):
            return SECRET
        words = words_of(name.rstrip("0123456789_"))
        if self._weak and "for" in words[1:]:
            words = words[: words.index("for", 1)]
        plain = "".join(words)
        while len(words) > 1 and self._weak and not plain.endswith(self._endings):
            if words[-1] not in _BEHIND and not words[-1].isdigit():
                break
            words.pop()
            plain = "".join(words)
        if plain.endswith(self._endings):
            return "session" if self._weak and not _ADJECTIVES.isdisjoint(words) else SECRET
        if self._weak and plain in BARE:
            return plain
        for count in range(1, len(words) + 1):
            if "".join(words[-count:]) in self._words:
                return SECRET
        return words[-1] if words and words[-1] in self._weak else ""


def _phrases(text: str, start: int, end: int) -> Iterator[str]:
    """The word with those before it or behind it, as one."""
    word = text[start:end]
    before = text[max(0, start - _AROUND) : start].split(" ")[-3:]
    if len(before) > 1:
        yield f"{before[-2]}{before[-1]}{word}".lower()
        yield f"{''.join(before)}{word}".lower()
    behind = text[end : end + _AROUND].split(" ")[:3]
    if behind[0] == "" and len(behind) > 1:
        yield f"{word}{behind[1]}".lower()
        yield f"{word}{''.join(behind)}".lower()


_AROUND = 42


def squashed(name: str) -> str:
    """A name without case and separators.

    >>> squashed("X-Api_Key")
    'xapikey'
    """
    return _SEPARATORS.sub("", name).lower()


def without_method(name: str) -> str:
    """The object of which something is called.

    >>> without_method("stripe.api_key.replace"), without_method("api_key.should.equal")
    ('stripe.api_key', 'api_key')
    """
    return _METHOD.sub("", name)


_METHOD = re.compile(r"(?:\.(?:to|be|not|is|must|should))*\.[A-Za-z_]\w*\Z")


def words_of(name: str) -> list[str]:
    """The words of a name, in lower case, however they are joined."""
    return [word.lower() for word in _WORD.findall(name)]


class OneOf:
    """Whether a text holds one of some words: most texts hold none, and this is all they cost.

    >>> OneOf(["token", "key"]).is_in("no tokens")
    True
    """

    __slots__ = ("_begins", "_expression", "_is_brief", "_words")

    def __init__(
        self, words: Iterable[str], *, begins: bool = False, is_brief: bool = False
    ) -> None:
        self._words = tuple(words)
        self._begins = begins
        self._is_brief = is_brief  # without words that hold another one, and need not be looked for
        self._expression: re.Pattern[str] | None = None

    @property
    def expression(self) -> re.Pattern[str]:
        """What matches a part of each word; compiled once it is needed, not at import."""
        if self._expression is None:
            words = _brief(self._words) if self._is_brief else self._words
            self._expression = one_of(words, begins=self._begins)
        return self._expression

    def is_in(self, text: str) -> bool:
        """Whether one of the words is in the text."""
        return (self._expression or self.expression).search(text) is not None


def _brief(words: Iterable[str]) -> list[str]:
    """The words that hold no other one: a text with a longer one has its part, too."""
    found: list[str] = []
    for word in sorted(set(words), key=len):
        if not any(other in word for other in found):
            found.append(word)
    return found


def one_of(words: Iterable[str], *, begins: bool = False) -> re.Pattern[str]:
    """An expression that matches a part of each of the words, where the whole word stands.

    It begins with the rarest letter of each word, and looks back for what stands before: a search
    passes over most letters of a text. Common beginnings are read once.

    >>> one_of(["token", "key"]).pattern
    'k(?:e(?:y|n(?<=token)))'
    """
    ends: dict[str, list[str]] = {}
    for word in sorted(set(words)):
        at = max(range(len(word)), key=lambda place: (rarity(word[place]), -place))
        before = "" if at == 0 else f"(?<={re.escape(word)})"
        if begins:  # no letter or digit stands before it
            before += f"(?<![A-Za-z0-9]{re.escape(word)})"
        ends.setdefault(word[at:], []).append(before)
    return re.compile(_alternatives(ends) or r"(?!)")


_FREQUENT = " etaoinsrlhdcu/.m0123456789\n_fpgwyb,\"'=()-:vk"


def rarity(char: str) -> int:
    """How rare a character is in texts.

    >>> rarity("e") < rarity("v") < rarity("Q")
    True
    """
    place = _FREQUENT.find(char)
    return len(_FREQUENT) if place < 0 else place


def _alternatives(ends: dict[str, list[str]]) -> str:
    """The ends of words, each with what must stand before, by their common beginnings."""
    if "" in ends and "" in ends[""]:
        return ""
    groups: dict[str, dict[str, list[str]]] = {}
    for end, before in ends.items():
        if end:
            groups.setdefault(end[0], {})[end[1:]] = before
    parts = []
    for first, rest in groups.items():
        inner = _alternatives(rest)
        is_simple = len(rest) == 1 and "|" not in inner
        parts.append(re.escape(first) + (inner if is_simple else f"(?:{inner})" if inner else ""))
    return "|".join((*ends.get("", ()), *parts))


_STEMS = OneOf(STEMS)
