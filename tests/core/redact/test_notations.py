"""Notations that texts of a second author brought up, each with what stays of it."""

import pytest

from mainstay.core.redact.names import OneOf
from mainstay.core.redact.redactor import Redactor

FOUND = {
    # quoting
    "password=<<EOT\nhunter2\nx\nEOT\nport=1": "password=<<EOT\n[redacted]\nEOT\nport=1",
    'password="first" "second" joined': 'password="[redacted]" "[redacted]" joined',
    "PASSWORD=\"Rest\"'posten' run": "PASSWORD=\"[redacted]\"'[redacted]' run",
    "password=two\\ words next": "password=[redacted] next",
    "near 'password = ''Feld''maus7'' '": "near 'password = ''[redacted]'' '",
    "near 'password = ''Feld''x": "near 'password = ''[redacted]''x",
    "near 'password = ''Feld''x\nb''": "near 'password = ''[redacted]''x\nb''",
    "PASSWORD E'Hoch\\'komma3'": "PASSWORD E'[redacted]'",
    # URLs
    "amqp://ann@corp:K@ff33@mq:5671/v": "amqp://ann@corp:[redacted]@mq:5671/v",
    "mongodb://root:'hoch'@m1:27017/admin": "mongodb://root:[redacted]@m1:27017/admin",
    "http://db/w?u=ann&p=hunter2 401": "http://db/w?u=ann&p=[redacted] 401",
    "http://db/w?p=hunter2&u=ann 401": "http://db/w?p=[redacted]&u=ann 401",
    "jdbc:cubrid:db:33000:shop:dba:hunter2: no": "jdbc:cubrid:db:33000:shop:dba:[redacted]: no",
    "https://host/reset-password/Xk92pLqZ1aBcD3eF": "https://host/reset-password/[redacted]",
    f"https://host/verify/{'9f8e7d6c' * 4}": "https://host/verify/[redacted]",
    # codes
    "curl -d 'code=Xk92pLqZ11' https://idp": "curl -d 'code=[redacted]' https://idp",
    "{'code': 'Xk92pLqZ11', 'grant_type': 'authorization_code'}": (
        "{'code': '[redacted]', 'grant_type': 'authorization_code'}"
    ),
    "your verification code is 904 116": "your verification code is [redacted]",
    "482913 is your login code": "[redacted] is your login code",
    "Enter code 482913 to confirm": "Enter code [redacted] to confirm",
    "PUK: 12345678": "PUK: [redacted]",
    # sentences
    "the password was <hunter22>": "the password was <[redacted]>",
    "a password is generated for root@localhost: k3Rt>vL9#qx;W": (
        "a password is generated for root@localhost: [redacted]"
    ),
    "reset password of ann to hunter2": "reset password of ann to [redacted]",
    "Redis AUTH failed with 'qazwsx99'": "Redis AUTH failed with '[redacted]'",
    "Login OK: [ann/hunter2] (from client ap1)": "Login OK: [ann/[redacted]] (from client ap1)",
    "230-> PASS rihanna96!": "230-> PASS [redacted]",
    "credentials: ann hunter2 wrong": "credentials: [redacted] [redacted] wrong",
    f"seed phrase: {' '.join(['otter'] * 12)}": "seed phrase: [redacted]",
    "password (hasło): zapiekanka": "password (hasło): [redacted]",
    # validation
    'failed for value "hunter2" at path "password"': (
        'failed for value "[redacted]" at path "password"'
    ),
    "no number: 'hunter2' (field password)": "no number: '[redacted]' (field password)",
    "for parameter SecretString, value: 88776655, type: int": (
        "for parameter SecretString, value: [redacted], type: int"
    ),
    '<input name="api_key" id="k" value="ac48"/>': (
        '<input name="api_key" id="k" value="[redacted]"/>'
    ),
    # SQL
    'WHERE "authtoken_token"."key" = \'32c5f3fc09\'': (
        'WHERE "authtoken_token"."key" = \'[redacted]\''
    ),
    "SELECT 1 FROM t WHERE api_tokens.value = '32c5f3fc09'": (
        "SELECT 1 FROM t WHERE api_tokens.value = '[redacted]'"
    ),
    "[Parameters=[@p1='hunter2']] UPDATE [U] SET [Password] = @p1": (
        "[Parameters=[redacted]] UPDATE [U] SET [Password] = @p1"
    ),
    "WHERE token IN ('tiger77lion', 'zebra88lion')": "WHERE token IN ('[redacted]', '[redacted]')",
    # files and programs
    "password: !!binary dGlnZXI3Nw==": "password: !!binary [redacted]",
    '(password . "hunter2")': '(password . "[redacted]")',
    "WIFI:T:WPA;S:x;P:hunter2;;": "WIFI:T:WPA;S:x;P:[redacted];;",
    "db:5432:shop:ann:myLisbon90": "db:5432:shop:ann:[redacted]",
    'userlist.txt: "app" "yxcvbn12"': 'userlist.txt: "app" "[redacted]"',
    "username ann privilege 15 password 0 asdf987615": (
        "username ann privilege 15 password 0 [redacted]"
    ),
    "snmp-server community hunter2 RO": "snmp-server community [redacted] RO",
    "ann:hunter2:1000:1000::/home/ann:/bin/sh": "ann:[redacted]:1000:1000::/home/ann:/bin/sh",
    '"ann" * "hunter2" *': '"ann" * "[redacted]" *',
    "storePassword summer70 keyAlias app": "storePassword [redacted] keyAlias app",
    "odo login https://a:8443 -u ann -p 'Ofen & Herd'": (
        "odo login https://a:8443 -u ann -p [redacted]"
    ),
    'net use Z: \\\\srv\\share "Netz lauf 7"': 'net use Z: \\\\srv\\share "[redacted]"',
    "---- BEGIN SSH2 PRIVATE KEY ----\nP2/56\n---- END SSH2 PRIVATE KEY ---- b": ("[redacted] b"),
    f"base64url.bearer.authorization.k8s.io.{'Xk92' * 5}": (
        "base64url.bearer.authorization.k8s.io.[redacted]"
    ),
}
"""Texts, and what is left of them."""

KEPT = (
    "make test PASS=1",
    "Rechnungsnummer 378383242502858",
    "serviceAccountToken: {path: token, expirationSeconds: 3600}",
    "postgres://${USER}:${PASS}@db/shop, redis://:***@db",
    'curl -u "$USER:$PASS" https://x',
    "grep -n 'token=' app.log",
    "password:  12 bytes",
    "public_key: MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=",
    "https://host/reset-password/how-to-choose-a-password",
    "https://x/?ticket=PROJ-12345",
    "password policy: ENC[AES256_GCM,data]",
    "the verification code of 12 34 digits",
    "WHERE settings.key = 'theme_color'",
    "value 'red' at path 'colour' of the password page",
    "value 'null' at path 'password'",
    "credentials: none found",
    "ALTER USER app PASSWORD EXPIRE",
    'secret "db-token-x7k2p" not found',
    "password (bool, optional): Enable password input. Defaults to False.",
    "from .client_credentials import ClientCredentialsGrant",
    "db-token kubernetes.io/service-account-token 3 12d",
)
"""Texts without a secret."""


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
@pytest.mark.parametrize(("text", "left"), FOUND.items(), ids=range(len(FOUND)))
def test_a_secret_is_found_in_its_notation_and_the_rest_stays(text, left):
    """Each text stands for a way of writing, not for itself."""
    assert Redactor().text(text) == left


@pytest.mark.parametrize("text", KEPT)
def test_what_only_looks_like_such_a_notation_stays(text):
    """Placeholders, counts, public keys, names of things."""
    assert Redactor().text(text) == text


def test_words_that_hold_another_one_need_not_be_looked_for():
    """The shorter one is in every text that has the longer one."""
    words = OneOf(["password", "pass", "key"], is_brief=True)
    assert words.expression.pattern == OneOf(["pass", "key"]).expression.pattern
    assert words.is_in("a password")
    assert not words.is_in("a word")
