"""Notes on the exception that is given up on, which are also marks for an outer retry."""

import dataclasses
import pickle
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.retry.give_up import GaveUp, reason_of, take_mark

OURS, THEIRS = 1, 2


def gave_up(token=THEIRS, attempts=3, reason="no attempt left"):
    return GaveUp("fetch", reason, token, attempts)


def marked(token=THEIRS, attempts=3, error=None):
    error = ConnectionError("down") if error is None else error
    gave_up(token, attempts).put_on(error)
    return error


def caused(error, cause):
    error.__cause__ = cause
    return error


def test_a_note_says_who_gave_up_when_and_why():
    """People read it under the traceback."""
    error = marked()
    assert error.__notes__ == ["mainstay: gave up on fetch after 3 attempts: no attempt left"]
    shown = "".join(traceback.format_exception(error))
    assert "mainstay: gave up on fetch after 3 attempts: no attempt left" in shown
    assert gave_up(attempts=1) == "mainstay: gave up on fetch after 1 attempt: no attempt left"


def test_a_note_holds_its_values():
    """What the text says can be read without parsing it."""
    note = gave_up(token=9, attempts=4, reason="why")
    assert (note.token, note.attempts, note.reason) == (9, 4, "why")


def test_the_reason_is_read_from_the_exception():
    """The last one that was left; empty if no retry gave up on it."""
    error = marked()
    error.add_note("mainstay: gave up on fetch after 3 attempts: a look-alike")
    assert reason_of(error) == "no attempt left"
    gave_up(reason="why").put_on(error)
    assert reason_of(error) == "why"
    assert (reason_of(ConnectionError()), reason_of(None)) == ("", "")


def test_a_note_survives_pickle():
    """Exceptions travel between processes, and their marks with them."""
    note = pickle.loads(pickle.dumps(gave_up(token=9, attempts=4)))
    assert type(note) is GaveUp
    assert note == gave_up(token=9, attempts=4)
    assert (note.token, note.attempts, note.reason) == (9, 4, "no attempt left")
    assert take_mark(pickle.loads(pickle.dumps(marked(attempts=4))), OURS) == 4


def test_one_note_only_on_an_exception_that_is_raised_again_and_again():
    """A mock's side_effect does not gather notes; notes of the user stay, in order."""
    error = ConnectionError()
    error.add_note("mine")
    for attempts in (2, 3, 4):
        marked(attempts=attempts, error=error)
        error.add_note(f"after {attempts}")
    assert error.__notes__ == ["mine", "after 2", "after 3", gave_up(attempts=4), "after 4"]


def test_a_consumed_mark_is_replaced_as_well():
    """A note whose mark was taken is still ours."""
    error = marked(attempts=2)
    take_mark(error, OURS)
    marked(attempts=3, error=error)
    assert error.__notes__ == [gave_up(attempts=3)]


def test_an_outer_retry_sees_the_mark_of_an_inner_one_once():
    """The mark is consumed on sight; the note stays for people."""
    error = marked(attempts=5)
    assert take_mark(error, OURS) == 5
    assert take_mark(error, OURS) == 0
    assert error.__notes__ == [gave_up(attempts=5)]
    assert type(error.__notes__[0]) is str


def test_a_mark_of_ones_own_does_not_count():
    """An exception object that this very site gave up on before is a new failure."""
    error = marked(token=OURS)
    assert take_mark(error, OURS) == 0
    assert type(error.__notes__[0]) is str


def test_the_mark_of_a_call_that_was_not_retried_does_not_count():
    """One attempt is no retry: nothing would be multiplied."""
    assert take_mark(marked(attempts=1), OURS) == 0
    assert take_mark(marked(attempts=2), OURS) == 2


def test_an_exception_without_notes_has_no_mark():
    """Nor has one with notes of other people, or with something odd in their place."""
    assert take_mark(ConnectionError(), OURS) == 0
    error = ConnectionError()
    error.add_note("mainstay: gave up on fetch after 3 attempts: no attempt left")
    assert take_mark(error, OURS) == 0
    empty = ConnectionError()
    empty.__notes__ = None
    assert take_mark(empty, OURS) == 0


def test_a_mark_is_seen_through_raise_from():
    """`raise X from e` hides nothing, and neither does an exception raised while handling e."""
    assert take_mark(caused(RuntimeError(), marked(attempts=4)), OURS) == 4
    during = RuntimeError()
    during.__context__ = marked(attempts=4)
    assert take_mark(during, OURS) == 4
    assert take_mark(caused(KeyError(), caused(RuntimeError(), marked(attempts=4))), OURS) == 4


def test_the_cause_is_followed_before_the_context():
    """As a traceback is read."""
    error = caused(RuntimeError(), marked(attempts=4))
    error.__context__ = marked(attempts=7)
    assert take_mark(error, OURS) == 4


def test_the_outermost_mark_of_a_chain_counts():
    """The nearest retry is the one whose work would be repeated."""
    error = marked(attempts=2, error=caused(RuntimeError(), marked(attempts=9)))
    assert take_mark(error, OURS) == 2


def test_ones_own_mark_on_top_does_not_hide_anothers_below():
    """Both are looked at."""
    error = marked(token=OURS, error=caused(RuntimeError(), marked(attempts=9)))
    assert take_mark(error, OURS) == 9


@given(depth=st.integers(0, 150))
def test_a_chain_is_followed_a_hundred_deep(depth):
    """Far enough for what people write; a chain that never ends does not hang."""
    error = marked(attempts=4)
    for _ in range(depth):
        error = caused(RuntimeError(), error)
    assert take_mark(error, OURS) == (4 if depth < 100 else 0)


def test_a_mark_is_seen_inside_a_group():
    """A task group wraps what its tasks raise, in another group even, with a cause."""
    bare = ConnectionError()
    inner = ExceptionGroup("inner", [bare, marked(attempts=4)])
    assert take_mark(ExceptionGroup("outer", [ValueError(), inner]), OURS) == 4
    assert take_mark(ExceptionGroup("outer", [caused(KeyError(), marked(attempts=5))]), OURS) == 5
    assert take_mark(caused(ExceptionGroup("g", [bare]), marked(attempts=6)), OURS) == 6
    assert take_mark(ExceptionGroup("outer", [bare, ValueError()]), OURS) == 0
    assert take_mark(BaseExceptionGroup("g", [KeyboardInterrupt(), marked()]), OURS) == 3


def test_a_chain_that_bites_its_tail_ends():
    """A cause may be its own cause."""
    error = RuntimeError()
    error.__cause__ = error
    assert take_mark(error, OURS) == 0


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    """A common shape of exception, which nobody can add a note to."""

    code: int = 7


@pytest.mark.req("NFR-041-11")
def test_an_exception_that_takes_no_note_is_left_as_it_is():
    """A frozen exception, or one with odd notes, is never lost for a note."""
    frozen = Frozen()
    gave_up().put_on(frozen)
    assert frozen == Frozen()
    odd = ConnectionError()
    odd.__notes__ = ("a tuple",)
    gave_up().put_on(odd)
    assert odd.__notes__ == ("a tuple",)
    assert take_mark(odd, OURS) == 0
    odd.__notes__ = 7
    assert take_mark(odd, OURS) == 0
