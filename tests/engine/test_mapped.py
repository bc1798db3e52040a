"""A configuration with problems: no operation runs more often than the file may have meant."""

import pytest

from mainstay import ConfigWarning, Engine
from mainstay.engine.registry import STANDARD

pytestmark = pytest.mark.filterwarnings("ignore::mainstay.PolicyNotFoundWarning")
SHOP = """\
retry:
  policies:
    once: {maxAttempts: 1}
    twice: {maxAttempts: 2}
    patient: {extends: twice, maxDelay: 9}
  operationPolicies:
    charge: once
    "report.*": patient
"""


@pytest.fixture
def attempts(tmp_path, monkeypatch):
    """The attempts of an operation if the configuration is this text."""
    monkeypatch.chdir(tmp_path)

    def attempts(text, *operations, env=None, **options):
        (tmp_path / "mainstay.yml").write_text(text, encoding="utf-8")
        with (
            pytest.warns(ConfigWarning),
            Engine.from_config(
                "mainstay.yml", env=env or {}, on_error="default", **options
            ) as engine,
        ):
            return [engine.policies.of(name).max_attempts for name in operations]

    return attempts


EVERYTHING = {
    "the policy": SHOP.replace("maxAttempts: 1", "maxAtempts: 1"),
    "the map": SHOP.replace("operationPolicies", "operationPolices"),
    "a map of another name": SHOP.replace("operationPolicies", "rules"),
    "the section": SHOP.replace("retry", "rtery"),
    "the map is a list": SHOP.replace("    charge", "    - charge").replace('    "', '    - "'),
    "no such policy": SHOP.replace("charge: once", "charge: onec"),
    "no YAML": SHOP + "\tstore: x\n",
    "a quote too many": SHOP.replace('"report.*"', '"report.*'),
    "given twice": "retry: {}\n" + SHOP,
    "another operation twice": SHOP + "    charge: patient\n",
    "all of retry": SHOP + "  nested: colapse\n",
    "no colon": SHOP.replace("charge:", "charge"),
    "a semicolon": SHOP.replace("charge:", "charge;"),
    "no YAML, and a list": SHOP.replace("    charge", "    - charge") + "\tstore: x\n",
    "something before the key": SHOP.replace("    charge", "{   charge"),
    "the key of the map": SHOP.replace("  operationPolicies:\n", ""),
}


@pytest.mark.req("AG-01.invalid")
@pytest.mark.parametrize("text", EVERYTHING.values(), ids=EVERYTHING)
def test_an_operation_that_the_file_maps_runs_once_unless_its_policy_is_valid(attempts, text):
    """Wherever the mistake is; and what the file does not name has the built-in policy."""
    assert attempts(text, "charge", "other") == [1, STANDARD.max_attempts]


@pytest.mark.parametrize("name", ["orders:create", "a b", "a=b", "*.create"])
@pytest.mark.parametrize(
    "text", ["  {}: once\n", "  - {}: once\n", "  {{x: y, {}: once}}\n", '"{}" = "once"\n']
)
def test_every_text_that_may_be_a_key_of_a_broken_file_is_one(attempts, name, text):
    """A key may have spaces, colons and equals signs, and stand in a list or in braces."""
    operation = name.replace("*", "orders")
    broken = text.format(name) + "\tstore: x\n"
    assert attempts(broken, operation, "other") == [1, STANDARD.max_attempts]


def test_a_field_among_the_policies_may_belong_to_any_of_them(attempts):
    """If its indentation is wrong, the policy above has lost it."""
    text = SHOP.replace("once: {maxAttempts: 1}", "once:\n    maxAttempts: 1")
    assert attempts(text, "charge", "once", "other") == [1, 1, STANDARD.max_attempts]


def test_an_entry_of_the_map_may_stand_in_a_policy(attempts):
    """Where the header of a table is missing, its entries belong to the table before."""
    text = SHOP.replace("maxDelay: 9}", 'maxDelay: 9, charge.*: once, "pay": once}')
    assert attempts(text, "charge.a", "pay", "other") == [1, 1, STANDARD.max_attempts]


def test_a_list_of_everything_in_a_broken_file_maps_nothing(attempts):
    """A star is a pattern only if it is a key."""
    broken = SHOP + '\tstore: x\ntargets:\n  - "*"\n  - *\n'
    assert attempts(broken, "charge", "other") == [1, STANDARD.max_attempts]


def test_a_policy_without_a_problem_holds_for_what_is_mapped_to_it(attempts):
    """A mistake elsewhere changes nothing for it."""
    elsewhere = SHOP + "store: sqlit:///a\n"
    assert attempts(elsewhere, "charge", "report.a", "twice") == [1, 2, 2]


def test_a_policy_is_as_valid_as_those_that_it_extends(attempts):
    """Its fields come from them."""
    parent = SHOP.replace("maxAttempts: 2", "maxAttempts: many")
    assert attempts(parent, "report.a", "patient", "charge") == [1, 1, 1]


def test_a_policy_of_the_operations_own_name_is_a_map_too(attempts):
    """Without a map an operation finds its policy by its name."""
    text = "retry: {policies: {charge: {maxAtempts: 1}, other: {maxAttempts: 2}}}\n"
    assert attempts(text, "charge", "other", "third") == [1, 2, 3]


@pytest.mark.parametrize(
    "options",
    [{"overrides": ["retry.policies.wnce.maxAttempt=2"]}, {"env": {"MAINSTAY_RETRY__NSTED": "x"}}],
    ids=["set", "environment"],
)
def test_a_wrong_override_may_have_meant_any_policy(attempts, options):
    """So none of the file's is valid."""
    assert attempts(SHOP, "charge", "report.a", **options) == [1, 1]


def test_the_standard_of_the_file_holds_if_it_is_valid(attempts):
    text = "retry: {policies: {standard: {maxAttempts: 2}}, operations: {a: standard}}\nstroe: x\n"
    assert attempts(text, "a", "standard") == [2, 2]
    assert attempts(text.replace("maxAttempts", "maxAtempts"), "a", "standard") == [1, 3]


def test_what_is_not_text_cannot_be_read_as_a_map(attempts, tmp_path):
    """UTF-16 is refused, and its keys are seen all the same."""
    (tmp_path / "utf16.yml").write_bytes(SHOP.encode("utf-16"))
    with pytest.warns(ConfigWarning, match="UTF-16"):
        engine = Engine.from_config("utf16.yml", on_error="default", env={})
    with engine:
        assert engine.policies.of("charge").max_attempts == 1


def test_a_long_word_in_a_broken_file_takes_linear_time(tmp_path):
    """A million letters are one word, not a million beginnings of words."""
    path = tmp_path / "mainstay.yml"
    path.write_text("charge: once\n\t" + "a" * 1_000_000, encoding="utf-8")
    with (
        pytest.warns(ConfigWarning),
        Engine.from_config(path, env={}, on_error="default") as engine,
    ):
        assert engine.policies.of("charge").max_attempts == 1
