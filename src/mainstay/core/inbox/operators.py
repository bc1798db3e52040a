"""Operators: the people who may act on the inbox, as reducers over one record each.

An attempt is counted before the secret is checked, and the count is cleared if it was right: so
parallel guesses get no more attempts than serial ones, and a crash counts too. Unknown names are
counted the same way, in a record that expires, or the answer would reveal which names exist.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainstay.core.base.change import DROP, KEEP, Change, damage, read_as, ready
from mainstay.core.base.clock_jumps import TOLERANCE
from mainstay.core.base.spaces import Space
from mainstay.core.codec.canonical import canonical
from mainstay.errors import StoredValueError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SPACE = Space.OPERATORS.value
FIRST = Space.FIRST_OPERATOR.value
"""The space of the name of the first operator, who needs no authorisation."""

MOST_TRIES, WINDOW = 5, 900.0
"""Wrong attempts within WINDOW seconds after which the name is locked."""
FIRST_LOCK, LONGEST_LOCK = 60.0, 3600.0
"""Seconds of the first lock; each one after it lasts twice as long, up to the longest."""
SIGNED_WITHIN = 300.0
"""Seconds by which a signature's time may be off the store's clock."""
_CLAIM = 60.0
"""Seconds after which a claim to be the first, if no operator came of it, is void."""
_GHOST = WINDOW + LONGEST_LOCK


class Hash(Struct, frozen=True):
    """A secret as scrypt hashes it, with what it takes to do so again.

    The defaults are those of records that do not name their cost; new hashes have COST.
    """

    salt: str
    digest: str = ""
    n: int = 2**15
    r: int = 8
    p: int = 1


COST = Hash(salt="", n=2**17)
"""The cost of a new hash: 128 MiB of memory, as OWASP's Password Storage Cheat Sheet asks for."""
_MOST_WORK = 2**21 * 8
"""What a hash may cost at most: 2 GiB of memory."""
SHORTEST = 12
"""Characters of a new secret; one that was accepted when fewer were enough still works."""


class Operator(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person who may act.

    >>> Operator(name="ann").is_enabled
    True
    """

    name: str
    hash: Hash | None = None
    public_key: str = ""
    is_enabled: bool = True
    created: float = 0.0
    added_by: str = ""
    tries: tuple[float, ...] = ()
    """When those of late were that are not known to be right."""
    locked_until: float = 0.0
    locks: int = 0
    """How often in a row it was locked."""
    signed: float = 0.0
    """The time of the last signature that was taken: an older one is a repetition."""
    is_ghost: bool = False
    """Whether the name is unknown, and only its attempts are counted."""
    replaced: str = ""
    """The mark of the hash of the same secret that was replaced by one of a higher cost."""


class AuthAttempt(Struct, frozen=True):
    """The answer to an attempt: the operator to check, or for how long the name is locked."""

    operator: Operator
    locked_for: float = 0.0


# --- secrets and signatures -----------------------------------------------------------------------


def hashed(secret: str, using: Hash) -> Hash:
    """The hash of a secret.

    >>> using = Hash(salt="00" * 16, n=2**4)
    >>> is_right("hunter2", hashed("hunter2", using)), is_right("hunter3", hashed("hunter2", using))
    (True, False)
    """
    if not 0 < _work(using) <= _MOST_WORK:  # a user who can write the store must not fill memory
        raise damage("the record of the operator is damaged: its hash cannot be computed")
    try:
        digest = hashlib.scrypt(
            secret.encode("utf-8", "surrogatepass"),
            salt=bytes.fromhex(using.salt),
            n=using.n,
            r=using.r,
            p=using.p,
            maxmem=2 * 128 * using.r * (using.n + using.p),
            dklen=32,
        )
    except ValueError as error:
        raise damage(f"the record of the operator is damaged: {error}") from None
    return replace(using, digest=digest.hex())


def is_right(secret: str, kept: Hash) -> bool:
    """Whether a secret is the one that was hashed; takes as long whichever it is."""
    return hmac.compare_digest(hashed(secret, kept).digest, kept.digest)


def is_cheaper(kept: Hash, cost: Hash) -> bool:
    """Whether a hash costs less to guess than a new one would.

    >>> is_cheaper(Hash(salt=""), COST), is_cheaper(COST, COST)
    (True, False)
    """
    return _work(kept) < _work(cost)


def padding(kept: Hash, cost: Hash) -> Hash | None:
    """What a wrong secret is hashed with besides, so that a cheap hash shows no name by its time.

    >>> padding(Hash(salt="", n=2**15), COST).p
    3
    >>> padding(COST, COST) is None
    True
    """
    times = _work(cost) // _work(kept) - 1
    return replace(kept, digest="", p=kept.p * times) if times > 0 else None


def _work(using: Hash) -> int:
    """What the time of a hash is proportional to."""
    return using.n * using.r * using.p


def mark_of(kept: Hash) -> str:
    """What a hash that was replaced is known by; no secret can be guessed from it."""
    return hashlib.sha256(f"{kept.salt}:{kept.digest}".encode()).hexdigest()


def statement(purpose: str, operator: str, about: tuple[Any, ...], at: float, store: str) -> bytes:
    """What an operator signs: this act, on this state of this store, at this time.

    `store` is the identity of the store, `engine.operators.store_identity`: a signature for one
    store means nothing in another.

    >>> statement("act", "ann", ("3f2a", 1, "retry"), at=5.0, store="9c41")
    b'["mainstay","act","ann",["3f2a",1,"retry"],5.0,"9c41"]'
    """
    return canonical(["mainstay", purpose, operator, list(about), float(at), store])


def is_timely(at: float, now: float) -> bool:
    """Whether a signature is of now."""
    return abs(now - at) <= SIGNED_WITHIN


# --- trying ---------------------------------------------------------------------------------------


def count_attempt(value: bytes | None, name: str, now: float) -> tuple[Change, AuthAttempt]:
    """Counts an attempt; returns the operator to check, or for how long the name is locked.

    >>> change, answer = count_attempt(None, "ann", now=0.0)
    >>> answer.operator.is_ghost, answer.locked_for
    (True, 0.0)
    """
    operator = Operator(name=name, is_ghost=True) if value is None else decode(value)
    if operator.locked_until > now:
        change, seconds = _lock_left(operator, now)
        return change, AuthAttempt(operator, seconds)
    tries = _late_tries(operator, now)
    if len(tries) >= MOST_TRIES:  # those before are not answered yet
        operator = _locked(operator, now)
        return _written(operator, now), AuthAttempt(operator, operator.locked_until - now)
    operator = replace(operator, tries=(*tries, now))
    return _written(operator, now), AuthAttempt(operator)


def missed(value: bytes | None, now: float) -> tuple[Change, float]:
    """A try was wrong: the last of too many locks the name. The answer is for how long."""
    operator = None if value is None else decode(value)
    if operator is None:
        return KEEP, 0.0
    if operator.locked_until > now:
        return _lock_left(operator, now)
    if len(_late_tries(operator, now)) < MOST_TRIES:
        return KEEP, 0.0
    operator = _locked(operator, now)
    return _written(operator, now), operator.locked_until - now


def passed(
    value: bytes | None,
    checked: Operator,
    signed: float | None,
    now: float,
    *,
    is_fresh: bool = False,
    better: Hash | None = None,
) -> tuple[Change, str]:
    """A try was right: what was counted is forgotten. The answer is why it is refused all the same.

    A lock that came while it was checked is lifted, or several acts at once with the right secret
    would lock the name.

    Args:
        value: the record as it is now.
        checked: the operator as it was when the secret was looked at.
        signed: the time of the signature, if there is one.
        now: the time.
        is_fresh: whether it was signed here and now, so that it is no repetition.
        better: a hash of the same secret that costs more to guess, to be kept from now on.
    """
    operator = None if value is None else decode(value)
    if operator is None or not _is_unchanged(operator, checked):
        return KEEP, "the operator was changed or removed meanwhile"
    if not operator.is_enabled:
        return KEEP, "the operator is disabled"
    if signed is not None and signed <= operator.signed and not is_fresh:
        return KEEP, "the signature was used before"
    last = operator.signed if signed is None else max(operator.signed, signed)
    kept = replace(operator, tries=(), locks=0, locked_until=0.0, signed=last)
    if better is not None and operator.hash is not None and operator.hash == checked.hash:
        kept = replace(kept, hash=better, replaced=mark_of(operator.hash))
    return _written(kept, now), ""


def _is_unchanged(operator: Operator, checked: Operator) -> bool:
    """Whether it has the secret or key that was checked; another hash of that secret is no change.

    Two acts at once may both find a cheap hash, and one of them replaces it first.
    """
    if (operator.hash, operator.public_key) == (checked.hash, checked.public_key):
        return True
    return checked.hash is not None and operator.replaced == mark_of(checked.hash)


def _late_tries(operator: Operator, now: float) -> tuple[float, ...]:
    """The attempts of the window; one of the future counts from now on: the clock was set back."""
    return tuple(min(at, now) for at in operator.tries if now - at < WINDOW)


def _lock_left(operator: Operator, now: float) -> tuple[Change, float]:
    """For how long a name is locked; if that is longer than its lock, the lock begins again."""
    length = _lock_seconds(max(0, operator.locks - 1))
    left = operator.locked_until - now
    if left <= length + TOLERANCE:
        return KEEP, left
    return _written(replace(operator, locked_until=now + length), now), length


def _lock_seconds(locks: int) -> float:
    """The length of a lock that follows a number of locks in a row."""
    return min(LONGEST_LOCK, FIRST_LOCK * 2.0 ** min(locks, 16))


def _locked(operator: Operator, now: float) -> Operator:
    seconds = _lock_seconds(operator.locks)
    return replace(operator, tries=(), locks=operator.locks + 1, locked_until=now + seconds)


# --- adding and changing -------------------------------------------------------------------------


def claim_first(value: bytes | None, name: str, is_there: bool, now: float) -> tuple[Change, bool]:
    """Whether a name may be the first operator: of two claims at once, one wins.

    A claim of which no operator came holds for a minute; `is_there` is whether one came of it.
    """
    before = None if value is None else msgspec.json.decode(value, type=tuple[str, float])
    if before is not None and before[0] != name and (is_there or now - before[1] < _CLAIM):
        if before[1] <= now:
            return KEEP, False
        return Change(msgspec.json.encode((before[0], now))), False  # the clock was set back
    return Change(msgspec.json.encode((name, now))), True


def first_of(value: bytes) -> str:
    """The name that claimed to be the first."""
    return msgspec.json.decode(value, type=tuple[str, float])[0]


def add(value: bytes | None, operator: Operator, now: float) -> tuple[Change, bool]:
    """Adds an operator; False if there is one of that name."""
    before = None if value is None else decode(value)
    if before is not None and not before.is_ghost:
        return KEEP, False
    return _written(replace(operator, created=now), now), True


def change(
    value: bytes | None,
    now: float,
    *,
    is_enabled: bool | None = None,
    proof: Hash | str | None = None,
) -> tuple[Change, bool]:
    """Enables or disables an operator, or gives another hash or public key; False without one."""
    before = None if value is None else decode(value)
    if before is None or before.is_ghost:
        return KEEP, False
    kept = before if is_enabled is None else replace(before, is_enabled=is_enabled)
    if isinstance(proof, Hash):
        kept = replace(kept, hash=proof, public_key="", replaced="")
    elif proof is not None:
        kept = replace(kept, hash=None, public_key=proof, replaced="")
    return _written(kept, now), True


def remove(value: bytes | None) -> tuple[Change, bool]:
    """Removes an operator, also one whose record is damaged; False without one."""
    return (DROP, True) if value is not None and is_somebody(value) else (KEEP, False)


def is_somebody(value: bytes) -> bool:
    """Whether a record is an operator's. A damaged one counts, or there might seem to be none.

    >>> is_somebody(encode(Operator(name="ann"))), is_somebody(b"{")
    (True, True)
    """
    try:
        return not decode(value).is_ghost
    except StoredValueError:
        return True


def is_enabled(value: bytes) -> bool:
    """Whether a record is of an operator that is enabled."""
    try:
        found = decode(value)
    except StoredValueError:
        return False
    return found.is_enabled and not found.is_ghost


def _written(operator: Operator, now: float) -> Change:
    return Change(encode(operator), now + _GHOST if operator.is_ghost else None)


def encode(operator: Operator) -> bytes:
    """The operator as JSON."""
    return msgspec.json.encode(operator)


def decode(value: bytes) -> Operator:
    """The operator of such a text."""
    return read_as(Operator, value, "operator")


ready(Operator)
