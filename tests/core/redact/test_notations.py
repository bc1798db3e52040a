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
    # blocks, sections, changes
    'variable "db_password" {\n  type = string\n  default = "hunter two"\n}': (
        'variable "db_password" {\n  type = string\n  default = "[redacted]"\n}'
    ),
    '{"name": "password", "current": null, "new": "hunter2"}': (
        '{"name": "password", "current": null, "new": "[redacted]"}'
    ),
    "[credentials]\ngit.host = ann:hunter22\nretries = 3\n[other]\na = hunter22": (
        "[credentials]\ngit.host = ann:[redacted]\nretries = 3\n[other]\na = [redacted]"
    ),
    "pswd = hunter two three\nport = 1": "pswd = [redacted]\nport = 1",
    "  JWT_SECRET: hunter two\n": "  JWT_SECRET: [redacted]\n",
    "log: JWT_SECRET: hunter two": "log: JWT_SECRET: [redacted] two",
    "(lp0\nS'password'\np1\nS'Otter1971'\np2": "(lp0\nS'password'\np1\nS'[redacted]'\np2",
    '{user,<<"ann">>,password,<<"otter1971">>}': ('{user,<<"ann">>,password,<<"[redacted]">>}'),
    "Evaluating: secrets.DEPLOY_KEY\n##[debug]=> 'e1GLBIol6NFhl7S5Ss5T4bCe'": (
        "Evaluating: secrets.DEPLOY_KEY\n##[debug]=> '[redacted]'"
    ),
    # sentences
    "passcode 665521 entered": "passcode [redacted] entered",
    "password: too short: abc12": "password: too short: [redacted]",
    "password needs a digit, got: otters": "password needs a digit, got: [redacted]",
    'password refused (tried "Otter78")': 'password refused (tried "[redacted]")',
    "on field 'confirmPassword': rejected value [otter, pond]; codes [a]": (
        "on field 'confirmPassword': rejected value [[redacted]]; codes [a]"
    ),
    "password: value <otter pond> refused": "password: value <[redacted]> refused",
    "password: value 'otter pond' refused": "password: value '[redacted]' refused",
    "'otters' is too short\ninstance['password']:\n    'otters', and otters": (
        "'[redacted]' is too short\ninstance['password']:\n    '[redacted]', and otters"
    ),
    "https://host/verify?a=1&code=839201": "https://host/verify?a=1&code=[redacted]",
    # SQL
    "CREATE USER bob PASSWORD $$otter pond$$": "CREATE USER bob PASSWORD $$[redacted]$$",
    "CREATE USER bob PASSWORD $q$otter$q$;": "CREATE USER bob PASSWORD [redacted]",
    "insert into users (password) values (?)\nbinding parameter [1] as [VARCHAR] - [otter_88]": (
        "insert into users (password) values (?)\nbinding parameter [1] as [VARCHAR] - [redacted]"
    ),
    # the rest
    "shop:ot@ter?@tcp(10.0.0.3:3306)/shop": "shop:[redacted]@tcp(10.0.0.3:3306)/shop",
    "//ann:otter/pond@nas/share mount error": "//ann:[redacted]@nas/share mount error",
    ".pgpass line 2: *:6432:app:ann:otter5\\:pond": ".pgpass line 2: *:6432:app:ann:[redacted]",
    "chap-secrets: ann * Otter1972 *": "chap-secrets: [redacted] * [redacted] *",
    "SSWS 00xieVRGkAUM8vejpEA9hG0fepHI51ml1KoTuvXeJb": "SSWS [redacted]",
    "card 6222 3397 6351 6324 315 refused": "card [redacted] refused",
    # what a third author brought up, and its siblings
    f"Stripe-Signature: t=17100,v1={'9f8e7d6c' * 8}": "Stripe-Signature: [redacted]",
    "password=(otter7 pond8) next": "password=[redacted]) next",
    "ftp open root:Xk92pLqZ@192.168.7.4": "ftp open root:[redacted]@192.168.7.4",
    "rootpw --plaintext Xk92pLqZ": "rootpw --plaintext [redacted]",
    "ldap_default_authtok = Xk92pLqZ": "ldap_default_authtok = [redacted]",
    "device?user_code=CZSN-DJNU&a=1": "device?user_code=[redacted]&a=1",
    f"twilio AC{'2f9e1d55' * 4}:{'c0d21aae' * 4} x": "twilio [redacted] x",
    f"AKIA{'ABCD2345' * 2}:wJalrXUtnFEMI/K7MDENG": "[redacted]",
    f"ingest {'00310f78' * 4}1c58FFFFNRAL": "ingest [redacted]",
    "phpass $P$BzgXjAFE7avXvncg9on0CwQGtUFEUW2 x": "phpass [redacted] x",
    f"ntlm ann:500:{'3c3e8de1' * 4}:{'68e99d1f' * 4}:::": "ntlm ann:500:[redacted]:::",
    f"grub.pbkdf2.sha512.10000.{'50A4' * 16}.{'9F31' * 16}": "[redacted]",
    f"scrypt:32768:8:1$salt${'9f8e7d6c' * 8}": "[redacted]",
    "signtool sign /f c.pfx /p Xk92pLqZ a.exe": "signtool sign /f c.pfx /p [redacted] a.exe",
    "ftp -n h: quote PASS Xk92pLqZ": "ftp -n h: quote PASS [redacted]",
    "beeline -u jdbc:hive2://h -n u -p Xk92pLqZ": "beeline -u jdbc:hive2://h -n u -p [redacted]",
    "./own -p Xk92pLqZ --fast": "./own -p [redacted] --fast",
    "./own -u ann -v -p otter2024 --fast": "./own -u ann -v -p [redacted] --fast",
    "could not login as ann with Xk92pLqZ": "could not login as ann with [redacted]",
    "basic auth with ann and Xk92pLqZ failed": "basic auth with ann and [redacted] failed",
    "secret otter2024! does not match": "secret [redacted] does not match",
    "HMAC mismatch: got Xk92pLqZ want Yk92pLqZ": "HMAC mismatch: got [redacted] want [redacted]",
    "unable to decrypt with key Xk92pLqZ": "unable to decrypt with key [redacted]",
    "密码错误\uff1aotter": "密码错误\uff1a[redacted]",
    "'otters' is not of type 'integer'\n\nFailed validating 'type' in schema['a']['secret']:": (
        "'[redacted]' is not of type 'integer'\n\n"
        "Failed validating 'type' in schema['a']['secret']:"
    ),
    'from String "otters": not valid (through reference chain: User["password"])': (
        'from String "[redacted]": not valid (through reference chain: User["password"])'
    ),
    'parsing "otters": invalid syntax (field Password)': (
        'parsing "[redacted]": invalid syntax (field Password)'
    ),
    "USER     PASSWORD   AGE\nann      otter77    3\nbob": (
        "USER     PASSWORD   AGE\nann      [redacted]    3\nbob"
    ),
    "ann:otter77pond:19000:0:99999:7:::": "ann:[redacted]:19000:0:99999:7:::",
    "[mail.host]:587 ann:otters": "[mail.host]:587 ann:[redacted]",
    "crypto isakmp key otter77 address 0.0.0.0": "crypto isakmp key [redacted] address 0.0.0.0",
    # what a fourth author brought up, and texts that were made up for it
    "config.password = %q(otter7 pond8)": "config.password = %q([redacted])",
    "my $password = qq{otter7 pond8};": "my $password = qq{[redacted]};",
    "IDENTIFIED BY q'[otter's pond]'": "IDENTIFIED BY q'[[redacted]]'",
    "password = %(otter7 pond8) next": "password = [redacted]) next",
    'let token = r#"otter7"pond8"#;': 'let token = r#"[redacted]"#;',
    'password = R"x(otter7)" pond8)x"': 'password = R"x([redacted])x"',
    "password = U&'otter7 pond8'": "password = U&'[redacted]'",
    'password: &anchor "otter7 pond8"': 'password: &anchor "[redacted]"',
    'password = /* x */ "otter7 pond8"': 'password = /* x */ "[redacted]"',
    'password = "otter7" ++ "pond8x"': 'password = "[redacted]" ++ "[redacted]"',
    "password = 'otter7' || chr(39) || 'pond8x'": (
        "password = '[redacted]' || chr(39) || '[redacted]'"
    ),
    "password=<otter7 pond8>": "password=<[redacted]>",
    "password: otter7 Xk92p": "password: [redacted]",
    'password.equals("Xk92p 9pLqZ")': 'password.equals("[redacted]")',
    '"Xk92p 9pLqZ" == password': '"[redacted]" == password',
    "password === 'otter7'": "password === '[redacted]'",
    "password ?? 'otter7'": "password ?? '[redacted]'",
    '{:password, "otter7"}': '{:password, "[redacted]"}',
    'Dim password As String = "otter7"': 'Dim password As String = "[redacted]"',
    "DECLARE @pwd NVARCHAR(50) = N'otter7'": "DECLARE @pwd NVARCHAR(50) = N'[redacted]'",
    'pre-shared-key ascii-text "otter77"': 'pre-shared-key ascii-text "[redacted]"',
    'proxy_set_header Authorization "Basic otter77";': (
        'proxy_set_header Authorization "[redacted]";'
    ),
    "\u30d1\u30b9\u30ef\u30fc\u30c9\u300cotter77x\u300d\u304c\u9055\u3044\u307e\u3059": (
        "\u30d1\u30b9\u30ef\u30fc\u30c9\u300c[redacted]\u300d\u304c\u9055\u3044\u307e\u3059"
    ),
    "密码 otter-77 错误": "密码 [redacted] 错误",
    '{"contrase\\u00f1a": "otter"}': '{"contrase\\u00f1a": "[redacted]"}',
    '{"\\u5bc6\\u7801":"otter"}': '{"\\u5bc6\\u7801":"[redacted]"}',
    "contrase%C3%B1a=otter&b=1": "contrase%C3%B1a=[redacted]&b=1",
    "b'contrase\\xc3\\xb1a=otter'": "b'contrase\\xc3\\xb1a=[redacted]'",
    "contrase&ntilde;a: otter": "contrase&ntilde;a: [redacted]",
    'Parameters: {"code"=>"Xk92pLqZ7wBt4", "state"=>"f50cb09453f70b54"}': (
        'Parameters: {"code"=>"[redacted]", "state"=>"f50cb09453f70b54"}'
    ),
    "oauth: callback with code Xk92pLqZ7wBt4": "oauth: callback with code [redacted]",
    "OPENCAGE_KEY=Xk92pLqZ7wBt4Yc1": "OPENCAGE_KEY=[redacted]",
    "nuget key = Xk92pLqZ7wBt4Yc1": "nuget key = [redacted]",
    "STRIPE_SK=Xk92pLqZ7wBt4Yc1": "STRIPE_SK=[redacted]",
    "[Key, client_secret], [Value, otter]": "[Key, client_secret], [Value, [redacted]]",
    '{"field": "password", "from": "otter", "to": "pond"}': (
        '{"field": "password", "from": "[redacted]", "to": "[redacted]"}'
    ),
    '<input value="otter" type="password">': '<input value="[redacted]" type="password">',
    'password "otter\'7pond" rejected': 'password "[redacted]" rejected',
    "password (Xk92pL Yq92pL) rejected": "password ([redacted]) rejected",
    "use this password to proceed:\n\n9f8e7d6c5b4a39281706f5e4d3c2b1a0\n": (
        "use this password to proceed:\n\n[redacted]\n"
    ),
    "Your recovery codes:\nXk92pLqZ\nYk92pLqZ\ndone": (
        "Your recovery codes:\n[redacted]\n[redacted]\ndone"
    ),
    'password: "otter" => "pond"': 'password: "[redacted]" => "[redacted]"',
    "Invalid value otter77x for configuration ssl.keystore.password": (
        "Invalid value [redacted] for configuration ssl.keystore.password"
    ),
    'invalid argument "otter" for "--api-key" flag': (
        'invalid argument "[redacted]" for "--api-key" flag'
    ),
    "Password: is bad. AttemptedValue = Xk92pLqZ": "Password: is bad. AttemptedValue = [redacted]",
    "parameters: $1 = 'ann', $2 = 'otter' statement: UPDATE users SET password=$2": (
        "parameters: [redacted]"
    ),
    "AUTH ann Xk92pLqZ": "AUTH ann [redacted]",
    "*2\r\n$4\r\nAUTH\r\n$5\r\notter\r\n": "*2\r\n$4\r\nAUTH\r\n$5\r\n[redacted]\r\n",
    "send: 'PASS otter\r\n'": "send: 'PASS [redacted]\r\n'",
    'expect "assword:" { send "otter\r" }': 'expect "assword:" { send "[redacted]\r" }',
    "PASSWORD elastic = otter77x": "PASSWORD elastic = [redacted]",
    "::add-mask::otter": "::add-mask::[redacted]",
    "::set-output name=token::otter": "::set-output name=token::[redacted]",
    "basicauth.users=ann:otter": "basicauth.users=ann:[redacted]",
    "CONSUL_HTTP_AUTH=ann:otter consul": "CONSUL_HTTP_AUTH=ann:[redacted] consul",
    '{"GRAFANA_AUTH": "admin:otter"}': '{"GRAFANA_AUTH": "admin:[redacted]"}',
    "REDISCLI_AUTH=otter redis-cli": "REDISCLI_AUTH=[redacted]",
    "export REDISCLI_AUTH='otter'": "export REDISCLI_AUTH='[redacted]'",
    "PasswordAuthentication(ann, Xk92pLqZ)": "PasswordAuthentication(ann, [redacted])",
    'BUNDLE_GEMS__ACME__IO: "ci:otter77"': 'BUNDLE_GEMS__ACME__IO: "ci:[redacted]"',
    "smtp_sasl_password_maps = static:ann:otter": "smtp_sasl_password_maps = static:ann:[redacted]",
    "https://host/api/webhooks/123/Xk92pLqZ7wBt": "https://host/api/webhooks/123/[redacted]",
    "AKIAABCD2345ABCD2345 / TMc3kvtoAW1bJPj1VP8FmsjeaG5AVVgTzH09vpD6 x": "[redacted] x",
    "acme_pat_Xk92pLqZ7wBt4Yc1": "acme_[redacted]",
    "acme_sk_9f8e7d6c5b4a39281706f5e4d3c2b1a0": "acme_[redacted]",
    "primary account number 6011301318787732 failed": "primary account number [redacted] failed",
    "printf '%s' otter77 | gh secret set TOKEN": "printf '%s' [redacted] | gh secret set TOKEN",
    'exec: "redis-cli" "-a" "otter"': 'exec: "redis-cli" "-a" "[redacted]"',
    'a0="mysql" a1="-uann" a2="-potter"': 'a0="mysql" a1="-uann" a2="-p[redacted]"',
    'execve("/usr/bin/mysql", ["mysql", "-uann", "-potter"], 0x7f)': (
        'execve("/usr/bin/mysql", ["mysql", "-uann", "-p[redacted]"], 0x7f)'
    ),
    "codecov -t otter": "codecov -t [redacted]",
}
"""Texts, and what is left of them."""

KEPT = (
    "NEO4J_AUTH=none HTTP_AUTH=ldap PROXY_AUTH=10.0.0.1:3128 OS_AUTH=https://keystone:5000/v3",
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
    "at checkPassword (/srv/app/lib/password.js:14:9)",
    "INSERT INTO orders (id, code, total) VALUES (7, 'DE-PAKET', 19.90)",
    "@types/password-hash: ^1.2.24",
    "postgres://app:***@db:5432/app, postgres://app:<password>@db/app",
    "pk_live_1lxjmQVzSrrXamwBjF0l4nyc is the publishable key",
    "imagePullSecrets: [{name: regcred}]",
    "secrets: db_password: external: true",
    "bash: line 3: PASSWORD: unbound variable",
    "Token(type=NAME, value='x', line=3)",
    '"Sid":"AllowAccessToAutoScaling"',
    "[credentials]\nfile = ${CREDENTIALS_FILE1}",
    "password check failed by: admin1234",
    "password must be text, got: int",
    "https://host/?code=404",
    "GET /search?q=how+to+reset+password HTTP/1.1",
    "password: @@DB_PASSWORD@@",
    "Set-Cookie: sessionid=; expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=0; Path=/",
    "<Token: 42>",
    "sudo -u ann mkdir -p data/2024x",
    "./own -u ann -p 8080:80",
    "'otters' is not of type 'x'\n\nFailed validating 'type' in schema['password']['length']:",
    "'otters' is not of type 'x'\n\nFailed validating 'type' in schema[]:a token",
    "NAME     SECRETS   AGE\ndefault  0         12d",
    "    token = os.environ[name]\n            ~~~~~~~~~~^^^^^^",
    'variable "region" { default = "eu west" }',
    "on field 'colour': rejected value [red]; the password is kept",
    "fn verify(password: &str, token: Option<String>, secret: impl Into<String>)",
    "fn set(password: &'static str)",
    "pub token: Arc<RwLock<Token>>,",
    "password: Box<dyn Secret>,",
    "def __init__(self, api_key: SecretStr = Field(...)):",
    "$table->string('password', 255)->nullable();",
    "'password' => 'required|string|min:12|confirmed',",
    "protected $hidden = ['password', 'remember_token'];",
    "$password = $_POST['password'];",
    'password: <%= ENV["DB_PASSWORD"] %>',
    "Task<string> GetTokenAsync(CancellationToken cancellationToken = default)",
    "jdbc:oracle:thin:@db01:1521:XE",
    "Cookie: lang=en; theme=dark",
    "Set-Cookie: theme=dark; Path=/; Max-Age=31536000",
    "User[id=7, login=joe, password=[PROTECTED]]",
    'Credentials { password: "[REDACTED alloc::string::String]" }',
    '#<Ecto.Changeset<errors: [password: {"can\'t be blank", [validation: :required]}]>>',
    '{"errors":{"password":["is too short (minimum is 12 characters)"]}}',
    "passwd: all authentication tokens updated successfully.",
    "passwd: unrecognized option '--foo'",
    "{Host:db Port:5432 Password: User:ann}",
    "{Password: User:ann}",
    "[SQL: SELECT users.password FROM users WHERE users.id = ?]\n[parameters: (8315,)]",
    "[SQL: SELECT token.id FROM token]\n[parameters: (8315,)]",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    'check("theme", password)',
    'password is missing, note="Xk92p 9pLqZ"',
    "oauth: callback with code access_denied",
    '{"type": "token", "value": "identifier"}',
    "cache_key=9f86d081884c7d659a2feaa0c55ad015",
    "acme_pk_live_Xk92pLqZ7wBt4Yc1",
    "acme_pat_number_of_the_year",
    "password version v1 -> v2",
    "the key a1b2c3 -> d4e5f6",
    "value abc of password",
    "value abcdef of password",
    "secret 'db' -> 'cache'",
    "caf\\u00e9 \\u4f60\\u597d &#x1F600; %E4%BD%A0",
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
