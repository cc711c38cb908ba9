"""Replies (C70): an agent learns which message a reply answers."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from chatlane.domain.catalog import Agent, Catalog
from chatlane.domain.policy import KeyRules
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_schemas.content.prompts import prompt_of
from chatlane_schemas.content.replied import MAX_EXCERPT
from chatlane_schemas.inbound import InboundEvent
from chatlane_schemas.session_api.transcripts import TranscriptEntry
from chatlane_schemas.turns import TurnMessage
from tests.support.worlds.kernel import Fields, Kernel, at, catalog, event

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
ANN: Fields = {"chat": "701", "user": "701"}
PHOTO = {"url": "https://example.org/a.png", "media_type": "image/png", "kind": "photo"}


def message(mid: str, text: str | None, **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return event(**(ANN | fields), mid=mid, text=text)


async def answered(kernel: Kernel, session: UUID) -> tuple[TurnMessage, ...]:
    """Run the turn of a session, and return its messages."""
    return (await kernel.run_turn(session)).messages


async def history(kernel: Kernel, session: UUID) -> list[TranscriptEntry]:
    """Return the rows of a session, oldest first."""
    reads = TranscriptReads(kernel.store, kernel.catalog)
    found = await reads.rows(session, below_seq=1000, limit=100, max_bytes=1_000_000)
    return list(reversed(found.rows))


async def test_c70_a_reply_names_the_row_it_answers(kernel: Kernel) -> None:
    placed = await kernel.say(message("101", "book a table for KL-42"), at("09:00"))
    await kernel.say(message("102", "and a taxi"), at("09:01"))
    await answered(kernel, placed.session)
    await kernel.say(message("103", "change it to BL-99", reply_to="101"), at("09:02"))
    (reply,) = await answered(kernel, placed.session)
    assert reply.replied is not None
    assert reply.reply_to == "101"
    assert (reply.replied.seq, reply.replied.role, reply.replied.text) == (
        1,
        "user",
        "book a table for KL-42",
    )
    assert reply.replied.session_id == placed.session
    entry = (await history(kernel, placed.session))[3]
    assert (entry.content, entry.reply_to, entry.replied) == (
        "change it to BL-99",
        "101",
        reply.replied,
    )


async def test_c70_a_reply_to_a_photo_brings_its_file(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", None, attachments=[PHOTO]), at("09:00"))
    await answered(kernel, placed.session)
    await kernel.say(message("2", "and this one?", reply_to="1"), at("09:01"))
    (reply,) = await answered(kernel, placed.session)
    assert reply.replied is not None
    assert [file.url for file in reply.replied.attachments] == [PHOTO["url"]]


async def test_c70_a_reply_finds_a_message_of_the_same_batch_and_turn(kernel: Kernel) -> None:
    first, _ = await kernel.say_together(
        [message("1", "lamp or chair?"), message("2", "the first", reply_to="1")], at("09:00")
    )
    _, reply = await answered(kernel, first.session)
    assert reply.replied is not None
    assert (reply.replied.seq, reply.replied.text) == (1, "lamp or chair?")


async def test_c70_a_reply_shows_an_edited_row_as_it_is_and_no_deleted_one(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", "meet at sx"), at("09:00"))
    await kernel.say(message("2", "no, wait", reply_to="1"), at("09:01"))
    await kernel.say(event(**ANN, mid="1", kind="edit", text="meet at six"), at("09:02"))
    _, reply = await answered(kernel, placed.session)
    assert reply.replied is not None
    assert reply.replied.text == "meet at six"
    await kernel.say(event(**ANN, mid="1", kind="delete"), at("09:03"))
    entry = (await history(kernel, placed.session))[1]
    assert entry.replied is not None
    assert (entry.replied.text, entry.replied.is_deleted) == (None, True)


async def test_c70_a_reply_to_an_earlier_session_finds_its_row(kernel: Kernel) -> None:
    old = await kernel.say(message("1", "the blue one"), at("09:00"))
    await answered(kernel, old.session)
    await kernel.say(message("2", "/new"), at("09:01"))
    new = await kernel.say(message("3", "I take it", reply_to="1"), at("09:02"))
    assert new.session != old.session
    (reply,) = await answered(kernel, new.session)
    assert reply.replied is not None
    assert (reply.replied.session_id, reply.replied.text) == (old.session, "the blue one")


@pytest.mark.parametrize(
    "quote",
    [
        {"text": "Your order ships on Monday.", "is_ours": True},
        {"text": "the green door", "sender_name": "Eve", "sender_id": "9"},
        {"text": "ligne 1\nligne 2 🙂"},
        {"sender_name": "Eve"},
    ],
)
async def test_c70_what_is_not_known_is_quoted_as_the_platform_sent_it(
    kernel: Kernel, quote: Fields
) -> None:
    placed = await kernel.say(message("5", "this?", reply_to="4", quote=quote), at("09:00"))
    (reply,) = await answered(kernel, placed.session)
    assert reply.replied is None
    assert reply.quote is not None
    assert reply.quote.model_dump(exclude_defaults=True) == quote


async def test_c70_a_quote_of_a_known_row_is_not_stored_twice(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", "red, blue, green"), at("09:00"))
    await kernel.say(
        message("2", "yes", reply_to="1", quote={"text": "red, blue, green"}), at("09:01")
    )
    await kernel.say(message("3", "this one", reply_to="1", quote={"text": "blue"}), at("09:02"))
    _, whole, selected = await answered(kernel, placed.session)
    assert whole.quote is None
    assert selected.quote is not None
    assert selected.quote.text == "blue"
    assert await kernel.value("SELECT count(*) FROM messages WHERE details ? 'quote'") == 1


async def test_c70_a_reply_never_reaches_another_chat(kernel: Kernel) -> None:
    await kernel.say(event(chat="702", user="702", mid="1", text="a secret"), at("09:00"))
    placed = await kernel.say(message("2", "what?", reply_to="1"), at("09:01"))
    (reply,) = await answered(kernel, placed.session)
    assert (reply.reply_to, reply.replied) == ("1", None)


async def test_c70_a_long_message_is_quoted_in_part(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", "é" * 5000), at("09:00"))
    await kernel.say(message("2", "too long", reply_to="1"), at("09:01"))
    _, reply = await answered(kernel, placed.session)
    assert reply.replied is not None
    assert reply.replied.text == "é" * MAX_EXCERPT + "…"


async def test_c70_a_stream_worker_gets_the_same(kernel_with: KernelWith) -> None:
    agents = [Agent("notes", delivery="stream")]
    kernel = await kernel_with(catalog(agents=agents, profiles={"main": "notes"}))
    await kernel.say(message("1", "lamp or chair?", attachments=[PHOTO]), at("09:00"))
    await kernel.say(message("2", "the first", reply_to="1"), at("09:01"))
    await kernel.say_together(
        [message("3", "or a bed"), message("4", "no", reply_to="3")], at("09:02")
    )
    replied = [routed.get("replied") for routed in await kernel.published("ROUTED")]
    assert [row and (row["seq"], row["text"]) for row in replied] == [
        None,
        (1, "lamp or chair?"),
        None,
        (3, "or a bed"),
    ]
    assert replied[1] is not None
    assert replied[1]["attachments"][0]["url"] == PHOTO["url"]


@pytest.mark.parametrize("rows", [None, "last", "with tools"])
async def test_c70_a_row_of_an_answer_has_the_id_of_its_message(
    kernel: Kernel, rows: str | None
) -> None:
    placed = await kernel.say(message("1", "which?"), at("09:00"))
    claimed = await kernel.claim_live(placed.session)
    call = {"id": "c1", "function": {"name": "look"}}
    transcript = {
        None: [],
        "last": [{"role": "assistant", "content": "the lamp"}],
        "with tools": [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "content": "the lamp", "tool_call_id": "c1"},
            {"role": "assistant", "content": "the lamp"},
        ],
    }[rows]
    parts = [{"text": "the lamp"}, {"text": "or the chair"}]
    await kernel.answer(claimed, parts=parts, transcript=transcript)
    ids = [UUID(out["id"]) for out in await kernel.published("OUTBOUND")]
    found = await kernel.fetch(
        "SELECT id, role, content FROM messages WHERE id = ANY($1::uuid[]) ORDER BY seq", ids
    )
    said = [(ids[0], "assistant", "the lamp"), (ids[1], "assistant", "or the chair")]
    assert [tuple(row) for row in found] == (said if rows is None else said[:1])


@pytest.mark.parametrize(
    ("act", "shown"),
    [
        ({"text": "the lamp then"}, "[reply to your message: {}] the lamp then"),
        ({"kind": "reaction", "text": "OK"}, "[reacted to your message: {}] OK"),
        (
            {"kind": "action", "event_id": "q1", "press": {"label": "Yes"}},
            "[pressed a button; reply to your message: {}] Yes",
        ),
    ],
)
@pytest.mark.parametrize(("piece", "part"), [("31", 0), ("32", 0), ("41", 1)])
async def test_c70_a_reply_to_our_own_answer_finds_its_row(
    kernel: Kernel, act: Fields, shown: str, piece: str, part: int
) -> None:
    placed = await kernel.say(message("1", "which?"), at("09:00"))
    claimed = await kernel.claim_live(placed.session)
    await kernel.answer(claimed, parts=[{"text": "the lamp"}, {"text": "or the chair"}])
    for out, ids in zip(await kernel.published("OUTBOUND"), (["31", "32"], ["41"]), strict=True):
        receipt = {"session_id": out["session_id"], "message_ids": ids, "sent": len(ids)}
        told = event(**ANN, mid=ids[0], kind="receipt", delivered=out["id"], receipt=receipt)
        await kernel.say(told, at("09:01"))
    is_reply = "kind" not in act
    fields = {"mid": "9", "reply_to": piece} if is_reply else {"mid": piece}
    await kernel.say(event(**(ANN | fields | act)), at("09:02"))
    if act.get("kind") != "reaction":
        await answered(kernel, placed.session)
    excerpt = ('"the lamp"', '"or the chair"')[part]
    row = (await history(kernel, placed.session))[3]
    assert prompt_of([row]) == shown.format(excerpt)


@pytest.mark.parametrize("change", [None, "edit", "delete"])
async def test_c70_a_reply_in_a_group_names_the_author_of_what_it_answers(
    kernel_with: KernelWith, change: str | None
) -> None:
    kernel = await kernel_with(catalog(keys=KeyRules(group_sessions_per_user=False)))
    group: Fields = {"chat": "-100", "kind_of_chat": "group"}
    placed = await kernel.say(event(**group, user="1", mid="1", text="red?"), at("09:00"))
    await kernel.say(event(**group, user="2", mid="2", text="no", reply_to="1"), at("09:01"))
    if change is not None:
        fields = {"text": "blue?"} if change == "edit" else {}
        await kernel.say(event(**group, user="1", mid="1", kind=change, **fields), at("09:02"))
    replied = (await answered(kernel, placed.session))[-1].replied
    if change == "delete":
        # It was never part of the transcript.
        assert replied is None or replied.text is None
        return
    assert replied is not None
    assert replied.sender is not None
    assert (replied.sender.id, replied.text) == ("1", "red?" if change is None else "blue?")


@pytest.mark.parametrize(
    "other",
    [
        {"account": "second"},
        {"platform": "whatsapp"},
        {"scope": "team-2"},
        {"chat": "702"},
        {"kind_of_chat": "group", "chat": "-701"},
    ],
)
async def test_c70_a_reply_never_finds_the_same_id_of_another_place(
    kernel_with: KernelWith, other: Fields
) -> None:
    kernel = await kernel_with(catalog(accounts=("bot", "second")))
    elsewhere = {"platform": "telegram"} | ANN | other
    await kernel.say(event(**elsewhere, mid="1", text="a secret"), at("09:00"))
    placed = await kernel.say(message("2", "what?", reply_to="1"), at("09:01"))
    (reply,) = await answered(kernel, placed.session)
    assert (reply.text, reply.replied) == ("what?", None)


@pytest.mark.parametrize("orders", [("1",), ("2", "1"), ("2", "3", "1")])
async def test_c70_replies_in_a_circle_are_told(kernel: Kernel, orders: tuple[str, ...]) -> None:
    """A message that answers itself, and messages that answer later ones."""
    said = [message(str(mid), f"m{mid}", reply_to=to) for mid, to in enumerate(orders, 1)]
    placed = await kernel.say_together(said, at("09:00"))
    told = await answered(kernel, placed[0].session)
    assert [one.text for one in told] == [f"m{number}" for number in range(1, len(orders) + 1)]
    shown = [one.replied.seq if one.replied else None for one in told]
    assert all(seq is None or seq <= place for place, seq in enumerate(shown, 1))


async def test_c70_a_reply_to_a_reaction_is_told_without_a_row(kernel: Kernel) -> None:
    """A reaction has no message of its own, so its event is no message to answer."""
    placed = await kernel.say(message("1", "Tea?"), at("09:00"))
    await answered(kernel, placed.session)
    reaction: Fields = {"kind": "reaction", "text": "+", "event_id": "77"}
    await kernel.say(event(**ANN, mid="1", **reaction), at("09:01"))
    await kernel.say(message("2", "why?", reply_to="77"), at("09:02"))
    (reply,) = await answered(kernel, placed.session)
    assert (reply.reply_to, reply.replied) == ("77", None)
    assert prompt_of([reply]) == "[reply to a message] why?"
