"""Notes on the exception that is given up on, which are also marks for an outer retry."""

import copy
import dataclasses
import itertools
import pickle
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.retry import give_up
from mainstay.core.retry.give_up import (
    GaveUp,
    arrived,
    gave_up_headers,
    mark_on,
    newest_mark,
    reason_of,
)


def gave_up(token=2, attempts=3, reason="no attempt left", **more):
    return GaveUp("fetch", reason, token, attempts, **more)


def marked(moment=5, error=None, **more):
    error = ConnectionError("down") if error is None else error
    gave_up(**more, moment=moment).put_on(error)
    return error


def newest(error):
    """The moment of the newest mark."""
    mark = newest_mark(error)
    return None if mark is None else mark.moment


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
    note = gave_up(token=9, attempts=4, reason="why", inside=6, moment=7)
    assert (note.operation, note.token, note.attempts, note.reason) == ("fetch", 9, 4, "why")
    assert (note.inside, note.made, note.is_mark, note.moment) == (6, 6, True, 7)
    assert (gave_up().made, gave_up().moment) == (3, -1)


def test_the_reason_is_read_from_the_exception():
    """The last one that was left; empty if no retry gave up on it."""
    error = marked()
    error.add_note("mainstay: gave up on fetch after 3 attempts: a look-alike")
    assert reason_of(error) == "no attempt left"
    gave_up(reason="why").put_on(error)
    assert reason_of(error) == "why"
    assert (reason_of(ConnectionError()), reason_of(None)) == ("", "")


@pytest.mark.parametrize("is_mark", [True, False])
def test_a_note_survives_pickle(is_mark, monkeypatch):
    """Exceptions travel between processes; a mark counts as made when it arrives."""
    monkeypatch.setattr(give_up, "arrivals", [lambda: 12])
    note = pickle.loads(pickle.dumps(gave_up(token=9, attempts=4, is_mark=is_mark)))
    assert type(note) is GaveUp
    assert note == gave_up(token=9, attempts=4)
    assert (note.token, note.attempts, note.reason) == (9, 4, "no attempt left")
    assert (note.operation, note.is_mark) == ("fetch", is_mark)
    assert note.moment == (12 if is_mark else -1)
    assert newest(pickle.loads(pickle.dumps(marked(moment=-1)))) == 12


def test_a_mark_arrives_without_a_moment_where_none_are_counted(monkeypatch):
    """The core alone counts no moments."""
    monkeypatch.setattr(give_up, "arrivals", [])
    assert pickle.loads(pickle.dumps(gave_up(moment=3))).moment == -1


@pytest.mark.parametrize(
    ("reason", "attempts", "inside", "is_mark"),
    [
        ("no attempt left", 3, 0, True),
        ("no attempt left", 1, 0, False),
        ("an inner retry has given up on it", 1, 3, True),
        ("not retryable", 3, 0, False),
        ("left to the enclosing retry", 1, 0, False),
    ],
)
def test_a_note_of_an_older_version_is_read(reason, attempts, inside, is_mark):
    """It did not state whether it is a mark: that follows from the reason and the attempts."""
    note = give_up._rebuild("mainstay: gave up on x", reason, 7, attempts, inside)
    assert (note, note.operation, note.is_mark) == ("mainstay: gave up on x", "", is_mark)


def test_a_copy_keeps_the_moment():
    """It is a value."""
    note = gave_up(moment=3)
    assert copy.deepcopy(note) is note


def test_one_note_only_on_an_exception_that_is_raised_again_and_again():
    """A mock's side_effect does not gather notes; notes of the user stay, in order."""
    error = ConnectionError()
    error.add_note("mine")
    for attempts in (2, 3, 4):
        marked(attempts=attempts, moment=attempts, error=error)
        error.add_note(f"after {attempts}")
    assert error.__notes__ == ["mine", "after 2", "after 3", gave_up(attempts=4), "after 4"]


def test_a_note_that_is_no_mark_leaves_a_mark_as_it_is():
    """A layer that would not retry the failure adds its note; the inner retry has given up."""
    error = marked(moment=4)
    gave_up(attempts=2, reason="not retryable", is_mark=False).put_on(error)
    gave_up(attempts=5, reason="not retryable", is_mark=False).put_on(error)
    assert [note.attempts for note in error.__notes__] == [3, 5]
    assert (newest(error), reason_of(error)) == (4, "not retryable")
    marked(moment=6, error=error)
    assert error.__notes__ == [gave_up()]
    alone = marked(moment=-1)
    gave_up(attempts=2, is_mark=False).put_on(alone)
    assert len(alone.__notes__) == 1


def test_a_mark_is_found_as_often_as_it_is_looked_for():
    """It is not consumed: each of several outer retries finds it."""
    error = marked(moment=5)
    assert (newest(error), newest(error)) == (5, 5)


def test_an_exception_without_notes_has_no_mark():
    """Nor has one with notes of other people, or with something odd in their place."""
    assert newest(ConnectionError()) is None
    error = ConnectionError()
    error.add_note("mainstay: gave up on fetch after 3 attempts: no attempt left")
    assert newest(error) is None
    empty = ConnectionError()
    empty.__notes__ = None
    assert newest(empty) is None
    assert newest(marked(moment=-1)) is None
    assert mark_on(None) is None


def test_a_mark_is_seen_through_raise_from_and_never_in_the_context():
    """`raise X from e` is the same failure; one that is raised while e is handled is another."""
    assert newest(caused(RuntimeError(), marked(moment=4))) == 4
    assert newest(caused(KeyError(), caused(RuntimeError(), marked(moment=4)))) == 4
    during = RuntimeError()
    during.__context__ = marked(moment=4)
    assert newest(during) is None


@pytest.mark.parametrize("depth", range(9))
@pytest.mark.parametrize("is_circle", [False, True])
def test_a_mark_is_found_however_many_causes_further_in(depth, is_circle):
    """Clients raise one exception from another, three and four deep; a chain may be a circle."""
    chain = [OSError(str(number)) for number in range(9)]
    for error, cause in itertools.pairwise(chain):
        error.__cause__ = cause
    chain[-1].__cause__ = chain[0] if is_circle else None
    assert newest_mark(chain[0]) is None
    note = GaveUp("fetch", "no attempt left", 1, 3, moment=7)
    note.put_on(chain[depth])
    assert newest_mark(chain[0]) is note


def test_the_newest_mark_of_all_is_found():
    """An outer retry honours a mark if it was made since: the newest one decides."""
    assert newest(marked(moment=2, error=caused(RuntimeError(), marked(moment=9)))) == 9
    assert newest(marked(moment=9, error=caused(RuntimeError(), marked(moment=2)))) == 9
    assert newest(ExceptionGroup("g", [marked(moment=3), marked(moment=4), marked(moment=1)])) == 4


@given(depth=st.integers(0, 150))
def test_a_chain_is_followed_a_hundred_deep(depth):
    """Far enough for what people write; a chain that never ends does not hang."""
    error = marked(moment=4)
    for _ in range(depth):
        error = caused(RuntimeError(), error)
    assert newest(error) == (4 if depth < 100 else None)


def test_a_mark_is_seen_inside_a_group():
    """A task group wraps what its tasks raise, in another group even, with a cause."""
    bare = ConnectionError()
    inner = ExceptionGroup("inner", [bare, marked(moment=4)])
    assert newest(ExceptionGroup("outer", [ValueError(), inner])) == 4
    assert newest(ExceptionGroup("outer", [caused(KeyError(), marked(moment=5))])) == 5
    assert newest(caused(ExceptionGroup("g", [bare]), marked(moment=6))) == 6
    assert newest(ExceptionGroup("outer", [bare, ValueError()])) is None
    assert newest(BaseExceptionGroup("g", [KeyboardInterrupt(), marked(moment=3)])) == 3


def test_a_chain_that_bites_its_tail_ends():
    """A cause may be its own cause."""
    error = RuntimeError()
    error.__cause__ = error
    assert newest(error) is None


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
    assert newest(odd) is None
    odd.__notes__ = 7
    assert newest(odd) is None


class Response:
    def __init__(self, note=None, extensions=None):
        if extensions is not None:
            self.extensions = extensions
        self.ms_gave_up = note


class StatusError(Exception):
    def __init__(self, response):
        super().__init__("status 503")
        self.response = response


@pytest.mark.parametrize("where", ["extensions", "attribute"])
def test_a_mark_is_found_on_the_response_that_an_exception_carries(where):
    """`raise_for_status()` makes a new exception: the response remembers who gave up on it."""
    note = gave_up(moment=5)
    response = Response(note) if where == "attribute" else Response(extensions={"ms_gave_up": note})
    assert newest(StatusError(response)) == 5
    assert gave_up_headers(StatusError(response)) == {"Mainstay-Gave-Up": "3"}


@pytest.mark.parametrize("note", [None, "mainstay: gave up", 3])
def test_what_only_looks_like_a_mark_on_a_response_is_none(note):
    """A response of a stranger may have any attribute."""
    assert newest_mark(StatusError(Response(note))) is None
    assert newest_mark(StatusError(Response(extensions={"ms_gave_up": note}))) is None


class Unread:
    @property
    def extensions(self):
        raise RuntimeError("not read yet")


def test_a_response_that_cannot_be_asked_has_no_mark():
    assert newest_mark(StatusError(Unread())) is None


def test_the_header_is_for_that_very_failure_alone():
    """A cause and a member of a group count; a context does not, nor a note that is no mark."""
    assert gave_up_headers(marked(moment=-1)) == {"Mainstay-Gave-Up": "3"}
    assert gave_up_headers(caused(ValueError(), marked(attempts=5))) == {"Mainstay-Gave-Up": "5"}
    assert gave_up_headers(ExceptionGroup("g", [marked(inside=9)])) == {"Mainstay-Gave-Up": "9"}
    assert gave_up_headers(marked(is_mark=False)) == {}
    error = ValueError()
    error.__context__ = marked()
    assert gave_up_headers(error) == {}
    assert gave_up_headers(None) == {}, "a handler may have no failure"


def test_a_mark_that_arrives_counts_as_made_now(monkeypatch):
    """The other service has another count of moments, or none."""
    monkeypatch.setattr(give_up, "arrivals", [lambda: 41])
    assert (arrived("orders", 3).moment, arrived("orders", 3).made) == (41, 3)
    monkeypatch.setattr(give_up, "arrivals", [])
    assert arrived("orders", 3).moment == -1
