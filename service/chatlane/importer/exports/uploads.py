"""Import the conversation that a request carries."""

from __future__ import annotations

import asyncio
import json
import zlib
from base64 import b64decode
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from chatlane.domain.catalog import canonical_profile
from chatlane.domain.sessions.refusals import conflict, invalid
from chatlane.importer import import_sql
from chatlane.importer.exports import chatgpt, claude_code, open_webui
from chatlane.importer.exports.adoption import Adopted, ConversationWriter, Destination
from chatlane.importer.exports.conversation import NoConversationError
from chatlane.importer.exports.json_items import Item
from chatlane.importer.exports.spool import open_spool
from chatlane.importer.records import Omissions
from chatlane.store.addressing import identities
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.fields import MAX_INT64
from chatlane_schemas.session_api.session_openings import (
    MAX_IMPORT_BYTES,
    ImportOmission,
    ImportSource,
    SessionImport,
    SessionImportReply,
)

if TYPE_CHECKING:
    from chatlane.domain.catalog import Catalog
    from chatlane.importer.exports.conversation import Conversation
    from chatlane.importer.exports.spool import Spool
    from chatlane.postgres.pool import Connection
    from chatlane_schemas.session_api.sessions import ApiError

# zlib reads a gzip header instead of its own with this added to the size of the window.
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


class ImportLimits(NamedTuple):
    """Limits of what a person imports in total; the defaults have no limit.

    Attributes:
        messages: Most messages.
        text_bytes: Most bytes of their texts.
    """

    messages: int = MAX_INT64
    text_bytes: int = MAX_INT64


class OverLimitError(Exception):
    """A conversation does not fit into what the person may import; its transaction has to end."""


async def write(
    connection: Connection, request: SessionImport, catalog: Catalog, limits: ImportLimits
) -> SessionImportReply:
    """Import a conversation, or return why it is refused and write nothing.

    Raises:
        OverLimitError: With this conversation the person would have imported too much.
    """
    destination = await _destination(connection, request, catalog)
    if not isinstance(destination, Destination):
        return _refused(destination)
    omissions = Omissions()
    with ExitStack() as stack:
        try:
            # In a thread, because a router has to renew its leases meanwhile.
            conversation, spool = await asyncio.to_thread(_read, request, omissions, stack)
        except NoConversationError as error:
            return _refused(invalid(f"content: {error}"))
        done = await ConversationWriter(destination).write(connection, conversation, spool)
    if done.rows:
        await _check_limits(connection, destination, limits)
    return _reply(done, omissions)


def over_limit(error: OverLimitError) -> SessionImportReply:
    """Return the reply to an import that was over a limit."""
    return _refused(conflict(str(error)))


async def _check_limits(
    connection: Connection, destination: Destination, limits: ImportLimits
) -> None:
    """Refuse a conversation with which the person would have imported too much.

    Raises:
        OverLimitError: It is over a limit.
    """
    if destination.owner is None:
        return
    size = await import_sql.size_of_imports(connection, destination.owner, ImportSource)
    for number, most, unit in (
        (size.messages, limits.messages, "messages"),
        (size.text_bytes, limits.text_bytes, "bytes of text"),
    ):
        if number > most:
            raise OverLimitError(f"a person may import at most {most:,} {unit}")


async def _destination(
    connection: Connection, request: SessionImport, catalog: Catalog
) -> Destination | ApiError:
    if request.acting_for is None:
        return invalid("acting_for: must name the person")
    profile = canonical_profile(request.profile)
    agent = catalog.profiles.get(profile)
    if agent is None:
        return invalid("profile: not declared")
    identity = await identities.find(connection, request.acting_for)
    if identity is None:
        return invalid("acting_for.id: names no person")
    return Destination(profile, agent, identity.owner, is_continued=request.is_continued)


def _read(
    request: SessionImport, omissions: Omissions, stack: ExitStack
) -> tuple[Conversation, Spool]:
    """Return a conversation and its rows, which the stack closes.

    Raises:
        NoConversationError: The content is none.
    """
    conversation = _conversation(request, _unpacked(request.content), omissions)
    spool = stack.enter_context(open_spool(conversation, omissions))
    return conversation, spool


def _conversation(request: SessionImport, content: bytes, omissions: Omissions) -> Conversation:
    if request.source is ImportSource.CLAUDE_CODE:
        return claude_code.conversation_in(content, request.name, datetime.now(UTC), omissions)
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        raise NoConversationError("is no JSON") from None
    if not isinstance(fields, dict):
        raise NoConversationError("is no JSON object")
    item = Item(request.name, fields)
    if request.source is ImportSource.CHATGPT:
        return chatgpt.conversation_of(item)
    return open_webui.conversation_of(item)


def _unpacked(text: str) -> bytes:
    """Return the content of a request, unpacked up to the limit.

    Raises:
        NoConversationError: It is no gzip in base64, or larger.
    """
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        content = unpacker.decompress(b64decode(text, validate=True), MAX_IMPORT_BYTES)
    except (ValueError, zlib.error):
        raise NoConversationError("is no gzip in base64") from None
    if unpacker.unconsumed_tail:
        raise NoConversationError("is larger than 16 MiB")
    if not unpacker.eof:
        raise NoConversationError("has no end")
    return content


def _reply(done: Adopted, omissions: Omissions) -> SessionImportReply:
    if done.left_out:
        omissions.add("newer messages of a session", done.left_out, "")
    return SessionImportReply(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=done.session_id,
        outcome=done.outcome,
        rows=done.rows,
        left_out=tuple(
            ImportOmission(what=omission.what, reason=omission.reason, count=count)
            for omission, count in omissions.counts.most_common()
        ),
    )


def _refused(error: ApiError) -> SessionImportReply:
    return SessionImportReply(id=new_envelope_id(), at=datetime.now(UTC), error=error)
