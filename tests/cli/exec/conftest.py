"""`mainstay exec` in the process of the test, for what needs no process of its own."""

import logging
import warnings

import pytest
from click.testing import CliRunner

from mainstay.cli.exec.command import command


@pytest.fixture
def invoke(monkeypatch):
    """Runs `mainstay exec` with these arguments, as click has it; what it raises is raised."""
    logger = logging.getLogger("mainstay")
    monkeypatch.setattr(logger, "handlers", logger.handlers)
    monkeypatch.setattr(logger, "propagate", logger.propagate)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def invoke(*arguments):
        done = CliRunner().invoke(command, list(arguments), standalone_mode=False)
        if done.exception is not None:
            raise done.exception
        return done

    return invoke
