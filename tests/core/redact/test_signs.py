"""Values that signs or an owner join to a secret name, and what only looks so."""

import pytest

from mainstay.core.redact.redactor import Redactor

SIGNS = (
    *("->", "-->", "==>", "<-", "<<", ">>", "|>", "~=", "::=", ": ->", "=~"),
    *("\u2254", "\u2190", "\u27f5", "\u21a6", "\u2022", "\u2026", "\u2014"),
    *(": <string>", "[string] =", "by lazy {", "'%s'"),
)
VALUES = ("marigold", "otter-garden", "two words", "Hunter2!")
FOUND = {
    '"Password" -> "scala arrow Finch"': '"Password" -> "[redacted]"',
    'Map("password" -> "marigold")': 'Map("password" -> "[redacted]")',
    'token --> "marigold-7"': 'token --> "[redacted]"',
    # the owner of a secret
    "senha do banco = marigold": "senha do banco = [redacted]",
    "contraseña de la base = marigold": "contraseña de la base = [redacted]",
    "password for 'ann': 'otter garden'": "password for 'ann': '[redacted]'",
    "password for ann = marigold": "password for ann = [redacted]",
    "password of ann: marigold": "password of ann: [redacted]",
    "password (ann): marigold\nport: 1": "password (ann): [redacted]\nport: 1",
    'token (prod): "tk-otter-7"': 'token (prod): "[redacted]"',
    'token (prod): "tk-otter" \nport: 1': 'token (prod): "[redacted]" \nport: 1',
    "token (prod): 'otter garden'": "token (prod): '[redacted]'",
    "passphrase for key '/home/ann/.ssh/id_rsa' = \"otter garden\"": (
        "passphrase for key '/home/ann/.ssh/id_rsa' = \"[redacted]\""
    ),
    'passphrase for ~/.ssh/id_rsa = "otter garden"': 'passphrase for ~/.ssh/id_rsa = "[redacted]"',
    "password for host 'db:5432': 'otter garden'": "password for host 'db:5432': '[redacted]'",
    'api_key |> "marigold"': 'api_key |> "[redacted]"',
    'accessToken ==> "marigold"': 'accessToken ==> "[redacted]"',
    # a key that someone came with, a file with a space, an element with a path as its name
    "authentication failed with key Xk92pLqZ7": "authentication failed with key [redacted]",
    "login refused using the key Xk92pLqZ7": "login refused using the key [redacted]",
    "db:5432:shop:ann:otter's pond": "db:5432:shop:ann:[redacted]",
    "<Name>/prod/db/password</Name><Value>otter-7</Value>": (
        "<Name>/prod/db/password</Name><Value>[redacted]</Value>"
    ),
    "<Value>otter</Value><Name>/prod/db/password</Name>": (
        "<Value>[redacted]</Value><Name>/prod/db/password</Name>"
    ),
    # shells
    "echo ${DB_PASSWORD-marigold}": "echo ${DB_PASSWORD-[redacted]}",
    "printf -v DB_PASS '%s' 'semi;colon'": "printf -v DB_PASS '%s' '[redacted]'",
    "set -gx DB_PASSWORD Xk92pLqZ": "set -gx DB_PASSWORD [redacted]",
    "set password=windows batch no quotes": "set password=[redacted]",
    "@set password=two words & run": "@set password=[redacted] & run",
    # records, calls, sentences, files
    '{"source":{"pointer":"/data/password"},"input":"otter"}': (
        '{"source":{"pointer":"/data/password"},"input":"[redacted]"}'
    ),
    '{"source":{"pointer":"/password"},"detail":"short","meta":{"value":"otter"}}': (
        '{"source":{"pointer":"/password"},"detail":"short","meta":{"value":"[redacted]"}}'
    ),
    'change_password("ann", "marigold", "otter-garden")': (
        'change_password("ann", "[redacted]", "[redacted]")'
    ),
    'change_password("a", "${OLD}", "marigold")': 'change_password("a", "${OLD}", "[redacted]")',
    '<span class="label">Password</span> <span>marigold</span>': (
        '<span class="label">Password</span> <span>[redacted]</span>'
    ),
    "password: too short: abc": "password: too short: [redacted]",
    "the client secret 'quandong' must not contain spaces": (
        "the client secret '[redacted]' must not contain spaces"
    ),
    'Invalid token "almond-milk": unknown issuer': 'Invalid token "[redacted]": unknown issuer',
    'Just "Bh79Yrzhdy0M" <- lookupEnv "API_TOKEN"': ('Just "[redacted]" <- lookupEnv "API_TOKEN"'),
    "EXECUTE 'ALTER USER x PASSWORD ''otter-garden'''; END": (
        "EXECUTE 'ALTER USER x PASSWORD ''[redacted]'''; END"
    ),
    "[smtp.example.com]:587 ann@example.com:quartz vein": (
        "[smtp.example.com]:587 ann@example.com:[redacted]"
    ),
    'parse "postgres://app:pa#ss wd/9@pg-0:5432/app": bad': (
        'parse "postgres://app:[redacted]@pg-0:5432/app": bad'
    ),
    "Invalid header value b'Bearer aaT4kq9\\n'": "Invalid header value b'Bearer [redacted]\\n'",
    "near \"PASSWORD 'it''s-7-raining'\" while": "near \"PASSWORD '[redacted]'\" while",
    "SELECT pgp_sym_encrypt(card, $$k3y$with space$$)": (
        "SELECT pgp_sym_encrypt(card, $$[redacted]$$)"
    ),
    "pgp_sym_encrypt('x1', $$k3y with space$$)": "pgp_sym_encrypt('[redacted]', $$[redacted]$$)",
    "Your verification code is 803 112. Do not share it.": (
        "Your verification code is [redacted]. Do not share it."
    ),
    'spawn su; send "leek\\r" after "Password: "': (
        'spawn su; send "[redacted]\\r" after "Password: "'
    ),
    "tok_acme_9k7LqZ91mX0vW2tYpR8sN": "[redacted]",
    "key 4be025ff-df3e-4f5a-a442-9429eea033bb:fx": "key [redacted]",
}
KEPT = (
    "first pass=1 second pass=2, total 3",
    'nextToken ==> "identifier"',
    "Enter passphrase for key '/home/ann/.ssh/id_rsa': ",
    "password for key '/home/ann/.ssh/id_rsa': permission denied",
    "authentication failed with key id_ed25519",
    "authenticated using key SHA256:uNiVztksCsDhcc0u9e8BgrJXVGLoqEZZW",
    "login refused with key 4AEE18F83AFDEB23",
    "connected using key 42",
    "db:9999:shop:ann:otter pond",
    "<Name>/prod/password/policy</Name><Value>strict</Value>",
    'password >= "aaaa"',
    'password -> "${DB_PASSWORD}"',
    'password -> "must be set"',
    'password --> "new_password"',
    'token --> "identifier"',
    'change_password("ann", "${OLD}", "${NEW}")',
    "password for ann: unchanged",
    "password for ann: rejected by the server",
    "token for prod: refresh",
    "password for ann = getpass()",
    "password for ann = <hidden>",
    'password for ann: "must be set"',
    "${DB_PASSWORD-changeme} ${PORT-8080}",
    "SET password=%s WHERE id=3",
    '["password", "email", "name"]',
    '[{"pointer":"/password"},{"name":"user","value":"ann"}]',
    "password: too short: 5",
    "password: too short: min 8",
    'token "else" must be followed by a block',
    "a header 'Bearer realm' was sent",
    "your code is 803 112.5 long",
    "LoadCredential=db:/etc/creds/db",
    'exec: "passwd": executable file not found in $PATH',
    "#<Token:0x000055d0c8edb603>",
    'Config { password: None, user: Some("ingrid") }',
    'session = boto3.Session(profile_name="dev")',
    "secrets: inherit",
    "permissions: {id-token: write, contents: read}",
)


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("value", VALUES)
def test_any_sign_joins_a_text_in_quotes_to_its_name(sign, value):
    """Whatever the text reads like: nobody has to list the operators of all languages."""
    assert value not in Redactor().text(f'x password {sign} "{value}"')


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
@pytest.mark.parametrize(("text", "left"), FOUND.items(), ids=range(len(FOUND)))
def test_a_value_is_found_behind_its_owner_or_any_sign(text, left):
    """And the rest stays."""
    assert Redactor().text(text) == left


@pytest.mark.parametrize("text", KEPT, ids=range(len(KEPT)))
def test_a_comparison_a_reason_or_a_list_of_names_stays(text):
    """It has such a sign or owner, and no secret."""
    assert Redactor().text(text) == text
