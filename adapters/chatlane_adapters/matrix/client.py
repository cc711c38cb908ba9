"""The calls of the client-server API that the adapter makes, with end-to-end encryption.

The only module that knows matrix-nio. It never waits out a limit of the server, and repeats no call.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import quote

from aiohttp import ClientResponse, ClientSession, ClientTimeout
from nio import (  # type: ignore[import-untyped]
    AsyncClient,
    AsyncClientConfig,
    EncryptionError,
    ErrorResponse,
    InviteMemberEvent,
    LocalProtocolError,
    MegolmEvent,
    MessageDirection,
)
from nio.crypto.attachments import decrypt_attachment, encrypt_attachment  # type: ignore[import-untyped]
from typing_extensions import override

from chatlane_adapters.matrix.decode import Room
from chatlane_adapters.matrix.files import RoomFile
from chatlane_adapters.matrix.refusals import HomeserverError, refusal_of

RawEvent = Mapping[str, Any]

_CALL_SECONDS: Final = 30
_SYNC_SECONDS: Final = 120
_PAGE: Final = 100
# The device of each user of an application service.
_DEVICE_ID: Final = "CHATLANE"
_DEVICE_NAME: Final = "chatlane"
# Typing, read marks and presence are not used. Members are named where they write.
_FILTER: Final = {
    "presence": {"types": []},
    "account_data": {"types": []},
    "room": {
        "ephemeral": {"types": []},
        "account_data": {"types": []},
        "state": {"lazy_load_members": True},
        "timeline": {"limit": 50, "lazy_load_members": True},
    },
}
_HISTORY_FILTER: Final = {"lazy_load_members": True}
_DIRECT_MEMBERS: Final = 2


@dataclass(frozen=True, slots=True)
class Device:
    """The device of the account.

    Attributes:
        user_id: The user.
        device_id: The device; keys of encrypted rooms belong to it.
        token: Its access token.
    """

    user_id: str
    device_id: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invitation to a room."""

    room_id: str
    inviter: str


@dataclass(frozen=True, slots=True)
class RoomNews:
    """The events of a room since the last sync.

    Attributes:
        room_id: The room.
        events: In the order of the server, decrypted as far as the keys are there.
        gap_ends_at: Where `events` begin, if there are events before them that the server left out.
    """

    room_id: str
    events: Sequence[RawEvent]
    gap_ends_at: str | None


@dataclass(frozen=True, slots=True)
class News:
    """The events of all rooms since the last sync.

    Attributes:
        next_batch: Where the next sync begins.
        has_keys: Whether keys may have come, which decrypt earlier events.
        rooms: Joined rooms with events.
        invitations: Rooms to join.
        left: Rooms that the account has left.
    """

    next_batch: str
    has_keys: bool
    rooms: Sequence[RoomNews]
    invitations: Sequence[Invitation]
    left: Sequence[str] = ()


class MatrixClient:
    """One device on its homeserver.

    Args:
        homeserver: Its address.
        device: The device to speak for.
        store: Directory with the keys of encrypted rooms; None reads and writes none.
        store_key: Encrypts the keys in the directory.
    """

    _nio_client: ClassVar[type[AsyncClient]] = AsyncClient

    def __init__(
        self, homeserver: str, device: Device, store: Path | None, store_key: str | None = None
    ) -> None:
        config = AsyncClientConfig(
            max_limit_exceeded=0,
            max_timeouts=0,
            request_timeout=_CALL_SECONDS,
            encryption_enabled=store is not None,
            **({"pickle_key": store_key} if store_key else {}),
        )
        self._nio = self._nio_client(
            homeserver, device.user_id, device.device_id, str(store or ""), config
        )
        # Loads the keys.
        self._nio.restore_login(device.user_id, device.device_id, device.token)
        self.user_id = device.user_id

    async def close(self) -> None:
        """Close the connections and the directory of keys."""
        await self._nio.close()
        if self._nio.store is not None:
            self._nio.store.database.close()

    async def sync(self, since: str | None, *, wait_seconds: int, with_state: bool) -> News:
        """Return the events since a sync.

        Args:
            since: Its `next_batch`; None returns the latest events of each room.
            wait_seconds: How long to wait if nothing happened.
            with_state: Whether to learn all rooms, as after a start.

        Raises:
            RetryAfter: The server asks to wait.
            HomeserverError: It does not answer with news.
        """
        # A sync that was not stored is asked for again; nio ignores one that it has seen.
        self._nio.next_batch = ""
        # nio waits without an end for a sync that is to return at once.
        async with asyncio.timeout(wait_seconds + _SYNC_SECONDS):
            answer = await self._nio.sync(
                timeout=wait_seconds * 1000, sync_filter=_FILTER, since=since, full_state=with_state
            )
        require_success(answer)
        invitations = [
            Invitation(room_id, event.sender)
            for room_id, info in answer.rooms.invite.items()
            for event in info.invite_state
            if isinstance(event, InviteMemberEvent) and event.state_key == self.user_id
        ]
        rooms = [
            RoomNews(
                room_id,
                [self._raw(event) for event in joined.timeline.events],
                joined.timeline.prev_batch if joined.timeline.limited else None,
            )
            for room_id, joined in answer.rooms.join.items()
            if joined.timeline.events or joined.timeline.limited
        ]
        left = tuple(answer.rooms.leave)
        return News(answer.next_batch, bool(answer.to_device_events), rooms, invitations, left)

    async def display_name(self) -> str | None:
        """Return the name that people see, if the account has one."""
        answer = await self._nio.get_displayname()
        require_success(answer)
        name: str | None = answer.displayname
        return name

    async def exchange_keys(self) -> None:
        """Make the calls between two syncs that encrypted rooms need."""
        nio = self._nio
        if nio.olm is None:
            return
        if nio.should_upload_keys:
            await nio.keys_upload()
        if nio.should_query_keys:
            await nio.keys_query()
        if nio.should_claim_keys:
            await nio.keys_claim(nio.get_users_for_key_claiming())
        await nio.send_to_device_messages()

    def room(self, room_id: str, senders: Sequence[str] = ()) -> Room:
        """Return the state of a room, with the names of some of its members."""
        room = self._nio.rooms.get(room_id)
        if room is None:
            return Room(room_id, is_direct=False)
        users = {sender: room.users.get(sender) for sender in senders}
        return Room(
            room_id,
            is_direct=room.member_count <= _DIRECT_MEMBERS,
            name=room.name or room.canonical_alias,
            topic=room.topic,
            names={
                id_: user.display_name for id_, user in users.items() if user and user.display_name
            },
        )

    def knows(self, room_id: str) -> bool:
        """Return whether the account is a member of a room, as of the last sync."""
        return room_id in self._nio.rooms

    def rooms(self) -> Sequence[str]:
        """Return the rooms of which the account is a member, as of the last sync."""
        return tuple(self._nio.rooms)

    def is_direct(self, room_id: str) -> bool:
        """Return whether a room is one of two people, as of the last sync."""
        room = self._nio.rooms.get(room_id)
        return room is not None and room.member_count <= _DIRECT_MEMBERS

    async def members(self, room_id: str) -> Sequence[str]:
        """Return the users who have joined a room.

        Raises:
            UndeliverableError: The account is no member.
            RetryAfter: The server asks to wait.
            HomeserverError: The server may answer later.
        """
        answer = await self._nio.joined_members(room_id)
        require_success(answer)
        return [member.user_id for member in answer.members]

    async def history(
        self, room_id: str, start: str, end: str
    ) -> tuple[list[RawEvent], str | None]:
        """Return a page of the events between two positions of a room, oldest first.

        Args:
            room_id: The room.
            start: Position before the first event, such as the `since` of a sync.
            end: Position behind the last one, such as `gap_ends_at`.

        Returns:
            The events, and where the next page begins; None if there is none.
        """
        page = await self._nio.room_messages(
            room_id,
            start=start,
            end=end,
            direction=MessageDirection.front,
            limit=_PAGE,
            message_filter=_HISTORY_FILTER,
        )
        require_success(page)
        events = [self._decrypted(event, room_id) for event in page.chunk]
        return events, page.end if events and page.end != start else None

    async def before(self, room_id: str, position: str | None, count: int) -> list[RawEvent]:
        """Return at most so many events before a position of a room, or its end, oldest first."""
        page = await self._nio.room_messages(
            room_id,
            start=position,
            direction=MessageDirection.back,
            limit=count,
            message_filter=_HISTORY_FILTER,
        )
        require_success(page)
        return [self._decrypted(event, room_id) for event in reversed(page.chunk)]

    async def event(self, room_id: str, event_id: str) -> RawEvent:
        """Return an event of a room, decrypted as far as its key is there.

        Raises:
            ChatGone: There is none that the account may see.
        """
        answer = await self._nio.room_get_event(room_id, event_id)
        require_success(answer)
        return self._decrypted(answer.event, room_id)

    def _decrypted(self, event: Any, room_id: str) -> RawEvent:  # noqa: ANN401 - an event of nio
        if isinstance(event, MegolmEvent) and self._nio.olm is not None:
            event.room_id = room_id
            with suppress(EncryptionError):
                event = self._nio.decrypt_event(event)
        return self._raw(event)

    @staticmethod
    def _raw(event: Any) -> RawEvent:  # noqa: ANN401 - an event of nio
        source: RawEvent = event.source
        return source

    async def join(self, room_id: str) -> None:
        """Join a room.

        Raises:
            RetryAfter: The server asks to wait.
            UndeliverableError: The account may not join, or the room is gone.
            HomeserverError: The server may allow it later.
        """
        answer = await self._nio.join(room_id)
        require_success(answer)

    async def send(self, room_id: str, kind: str, content: Mapping[str, Any], key: str) -> str:
        """Send an event, encrypted if the room is, and return its id.

        Args:
            room_id: The room.
            kind: Type of the event.
            content: Its content.
            key: The same for each attempt: the server keeps a single event of a key.

        Raises:
            RetryAfter: The server asks to wait.
            UndeliverableError: It will never accept the event.
            HomeserverError: It may accept it later.
        """
        try:
            answer = await self._nio.room_send(
                room_id, kind, dict(content), tx_id=key, ignore_unverified_devices=True
            )
        except (LocalProtocolError, EncryptionError) as error:
            # Keys are missing that the next sync may bring.
            raise HomeserverError(type(error).__name__) from error
        require_success(answer)
        event_id: str = answer.event_id
        return event_id

    async def redact(self, room_id: str, event_id: str) -> None:
        """Remove the content of an event."""
        answer = await self._nio.room_redact(room_id, event_id, tx_id=f"redact-{event_id}")
        require_success(answer)

    async def show_typing(self, room_id: str, milliseconds: int) -> None:
        """Show for so long that the account is typing."""
        answer = await self._nio.room_typing(room_id, typing_state=True, timeout=milliseconds)
        require_success(answer)

    def is_encrypted(self, room_id: str) -> bool:
        """Return whether what is sent to a room is encrypted."""
        room = self._nio.rooms.get(room_id)
        return room is not None and bool(room.encrypted) and self._nio.olm is not None

    async def upload(self, room_id: str, data: bytes, media_type: str, name: str) -> dict[str, Any]:
        """Upload a file for a room, encrypted if the room is, and return where its message finds it.

        Returns:
            The fields `url`, or `file`, of the content of the message.
        """
        if not self.is_encrypted(room_id):
            return {"url": await self._upload(data, media_type, name)}
        data, key = encrypt_attachment(data)
        return {"file": {**key, "url": await self._upload(data, "application/octet-stream", None)}}

    async def _upload(self, data: bytes, media_type: str, name: str | None) -> str:
        answer, _ = await self._nio.upload(
            lambda *_: BytesIO(data), media_type, filename=name, filesize=len(data)
        )
        require_success(answer)
        uri: str = answer.content_uri
        return uri

    async def download(self, file: RoomFile) -> bytes:
        """Return the content of a file, decrypted.

        Raises:
            UndeliverableError: The server does not have it.
            HomeserverError: The server may have it later, or it was changed.
        """
        answer = await self._nio.download(file.mxc)
        require_success(answer)
        data: bytes = answer.body
        if file.key is None:
            return data
        try:
            clear: bytes = decrypt_attachment(data, file.key.key, file.key.sha256, file.key.iv)
        except EncryptionError as error:
            raise HomeserverError("M_BAD_FILE") from error
        return clear


class _ActingClient(AsyncClient):  # type: ignore[misc]
    """Makes each call as its user, with the token of an application service."""

    @override
    async def send(self, method: str, path: str, *more: Any, **named: Any) -> Any:
        joint = "&" if "?" in path else "?"
        as_user = f"{path}{joint}user_id={quote(self.user_id)}&device_id={quote(self.device_id)}"
        return await super().send(method, as_user, *more, **named)


class ActingClient(MatrixClient):
    """A user of an application service, without encryption.

    Args:
        homeserver: Its address.
        user_id: The user.
        token: Token of the application service.
    """

    _nio_client: ClassVar[type[AsyncClient]] = _ActingClient

    def __init__(self, homeserver: str, user_id: str, token: str) -> None:
        super().__init__(homeserver, Device(user_id, _DEVICE_ID, token), None)

    async def joined_rooms(self) -> Sequence[str]:
        """Return the rooms of which the user is a member."""
        answer = await self._nio.joined_rooms()
        require_success(answer)
        rooms: Sequence[str] = answer.rooms
        return rooms

    async def state(self, room_id: str) -> Sequence[RawEvent]:
        """Return the state events of a room."""
        answer = await self._nio.room_get_state(room_id)
        require_success(answer)
        events: Sequence[RawEvent] = answer.events
        return events


async def ensure_user(homeserver: str, token: str, name: str) -> str:
    """Return the id of a user of an application service, who is registered if there is none.

    The user gets a device: the homeserver keeps the transaction ids of a device in its database, and
    those of an application service without one in memory.

    Args:
        homeserver: Its address.
        token: Token of the application service.
        name: Local part of the id, which belongs to the application service.

    Raises:
        RevokedTokenError: The homeserver does not know the token.
        UndeliverableError: It refuses the name.
        RetryAfter: It asks to wait.
        HomeserverError: It does not answer as it should.
    """
    wanted = {"type": "m.login.application_service", "username": name, "inhibit_login": True}
    async with ClientSession(
        timeout=ClientTimeout(total=_CALL_SECONDS), headers={"Authorization": f"Bearer {token}"}
    ) as session:
        url = f"{homeserver.rstrip('/')}/_matrix/client/v3"
        async with session.post(f"{url}/register", json=wanted) as answer:
            await _require_ok(answer, but="M_USER_IN_USE")
        async with session.get(f"{url}/account/whoami") as answer:
            sender: str = (await _require_ok(answer))["user_id"]
        user_id = f"@{name}:{sender.partition(':')[2]}"
        device = {"display_name": _DEVICE_NAME}
        async with session.put(
            f"{url}/devices/{_DEVICE_ID}", params={"user_id": user_id}, json=device
        ) as answer:
            await _require_ok(answer)
    return user_id


async def _require_ok(answer: ClientResponse, *, but: str | None = None) -> Mapping[str, Any]:
    """Return the content of an answer; raise what it means, if it is another error than `but`."""
    try:
        content = await answer.json()
    except ValueError:
        content = {}
    code = content.get("errcode")
    if not answer.ok and code != but:
        raise refusal_of(code, answer.status, content.get("retry_after_ms"))
    return content  # type: ignore[no-any-return]


def require_success(answer: Any) -> None:  # noqa: ANN401 - a response of nio
    """Raise what an answer of the server means, if it is an error."""
    if isinstance(answer, ErrorResponse):
        status = answer.transport_response.status if answer.transport_response else 0
        raise refusal_of(answer.status_code, status, answer.retry_after_ms)
