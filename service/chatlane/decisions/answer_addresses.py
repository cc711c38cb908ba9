"""Find the address of answers to chats whose id was reassigned since the question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.domain.addressing.aliases import AliasId, AliasKind
from chatlane.domain.addressing.owners import parse_owner_text
from chatlane.domain.addressing.people import is_lasting, person_form
from chatlane.domain.addressing.sources import class_of
from chatlane.store.addressing import identities
from chatlane.store.addressing.identities import Name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.addressing.identities import Identity
    from chatlane_schemas.source import Source


async def find_present(
    connection: PoolConnectionProxy,
    targets: Sequence[tuple[str | None, Source | None]],
    at: datetime,
) -> list[Source | None]:
    """Return the current address of each target, in the order given.

    An id that now belongs to another person is replaced by the platform's permanent id of the
    account. If that is unknown, the address is None: the answer stays in the transcript only.

    Args:
        connection: The connection of the deciding transaction.
        targets: The owner of each session, and the source of its question.
        at: When the answer is sent.
    """
    ids = [_dm_of(target) if owner else None for owner, target in targets]
    handed_on = await identities.find_handed_on(connection, filter(None, ids))
    if not handed_on:
        return [target for _, target in targets]
    names = {owner: Name(*parse_owner_text(owner)) for owner, _ in targets if owner is not None}
    found = await identities.find_by_names(connection, names.values())
    return [
        target
        if owner is None or target is None or chat_id not in handed_on
        else _present(target, found[names[owner]], at)
        for (owner, target), chat_id in zip(targets, ids, strict=True)
    ]


def _dm_of(target: Source | None) -> AliasId | None:
    """Return the id of the person in a DM, or None if the target is no DM."""
    chat = None if target is None else target.chat
    if target is None or chat is None or not chat.id or class_of(chat.kind) != "dm":
        return None
    form = person_form(target.platform, chat.id)
    if form is None:
        return None
    return AliasId(target.platform, target.account, AliasKind.PERSON, form)


def _present(target: Source, identity: Identity, at: datetime) -> Source | None:
    chat = target.chat
    if chat is None or chat.id is None or identity.has(chat.id, at):
        return target
    if not identity.spans_of(chat.id):
        # The chat id is not the id of the person.
        return target
    lasting = (
        span.form
        for span in identity.spans
        if is_lasting(identity.platform, span.form) and span.covers(at)
    )
    new = next(lasting, None)
    if new is None:
        return None
    return target.model_copy(update={"chat": chat.model_copy(update={"id": new})})
