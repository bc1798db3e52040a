"""What is wrong with the configuration of a run: the file, `--set`, `--policy`, `--store`, at once.

A command is never run more often because of a mistake: by default it is not run at all, and with
`--on-config-error=once` exactly once.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from mainstay.cli.errors import CommandError
from mainstay.cli.exec.meant import meant_by
from mainstay.cli.exits import Exit
from mainstay.config.check import check
from mainstay.config.fields import STORE
from mainstay.config.report import Report, nearest
from mainstay.config.tree import Node
from mainstay.engine.registry import STANDARD

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
    if request.policy is None and not report.problems:
        _check_mapping(request, loaded, report)
    return report


def _check_mapping(request: ExecRequest, loaded: Loaded, report: Report) -> None:
    """A command that the configuration maps by another name has no more attempts than there."""
    settings, operation = loaded.settings, request.operation
    if settings is None or not settings.operations:
        return
    attempts = {each.name: each.max_attempts for each in (STANDARD, *settings.policies)}
    if operation in attempts or any(fnmatchcase(operation, each) for each in settings.operations):
        return
    meant = meant_by(operation, request.command, settings.operations)
    if meant is None:
        return
    policy, default = settings.operations[meant.mapped], settings.default
    if attempts[policy] < attempts[default]:
        node = Node(operation, None, "--operation" if request.is_named else "the command line")
        text = (
            f"{operation!r} is mapped to no policy and would have {attempts[default]} attempts, and"
            f" {meant.mapped!r} is mapped to {policy!r} with {attempts[policy]}:"
            f" use --operation {meant.operation}, or --policy {default}"
        )
        report.problem(node, (), text)


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
