"""The command line of chatlane, but one marked body ends the process as soon as it is decoded.

Usage: as `python -m chatlane`.
"""

import os
from typing import Final

from chatlane.cli import main
from chatlane.decisions import batch_decision
from chatlane.decisions.batch_decision import DecodedMessage
from chatlane.domain.catalog import Catalog
from chatlane.domain.log import LogMessage
from chatlane.ingest import batch_committer

MARK: Final = b"this ends the process"

_decoded = batch_decision.decoded


def decoded_or_dead(
    message: LogMessage, catalog: Catalog, *, is_killer: bool = False, is_old: bool = False
) -> DecodedMessage:
    """Decode a message unless it is the marked one."""
    if MARK in message.body and not is_killer:
        os._exit(9)
    return _decoded(message, catalog, is_killer=is_killer, is_old=is_old)


if __name__ == "__main__":
    batch_committer.decoded = decoded_or_dead  # type: ignore[attr-defined]
    main()
