"""A person on a homeserver, by plain calls of the client-server API: no library is in between."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import httpx

from chatlane_devkit.platforms.matrix.homeserver import Account, Homeserver

_PAGE: Final = 500
_PATIENCE_SECONDS: Final = 60


@dataclass
class Person:
    """One person who writes, and sees what rooms hold.

    Attributes:
        account: As whom.
        http: Sends requests with the token of the account.
    """

    account: Account
    http: httpx.AsyncClient

    def __post_init__(self) -> None:
        self._keys = (f"{uuid4()}-{number}" for number in count())

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        **parameters: str | int | None,
    ) -> dict[str, Any]:
        """Return the answer to a request below `/_matrix/client/v3`.

        Raises:
            HTTPStatusError: The server refuses it.
        """
        query = {name: str(value) for name, value in parameters.items() if value is not None}
        url = f"/_matrix/client/v3/{path}"
        answer = await self.http.request(method, url, json=body, params=query)
        return answer.raise_for_status().json()  # type: ignore[no-any-return]

    async def open_room(self, *invited: str, is_direct: bool = False, **more: object) -> str:
        """Open a room, invite users by their ids, and return the id of the room."""
        room = {
            "preset": "trusted_private_chat" if is_direct else "private_chat",
            "is_direct": is_direct,
            "invite": list(invited),
            **more,
        }
        room_id: str = (await self.call("POST", "createRoom", room))["room_id"]
        return room_id

    async def join(self, room_id: str) -> None:
        """Accept an invitation."""
        await self.call("POST", f"join/{quote(room_id)}", {})

    async def leave(self, room_id: str) -> None:
        """Leave a room."""
        await self.call("POST", f"rooms/{quote(room_id)}/leave", {})

    async def kick(self, room_id: str, user_id: str) -> None:
        """Remove a user from a room."""
        await self.call("POST", f"rooms/{quote(room_id)}/kick", {"user_id": user_id})

    async def send(
        self, room_id: str, content: Mapping[str, Any], kind: str = "m.room.message"
    ) -> str:
        """Send an event and return its id."""
        path = f"rooms/{quote(room_id)}/send/{quote(kind)}/{next(self._keys)}"
        event_id: str = (await self.call("PUT", path, content))["event_id"]
        return event_id

    async def say(self, room_id: str, words: str, **more: object) -> str:
        """Write a text message and return its id."""
        return await self.send(room_id, {"msgtype": "m.text", "body": words, **more})

    async def edit(self, room_id: str, event_id: str, words: str) -> str:
        """Replace the text of a message."""
        return await self.say(
            room_id,
            f"* {words}",
            **{
                "m.new_content": {"msgtype": "m.text", "body": words},
                "m.relates_to": {"rel_type": "m.replace", "event_id": event_id},
            },
        )

    async def react(self, room_id: str, event_id: str, key: str) -> str:
        """React to a message and return the id of the reaction."""
        relation = {"rel_type": "m.annotation", "event_id": event_id, "key": key}
        return await self.send(room_id, {"m.relates_to": relation}, "m.reaction")

    async def redact(self, room_id: str, event_id: str) -> None:
        """Remove the content of an event."""
        path = f"rooms/{quote(room_id)}/redact/{quote(event_id)}/{next(self._keys)}"
        await self.call("PUT", path, {})

    async def upload(self, data: bytes, media_type: str) -> str:
        """Upload a file and return its `mxc://` address."""
        answer = await self.http.post(
            "/_matrix/media/v3/upload", content=data, headers={"Content-Type": media_type}
        )
        uri: str = answer.raise_for_status().json()["content_uri"]
        return uri

    async def download(self, uri: str) -> bytes:
        """Return the content of a file."""
        path = f"/_matrix/client/v1/media/download/{uri.removeprefix('mxc://')}"
        return (await self.http.get(path)).raise_for_status().content

    async def events(self, room_id: str) -> list[dict[str, Any]]:
        """Return all events of a room, oldest first."""
        events: list[dict[str, Any]] = []
        position: str | None = None
        while True:
            place = {} if position is None else {"from": position}
            path = f"rooms/{quote(room_id)}/messages"
            page = await self.call("GET", path, None, dir="b", limit=_PAGE, **place)
            events += page["chunk"]
            position = page.get("end")
            if position is None or not page["chunk"]:
                return events[::-1]

    async def messages(self, room_id: str, sender: str) -> list[dict[str, Any]]:
        """Return the messages of a user in a room as people see them: edited, without redacted ones.

        Each has its `event_id`, and the fields of its content.
        """
        return shown_messages(await self.events(room_id), sender)

    async def said(self, room_id: str, sender: str) -> list[str]:
        """Return the texts of a user in a room, as people see them."""
        return [it["body"] for it in await self.messages(room_id, sender)]

    async def members(self, room_id: str) -> set[str]:
        """Return the joined members of a room."""
        answer = await self.call("GET", f"rooms/{quote(room_id)}/joined_members")
        return set(answer["joined"])


def shown_messages(events: Iterable[dict[str, Any]], sender: str) -> list[dict[str, Any]]:
    """Return the messages of a user as people see them after these events of a room.

    Each has its `event_id`, and the fields of its content.
    """
    shown: dict[str, dict[str, Any]] = {}
    for event in events:
        content = event["content"]
        if event["type"] != "m.room.message" or event["sender"] != sender or not content:
            continue
        relation = content.get("m.relates_to", {})
        if relation.get("rel_type") == "m.replace":
            if relation["event_id"] in shown:
                shown[relation["event_id"]].update(content["m.new_content"])
        else:
            shown[event["event_id"]] = {"event_id": event["event_id"], **content}
    return list(shown.values())


@asynccontextmanager
async def open_person(homeserver: Homeserver, name: str) -> AsyncIterator[Person]:
    """Register a person; the connection ends with the block."""
    async with person_of(homeserver, await homeserver.register(name)) as person:
        yield person


@asynccontextmanager
async def person_of(homeserver: Homeserver, account: Account) -> AsyncIterator[Person]:
    """Act and see as an account that exists; the connection ends with the block."""
    async with httpx.AsyncClient(
        base_url=homeserver.url,
        headers={"Authorization": f"Bearer {account.token}"},
        timeout=_PATIENCE_SECONDS,
        trust_env=False,
    ) as http:
        yield Person(account, http)
