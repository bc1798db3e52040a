"""Keys, hashes, and secrets in files and protocols, for the table of `core.redact.patterns`."""

from __future__ import annotations

PEM = (
    r"----[- ]BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?[- ]----"
    r"[^-]*+(?:-(?!---[- ]END)[^-]*+)*+"
    r"(?:-----END [A-Z0-9 ]{0,40}-----|---- END [A-Z0-9 ]{0,40}----)?"
)
PUTTY = (
    r"Private-(?:Lines: [0-9]{1,4}\r?\n(?P<secret>(?:[\w+/=]{1,80}+(?:\r?\n|\Z))++)|MAC: "
    r"(?P<mac>\w{8,128}+))"
)
JWT = r"eyJ(?:(?!eyJ)[\w-]){5,}\.[\w-]{4,}+(?:\.[\w-]*+){0,3}"
JWK = r"[\"'](?:d|k|p|q|dp|dq|qi|oth)[\"']\s{0,9}+:\s{0,9}+[\"'](?P<secret>[\w+/=-]{16,}+)"
HASHED = (
    r"(?<![\w$])(?:\$(?:2[abxy]?|1|5|6|7|y|gy|apr1|argon2\w{0,3}|scrypt|pbkdf2[\w-]{0,10}|bcrypt-sha256"
    r"|sha1|[89]|NT|DCC2|S|P|H)\$"
    r"[\w./$=,+-]{16,400}+|pbkdf2_sha[0-9]{1,3}\$[\w./$=+-]{16,400}+"
    r"|SCRAM-SHA-[0-9]{1,3}\$[\w+/=:$]{16,400}+"
    r"|grub\.pbkdf2\.sha[0-9]{1,3}\.[0-9]{1,9}\.[0-9A-F]{16,400}+\.[0-9A-F]{16,400}+"
    r"|(?:pbkdf2:sha[0-9]{1,3}:[0-9]{1,9}|scrypt:[0-9:]{3,20}+)\$[\w./+]{1,100}+\$[0-9a-f]{32,400}+)"
)
LDAP = (
    r"\{(?:SSHA|SHA|SMD5|MD5|CRYPT|PBKDF2|ARGON2|PLAIN|CLEAR)[0-9A-Za-z-]{0,12}\}"
    r"(?P<secret>[^\s:,]{4,400}+)"
)
HOOK = (
    r"(?i)(?:hooks\.slack\.com/[a-z]{1,20}/|discord(?:app)?\.com/api/webhooks/(?:[0-9]{1,30}/)?"
    r"|hooks\.zapier\.com/hooks/catch/|\.webhook\.office\.com/webhookb?2?/|api\.telegram\.org/bot"
    r"|maker\.ifttt\.com/trigger/\w{1,60}/with/key/|outlook\.office\.com/webhook/"
    r"|open\.feishu\.cn/open-apis/bot/v2/hook/|hooks\.chime\.aws/incomingwebhooks/)"
    r"(?P<secret>[\w/@:-]{8,}+)"
)
PGPASS = (
    r"(?m)(?:^|(?<=: ))(?![\w.-]{1,80}\.(?:py|js|ts|go|rs|rb|c|h|java|php|cpp):)"
    r"(?:[\w.*-]{1,255}+|/[\w./-]{1,255}+):(?:(?P<known>543[234]|6432|6543)|[0-9]{1,5}|\*):"
    r"(?![0-9]{1,63}+:)[\w*-]{1,63}+:[\w*.@-]{1,63}+:"
    r"(?P<secret>(?:[^\s:\\]|\\.){4,200}+(?(known)(?:[ ](?:[^\s:\\]|\\.){1,60}+){0,3}+))"
    r"[ \t]{0,9}$"
)
ACL = (
    r"(?i)\b(?:set)?user \S{1,60}+ (?:on|off|reset|nopass|[~&+-]\S{1,60}+| ){0,9}?"
    r"(?P<secret>[#>][^\s]{4,128}+)"
    r"|\"SETUSER\"[^\r\n]{0,100}?[ ]\"(?P<quoted>[#>][^\"\r\n]{3,128}+)\""
)
PROTOCOL = (  # FTP, POP3, IRC, Redis
    r"(?m)(?:^AUTH[ ]\w{1,40}+[ ](?=\S{1,200}+$)|^(?:[\w.:\[\]-]{0,30}>|[>*<]{0,3}|C:|-->)[ ]?"
    r"(?:PASS|AUTH(?: PLAIN| LOGIN| default)?|X-PASS)[ ]+"
    r"|\bquote[ ](?:PASS|pass)[ ]|\"AUTH\"(?:,[ ]?|[ ])(?:\"[^\"]{1,60}+\"(?:,[ ]?|[ ]))?\""
    r"|'AUTH',[ ]?(?:'[^'\r\n]{1,60}+',[ ]?)?'|\bHELLO[ ][23][ ]AUTH[ ]\S{1,60}+[ ]"
    r"|\bAUTH[ ]default[ ]|(?<=\][ ])AUTH[ ]|^ftp>[ ]?user[ ]\S{1,100}+[ ]"
    r"|^(?:[>*<]{1,3}[ ]|C:[ ])?LOGIN[ ]\S{1,100}+[ ]"
    r"|\bIDENTIFY[ ](?:\w{1,40}+[ ](?=\S))?)"
    r"(?!(?:command|failed|required|PLAIN|LOGIN|error|succeeded|success|ok)\b)"
    r"(?P<secret>(?<=\")[^\"\r\n]{3,200}+|[^\s\"']{3,200}+)"
)
NETRC = (
    r"(?i)\b(?:(?:login|user|username|account)[ \t=:]{1,4}\S{1,100}+|default"
    r"|machine \S{1,200}+),?\s{1,20}+"
    r"(?:password|passwd|pass|pw)\s{1,20}+(?:[0-9]{1,2}[ ])?(?!(?:is|was|for|has|must|not|not"
    r"|in|and|or|expire|null|history|require)\b)(?P<secret>[^\s\"']{1,200}+)"
)
CISCO = (  # the digit is the sort of encryption; 0 is none
    r"(?im)\b(?:(?P<sort>(?:password|secret|key|key-string|md5|ascii) [0-9])"
    r"|(?P<server>message-digest-key [0-9]{1,3} md5|authentication-key|key-string"
    r"|(?:isakmp|tacacs-server|radius-server)(?: host \S{1,100}+)? key)) "
    r"(?P<secret>[^\s\"']{4,200}+)"
    r"(?P<end>(?= address )|[ \t]{0,9}$)?"
)
NO_KEY = frozenset(
    """
    times days hours minutes seconds weeks months years characters chars bytes bits digits attempts
    retries failed failures more less words letters rules tokens errors warnings items expired
    missing required invalid mismatch found changed unknown must should does
    """.split()
)
"""Words behind a number that is how many there are."""
COMMUNITY = (
    r"(?m)\b(?:community (?P<secret>[^\s\"']{3,100}+) (?i:RO|RW)\b"
    r"|snmp-server community (?P<word>[^\s\"']{3,100}+)[ \t]{0,9}$)"
)
NEWUSERS = (
    r"(?m)^[a-z_][\w.-]{0,60}+:(?P<secret>(?![*!])[^\s:]{4,200}+):[0-9]{0,10}:[0-9]{0,10}:"
    r"[^:\r\n]{0,200}+:/"
)
SHADOW = r"(?m)^[a-z_][\w.-]{0,60}+:(?P<secret>[^\s:*!]{8,200}+):[0-9]{1,6}:(?:[0-9]{0,6}:){3}"
SASL = (  # Postfix
    r"(?m)(?:\[[\w.-]{1,255}+\]:[0-9]{1,5}[ \t]{1,20}+|maps[ ]?=[ ]?static:"
    r"|^(?:\[(?:smtp|mail|relay|mx)[\w.-]{1,255}+\]|(?:smtp|mail|relay|mx)[\w.-]{1,255}+(?::[0-9]{1,5})?)"
    r"[ \t]{1,20}+(?=\S{1,300}$))[^\s:]{1,100}+:(?P<secret>\S{4,200}+"
    r"(?:[ ][^\s:=]{1,40}+){0,3}+(?=[ \t]{0,8}$)|\S{4,200}+)"
)
RESP = (  # Redis, as it is sent
    r"\bAUTH\r?\n(?:\$[0-9]{1,4}\r?\n[^\r\n]{1,200}+\r?\n(?=\$))?\$[0-9]{1,4}\r?\n"
    r"(?P<secret>[^\r\n]{1,400}+)"
)
SET_UP = r"\bPASSWORD[ ]\w{1,40}+[ ]=[ ](?P<secret>\S{6,200}+)"  # of Elasticsearch
MASKED = (  # ::add-mask::, of GitHub
    r"::add-mask::(?P<secret>[^\s:\"']{3,400}+)"
    r"|::set-output[ ]name=\w{0,40}(?:token|secret|password|key)::(?P<output>[^\s:]{3,400}+)"
)
SENT = r"[\"'](?:PASS|AUTH)[ ](?P<secret>[^\s\"'\\]{4,200}+)(?=\r|\n|\\r|\\n)"
EXPECTED = (  # expect "assword:" { send "hunter2\r" }
    r"(?i)(?:assword[^\r\n]{0,40}[\"'}][;\s{]{0,9}send[ ](?:--[ ])?"
    r"|\bsend[ ](?=[\"'][^\"'\r\n]{1,100}[\"'][^\r\n]{0,20}[\"']\w{0,20}assword))[\"']"
    r"(?P<secret>[^\"'\r\n\\$]{3,100}+)"
)
CHAP = (  # chap-secrets of PPP
    r"(?m)(?:^|chap-secrets:)[ \t]{0,8}(?:\"[^\"\r\n]{1,100}+\"|[^\s\"]{1,100}+)"
    r"[ \t]{1,9}(?:\*|[\w.-]{1,60}+)[ \t]{1,9}"
    r"(?:\"(?P<secret>[^\"\r\n]{1,200}+)\"|(?P<word>[^\s\"]{4,200}+))"
    r"[ \t]{1,9}[*0-9./]{1,20}[ \t]{0,9}$"
)
LINKED = (  # https://host/reset-password/…
    r"(?i)/[\w-]{0,30}(?:reset|magic|activat|verif|confirm|invit|hook|recover|unlock)[\w-]{0,30}/"
    r"(?:[a-z0-9-]{1,40}/){0,2}(?P<secret>[\w~=-]{8,200}+)(?![\w.])"
)
WIFI = r"(?i)\bWIFI:[^\r\n]{0,200}?(?<=[;:])P:(?P<secret>(?:[^;\\\r\n]|\\.){1,100}+)"
USERLIST = (  # PgBouncer
    r"(?m)(?:^|userlist\.txt:?[ \t]{1,4})\"[\w.@-]{1,63}+\"[ \t]{1,4}"
    r"\"(?P<secret>[^\"\r\n]{4,400}+)\"[ \t]{0,9}$"
    r"|(?<=[\"'])(?P<md5>md5[0-9a-f]{32})(?=[\"'])"
)
LOGINS = (  # PgBouncer, a line of such a file by itself
    r"\A\"[a-z_][\w.@-]{0,62}+\"[ \t]{1,4}\"(?P<secret>[^\"\s]{8,400}+)\"\s{0,9}\Z"
)
SENTINEL = r"\bsentinel auth-pass \S{1,100}+ (?P<secret>\S{4,200}+)"  # of Redis
CHALLENGED = (  # the answer to a server that asks for a user or a password: SMTP, POP3
    r"\b334(?:[ -]\S{0,100}+)?[ ]?\r?\n(?:[ ]{0,8}(?:C:|[>*<-]{1,3}))?[ ]{0,4}"
    r"(?P<secret>[\w+/=]{4,400}+)"
)
TAGGED = (  # IMAP: a1 LOGIN ann hunter2
    r"(?i)\b[a-z]{0,4}[0-9]{1,6} LOGIN (?:\"[^\"\r\n]{1,100}+\"|[^\s\"]{1,100}+) "
    r"(?:\"(?P<secret>[^\"\r\n]{1,200}+)\"|(?P<word>[^\s\"]{1,200}+))"
)
DUMPED = (  # pwdump: a user, a number, two hashes
    r"(?<!\S)[^\s:]{1,100}+:[0-9]{1,10}:(?P<secret>[0-9A-Fa-f*]{32}:[0-9A-Fa-f]{32}):"
)
PRINTED = (  # what openssl prints of a private key
    r"(?:\bpriv|privateExponent|prime[12]|exponent[12]|coefficient):\s{0,9}"
    r"(?P<secret>(?:[0-9a-f]{2}:\s{0,20}+){8,}+(?:[0-9a-f]{2})?)"
)
IPSEC = r"(?m): (?:PSK|EAP|XAUTH|NTLM|PLAIN) \"(?P<secret>[^\"\r\n]{1,200}+)\""
BUNDLE = (  # of Bundler: a host, then a user and a password
    r"\bBUNDLE_[A-Z0-9_]{2,100}+[\"']?[ ]?[:=][ ]?[\"']?[\w.@%+-]{1,60}+:"
    r"(?P<secret>[^\s\"'/]{4,200}+)"
)
CURLRC = r"(?m)^[ ]{0,8}user[ ]{0,4}=[ ]{0,4}\"[^\s:\"]{1,60}+:(?P<secret>[^\"\r\n]{1,200}+)\""
TRACK = r"%B(?P<secret>[0-9]{12,19}\^[^?\r\n]{2,80}+)|;(?P<second>[0-9]{12,19}=[0-9]{4,40})"
