"""Tables of libraries' exceptions: how an entry is found, and what it comes to."""

import msgspec
import pytest

from mainstay.core.audit.plan_codec import declared
from mainstay.core.audit.reconstruct import Recollection, exception_of, policy_of
from mainstay.core.base.attributes import CACHE_SIZE
from mainstay.core.base.proof import Evidence
from mainstay.core.events.evidence import evidence_of
from mainstay.core.known.codes import codes_of
from mainstay.core.known.http import status_of, unsafe_request
from mainstay.core.known.kind import Kind, transient
from mainstay.core.known.registry import REGISTRY, Registry
from mainstay.core.known.resolve import DEPTH, codes_by_table, hint_by_table
from mainstay.core.known.table import (
    Cases,
    Inner,
    OwnRetries,
    Row,
    Same,
    Table,
    by_status,
    status_row,
)
from mainstay.core.retry.classify import Rules, classify
from mainstay.core.retry.kinds import kind_of
from mainstay.core.retry.policy import Policy
from mainstay.errors import UsageError

UNKNOWN = Row(Kind.UNKNOWN, "a base class of acme")


def library_class(name, *bases, module="acme.errors"):
    """A class as a library defines it."""
    return type(name, bases or (Exception,), {"__module__": module, "__qualname__": name})


AcmeError = library_class("AcmeError")
Busy = library_class("Busy", AcmeError)
Lost = library_class("Lost", AcmeError)
Coded = library_class("Coded", AcmeError)
Wrapping = library_class("Wrapping", AcmeError)
Sent = library_class("Sent", Wrapping)
Alias = library_class("Alias", Busy)
Answer = library_class("Answer", AcmeError)
Generated = library_class("Generated", AcmeError, module="acme.generated")

TABLE = Table(
    "acme",
    {
        "acme.errors.AcmeError": UNKNOWN,
        "acme.errors.Busy": Row(Kind.OVERLOAD, "the queue is full"),
        "acme.errors.Alias": Same("acme.errors.Busy"),
        "acme.errors.Lost": Row(Kind.TIMEOUT, "no answer in time", ambiguous=True),
        "acme.errors.Coded": Cases(
            lambda error: (error.code,),
            {"40*": Row(Kind.TRANSIENT, "rolled back"), "409": Row(Kind.PERMANENT, "exists")},
            otherwise=by_status(),
        ),
        "acme.errors.Wrapping": Inner("orig", otherwise=UNKNOWN),
        "acme.errors.Sent": Inner(lambda error: error.args[0], otherwise=UNKNOWN, ambiguous=True),
        "acme.errors.Answer": by_status(rows={404: Row(Kind.TRANSIENT, "not there yet")}),
        "acme.generated.*": Row(Kind.AUTH, "generated"),
    },
    hint=lambda error: error.wait,
)


@pytest.fixture(autouse=True)
def _registered():
    """The table of a library that does not exist."""
    REGISTRY.register(TABLE)
    yield
    REGISTRY.unregister("acme")


class Request:
    def __init__(self, method, **headers):
        self.method = method
        self.headers = headers


def carrying(error, **attributes):
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def known(error):
    found = kind_of(error)
    return found.kind.value, found.reason


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Busy(), ("overload", "the queue is full")),
        (Alias(), ("overload", "the queue is full")),
        (library_class("Own", Busy, module="shop")(), ("overload", "the queue is full")),
        (Generated(), ("auth", "generated")),
        (carrying(Coded(), code="40001"), ("transient", "rolled back")),
        (carrying(Coded(), code="409"), ("permanent", "exists")),
        (carrying(Coded(), code=None, status_code=429), ("throttled", "status 429")),
        (carrying(Coded(), code="x"), ("unknown", "no status of a failure")),
        (Coded(), ("unknown", "no status of a failure")),
        (carrying(Wrapping(), orig=ConnectionResetError()), ("transient", "a ConnectionError")),
        (carrying(Wrapping(), orig=Busy()), ("overload", "the queue is full")),
        (carrying(Wrapping(), orig=RuntimeError()), ("unknown", "a base class of acme")),
        (carrying(Wrapping(), orig="text"), ("unknown", "a base class of acme")),
        (Sent(), ("unknown", "a base class of acme")),
        (carrying(Answer(), status_code=404), ("transient", "not there yet")),
        (carrying(Answer(), status_code=410), ("permanent", "status 410")),
        (carrying(Busy(), status_code=503), ("overload", "status 503")),
    ],
    ids=repr,
)
def test_an_entry_decides_by_class_case_or_what_is_inside(error, expected):
    """The nearest ancestor with an entry decides, and what the exception carries where it says."""
    assert known(error) == expected


def test_what_wraps_itself_comes_to_an_end():
    """A loop of wrapped exceptions is followed a bounded number of times."""
    first, second = Wrapping(), Wrapping()
    first.orig, second.orig = second, first
    assert known(first) == ("unknown", "a base class of acme")
    assert len(codes_by_table(first)) <= DEPTH


def test_a_failure_that_was_sent_is_ambiguous_whatever_is_inside():
    """The request had left; a refused connection further in does not change that."""
    found = kind_of(Sent(ConnectionRefusedError()))
    assert (found.kind, found.is_ambiguous, found.table) == (Kind.TRANSIENT, True, "acme")
    assert not kind_of(carrying(Wrapping(), orig=ConnectionRefusedError())).is_ambiguous


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request("GET"), ""),
        (Request("put"), ""),
        (Request("POST"), "POST without an Idempotency-Key"),
        (Request("patch"), "PATCH without an Idempotency-Key"),
        (Request("POST", **{"idempotency-key": "k"}), ""),
        (carrying(Request("POST"), headers=7), "POST without an Idempotency-Key"),
        (carrying(Request("POST"), headers=None), "POST without an Idempotency-Key"),
        (Request(None), ""),
        (None, ""),
    ],
)
def test_a_request_without_a_key_is_not_repeated_if_its_answer_was_lost(request_, expected):
    """POST and PATCH may have been carried out; other methods may be repeated."""
    error = carrying(Lost(), request=request_)
    assert kind_of(error).unsafe == unsafe_request(error) == expected
    assert classify(error, Rules()).retryable is (expected == "")
    assert classify(error, Rules(transient)).retryable is (expected == "")
    assert classify(error, Rules((AcmeError,))).retryable is (expected == "")
    assert classify(error, Rules((Lost,))).retryable, "that very class is named"
    assert classify(error, Rules((lambda _: True,))).retryable
    assert classify(error, Rules((AcmeError,), version=2)).retryable


DECLARED = {AcmeError: Kind.TRANSIENT}


@pytest.mark.parametrize("on", [None, transient, (AcmeError,)])
def test_a_kind_of_a_base_class_does_not_drop_what_may_have_been_applied(on):
    """`classify` gives a class its kind; a lost POST of it stays ambiguous."""
    error = carrying(Lost(), request=Request("POST"))
    found = classify(error, Rules(on, classify=DECLARED))
    assert (found.kind, found.retryable, found.is_ambiguous) == (Kind.TRANSIENT, False, True)
    assert "a POST without an Idempotency-Key is not repeated" in found.reason
    safe = classify(carrying(Lost(), request=Request("GET")), Rules(on, classify=DECLARED))
    assert (safe.kind, safe.retryable, safe.is_ambiguous) == (Kind.TRANSIENT, True, True)
    settled = Rules(on, classify=DECLARED)
    assert classify(Busy(), settled).retryable
    assert not classify(error, settled).retryable


@pytest.mark.parametrize("rule", [Lost, "Lost", "acme.errors.Lost", lambda _: True])
def test_a_kind_of_that_very_class_decides(rule):
    """So does a function, which has looked at the failure; a base class named in text does not."""
    error = carrying(Lost(), request=Request("POST"))
    found = classify(error, Rules(classify={rule: Kind.TRANSIENT}))
    assert (found.retryable, found.is_ambiguous) == (True, False)
    assert not classify(error, Rules(classify={"AcmeError": Kind.TRANSIENT})).retryable
    assert not classify(error, Rules(classify={Lost: Kind.AMBIGUOUS})).retryable


def test_a_kind_of_a_class_is_not_that_of_a_status():
    """500 makes a POST ambiguous, not the class: the status is named, or it stays so."""
    error = carrying(Answer(), status_code=500, request=Request("POST"))
    assert not classify(error, Rules(classify={Answer: Kind.TRANSIENT})).retryable
    both = Rules((Answer,), classify={AcmeError: Kind.TRANSIENT})
    assert not classify(error, both).retryable
    assert classify(error, Rules(classify={"status:500": Kind.TRANSIENT})).retryable
    fine = carrying(Answer(), status_code=503, request=Request("POST"))
    assert classify(fine, Rules(classify={Answer: Kind.TRANSIENT})).retryable


def test_the_request_may_be_that_of_the_response_or_its_description():
    """requests, httpx and aiohttp keep it in different places."""
    assert unsafe_request(carrying(Lost(), request_info=Request("POST")))
    response = carrying(RuntimeError(), request=Request("POST"))
    assert unsafe_request(carrying(Lost(), response=response))


class Shielded(Exception):
    """Its request is a property, as httpx's is, and raises if there is none."""

    @property
    def request(self):
        if not self.args:
            raise RuntimeError("no request was set")
        return self.args[0]


def test_a_request_may_be_a_property():
    assert unsafe_request(Shielded(Request("POST"))) == "POST without an Idempotency-Key"
    assert unsafe_request(Shielded(Request("GET"))) == unsafe_request(Shielded()) == ""
    assert unsafe_request(carrying(Shielded(), request_info=Request("PATCH")))


def test_what_is_inside_keeps_its_request():
    """The wrapper carries none: that of the failure inside decides."""
    inside = carrying(Lost(), request=Request("POST"))
    found = kind_of(carrying(Wrapping(), orig=inside))
    assert found.is_ambiguous
    assert found.unsafe == "POST without an Idempotency-Key"


class HalfReady:
    """An answer whose first attribute raises."""

    status = 503

    @property
    def status_code(self):
        raise RuntimeError("not read yet")


def test_a_status_is_found_behind_an_attribute_that_raises():
    error = carrying(Answer(), response=HalfReady())
    assert status_of(error) == 503
    assert [*by_status().read(error)] == [503]
    assert by_status().cases(error) == ("503",)


def test_the_note_on_an_unsafe_request_names_the_way_out():
    """Who reads the traceback learns what to send."""
    error = carrying(Lost(), request=Request("POST"))
    found = classify(error, Rules(transient))
    assert found.reason == ("no answer in time; a POST without an Idempotency-Key is not repeated")
    assert "may have been carried out; send that header" in found.note
    assert "on=mainstay.transient" in classify(KeyError(), Rules(transient)).note


@pytest.mark.parametrize("rule", [AcmeError, Answer, "Answer", "acme.errors.AcmeError"])
def test_naming_a_class_is_not_naming_its_status(rule):
    """A 410 and a 401 are final under the class; the status itself, or a predicate, names them."""
    for status in (410, 401):
        error = carrying(Answer(), status_code=status)
        assert not classify(error, Rules((rule,))).retryable
        assert classify(error, Rules((f"status:{status}",))).retryable
        assert classify(error, Rules((str(status),))).retryable
        assert classify(error, Rules((rule, f"status:{status}"))).retryable
        assert not classify(error, Rules(("status:500",))).retryable
        assert classify(error, Rules((kind_of(error).kind,))).retryable
    assert classify(carrying(Answer(), status_code=503), Rules((rule,))).retryable
    gone = classify(carrying(Answer(), status_code=410), Rules((rule,)))
    assert "is permanent (status 410), and on=" in gone.note


def test_version_two_of_the_rules_retried_any_status_of_a_named_class():
    """Records of then are decided as they were."""
    error = carrying(Answer(), status_code=410)
    assert classify(error, Rules((Answer,), version=2)).retryable
    assert classify(carrying(Answer(), status_code=401), Rules((Answer,), version=2)).retryable


def test_codes_of_the_table_can_be_named():
    """Those of what is wrapped too."""
    inner = carrying(Coded(), code="40P01")
    outer = carrying(Wrapping(), orig=inner)
    assert codes_of(outer) == ("40P01",)
    assert classify(outer, Rules(("40P01",))).retryable
    assert codes_by_table(Busy()) == codes_by_table(KeyError()) == ()


def test_the_table_reads_how_long_to_wait():
    """Where a library has a place of its own for it; what cannot be read is no hint."""
    assert classify(carrying(Busy(), wait=2.5), Rules()).retry_after == 2.5
    assert classify(Busy(), Rules()).hint is None
    assert hint_by_table(KeyError()) is None
    REGISTRY.register(Table("acme", {"acme.errors.Busy": UNKNOWN}))
    assert hint_by_table(carrying(Busy(), wait=2.5)) is None


def test_what_was_settled_is_forgotten_when_a_table_is_registered():
    """A policy that has seen the class decides by the new table from then on."""
    REGISTRY.register(Table("acme", {"acme.errors.Busy": Row(Kind.OVERLOAD, "full")}))
    rules = Rules()
    assert classify(Busy(), rules).retryable
    assert Busy in rules.settled
    REGISTRY.register(Table("acme", {"acme.errors.Busy": Row(Kind.PERMANENT, "for good")}))
    assert not classify(Busy(), rules).retryable
    REGISTRY.unregister("acme")
    assert classify(Busy(), rules).kind is Kind.UNKNOWN
    REGISTRY.depend(Rules())
    REGISTRY.forget()


def test_an_ambiguous_row_is_not_settled_by_its_type():
    """The next one may carry another request."""
    rules = Rules()
    assert classify(Lost(), rules).retryable
    assert not rules.settled


def test_the_newest_table_of_a_package_is_asked_first():
    """And what it leaves out is looked for in the others."""
    REGISTRY.register(
        Table("acme extra", {"acme.errors.Lost": Row(Kind.AUTH, "mine")}, packages=("acme",))
    )
    assert known(Lost()) == ("auth", "mine")
    assert known(Busy()) == ("overload", "the queue is full")
    REGISTRY.unregister("acme extra")


def test_what_is_remembered_is_bounded():
    """Classes that are made by the thousand do not fill the memory."""
    for number in range(CACHE_SIZE + 1):
        REGISTRY.entry_of(library_class(f"Made{number}"))
    assert len(REGISTRY.found) <= CACHE_SIZE


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("transient", "'transient' is no Row, Cases, Inner or Same"),
        (Same("acme.Nothing"), "names no entry of the table"),
        (Same("acme.Loop"), "names no entry of the table"),
    ],
)
def test_a_table_that_cannot_decide_is_refused(entry, text):
    """When it is made, with an example of what is right."""
    with pytest.raises(UsageError, match=text):
        Table("acme", {"acme.Loop": entry})


ANY = Row(Kind.UNKNOWN, "any")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Row("overload", "full"), "Row: kind = 'overload': must be a Kind"),
        (lambda: Row(Kind.OVERLOAD, None), "Row: why = None: must be a text"),
        (lambda: Cases(str, {"q": "transient"}, otherwise=ANY), "the row of 'q' = 'transient'"),
        (lambda: Cases("code", {}, otherwise=ANY), "Cases: read = 'code': must be a function"),
        (lambda: Cases(str, {}, otherwise=None), "Cases: otherwise = None: must be a Row"),
        (lambda: Inner("orig", otherwise=Same("acme.A")), "Inner: otherwise = "),
        (lambda: Inner(None, otherwise=ANY), "Inner: read = None: must be a function"),
        (lambda: OwnRetries(3, "turn it off"), "OwnRetries: made = 3"),
        (lambda: Table("", {}), "library = '': must be a name"),
        (lambda: Table("acme", {"other.A": ANY}), "'other.A': it is in none of packages"),
        (lambda: Table("acme", {"A": ANY}, packages=("a",)), "it is in none of packages"),
        (lambda: Table("acme", {7: ANY}), "it is in none of packages"),
        (lambda: Table("acme", {"acme.A": ANY}, packages="acme"), "packages = 'acme'"),
        (lambda: Table("acme", {}, packages=("",)), "packages = "),
        (lambda: Table("acme", {"builtins.OSError": ANY}, packages=("builtins",)), "Python's own"),
        (lambda: Table("acme", {}, hint="retry_after"), "Table: hint = 'retry_after'"),
        (lambda: Table("acme", {}, own_retries=3), "own_retries = 3: must be an OwnRetries"),
        (lambda: Table("acme", {}, key_headers="request-id"), "key_headers = 'request-id'"),
        (lambda: Table("acme", {}, senders="acme"), "senders = 'acme'"),
    ],
)
def test_what_no_failure_could_be_judged_by_is_refused(make, text):
    """Where it is written, and not when a call fails, in the place of that failure."""
    with pytest.raises(UsageError, match=text):
        make()


def test_the_headers_of_a_key_are_compared_in_lower_case():
    """As a service documents them."""
    assert Table("acme", {}, key_headers=["Request-ID"]).key_headers == ("request-id",)


class Broken(Cases):
    """A class of a user's own."""

    def cases(self, exception):
        raise LookupError(exception)


def test_a_table_that_fails_does_not_hide_the_failure():
    """The call fails with what it failed with, and is not repeated."""
    entry = Broken(str, {}, otherwise=ANY)
    REGISTRY.register(Table("broken", {"acme.errors.Busy": entry}, packages=("acme",)))
    try:
        answer = classify(Busy(), Rules(retry_on=transient))
        assert (answer.kind, answer.retryable) == (Kind.UNKNOWN, False)
        assert "the table of broken failed: LookupError" in answer.reason
        assert kind_of(Busy()).table == "broken"
    finally:
        REGISTRY.unregister("broken")


def test_the_status_of_a_parsed_response_is_read():
    """Botocore's is a dictionary."""
    assert (
        status_of(carrying(Busy(), response={"ResponseMetadata": {"HTTPStatusCode": 503}})) == 503
    )
    for response in ({}, {"ResponseMetadata": 1}, {"ResponseMetadata": {"HTTPStatusCode": "5"}}):
        assert status_of(carrying(Busy(), response=response)) is None


def test_a_row_reads_like_what_it_is():
    """In an assertion and in a shell."""
    assert repr(transient) == "mainstay.transient"
    assert repr(status_row(502)) == "Row(transient, ambiguous, 'status 502')"
    assert repr(status_row(429)) == "Row(throttled, 'status 429')"


def test_the_row_of_a_status_is_made_once():
    """What is known of it is one object; what no server sends is not kept."""
    assert status_row(503) is status_row(503)
    assert repr(status_row(999)) == repr(status_row(999))
    assert status_row(999) is not status_row(999)


@pytest.mark.parametrize(
    "error",
    [
        Busy(),
        carrying(Lost(), request=Request("POST")),
        carrying(Coded(), code="409"),
        carrying(Answer(), status_code=404),
        carrying(Answer(), status_code=500, request=Request("POST")),
        carrying(Wrapping(), orig=carrying(Coded(), code="40P01")),
        ExceptionGroup("both", [Busy(), ConnectionError()]),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "rules", [(None,), (transient,), ((AcmeError,),), (("40P01", "status:404"),)]
)
@pytest.mark.parametrize("kinds", [None, DECLARED, {Lost: Kind.TRANSIENT, Answer: Kind.TRANSIENT}])
def test_replay_decides_by_what_the_table_had_then(error, rules, kinds):
    """The table of today may have other rows, or be gone."""
    then = classify(error, Rules(*rules, classify=kinds))
    evidence = msgspec.json.decode(msgspec.json.encode(evidence_of(error, then)), type=Evidence)
    REGISTRY.register(Table("acme", {"acme.errors.AcmeError": Row(Kind.AUTH, "changed")}))
    policy = Policy(retry_on=rules[0], classify=kinds)
    stated = policy_of(declared(policy, "idempotent").fields, Recollection())
    now = classify(exception_of(evidence), stated._rules)
    assert (now.kind, now.retryable, now.is_ambiguous) == (
        then.kind, then.retryable, then.is_ambiguous,
    )  # fmt: skip


def test_a_record_without_what_a_table_had_is_decided_without_tables():
    """As the version that wrote it did: the class was unknown."""
    evidence = msgspec.structs.replace(evidence_of(Busy()), known=None)
    assert classify(exception_of(evidence), Rules()).kind is Kind.UNKNOWN


def test_a_registry_of_its_own_finds_nothing():
    """Until the index of tables is set, only what users register is known."""
    assert Registry().entry_of(Busy) is None


@pytest.mark.parametrize(
    ("answer", "is_retried"),
    [(lambda _: True, True), (lambda _: False, False), (lambda e: e.x, False)],
)
def test_a_post_that_changes_nothing_is_repeated_if_its_answer_was_lost(answer, is_retried):
    """The table of the library knows; if it cannot read that, the request is not repeated."""
    row = {"acme.errors.Lost": Row(Kind.TIMEOUT, "no answer in time", ambiguous=True)}
    REGISTRY.register(Table("acme", row, changes_nothing=answer))
    error = carrying(Lost(), request=Request("POST"))
    assert classify(error, Rules()).retryable is is_retried


def test_a_class_whose_table_reads_a_wait_is_not_settled():
    """Each failure may ask for another wait, also one that has no attributes."""
    rows = {"acme.errors.Busy": Row(Kind.THROTTLED, "slow down")}
    REGISTRY.register(Table("acme", rows, hint=lambda error: error.args[0]))
    rules = Rules()
    assert classify(Busy(2.0), rules).retry_after == 2.0
    assert not rules.settled


def test_a_class_that_is_never_retried_does_not_settle_the_kind_of_the_next():
    """A keyed call records what is permanent, and releases what is not."""
    rows = {"7": Row(Kind.AUTH, "who are you"), "8": Row(Kind.PERMANENT, "no")}
    entry = Cases(lambda error: error.args, rows, otherwise=UNKNOWN)
    REGISTRY.register(Table("acme", {"acme.errors.Coded": entry}))
    rules = Rules(never_retry_on=(AcmeError,))
    kinds = [classify(Coded(code), rules).kind.value for code in (7, 8, 9)]
    assert kinds == ["auth", "permanent", "unknown"]


@pytest.mark.parametrize(
    "rules",
    [
        (*transient, Lost),
        (Lost, *transient),
        (*transient, "Lost"),
        (AcmeError, lambda _: True),
        (lambda _: True, *transient),
    ],
)
def test_a_rule_that_covers_a_lost_answer_counts_wherever_it_stands(rules):
    """A kind or a base class beside it takes nothing away."""
    verdict = classify(carrying(Lost(), request=Request("POST")), Rules(rules))
    assert verdict.retryable
    assert verdict.note == ""


@pytest.mark.parametrize("rule", ["status:404", Kind.PERMANENT, lambda error: True])
def test_a_rule_that_names_the_status_counts_after_one_that_names_the_class(rule):
    """The class alone does not cover it; what comes after may."""
    error = carrying(Coded(), status_code=404)
    assert classify(error, Rules((Coded, rule))).retryable
    refused = classify(error, Rules((Coded, AcmeError)))
    assert not refused.retryable
    assert "retry_on: Coded names the class alone" in refused.reason


def test_no_predicate_is_asked_about_credentials_that_a_class_does_not_cover():
    """It could not cover them either, and version 2 of the rules did not ask it."""
    asked = []
    verdict = classify(PermissionError(), Rules((OSError, asked.append)))
    assert not verdict.retryable
    assert asked == []


@pytest.mark.parametrize("members", [[Lost()], [Busy(), Lost()], [KeyError(), Lost()]], ids=repr)
def test_a_group_is_ambiguous_if_a_member_is(members):
    """An unsafe operation ends with OutcomeUnknown then, whatever else has failed beside it."""
    group = ExceptionGroup("some", members)
    then = classify(group, Rules())
    assert then.is_ambiguous
    assert classify(exception_of(evidence_of(group, then)), Rules()).is_ambiguous
    assert not classify(group, Rules(version=2)).is_ambiguous
    assert classify(carrying(group, retry_after=1), Rules()).is_ambiguous


def test_a_group_without_doubt_is_not_ambiguous():
    """Nothing in it may have been carried out."""
    assert not classify(ExceptionGroup("some", [Busy(), KeyError()]), Rules()).is_ambiguous


def test_what_cannot_be_sent_again_is_final_whatever_it_is_classified_as():
    """The body is spent; a kind of the policy's own does not bring it back. Nor does replay."""
    for error in (Busy(), ConnectionResetError()):
        carrying(error, ms_once="PUT whose body cannot be read again")
        rules = Rules(classify={type(error): Kind.TRANSIENT})
        for each in (Rules(), rules):
            then = classify(error, each)
            assert not then.retryable
            assert not classify(exception_of(evidence_of(error, then)), each).retryable


def test_a_table_that_cannot_be_loaded_does_not_replace_the_failure():
    """If no file can be opened any more, what is known without tables decides; later they do."""
    registry = Registry()

    def fails(_name):
        raise OSError(24, "Too many open files")

    registry.find = fails
    assert registry.entry_of(Busy) is None
    registry.find = lambda _name: TABLE
    assert registry.entry_of(Busy) is not None
    registry.find = fails
    registry.register(TABLE)
    assert registry.entry_of(Busy) is not None


def test_the_evidence_of_a_class_is_forgotten_when_a_table_is_registered():
    """A record then has what the table had for it."""
    Late = library_class("Late", module="late")  # noqa: N806 -- a class
    assert evidence_of(Late()).known is None
    REGISTRY.register(Table("late", {"late.Late": Row(Kind.OVERLOAD, "full")}))
    try:
        assert evidence_of(Late()).known.kind == "overload"
    finally:
        REGISTRY.unregister("late")


def test_the_note_on_an_unsafe_status_names_the_status_as_the_way_out():
    """To name the class would not help: other statuses have it too."""
    error = carrying(Coded(), status_code=500, request=Request("POST"))
    assert "name its status or error code in on=" in classify(error, Rules()).note
    assert classify(error, Rules(("status:500",))).retryable


def test_an_attribute_that_cannot_be_read_does_not_replace_the_failure():
    """A property of a stranger's exception may raise anything."""
    broken = type("Broken", (Exception,), {"code": property(lambda _: 1 / 0)})
    evidence = evidence_of(broken(), classify(broken(), Rules()))
    assert evidence.codes == ()
