"""Events of the client-server API as events of chatlane."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from chatlane_adapters.matrix.decode import Decoder, Dropped, Reaction, Room
from chatlane_schemas import InboundEvent, Kind, new_envelope_id

BOT: Final = "@bot:example.org"
ANN: Final = "@ann:example.org"
DIRECT: Final = Room("!direct:example.org", is_direct=True, names={ANN: "Ann"})
GROUP: Final = Room("!group:example.org", is_direct=False, name="Kitchen", topic="Soup")


def new_event(**fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return InboundEvent(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        platform="matrix",
        account="bot",
        **fields,
    )


DECODER: Final = Decoder(new_event=new_event, user_id=BOT, display_name="Helper")


def event(content: object, kind: str = "m.room.message", **more: object) -> dict[str, Any]:
    return {
        "event_id": "$event",
        "sender": ANN,
        "type": kind,
        "origin_server_ts": 1_700_000_000_000,
        "content": content,
        **more,
    }


def decoded(content: object, kind: str = "m.room.message", **more: object) -> InboundEvent:
    its = DECODER.decode(event(content, kind, **more), DIRECT, author=ANN)
    assert isinstance(its, InboundEvent), its
    return its


def message(
    body: str = "hello", more: dict[str, Any] | None = None, *, formatted_body: str | None = None
) -> dict[str, Any]:
    html = {} if formatted_body is None else {"formatted_body": formatted_body}
    return {"msgtype": "m.text", "body": body, **html, **(more or {})}


def test_a_message_keeps_where_who_and_when() -> None:
    its = decoded(message())
    assert its.kind is Kind.MESSAGE
    assert its.message_id == "$event"
    assert its.chat is not None
    assert (its.chat.id, its.chat.kind) == ("!direct:example.org", "dm")
    assert its.sender is not None
    assert (its.sender.id, its.sender.name, its.sender.is_bot) == (ANN, "Ann", False)
    assert its.sent_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert its.text == "hello"
    assert its.observed is None


def test_a_room_has_its_name_and_topic() -> None:
    its = DECODER.decode(event(message()), GROUP)
    assert isinstance(its, InboundEvent)
    assert its.chat is not None
    assert (its.chat.kind, its.chat.name, its.chat.topic) == ("room", "Kitchen", "Soup")


@pytest.mark.parametrize(
    ("content", "is_observed"),
    [
        (message(), True),
        (message(more={"m.mentions": {"user_ids": [BOT]}}), None),
        (message("Helper, hello", {"m.mentions": {}}), True),
        (message("helper: hello"), None),
        (message("the helpers"), True),
        (message(f"hello {BOT}"), None),
        (message("hello", formatted_body=f'<a href="https://matrix.to/#/{BOT}">x</a>'), None),
        (message(more={"m.mentions": {"user_ids": "all"}}), True),
        (message(more={"m.mentions": {"room": True}}), True),
    ],
)
def test_in_a_room_only_mentions_are_meant_for_the_bot(
    content: dict[str, Any], *, is_observed: bool | None
) -> None:
    its = DECODER.decode(event(content), GROUP)
    assert isinstance(its, InboundEvent)
    assert its.observed is is_observed


def test_all_messages_of_a_room_are_meant_for_the_bot_if_it_is_set_so() -> None:
    decoder = Decoder(new_event=new_event, user_id=BOT, answers_all=True)
    its = decoder.decode(event(message()), GROUP)
    assert isinstance(its, InboundEvent)
    assert its.observed is None


def test_a_notice_is_of_a_bot() -> None:
    its = decoded({"msgtype": "m.notice", "body": "done"})
    assert its.sender is not None
    assert its.sender.is_bot


def test_an_emote_names_its_author() -> None:
    assert decoded({"msgtype": "m.emote", "body": "waves"}).text == "* Ann waves"


def test_an_unknown_type_of_message_keeps_its_body() -> None:
    assert decoded({"msgtype": "org.example.dice", "body": "rolled 6"}).text == "rolled 6"


def test_a_reply_loses_its_fallback_and_keeps_it_as_a_quote() -> None:
    relation = {"m.in_reply_to": {"event_id": "$first"}}
    body = "> <@bob:example.org> one\n> two\n\nthree\n\nfour"
    its = decoded(message(body, {"m.relates_to": relation}))
    assert its.reply_to == "$first"
    assert its.text == "three\n\nfour"
    assert its.quote is not None
    assert (its.quote.text, its.quote.sender_id) == ("one\ntwo", "@bob:example.org")


def test_a_quotation_of_ones_own_stays_in_the_text() -> None:
    assert decoded(message("> <@bob:example.org> one\n\ntwo")).text == (
        "> <@bob:example.org> one\n\ntwo"
    )


@pytest.mark.parametrize(("is_falling_back", "reply_to"), [(True, None), (False, "$last")])
def test_a_thread_is_known_by_its_root(*, is_falling_back: bool, reply_to: str | None) -> None:
    relation = {
        "rel_type": "m.thread",
        "event_id": "$root",
        "is_falling_back": is_falling_back,
        "m.in_reply_to": {"event_id": "$last"},
    }
    its = decoded(message(more={"m.relates_to": relation}))
    assert its.thread_id == "$root"
    assert its.reply_to == reply_to


def edit(author: str | None = ANN) -> InboundEvent | Dropped:
    content = message(
        "* hello there",
        {
            "m.new_content": message("hello there"),
            "m.relates_to": {"rel_type": "m.replace", "event_id": "$first"},
        },
    )
    return DECODER.decode(event(content), DIRECT, author=author)


def test_an_edit_has_the_new_text_of_the_message() -> None:
    its = edit()
    assert isinstance(its, InboundEvent)
    assert its.kind is Kind.EDIT
    assert (its.message_id, its.event_id, its.text) == ("$first", "$event", "hello there")
    assert its.version == "1700000000000"


@pytest.mark.parametrize("author", ["@bob:example.org", None])
def test_an_edit_of_a_message_of_somebody_else_is_dropped(author: str | None) -> None:
    assert edit(author) is Dropped.FOREIGN_EDIT


@pytest.mark.parametrize(
    "redaction",
    [
        event({}, "m.room.redaction", redacts="$first"),
        # Of room version 11 and later.
        event({"redacts": "$first"}, "m.room.redaction"),
    ],
)
def test_a_redaction_deletes_its_message(redaction: dict[str, Any]) -> None:
    its = DECODER.decode(redaction, DIRECT)
    assert isinstance(its, InboundEvent)
    assert (its.kind, its.message_id, its.event_id) == (Kind.DELETE, "$first", "$event")


def test_a_redacted_reaction_is_taken_back() -> None:
    redaction = event({"redacts": "$reaction"}, "m.room.redaction")
    its = DECODER.decode(redaction, DIRECT, reaction=Reaction("$first", "👍"))
    assert isinstance(its, InboundEvent)
    assert (its.kind, its.message_id, its.text) == (Kind.REACTION, "$first", "👍")
    assert its.removed


def test_a_reaction_names_its_message() -> None:
    relation = {"rel_type": "m.annotation", "event_id": "$first", "key": "👍"}
    its = decoded({"m.relates_to": relation}, "m.reaction")
    assert (its.kind, its.message_id, its.event_id, its.text) == (
        Kind.REACTION,
        "$first",
        "$event",
        "👍",
    )


@pytest.mark.parametrize(
    ("message_type", "more", "kind"),
    [
        ("m.image", {}, "photo"),
        ("m.video", {}, "video"),
        ("m.audio", {}, "audio"),
        ("m.audio", {"org.matrix.msc3245.voice": {}}, "voice"),
        ("m.file", {}, "file"),
    ],
)
def test_a_file_is_a_reference(message_type: str, more: dict[str, Any], kind: str) -> None:
    info = {"mimetype": "x/y", "size": 7, "duration": 1500}
    content = {"msgtype": message_type, "body": "a.bin", "url": "mxc://a/b", "info": info, **more}
    its = decoded(content)
    (file,) = its.attachments
    assert (file.url, file.media_type, file.kind) == ("mxc://a/b", "x/y", kind)
    assert (file.name, file.size_bytes, file.duration_ms) == ("a.bin", 7, 1500)
    assert its.text is None


def test_the_body_of_a_file_with_a_name_is_its_caption() -> None:
    content = {"msgtype": "m.image", "body": "our cat", "filename": "cat.png", "url": "mxc://a/b"}
    its = decoded(content)
    assert its.text == "our cat"
    assert its.attachments[0].name == "cat.png"


def test_a_file_of_an_encrypted_room_is_found_without_its_key() -> None:
    encrypted = {"url": "mxc://a/b", "key": {"k": "k3y"}, "iv": "iv", "hashes": {"sha256": "hash"}}
    its = decoded({"msgtype": "m.file", "body": "a.bin", "file": encrypted})
    assert its.attachments[0].url == "mxc://a/b"
    assert "k3y" not in its.model_dump_json()


def test_a_sticker_has_a_name_and_a_picture() -> None:
    its = decoded({"body": "a cat", "url": "mxc://a/b"}, "m.sticker")
    assert its.sticker is not None
    assert its.sticker.name == "a cat"
    assert its.attachments[0].kind == "sticker"


def test_a_location_has_its_place() -> None:
    its = decoded({"msgtype": "m.location", "body": "Home", "geo_uri": "geo:52.5,-13.4;u=35"})
    assert its.location is not None
    assert (its.location.latitude, its.location.longitude) == (52.5, -13.4)
    assert its.location.name == "Home"


def test_a_location_that_is_none_keeps_its_words() -> None:
    assert decoded({"msgtype": "m.location", "body": "Home", "geo_uri": "geo:95,0"}).text == "Home"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (
            "m.poll.start",
            {
                "m.poll": {
                    "question": {"m.text": [{"body": "Lunch?"}]},
                    "answers": [{"m.text": [{"body": "Soup"}]}, {"m.text": [{"body": "Rice"}]}],
                }
            },
        ),
        (
            "org.matrix.msc3381.poll.start",
            {
                "org.matrix.msc3381.poll.start": {
                    "question": {"org.matrix.msc1767.text": "Lunch?"},
                    "answers": [
                        {"id": "1", "org.matrix.msc1767.text": "Soup"},
                        {"id": "2", "org.matrix.msc1767.text": "Rice"},
                    ],
                }
            },
        ),
    ],
)
def test_a_poll_has_its_question_and_answers(kind: str, content: dict[str, Any]) -> None:
    its = decoded(content, kind)
    assert its.poll is not None
    assert (its.poll.question, its.poll.options) == ("Lunch?", ("Soup", "Rice"))


def test_a_vote_names_its_poll() -> None:
    content = {
        "m.relates_to": {"rel_type": "m.reference", "event_id": "$poll"},
        "org.matrix.msc3381.poll.response": {"answers": ["1"]},
    }
    its = decoded(content, "org.matrix.msc3381.poll.response")
    assert its.vote is not None
    assert (its.kind, its.vote.poll_id, its.vote.options) == (Kind.REACTION, "$poll", ("1",))


@pytest.mark.parametrize(
    ("kind", "content", "more", "service"),
    [
        ("m.room.member", {"membership": "join"}, {"state_key": "@bob:example.org"}, "joined"),
        (
            "m.room.member",
            {"membership": "leave"},
            {
                "state_key": "@bob:example.org",
                "unsigned": {"prev_content": {"membership": "join"}},
            },
            "left",
        ),
        ("m.room.name", {"name": "Garden"}, {"state_key": ""}, "title_changed"),
        ("m.room.topic", {"topic": "Trees"}, {"state_key": ""}, "topic_changed"),
        ("m.room.pinned_events", {"pinned": ["$first"]}, {"state_key": ""}, "pinned"),
    ],
)
def test_changes_of_a_room_are_service_events(
    kind: str, content: dict[str, Any], more: dict[str, Any], service: str
) -> None:
    its = decoded(content, kind, **more)
    assert (its.kind, its.service) == (Kind.SERVICE, service)


@pytest.mark.parametrize(
    ("kind", "content", "more", "reason"),
    [
        ("m.room.message", message(), {"sender": BOT}, Dropped.OWN),
        ("m.room.message", {}, {}, Dropped.EMPTY),
        ("m.room.message", {"msgtype": "m.text", "body": 7}, {}, Dropped.EMPTY),
        ("m.reaction", {}, {}, Dropped.EMPTY),
        ("m.room.redaction", {}, {}, Dropped.MALFORMED),
        ("m.room.message", message(), {"event_id": "$" + "x" * 300}, Dropped.MALFORMED),
        ("m.room.message", message(), {"sender": None}, Dropped.MALFORMED),
        ("m.room.encrypted", {"ciphertext": "x"}, {}, Dropped.ENCRYPTED),
        ("m.call.invite", {"call_id": "1"}, {}, Dropped.CALL),
        (
            "m.room.message",
            {"msgtype": "m.key.verification.request", "body": "please verify"},
            {},
            Dropped.VERIFICATION,
        ),
        ("org.example.ping", {}, {}, Dropped.UNKNOWN),
        ("m.room.power_levels", {}, {"state_key": ""}, Dropped.STATE),
        (
            "m.room.member",
            {"membership": "join", "displayname": "Bob"},
            {
                "state_key": "@bob:example.org",
                "unsigned": {"prev_content": {"membership": "join"}},
            },
            Dropped.STATE,
        ),
        ("m.room.member", {"membership": "join"}, {"state_key": BOT}, Dropped.OWN),
    ],
)
def test_what_says_nothing_is_dropped_with_its_reason(
    kind: str, content: object, more: dict[str, Any], reason: Dropped
) -> None:
    assert DECODER.decode(event(content, kind, **more), DIRECT) is reason


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [{}], {"m.text": 7}, True, 1e400])
@pytest.mark.parametrize(
    "name",
    [
        "body",
        "msgtype",
        "url",
        "file",
        "info",
        "geo_uri",
        "m.relates_to",
        "m.new_content",
        "m.mentions",
        "m.poll",
        "filename",
    ],
)
@pytest.mark.parametrize("kind", ["m.room.message", "m.sticker", "m.reaction", "m.poll.start"])
def test_a_content_of_the_wrong_shape_never_fails(kind: str, name: str, value: object) -> None:
    for message_type in ("m.text", "m.image", "m.location"):
        content = {"msgtype": message_type, "body": "x", name: value}
        DECODER.decode(event(content, kind), GROUP, author=ANN)
        relation = {"rel_type": "m.replace", "event_id": value, "m.in_reply_to": value}
        DECODER.decode(event({**content, "m.relates_to": relation}, kind), GROUP, author=ANN)
