"""Load the remaining message budgets of other bots; a batch without bots reads nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chatlane.domain.limits.bots import Bots, chats_to_ask_for, range_of
from chatlane.store import bots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.lanes import ResolvedMessage

# Most lanes of a chat that are read to find when a person last wrote. In a larger chat the person
# may be missed, and a bot may have to pause before its messages are accepted again.
_MOST_LANES: Final = 1000


async def load(connection: PoolConnectionProxy, arrived: Sequence[ResolvedMessage]) -> Bots | None:
    """Lock the budgets of the bots that write in a batch, after aliases and before sessions."""
    pairs = [(message.pair, message.session_key) for message in arrived if message.pair is not None]
    if not pairs:
        return None
    spent = await bots.lock(connection, {pair.key for pair, _ in pairs})
    chats = chats_to_ask_for(pairs, spent)
    if not chats:
        return Bots(spent)
    ranges = [(chat, range_of(chat)) for chat in sorted(chats)]
    return Bots(spent, await bots.find_people(connection, ranges, _MOST_LANES))
