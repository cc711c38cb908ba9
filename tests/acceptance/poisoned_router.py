"""The command line of chatlane, but one marked body ends the process as soon as it is decoded.

Usage: as `python -m chatlane`.
"""

import os
from typing import Final

from chatlane.cli import main
from chatlane.domain.catalog import Catalog
from chatlane.domain.log import LogMessage
from chatlane.routing import batch, deciding
from chatlane.routing.deciding import Decoded

MARK: Final = b"this ends the process"

_decoded = deciding.decoded


def decoded_or_dead(
    message: LogMessage, catalog: Catalog, *, is_killer: bool = False, is_old: bool = False
) -> Decoded:
    """Decode a message unless it is the marked one."""
    if MARK in message.body and not is_killer:
        os._exit(9)
    return _decoded(message, catalog, is_killer=is_killer, is_old=is_old)


if __name__ == "__main__":
    batch.decoded = decoded_or_dead  # type: ignore[attr-defined]
    main()
