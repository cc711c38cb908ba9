"""Finds out where answers go whose chat has an id that was handed on since the question."""

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
    """Return where to say something to people, in the order of what is given.

    An id that is another person's now gives way to the platform's own id of the account. Where
    that is not known, nobody is told: the answer stays in the transcript.

    Args:
        connection: Of the transaction that decides.
        targets: Owner of each session, and where its question came from.
        at: When something is to be said.
    """
    ids = [_dm_of(target) if owner else None for owner, target in targets]
    handed_on = await identities.find_handed_on(connection, filter(None, ids))
    if not handed_on:
        return [target for _, target in targets]
    names = {owner: Name(*parse_owner_text(owner)) for owner, _ in targets if owner is not None}
    found = await identities.find_by_names(connection, names.values())
    return [
        target
        if owner is None or target is None or one not in handed_on
        else _present(target, found[names[owner]], at)
        for (owner, target), one in zip(targets, ids, strict=True)
    ]


def _dm_of(target: Source | None) -> AliasId | None:
    """Return the id of the person whose DM it is."""
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
        # The id of a chat that is not named like its person.
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
