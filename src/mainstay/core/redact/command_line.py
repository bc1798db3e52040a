"""Secrets of a command line: its words are redacted one by one, before they are quoted.

Which options of which program take a secret is in the table of programs.py; commands.py walks along
the words by it. What has a secret name (`--token`, `DB_PASSWORD=`) or the shape of a secret is
found as in any text.
"""

from __future__ import annotations

import shlex

from mainstay.core.redact.commands import Rules, Walk
from mainstay.core.redact.programs import NAMES
from mainstay.core.redact.redactor import REDACTOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mainstay.core.redact.redactor import Redactor


def redacted_words(words: Iterable[str], redactor: Redactor = REDACTOR) -> list[str]:
    """The words of a command without their secrets.

    >>> redacted_words(["sudo", "/usr/bin/mysql", "-uroot", "-phunter2", "shop"])
    ['sudo', '/usr/bin/mysql', '-uroot', '-p[redacted]', 'shop']
    >>> redacted_words(["curl", "-sSu", "ann:hunter2", "https://example.org"])
    ['curl', '-sSu', 'ann:[redacted]', 'https://example.org']
    """

    def is_secret(name: str) -> bool:
        bare = name.lstrip("-/+")
        if bare.lower() in NAMES:
            return True
        return bool(bare) and redactor.data({bare: "a1b2c3"}) != {bare: "a1b2c3"}

    return Walk(Rules(is_secret, bool, redactor.text)).words(list(words))


def redacted_line(words: Sequence[str], redactor: Redactor = REDACTOR) -> str:
    """A command as one line, quoted for a shell, without its secrets; fit to be stored.

    >>> redacted_line(["sh", "-c", "redis-cli -a hunter2 ping"])
    "sh -c 'redis-cli -a [redacted] ping'"
    """
    line = shlex.join(redacted_words(words, redactor))
    return line.encode("utf-8", "backslashreplace").decode()
