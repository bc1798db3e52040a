"""docs/contributing/map.md shows the source as it is."""

import re
from pathlib import Path

import pytest

from tools import house

ROOT = Path(__file__).parents[1]
PAGE = house.PAGE.read_text(encoding="utf-8")
PLACES = ("src", "docs/how-to", "docs/reference", "tests", "tools", "bench/servers.py", "api.txt")
"""Where a thing that exists is named: the page itself and the reasons in docs/design.md apart."""


def test_the_generated_parts_of_the_map_are_up_to_date():
    """The pictures and the table of rooms are those of the source."""
    assert house.render(PAGE) == PAGE, house.HOW


# --- walks ----------------------------------------------------------------------------------------

FOUND = {
    "core/retry/plan.py": "def fast_decision(",
    "core/known/http.py": "429: Kind.THROTTLED",
    "core/retry/kinds.py": "ECONNRESET",
    "core/retry/give_up.py": "gave up on {name} after",
    "core/retry/effects.py": 'Stop("no attempt left")',
    "core/idempotency/record.py": "command.epoch",
    "core/saga/record.py": "return KEEP, _LOST",
    "core/pipeline/record.py": "_LOST",
    "core/idempotency/fast_replay.py": "def hit(",
    "stores/sqlite/statements.py": "INSERT INTO mainstay_kept",
    "stores/postgres/statements.py": "INSERT INTO mainstay_kept",
    "stores/sqlite/batch.py": "mainstay_kept",
    "drivers/idempotency/keys.py": "class KeyOptions(",
    "drivers/call/emit.py": "class Notes(",
    "ports.py": "class SinkWants(",
    "core/audit/chain.py": "def seal(",
}
"""What a walk sends its reader to a file for."""


@pytest.mark.parametrize("file", FOUND)
def test_a_walk_leads_to_the_file_that_has_it(file):
    """A rule that moves to another module takes the walk along."""
    walks = PAGE.partition("\n## Three walks\n")[2].partition("\n## Recipes\n")[0]
    assert f"`{file}`" in walks
    assert FOUND[file] in (ROOT / "src/mainstay" / file).read_text(encoding="utf-8")


# --- recipes --------------------------------------------------------------------------------------

EXAMPLES = {
    "Add a policy field": [r"\bmax_retry_after\b", r"\bmaxRetryAfter\b"],
    "Add an event": [r"\bfallback_used\b", r"\bFallbackUsed\b"],
    "Add a command": [r"\bmainstay status\b", r"\bcli[./]status\b", r"\bspill, status\b"],
    "Add a sink": [
        r"\bNatsSink\b", r"\bsinks[./]nats\b", r'"nats": "a NATS subject"',
        r"\| `nats` \| a mapping", r'"description": "a NATS subject',
    ],
    "Add a store": [
        r"\bRedisStore\b", r"\bstores[./]redis[./]store\b", r'"redis", "rediss"',
        r"\bmemory://, sqlite:///file.db[^\n]*redis://", r"\|postgres\|redis\|rediss",
        r"pip install 'mainstay\[redis\]'`\.", r"^\| `redis://host:6379` \| many machines",
        r"^def start_valkey\(",
    ],
    "Add a publisher": [
        r"\bNatsPublisher\b", r"\bpublishers[./]nats\b", r"\bnats\|tls\|kafka",
        r"\bURL of a broker: nats://", r"\bimport [^\n]*\btest_nats\b[^\n]*test_redis_streams",
    ],
    "Add an integration": [r"\bIdempotencyKeyMiddleware\b"],
}  # fmt: skip
"""What names the example of a recipe in a file."""
OTHERS = {
    "Add a store": {
        "src/mainstay/publishers/redis_streams.py": "a publisher with the same schemes",
        "src/mainstay/stores/redis/keys.py": "beside the store, and named by its docstring",
        "tests/config/broken/a_secret_is_not_shown.txt": "has the text of what is expected",
        "tests/config/broken/ten_at_once.txt": "the same",
        "tests/drivers/guards/test_probes.py": "uses one store of several",
    },
    "Add an integration": {
        "docs/how-to/django.md": "the page of another integration",
        "docs/how-to/fastapi.md": "the same",
    },
}
"""Files that name an example and need nothing for another one of its sort."""
IF_ANY = {
    "Add a sink": ["pyproject.toml"],
    "Add a store": ["pyproject.toml", "tests/crash/faults/places.py"],
    "Add a publisher": ["pyproject.toml", "src/mainstay/integrations/errors/nats.py"],
    "Add an integration": ["pyproject.toml", "src/mainstay/integrations/errors/__init__.py"],
}
"""Rows that name a library or a server, and not the example."""


def recipes(page):
    """Each recipe with the files of its table, its placeholders filled in from its text."""
    parts = re.split(r"^### ", page.partition("\n## Recipes\n")[2], flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: files_of(part) for part in parts}


def files_of(recipe):
    """The first column of a recipe's table."""
    means = dict(re.findall(r"`<([\w-]+)>` is\s+`([^`]+)`", recipe))
    rows = re.findall(r"^\| `([^`]+)` \|", recipe, re.MULTILINE)
    return [re.sub(r"<([\w-]+)>", lambda found: means[found[1]], row) for row in rows]


def naming(patterns, root=ROOT, places=PLACES):
    """The files that match one of some patterns, but for recordings of other things."""
    either = re.compile("|".join(patterns), re.MULTILINE)
    return {
        path.relative_to(root).as_posix()
        for place in places
        for path in [root / place, *(root / place).rglob("*")]
        if path.is_file() and not is_beside(path, either) and either.search(text_of(path))
    }


def is_beside(path, either):
    """Caches, this file, recordings of old versions and the frozen names in them."""
    if path == Path(__file__) or "__pycache__" in path.parts or path.name == "stored_names.py":
        return True
    return bool({"recorded", "stored"} & {*path.parts}) and not either.search(path.name)


def text_of(path):
    """The text of a file; nothing if it is not text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@pytest.mark.parametrize("recipe", EXAMPLES)
def test_a_recipe_names_every_file_to_touch(recipe):
    """A contributor who follows the table leaves out no file, and opens none in vain."""
    named = set(recipes(PAGE)[recipe]) - set(IF_ANY.get(recipe, ()))
    found = naming(EXAMPLES[recipe]) - OTHERS.get(recipe, {}).keys()
    assert sorted(named) == sorted(found)


def test_every_recipe_is_held_to_its_example():
    """None is checked for the existence of its files alone, and no exception is left over."""
    assert EXAMPLES.keys() == recipes(PAGE).keys()
    for recipe, others in OTHERS.items():
        assert others.keys() <= naming(EXAMPLES[recipe])
    for recipe, rows in IF_ANY.items():
        assert set(rows) <= set(recipes(PAGE)[recipe])


@pytest.mark.parametrize("recipe", sorted(recipes(PAGE)))
def test_a_file_of_a_recipe_exists(recipe):
    """Each recipe has a table, and its example has each file of it."""
    named = recipes(PAGE)[recipe]
    assert named
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_a_file_that_is_left_out_is_found(tmp_path):
    """The rules above can fail: a new file that names the example belongs into the table."""
    (tmp_path / "src/recorded").mkdir(parents=True)
    (tmp_path / "src/a.py").write_text("fallback_used = 1\n", encoding="utf-8")
    (tmp_path / "src/b.py").write_text("no_fallback_used = 1\n", encoding="utf-8")
    (tmp_path / "src/recorded/old.json").write_text("fallback_used", encoding="utf-8")
    (tmp_path / "src/recorded/fallback_used.json").write_text("fallback_used", encoding="utf-8")
    found = naming([r"\bfallback_used\b"], tmp_path, ["src"])
    assert found == {"src/a.py", "src/recorded/fallback_used.json"}


def test_placeholders_are_filled_in_from_the_text():
    """`<feature>` in a path is what the recipe's text gives for it."""
    text = "## Recipes\n### Add\nHere `<a>` is `x`.\n| `src/<a>/b_<a>.py` | why |\n"
    assert recipes(f"\n{text}") == {"Add": ["src/x/b_x.py"]}
