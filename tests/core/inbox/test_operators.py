"""Operators: tries are counted before they are looked at, and guessing gets slower."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainstay.core.base.change import DROP, KEEP
from mainstay.core.inbox.operators import (
    COST,
    FIRST_LOCK,
    LONGEST_LOCK,
    MOST_TRIES,
    WINDOW,
    Hash,
    Operator,
    add,
    change,
    claim_first,
    count_attempt,
    decode,
    encode,
    first_of,
    hashed,
    is_cheaper,
    is_enabled,
    is_right,
    is_somebody,
    is_timely,
    missed,
    padding,
    passed,
    remove,
    statement,
)
from mainstay.errors import StoredValueError

CHEAP = Hash(salt="ab" * 16, n=2**4)
ANN = Operator(name="ann", hash=hashed("correct horse", CHEAP), added_by="bob")


class Door:
    """One name's record, with its clock."""

    def __init__(self, operator=ANN):
        self.value = None if operator is None else encode(operator)
        self.now = 1000.0

    def step(self, decide, *args):
        made, answer = decide(self.value, *args, self.now)
        self.value = self.value if made is KEEP else made.value
        return answer

    def wrong(self):
        """A wrong try: for how long the name was locked before or is after it."""
        answer = self.step(count_attempt, "ann")
        return answer.locked_for or self.step(missed)

    def right(self):
        answer = self.step(count_attempt, "ann")
        return "locked" if answer.locked_for else self.step(passed, ANN, None)


@pytest.mark.parametrize("operator", [ANN, None])
def test_the_fifth_wrong_try_locks_and_so_does_a_name_that_nobody_has(operator):
    """The answers of a name there is and of one there is not are the same."""
    door = Door(operator)
    assert [door.wrong() for _ in range(MOST_TRIES)] == [0.0] * 4 + [FIRST_LOCK]
    door.now += 10.0
    assert door.wrong() == FIRST_LOCK - 10.0


def test_a_lock_is_for_the_right_secret_too_and_ends():
    """Whoever knows it waits like everybody."""
    door = Door()
    for _ in range(MOST_TRIES):
        door.wrong()
    door.now += FIRST_LOCK - 0.1
    assert door.right() == "locked"
    door.now += 0.1
    assert door.right() == ""


def test_each_lock_lasts_twice_as_long_up_to_the_longest():
    """And a right try begins anew."""
    door, locks = Door(), []
    for _ in range(8):
        locks.append([door.wrong() for _ in range(MOST_TRIES)][-1])
        door.now += locks[-1]
    assert locks == [60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, LONGEST_LOCK, LONGEST_LOCK]
    assert door.right() == ""
    assert [door.wrong() for _ in range(MOST_TRIES)][-1] == FIRST_LOCK


def test_wrong_tries_of_long_ago_do_not_count():
    """Who errs now and then is not locked."""
    door = Door()
    for _ in range(20):
        assert door.wrong() == 0.0
        door.now += WINDOW / (MOST_TRIES - 1)


def test_many_who_guess_at_once_get_no_more_tries_than_one():
    """A try is counted before it is looked at: the sixth is locked while five are on their way."""
    door = Door()
    answers = [door.step(count_attempt, "ann").locked_for for _ in range(MOST_TRIES + 2)]
    assert answers == [0.0] * MOST_TRIES + [FIRST_LOCK] * 2
    assert door.step(missed) == FIRST_LOCK


def test_who_is_right_several_times_at_once_is_not_locked_for_it():
    """The lock is of those on their way; the first that is right lifts it."""
    door = Door()
    assert [door.step(count_attempt, "ann").locked_for for _ in range(MOST_TRIES + 1)][
        -1
    ] == FIRST_LOCK
    assert door.step(passed, ANN, None) == ""
    assert door.right() == ""


def test_what_is_signed_here_and_now_is_nobodys_repetition():
    """Of two at once the later may come first; neither can be used again."""
    door = Door()
    for signed in (7.0, 5.0):
        change, error = passed(door.value, ANN, signed, door.now, is_fresh=True)
        door.value = change.value
        assert error == ""
    for signed in (5.0, 7.0):
        assert door.step(passed, ANN, signed) == "the signature was used before"


@given(st.lists(st.sampled_from(["wrong", "wait"]), max_size=60))
def test_nobody_gets_more_than_five_looks_within_a_first_lock(steps):
    """Whatever the order of guessing and waiting."""
    door, looks = Door(), []
    for step in steps:
        if step == "wait":
            door.now += 37.0
        elif not door.step(count_attempt, "ann").locked_for:
            looks.append(door.now)
            door.step(missed)
    for at in looks:
        before_lock = [each for each in looks if at <= each < at + FIRST_LOCK]
        assert len(before_lock) <= MOST_TRIES


def test_a_miss_of_a_record_that_is_gone_is_nothing():
    """It was removed meanwhile."""
    assert missed(None, 0.0) == (KEEP, 0.0)


def test_a_ghost_expires_and_an_operator_does_not():
    """Names that nobody has do not fill the store."""
    made, answer = count_attempt(None, "eve", 0.0)
    assert (answer.operator.is_ghost, made.expires) == (True, WINDOW + LONGEST_LOCK)
    assert count_attempt(encode(ANN), "ann", 0.0)[0].expires is None


@pytest.mark.parametrize(
    ("now_there", "signed", "told"),
    [
        (None, None, "the operator was changed or removed meanwhile"),
        (replace(ANN, hash=CHEAP), None, "the operator was changed or removed meanwhile"),
        (replace(ANN, is_enabled=False), None, "the operator is disabled"),
        (replace(ANN, signed=7.0), 7.0, "the signature was used before"),
        (replace(ANN, signed=7.0), 7.5, ""),
        (replace(ANN, tries=(1.0, 2.0), locks=3), None, ""),
    ],
)
def test_the_right_secret_is_not_all(now_there, signed, told):
    """It must still be theirs, they must be enabled, and a signature is taken once."""
    value = None if now_there is None else encode(now_there)
    made, error = passed(value, ANN, signed, 9.0)
    assert error == told
    if told:
        assert made is KEEP
    else:
        kept = decode(made.value)
        assert (kept.tries, kept.locks, kept.signed) == ((), 0, signed or now_there.signed)


def test_an_operator_is_added_once_also_where_the_name_was_guessed_at():
    """A ghost is nobody."""
    made, is_added = add(None, ANN, 5.0)
    assert is_added
    assert decode(made.value) == replace(ANN, created=5.0)
    assert add(made.value, ANN, 6.0) == (KEEP, False)
    ghost, _ = count_attempt(None, "ann", 0.0)
    made, is_added = add(ghost.value, ANN, 6.0)
    assert is_added
    assert not decode(made.value).is_ghost


def test_an_operator_is_changed():
    """Enabled, disabled, with another secret or key; one or the other."""
    value = encode(ANN)
    assert not decode(change(value, 5.0, is_enabled=False)[0].value).is_enabled
    keyed = decode(change(value, 5.0, proof="PEM")[0].value)
    assert (keyed.hash, keyed.public_key, keyed.is_enabled) == (None, "PEM", True)
    again = decode(change(encode(keyed), 5.0, proof=CHEAP)[0].value)
    assert (again.hash, again.public_key) == (CHEAP, "")


def test_whoever_is_not_there_is_neither_changed_nor_removed():
    """Nor is a ghost."""
    ghost, _ = count_attempt(None, "eve", 0.0)
    for value in (None, ghost.value):
        assert change(value, 5.0, is_enabled=False) == (KEEP, False)
        assert remove(value) == (KEEP, False)
    assert remove(encode(ANN)) == (DROP, True)


def test_of_two_who_want_to_be_the_first_one_is():
    """Unless the other was never added: then for a minute."""
    made, is_first = claim_first(None, "ann", False, 0.0)
    assert (is_first, first_of(made.value)) == (True, "ann")
    assert claim_first(made.value, "ann", False, 1.0)[1]
    assert claim_first(made.value, "bob", False, 59.9) == (KEEP, False)
    assert claim_first(made.value, "bob", False, 60.0)[1]
    assert claim_first(made.value, "bob", True, 1e9) == (KEEP, False)


def test_a_secret_is_hashed_with_its_salt():
    """Right and wrong, also with letters that have no UTF-8; the parameters are kept."""
    kept = hashed("pa\udcffss", CHEAP)
    assert is_right("pa\udcffss", kept)
    assert not is_right("pass", kept)
    assert hashed("x", CHEAP).digest != hashed("x", replace(CHEAP, salt="cd" * 16)).digest
    assert (kept.n, kept.r, kept.p, kept.salt) == (16, 8, 1, CHEAP.salt)
    assert "pass" not in repr(encode(replace(ANN, hash=kept)))
    assert (Hash(salt="").n, Hash(salt="").r, Hash(salt="").p) == (2**15, 8, 1)


def test_a_statement_is_of_one_act_alone():
    """Whatever differs, the text differs."""
    said = {
        statement("act", "ann", ("i", 1, "retry"), 5.0, "A"),
        statement("add", "ann", ("i", 1, "retry"), 5.0, "A"),
        statement("act", "bob", ("i", 1, "retry"), 5.0, "A"),
        statement("act", "ann", ("i", 2, "retry"), 5.0, "A"),
        statement("act", "ann", ("i", 1, "abandon"), 5.0, "A"),
        statement("act", "ann", ("i", 1, "retry"), 6.0, "A"),
        statement("act", "ann", ("i", 1, "retry"), 5.0, "B"),
    }
    assert len(said) == 7


def test_a_new_hash_costs_what_is_recommended_and_an_old_one_is_known_to_cost_less():
    """OWASP's N of 2**17; a record without parameters is of the cost that was usual before."""
    assert (COST.n, COST.r, COST.p) == (2**17, 8, 1)
    assert is_cheaper(Hash(salt=""), COST)
    assert not is_cheaper(COST, COST)
    assert not is_cheaper(replace(COST, n=2**18), COST)


def test_a_wrong_secret_costs_the_same_whatever_its_hash_costs():
    """The hash and its padding together are the work of a new hash; a dear one has no padding."""
    for kept in (Hash(salt="", n=2**15), Hash(salt="", n=2**14, p=2), CHEAP):
        rest = padding(kept, COST)
        assert kept.n * kept.r * kept.p + rest.n * rest.r * rest.p == COST.n * COST.r * COST.p
    assert padding(COST, COST) is None
    assert padding(replace(COST, n=2**18), COST) is None


def test_a_hash_is_replaced_by_a_better_one_of_the_same_secret():
    """Another act that was under way with the old hash is not refused for it."""
    better = hashed("correct horse", replace(CHEAP, n=2**5, salt="cd" * 16))
    made, error = passed(encode(ANN), ANN, None, 9.0, better=better)
    kept = decode(made.value)
    assert (error, kept.hash) == ("", better)
    assert ANN.hash.digest not in made.value.decode()
    again, error = passed(made.value, ANN, None, 9.0, better=hashed("correct horse", CHEAP))
    assert (error, decode(again.value).hash) == ("", better), "the first one stays"
    changed, _ = change(made.value, 9.0, proof=CHEAP)
    told = "the operator was changed or removed meanwhile"
    assert passed(changed.value, ANN, None, 9.0) == (KEEP, told)
    keyed, _ = change(made.value, 9.0, proof="PEM")
    assert passed(keyed.value, ANN, None, 9.0) == (KEEP, told)
    assert passed(encode(ANN), decode(keyed.value), 5.0, 9.0) == (KEEP, told)


@pytest.mark.parametrize("wrong", [{"n": 2**22}, {"n": 0}, {"n": 3}, {"salt": "no hex"}])
def test_a_hash_that_cannot_be_computed_is_a_damaged_record(wrong):
    """Whoever can write the store cannot make a check take all memory, or raise a bare error."""
    with pytest.raises(StoredValueError, match="record of the operator is damaged"):
        hashed("x", replace(CHEAP, **wrong))


def test_a_signature_is_of_now():
    """Five minutes either way."""
    assert [is_timely(at, 1000.0) for at in (699.9, 700.0, 1300.0, 1300.1)] == [
        False, True, True, False,
    ]  # fmt: skip


def test_a_damaged_record_is_somebody_who_may_not_act():
    """Or there might seem to be no operator, and the next one would need nobody's leave."""
    ann, ghost = Operator(name="ann"), Operator(name="bob", is_ghost=True)
    disabled = replace(ann, is_enabled=False)
    found = [
        (is_somebody(value), is_enabled(value)) for value in map(encode, (ann, disabled, ghost))
    ]
    assert found == [(True, True), (True, False), (False, False)]
    assert (is_somebody(b"{"), is_enabled(b"{")) == (True, False)
    with pytest.raises(StoredValueError, match="the record of the operator is damaged"):
        decode(b"{")
    assert remove(b"{") == (DROP, True), "it can be removed"


# --- a clock that is set --------------------------------------------------------------------------

DAY = 86_400.0


def test_after_the_clock_was_set_back_a_lock_lasts_no_longer_than_its_length():
    """It begins again from now, and not when the clock has caught up."""
    door = Door()
    door.now += DAY
    while not door.wrong():
        door.now += 1.0
    door.now -= DAY
    assert door.step(count_attempt, "ann").locked_for == FIRST_LOCK
    assert door.wrong() == FIRST_LOCK
    assert door.step(missed) == FIRST_LOCK
    door.now += FIRST_LOCK
    assert door.right() == ""


def test_attempts_of_before_the_clock_was_set_back_count_for_the_window():
    """Not for the day: they count as made now, when the next one is made."""
    door = Door()
    door.now += DAY
    for _ in range(MOST_TRIES - 1):
        assert not door.wrong()
    door.now -= DAY
    door.step(count_attempt, "ann")
    assert decode(door.value).tries == (door.now,) * MOST_TRIES
    door.now += WINDOW
    assert not door.wrong()


def test_a_claim_of_the_future_is_void_after_its_minute():
    """The clock was set back: whoever asks makes the minute begin again."""
    made, _ = claim_first(None, "ann", False, DAY)
    again, is_first = claim_first(made.value, "bob", False, 100.0)
    assert (first_of(again.value), is_first) == ("ann", False)
    assert claim_first(again.value, "bob", False, 159.0) == (KEEP, False)
    assert claim_first(again.value, "bob", False, 160.0)[1]
