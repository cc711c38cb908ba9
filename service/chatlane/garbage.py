"""Run the garbage collector of Python less often."""

import gc
from typing import Final

# Growth of the number of objects in memory that starts the next garbage collection.
_COLLECT_AFTER: Final = 20_000


def collect_rarely_from_the_start() -> None:
    """Run the garbage collector less often while a process imports what it needs.

    Imports make hundreds of thousands of objects that stay: with the default threshold the collector
    took a fifth of their time.
    """
    gc.set_threshold(_COLLECT_AFTER)


def collect_rarely() -> None:
    """Run the garbage collector less often, and exempt the objects that exist now.

    The service makes almost no reference cycles, but every message makes some tens of objects: with
    the default threshold the collector took a quarter of the processor time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)
