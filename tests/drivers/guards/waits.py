"""How long a call waits for the store: longer, in tests that are not about that."""

from mainstay.drivers.call import call, guard
from mainstay.drivers.guards import breaker, breaker_blocks, link, shared

MODULES = (call, guard, breaker, breaker_blocks, link, shared)


def wait_longer(put=setattr):
    """Thirty seconds in place of a tenth of one."""
    for module in MODULES:
        put(module, "WAIT", 30.0)
