"""Numbers from a key: u = uniform(key, n), any n at once, in any process and Python version.

A multiplicative generator modulo 2**64. Its n-th number is the key times the n-th power of the
multiplier, so that a single delay can be recomputed alone. Keys are odd, and the top 53 bits make
the number: the low bits of such a generator repeat early.
"""

from __future__ import annotations

# G. Steele and S. Vigna, "Computationally easy, spectrally good multipliers for congruential
# pseudorandom number generators" (2021): their multiplier of full length for this modulus.
MULTIPLIER = 0xF1357AEA2E62A9C5
_MASK = 2**64 - 1
_SCALE = 2.0**-53
_POWERS = [1]
while len(_POWERS) < 64:
    _POWERS.append(_POWERS[-1] * MULTIPLIER & _MASK)


def uniform(key: int, n: int) -> float:
    """The n-th number of a key, in [0, 1).

    >>> uniform(12345, 3) == uniform(12345, 3)
    True
    """
    power = _POWERS[n] if n < 64 else pow(MULTIPLIER, n, 2**64)
    return ((key * power & _MASK) >> 11) * _SCALE


def key_of(seed: int, call: int) -> int:
    """The key of one call under a seed; mixed, since keys in a row would correlate.

    >>> key_of(7, 0) != key_of(7, 1)
    True
    """
    return _mix(_mix(seed & _MASK) + call * 0x9E3779B97F4A7C15 & _MASK) | 1


def _mix(z: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    z = (z + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
