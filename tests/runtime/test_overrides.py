"""What a test changes reaches the sites that hold it, and no others."""

import copy
import pickle
import threading

import pytest

from mainstay import Backoff, Engine, RetryPolicy
from mainstay.drivers.call.site import Site
from mainstay.drivers.call.wrap import wrap
from mainstay.runtime.overrides import Overrides
from mainstay.testing import Trace, no_retry, record, scripted

POLICY = RetryPolicy(name="op", retry_on=OSError, max_attempts=3, backoff=Backoff.constant(0))


def test_a_site_obeys_the_overrides_it_was_given():
    """Its own, not those of the process; as they are when a call fails, not when it was wrapped."""
    own = Overrides()
    function = scripted(OSError("first"), OSError("second"), "value")
    call = wrap(function, Site(POLICY, overrides=own))
    own.disable_retries()
    with pytest.raises(OSError, match="first"):
        call()
    own.enable_retries()
    with no_retry(), record() as trace:
        assert call() == "value"
    assert trace.names == []


def test_a_named_site_keeps_the_overrides():
    """A site that serves many functions passes them on."""
    own, trace = Overrides(), Trace()
    own.add_listener(trace)
    assert Site(POLICY, overrides=own).named("other").overrides is own


def test_overrides_are_active_until_the_last_change_is_undone():
    """Retries that were disabled twice are enabled twice; each listener leaves for itself."""
    overrides, first, second = Overrides(), Trace(), Trace()
    overrides.disable_retries()
    overrides.add_listener(first)
    overrides.disable_retries()
    overrides.add_listener(second)
    overrides.remove_listener(first)
    overrides.enable_retries()
    assert (overrides.listeners, overrides.has_retries) == ((second,), False)
    overrides.enable_retries()
    assert (overrides.is_active, overrides.has_retries) == (True, True)
    overrides.remove_listener(second)
    assert not overrides.is_active


def test_threads_that_change_overrides_at_once_leave_nothing_behind():
    """No change is lost between reading and writing."""
    overrides = Overrides()

    def work():
        trace = Trace()
        for _ in range(500):
            overrides.disable_retries()
            overrides.add_listener(trace)
            overrides.remove_listener(trace)
            overrides.enable_retries()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (overrides.is_active, overrides.has_retries, overrides.listeners) == (False, True, ())


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_what_holds_the_overrides_of_the_process_is_copied_and_pickled(duplicate, seed):
    """An operation goes to a process that was spawned, and a copy obeys the test as well."""
    engine = Engine(policies=[POLICY], default="op", sinks=[], seed=seed)
    operation = duplicate(engine.operation("fetch"))
    assert operation.call(scripted(OSError("first"), "value")) == "value"
    with no_retry(), pytest.raises(OSError, match="first"):
        operation.call(scripted(OSError("first"), "value"))
    duplicate(POLICY.attempts())


def test_overrides_of_another_kind_are_not_pickled():
    """Only those of the process have a name by which they are found."""
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(Overrides())
