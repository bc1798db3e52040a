"""A configuration with problems: no operation runs more often than the file may have meant."""

import json
import warnings

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

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


WRONG_MAPS = {
    "a mapping": "{charge: {policy: once}}",
    "a policy in its place": "{charge: {maxAttempts: 1}}",
    "a list": "[charge]",
    "a list of pairs": "[[charge, thrice]]",
    "a list of mappings": "[{operation: charge, policy: thrice}]",
    "a list of entries": "[{charge: thrice}]",
    "words": "['charge -> thrice']",
    "one text": '"charge=thrice"',
    "the other way round": "{thrice: [charge, pay]}",
    "one operation for a policy": "{thrice: charge}",
    "two in a key": "{'charge, pay': [thrice]}",
    "a number": "{charge: 1}",
    "nothing": "{charge: }",
    "a namespace": "{charge: {read: thrice}}",
    "in a namespace": "{shop: {charge: thrice}}",
    "a merge of no mapping": "{charge: thrice, <<: [thrice]}",
    "a tag": "!!omap {charge: thrice}",
    "a list as a key": "{[charge, pay]: thrice}",
    "a key that may be a question": "{? charge : [thrice]}",
    "nothing that is named": "{charge: *thrice}",
}
KEYS = ("operationPolicies", "operation_policies", "operations")


@pytest.mark.req("AG-01.invalid")
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("wrong", WRONG_MAPS.values(), ids=WRONG_MAPS)
def test_an_operation_of_a_wrong_map_runs_once(attempts, wrong, key):
    """Whatever stands in place of a policy's name, or of the map."""
    text = f"retry:\n  policies: {{thrice: {{maxAttempts: 3}}}}\n  {key}: {wrong}\n"
    assert attempts(text, "charge", "other") == [1, STANDARD.max_attempts]


def test_a_dotted_key_of_toml_is_a_namespace(attempts, tmp_path):
    """files.read = "once" is a table `files` with a key `read`; the operation is `files.read`."""
    path = tmp_path / "pyproject.toml"
    for entry in ('files.read = "standard"', 'files."*" = "standard"', 'files.read.policy = "x"'):
        path.write_text(f"[tool.mainstay.retry.operations]\n{entry}\n", encoding="utf-8")
        with (
            pytest.warns(ConfigWarning),
            Engine.from_config(path, on_error="default", env={}) as engine,
        ):
            assert engine.policies.of("files.read").max_attempts == 1


MISPLACED = {
    "the file is a list": "- retry: {operations: {charge: standard}}\n",
    "the section is a list": "retry: [{operations: {charge: standard}}]\n",
    "in another section": "circuitBreaker: {operationPolicies: {charge: {policy: standard}}}\n",
    "the policies are a list": "retry: {policies: [{name: charge, maxAttempts: 1}]}\n",
    "a policy in a policy": "retry: {policies: {shop: {charge: {maxAttempts: 1}}}}\n",
    "in a field of a policy": "retry: {policies: {once: {extends: {charge: once}}}}\n",
    "both spellings": "retry: {operations: {a: standard}, operationPolicies: {charge: standard}}\n",
    "both, and it is in both": (
        "retry: {operations: {charge: standard}, operationPolicies: {charge: standard}}\n"
    ),
    "twice, and the first is valid": (
        "retry:\n  operations: {charge: standard}\n  operations: {charge: once}\n"
    ),
    "a second document": (
        "retry: {policies: {p: {maxAttempts: 3}}, operations: {charge: p}}\n---\n"
        "retry: {policies: {p: {maxAttempts: 1}}}\n"
    ),
    "the policies twice": (
        "retry:\n  policies: {p: {maxAttempts: 3}}\n  policies: {p: {maxAttempts: 1}}\n"
        "  operations: {charge: p}\n"
    ),
    "another word for it": (
        "retry: {operations: {charge: standard}}\nretries: {charge: {policy: once}}\n"
    ),
    "escaped": '"ch\\u0061rge": once\n\tx\n',
    "many colons": "{charge:a:b:c:d:e:f:g:h:i: once\n\tx\n",
}


@pytest.mark.parametrize("text", MISPLACED.values(), ids=MISPLACED)
def test_a_map_that_stands_elsewhere_is_one_all_the_same(attempts, text):
    """And one that is there twice has no entry that is certain."""
    name = "charge:a:b:c:d:e:f:g:h:i" if ":a:b" in text else "charge"
    assert attempts(text, name, "other") == [1, STANDARD.max_attempts]


def test_the_order_of_patterns_is_that_of_the_map(attempts):
    """A wrong pattern that comes later takes nothing from one that is right."""
    text = "retry: {operations: {'db.*': standard, '*': {policy: once}}}\n"
    assert attempts(text, "db.read", "other") == [STANDARD.max_attempts, 1]


def test_the_policy_of_an_entry_may_come_from_the_environment(attempts):
    text = SHOP.replace("charge: once", "charge: ${POLICY}") + "stroe: x\n"
    assert attempts(text, "charge", env={"POLICY": "twice"}) == [2]


@pytest.mark.parametrize(
    "options",
    [
        {"overrides": ["retry.operationPolices.charge=once"]},
        {"overrides": ['retry.operationPolices."charge"=once']},
        {"overrides": ["retry.operations.charge={policy: once}"]},
        {"overrides": ["retry.operations={charge once"]},
        {"overrides": ["retry={operations: {charge: {policy: once}}}"]},
        {"env": {"MAINSTAY_RETRY__OPERATIONS__CHARGE": "once"}},
        {"env": {"MAINSTAY_RETRY__OPERATIONS": "{charge: {policy: once}}"}},
    ],
    ids=str,
)
def test_an_operation_of_a_wrong_override_runs_once(attempts, options):
    assert attempts("{}", "charge", "other", **options) == [1, STANDARD.max_attempts]


def test_nothing_is_known_of_a_file_that_cannot_be_read(tmp_path):
    """Too large, a folder, not there: each operation may be mapped in it."""
    large = tmp_path / "large.yml"
    with large.open("wb") as file:
        file.write(SHOP.encode())
        file.truncate(11 * 1024 * 1024)
    for path in (large, tmp_path, tmp_path / "missing.yml"):
        with (
            pytest.warns(ConfigWarning),
            Engine.from_config(path, on_error="default", env={}) as engine,
        ):
            assert engine.policies.of("anything").max_attempts == 1


def test_very_many_keys_of_a_broken_file_are_every_operation(attempts):
    """So many names are not kept."""
    text = "".join(f"a{n}: once\n" for n in range(10_001)) + "charge: once\n\tx\n"
    assert attempts(text, "charge", "other") == [1, 1]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le"])
def test_a_name_in_another_encoding_is_known(attempts, tmp_path, encoding):
    path = tmp_path / "other.yml"
    path.write_bytes("prüfen: once\n".encode(encoding))
    with (
        pytest.warns(ConfigWarning),
        Engine.from_config(path, on_error="default", env={}) as engine,
    ):
        assert engine.policies.of("prüfen").max_attempts == 1


_NAMES = st.text("abü.:/*[]-_= 1", min_size=1, max_size=6).filter(
    lambda name: name == name.strip() and any(map(str.isalnum, name))
)
_LEAVES = st.none() | st.booleans() | st.integers(0, 9) | st.just("twice") | _NAMES
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_NAMES | st.just("policy"), inner, max_size=3)
    ),
    max_leaves=6,
)
_MAPS = st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=3)
_PLACES = {
    "right": lambda key, value: {"retry": {"policies": TWICE, key: value}},
    "the section": lambda key, value: {"rtery": {"policies": TWICE, key: value}},
    "the key": lambda key, value: {"retry": {"policies": TWICE, f"{key}s": value}},
    "a list": lambda key, value: {"retry": [{"policies": TWICE}, {key: value}]},
    "another section": lambda key, value: {"circuitBreaker": {key: value}},
    "a policy": lambda key, value: {"retry": {"policies": {**TWICE, "p": {key: value}}}},
    "at the top": lambda key, value: {"retry": {"policies": TWICE}, key: value},
}
TWICE = {"twice": {"maxAttempts": 2}}


def _ways(value, above=()):
    """The path of each key, at any level."""
    for key, child in value.items() if isinstance(value, dict) else ():
        yield (*above, key)
        yield from _ways(child, (*above, key))
    for child in value if isinstance(value, list) else ():
        yield from _ways(child, above)


@pytest.mark.req("AG-01.invalid")
@given(
    st.lists(_MAPS, max_size=2) | _MAPS,
    st.sampled_from(KEYS),
    st.sampled_from(sorted(_PLACES)),
    st.sampled_from(["yaml", "flow", "json"]),
    st.sampled_from(["", "\n\tx\n", "\n---\n{}\n"]),
)
def test_law_whatever_is_wrong_no_key_of_the_map_runs_more_than_once(
    tmp_path_factory, mapped, key, place, form, broken
):
    """Not three times, as the built-in policy; and twice only if that policy is its own."""
    document = _PLACES[place](key, mapped)
    text = json.dumps(document, ensure_ascii=False)
    if form != "json":
        text = yaml.safe_dump(document, default_flow_style=form == "flow", allow_unicode=True)
    path = tmp_path_factory.getbasetemp() / "law.yml"
    path.write_text(text + broken, encoding="utf-8")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine = Engine.from_config(path, on_error="default", env={})
        assume(any(each.category is ConfigWarning for each in caught))
        with engine:
            for way in _ways(mapped):
                _check_way(engine, way, mapped if place == "right" and not broken else {})


def _check_way(engine, way, mapped):
    """A key of the map by itself and, if the structure of the file is known, with those above."""
    is_own = isinstance(mapped, dict) and any(each == "twice" for each in mapped.values())
    most = 2 if is_own else 1
    assert engine.policies.of(way[-1]).max_attempts <= most, way
    assert engine.policies.of(way[0]).max_attempts <= most, way
    if mapped:
        for sign in ".:/":
            assert engine.policies.of(sign.join(way)).max_attempts <= most, way


def test_quotes_that_nothing_closes_take_linear_time(attempts):
    """Each might begin a key with escapes that reaches to the end of the file."""
    assert attempts("charge: once\n\t" + '"a\\' * 300_000 + ":", "charge") == [1]
