"""Every exception and warning: the tree, the codes, the messages, and travel by pickle."""

import pickle
import re
from datetime import UTC, datetime

import pytest

from mainstay import errors
from mainstay.core.codec.outcome import Failed, decode_outcome, encode_outcome
from mainstay.errors import Problem

PROBLEMS = (Problem("max_attempts", 0, "an integer"), Problem("name", "", "a text"))
EXAMPLES = [
    errors.MainstayError("it broke", hint="try again"),
    errors.MainstayError("it broke"),
    errors.MainstayError(),
    errors.UsageError("wrong", hint="do right"),
    errors.PolicyError("RetryPolicy 'a'", PROBLEMS),
    errors.WrapError("cannot be retried", hint="pass a function"),
    errors.NestedRetryError("inner", "outer", 3, 4),
    errors.StoreError("no store", hint="memory://"),
    errors.ValueTooLarge("nats://a", 2_000_000, 1_048_576),
    errors.ValueTooLarge("redis://a", None, None, hint="raise proto-max-bulk-len"),
    errors.MissingExtraError("trio", "trio"),
    errors.DependencyError("it failed"),
    errors.AttemptTimeout(2.5),
    errors.CommandFailed("rsync", 23),
    errors.CommandKilled("rsync", 9, "SIGKILL"),
    errors.CommandNotRun("rsync", 127, "command not found", hint="look at PATH"),
    errors.OutcomeUnknown("charge"),
    errors.ResultRejected("poll", 3, {"state": "pending"}),
    errors.RetryError("RETRY_KV_GET", 3, "Get kill switch status"),
    errors.RetryError("RETRY_API_REQUEST", 1, "GET /", {"request": 7}),
    errors.Refused("no", hint="later"),
    errors.DeadlineExceeded(30.0),
    errors.CallCancelled("fetch", 2),
    errors.CircuitOpenError("payments", "open", 12.5),
    errors.CircuitOpenError("payments", "forced_open", None),
    errors.CallShed("search", 0.25),
    errors.RateLimited("search", 2.5),
    errors.BulkheadFull("reports", 4, 8, 0.0),
    errors.BulkheadFull("reports", 4, 8, 1.5),
    errors.PayloadMismatch("charge", "order-7"),
    errors.LedgerError("versioning_ledger.json", 7, "it is cut off"),
    errors.RetryForbidden("busy-loop", "no wait between two attempts"),
    errors.PipelineHalted("etl", "r-1", "poll", "the circuit is open"),
    errors.FailFastError("no"),
    errors.SchemaValidationError("row 7 has no id"),
    errors.GovernanceViolation("CARE label A"),
    errors.GovernanceBlocked("d-7 is blocked"),
    errors.LineageMismatch("sha256 differs"),
    errors.ImmutabilityViolation("published"),
    errors.LicenseViolation("CC BY-NC"),
    errors.ConfigError([errors.ConfigProblem("retry", 3, "a mapping", file="a.yml", line=1)]),
    errors.StoreUnavailable("sqlite:///a.db", "write", "database is locked"),
    errors.LeaseLost("charge", "order-7", 42),
    errors.StoredFailure("shop.OutOfStock", "none left"),
    errors.StoredValueError("no class shop.Order"),
    errors.ResultNotKept("charge", "order-7", datetime(2026, 1, 2, tzinfo=UTC), "too large"),
    errors.SinkError("audit", "retry_attempt", 5.0),
    errors.Conflict("charge", "order-7", 12.5),
    errors.IdentityRefused("wrong", hint="wait", operator="ann", retry_after=60.0),
    errors.CallAbandoned("charge", "ann", "the customer has cancelled"),
    errors.CompensationFailedError("transfer t-1 failed", ["debit"], ()),
    errors.SagaStuckError("transfer", "t-1", "step notify failed behind the pivot", "3f2a"),
]
CLASSES = [c for c in vars(errors).values() if isinstance(c, type)]
ERRORS = [c for c in CLASSES if issubclass(c, errors.MainstayError)]


def test_every_class_has_an_example_here():
    """A new exception is added to the examples above, or this fails."""
    assert {type(example) for example in EXAMPLES} == set(ERRORS)


@pytest.mark.req("CP-22")
def test_the_codes_are_unique_and_stable():
    """A code in a log means the same for ever."""
    assert {c.__name__: c.code for c in ERRORS} == {
        "MainstayError": "MS000",
        "UsageError": "MS100",
        "PolicyError": "MS101",
        "WrapError": "MS102",
        "NestedRetryError": "MS103",
        "StoreError": "MS104",
        "ValueTooLarge": "MS108",
        "MissingExtraError": "MS105",
        "DependencyError": "MS200",
        "AttemptTimeout": "MS201",
        "OutcomeUnknown": "MS202",
        "Refused": "MS300",
        "DeadlineExceeded": "MS301",
        "CallCancelled": "MS302",
        "CircuitOpenError": "MS303",
        "CallShed": "MS304",
        "BulkheadFull": "MS305",
        "Conflict": "MS306",
        "IdentityRefused": "MS307",
        "CallAbandoned": "MS308",
        "RateLimited": "MS309",
        "PayloadMismatch": "MS106",
        "LedgerError": "MS109",
        "RetryForbidden": "MS110",
        "PipelineHalted": "MS217",
        "FailFastError": "MS220",
        "SchemaValidationError": "MS221",
        "GovernanceViolation": "MS222",
        "GovernanceBlocked": "MS223",
        "LineageMismatch": "MS224",
        "ImmutabilityViolation": "MS225",
        "LicenseViolation": "MS226",
        "ConfigError": "MS107",
        "StoreUnavailable": "MS203",
        "LeaseLost": "MS204",
        "StoredFailure": "MS205",
        "RetryError": "MS210",
        "StoredValueError": "MS206",
        "ResultNotKept": "MS208",
        "SinkError": "MS207",
        "CommandFailed": "MS211",
        "CommandKilled": "MS212",
        "CommandNotRun": "MS213",
        "ResultRejected": "MS214",
        "CompensationFailedError": "MS215",
        "SagaStuckError": "MS216",
    }
    assert len({c.code for c in ERRORS}) == len(ERRORS)


def drawn_tree():
    """The tree of the module's docstring, as {class: (parent, other base or '')}."""
    found, above = {}, []
    for line in errors.__doc__.splitlines():
        drawn = re.match(r"^    ([│├└─ ]*)(\w+)\s*(?:\((\w+)\))?", line)
        if not drawn or not hasattr(errors, drawn[2]):
            continue
        depth = len(drawn[1]) // 4
        del above[depth:]
        found[drawn[2]] = (above[-1] if above else "", drawn[3] or "")
        above.append(drawn[2])
    return found


def test_the_tree_is_the_one_that_is_drawn():
    """Each class stands where the picture at the top of the module shows it."""
    real = {}
    for cls in CLASSES:
        if issubclass(cls, BaseException):
            first, *others = (base.__name__ for base in cls.__bases__)
            if first in ("Exception", "UserWarning"):
                first, others = "", ["UserWarning"] * (first == "UserWarning")
            real[cls.__name__] = (first, *others) if others else (first, "")
    assert drawn_tree() == real


@pytest.mark.parametrize(
    ("cls", "base"),
    [
        (errors.PolicyError, ValueError),
        (errors.StoreError, ValueError),
        (errors.WrapError, TypeError),
        (errors.MissingExtraError, ImportError),
        (errors.AttemptTimeout, TimeoutError),
        (errors.DeadlineExceeded, TimeoutError),
        (errors.MainstayWarning, UserWarning),
        (errors.NestedRetryWarning, errors.MainstayWarning),
        (errors.PolicyNotFoundWarning, errors.MainstayWarning),
    ],
)
def test_an_error_is_also_what_python_calls_it(cls, base):
    """Who catches TimeoutError or ValueError catches ours."""
    assert issubclass(cls, base)


def attributes(error):
    shown = {name: value for name, value in vars(error).items() if name != "problems"}
    problems = [(p.field, p.value, p.allowed) for p in getattr(error, "problems", ())]
    return shown, problems


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickle_with_everything_it_holds(error, protocol):
    """Pools and queues carry exceptions: class, message, hint and values come back."""
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert attributes(back) == attributes(error)


def test_notes_survive_pickle():
    """Notes travel with an exception that has its own way of being pickled."""
    for error in (errors.AttemptTimeout(1.0), errors.MainstayError("x", hint="y")):
        error.add_note("mine")
        assert pickle.loads(pickle.dumps(error)).__notes__ == ["mine"]


def test_a_message_is_what_happened_and_what_to_do():
    """The hint follows the message; both are attributes."""
    error = errors.MainstayError("it broke", hint="try again")
    assert str(error) == "it broke. try again"
    assert (error.message, error.hint) == ("it broke", "try again")
    assert str(errors.MainstayError("it broke")) == "it broke"
    assert errors.MainstayError("it broke").hint == ""
    assert str(errors.MainstayError()) == ""


@pytest.mark.parametrize(
    ("error", "message", "values"),
    [
        (
            errors.NestedRetryError("inner", "outer", 3, 4),
            ("inner retries inside outer: up to 3 x 4 = 12 calls. "
             'retry in one place, or use nested="collapse"'),
            {"inner": "inner", "outer": "outer", "inner_attempts": 3, "outer_attempts": 4,
             "product": 12},
        ),
        (
            errors.MissingExtraError("nats-py", "nats"),
            "nats-py is not installed. pip install 'mainstay[nats]'",
            {"library": "nats-py", "extra": "nats"},
        ),
        (errors.AttemptTimeout(2.5), "the attempt was cut after 2.5 s", {"timeout": 2.5}),
        (
            errors.OutcomeUnknown("charge"),
            ("charge may or may not have been applied. "
             "look before repeating it, or declare it idempotent or keyed"),
            {"operation": "charge"},
        ),
        (
            errors.DeadlineExceeded(30.0),
            "no attempt ended within the deadline of 30 s",
            {"deadline": 30.0},
        ),
        (
            errors.CallCancelled("fetch", 2),
            "fetch was cancelled after 2 attempt(s)",
            {"operation": "fetch", "attempts": 2},
        ),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_message_has_the_values_and_so_has_the_error(error, message, values):
    """What the text says can be read without parsing it."""
    assert str(error) == message
    assert values.items() <= vars(error).items()


def copied_by_pickle(error):
    return pickle.loads(pickle.dumps(error))


def copied_by_a_store(error):
    return decode_outcome(encode_outcome(Failed(error))).exception


@pytest.mark.parametrize("carry", [copied_by_pickle, copied_by_a_store])
@pytest.mark.parametrize("item_id", [None, "0123456789abcdef"])
def test_the_item_of_an_unknown_outcome_survives(carry, item_id):
    """Being pickled, and being recorded and replayed."""
    error = errors.OutcomeUnknown("charge")
    if item_id is not None:
        error.item_id = item_id
    copy = carry(error)
    assert (type(copy), copy.operation, copy.item_id) == (type(error), "charge", item_id)


def test_an_unknown_outcome_of_before_there_were_items_has_none():
    """A pickle without the attribute still opens."""
    error = pickle.loads(pickle.dumps(errors.OutcomeUnknown("charge")))
    assert "item_id" not in vars(error)
    assert error.item_id is None


def test_a_failed_command_states_how_it_ended():
    """As an attribute: without the command, and not to be cut out of the message."""
    found = [
        errors.CommandFailed("rsync", 23),
        errors.CommandKilled("rsync", 9, "SIGKILL"),
        errors.CommandNotRun("rsync", 127, "command not found"),
    ]
    assert [e.reason for e in found] == ["exit 23", "killed by SIGKILL", "command not found"]


@pytest.mark.req("FR-041-15")
def test_a_policy_error_lists_every_problem():
    """One line each: field, value, what is allowed."""
    error = errors.PolicyError("RetryPolicy 'a'", iter(PROBLEMS))
    assert str(error) == (
        "RetryPolicy 'a' is not valid:"
        "\n  - max_attempts = 0: must be an integer"
        "\n  - name = '': must be a text"
    )
    assert (error.subject, error.problems) == ("RetryPolicy 'a'", PROBLEMS)


def test_a_problem_shows_a_long_value_in_part():
    """80 characters are shown whole; from a longer value 77 and dots."""
    assert str(Problem("a", "x" * 78, "b")) == f"a = '{'x' * 78}': must be b"
    assert str(Problem("a", "x" * 79, "b")) == f"a = '{'x' * 76}...: must be b"
    assert repr(Problem("a", 1, "b")) == "Problem('a', 1, 'b')"


def test_a_problem_with_a_value_that_cannot_be_shown_is_still_told():
    """A broken repr, or a number with too many digits to print, must not hide the problem."""

    class Broken:
        def __repr__(self):
            raise RuntimeError("no")

    for value in (Broken(), 10**5000):
        text = str(errors.PolicyError("RetryPolicy", [Problem("deadline", value, "a number")]))
        assert "deadline" in text
        assert "must be a number" in text
        assert "deadline" in repr(Problem("deadline", value, "a number"))


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (errors.ConfigProblem("", None, "", file="a.yml", text="is a directory"),
         "a.yml: is a directory"),
        (errors.ConfigProblem("a", {}, "a text", file="a.yml", line=3),
         "a.yml:3: a = a mapping: must be a text"),
        (errors.ConfigProblem("a", ["x"], "a text"), "a = a list: must be a text"),
        (errors.ConfigProblem("a", True, "a text"), "a = true: must be a text"),
        (errors.ConfigProblem("a", None, "a text"), "a: must be a text"),
        (errors.ConfigProblem("a", "x" * 100, "b", nearest="c"),
         f"a = '{'x' * 76}...: must be b; did you mean c?"),
    ],
)  # fmt: skip
def test_a_problem_of_a_configuration_says_where_and_what(problem, text):
    """Where it stands, as far as that is known; what is there; what is allowed; what was meant."""
    assert str(problem) == text
