"""What stands around a secret and its name: inner records, words in brackets, a call, an echo."""

import pytest

from mainstay.core.redact.redactor import Redactor

FOUND = {
    # an inner record between a name and its value
    "E { property: 'password', constraints: { minLength: 'short' }, value: 'marigold' }": (
        "E { property: 'password', constraints: { minLength: 'short' }, value: '[redacted]' }"
    ),
    "{ property: 'password', rules: { isString: 'y' }, children: [], value: 'marigold' }": (
        "{ property: 'password', rules: { isString: 'y' }, children: [], value: '[redacted]' }"
    ),
    '{"field": "password", "rules": {"min": {"of": 12}}, "value": "marigold"}': (
        '{"field": "password", "rules": {"min": {"of": 12}}, "value": "[redacted]"}'
    ),
    "property: password\n  constraints: {minLength: 8}\n  value: marigold": (
        "property: password\n  constraints: {minLength: 8}\n  value: [redacted]"
    ),
    # any words in brackets between a name and what looks random
    "+ api_secret (sensitive) PI3f4F9ObkQhAsYf": "+ api_secret (sensitive) [redacted]",
    "+ api_secret (sensitive value) PI3f4F9ObkQhAsYf": "+ api_secret (sensitive value) [redacted]",
    "db_password (prod) PI3f4F9ObkQhAsYf": "db_password (prod) [redacted]",
    "api_secret [sensitive] PI3f4F9ObkQhAsYf": "api_secret [sensitive] [redacted]",
    "client_secret {masked} PI3f4F9ObkQhAsYf": "client_secret {masked} [redacted]",
    # whatever is called of a secret
    'stripe.api_key.replace("tmJhXnSOSdJ0LnE6uln")': 'stripe.api_key.replace("[redacted]")',
    'api_key.replace("tmJhXnSOSdJ0LnE6uln", "")': 'api_key.replace("[redacted]", "")',
    'self.api_key.set("tmJhXnSOSdJ0LnE6uln")': 'self.api_key.set("[redacted]")',
    'api_key.should.equal("tmJhXnSOSdJ0LnE6uln")': 'api_key.should.equal("[redacted]")',
    # a value that the text repeats, though it reads like a word
    "password=luna_badger rejected: unknown word luna_badger": (
        "password=[redacted] rejected: unknown word [redacted]"
    ),
    "password=lunabadger; no word: lunabadger.": "password=[redacted]; no word: [redacted].",
    "password=lunabadger; lunabadgers, luna-lunabadger": (
        "password=[redacted]; lunabadgers, luna-lunabadger"
    ),
    "pg://postgres:postgres@db/postgres": "pg://postgres:[redacted]@db/postgres",
    "password=marina; unknown word marina": "password=[redacted]; unknown word marina",
    # what is taken if a look-up of the name finds nothing
    'ENV["SMTP_PASSWORD"] || "otter-garden"': 'ENV["SMTP_PASSWORD"] || "[redacted]"',
    '$_ENV["DB_PASSWORD"] ?? "otter-garden"': '$_ENV["DB_PASSWORD"] ?? "[redacted]"',
    'opts.fetch(:password) || "otter"': 'opts.fetch(:password) || "[redacted]"',
    'ENV.fetch("X_PASSWORD") { "otter-garden" }': 'ENV.fetch("X_PASSWORD") { "[redacted]" }',
    'ENV.fetch("X_PASSWORD") do "otter-garden" end': 'ENV.fetch("X_PASSWORD") do "[redacted]" end',
    'env::var("X_PASSWORD").unwrap_or_else(|_| "otter-garden".into())': (
        'env::var("X_PASSWORD").unwrap_or_else(|_| "[redacted]".into())'
    ),
    # a conversion of the text
    'password := strings.TrimSpace("otter66")': 'password := strings.TrimSpace("[redacted]")',
    'password = trim("marigold")': 'password = trim("[redacted]")',
    'password = String.valueOf("otter-garden")': 'password = String.valueOf("[redacted]")',
    'password = url.QueryEscape("marigold")': 'password = url.QueryEscape("[redacted]")',
    # an owner of several words, and a verb
    "API key for the billing service: S3Ls2RuzKO3qg": "API key for the billing service: [redacted]",
    "password for the old database server: otter-garden7": (
        "password for the old database server: [redacted]"
    ),
    "Your temporary password is: willownuage": "Your temporary password is: [redacted]",
    "Ihr Passwort lautet: willownuage": "Ihr Passwort lautet: [redacted]",
    "the password for ann is: willownuage": "the password for ann is: [redacted]",
}
KEPT = (
    '{"field": "password", "rules": {"min": 12}}, {"field": "user", "value": "marigold"}',
    '{"field": "user", "rules": {"field": "password"}, "value": "marigold"}',
    '[{"name": "password"}, {"value": "marigold"}]',
    'token.replace("Bearer ", "")',
    'password.replace("a-z", "")',
    "user.password = hash_password(password, rounds=12)",
    "user.password = hash_password(password, rounds: 12)",
    "set_password(password, min_length = 8)",
    "export type Credentials = { accessKeyId: string; secretAccessKey: string };",
    "Credentials = { readonly user: string; password?: string | null }",
    'password = password.encode("latin1")',
    'if (d["password"] || "marigold" == y)',
    'd["token"] or "else"',
    'password = config.get("marigold")',
    "the password for the billing service: not set",
    "the password is: required",
    "the password is: correct",
    "your password is: too short",
    "the result of password is: expired",
    "your token is: unavailable",
    "type Secrets = { [key: string]: string };",
)


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
@pytest.mark.parametrize(("text", "left"), FOUND.items(), ids=range(len(FOUND)))
def test_a_secret_is_found_whatever_stands_around_it(text, left):
    """And the rest stays."""
    assert Redactor().text(text) == left


@pytest.mark.parametrize("text", KEPT, ids=range(len(KEPT)))
def test_another_record_argument_or_type_is_no_secret(text):
    """It stands beside a secret name, and has a name of its own."""
    assert Redactor().text(text) == text
