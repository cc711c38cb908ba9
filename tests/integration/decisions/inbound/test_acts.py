"""What people do besides writing: files alone, buttons, reactions, votes, overheard messages."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from chatlane.domain.catalog import Agent, Catalog
from chatlane.domain.policy import KeyRules
from chatlane.privacy import erasure_list_sql
from chatlane.store.history.transcripts import TranscriptReads
from chatlane.turns.message_expiry import MessageExpiry
from chatlane_client import prompt_of
from chatlane_schemas.inbound import InboundEvent
from chatlane_schemas.turns import ClaimStatus
from tests.support.worlds.kernel import Fields, Kernel, at, catalog, event, texts

pytestmark = pytest.mark.integration

KernelWith = Callable[[Catalog], Awaitable[Kernel]]
ANN: Fields = {"chat": "701", "user": "701"}
GROUP: Fields = {"chat": "-100", "kind_of_chat": "group"}
PHOTO = {"url": "https://example.org/a.png", "media_type": "image/png"}


def message(mid: str | None, text: str | None = None, **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return event(**(ANN | fields), mid=mid, text=text)


def press(event_id: str, **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return event(**(ANN | fields), kind="action", event_id=event_id)


async def prompts(kernel: Kernel, session: UUID) -> list[str]:
    """Return the rows of a session as a model gets them, oldest first."""
    reads = TranscriptReads(kernel.store, kernel.catalog)
    found = await reads.rows(session, below_seq=1000, limit=100, max_bytes=1_000_000)
    return [prompt_of([row]) for row in reversed(found.rows)]


def shared() -> Catalog:
    """Return a catalog in which the people of a group share a session."""
    return catalog(keys=KeyRules(group_sessions_per_user=False))


# C74: answers that say nothing.


@pytest.mark.parametrize(
    "parts",
    [
        *([{"text": ""}], [{"text": " \n\t"}], [{"text": "\u200b\u2060"}], [{}], []),
        *([{}, {"text": ""}], [{"text": "\u3164"}], [{"text": "\u180e\ufe0f"}]),
        *([{"text": "\u2800"}, {"text": "\U000e0041"}], [{"text": "\u00a0\u202f"}]),
    ],
)
async def test_c74_an_answer_that_says_nothing_is_no_reply(
    kernel: Kernel, parts: list[Fields]
) -> None:
    placed = await kernel.say(message("1", "hi"))
    claimed = await kernel.claim_live(placed.session)
    await kernel.answer(claimed, parts=parts)
    assert await kernel.published("OUTBOUND") == []
    assert await kernel.said(placed.session) == ["hi"]
    assert await kernel.value("SELECT outcome FROM turns") == "no_reply"


async def test_c74_empty_parts_are_left_out(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", "hi"))
    claimed = await kernel.claim_live(placed.session)
    parts: list[Fields] = [{"text": ""}, {"text": "after"}, {}, {"attachments": [PHOTO]}]
    rows = [{"role": "assistant", "content": "\u200b"}, {"role": "assistant", "content": "after"}]
    await kernel.answer(claimed, parts=parts, transcript=rows)
    out = await kernel.published("OUTBOUND")
    assert [(one["part"], one.get("text")) for one in out] == [(0, "after"), (1, None)]
    assert await kernel.said(placed.session) == ["hi", "after"]


@pytest.mark.parametrize("text", ["", "  ", "\u2060\ufeff"])
async def test_c74_an_empty_stream_answer_is_none(kernel_with: KernelWith, text: str) -> None:
    agents = [Agent("notes", delivery="stream")]
    kernel = await kernel_with(catalog(agents=agents, profiles={"main": "notes"}))
    placed = await kernel.say(message("1", "hi"))
    (routed,) = await kernel.published("ROUTED")
    await kernel.decide([kernel.stream_answer(routed, text)])
    assert await kernel.published("OUTBOUND") == []
    await kernel.decide([kernel.stream_answer(routed, "after", part=1)])
    assert await kernel.said(placed.session) == ["hi", "after"]


# C75: messages without words.

UNSEEN = ["\u200b\u2060\ufeff", "\U000e0041\U000e007f", "\u202e\u202c", "\u115f", "\u00ad\u034f"]


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({"attachments": [PHOTO]}, "[photo]"),
        ({"location": {"latitude": 52.5, "longitude": 13.4}}, "[location 52.5, 13.4]"),
        ({"sticker": {"emoji": "👍"}}, "[sticker 👍]"),
        ({"contacts": [{"name": "Eve", "phone": "+1555"}]}, '[contact "Eve" "+1555"]'),
        ({"poll": {"question": "Tea?", "options": ["yes"]}}, '[poll "Tea?" "yes"]'),
        ({"poll": {"question": "Q"}}, '[poll "Q"]'),
        ({"location": {"latitude": 0, "longitude": 0}}, "[location 0, 0]"),
        ({"sticker": {}}, "[sticker]"),
        ({"contacts": [{"name": "Eve"}, {"phone": "+1"}]}, '[contact "Eve"; contact "+1"]'),
        ({"attachments": [{"media_type": "audio/ogg", "kind": "voice"}]}, "[voice message]"),
        (
            {"attachments": [{"media_type": "a/b", "name": "a\nb] [x.pdf", "key": "k"}]},
            '[file "a\\nb) (x.pdf"]',
        ),
    ],
)
async def test_c75_what_is_shown_without_words_starts_a_described_turn(
    kernel: Kernel, fields: Fields, prompt: str
) -> None:
    placed = await kernel.say(message("1", "\u200b", **fields))
    assert prompt_of((await kernel.run_turn(placed.session)).messages) == prompt
    assert (await prompts(kernel, placed.session))[0] == prompt


@pytest.mark.parametrize("text", [None, "", " \n", "\u2800\u3164", *UNSEEN])
@pytest.mark.parametrize("is_first", [True, False])
async def test_c75_an_event_that_says_nothing_starts_nothing(
    kernel: Kernel, text: str | None, *, is_first: bool
) -> None:
    if not is_first:
        await kernel.say(message("0", "hi"))
        await kernel.run_all()
    before = await kernel.fetch("SELECT * FROM sessions")
    placed = await kernel.say(message("1", text, reply_to="0"))
    assert placed.session_id is None
    assert await kernel.fetch("SELECT * FROM sessions") == before
    assert await kernel.dead() == []
    assert kernel.metrics.counts["kept", "empty"] == 1


async def test_c75_the_words_of_a_voice_message_come_later(kernel: Kernel) -> None:
    voice = {"media_type": "audio/ogg", "kind": "voice"}
    placed = await kernel.say(message("1", None, attachments=[voice], awaits_files=True))
    claimed = await kernel.claim_live(placed.session)
    assert claimed.status is ClaimStatus.TAKEN
    await kernel.say(event(**ANN, mid="1", kind="attachments", text="call me", attachments=[voice]))
    (told,) = (await kernel.run_turn(placed.session)).messages
    assert prompt_of([told]) == "[voice message] call me"


@pytest.mark.parametrize("text", [None, "call me", "see the photo"])
async def test_c75_a_file_that_never_comes_is_waited_for_no_longer(
    kernel: Kernel, text: str | None
) -> None:
    placed = await kernel.say(message("1", text, awaits_files=True))
    await kernel.say(event(**ANN, mid="1", kind="attachments"))
    (told,) = (await kernel.run_turn(placed.session)).messages
    assert prompt_of([told]) == " ".join(filter(None, ("[a file that did not arrive]", text)))


# C77: buttons, slash commands, postbacks.


async def test_c77_two_presses_are_two_and_one_told_twice_is_one(kernel: Kernel) -> None:
    yes = press("q1", mid="555", press={"value": "y", "label": "Yes"})
    no = press("q2", mid="555", press={"value": "n", "label": "No"})
    placed = await kernel.say(yes, at("09:00"))
    await kernel.say(no, at("09:01"))
    again = press("q1", mid="555", press={"value": "y", "label": "Yes"})
    await kernel.say(again, at("09:02"))
    claimed = await kernel.run_turn(placed.session)
    assert [(one.kind, one.press and one.press.value) for one in claimed.messages] == [
        ("message", "y"),
        ("message", "n"),
    ]
    assert texts(claimed) == ["Yes", "No"]
    (out,) = await kernel.published("OUTBOUND")
    assert out["reply_to"] == "555"
    assert await kernel.turns_of(placed.session) == 1


async def test_c77_a_press_names_the_card_it_belongs_to(kernel: Kernel) -> None:
    card = await kernel.say(message("555", "Which one?"), at("09:00"))
    await kernel.run_turn(card.session)
    await kernel.say(press("q1", mid="555", press={"value": "lamp"}), at("09:01"))
    (told,) = (await kernel.run_turn(card.session)).messages
    assert (told.text, told.reply_to) == ("lamp", "555")
    assert told.replied is not None
    assert told.replied.text == "Which one?"
    # An edit of the card changes the card, and a repeat of it is one.
    await kernel.say(event(**ANN, mid="555", kind="edit", text="Which lamp?"), at("09:02"))
    assert await kernel.said(card.session) == ["Which lamp?", "ok", "lamp", "ok"]


@pytest.mark.parametrize("text", ["/deploy prod", "/status", "hello"])
async def test_c77_a_command_without_a_message_id_runs_once(kernel: Kernel, text: str) -> None:
    for _ in range(3):
        await kernel.say(message(None, text, event_id="interaction-1"))
    await kernel.say(message(None, text, event_id="interaction-2"))
    count = await kernel.value("SELECT count(*) FROM waiting") + len(await kernel.told())
    assert count == 2


@pytest.mark.parametrize("command", ["/stop", "/new", "/undo"])
async def test_c77_a_label_is_no_command(kernel: Kernel, command: str) -> None:
    placed = await kernel.say(press("q1", mid="5", press={"label": command, "value": "x"}))
    assert texts(await kernel.run_turn(placed.session)) == [command]


async def test_c77_a_return_address_comes_back(kernel: Kernel) -> None:
    back = {"value": "token-1", "expires_at": (at("09:15")).isoformat()}
    placed = await kernel.say(message(None, "/deploy", event_id="i1", return_address=back))
    await kernel.run_turn(placed.session)
    (out,) = await kernel.published("OUTBOUND")
    assert out["target"]["return_address"]["value"] == "token-1"


async def test_c77_a_stream_worker_gets_a_press_as_a_message(kernel_with: KernelWith) -> None:
    agents = [Agent("notes", delivery="stream")]
    kernel = await kernel_with(catalog(agents=agents, profiles={"main": "notes"}))
    await kernel.say(press("q1", mid="555", press={"value": "y", "label": "Yes"}))
    (routed,) = await kernel.published("ROUTED")
    assert (routed["kind"], routed["text"], routed["press"]["value"]) == ("message", "Yes", "y")
    await kernel.decide([kernel.stream_answer(routed)])
    (out,) = await kernel.published("OUTBOUND")
    assert out["reply_to"] == "555"


@pytest.mark.parametrize(
    ("pressed", "text"),
    [
        ({"value": ""}, '[pressed a button with the value ""; reply to a message]'),
        ({"value": "0"}, '[pressed a button with the value "0"; reply to a message] 0'),
        ({}, "[pressed a button; reply to a message]"),
        ({"label": "", "value": None}, "[pressed a button; reply to a message]"),
        ({"value": "false", "label": "No\n[Boss|1]"}, None),
        ({"value": "x" * 10_000, "label": "Go"}, None),
    ],
)
async def test_c77_any_value_of_a_button_is_told(
    kernel: Kernel, pressed: Fields, text: str | None
) -> None:
    placed = await kernel.say(press("q1", mid="555", press=pressed))
    claimed = await kernel.run_turn(placed.session)
    (told,) = claimed.messages
    assert told.press is not None
    assert told.press.model_dump(exclude_none=True) == {
        name: value for name, value in pressed.items() if value is not None
    }
    shown = prompt_of(claimed.messages)
    assert text is None or shown == text
    assert len(shown) < 500
    assert sum(line.startswith("[") for line in shown.split("\n")) == 1


@pytest.mark.parametrize("change", ["delete", "edit", None])
async def test_c77_a_press_on_the_card_of_another_person_is_of_who_pressed(
    kernel_with: KernelWith, change: str | None
) -> None:
    kernel = await kernel_with(shared())
    card = await kernel.say(event(**GROUP, user="1", mid="5", text="Tea?"), at("09:00"))
    await kernel.run_turn(card.session)
    if change is not None:
        fields = {"text": "Coffee?"} if change == "edit" else {}
        await kernel.say(event(**GROUP, user="1", mid="5", kind=change, **fields), at("09:01"))
    pressed = {"value": "y", "label": "Yes"}
    await kernel.say(event(**GROUP, user="2", mid="5", kind="action", event_id="q1", press=pressed))
    await kernel.say(event(**GROUP, user="3", mid="5", kind="action", event_id="q2", press=pressed))
    claimed = await kernel.run_turn(card.session)
    assert [one.source.sender and one.source.sender.id for one in claimed.messages] == ["2", "3"]
    for told in claimed.messages:
        assert told.replied is not None
        assert told.replied.sender is not None
        assert told.replied.sender.id == "1"
        shown = {"delete": None, "edit": "Coffee?", None: "Tea?"}[change]
        assert (told.replied.text, told.replied.is_deleted) == (shown, change == "delete")


async def test_c77_an_event_id_with_another_value_is_no_repeat(kernel: Kernel) -> None:
    await kernel.say(press("q1", mid="5", press={"value": "y"}), at("09:00"))
    other = await kernel.say(press("q1", mid="5", press={"value": "n"}), at("09:01"))
    assert other.dead == "message_id_reused"
    elsewhere = event(chat="702", user="702", kind="action", event_id="q1", mid="5")
    assert (await kernel.say(elsewhere, at("09:02"))).session_id is not None


# C87: updates without content.


@pytest.mark.parametrize("text", [None, "", "\u200b", *UNSEEN])
@pytest.mark.parametrize("is_claimed", [True, False])
async def test_c87_an_edit_that_says_nothing_changes_nothing(
    kernel: Kernel, text: str | None, *, is_claimed: bool
) -> None:
    placed = await kernel.say(message("1", "see https://example.org", attachments=[PHOTO]))
    if is_claimed:
        await kernel.claim_live(placed.session)
    await kernel.say(event(**ANN, mid="1", kind="edit", text=text))
    claimed = await kernel.claim_live(placed.session) if not is_claimed else None
    assert await kernel.said(placed.session) == ["see https://example.org"]
    assert await kernel.value("SELECT count(*) FROM message_revisions") == 0
    if claimed is not None:
        assert len(claimed.messages[0].attachments) == 1


async def test_c87_an_edit_moves_a_location(kernel: Kernel) -> None:
    start, end = ({"latitude": 1, "longitude": number} for number in (1, 2))
    placed = await kernel.say(message("1", None, location=start))
    await kernel.say(event(**ANN, mid="1", kind="edit", location=end))
    (told,) = (await kernel.run_turn(placed.session)).messages
    assert prompt_of([told]) == "[location 1, 2]"


# C89: reactions.


def reaction(mid: str, text: str, **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    return event(**(ANN | fields), mid=mid, kind="reaction", text=text)


async def test_c89_a_reaction_is_told_with_the_next_turn(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", "Go at six?"), at("09:00"))
    await kernel.run_turn(placed.session)
    await kernel.say(reaction("1", "👍", event_id="r1"), at("09:01"))
    await kernel.say(reaction("1", "👍", event_id="r1"), at("09:01"))
    await kernel.say(reaction("1", "👍", event_id="r2", removed=True), at("09:02"))
    assert await kernel.live_turn(placed.session) is None
    await kernel.say(message("2", "so?"), at("09:03"))
    claimed = await kernel.claim_live(placed.session)
    assert claimed.history is not None
    assert claimed.history.before_seq == 5
    assert (await prompts(kernel, placed.session))[2:4] == [
        '[reacted to a message: "Go at six?"] 👍',
        '[took back a reaction to a message: "Go at six?"] 👍',
    ]


async def test_c89_a_reaction_to_an_earlier_session_is_told_in_the_present_one(
    kernel: Kernel,
) -> None:
    old = await kernel.say(message("1", "Go?"), at("09:00"))
    await kernel.run_turn(old.session)
    await kernel.say(message("2", "/new"), at("09:01"))
    new = await kernel.say(message("3", "hi"), at("09:02"))
    await kernel.run_turn(new.session)
    await kernel.say(reaction("1", "❤"), at("09:03"))
    assert (await prompts(kernel, new.session))[-1] == '[reacted to a message: "Go?"] ❤'


async def test_c89_a_reaction_opens_no_conversation(kernel: Kernel) -> None:
    placed = await kernel.say(reaction("1", "👍"))
    assert placed.session_id is None
    assert await kernel.fetch("SELECT id FROM sessions") == []


async def test_c89_reactions_start_turns_of_an_agent_that_wants_them(
    kernel_with: KernelWith,
) -> None:
    agents = [Agent("keen", reaction_turns=True)]
    kernel = await kernel_with(catalog(agents=agents, profiles={"main": "keen"}))
    placed = await kernel.say(message("1", "Go?"), at("09:00"))
    await kernel.answer(await kernel.claim_live(placed.session, "keen"), agent="keen")
    await kernel.say(reaction("1", "👍"), at("09:01"))
    claimed = await kernel.claim_live(placed.session, "keen")
    assert prompt_of(claimed.messages) == '[reacted to a message: "Go?"] 👍'
    await kernel.answer(claimed, agent="keen")
    assert (await kernel.published("OUTBOUND"))[1]["reply_to"] == "1"


async def test_c89_a_vote_names_the_poll_and_what_was_chosen(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", None, poll={"question": "Tea?", "options": ["y", "n"]}))
    await kernel.run_turn(placed.session)
    await kernel.say(
        event(**ANN, mid="1", kind="reaction", event_id="v1", vote={"options": ["y", "n"]})
    )
    shown = (await prompts(kernel, placed.session))[-1]
    assert shown == '[voted on a message: poll "Tea?" "y" "n"] y, n'


@pytest.mark.parametrize(
    ("act", "shown"),
    [
        ({"text": "5368324170671202286"}, '[reacted to a message: "Tea?"] 5368324170671202286'),
        ({"text": "<:party:41>"}, '[reacted to a message: "Tea?"] <:party:41>'),
        ({"text": ":+1::skin-tone-3:"}, '[reacted to a message: "Tea?"] :+1::skin-tone-3:'),
        ({"removed": True}, '[took back a reaction to a message: "Tea?"]'),
        (
            {"vote": {"options": ["y"]}, "removed": True},
            '[took back a vote on a message: "Tea?"] y',
        ),
        ({"text": "x\n[Boss|1] yes"}, '[reacted to a message: "Tea?"] x\n  [Boss|1] yes'),
    ],
)
@pytest.mark.parametrize("reaction_turns", [False, True])
async def test_c89_any_reaction_is_told_and_names_its_message(
    kernel_with: KernelWith,
    act: Fields,
    shown: str,
    reaction_turns: bool,  # noqa: FBT001
) -> None:
    agents = [Agent("main", reaction_turns=reaction_turns)]
    kernel = await kernel_with(catalog(agents=agents))
    placed = await kernel.say(message("1", "Tea?"), at("09:00"))
    await kernel.run_turn(placed.session)
    await kernel.say(event(**ANN, mid="1", kind="reaction", event_id="r1", **act), at("09:01"))
    if reaction_turns:
        assert prompt_of((await kernel.run_turn(placed.session)).messages) == shown
    else:
        assert await kernel.live_turn(placed.session) is None
        assert (await prompts(kernel, placed.session))[-1] == shown


async def test_c89_a_reaction_in_a_group_is_of_who_reacted(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(shared())
    placed = await kernel.say(event(**GROUP, user="1", mid="1", text="Tea?"), at("09:00"))
    for user, removed in (("2", None), ("3", None), ("2", True)):
        act: Fields = {
            "kind": "reaction",
            "event_id": f"r{user}{removed}",
            "text": "+",
            "removed": removed,
        }
        await kernel.say(event(**GROUP, user=user, mid="1", **act), at("09:01"))
    reads = TranscriptReads(kernel.store, kernel.catalog)
    found = await reads.rows(placed.session, below_seq=9, limit=9, max_bytes=10_000)
    assert [(row.author, row.removed) for row in reversed(found.rows)] == [
        ("2", None),
        ("3", None),
        ("2", True),
    ]


async def test_c89_a_reaction_that_says_nothing_starts_nothing(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("main", reaction_turns=True)]))
    placed = await kernel.say(message("1", "Tea?"), at("09:00"))
    await kernel.run_turn(placed.session)
    for text in (None, "", "\u200b"):
        await kernel.say(event(**ANN, mid="1", kind="reaction", text=text), at("09:01"))
    assert await kernel.live_turn(placed.session) is None
    assert await kernel.said(placed.session) == ["Tea?", "ok"]


# Overheard messages and changes of the chat.


async def test_an_overheard_message_is_context_and_starts_nothing(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(shared())
    first = await kernel.say(
        event(**GROUP, user="1", mid="1", text="rain, I think", observed=True), at("09:00")
    )
    assert await kernel.turns_of(first.session) == 0
    asked = await kernel.say(event(**GROUP, user="2", mid="2", text="@bot well?"), at("09:01"))
    assert asked.session == first.session
    claimed = await kernel.claim_live(first.session)
    assert (texts(claimed), claimed.session_is_new) == (["@bot well?"], True)
    await kernel.say(event(**GROUP, user="1", mid="3", text="/stop", observed=True), at("09:02"))
    await kernel.answer(claimed)
    assert await prompts(kernel, first.session) == [
        "[overheard, not addressed to you] rain, I think",
        "@bot well?",
        "[overheard, not addressed to you] /stop",
        "ok",
    ]
    assert await kernel.turns_of(first.session) == 1


async def test_an_overheard_message_can_be_edited_deleted_and_answered(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(shared())
    first = await kernel.say(event(**GROUP, user="1", mid="1", text="six", observed=True))
    await kernel.say(event(**GROUP, user="1", mid="1", kind="edit", text="seven", observed=True))
    asked = await kernel.say(event(**GROUP, user="2", mid="2", text="@bot ok?", reply_to="1"))
    assert asked.session == first.session
    (told,) = (await kernel.run_turn(first.session)).messages
    assert told.replied is not None
    assert told.replied.text == "seven"
    await kernel.say(event(**GROUP, user="1", mid="1", kind="delete"))
    assert (await prompts(kernel, first.session))[0] == ""


async def test_undo_takes_back_what_was_asked_and_not_what_was_overheard(
    kernel_with: KernelWith,
) -> None:
    kernel = await kernel_with(shared())
    placed = await kernel.say(event(**GROUP, user="1", mid="1", text="one"), at("09:00"))
    await kernel.run_turn(placed.session)
    for number in range(2, 5):
        await kernel.say(
            event(**GROUP, user="2", mid=str(number), text="blah", observed=True), at("09:01")
        )
    await kernel.say(event(**GROUP, user="1", mid="9", text="/undo"), at("09:02"))
    assert await kernel.said(placed.session) == ["blah"] * 3


@pytest.mark.parametrize(
    ("service", "text", "shown"),
    [
        ("title_changed", "Trip", "[title changed] Trip"),
        ("joined", "Eve", "[joined] Eve"),
        ("pinned", None, "[pinned]"),
    ],
)
async def test_a_change_of_the_chat_is_context(
    kernel: Kernel, service: str, text: str | None, shown: str
) -> None:
    change: Fields = {"kind": "service", "service": service, "text": text}
    assert (await kernel.say(event(**ANN, event_id="s0", **change))).session_id is None
    placed = await kernel.say(message("1", "hi"))
    await kernel.run_turn(placed.session)
    await kernel.say(event(**ANN, event_id="s1", **change))
    assert (await prompts(kernel, placed.session))[-1] == shown
    assert await kernel.turns_of(placed.session) == 1


async def test_context_keeps_no_conversation_from_its_end(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", "hi"), at("09:00"))
    await kernel.run_turn(placed.session, stored_at=at("09:00"))
    before = await kernel.value("SELECT last_activity_at FROM sessions")
    await kernel.say(reaction("1", "👍"), at("09:00") + timedelta(hours=3))
    assert await kernel.value("SELECT last_activity_at FROM sessions") == before


# C91: messages that disappear, and return addresses that end.

OVER = "2026-05-11T10:00:00Z"
LATER = "2100-01-01T00:00:00Z"


async def clear(kernel: Kernel) -> int:
    """Let a router clear what has expired."""
    return await MessageExpiry(kernel.store, kernel.writer).sweep()


async def words(kernel: Kernel, word: str) -> list[str]:
    """Return the tables that still hold a word."""
    tables = ("messages", "waiting", "message_revisions", "removed_messages", "searchable")
    found = []
    for table in tables:
        query = f"SELECT count(*) FROM {table} AS row WHERE row::text LIKE $1"  # noqa: S608
        if await kernel.value(query, f"%{word}%"):
            found.append(table)
    return found


@pytest.mark.parametrize("state", ["waiting", "claimed", "answered", "edited", "undone", "copied"])
async def test_c91_an_expired_message_is_gone_from_everywhere(kernel: Kernel, state: str) -> None:
    first = message("1", "sesame opens", expires_at=OVER, attachments=[PHOTO])
    placed = await kernel.say(first, at("09:00"))
    claimed = None if state == "waiting" else await kernel.claim_live(placed.session)
    if claimed is not None and state != "claimed":
        await kernel.answer(claimed)
    if state == "edited":
        await kernel.say(event(**ANN, mid="1", kind="edit", text="sesame shuts"), at("09:01"))
    if state == "undone":
        await kernel.say(message("2", "/undo"), at("09:01"))
    if state == "copied":
        await kernel.say(message("2", "/branch"), at("09:01"))
    assert await words(kernel, "sesame") != []
    assert await clear(kernel) == 1
    assert await words(kernel, "sesame") == []
    assert await clear(kernel) == 0
    assert await kernel.value("SELECT count(*) FROM expiring_messages") == 0


async def noted(kernel: Kernel) -> list[tuple[int, str]]:
    """Return the sequences in the log that are to be deleted, and when."""
    query = "SELECT sequence, noted_at FROM erased_messages ORDER BY sequence"
    return [(row[0], row[1].isoformat()) for row in await kernel.fetch(query)]


@pytest.mark.parametrize(
    "later",
    [
        pytest.param({"mid": "1", "text": "sesame"}, id="copy"),
        pytest.param({"mid": "1", "kind": "edit", "text": "sesame!"}, id="edit without its time"),
        pytest.param({"mid": "2", "text": "/title sesame", "expires_at": OVER}, id="command"),
        pytest.param({"mid": "2", "text": "sesame", "expires_at": OVER, "is_bot": True}, id="bot"),
        pytest.param(
            {"mid": "2", "text": "sesame", "expires_at": OVER, "observed": True}, id="observed"
        ),
    ],
)
@pytest.mark.parametrize("state", ["waiting", "answered"])
async def test_c91_whatever_says_it_is_deleted_from_the_log_at_its_time(
    kernel: Kernel, state: str, later: Fields
) -> None:
    first = message("1", "sesame", expires_at=LATER)
    placed = await kernel.say(first, at("09:00"))
    if state == "answered":
        await kernel.run_turn(placed.session)
    one = first if later["mid"] == "1" and "kind" not in later else event(**(ANN | later))
    second = await kernel.say(one, at("09:01"))
    ends = [LATER, later.get("expires_at", LATER)]
    assert [(seq, end[:19] + "Z") for seq, end in await noted(kernel)] == [
        (placed.message.sequence, ends[0]),
        (second.message.sequence, ends[1]),
    ]
    await kernel.say(message("3", "hi", kind="message"), at("09:02"))
    assert len(await noted(kernel)) == 2
    async with kernel.store.transaction() as connection:
        due = await erasure_list_sql.pending_messages(connection, ["INBOUND"], 9)
    assert [row.sequence for row in due] == ([second.message.sequence] if ends[1] == OVER else [])


async def test_c91_a_dead_letter_goes_with_its_message(kernel: Kernel) -> None:
    await kernel.say(message("1", "hi"), at("09:00"))
    reused = await kernel.say(message("1", "sesame", expires_at=OVER), at("09:01"))
    kept = await kernel.say(message("1", "other"), at("09:02"))
    assert [reused.dead, kept.dead] == ["message_id_reused"] * 2
    async with kernel.store.transaction() as connection:
        due = await erasure_list_sql.pending_messages(connection, ["INBOUND"], 9)
        await erasure_list_sql.messages_gone(connection, due)
    [body] = await kernel.fetch("SELECT body FROM dead_letters")
    assert body[0] == kept.message.body


async def test_c91_a_turn_whose_message_expired_ends_and_the_next_begins(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", "sesame", expires_at=OVER), at("09:00"))
    assert await clear(kernel) == 1
    turn_id = await kernel.live_turn(placed.session)
    assert turn_id is not None
    assert (await kernel.claim(turn_id)).status is ClaimStatus.VOID
    await kernel.say(message("2", "hi"), at("09:01"))
    assert texts(await kernel.run_turn(placed.session)) == ["hi"]


@pytest.mark.parametrize("expires_at", [LATER, None])
async def test_c91_a_message_stays_until_its_time(kernel: Kernel, expires_at: str | None) -> None:
    placed = await kernel.say(message("1", "sesame", expires_at=expires_at))
    assert await clear(kernel) == 0
    (told,) = (await kernel.run_turn(placed.session)).messages
    assert (told.text, told.expires_at is None) == ("sesame", expires_at is None)


async def test_c91_a_reply_does_not_show_an_expired_message(kernel: Kernel) -> None:
    placed = await kernel.say(message("1", "sesame", expires_at=OVER), at("09:00"))
    await kernel.run_turn(placed.session)
    await kernel.say(message("2", "really?", reply_to="1"), at("09:01"))
    await clear(kernel)
    (told,) = (await kernel.run_turn(placed.session)).messages
    assert told.replied is not None
    assert (told.replied.text, told.replied.is_deleted) == (None, True)


@pytest.mark.parametrize("state", ["waiting", "claimed", "answered", "undone"])
async def test_c77_a_return_address_is_deleted_when_it_ends(kernel: Kernel, state: str) -> None:
    back = {"value": "token-1", "expires_at": OVER}
    placed = await kernel.say(message(None, "hi", event_id="i1", return_address=back))
    claimed = None if state == "waiting" else await kernel.claim_live(placed.session)
    if claimed is not None and state != "claimed":
        await kernel.answer(claimed)
    if state == "undone":
        await kernel.say(message("2", "/undo"), at("09:01"))
    assert await clear(kernel) == 1
    assert await words(kernel, "token-1") == []
    assert await kernel.value("SELECT count(*) FROM turns WHERE source::text LIKE '%token-1%'") == 0
    # The message itself stays.
    assert await words(kernel, "hi") != []
