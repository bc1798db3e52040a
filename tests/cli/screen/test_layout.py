"""Every screen on a narrow terminal: ids and states are whole, each in one line."""

import pytest
from click.testing import CliRunner
from rich.text import Text

from mainstay import BreakerSettings, Engine, Item, RetryPolicy
from mainstay.cli.app import app
from mainstay.cli.screen.console import Screen, fields, table

ONCE = RetryPolicy(name="once-and-never-again", max_attempts=1)
NAME = "/usr/bin/python3 /srv/shop/jobs/nightly/deploy.py"
OPERATOR = "ann.of.the.operations.team"


def down():
    raise ConnectionError("the bank does not answer, as it did not answer yesterday and before")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A store with a circuit, an item, an operator and a call; and the log of all that."""
    folder = tmp_path_factory.mktemp("shop")
    url, log = f"sqlite:///{folder}/a-store-with-a-long-name.db", folder / "audit.jsonl"
    settings = BreakerSettings(failure_threshold=1, recovery_timeout=600.0)
    options = {"policies": [ONCE], "default": ONCE.name, "sinks": [], "share": 3600.0}
    with Engine(url, breaker=settings, audit=log, **options) as engine:
        engine.run(NAME, down)
        engine.breaker("held").force_open("by hand")
        item = engine.inbox.put(
            Item(kind="unknown_outcome", subject="a", operation=NAME, text="it is not known " * 4)
        )
        engine.operators.add(OPERATOR, secret="correct horse battery staple")
        engine.catch_up()
        process = engine._sharing.node
    return {"url": url, "log": str(log), "item": item.id, "process": process}


SCREENS = [
    ("status --store {url}", [NAME, "open", "forced_open", "{item}", "{url}"]),
    ("circuits --store {url}", [NAME, "open", "forced_open", "gone"]),
    ("circuits show NAME --store {url}", [NAME, "open", "{process}"]),
    ("inbox --store {url}", ["{item}", "unknown_outcome", NAME]),
    ("inbox show {item} --store {url}", ["{item}", "unknown_outcome", "open"]),
    ("operators --store {url}", [OPERATOR, "enabled", "secret"]),
    ("store purge --store {url}", ["{url}"]),
    ("policies", ["standard", "exponential"]),
    ("audit tail {log}", [NAME]),
    ("audit stats {log}", [NAME]),
    ("doctor", ["prometheus", "cli"]),
]


@pytest.mark.parametrize("width", [60, 40])
@pytest.mark.parametrize(("line", "wanted"), SCREENS, ids=[line for line, _ in SCREENS])
def test_ids_and_states_are_whole_on_a_narrow_screen(shop, monkeypatch, width, line, wanted):
    """Of 60 and of 40 columns; what is longer than the screen is not cut either."""
    monkeypatch.setenv("COLUMNS", str(width))
    words = [NAME if word == "NAME" else word.format(**shop) for word in line.split()]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    for each in wanted:
        assert any(each.format(**shop) in text for text in done.stdout.splitlines()), done.stdout


def rendered(monkeypatch, width, renderable):
    """What a screen of that width shows."""
    monkeypatch.setenv("COLUMNS", str(width))
    screen = Screen()
    with screen.capture() as capture:
        screen.print(renderable)
    return [line.rstrip() for line in capture.get().splitlines()]


COLUMNS = ("id", "asks again in", "what")
ROW = ("0123456789abcdef", Text("12 s"), "words of a text that is free")


@pytest.mark.parametrize(
    ("width", "wanted"),
    [
        (80, ["id                 asks again in   what"]),
        (
            50,
            [
                "                   asks",
                "                   again",
                "id                 in      what",
            ],
        ),
        (
            36,
            [
                "id             0123456789abcdef",
                "asks again in  12 s",
                "what           words of a text that",
                "               is free",
            ],
        ),
        (
            20,
            [
                "id",
                "  0123456789abcdef",
                "asks again in",
                "  12 s",
                "what",
                "  words of a text",
                "  that is free",
            ],
        ),
    ],
)
def test_a_table_becomes_narrower_and_then_a_list(monkeypatch, width, wanted):
    """First the headings have several lines, then each row is a list."""
    found = rendered(monkeypatch, width, table(COLUMNS, [ROW], left=3))
    assert found[: len(wanted)] == wanted


def test_rows_of_a_list_are_apart(monkeypatch):
    """By an empty line; what is empty has none."""
    rows = [("0" * 16, "open", ""), ("1" * 16, "closed", "well")]
    found = rendered(monkeypatch, 20, table(("id", "state", "why"), rows, left=3))
    first = ["id", f"  {'0' * 16}", "state", "  open"]
    assert found == [*first, "", "id", f"  {'1' * 16}", "state", "  closed", "why", "  well"]


def test_an_empty_table_has_its_headings(monkeypatch):
    """There are no rows to measure."""
    assert rendered(monkeypatch, 40, table(("id", "state"), []))[0] == "id   state"


def test_fields_with_an_id_that_is_too_long_keep_it_whole(monkeypatch):
    """The others are wrapped as before."""
    found = rendered(monkeypatch, 30, fields([("circuit", NAME), ("why", "it is down, and was")]))
    assert found == [f"circuit  {NAME}", "why      it is down, and was"]
    assert rendered(monkeypatch, 30, fields([])) == []
