"""Translate what WhatsApp Cloud sends into events of chatlane."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

from chatlane_client import deleted as deletion_of
from chatlane_client import edited, reacted
from chatlane_schemas import Attachment, Chat, InboundEvent, Kind, Sender
from chatlane_schemas.content.elements import Contact, Forward, Location, Press, Sticker

Json: TypeAlias = dict[str, Any]
MakeEvent: TypeAlias = Callable[..., InboundEvent]

_MEDIA: Final = {"image": "photo", "video": "video", "audio": "audio", "document": "file"}
_NO_MESSAGE: Final = frozenset({"system", "unsupported", "unknown", "request_welcome"})


class Item(NamedTuple):
    """A message of a person, or a receipt for an outbound message.

    Attributes:
        people: What the request says about people, by their ids.
    """

    content: Json
    is_status: bool
    people: Mapping[str | None, Json]


def items_of(payload: Json, number_id: str) -> Iterator[Item]:
    """Yield the messages and receipts of a request, in order.

    Args:
        payload: The request.
        number_id: Id of our number; a request may tell of other numbers.
    """
    for entry in payload.get("entry") or ():
        for change in entry.get("changes") or ():
            value = change.get("value") or {}
            metadata = value.get("metadata") or {}
            if change.get("field") != "messages" or metadata.get("phone_number_id") != number_id:
                continue
            people = {
                it.get("wa_id") or it.get("user_id"): it for it in value.get("contacts") or ()
            }
            for message in value.get("messages") or ():
                yield Item(message, is_status=False, people=people)
            for status in value.get("statuses") or ():
                yield Item(status, is_status=True, people=people)


def event_of(make: MakeEvent, item: Item, api_url: str) -> InboundEvent | None:
    """Return the event that an item tells of; None if it is of no use here.

    Args:
        make: Returns an event of the account with some fields, as `AdapterClient.event`.
        item: The item.
        api_url: Where files are asked for.

    Raises:
        KeyError: It lacks a field that it needs.
        ValidationError: A field does not follow the contract.
    """
    if item.is_status:
        return _status(make, item.content)
    return _Decoder(make, item.content, item.people, api_url).event()


class _Decoder:
    def __init__(
        self, make: MakeEvent, message: Json, people: Mapping[str | None, Json], api_url: str
    ) -> None:
        self._make = make
        self._message = message
        self._api_url = api_url
        sender = message.get("from") or message.get("from_user_id")
        person = people.get(sender) or {}
        hidden = person.get("user_id") or message.get("from_user_id")
        self._place: Json = {
            "chat": Chat(id=sender, kind="dm"),
            "sender": Sender(
                id=sender,
                alt_id=hidden if hidden != sender else None,
                name=(person.get("profile") or {}).get("name"),
            ),
            "sent_at": datetime.fromtimestamp(int(message["timestamp"]), UTC),
        }

    def event(self) -> InboundEvent | None:
        message = self._message
        match message["type"]:
            case "reaction":
                target = message["reaction"]["message_id"]
                emoji = message["reaction"].get("emoji") or ""
                located = self._make(message_id=target, **self._place)
                return reacted(located, emoji, event_id=message["id"], removed=not emoji)
            case "edit":
                edit = message["edit"]
                content = self._content({**edit["message"], "id": edit["original_message_id"]})
                located = self._make(message_id=edit["original_message_id"], **content)
                return edited(located, event_id=message["id"])
            case "revoke":
                located = self._make(
                    message_id=message["revoke"]["original_message_id"], **self._place
                )
                return deletion_of(located, event_id=message["id"])
            case "system" if message["system"].get("type") == "user_changed_number":
                return self._make(
                    kind=Kind.MIGRATION,
                    event_id=message["id"],
                    migrate_to=message["system"]["wa_id"],
                    **self._place,
                )
            case kind if kind in _NO_MESSAGE:
                return None
            case _:
                return self._make(message_id=message["id"], **self._content(message))

    def _content(self, message: Json) -> Json:
        """Return the fields of a message."""
        kind, context = message["type"], message.get("context") or {}
        fields = {**self._place, "reply_to": context.get("id")}
        if context.get("forwarded") or context.get("frequently_forwarded"):
            fields["forward"] = Forward()
        content = message.get(kind) or {}
        match kind:
            case "image" | "video" | "audio" | "document":
                shown = {"text": content.get("caption"), "attachments": [self._file(message)]}
            case "sticker":
                shown = {"sticker": Sticker(), "attachments": [self._file(message)]}
            case "location":
                shown = {"location": _location(content)}
            case "contacts":
                shown = {"contacts": [_contact(it) for it in message["contacts"]]}
            case "button":
                shown = _press(content.get("payload"), content.get("text"))
            case "interactive":
                chosen = content.get("button_reply") or content.get("list_reply") or {}
                shown = _press(chosen.get("id"), chosen.get("title"))
            case _:
                # Else an order, or a kind that is younger than this adapter.
                shown = {"text": content["body"] if kind == "text" else f"[{kind}]"}
        return fields | shown

    def _file(self, message: Json) -> Attachment:
        kind = message["type"]
        file = message[kind]
        is_voice = kind == "audio" and file.get("voice")
        return Attachment(
            # Answers with an address that lives for minutes, to who has the token.
            url=f"{self._api_url}/{file['id']}",
            media_type=file["mime_type"].partition(";")[0],
            name=file.get("filename"),
            kind="voice" if is_voice else _MEDIA.get(kind, kind),
        )


def _press(value: str | None, label: str | None) -> Json:
    """Return the fields of a message that chooses a button: WhatsApp shows its label as a text."""
    return {"press": Press(value=value, label=label), "text": label}


def _location(given: Json) -> Location:
    return Location(
        latitude=given["latitude"],
        longitude=given["longitude"],
        name=given.get("name"),
        address=given.get("address"),
    )


def _contact(given: Json) -> Contact:
    phones = given.get("phones") or [{}]
    return Contact(
        name=(given.get("name") or {}).get("formatted_name"),
        phone=phones[0].get("phone"),
        id=phones[0].get("wa_id"),
    )


def _status(make: MakeEvent, status: Json) -> InboundEvent:
    """Return the receipt for an outbound message.

    A failure is a row of the transcript, so that the agent can act on it; other states are counted.
    """
    words = None
    if status["status"] == "failed":
        errors = status.get("errors") or [{}]
        words = failure_words(failure_code(status), errors[0].get("title") or "unknown reason")
    person = status.get("recipient_id") or status["recipient_user_id"]
    return make(
        kind=Kind.SERVICE,
        chat=Chat(id=person, kind="dm"),
        sender=Sender(id=person),
        event_id=f"{status['id']}-{status['status']}",
        service=None if words is None else "delivery_failed",
        text=words,
    )


WINDOW_CLOSED: Final = 131047
_WORDS: Final = {
    WINDOW_CLOSED: "the person has not written for 24 hours, so WhatsApp delivers templates only; "
    "it delivers messages again once the person writes",
    131026: "the person cannot get messages of this number",
    131049: "WhatsApp keeps the person from too many messages; try again tomorrow",
    131050: "the person does not want such messages",
}


def failure_code(status: Json) -> int | None:
    """Return the code of the error in a status; None if it has none."""
    errors = status.get("errors") or [{}]
    code: int | None = errors[0].get("code")
    return code


def failure_words(code: int | None, title: str) -> str:
    """Return why a message was not delivered, for an agent."""
    return f"A message was not delivered: {_WORDS.get(code or 0, title)} ({code})."
