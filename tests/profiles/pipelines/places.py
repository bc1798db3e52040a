"""What the tests of pipelines share: scripted functions, a folder with a store, and operators."""

from mainstay import Engine
from mainstay.profiles.pipelines import Pipeline, Stage, read_ledger, verify_together


class Down(Exception):
    """The other side answers with a status."""

    def __init__(self, status=503, **headers):
        super().__init__(f"HTTP {status}")
        self.status_code = status
        self.headers = headers


class Flaky:
    """A function that fails as scripted, and counts its calls."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.calls = 0

    def __call__(self, ctx):
        self.calls += 1
        outcome = self.outcomes.pop(0) if self.outcomes else "done"
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class Place:
    """A folder with a store, ledgers and telemetry; engines are opened and closed as processes."""

    def __init__(self, folder):
        self.folder = folder
        self.url = f"sqlite:///{folder}/runs.db"
        self.telemetry = folder / "telemetry.json"
        self.events = []

    def engine(self, **options):
        return Engine(self.url, **({"sinks": [self.events.append], "share": None} | options))

    def pipeline(self, engine, *stages, name="etl", **options):
        places = {"ledgers": self.folder / "ledgers", "telemetry": self.telemetry}
        return Pipeline(name, stages, engine=engine, **(places | options))

    def ledger(self, name):
        return read_ledger(self.folder / "ledgers" / f"{name}.json")

    def kinds(self):
        self.assert_whole()
        log = [entry.kind for entry in self.ledger("pipeline_retry_log").entries]
        return log, [entry.kind for entry in self.ledger("versioning_ledger").entries]

    def assert_whole(self):
        both = self.ledger("pipeline_retry_log"), self.ledger("versioning_ledger")
        assert verify_together(*both) == []


def stage(name, function, **options):
    return Stage(name, function, **({"idempotency": "idempotent"} | options))


SECRET = "correct horse battery"


def operator(engine, name="ann"):
    """Adds an operator; what acts in their name."""
    if name not in [each.name for each in engine.operators]:
        first = next(iter(engine.operators), None)
        leave = {} if first is None else {"by": first.name, "proof": SECRET}
        engine.operators.add(name, secret=SECRET, **leave)
    return {"by": name, "proof": SECRET}


def decide(engine, action, name="ann", kind="quarantine", **options):
    (item,) = [each for each in engine.inbox if each.kind == kind]
    return engine.inbox.act(item.id, action, **operator(engine, name), **options)
