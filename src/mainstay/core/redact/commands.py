"""Secrets of command lines in a text: `-p` takes a password in one program, a port in another."""

from __future__ import annotations

import re

from mainstay.core.redact.plain import is_reference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_VALUE = r"""(?:'([^'\r\n]{1,200}+)'|"([^"\r\n]{1,200}+)"|([^\s'"-][^\s'"]{0,200}+))"""
_MIDDLE = r"(?:[ ][^|;&\r\n]{0,300}?)?[ ]"
"""The other words of a command line."""


def _takes(programs: str, option: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-])(?:{programs}){_MIDDLE}{option}{_VALUE}")


_PIPED = re.compile(  # echo hunter2 | sudo -S
    r"\becho[ ](?:-n[ ])?['\"]?(?:[\w.-]{1,60}:)?(?P<secret>[^\s'\"|]{3,200}+)['\"]?[ ]?\|[ ]?"
    r"(?:sudo[ ])?(?:[\w -]{0,20}-S\b|chpasswd|passwd[ ]--stdin"
    r"|\S{1,30}[ ]login[^\r\n]{0,200}?--password-stdin)"
)

OPTIONS: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (("mysql", "mariadb", "7z"), _takes(r"mysql\w{0,10}|mariadb[\w-]{0,10}|7za?", "-p")),
    (("sshpass",), _takes("sshpass", "-p[ ]?")),
    (("redis-cli", "keydb-cli"), _takes("redis-cli|keydb-cli|valkey-cli", "-a[ ]")),
    (
        ("ipmitool", "mosquitto", "sqlcmd", "bcp", "isql", "zip"),
        _takes("ipmitool|mosquitto_[ps]ub|mosquitto_rr|sqlcmd|bcp|isql|unzip|zip", "-P[ ]?"),
    ),
    (
        ("login", "mongo", "cqlsh", "rdesktop"),
        _takes(
            r"(?:docker|podman|helm registry|az|oc|nerdctl) login|mongo\w{0,10}|cqlsh|rdesktop",
            "-p[ ]",
        ),
    ),
    (("ldap",), _takes(r"ldap\w{2,10}", "-w[ ]?")),
    (
        ("smbclient", "rpcclient"),
        _takes("smbclient|rpcclient|net", r"-U[ ]?['\"]?[\w\\@./-]{1,60}%"),
    ),
    (("htpasswd",), _takes("htpasswd", r"-\w{0,4}b\w{0,4}[ ]\S{1,200}[ ]\S{1,60}[ ]")),
    (("lftp",), _takes("lftp", r"-u[ ][^\s,]{1,60},")),
    (("net use",), _takes("net use", r"\\\\[^\s]{1,200}[ ]")),
    (
        ("reg add",),
        _takes(
            "reg add", r"/v[ ]\w{0,40}(?i:pass\w{0,6}|secret|token|key)[ ][^|;&\r\n]{0,60}?/d[ ]"
        ),
    ),
    (("openssl",), _takes("openssl", r"-(?:passin|passout|pass)[ ](?:pass:)?|-k[ ]")),
    (
        ("rabbitmqctl",),
        _takes("rabbitmqctl", r"(?:add_user|change_password|authenticate_user)[ ]\S{1,60}[ ]"),
    ),
    (("securestring",), _takes("ConvertTo-SecureString", "(?:-String[ ])?")),
    (("rar ",), _takes("unrar|rar", "-h?p")),
    (("psexec", "ncftp"), _takes(r"psexec(?:64)?|ncftp\w{0,4}", "-p[ ]")),
    (("plink", "pscp", "psftp"), _takes("plink|pscp|psftp", "-pw[ ]")),
    (("schtasks",), _takes("schtasks", "/rp[ ]")),
    (("net user",), _takes("net user", r"(?=\S+ /add)")),
    (("vault login",), _takes("vault login", "(?:token=)?")),
    (("http ", "https "), _takes("https?", r"(?:-a|--auth)[ ][^\s:]{1,60}+:")),
    (("chpasswd",), _takes("chpasswd", r"<<<[ ]?['\"]?[\w.-]{1,60}:(?=)")),
    (("sudo -s", "chpasswd", "stdin"), _PIPED),
    (("freerdp",), _takes(r"[xw]l?freerdp3?", "/p:")),
)


def in_commands(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Where the passwords of common programs stand."""
    for signs, expression in OPTIONS:
        for sign in signs:
            if sign in lowered:
                for found in expression.finditer(text):
                    group = found.lastindex or 0
                    if not is_reference(found[group]):
                        yield found.span(group)
                break
