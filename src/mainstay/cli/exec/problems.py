"""What is wrong with the configuration of a run: the file, `--set`, `--policy`, `--store`, at once.

A command is never run more often because of a mistake: by default it is not run at all, and with
`--on-config-error=once` exactly once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.cli.errors import CommandError
from mainstay.cli.exits import Exit
from mainstay.config.check import check
from mainstay.config.fields import STORE
from mainstay.config.report import Report, nearest
from mainstay.config.tree import Node

if TYPE_CHECKING:
    from mainstay.cli.exec.request import ExecRequest
    from mainstay.config.load import Loaded

BUILT_IN = "standard"


def problems_in(request: ExecRequest, loaded: Loaded) -> Report:
    """Every problem of the configuration and of the options that name parts of it."""
    report = Report(loaded.report.env)
    report.problems += loaded.report.problems
    if request.policy is not None:
        known = [*_named(loaded.tree), BUILT_IN]
        if request.policy not in known:
            allowed = f"the name of a policy; there are {', '.join(dict.fromkeys(known))}"
            node = Node(request.policy, None, "--policy")
            report.wrong(node, (), allowed, nearest(request.policy, known))
    if request.store is not None:
        _check_store(request.store, report)
    return report


def store_for_one_run(request: ExecRequest) -> str:
    """The store of a run whose configuration is wrong: what `--store` names, or none.

    With a key that is the only one that can be right: the file may have meant any other.
    """
    report = Report({})
    if request.store is not None:
        _check_store(request.store, report)
    if request.key is not None and (request.store is None or report.problems):
        raise CommandError(
            f"not run: which store has the key {request.key!r} is unknown, since the configuration"
            " has problems",
            hint="correct the configuration, or name the store with --store",
            exit_code=Exit.STORE_UNAVAILABLE,
        )
    return "memory://" if request.store is None or report.problems else request.store


def _check_store(url: str, report: Report) -> None:
    check(STORE.keys["url"][1], Node(url, None, "--store"), (), report)


def _named(tree: Node) -> list[str]:
    """The policies that the file names, also those that have problems."""
    for key in ("retry", "policies"):
        below = tree.value.get(key) if isinstance(tree.value, dict) else None
        if below is None:
            return []
        tree = below
    return list(tree.value) if isinstance(tree.value, dict) else []
