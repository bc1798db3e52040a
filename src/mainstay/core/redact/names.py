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
    from collections.abc import Iterable

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
    пароля паролем гасло tlskey sslkey privateexponent privkey communitystring
    пароль 密码 密碼 口令 パスワード 비밀번호 secretaccesskey
    """.split()
)
"""Names that are secret also as the end of a longer one, without case and separators."""

WORDS = frozenset("clave pwd pass pw psw pin cvv cvc otp sig jwt pat cred".split())
"""Short names, secret as a whole word at the end of a name: `db_pass` is, `bypass` is not."""

WEAK = frozenset(
    "pin cvv cvc otp session sid auth signature sig pat csrf xsrf hmac assertion verifier salt "
    "seed cert".split()
)
"""Words at the end of a name whose value must look like a secret."""

BARE = frozenset("pass code key".split())
"""Names that are weak if nothing stands before them: `pass: 12`; `code` and `key` in a query."""

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
    "next page pagination continuation cancel eos bos unk pad sep cls mask".split()
)
"""Words of other things: what follows them is a message, unless it looks like a secret."""

STEMS = (
    "pass", "pw", "psw", "pin", "cvv", "cvc", "otp", "sig", "jwt", "pat", "cred", "secret",
    "token", "bearer", "key", "auth", "cookie", "string", "card", "code", "sess", "sid", "csrf",
    "xsrf", "psk", "phrase", "mnemonic", "kennwort", "geheim", "contrase", "senha", "wachtw",
    "senord", "motdep", "de passe", "has\u0142o", "haslo", "heslo", "salasana", "parola",
    "ifre", "jelsz", "парол", "identif", "hmac", "assertion", "verifier", "salt", "seed",
    "clave", "samlresponse", "ordine", "adgangskode", "passord", "lykilor", "lozinka", "geslo",
    "sandi", "κωδικ", "khẩu", "khau", "zaporka", "parool", "slapta", "parol", "סיסמה",
    "مرور", "عبور", "гасло", "exponent", "privk", "communit", "answer", "crypt(", "sp_", "dockerc",
    "密", "口令", "パスワード", "비밀번호",
)  # fmt: skip
"""One of these is in every text with such a name."""

_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\W\d_A-Za-z]+")
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

    __slots__ = ("_endings", "_known", "_weak", "_words", "search", "stems")

    def __init__(self, own: Iterable[str] = (), *, builtin: bool = True) -> None:
        own = tuple(own)
        self._endings = ENDINGS if builtin else ()
        self._words = frozenset(map(squashed, own)) | (WORDS - WEAK if builtin else frozenset())
        self._weak = WEAK if builtin else frozenset()
        self.stems = (*(STEMS if builtin else ()), *(max(words_of(name), key=len) for name in own))
        self.search = re.compile(_alternatives(sorted(set(self.stems))) or r"(?!)")
        """For the places where such a name may stand, in lower case."""
        self._known: dict[str, str] = {}

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

    def _judged(self, name: str) -> str:
        if "://" in name:
            return ""
        plain = squashed(name)
        if plain in self._words and not (self._weak and plain in BARE):
            return SECRET
        words = words_of(name.rstrip("0123456789_"))
        if self._weak and "for" in words[1:]:
            words = words[: words.index("for", 1)]
        while len(words) > 1 and self._weak and (words[-1] in _BEHIND or words[-1].isdigit()):
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


def squashed(name: str) -> str:
    """A name without case and separators.

    >>> squashed("X-Api_Key")
    'xapikey'
    """
    return _SEPARATORS.sub("", name).lower()


def words_of(name: str) -> list[str]:
    """The words of a name, in lower case, however they are joined."""
    return [word.lower() for word in _WORD.findall(name)]


class OneOf:
    """Whether a text holds one of some words: most texts hold none, and this is all they cost.

    >>> OneOf(["token", "key"]).is_in("no tokens")
    True
    """

    __slots__ = ("_expression",)

    def __init__(self, words: Iterable[str]) -> None:
        self._expression = re.compile(_alternatives(sorted(set(words))) or r"(?!)")

    def is_in(self, text: str) -> bool:
        """Whether one of the words is in the text."""
        return self._expression.search(text) is not None


def _alternatives(words: list[str]) -> str:
    """An expression for any of the words, grouped by how they begin: it is fast."""
    groups: dict[str, list[str]] = {}
    for word in words:
        known = groups.setdefault(word[0], [])
        if not any(word[1:].startswith(each) for each in known):
            known.append(word[1:])
    return "|".join(
        f"{re.escape(first)}(?:{'|'.join(map(re.escape, rest))})" for first, rest in groups.items()
    )
