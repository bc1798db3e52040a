"""`mainstay exec`: any command under a policy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainstay.cli.completion import operation_names, policy_names
from mainstay.cli.exec.exit_codes import exit_codes
from mainstay.cli.exec.sizes import size
from mainstay.cli.options import Seconds, example, json_option, lenient_config_options

if TYPE_CHECKING:
    from typing import Any

SECONDS = Seconds(0.0, 31_622_400.0, above=True)
"""A policy takes no more: a year."""


@click.command(
    "exec",
    context_settings={"allow_interspersed_args": False},
    epilog=example(
        "mainstay exec --timeout 30s -- curl -fsS https://example.com/health",
        "mainstay exec --policy aggressive --never-on-exit 2 -- ./sync.sh",
        "mainstay exec --key deploy-42 --escalate -- ./deploy.sh 42",
    ),
)
@click.option("--policy", metavar="NAME", shell_complete=policy_names,
              help="The policy; by default that of the operation.")  # fmt: skip
@click.option("--operation", metavar="NAME", shell_complete=operation_names,
              help="The operation, with a circuit; by default the command's name.")  # fmt: skip
@click.option("--timeout", "--attempt-timeout", "timeout", type=SECONDS, metavar="TIME",
              help="The time limit of each attempt.")  # fmt: skip
@click.option(
    "--deadline", type=SECONDS, metavar="TIME", help="The time limit of all attempts together."
)
@click.option(
    "--key", metavar="KEY", help="Run the command once; with the same key, its output is replayed."
)
@click.option("--retry-on-exit", "retry_on", type=exit_codes, metavar="CODES",
              help="Retry only these exit codes, such as 1,3-5.")  # fmt: skip
@click.option("--never-on-exit", "never_on", type=exit_codes, metavar="CODES",
              help="Never retry these exit codes.")  # fmt: skip
@click.option("--escalate", is_flag=True, help="If all attempts fail, raise an inbox item.")
@click.option("--grace", type=Seconds(0.0, 3600.0), default=5.0, show_default="5s",
              metavar="TIME", help="The time between TERM and KILL.")  # fmt: skip
@click.option("--keep-output", "keep", type=size, default="8M", show_default=True,
              metavar="SIZE", help="With --key: keep this much output for the replay.")  # fmt: skip
@click.option("--lease", type=Seconds(1.0, 86_400.0), default=15.0, show_default="15s",
              metavar="TIME", help="With --key: take over a killed run after this.")  # fmt: skip
@click.option("--store", metavar="URL", help="The store of circuits, keys and inbox items.")
@lenient_config_options
@click.option("--on-config-error", type=click.Choice(["stop", "once"]), default="stop",
              show_default=True, help="If the configuration or an option that names a part of it"
              " is wrong: do not run the command, or run it exactly once.")  # fmt: skip
@click.option("--quiet", is_flag=True, help="Print nothing about retries.")
@json_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- CMD...")
def command(as_json: bool, quiet: bool, words: tuple[str, ...], **options: Any) -> int:
    """Run any command under a policy: retried, bounded, once.

    The output is passed through unchanged, and the exit code is that of the last attempt: 124 if
    the time is up, 75 if the circuit is open, 76 if an operator must decide. Every exit code but 0
    is retried, unless the command could not be run (126, 127) or a signal ended it. A TIME is a
    number of seconds, or 500ms, 30s, 2m, 1h30m.
    """
    if options["retry_on"] and options["never_on"]:
        raise click.UsageError("--retry-on-exit and --never-on-exit exclude each other")
    if options["key"] is not None and not options["key"].strip():
        raise click.UsageError("--key is empty")
    from mainstay.cli.exec.report import Reporter
    from mainstay.cli.exec.request import ExecRequest
    from mainstay.cli.exec.run import run

    options["is_named"] = bool(options["operation"])
    name = options["operation"] or _name_of(words[0])
    options["operation"] = name.encode("utf-8", "backslashreplace").decode()  # a file's may be any
    chosen = {name: value for name, value in options.items() if value is not None}
    request = ExecRequest(command=words, **chosen)
    return run(request, Reporter(quiet=quiet, as_json=as_json))


_PLAIN = re.compile(r"[a-z]{1,12}[0-9]?(?:[._+-][a-z0-9]{1,5}){0,2}")
"""Names of programs that no rule of redaction changes, which takes long to load: a test has it."""


def _name_of(program: str) -> str:
    """The name of a program, without secrets."""
    name = Path(program).name
    if _PLAIN.fullmatch(name):
        return name
    from mainstay.core.redact.command_line import redacted_words

    shown = redacted_words([program])[0]
    return Path(shown).name or shown
