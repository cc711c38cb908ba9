"""Events of the gateway as events of chatlane: the shapes of the documentation, our own data."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from chatlane_adapters.discord.decode import Decoder, Unmentioned, chat_of_channel
from chatlane_schemas import Chat, InboundEvent, Kind, new_envelope_id

BOT: Final = "100000000000000001"
ANN: Final = "200000000000000001"
CHANNEL: Final = Chat(id="300000000000000001", kind="channel", name="general")
DM: Final = Chat(id="300000000000000002", kind="dm")
SENT: Final = "2026-11-30T12:00:00.123000+00:00"
KEY: Final = "session:7"
USER: Final = {"id": ANN, "username": "ann", "global_name": "Ann", "discriminator": "0"}


def event(**fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    its: dict[str, Any] = {"platform": "discord", "account": "bot", **fields}
    return InboundEvent(id=new_envelope_id(), at=datetime.now(UTC), **its)


def decoder(unmentioned: Unmentioned = "observed") -> Decoder:
    return Decoder(event, BOT, frozenset({"400000000000000001"}), unmentioned)


def message(text: str = "hello", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
    return {
        "id": "500000000000000001",
        "channel_id": "300000000000000001",
        "type": 0,
        "author": USER,
        "content": text,
        "timestamp": SENT,
        "edited_timestamp": None,
        "mentions": [],
        "mention_roles": [],
        "attachments": [],
        "embeds": [],
        "flags": 0,
        **more,
    }


def events(
    data: dict[str, Any],
    name: str = "MESSAGE_CREATE",
    *,
    chat: Chat = DM,
    its: Decoder | None = None,
) -> list[InboundEvent]:
    return list((its or decoder()).events(name, data, chat, KEY))


def decoded(data: dict[str, Any], name: str = "MESSAGE_CREATE", **more: Any) -> InboundEvent:  # noqa: ANN401
    [found] = events(data, name, **more)
    return found


def test_a_message_has_its_author_its_time_and_its_place() -> None:
    its = decoded(message(member={"nick": "Annie"}))
    assert its.sender is not None
    assert (its.sender.id, its.sender.name, its.sender.is_bot) == (ANN, "Annie", False)
    assert (its.message_id, its.text, its.chat) == ("500000000000000001", "hello", DM)
    assert its.sent_at == datetime(2026, 11, 30, 12, 0, 0, 123000, tzinfo=UTC)


@pytest.mark.parametrize(
    "more",
    [
        {"content": f"<@{BOT}> hello", "mentions": [{"id": BOT, "username": "bot"}]},
        {"content": "<@&400000000000000001> hello", "mention_roles": ["400000000000000001"]},
        {
            "type": 19,
            "message_reference": {"message_id": "5"},
            "referenced_message": message(author={**USER, "id": BOT}),
        },
    ],
    ids=["mention", "role", "reply"],
)
def test_what_is_meant_for_the_bot_in_a_guild_is_not_only_observed(more: dict[str, Any]) -> None:
    its = decoded(message(**more), chat=CHANNEL)
    assert (its.text, its.observed) == ("hello", None)


@pytest.mark.parametrize(
    ("unmentioned", "observed"), [("observed", [True]), ("answered", [None]), ("dropped", [])]
)
def test_settings_say_what_becomes_of_other_messages(
    unmentioned: Unmentioned, observed: list[bool | None]
) -> None:
    found = events(message(), chat=CHANNEL, its=decoder(unmentioned))
    assert [it.observed for it in found] == observed


def test_our_own_messages_are_known_by_their_receipts() -> None:
    assert events(message(author={**USER, "id": BOT})) == []


def test_other_bots_and_webhooks_are_bots() -> None:
    for more in ({"author": {**USER, "bot": True}}, {"webhook_id": "9"}):
        its = decoded(message(**more))
        assert its.sender is not None
        assert its.sender.is_bot


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (f"<@{ANN}> and <@!{ANN}>", "@Ann and @Ann"),
        ("<@77>", "@77"),
        ("<:wave:123> <a:dance:5>", ":wave: :dance:"),
        ("see <#300000000000000001>", "see <#300000000000000001>"),
        ("</plan show:55>", "/plan show"),
        ("1 < 2 <3", "1 < 2 <3"),
        (f"<@{BOT}> /new plans", "/new plans"),
    ],
)
def test_ids_in_a_text_become_names(written: str, text: str) -> None:
    assert decoded(message(written, mentions=[USER])).text == text


def test_a_reply_names_and_quotes_the_message_that_it_answers() -> None:
    answered = message("the answer", id="5", author={**USER, "id": BOT})
    reference = {"type": 0, "message_id": "5", "channel_id": "3"}
    its = decoded(message(type=19, message_reference=reference, referenced_message=answered))
    assert its.reply_to == "5"
    assert its.quote is not None
    assert (its.quote.text, its.quote.is_ours) == ("the answer", True)
    its = decoded(message(type=19, message_reference=reference, referenced_message=None))
    assert (its.reply_to, its.quote) == ("5", None)


def test_a_forwarded_message_shows_what_it_copies() -> None:
    copy = {"content": "first", "timestamp": SENT, "attachments": [], "embeds": []}
    snapshots = [{"message": copy}]
    reference = {"type": 1, "message_id": "5"}
    its = decoded(message("", message_reference=reference, message_snapshots=snapshots))
    assert (its.text, its.reply_to) == ("first", None)
    assert its.forward is not None
    assert its.forward.sent_at is not None


def test_files_voice_messages_and_stickers_are_references() -> None:
    file = {"id": "1", "filename": "a.png", "size": 5, "url": "https://cdn.test/a.png"}
    voice = {**file, "filename": "voice.ogg", "content_type": "audio/ogg", "duration_secs": 1.5}
    [its] = decoded(message("", attachments=[file])).attachments
    assert (its.name, its.media_type, its.size_bytes) == ("a.png", "application/octet-stream", 5)
    [its] = decoded(message("", attachments=[voice], flags=1 << 13)).attachments
    assert (its.kind, its.media_type, its.duration_ms) == ("voice", "audio/ogg", 1500)
    found = decoded(message("", sticker_items=[{"id": "8", "name": "Wave", "format_type": 4}]))
    assert found.sticker is not None
    assert found.attachments[0].url == "https://media.discordapp.net/stickers/8.gif"


def test_embeds_are_read_if_there_is_no_text() -> None:
    embed = {"title": "Build", "description": "failed", "fields": [{"name": "on", "value": "main"}]}
    assert decoded(message("", embeds=[embed])).text == "Build\nfailed\non: main"
    assert decoded(message("see", embeds=[embed])).text == "see"


def test_a_poll_and_its_votes() -> None:
    answers = [{"answer_id": 1, "poll_media": {"text": "Yes"}}, {"answer_id": 2, "poll_media": {}}]
    its = decoded(message("", poll={"question": {"text": "Go?"}, "answers": answers})).poll
    assert its is not None
    assert (its.question, its.options) == ("Go?", ("Yes", ""))
    vote = {"user_id": ANN, "message_id": "5", "channel_id": "3", "answer_id": 1}
    found = decoded(vote, "MESSAGE_POLL_VOTE_REMOVE")
    assert found.vote is not None
    assert (found.kind, found.vote.options, found.removed) == (Kind.REACTION, ("1",), True)


def test_an_edit_has_its_time_as_version() -> None:
    its = decoded(message("hello!", edited_timestamp=SENT), "MESSAGE_UPDATE")
    assert (its.kind, its.text, its.version) == (Kind.EDIT, "hello!", SENT)
    assert its.counts_as_new is None


def test_an_edit_that_mentions_the_bot_first_counts_as_new_if_others_are_dropped() -> None:
    text, mentions = f"<@{BOT}> hello", [{"id": BOT, "username": "bot"}]
    data = message(text, mentions=mentions, edited_timestamp=SENT)
    assert decoded(data, "MESSAGE_UPDATE", chat=CHANNEL, its=decoder("dropped")).counts_as_new
    assert decoded(data, "MESSAGE_UPDATE", chat=CHANNEL).counts_as_new is None


def test_a_preview_of_a_link_is_no_edit() -> None:
    assert events(message(), "MESSAGE_UPDATE") == []
    assert events({"id": "5", "channel_id": "3", "embeds": [{}]}, "MESSAGE_UPDATE") == []


def test_deletions_name_their_messages() -> None:
    its = decoded({"id": "5", "channel_id": "3"}, "MESSAGE_DELETE")
    assert (its.kind, its.message_id) == (Kind.DELETE, "5")
    found = events({"ids": ["5", "6"], "channel_id": "3"}, "MESSAGE_DELETE_BULK")
    assert [it.message_id for it in found] == ["5", "6"]


def test_a_reaction_is_named_by_its_place_in_the_session() -> None:
    """It has no id, and the same one may come, go and come again."""
    data = {"user_id": ANN, "message_id": "5", "channel_id": "3", "emoji": {"name": "👍"}}
    its = decoded(data, "MESSAGE_REACTION_ADD")
    assert (its.kind, its.text, its.message_id, its.event_id) == (Kind.REACTION, "👍", "5", KEY)
    custom = {**data, "emoji": {"id": "9", "name": "wave"}, "member": {"user": USER}}
    its = decoded(custom, "MESSAGE_REACTION_REMOVE")
    assert its.sender is not None
    assert (its.text, its.removed, its.sender.name) == (":wave:", True, "Ann")
    assert events({**data, "user_id": BOT}, "MESSAGE_REACTION_ADD") == []


def test_a_slash_command_is_what_a_person_would_type() -> None:
    options = [{"name": "text", "type": 3, "value": "Our plans"}]
    data = interaction(2, {"id": "7", "name": "title", "type": 1, "options": options})
    its = decoded(data, "INTERACTION_CREATE")
    assert (its.text, its.event_id, its.message_id) == ("/title Our plans", data["id"], None)
    assert its.return_address is not None
    assert its.return_address.value == "a-token"
    assert its.sent_at is not None
    assert (its.return_address.expires_at - its.sent_at).total_seconds() == 900


def test_a_pressed_button_has_its_value_and_its_label() -> None:
    button = {"type": 2, "label": "Blue", "custom_id": "1:blue"}
    card = message(id="5", components=[{"type": 1, "components": [button]}])
    data = interaction(3, {"component_type": 2, "custom_id": "1:blue"}, message=card)
    its = decoded(data, "INTERACTION_CREATE")
    assert (its.kind, its.message_id) == (Kind.ACTION, "5")
    assert its.press is not None
    assert (its.press.value, its.press.label) == ("blue", "Blue")
    chosen = interaction(3, {"component_type": 3, "custom_id": "color", "values": ["r"]})
    press = decoded({**chosen, "message": card}, "INTERACTION_CREATE").press
    assert press is not None
    assert press.value == "r"


@pytest.mark.parametrize("kind", [1, 4, 5])
def test_other_interactions_say_nothing(kind: int) -> None:
    assert events(interaction(kind, {}), "INTERACTION_CREATE") == []


def interaction(kind: int, data: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401
    member = {"member": {"user": USER, "nick": None}}
    its = {"id": "1400000000000000000", "type": kind, "token": "a-token", "data": data}
    return {**its, **member, "channel_id": "3", **more}


@pytest.mark.parametrize(
    ("kind", "what"), [(4, "title_changed"), (6, "pinned"), (7, "joined"), (18, "thread_created")]
)
def test_changes_of_a_channel_are_service_events(kind: int, what: str) -> None:
    its = decoded(message("", type=kind), chat=CHANNEL)
    assert (its.kind, its.service, its.message_id) == (Kind.SERVICE, what, None)


@pytest.mark.parametrize("kind", [8, 21, 24, 46])
def test_other_notices_of_discord_are_dropped(kind: int) -> None:
    assert events(message(type=kind)) == []


def test_channels_are_chats() -> None:
    thread = {"id": "3", "type": 11, "name": "plans", "parent_id": "2"}
    assert chat_of_channel(thread) == Chat(id="3", kind="thread", name="plans", parent_id="2")
    text = {"id": "3", "type": 0, "name": "general", "parent_id": "1"}
    assert chat_of_channel(text) == Chat(id="3", kind="channel", name="general")
    assert chat_of_channel({"id": "3", "type": 1}) == Chat(id="3", kind="dm")
