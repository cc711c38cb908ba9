"""Take the transactions of a homeserver: store their events, then confirm them."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import takewhile
from typing import Final

from aiohttp import web

from chatlane_adapters.kit.webhook import Webhook
from chatlane_adapters.matrix.client import ActingClient, Invitation, RawEvent
from chatlane_adapters.matrix.decode import Room
from chatlane_adapters.matrix.files import mapping, text
from chatlane_adapters.matrix.invitations import Invitations
from chatlane_adapters.matrix.members import MemberReports
from chatlane_adapters.matrix.room_events import (
    RoomEvents,
    changes_members,
    is_join_of,
    membership_of,
    since_invitation,
)
from chatlane_client.errors import UndeliverableError

_PATH: Final = "/_matrix/app/v1/transactions/{transaction}"
# Synapse waits for a minute.
_PATIENCE: Final = 40.0
# Synapse sends at most 100 events of 65,536 bytes at once.
_MAX_BODY: Final = 2**24
_MOST_BEFORE_JOIN: Final = 50
_DIRECT_MEMBERS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An account as a member of rooms.

    Attributes:
        client: Its calls.
        events: Publishes the events of its rooms.
        load_invitations: Returns the invitations that are still to be accepted.
        save_invitations: Keeps their rooms.
        reports: Reports the members of its rooms.
    """

    client: ActingClient
    events: RoomEvents
    load_invitations: Callable[[], Awaitable[Invitations]]
    save_invitations: Callable[[tuple[str, ...]], Awaitable[None]]
    reports: MemberReports


@dataclass
class RoomState:
    """Members and fields of a room, read from its state events.

    Attributes:
        people: Display names of members and of invited people, by user id.
        fields: The texts of some state events, by the type of the event.
    """

    people: dict[str, str | None] = field(default_factory=dict)
    fields: dict[str, str | None] = field(default_factory=dict)

    def apply(self, event: RawEvent) -> None:
        """Take an event of the room into account, in the order of the homeserver."""
        content, user = mapping(event, "content"), text(event, "state_key")
        match event.get("type"):
            case "m.room.member" if user is not None:
                if text(content, "membership") in {"join", "invite"}:
                    self.people[user] = text(content, "displayname")
                else:
                    self.people.pop(user, None)
            case "m.room.name" if "state_key" in event:
                self.fields["name"] = text(content, "name")
            case "m.room.canonical_alias" if "state_key" in event:
                self.fields["alias"] = text(content, "alias")
            case "m.room.topic" if "state_key" in event:
                self.fields["topic"] = text(content, "topic")

    def room(self, room_id: str, sender: str | None) -> Room:
        """Return the room as an event of a sender is decoded with it."""
        name = self.people.get(sender) if sender is not None else None
        return Room(
            room_id,
            is_direct=len(self.people) <= _DIRECT_MEMBERS,
            name=self.fields.get("name") or self.fields.get("alias"),
            topic=self.fields.get("topic"),
            names={sender: name} if sender is not None and name else {},
        )


class TransactionServer:
    """Serves the requests of a homeserver for some accounts.

    Args:
        token: What the homeserver sends along.
        members: The accounts.
    """

    def __init__(self, token: str, members: Sequence[Member]) -> None:
        self._token = token.encode()
        self._members = {member.client.user_id: member for member in members}
        self._invitations: dict[str, Invitations] = {}
        # By user: which rooms were saved as those to join.
        self._saved: dict[str, tuple[str, ...]] = {}
        # By room: its state, once it was asked for, and the users of accounts that are members.
        self._states: dict[str, RoomState] = {}
        self._users: dict[str, dict[str, None]] = {}
        self._in_order = asyncio.Lock()

    async def run(self, host: str, port: int) -> None:
        """Serve until cancelled.

        Raises:
            RevokedTokenError: The homeserver does not know the application service.
            HomeserverError: It does not answer as it should.
            ConnectionClosedError: The connection to NATS is closed for good.
            UndeclaredAccountError: chatlane.toml does not declare an account.
        """
        for user_id, member in self._members.items():
            invitations = await member.load_invitations()
            self._invitations[user_id] = invitations
            self._saved[user_id] = invitations.pending
            joined = await member.client.joined_rooms()
            for room_id in joined:
                self._users.setdefault(room_id, {})[user_id] = None
            member.reports.begin(joined)
        webhook = Webhook(_PATIENCE, _MAX_BODY)
        async with asyncio.TaskGroup() as joins:
            self._accept(joins)
            for member in self._members.values():
                joins.create_task(member.reports.run())

            async def take(request: web.Request) -> web.Response:
                return await self._take(request, webhook, joins)

            await webhook.run(host, port, [web.put(_PATH, take)])

    async def _take(
        self, request: web.Request, webhook: Webhook, joins: asyncio.TaskGroup
    ) -> web.Response:
        if (status := self._refusal(request)) is not None:
            code = "M_UNAUTHORIZED" if status is HTTPStatus.UNAUTHORIZED else "M_FORBIDDEN"
            return web.json_response({"errcode": code}, status=status)
        try:
            transaction = await request.json()
        except ValueError:
            transaction = None
        found = transaction.get("events") if isinstance(transaction, dict) else None
        if not isinstance(found, list):
            return web.json_response({"errcode": "M_BAD_JSON"}, status=HTTPStatus.BAD_REQUEST)
        answer = await webhook.stored(self.store([it for it in found if isinstance(it, dict)]))
        if answer.status != HTTPStatus.OK:
            return answer
        self._accept(joins)
        return web.json_response({})

    def _refusal(self, request: web.Request) -> HTTPStatus | None:
        """Return how a request is refused that is none of the homeserver."""
        header = request.headers.get("Authorization", "")
        # Homeservers before version 1.4 of the specification send the token in the address.
        given = header.removeprefix("Bearer ") or request.query.get("access_token", "")
        if not given:
            return HTTPStatus.UNAUTHORIZED
        is_known = hmac.compare_digest(given.encode("utf-8", "surrogatepass"), self._token)
        return None if is_known else HTTPStatus.FORBIDDEN

    def _accept(self, joins: asyncio.TaskGroup) -> None:
        for invitations in self._invitations.values():
            invitations.accept(joins)

    async def store(self, events: Sequence[RawEvent]) -> None:
        """Publish the events of a transaction, in their order, and keep its invitations.

        A transaction that the homeserver repeats stores nothing twice: the ids of events are those
        of messages.
        """
        async with self._in_order:
            for event in events:
                room_id = text(event, "room_id")
                if room_id is not None:
                    await self._store(event, room_id)
            for user_id, invitations in self._invitations.items():
                pending = invitations.pending
                if pending != self._saved[user_id]:
                    await self._members[user_id].save_invitations(pending)
                    self._saved[user_id] = pending

    async def _store(self, event: RawEvent, room_id: str) -> None:
        user_id = text(event, "state_key")
        member = None if user_id is None else self._members.get(user_id)
        if user_id is not None and member is not None:
            await self._note_membership(event, room_id, user_id, member)
            member.reports.note(room_id)
        users = self._users.get(room_id)
        if changes_members(event):
            for each in users or ():
                self._members[each].reports.note(room_id)
        if not users:
            self._states.pop(room_id, None)
            return
        state = await self._state_of(room_id, users)
        state.apply(event)
        room = state.room(room_id, text(event, "sender"))
        for each in users:
            await self._members[each].events.store(event, room)

    async def _note_membership(
        self, event: RawEvent, room_id: str, user_id: str, member: Member
    ) -> None:
        """Note that an account was invited to a room, has joined or has left it."""
        match membership_of(event, user_id):
            case "invite":
                inviter = text(event, "sender") or ""
                self._invitations[user_id].note([Invitation(room_id, inviter)])
            case "join":
                users = self._users.setdefault(room_id, {})
                users[user_id] = None
                if is_join_of(event, user_id):
                    state = await self._state_of(room_id, users)
                    await self._store_before_join(event, room_id, member, state)
            case "leave" | "ban":
                self._users.get(room_id, {}).pop(user_id, None)
            case _:
                pass

    async def _store_before_join(
        self, event: RawEvent, room_id: str, member: Member, state: RoomState
    ) -> None:
        """Publish what was written between the invitation of an account and its join.

        The homeserver sends only the events of rooms of which an account is a member.
        """
        try:
            # What `/context` of Synapse returns leaves out messages as old as the join.
            latest = await member.client.before(room_id, None, _MOST_BEFORE_JOIN)
        except UndeliverableError:
            return
        event_id = text(event, "event_id")
        earlier = takewhile(lambda it: text(it, "event_id") != event_id, latest)
        for missed in since_invitation(list(earlier), member.client.user_id):
            room = state.room(room_id, text(missed, "sender"))
            await member.events.store(missed, room)

    async def _state_of(self, room_id: str, users: Mapping[str, None]) -> RoomState:
        """Return the state of a room, which is asked for once."""
        if (known := self._states.get(room_id)) is not None:
            return known
        state = RoomState()
        client = self._members[next(iter(users))].client
        try:
            for event in await client.state(room_id):
                state.apply(event)
        except UndeliverableError:
            # The account was removed meanwhile; the event that says so is still to come.
            return state
        self._states[room_id] = state
        return state
