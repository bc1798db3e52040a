"""`mainstay sagas`: tables, JSON, diagrams, recovery with the definitions of an application."""

import json
import signal
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from mainstay import CompensationFailedError, Engine, RetryPolicy, Saga, SagaStep
from mainstay.cli import guard
from tests.processes import at_some_speed

ONCE = RetryPolicy(max_attempts=1)
APP = """
from mainstay import Engine, Saga, SagaStep

def note(name):
    def act():
        with open("calls.txt", "a") as file:
            file.write(name + "\\n")
    return act

sagas = [Saga("transfer", [SagaStep("debit", note("debit"), note("-debit")),
                           SagaStep("credit", note("credit"))])]
one = sagas[0]
wrong = 5

def make():
    engine = Engine("sqlite:///app.db", sinks=[], audit=False)
    engine.sagas.register(*sagas)
    return engine
"""


class Died(BaseException):
    """The process is gone."""


def dies():
    raise Died


def fails():
    raise ValueError("closed")


@pytest.fixture
def url(tmp_path, monkeypatch):
    """A store with a saga of each kind, and an application beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"app_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP, encoding="utf-8")
    monkeypatch.setenv("APP", name)
    place = f"sqlite:///{tmp_path}/app.db"
    with Engine(place, sinks=[], audit=False) as engine:
        good = SagaStep("debit", lambda: 5, lambda: None, policy=ONCE)
        engine.sagas.run(Saga("order", [[good, SagaStep("bill", lambda: 7)]]), id="o-1")
        bad = SagaStep("debit", lambda: 5, fails, policy=ONCE, compensate_policy=ONCE)
        with pytest.raises(CompensationFailedError):
            engine.sagas.run(Saga("refund", [bad, SagaStep("x", fails, policy=ONCE)]), id="r<1>")
        left(engine, "transfer", [good, SagaStep("credit", dies)], id="t-1")
    return place, name


def left(engine, name, steps, **options):
    """A saga whose process is gone, and whose lease is over."""

    def die(lease):
        with pytest.raises(Died):
            engine.sagas.run(Saga(name, steps, lease=lease), **options)
        time.sleep(1.2 * lease)

    at_some_speed(die, 0.05, 0.5, 5.0)


def run(capsys, *arguments):
    code = guard.run(["sagas", *arguments])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_list(url, capsys):
    """Every saga, with its state and what it waits for; filters narrow the list."""
    code, out, _ = run(capsys, "list", "--store", url[0])
    assert code == 0
    for text in ("order/o-1", "succeeded", "refund/r<1>", "stuck", "transfer/t-1", "running"):
        assert text in out
    _, out, _ = run(capsys, "list", "--json", "--state", "stuck", "--store", url[0])
    (found,) = json.loads(out)
    assert (found["saga"], found["state"]) == ("refund", "stuck")
    _, out, _ = run(capsys, "list", "--saga", "none", "--store", url[0])
    assert "there is no saga\n" in out


def test_show(url, capsys):
    """The steps of one saga, and its log."""
    code, out, _ = run(capsys, "show", "refund/r<1>", "--store", url[0])
    assert code == 0
    for text in ("undo failed", "ValueError: closed", "the compensation of step debit failed"):
        assert text in out
    _, out, _ = run(capsys, "show", "refund/r<1>", "--json", "--store", url[0])
    assert json.loads(out)["steps"][0]["status"] == "undo_failed"
    code, _, err = run(capsys, "show", "refund/none", "--store", url[0])
    assert code == 1
    assert "there is no saga 'refund/none'" in err


def test_graph(url, capsys):
    """What happened as Mermaid text and as a picture; no id breaks either."""
    _, out, _ = run(capsys, "graph", "refund/r<1>", "--store", url[0])
    assert out.startswith("flowchart TD")
    assert 's0["debit<br/>undo failed' in out
    assert "r#60;1#62;" in out
    _, out, _ = run(capsys, "graph", "order/o-1", "--format", "svg", "--store", url[0])
    texts = [each.text for each in ET.fromstring(out).iter() if each.tag.endswith("text")]
    assert {"debit", "bill", "succeeded"} <= set(texts)
    _, out, _ = run(capsys, "graph", "order/o-1", "--json", "--store", url[0])
    assert json.loads(out)["format"] == "mermaid"


@pytest.mark.parametrize("form", ["mermaid", "svg"])
def test_graph_shields_a_terminal(url, capsys, form):
    """An id may hold what a terminal obeys, as any text from elsewhere."""
    place, _ = url
    saga_id = "\x1b[31mred\r\x9b2J"
    with Engine(place, sinks=[], audit=False) as engine:
        engine.sagas.run(Saga("odd", [SagaStep("a", lambda: 5)]), id=saga_id)
    _, out, _ = run(capsys, "graph", f"odd/{saga_id}", "--format", form, "--store", place)
    assert out.replace("\n", "").isprintable()
    assert "red" in out


def test_recover(url, capsys, tmp_path):
    """A process that knows the definitions takes over what another has left."""
    place, app = url
    code, out, _ = run(capsys, "recover", "--app", f"{app}:sagas", "--json", "--store", place)
    found = json.loads(out)
    assert (code, found["recovered"], found["succeeded"]) == (0, 1, 1)
    assert (tmp_path / "calls.txt").read_text() == "credit\n"
    code, out, _ = run(capsys, "recover", "--app", f"{app}:make")
    assert (code, out.split(":")[0]) == (0, "0 recovered")


def test_recover_what_is_not_known(url, capsys):
    """Sagas whose definition the application does not have are named."""
    place, app = url
    with Engine(place, sinks=[], audit=False) as engine:
        left(engine, "other", [SagaStep("a", dies)], id="1")
    _, out, _ = run(capsys, "recover", "--app", f"{app}:one", "--store", place)
    assert "1 of other version 1: the definition is not known in this application" in out


def test_resume(url, capsys):
    """One saga is taken over, and run to its end."""
    place, app = url
    code, out, _ = run(capsys, "resume", "transfer/t-1", "--app", f"{app}:one", "--store", place)
    assert (code, out) == (0, "transfer/t-1: succeeded\n")
    _, out, _ = run(
        capsys, "resume", "transfer/t-1", "--json", "--app", f"{app}:one", "--store", place
    )
    assert json.loads(out)["state"] == "succeeded"


def test_resume_of_one_that_runs(url, capsys):
    """A saga that a process runs is left to it."""
    place, app = url
    codes = []

    def look():
        codes.append(run(capsys, "resume", "transfer/t-9", "--app", f"{app}:one", "--store", place))

    with Engine(place, sinks=[], audit=False) as engine:
        steps = [SagaStep("debit", look, print), SagaStep("credit", lambda: 1)]
        engine.sagas.run(Saga("transfer", steps, lease=30.0), id="t-9")
    ((code, _, err),) = codes
    assert code == 1
    assert "a process runs it" in err


@pytest.mark.parametrize(
    ("app", "text"),
    [
        ("app", "names no attribute"),
        ("no_such_module:sagas", "No module named"),
        ("{}:nothing", "has no attribute 'nothing'"),
        ("{}:wrong", "is a int, and has no sagas"),
        ("json:dumps", "raised TypeError: dumps() missing"),
    ],
)
def test_an_application_that_is_none(url, capsys, app, text):
    """The message has what is wrong with --app, and what it takes."""
    code, _, err = run(capsys, "recover", "--app", app.format(url[1]), "--store", url[0])
    assert code == 2
    assert text in err


def test_watch_ends_with_a_signal(url, capsys, monkeypatch):
    """Recovery is repeated until the command is stopped."""
    place, app = url
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    def stopped(self, stop, *, every, progress, workers):
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        assert (every, workers) == (0.5, 3)
        return self.recover(progress=progress, workers=workers)

    monkeypatch.setattr("mainstay.drivers.saga.sagas.Sagas.watch", stopped)
    try:
        code, out, _ = run(
            capsys, "recover", "--watch", "--every", "500ms", "--workers", "3",
            "--app", f"{app}:one", "--store", place,
        )  # fmt: skip
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
    assert (code, out.split(":")[0]) == (0, "1 recovered")


def exits():
    raise SystemExit(3)


def test_a_step_that_exits(url, capsys):
    """It ends neither a recovery, as an internal error, nor a resumption without a word."""
    place, name = url
    with Path(f"{name}.py").open("a", encoding="utf-8") as file:
        file.write("def exits():\n    raise SystemExit(3)\n")
        file.write("quits = Saga('quits', [SagaStep('a', exits)], max_recoveries=1)\n")
    with Engine(place, sinks=[], audit=False) as engine, pytest.raises(SystemExit):
        engine.sagas.run(Saga("quits", [SagaStep("a", exits)]), id="1")
    options = ("--app", f"{name}:quits", "--store", place)
    code, _, err = run(capsys, "resume", "quits/1", *options)
    assert code == 1
    assert "quits/1: a step has ended the run with SystemExit: 3" in err
    code, out, err = run(capsys, "recover", *options)
    assert code == 0
    assert "1 recovered: 0 succeeded, 1 compensated" in out


def test_without_a_command(capsys):
    """`mainstay sagas` alone shows its help."""
    assert run(capsys)[0] == 2
