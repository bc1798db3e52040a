"""Numbers from a key: u = uniform(key, n), any n at once, in any process and Python version.

A multiplicative generator modulo 2**52. Its n-th number is the key times the n-th power of the
multiplier, so that a single delay can be recomputed alone. Keys are odd. 52 bits fit a float and
the arithmetic of small integers; the lowest of them repeat early, which no delay can show.
"""

from __future__ import annotations

# The low 52 bits of the multiplier for 2**64 in G. Steele and S. Vigna, "Computationally easy,
# spectrally good multipliers for congruential pseudorandom number generators" (2021). It is 5
# modulo 8, so its period on odd keys is the longest there is, 2**50.
MULTIPLIER = 0x57AEA2E62A9C5
_BITS = 52
MASK: int = 2**_BITS - 1
SCALE: float = 2.0**-_BITS
POWERS: list[int] = [1]
while len(POWERS) < 64:
    POWERS.append(POWERS[-1] * MULTIPLIER & MASK)


def uniform(key: int, n: int) -> float:
    """The n-th number of a key, in [0, 1).

    >>> uniform(12345, 3) == uniform(12345, 3)
    True
    """
    power: int = POWERS[n] if n < 64 else pow(MULTIPLIER, n, 2**_BITS)
    return (key * power & MASK) * SCALE


def key_of(seed: int, call: int) -> int:
    """The key of one call under a seed; mixed, since keys in a row would correlate.

    >>> key_of(7, 0) != key_of(7, 1)
    True
    """
    return _mix(_mix(seed & _MASK64) + call * 0x9E3779B97F4A7C15 & _MASK64) >> 12 | 1


_MASK64 = 2**64 - 1


def _mix(z: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    z = (z + 0x9E3779B97F4A7C15) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    return z ^ (z >> 31)
