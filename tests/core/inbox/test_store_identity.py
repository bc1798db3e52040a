"""The identity of a store: made once, kept, and renewed on demand."""

import pytest

from mainstay.core.base.change import KEEP
from mainstay.core.inbox.store_identity import ensure, known, renew
from mainstay.errors import StoredValueError


def test_an_identity_is_made_once_and_kept_until_it_is_renewed():
    """Of two that need it first, the second gets that of the first."""
    made, identity = ensure(None, "aa", 5.0)
    assert (identity, known(made.value), made.expires) == ("aa", "aa", None)
    assert ensure(made.value, "bb", 6.0) == (KEEP, "aa")
    again, identity = renew(made.value, "bb", 7.0)
    assert (identity, known(again.value)) == ("bb", "bb")


def test_a_damaged_identity_is_an_error_and_no_new_identity():
    """Or whoever can damage the record could make signatures void, or valid, unseen."""
    with pytest.raises(StoredValueError, match="identity of the store is damaged"):
        ensure(b"{", "aa", 5.0)
