"""How cost grows with size: exponents, from `make bench-scale`; see docs/reference/scale.md."""

from __future__ import annotations
