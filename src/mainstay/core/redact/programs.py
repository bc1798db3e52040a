"""Which options and words of common programs are secrets: a table for commands.py.

A row is a program, or a program and a subcommand or flag that must have come before. Options with a
secret name (`--password`, `--token`) need no row.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NAMES = frozenset(
    """
    sshpass rediscli_auth mysql_pwd pgpass storepass keypass srcstorepass deststorepass pass passwd
    pw pwd auth apikey api-key client-secret community user_pw owner_pw input_pw requirepass
    masterauth credential_secret account-key sas-token connection-string id-token refresh-token
    http-basic pypi-token authkey psk wep-key wpa-psk
    """.split()
)
"""Names of options, variables and settings whose values are secrets, besides the redactor's own."""

LOGIN_SIGNS = re.compile(r"[:%,](?=.)", re.DOTALL)
"""What separates the user from the password: curl has a colon, Samba a percent sign."""


class Program(NamedTuple):
    """What is secret in the words of one program.

    >>> PROGRAMS["docker login"].secrets
    frozenset({'-p'})
    """

    name: str
    secrets: frozenset[str]
    """Options whose value is a secret: `-a X`, `-aX`, `--auth=X`."""
    attached: tuple[str, ...]
    """Options whose value is a secret if it is in the same word: `-pX`."""
    logins: frozenset[str]
    """Options whose value is a user and a password."""
    texts: frozenset[str]
    """Options whose value is a text: a header, a command line."""
    flags: str
    """Letters of options without a value, which may stand before another in one word."""
    places: tuple[int, ...]
    """Which words that are no options are secrets, from 1."""
    last: bool
    """Whether the last word is one."""
    is_assigned: bool
    """Whether `NAME=value` is a secret, whatever its name."""
    names_values: bool
    """Whether the value of a setting is the word after its name."""
    naming: tuple[str, ...]
    """Options for the name of a setting, and for its value."""


def _of(
    names: str,
    secrets: str = "",
    *,
    attached: str = "",
    logins: str = "",
    texts: str = "",
    flags: str = "",
    places: tuple[int, ...] = (),
    last: bool = False,
    is_assigned: bool = False,
    names_values: bool = False,
    naming: str = "",
) -> list[Program]:
    """The rows of programs that take the same options."""
    return [
        Program(
            name.strip(),
            frozenset(secrets.split()),
            tuple(attached.split()),
            frozenset(logins.split()),
            frozenset(texts.split()),
            flags,
            places,
            last,
            is_assigned,
            names_values,
            tuple(naming.split()),
        )
        for name in names.split(",")
    ]


_DATABASES = (
    _of(
        "mysql, mysqldump, mysqladmin, mysqlimport, mysqlcheck, mysqlshow, mysqlbinlog",
        attached="-p",
    ),
    _of(
        "mysqlpump, mysqlslap, mysqlsh, mycli, mariadb, mariadb-dump, mariadb-admin", attached="-p"
    ),
    _of("mysqladmin password", places=(1,)),
    _of("redis-cli, valkey-cli, keydb-cli", "-a --pass"),
    _of("redis-cli auth, valkey-cli auth, keydb-cli auth", places=(1, 2)),
    _of("redis-cli config, valkey-cli config, keydb-cli config", names_values=True),
    _of("mongo, mongosh, mongodump, mongorestore, mongoexport, mongoimport, mongostat", "-p"),
    _of("sqlcmd, bcp, osql, tsql, mssql-cli", "-P"),
    _of("isql", "-P", places=(3,)),
    _of("nodetool, influx, couchbase-cli, exaplus", "-p -pw -password"),
    _of("cqlsh", "-p"),
    _of("beeline, cypher-shell, jmxterm", "-p"),
    _of("neo4j-admin set-initial-password", places=(1,)),
    _of("vsql", "-w"),
    _of("sqlplus, expdp, impdp, sqlldr", places=(1,)),
    _of("rabbitmqctl add_user, rabbitmqctl change_password", places=(2,)),
    _of("rabbitmqctl authenticate_user", places=(2,)),
    _of("rabbitmqadmin", "-p"),
    _of("etcdctl", logins="--user"),
)
_NETWORK = (
    _of("sshpass", "-p"),
    _of("plink, pscp, psftp", "-pw"),
    _of(
        "curl",
        "--pass --proxy-pass --tlspassword -b --cookie",
        logins="-u --user -U --proxy-user -E --cert --proxy-cert",
        texts="-H --header --proxy-header -d --data --data-raw --form -F",
        flags="fsSLkvigIjlnNOqRJaBGpZ#0123456",
    ),
    _of("wget", "--http-passwd --http-password --ftp-password --proxy-password"),
    _of("http, https, xh, xhs", logins="-a --auth"),
    _of("ab", logins="-A -P", texts="-H -C"),
    _of("siege, grpcurl", texts="-H -rpc-header"),
    _of("websocat", texts="-H", logins="--basic-auth"),
    _of("lftp", logins="-u"),
    _of("ncftp, ncftpput, ncftpget, rdesktop", "-p"),
    _of("ldapsearch, ldapmodify, ldapadd, ldapdelete, ldapwhoami, ldapcompare", "-w"),
    _of("ldappasswd", "-w -s -a"),
    _of("smbclient", logins="-U --user", places=(2,)),
    _of("rpcclient, smbget, smbcacls, smbtree, winexe, wmic, net", logins="-U --user"),
    _of("net user", places=(2,)),
    _of("net use", places=(2, 3)),
    _of("psexec, winrs", "-p"),
    _of("evil-winrm, crackmapexec, netexec, nxc, smbmap, hydra, yt-dlp, youtube-dl", "-p"),
    _of("supervisorctl, esxcli, racadm", "-p"),
    _of("nikto", logins="-id"),
    _of("ncat", logins="--proxy-auth"),
    _of("radtest", places=(2, 5)),
    _of("ejabberdctl register, ejabberdctl change_password, prosodyctl register", places=(3,)),
    _of("iwconfig key", places=(1,)),
    _of("setx, set-item, wg", names_values=True),
    _of("sendemail", "-xp"),
    _of("schtasks", "/rp /p"),
    _of("cmdkey", attached="/pass:"),
    _of("convertto-securestring", "-String", places=(1,)),
    _of("reg add", naming="/v /d"),
    _of("xfreerdp, wlfreerdp, freerdp", attached="/p: /gp:"),
    _of("snmpget, snmpwalk, snmpset, snmpbulkwalk, snmptrap, snmpgetnext", "-c -A -X"),
    _of("ipmitool, mosquitto_pub, mosquitto_sub", "-P"),
    _of("wpa_passphrase", places=(2,)),
    _of("nmcli, rclone", names_values=True),
    _of("rclone obscure", places=(1,)),
    _of("mc set, mc add", places=(3, 4)),
    _of("swaks", "--auth-password --auth-pass -ap --ap"),
    _of("mount", texts="-o"),
    _of("su", texts="-c"),
)
_KEYS = (
    _of("7z, 7za, 7zr, 7zz, p7zip, rar, unrar", attached="-hp -p"),
    _of("zip, unzip, zipcloak", "-P", flags="rqjmuo9"),
    _of("openssl", "-k -K -pass -passin -passout -password -kpass"),
    _of("openssl passwd, htpasswd -b", last=True),
    _of("gpg-preset-passphrase", "-P"),
    _of("gpg, gpgsm, gpg-agent", "--passphrase"),
    _of("keytool, jarsigner, apksigner", "-storepass -keypass -srckeypass --ks-pass --key-pass"),
    _of("ssh-keygen", "-N -P"),
    _of("pdftk", names_values=True),
    _of("qpdf --encrypt", places=(1, 2)),
    _of("security", "-w -p -P"),
    _of("steghide, useradd, usermod, adduser, restic, veracrypt", "-p"),
    _of("mkpasswd, oathtool, mosquitto_passwd -b", last=True),
    _of("signtool, certutil", "/p -p"),
    _of("osslsigncode", "-pass"),
    _of("caddy hash-password", "--plaintext"),
)
_CLOUDS = (
    _of("docker login, podman login, nerdctl login, buildah login, skopeo login, oras login", "-p"),
    _of("helm login, az login, oc login, cf login, ibmcloud login, heroku login, tsh login", "-p"),
    _of("vcd login, ilorest login, poetry publish", "-p"),
    _of("ctr, govc", logins="-u --user"),
    _of("cf set-env", names_values=True),
    _of("knife", "-P"),
    _of("gcloud activate-refresh-token", places=(2,)),
    _of("odo login, faas-cli login, oc login, regctl login, crane login, helm registry", "-p"),
    _of("skopeo", logins="--creds --src-creds --dest-creds"),
    _of("az", "-p --account-key --sas-token --connection-string"),
    _of("az secret, aws put-parameter", "--value"),
    _of("aws put-secret-value, aws create-secret, aws update-secret", "--secret-string"),
    _of("aws configure", names_values=True),
    _of("vault login", places=(1,), is_assigned=True),
    _of("vault unseal, cargo login, bw unlock, snyk auth", places=(1,)),
    _of("ngrok authtoken, ngrok add-authtoken", places=(1,)),
    _of("bw login", places=(2,)),
    _of("pulumi set", places=(1, 2)),
    _of("vault put, vault write, vault patch", is_assigned=True),
    _of("consul, nomad", "-token"),
    _of("heroku config:set, heroku config:add", is_assigned=True),
    _of("fly secrets, flyctl secrets, wrangler secret, doppler secrets", is_assigned=True),
    _of("kubectl secret, oc secret", "--from-literal", is_assigned=True),
    _of("gh secret", "-b --body"),
    _of("glab variable", "-v --value"),
    _of("doctl, fly, flyctl, vercel", "-t --access-token"),
    _of("netlify", "-a --auth"),
    _of("twine", "-p"),
    _of("gem", "-k --key"),
    _of("nuget", "-ApiKey -Password"),
    _of("dotnet, choco", "-k --api-key"),
    _of("railway, codecov, codecovcli", "-t"),
    _of("npm config, yarn config, pnpm config, npm set, yarn set, git config", names_values=True),
    _of("poetry config, composer config, bundle config", places=(2, 3)),
    _of("hg", texts="--config"),
    _of("ansible, ansible-playbook", texts="-e --extra-vars"),
)

PROGRAMS = {
    each.name: each
    for table in (_DATABASES, _NETWORK, _KEYS, _CLOUDS)
    for row in table
    for each in row
}
"""By name, without a version: `python3` is `python`."""
HEADS = frozenset(name.partition(" ")[0] for name in PROGRAMS)
"""The programs of the table, without subcommands."""
WRAPPERS = (PROGRAMS["sshpass"],)
"""Programs whose options end where the command that they start begins."""
