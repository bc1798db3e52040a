"""Expressions, lines, comparisons and logs that a sixth corpus brought up, with their siblings."""

import pytest

from mainstay.core.redact.redactor import Redactor

FOUND = {
    # types, wrappers and fallbacks
    'val password: Option[String] = Some("otter-Garden-2")': (
        'val password: Option[String] = Some("[redacted]")'
    ),
    'password: Annotated[str, Field(min_length=3)] = "otter"': (
        'password: Annotated[str, Field(min_length=3)] = "[redacted]"'
    ),
    'let password: Option<String> = Some(String::from("otter"));': (
        'let password: Option<String> = Some(String::from("[redacted]"));'
    ),
    'password: str = Field(default="otter garden")': (
        'password: str = Field(default="[redacted]")'
    ),
    'char password[32] = "otter";': ('char password[32] = "[redacted]";'),
    'headers := http.Header{"X-Api-Key": []string{"otter"}}': (
        'headers := http.Header{"X-Api-Key": []string{"[redacted]"}}'
    ),
    'password = os.environ.get("X", "otter garden")': (
        'password = os.environ.get("X", "[redacted]")'
    ),
    'password = ENV["X"] || "otter"': ('password = ENV["X"] || "[redacted]"'),
    'password = ENV.fetch("X") { "otter" }': ('password = ENV.fetch("X") { "[redacted]" }'),
    "password = getenv('X') ?: 'otter';": ("password = getenv('X') ?: '[redacted]';"),
    'password = a ? "otter" : null': ('password = a ? "[redacted]" : null'),
    'password = a ? b : "otter"': ('password = a ? b : "[redacted]"'),
    'password: <%= ENV["X"] || "otter" %>': ('password: <%= ENV["X"] || "[redacted]" %>'),
    'password: {{ env "X" | default "otter" }}': ('password: {{ env "X" | default "[redacted]" }}'),
    "password: \"{{ lookup('env', 'X') | default('otter', true) }}\"": (
        "password: \"{{ lookup('env', 'X') | default('[redacted]', true) }}\""
    ),
    "DB_PASSWORD: !vault Ra3k7ZxLq6Tv": ("DB_PASSWORD: !vault [redacted]"),
    "DB_PASSWORD: !vault |\n  otter": ("DB_PASSWORD: !vault |\n  [redacted]"),
    # lines
    "db:\n  password:\n    otter garden\n  host: db": (
        "db:\n  password:\n    [redacted]\n  host: db"
    ),
    "password: # of the database\n  otter": ("password: # of the database\n  [redacted]"),
    'const password =\n  "otter";': ('const password =\n  "[redacted]";'),
    "api key = otter garden": ("api key = [redacted]"),
    "access token: otter garden": ("access token: [redacted]"),
    "invalid password: otter garden": ("invalid password: [redacted]"),
    "login: ann, password: otter garden": ("login: ann, password: [redacted]"),
    "Server=b;uid=sa;PASSWORD = otter Owl of c33 ;Database=x": (
        "Server=b;uid=sa;PASSWORD = [redacted] ;Database=x"
    ),
    "Server=b;Password=otter garden": ("Server=b;Password=[redacted]"),
    "user: ann pass: otter": ("user: ann pass: [redacted]"),
    "<li>Password: otter garden</li>": ("<li>Password: [redacted]</li>"),
    "password ........ otter": ("password ........ [redacted]"),
    "SetEnv DB_PASSWORD otter": ("SetEnv DB_PASSWORD [redacted]"),
    "proxy_set_header X-Api-Key otter;": ("proxy_set_header X-Api-Key [redacted];"),
    "DefaultPassword    REG_SZ    otter garden": ("DefaultPassword    REG_SZ    [redacted]"),
    'PASSWORD db "otter", 0': ('PASSWORD db "[redacted]", 0'),
    # comparisons and setters
    'if "otter garden" == password:': ('if "[redacted]" == password:'),
    "if 'otter' === user.password": ("if '[redacted]' === user.password"),
    '"otter".equals(user.getPassword())': ('"[redacted]".equals(user.getPassword())'),
    'strcmp("otter", password)': ('strcmp("[redacted]", password)'),
    "'otter' in passwords": ("'[redacted]' in passwords"),
    'password in ("otter", "b")': ('password in ("[redacted]", "b")'),
    "SELECT 1 FROM users WHERE 'otter' = password": (
        "SELECT 1 FROM users WHERE '[redacted]' = password"
    ),
    'MOVE "otter" TO WS-PASSWORD': ('MOVE "[redacted]" TO WS-PASSWORD'),
    'setattr(x, "password", "otter garden")': ('setattr(x, "password", "[redacted]")'),
    'config.set("database", "password", "otter")': (
        'config.set("database", "password", "[redacted]")'
    ),
    'redis.set("user:1:password", "otter")': ('redis.set("user:1:password", "[redacted]")'),
    'page.fill("#password", "otter")': ('page.fill("#password", "[redacted]")'),
    "page.type('input[name=password]', 'otter')": (
        "page.type('input[name=password]', '[redacted]')"
    ),
    'cmd.Parameters.AddWithValue("@password", "otter")': (
        'cmd.Parameters.AddWithValue("@password", "[redacted]")'
    ),
    'db.changeUserPassword("ann", "otter")': ('db.changeUserPassword("ann", "[redacted]")'),
    '[0 10.0.0.5:5] "CONFIG" "SET" "requirepass" "otter!"': (
        '[0 10.0.0.5:5] "CONFIG" "SET" "requirepass" "[redacted]"'
    ),
    'Digest::HMAC_SHA256.hexdigest(data, "Lc4qZ9xKv3Tn")': (
        'Digest::HMAC_SHA256.hexdigest(data, "[redacted]")'
    ),
    # names and values apart
    '{"label": "Password", "text": "otter"}': ('{"label": "Password", "text": "[redacted]"}'),
    '{"title": "API Key", "value": "otter"}': ('{"title": "API Key", "value": "[redacted]"}'),
    '{"prompt": "Password:", "response": "otter"}': (
        '{"prompt": "Password:", "response": "[redacted]"}'
    ),
    '{"text": "otter", "label": "Password"}': ('{"text": "[redacted]", "label": "Password"}'),
    "- name: DB_PASSWORD\n  value: otter garden": ("- name: DB_PASSWORD\n  value: [redacted]"),
    "EnvVar{Name:DB_PASSWORD,Value:otter,ValueFrom:nil}": (
        "EnvVar{Name:DB_PASSWORD,Value:[redacted],ValueFrom:nil}"
    ),
    'output "password" { value = "otter" }': ('output "password" { value = "[redacted]" }'),
    "[credentials]\nann = Liverpool.FC\nhelper = store\nport = 8080": (
        "[credentials]\nann = [redacted]\nhelper = store\nport = 8080"
    ),
    '[passwords]\nroot: "otter garden"': ('[passwords]\nroot: "[redacted]"'),
    "credentials:\n  ann: otter\n  user: bob": ("credentials:\n  ann: [redacted]\n  user: bob"),
    "passwords:\n  - otter\n  - garden": ("passwords:\n  - [redacted]\n  - [redacted]"),
    "password:\n  value: otter": ("password:\n  value: [redacted]"),
    "name  password\nann   otter": ("name  password\nann   [redacted]"),
    "password\n--------\notter\n(1 row)": ("password\n--------\n[redacted]\n(1 row)"),
    "-[ RECORD 1 ]-----\nname     | ann\npassword | otter garden": (
        "-[ RECORD 1 ]-----\nname     | ann\npassword | [redacted]"
    ),
    # SQL
    "INSERT INTO users (name, password) SELECT 'ann', 'otter'": (
        "INSERT INTO users (name, password) SELECT 'ann', '[redacted]'"
    ),
    "insert into users(id, token) select 7, 'otter' from dual": (
        "insert into users(id, token) select 7, '[redacted]' from dual"
    ),
    "INSERT INTO users (name, password) VALUES ROW('ann', 'otter')": (
        "INSERT INTO users (name, password) VALUES ROW('ann', '[redacted]')"
    ),
    "UPDATE users SET (name, password) = ('ann', 'otter') WHERE id = 1": (
        "UPDATE users SET (name, password) = ('ann', '[redacted]') WHERE id = 1"
    ),
    "MERGE INTO u USING (VALUES ('ann', 'otter')) AS s (name, password) ON 1=1": (
        "MERGE INTO u USING (VALUES ('ann', '[redacted]')) AS s (name, password) ON 1=1"
    ),
    "WITH n (name, password) AS (VALUES ('ann', 'otter')) SELECT 1": (
        "WITH n (name, password) AS (VALUES ('ann', '[redacted]')) SELECT 1"
    ),
    "COPY users (name, password) FROM stdin;\nann\totter\nbob\t\\N\n\\.": (
        "COPY users (name, password) FROM stdin;\nann\t[redacted]\nbob\t\\N\n\\."
    ),
    "SELECT pgp_sym_decrypt(data, 'otter') FROM t": (
        "SELECT pgp_sym_decrypt(data, '[redacted]') FROM t"
    ),
    "SELECT * FROM u WHERE token = ANY(ARRAY['otter'])": (
        "SELECT * FROM u WHERE token = ANY(ARRAY['[redacted]'])"
    ),
    "Duplicate entry 'otter' for key 'users.token'": (
        "Duplicate entry '[redacted]' for key 'users.token'"
    ),
    "violated on table U columns (TOKEN) value ('otter')": (
        "violated on table U columns (TOKEN) value ('[redacted]')"
    ),
    "unique index 'IX_Token'. The duplicate key value is (otter).": (
        "unique index 'IX_Token'. The duplicate key value is ([redacted])."
    ),
    'E11000 duplicate key error index: u.$token_1 dup key: { : "otter" }': (
        'E11000 duplicate key error index: u.$token_1 dup key: { : "[redacted]" }'
    ),
    "UPDATE users SET token=? WHERE id=?\\nINFO Engine [generated in 0.1s] ('otter', 12)": (
        "UPDATE users SET token=? WHERE id=?\\nINFO Engine [generated in 0.1s] [redacted]"
    ),
    "('INSERT INTO \"user\" (\"name\", \"password\") VALUES (?, ?)', ['ann', 'otter'])": (
        '(\'INSERT INTO "user" ("name", "password") VALUES (?, ?)\', [redacted])'
    ),
    'db.Exec("UPDATE users SET password = ? WHERE id = ?", "otter", 7)': (
        'db.Exec("UPDATE users SET password = ? WHERE id = ?", "[redacted]", 7)'
    ),
    'INSERT INTO "users" ("name","password") VALUES ($1,$2) ["ann", "otter"]': (
        'INSERT INTO "users" ("name","password") VALUES ($1,$2) [redacted]'
    ),
    'INSERT INTO users (name, password) VALUES (?, ?) {"1":"ann","2":"otter"} []': (
        "INSERT INTO users (name, password) VALUES (?, ?) [redacted] []"
    ),
    "UPDATE users SET password = @p0 WHERE id = @p1;@p0 = 'otter' [Type: String], @p1 = 7": (
        "UPDATE users SET password = @p0 WHERE id = @p1;@p0 = '[redacted]' [Type: String], @p1 = 7"
    ),
    'sql="UPDATE users SET password = $1 WHERE id = $2" args="[otter 7]"': (
        'sql="UPDATE users SET password = $1 WHERE id = $2" args="[redacted]'
    ),
    # messages and protocols
    "'otter!!' is too short Failed validating 'min' in schema['properties']['password']: {}": (
        "'[redacted]' is too short Failed validating 'min' in schema['properties']['password']: {}"
    ),
    "'otter' does not match '^[0-9]+$' in schema['properties']['password']": (
        "'[redacted]' does not match '^[0-9]+$' in schema['properties']['password']"
    ),
    "'otter' is not of type 'integer' (path: password)": (
        "'[redacted]' is not of type 'integer' (path: password)"
    ),
    "'otter' is not a valid choice for password": (
        "'[redacted]' is not a valid choice for password"
    ),
    "The value 'otter' is not valid for Password.": (
        "The value '[redacted]' is not valid for Password."
    ),
    "password: too short: otter": ("password: too short: [redacted]"),
    "password too weak, got: otter garden": ("password too weak, got: [redacted]"),
    "Incorrect API key provided: otter-42.": ("Incorrect API key provided: [redacted]."),
    "the secret is 'otter'": ("the secret is '[redacted]'"),
    "token/Wb8x4QkZm1Ln/refresh was called": ("token/[redacted]/refresh was called"),
    "[redis] AUTH default pW7mZ2xLb30q -> WRONGPASS": (
        "[redis] AUTH default [redacted] -> WRONGPASS"
    ),
    "redis> AUTH otter": ("redis> AUTH [redacted]"),
    "HELLO 3 AUTH default otter": ("HELLO 3 AUTH default [redacted]"),
    "ftp> user ann otter": ("ftp> user ann [redacted]"),
    "PRIVMSG NickServ :IDENTIFY otter": ("PRIVMSG NickServ :IDENTIFY [redacted]"),
    '"ACL" "SETUSER" "ann" "on" ">otter"': ('"ACL" "SETUSER" "ann" "on" "[redacted]"'),
    "Set-Cookie: id=otter1": ("Set-Cookie: [redacted]"),
    # commands
    "poetry config http-basic.x ann otter": ("poetry config http-basic.x ann [redacted]"),
    "poetry config pypi-token.pypi otter": ("poetry config pypi-token.pypi [redacted]"),
    "composer config http-basic.repo.example.org ann otter": (
        "composer config http-basic.repo.example.org ann [redacted]"
    ),
    "bundle config gems.example.com ann:otter": ("bundle config gems.example.com ann:[redacted]"),
    "net use Z: \\\\srv\\share otter /user:ann": ("net use Z: \\\\srv\\share [redacted] /user:ann"),
    "net use Z: \\\\srv\\share /user:ann otter /persistent:no": (
        "net use Z: \\\\srv\\share /user:ann [redacted] /persistent:no"
    ),
    "net user /add ann otter": ("net user /add ann [redacted]"),
    "setenv DB_PASSWORD otter": ("setenv DB_PASSWORD [redacted]"),
    "prog -u ann --pass otter": ("prog -u ann --pass [redacted]"),
    # forms and others
    "--b\nContent-Disposition: form-data; filename=\"x\"; name='secret'\n\notter\n--b--": (
        "--b\nContent-Disposition: form-data; filename=\"x\"; name='secret'\n\n[redacted]\n--b--"
    ),
    '<label for="pw">Password:</label> <span>otter</span>': (
        '<label for="pw">Password:</label> <span>[redacted]</span>'
    ),
    'password = strcat("x", "otter")': ('password = strcat("[redacted]", "[redacted]")'),
    'password = Value("otter")': ('password = Value("[redacted]")'),
    '<<"password">> => <<"otter">>': ('<<"password">> => <<"[redacted]">>'),
    "https://host/reset-password/Xk92pLqZ": ("https://host/reset-password/[redacted]"),
    "passwords:\n  ann: otter!!\n  bob: garden gate": (
        "passwords:\n  ann: [redacted]\n  bob: [redacted]"
    ),
    # what the other half of that corpus had
    "postgres://ann:otter ird p@ss@db:5432/shop": ("postgres://ann:[redacted]@db:5432/shop"),
    "GET /weather?q=Oslo&appid=4aa0107026f1e632d03f19adfc7c7456&units=metric": (
        "GET /weather?q=Oslo&appid=[redacted]&units=metric"
    ),
    "KEYSTORE_PASSPHRASE: otter.train.coming": ("KEYSTORE_PASSPHRASE: [redacted]"),
    "KEYSTORE_PASSPHRASE=otter.train.coming": ("KEYSTORE_PASSPHRASE=[redacted]"),
    "TOTP: 20938471 does not verify": ("TOTP: [redacted] does not verify"),
    "{user=ann, password=silver otter set, host=db}": ("{user=ann, password=[redacted], host=db}"),
    "Driver=x;UID=ann;PWD={br}}otter7};": ("Driver=x;UID=ann;PWD={[redacted]};"),
    '("name", "access_token"), ("value", "otter")': (
        '("name", "access_token"), ("value", "[redacted]")'
    ),
    '"pgbouncer" "otter-Plain14"': ('"pgbouncer" "[redacted]"'),
    "sentinel auth-pass mymaster otter": ("sentinel auth-pass mymaster [redacted]"),
    'CMD ["node","app.js","--token","otter"]': ('CMD ["node","app.js","--token","[redacted]"]'),
    "rejected sk_acme_qBjUsLLvUVFOO6ceAfIN3vQzkfNK6RyE": ("rejected [redacted]"),
}
KEPT = (
    'secret = client.read_secret(name, "latest")',
    'password = getpass.getpass("Enter password: ")',
    "password = shared.get(profile or 'default', name)",
    'token = token or "none"',
    'class Token:\n    """A token of the lexer."""',
    'def read(self) -> Token:\n    """Read it."""',
    "RSAPrivateKey:\n version=0",
    "password:\n  must be set",
    "password:\n  - min: 8",
    "secrets:\n  db_password:\n    file: ./x.txt",
    "secrets:\n  - name: regcred",
    "[credential]\nhelper = store",
    "[secrets]\nbackend = vault\nttl = 3600",
    "db-password  Opaque  1\ndb-url       Opaque  2",
    'if "if" == token:',
    "if 'session' in cookies:",
    '"user" in credentials',
    'fields = ("name", "password", "email")',
    'values_list("id", "password", "email")',
    '{"label": "Password", "text": "Enter your password"}',
    '{"key": "password", "text": "Passwort"}',
    '{"key": "scope", "value": "zones/us-east1-d"}',
    "INSERT INTO users (name, password) SELECT name, password FROM old",
    "INSERT INTO users (name, password) SELECT 'ann', NULL",
    "UPDATE users SET name = ? WHERE id = ? ('ann', 7)",
    "SELECT password FROM users WHERE id = ? (7, 'ann')",
    "restored from key: pip-3.12-8533ec352d11cb20bce905a4f47008d783609a671a71b3d7af2ecaeae7d23006",
    "Successfully installed PyJWT-2.8.0 passlib-1.7.4",
    "password\n  Field required [type=missing, input_value={'user': 'ann'}, input_type=dict]",
    "token 1: IDENT 'foo' at 1:1",
    "DB_PASSWORD: !secret db_password",
    "DB_PASSWORD: !vault db_password",
    "poetry config virtualenvs.create false",
    "bundle config set --local path vendor/bundle",
    "net user ann /active:yes",
    "mysqldump --single-transaction --user=backup --password shop",
    "if card_number[0] == '4':",
    'headers.get("X-Token", "")',
    "password too short: minimum",
    'assert token == "end"',
    'if token == "else": self.parse_else()',
    "password: { type: String, required: true, minlength: 8 }",
    "NSString *password = [self.passwordField text];",
    'document.cookie = "theme=dark; path=/";',
    'password_field :password, class: "form-control"',
    'String pw = new String(console.readPassword("Password: "));',
    'ps = prepare("UPDATE users SET password = ? WHERE id = ?"); ps.setString(1, hash);',
    'if not password: raise ValueError("password is required")',
    'token = "${{ secrets.GITHUB_TOKEN }}"',
    'echo "::add-mask::$TOKEN"',
    "--- PASS: TestTokenRefresh (0.03s)",
    "Passwords: at least 12 characters, one digit, one symbol",
    "DB_PASSWORD = settings.database.password",
    "SECRET_KEY=config.main.key",
)


@pytest.mark.req("NFR-041-29", "AG-02.redacted-logs")
@pytest.mark.parametrize(("text", "left"), FOUND.items(), ids=range(len(FOUND)))
def test_a_word_is_found_where_only_its_place_shows_that_it_is_a_secret(text, left):
    """In an expression, a line of its own, a comparison, a statement, a log, a command."""
    assert Redactor().text(text) == left


@pytest.mark.parametrize("text", KEPT, ids=range(len(KEPT)))
def test_what_has_such_a_place_and_is_no_secret_stays(text):
    """Names, docstrings, settings, messages, columns that are only copied."""
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "SELECT password FROM (VALUES (1, 'a')) AS t (id, name)",
        "INSERT INTO users (name, password) SELECT ",
        "COPY users (name, password) FROM STDIN;\nann\n\\.\n",
        "the password_policy_Xk92LmQp7Zt was applied, passwordless_Xk92LmQp7Zt",
    ],
)
def test_what_has_the_shape_and_no_secret_is_kept(text):
    """Columns of other names, a row that is cut, a word that only begins like a secret's name."""
    assert Redactor().text(text) == text


def test_a_map_ends_where_its_indentation_does():
    """What stands less deep than the name belongs to another."""
    text = "  passwords:\n    ann: Correct7Horse9\n zone: Plain9word1\n"
    assert Redactor().text(text) == text.replace("Correct7Horse9", "[redacted]")


def test_a_value_that_is_not_deeper_is_found_by_its_looks():
    """YAML has it deeper; what looks random is a secret there, too."""
    text = "    password:\n  Correct7Horse9x\n"
    assert Redactor().text(text) == text.replace("Correct7Horse9x", "[redacted]")


@pytest.mark.parametrize("secret", ["q0:/0/7z", "a:/b/c", "s3:/x/7z", "q:/var/7z"])
def test_a_value_with_slashes_is_a_file_only_in_a_folder_that_systems_have(secret):
    """And only without digits: a name, a colon and slashes may be a secret of any alphabet."""
    redactor = Redactor()
    assert redactor.text(f'"api_key": "{secret}"') == '"api_key": "[redacted]"'
    for kept in ('"api_key": "db:/etc/creds/db"', '"api_key": "hash:/run/secrets/api_key"'):
        assert redactor.text(kept) == kept
